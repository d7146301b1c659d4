#!/bin/sh
if test "$(cat /app/second.txt)" = ok && ! test -e /app/first.txt && ! test -e /app/agent-only.txt; then
  echo 1
else
  echo 0
fi >/logs/verifier/reward.txt
