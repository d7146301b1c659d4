#!/bin/sh
if test "$(cat /app/first.txt)" = ok && ! test -e /app/second.txt && ! test -e /app/agent-only.txt; then
  echo 1
else
  echo 0
fi >/logs/verifier/reward.txt
