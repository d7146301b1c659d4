#!/bin/sh
set -e
echo ok >/app/third.txt
echo here >/app/agent-only.txt
