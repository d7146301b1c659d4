#!/bin/sh
set -e
sed 's/ NAME.*//' template.txt >greeting.conf
