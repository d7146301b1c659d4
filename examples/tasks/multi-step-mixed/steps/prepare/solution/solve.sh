#!/bin/sh
grep -Ex "[0-9]+" numbers.txt >clean.txt
