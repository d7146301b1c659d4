#!/bin/sh
if test "$(cat /app/greeting.txt)" = "$EXPECTED" && test "$GREETING" = "$EXPECTED"; then
  echo 1
else
  echo 0
fi >/logs/verifier/reward.txt
