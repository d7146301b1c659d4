#!/bin/sh
set -e
echo ok >/logs/artifacts/mode.txt
echo ok >/app/configured.txt
echo here >/app/agent-only.txt
