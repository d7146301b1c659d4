#!/bin/sh
set -e
echo ok >/app/first.txt
echo here >/app/agent-only.txt
