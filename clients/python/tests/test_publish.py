import json
import os
import subprocess
import sys
import tempfile
import time
import unittest.mock

import rshub

from .hub import HubTest, Proxy, changes, names


class Publish(HubTest):
    def setUp(self):
        super().setUp()
        self.proxy = Proxy(self.hub)
        self.addCleanup(self.proxy.close)
        self.slept = []
        self.lossy = rshub.Client(self.proxy.url, retry_timeout=60, sleep=self.slept.append)

    def memory(self):
        return [n for b in self.client.follow(self.set_name, "start", once=True) for n in names(b.changes)]

    def test_lost_response(self):
        """If the response is lost, the client publishes again with the same key."""
        self.proxy.plan = ["lose", "refuse", 503, "lose"]
        with self.assertLogs("rshub", "WARNING"):
            receipt = self.lossy.publish(self.set_name, changes("a", "b"))
        self.assertEqual((receipt.count, receipt.replayed, receipt.set), (2, False, self.set_name))
        self.assertEqual(self.memory(), ["a", "b"])
        self.assertEqual(len(self.proxy.seen), 5)
        self.assertEqual(len(set(self.proxy.seen)), 1)
        self.assertGreaterEqual(self.slept[2], 1)  # Retry-After

    def test_own_key(self):
        """A program that crashed can publish the same changes again."""
        first = self.client.publish(self.set_name, changes("a"), key="run-7")
        again = self.client.publish(self.set_name, changes("a"), key="run-7")
        self.assertEqual((again.cursor, first.replayed, again.replayed), (first.cursor, False, True))
        with self.assertRaises(rshub.RefusedError) as caught:
            self.client.publish(self.set_name, changes("b"), key="run-7")
        self.assertEqual((caught.exception.status, caught.exception.code), (422, "key-reused"))
        self.assertEqual(self.memory(), ["a"])

    def test_refused(self):
        bad = changes("a") + [{"loc": "https://example.org/b", "change": "moved"}]
        with self.assertRaises(rshub.RefusedError) as caught:
            self.client.publish(self.set_name, bad)
        e = caught.exception
        self.assertEqual((e.status, e.problem["entry"], e.problem["loc"], e.uncertain), (400, 2, "https://example.org/b", False))
        self.assertIn("moved", str(e))
        self.assertEqual(self.memory(), [])

    def test_refused_after_lost_response(self):
        self.proxy.plan = ["lose", 404]
        with self.assertLogs("rshub"), self.assertRaises(rshub.RefusedError) as caught:
            self.lossy.publish(self.set_name, changes("a"), key="k")
        self.assertEqual((caught.exception.uncertain, caught.exception.key), (True, "k"))
        self.assertEqual(self.memory(), ["a"])

    def test_retry_timeout(self):
        self.proxy.plan = [503] * 100
        client = rshub.Client(self.proxy.url, retry_timeout=0)
        with self.assertRaises(rshub.UnavailableError) as caught:
            client.publish(self.set_name, changes("a"))
        self.assertEqual((caught.exception.retry_after, caught.exception.uncertain, len(self.proxy.seen)), (1, True, 1))
        begin = time.monotonic()
        with self.assertLogs("rshub"), self.assertRaises(rshub.UnavailableError):
            rshub.Client("http://127.0.0.1:1", retry_timeout=0.3, sleep=self.client.sleep).publish(self.set_name, changes("a"))
        self.assertLess(time.monotonic() - begin, 10)
        with self.assertRaises(rshub.UnavailableError) as caught:
            rshub.Client("http://127.0.0.1:1", retry_timeout=0).publish(self.set_name, changes("a"))
        self.assertFalse(caught.exception.uncertain)

    def test_redirect(self):
        self.proxy.plan = [307]
        with self.assertRaises(rshub.RefusedError) as caught:
            self.lossy.publish(self.set_name, changes("a"))
        self.assertIn("redirect to", str(caught.exception))

    def test_proxy_is_not_used_for_loopback(self):
        with unittest.mock.patch.dict(os.environ, {"http_proxy": "http://127.0.0.1:1", "no_proxy": ""}):
            rshub.Client(self.hub.url, retry_timeout=0).publish(self.set_name, changes("a"))

    def test_many(self):
        every = changes(*map(str, range(2500)))
        receipts = list(self.client.publish_all(self.set_name, iter(every), key="load"))
        self.assertEqual([r.count for r in receipts], [1000, 1000, 500])
        again = list(self.client.publish_all(self.set_name, iter(every), key="load"))
        self.assertTrue(all(r.replayed for r in again))
        self.assertEqual(len(self.memory()), 2500)

    def test_many_after_keys_expired(self):
        """Batches that are added again are in order: no batch after one of them is recognized as a repeat."""
        every = changes("a") + changes("b") + changes("a", change="deleted")
        load = lambda: list(self.lossy.publish_all(self.set_name, every, key="load", size=1))  # noqa: E731
        load()
        keys = list(self.proxy.seen)
        for n, want in ((0, [False, False, False]), (1, [True, False, False]), (2, [True, True, False])):
            with self.subTest(expired=n + 1):
                before = len(self.memory())
                self.proxy.expired = {keys[n]}
                self.assertEqual([r.replayed for r in load()], want)
                self.assertEqual(self.memory()[before:], ["a", "b", "a"][n:])
        with self.assertRaises(rshub.RefusedError) as caught:
            list(self.client.publish_all(self.set_name, changes("c"), key="load"))
        self.assertEqual(caught.exception.code, "key-reused")

    def test_keys_of_batches(self):
        """The key of a batch depends on key, number and cursor, and not on the changes."""
        sent = []

        def request(topic, *, body, headers):
            sent.append(headers["Idempotency-Key"])
            return {"set": "demo", "first": cursor, "cursor": cursor, "count": 1}

        client = rshub.Client("http://127.0.0.1:1", retry_timeout=0)
        client.request = request
        for key, cursor, names in (("a", "1-1", "bc"), ("a", "1-1", "de"), ("a", "2-1", "bc"), ("a-1", "1-1", "bc"), ("a1", "-1", "bc")):
            list(client.publish_all("demo", changes(*names), key=key, size=1))
        firsts, seconds = sent[::2], sent[1::2]
        self.assertEqual((firsts[0], seconds[0]), (firsts[1], seconds[1]))
        self.assertEqual((firsts[0], len(set(firsts[2:]))), (firsts[2], 3))
        self.assertEqual(len(set(seconds[1:])), 4)
        self.assertEqual({len(key) for key in sent}, {64})
        with self.assertRaises(ValueError):
            list(client.publish_all("demo", changes("a"), key="two words"))

    def test_nothing(self):
        with self.assertRaises(ValueError):
            self.client.publish(self.set_name, [])
        with self.assertRaises(ValueError):
            self.client.publish(self.set_name, changes("a"), key="two words")
        self.assertEqual(list(self.client.publish_all(self.set_name, [])), [])

    def test_escaped_loc_and_links(self):
        self.client.publish(self.set_name, [{"loc": "https://example.org/%C3%BC", "change": "created", "type": "text/html", "ln": [{"rel": "describedby", "href": "https://example.org/m"}]}])
        (batch,) = (b for b in self.client.follow(self.set_name, "start", once=True) if b.changes)
        self.assertEqual(batch.changes[0]["ln"], [{"rel": "describedby", "href": "https://example.org/m"}])


