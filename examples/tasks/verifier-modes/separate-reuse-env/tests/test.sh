#!/bin/sh
if test "$(cat /logs/artifacts/mode.txt)" = ok && test "$(cat /app/configured.txt)" = ok && ! test -e /app/agent-only.txt && test "$(cat /image-context.txt)" = verifier-build-context; then
  echo 1
else
  echo 0
fi >/logs/verifier/reward.txt
