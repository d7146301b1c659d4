#!/bin/sh
set -e
echo "$GREETING$EXPECTED" >/app/greeting.txt
