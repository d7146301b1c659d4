#!/bin/sh
set -e
test ! -e /image-context.txt
echo ok >/logs/artifacts/mode.txt
