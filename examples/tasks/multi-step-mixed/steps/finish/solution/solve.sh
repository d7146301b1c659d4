#!/bin/sh
paste -sd+ clean.txt | sed "s/^/echo \$((/; s/\$/))/" | sh >total.txt
