#!/bin/sh
set -e
echo ok >/app/second.txt
echo here >/app/agent-only.txt
