#!/bin/sh
. /tests/verdict.sh
# Only what is declared has come here.
test ! -e /app/clean.txt && verdict test "$(cat /app/total.txt)" = 42
