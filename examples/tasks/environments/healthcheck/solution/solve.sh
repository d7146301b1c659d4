#!/bin/sh
set -e
cp /run-state/ready /app/ready.txt
