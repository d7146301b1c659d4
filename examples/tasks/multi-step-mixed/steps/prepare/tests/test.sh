#!/bin/sh
. /tests/verdict.sh
verdict test "$(cat /app/clean.txt)" = "3
4
35"
