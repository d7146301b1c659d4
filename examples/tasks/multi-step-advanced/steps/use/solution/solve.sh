#!/bin/sh
set -e
/app/greet.sh Ada >/app/out.txt
