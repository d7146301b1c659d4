"""Takes orders, writes each into a log, and counts them in memory."""

import json
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

LOG = os.environ["LOG"]
os.makedirs(os.path.dirname(LOG), exist_ok=True)
orders = []


class Shop(BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/stats":
            self.answer(200, {"orders": len(orders)})
        else:
            self.answer(404, {})

    def do_POST(self):
        body = self.rfile.read(min(int(self.headers.get("Content-Length", 0)), 10_000))
        try:
            item = json.loads(body)["item"]
        except (ValueError, KeyError, TypeError):
            return self.answer(400, {})
        if self.path != "/orders" or not isinstance(item, str) or "\n" in item:
            return self.answer(400, {})
        orders.append(item)
        with open(LOG, "a") as log:
            log.write(item + "\n")
        self.answer(201, {})

    def answer(self, status, value):
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(value).encode())

    def log_message(self, *_):
        pass


ThreadingHTTPServer(("0.0.0.0", 8000), Shop).serve_forever()
