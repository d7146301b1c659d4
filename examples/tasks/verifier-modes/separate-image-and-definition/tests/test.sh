#!/bin/sh
if test "$(cat /logs/artifacts/mode.txt)" = ok && test "$(cat /image-context.txt)" = verifier; then
  echo 1
else
  echo 0
fi >/logs/verifier/reward.txt
