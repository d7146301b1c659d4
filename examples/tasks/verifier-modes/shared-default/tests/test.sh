#!/bin/sh
if test "$(cat /logs/artifacts/mode.txt)" = ok && test "$(cat /app/configured.txt)" = ok && test -e /app/agent-only.txt; then
  echo 1
else
  echo 0
fi >/logs/verifier/reward.txt
