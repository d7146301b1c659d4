#!/bin/sh
# Runs before the step, in the working directory.
chmod 600 template.txt
