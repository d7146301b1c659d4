"""What the shop has in memory."""

import sys
import urllib.request

with urllib.request.urlopen("http://127.0.0.1:8000/stats", timeout=5) as answer:
    sys.stdout.write(answer.read().decode())
