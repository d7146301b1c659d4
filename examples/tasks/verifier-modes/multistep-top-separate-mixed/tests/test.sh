#!/bin/sh
if test "$(cat /app/*.txt)" = ok && test "$(ls /app | wc -l)" = 1 && test -e /image-context.txt; then
  echo 1
else
  echo 0
fi >/logs/verifier/reward.txt
