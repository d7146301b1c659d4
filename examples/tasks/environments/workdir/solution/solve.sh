#!/bin/sh
set -e
echo here >place.txt
