import http.server
import json
import threading
import unittest
import urllib.parse

import rshub

from .hub import HubTest, changes, until


class Callback:
    """A callback that confirms its subscription, and keeps the URL of the status that it is told."""

    def __init__(self):
        callback = self
        self.status = ""

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                query = urllib.parse.parse_qs(self.path.partition("?")[2])
                callback.status = query["rs.status"][0]
                self.answer(200, query["hub.challenge"][0].encode())

            def do_POST(self):
                self.rfile.read(int(self.headers["Content-Length"]))
                self.answer(204, b"")

            def answer(self, status, text):
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/cb"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    def close(self):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


class Prove(HubTest):
    variables = {"RSHUB_CALLBACK_ALLOW": "127.0.0.0/8"}

    def subscribe(self, **more):
        callback = Callback()
        self.addCleanup(callback.close)
        form = {"hub.mode": "subscribe", "hub.topic": self.client.topic(self.set_name), "hub.callback": callback.url, **more}
        connection = http.client.HTTPConnection(self.hub.host)
        connection.request("POST", "/hub", urllib.parse.urlencode(form), {"Content-Type": "application/x-www-form-urlencoded"})
        answer = connection.getresponse()
        self.assertEqual(answer.status, 202, answer.read())
        connection.close()
        until("the subscription is there", lambda: callback.url in self.hub.call("GET", f"/sets/{self.set_name}/subscriptions"))
        return callback.status

    def proved(self):
        return [s.get("proved") for s in json.loads(self.hub.call("GET", f"/sets/{self.set_name}/subscriptions"))["subscriptions"]]

    def test_prove(self):
        """What is equal by position and by content is proved, and the hub says so to operators. What differs is not."""
        self.client.publish(self.set_name, changes("1a", "1b", "2", length=5))
        status = self.subscribe(**{"rs.prefix": "https://example.org/1"})
        self.assertEqual(self.proved(), [None])
        held = []
        for page in self.client.baseline(self.set_name, prefix="https://example.org/1"):
            held += page.resources
        for by in ("position", "content"):
            look = self.client.look(self.set_name, prefix="https://example.org/1")
            own = rshub.Inventory(held, by)
            proof = self.client.prove(status, look.cursor, own)
            self.assertEqual((proof.equal, proof.cursor, proof.complete), (True, look.cursor, False))
            want = {"time": proof.proved, "at": look.cursor, "by": by, "complete": False}
            until("the proof is shown", lambda: self.proved() == [want])

            for other in (held[1:], [{**r, "position": 9, "length": 6} for r in held]):
                proof = self.client.prove(status, look.cursor, rshub.Inventory(other, by))
                self.assertEqual((proof.equal, proof.proved), (False, ""))
            self.assertEqual(self.proved(), [want])
        with self.assertRaises(rshub.Gone):
            self.client.prove(status, "2-1", own)

    def test_refused(self):
        self.client.publish(self.set_name, changes("a"))
        status = self.subscribe(**{"rs.change": "deleted"})
        own, cursor = rshub.Inventory(changes("a"), "content"), self.client.look(self.set_name).cursor
        for url, code in ((status, "filtered"), (status + "x", "no-such-subscription")):
            with self.assertRaises(rshub.Refused) as caught:
                self.client.prove(url, cursor, own)
            self.assertEqual(caught.exception.code, code, caught.exception)


class Elsewhere(unittest.TestCase):
    def test_elsewhere(self):
        """The token and the digests go to the status of a subscription, and nowhere else."""
        client = rshub.Client("https://hub.example.org")
        own = rshub.Inventory([], "position")
        for url in ("", "/subscriptions/1.x", "https://hub.example.org/subscriptions/", "https://hub.example.org/sets/demo/audit",
                    "https://elsewhere.example/subscriptions/1.x", "https://hub.example.org/subscriptions/1.x?y", "https://hub.example.org/subscriptions/../hub"):  # fmt: skip
            with self.assertRaisesRegex(ValueError, "https://hub.example.org/subscriptions/", msg=url):
                client.prove(url, "1-1", own)
