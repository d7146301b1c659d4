#!/bin/sh
# Runs before the step, in the working directory.
printf "3\nfive\n\n4\n1.5\n35\n" >numbers.txt
