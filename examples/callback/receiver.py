#!/usr/bin/env python3
"""A callback: takes what a hub POSTs, keeps it in a file, and answers at once. Another program reads the file.

    CALLBACK_SECRET=... python3 receiver.py 127.0.0.1:9000 http://127.0.0.1:8080/sets/demo/changes spool.ndjson

The file has a line for each delivery: {"mark", "missed", "changes"}. "missed" means: read a baseline. The mark of the last
line is what was processed, "POSITION/NUMBER", so the file is all that has to survive a crash. NUMBER is that of the newest
delivery; it is missing if the hub numbers none.
"""

import hmac
import http.server
import json
import os
import sys
import urllib.parse

import rshub

MOST = 16 << 20  # bytes of a delivery; a hub sends about 1 MiB


class Spool:
    """The file, and the mark of its last line."""

    def __init__(self, path):
        self.file = open(path, "a+b")
        self.file.seek(0)
        text = self.file.read()
        self.file.truncate(text.rfind(b"\n") + 1)  # a crash may have left a part of a line, which was not acknowledged
        lines = text[: text.rfind(b"\n") + 1].splitlines()
        if os.name == "posix":  # else a crash of the machine may leave no file
            directory = os.open(os.path.dirname(path) or ".", os.O_RDONLY)
            os.fsync(directory)
            os.close(directory)
        self.mark = str(json.loads(lines[-1])["mark"]) if lines else None

    def take(self, delivery):
        news = delivery.news(self.mark)
        if news.changes or news.missed or news.mark != self.mark:  # else it is a repeat
            line = {"mark": news.mark, "missed": news.missed, "changes": news.changes}
            try:
                self.file.write(json.dumps(line).encode() + b"\n")
                self.file.flush()
                os.fsync(self.file.fileno())
            except OSError as e:  # the file may have a part of the line now; the next start removes it
                print(f"cannot keep a delivery: {e}", file=sys.stderr)
                os._exit(1)
            self.mark = news.mark


class Callback(http.server.BaseHTTPRequestHandler):
    timeout = 30  # for one request
    topic = secret = spool = None

    def do_GET(self):
        """The hub asks whether the subscription is wanted. The answer is yes for our topic alone."""
        text = urllib.parse.urlsplit(self.path).query
        query = dict(urllib.parse.parse_qsl(text))
        mode = query.get("hub.mode")
        try:
            rshub.check_question(self.headers, text, self.secret)
        except rshub.BadSignature:
            return self.answer(403)
        if mode == "denied":
            print(f"the hub ended the subscription: {query.get('hub.reason')}", file=sys.stderr)
            self.answer(200)
        elif mode in ("subscribe", "unsubscribe") and hmac.compare_digest(query.get("hub.topic", "").encode(), self.topic.encode()):
            self.answer(200, query.get("hub.challenge", ""))
        else:
            self.answer(404)

    def do_POST(self):
        """Changes. 2xx means that they are safe; after everything else the hub sends them again."""
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > MOST:
            return self.answer(413)
        try:
            self.spool.take(rshub.read_delivery(self.headers, self.rfile.read(int(length)), self.secret))
        except rshub.BadSignature:
            return self.answer(403)
        except ValueError as e:
            print(f"a delivery cannot be read: {e}", file=sys.stderr)
            return self.answer(400)
        self.answer(204)

    def answer(self, status, text=""):
        self.send_response(status)
        self.send_header("Content-Type", "text/plain")
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_):
        pass


def main(address, topic, path):
    host, _, port = address.rpartition(":")
    Callback.topic, Callback.secret, Callback.spool = topic, os.environ["CALLBACK_SECRET"], Spool(path)
    server = http.server.HTTPServer((host, int(port)), Callback)  # one request at a time, as the hub sends them
    print(f"callback http://{host}:{server.server_port}/", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
