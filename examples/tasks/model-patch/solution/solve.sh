#!/bin/sh
set -e
cat >stats.py <<'END'
def median(values):
    ordered = sorted(values)
    middle = len(ordered) // 2
    if len(ordered) % 2 == 1:
        return ordered[middle]
    return (ordered[middle - 1] + ordered[middle]) / 2


def mean(values):
    return sum(values) / len(values)
END
git commit -q -a -m "Take the mean of the two in the middle"
