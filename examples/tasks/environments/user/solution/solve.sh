#!/bin/sh
set -e
whoami >/app/name.txt
