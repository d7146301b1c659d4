#!/bin/sh
if test "$(cat /app/ready.txt)" = "started with the box"; then
  echo 1
else
  echo 0
fi >/logs/verifier/reward.txt
