#!/bin/sh
check() {
  test "$(cat /app/report.txt)" = ok && test "$(cat /app/out/inside)" = ok && test "$(/app/out/tool)" = ok || return 1
  test "$(cat /logs/artifacts/state.txt)" = ok || return 1
  for absent in /app/out/drop.tmp /app/out/outside /app/never-made.txt /app/state.txt; do
    if test -e $absent || test -L $absent; then return 1; fi
  done
  test ! -u /app/out/tool
}
if check; then
  echo 1
else
  echo 0
fi >/logs/verifier/reward.txt
