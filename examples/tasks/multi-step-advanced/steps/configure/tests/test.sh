#!/bin/sh
. /tests/helpers.sh
right=$(verdict test "$(cat /app/greeting.conf)" = "Hello,")
echo "{\"reward\": $right, \"style\": $right}" >/logs/verifier/reward.json
