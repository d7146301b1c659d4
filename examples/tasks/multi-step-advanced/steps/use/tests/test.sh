#!/bin/sh
. /tests/helpers.sh
right=$(verdict test "$(cat /app/out.txt)" = "Hello, $NAME!")
echo "{\"reward\": $right, \"style\": $right}" >/logs/verifier/reward.json
