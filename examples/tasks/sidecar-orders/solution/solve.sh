#!/bin/sh
set -eu
for item in apple pear plum; do
  python3 -c '
import json, sys, urllib.request
order = json.dumps({"item": sys.argv[1]}).encode()
urllib.request.urlopen(urllib.request.Request("http://api:8000/orders", order), timeout=10)
' "$item"
done
