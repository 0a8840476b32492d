#!/usr/bin/env python3
"""A callback that appends the deliveries of a hub to a file. Another program reads the file.

    CALLBACK_SECRET=... python3 receiver.py 127.0.0.1:9000 http://127.0.0.1:8080/sets/demo/changes spool.ndjson

The file has a line for each delivery: {"mark", "missed", "changes"}. If "missed" is true, read a baseline. The mark of the
last line is the state of the receiver, so only the file must survive a crash.
"""

import hmac
import http.server
import json
import os
import sys
import urllib.parse

import rshub

MAX_DELIVERY = 16 << 20  # bytes of a delivery; a hub sends about 1 MiB


class Spool:
    """The file, and the mark of its last line."""

    def __init__(self, path):
        self.file = open(path, "a+b")
        self.file.seek(0)
        text = self.file.read()
        self.file.truncate(text.rfind(b"\n") + 1)  # a crash may leave a part of a line, which was not acknowledged
        lines = text[: text.rfind(b"\n") + 1].splitlines()
        if os.name == "posix":  # otherwise a crash of the machine may leave no file
            directory = os.open(os.path.dirname(path) or ".", os.O_RDONLY)
            os.fsync(directory)
            os.close(directory)
        self.mark = str(json.loads(lines[-1])["mark"]) if lines else None

    def append(self, delivery):
        new = delivery.new_changes(self.mark)
        if new.changes or new.missed or new.mark != self.mark:  # otherwise it is a repeat
            line = {"mark": new.mark, "missed": new.missed, "changes": new.changes}
            try:
                self.file.write(json.dumps(line).encode() + b"\n")
                self.file.flush()
                os.fsync(self.file.fileno())
            except OSError as e:  # the file may now have a part of the line, which the next start removes
                print(f"store delivery: {e}", file=sys.stderr)
                os._exit(1)
            self.mark = new.mark


class Callback(http.server.BaseHTTPRequestHandler):
    timeout = 30  # for one request
    topic = secret = spool = None

    def do_GET(self):
        """Confirms subscriptions to our topic, and no other."""
        text = urllib.parse.urlsplit(self.path).query
        query = dict(urllib.parse.parse_qsl(text))
        mode = query.get("hub.mode")
        try:
            rshub.check_query(self.headers, text, self.secret)
        except rshub.SignatureError:
            return self.answer(403)
        if mode == "denied":
            print(f"the hub ended the subscription: {query.get('hub.reason')}", file=sys.stderr)
            self.answer(200)
        elif mode in ("subscribe", "unsubscribe") and hmac.compare_digest(query.get("hub.topic", "").encode(), self.topic.encode()):
            self.answer(200, query.get("hub.challenge", ""))
        else:
            self.answer(404)

    def do_POST(self):
        """Stores a delivery. 2xx means that it is durable; after any other answer the hub retries."""
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > MAX_DELIVERY:
            return self.answer(413)
        try:
            self.spool.append(rshub.read_delivery(self.headers, self.rfile.read(int(length)), self.secret))
        except rshub.SignatureError:
            return self.answer(403)
        except ValueError as e:
            print(e, file=sys.stderr)
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
    server = http.server.HTTPServer((host, int(port)), Callback)  # one request at a time, like the hub
    print(f"callback http://{host}:{server.server_port}/", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
