#!/bin/sh
if test "$(cat /custom/place.txt)" = here && test "$(pwd)" = /custom; then
  echo 1
else
  echo 0
fi >/logs/verifier/reward.txt
