#!/bin/sh
if test "$(cat /app/name.txt)" = agent && test "$(whoami)" = root; then
  echo 1
else
  echo 0
fi >/logs/verifier/reward.txt
