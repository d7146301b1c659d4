#!/bin/sh
set -e
cat >/app/slug.py <<'PY'
import re


def slug(title):
    return "-".join(re.findall(r"[a-z0-9]+", title.lower()))
PY