class Program(HubTest):
    """The command line."""

    def run_program(self, *arguments, stdin="", status=0):
        done = subprocess.run([sys.executable, "-m", "rshub", "--hub", self.hub.url, *arguments], input=stdin, capture_output=True, text=True, env=os.environ)
        self.assertEqual(done.returncode, status, done.stderr)
        return done.stdout, done.stderr

    def test_commands(self):
        lines = "".join(json.dumps(c) + "\n" for c in changes("a", "b", "c", change="created", length=5))
        out, _ = self.run_program("publish", self.set_name, "--key", "one", stdin=lines)
        self.assertEqual(json.loads(out)["count"], 3)
        with tempfile.TemporaryDirectory() as directory:
            follow = ("follow", self.set_name, "--since", "start", "--once", "--cursor", directory + "/cursor")
            out, _ = self.run_program(*follow)
            self.assertEqual(names(map(json.loads, out.splitlines())), ["a", "b", "c"])
            _, stderr = self.run_program(*follow, "--stream", status=2)
            self.assertIn("without once", stderr)
            self.publish("d", length=5)
            out, _ = self.run_program(*follow)
            self.assertEqual(names(map(json.loads, out.splitlines())), ["d"])
        copy, stderr = self.run_program("baseline", self.set_name)
        later, _ = self.run_program("follow", self.set_name, "--since", stderr.split()[-1], "--once")
        copy += later
        self.assertEqual(sorted(names(map(json.loads, copy.splitlines()))), ["a", "b", "c", "d"])
        self.run_program("audit", self.set_name, stdin=copy)
        _, stderr = self.run_program("publish", self.set_name, stdin="{", status=2)
        self.assertIn("read line 1: invalid JSON", stderr)
        _, stderr = self.run_program("publish", self.set_name, stdin='{"loc":"/a","change":"created"}\n', status=2)
        self.assertIn("want an absolute URI", stderr)
        _, stderr = self.run_program("follow", self.set_name, "--since", "never", status=2)
        self.assertIn("400", stderr)

    def test_bad_lines(self):
        """The error for an invalid line has its number."""
        loc = '{"loc":"https://example.org/a","change":"created",'
        for bad, want in (
            ("{", "invalid JSON"),
            ("[" * 100_000 + "]" * 100_000, "invalid JSON"),
            ('{"a":' * 101 + "1" + "}" * 101, "invalid JSON"),
            (loc + '"type":"\\ud83d"}', "invalid JSON"),
            ("1", "want an object with loc"),
            ('["loc"]', "want an object with loc"),
            ('{"change":"created"}', "want an object with loc"),
            ('{"loc":1,"change":"created"}', "want an object with loc"),
            (loc + '"hash":["sha-256:00"]}', "invalid hash"),
            (loc + '"lastmod":2024}', "invalid lastmod 2024"),
            (loc + '"length":"5"}', "invalid length '5'"),
        ):
            for command in ("publish", "audit"):
                with self.subTest(command, bad=bad[:60]):
                    out, stderr = self.run_program(command, self.set_name, stdin="\n" + bad + "\n", status=2)
                    self.assertEqual((out, len(stderr.splitlines())), ("", 1), stderr)
                    self.assertIn(f"rshub: read line 2: {want}", stderr)
