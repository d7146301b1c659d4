#!/bin/sh
. /tests/helpers.sh
verdict test "$(/app/greet.sh Bob)" = "Hello, Bob!" >/logs/verifier/reward.txt
