"""A server that is not a hub, or a broken hub, must not summary like a hub without new changes, or like a copy in sync."""

import contextlib
import errno
import http.server
import io
import json
import os
import sqlite3
import tempfile
import threading
import unittest
from unittest import mock

import rshub
from rshub.__main__ import main
from rshub.inventory import Inventory

GONE = (410, {"type": "https://github.com/rshub/rshub/terms/problems/gone", "title": "Gone", "detail": "start over"})


def page(after, cursor, *positions, **more):
    changes = [{"position": p, "datetime": "2026-01-01T00:00:00Z", "loc": f"https://example.org/{p}", "change": "updated"} for p in positions]
    return 200, {"set": "demo", "after": after, "cursor": cursor, "changes": changes, **more}


def part(cursor, *letters, **more):
    resources = [{"position": 1, "datetime": "2026-01-01T00:00:00Z", "loc": letter, "change": "updated"} for letter in letters]
    return 200, {"set": "demo", "baseline": True, "complete": True, "count": 2, "cursor": cursor, "resources": resources, **more}


def lines(path):
    """How many lines a file has."""
    with open(path, encoding="utf-8") as f:
        return len(f.readlines())


def event(answer):
    return f"id: x\ndata: {json.dumps(answer[1])}\n\n"


END = (200, {"set": "demo", "baseline": False, "complete": True, "count": 2, "cursor": "7-7", "changes": [], "position": "", "content": ""})


class CursorFileTest(unittest.TestCase):
    @unittest.skipUnless(os.path.exists("/proc/self/fd"), "needs /proc")
    def test_directory_is_synced(self):
        """The directory is synced, too, so that the file exists after a power failure."""
        synced, sync = [], os.fsync

        def note(fd):
            synced.append(os.readlink(f"/proc/self/fd/{fd}"))
            sync(fd)

        with tempfile.TemporaryDirectory() as directory, mock.patch("os.fsync", note):
            cursor = os.path.join(os.path.realpath(directory), "cursor")
            rshub.CursorFile(cursor).write("1-1")
            self.assertEqual(synced, [cursor + ".new", os.path.dirname(cursor)])


class InvalidResponses(unittest.TestCase):
    """A server with scripted responses: (status, value), (status, JSON), bytes as HTML, a list of events, or "truncated"."""

    def setUp(self):
        script = self.script = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                answer = script.pop(0)
                truncated = answer == "truncated"
                if truncated:
                    answer = page("0-0", "1-1", 1)
                if isinstance(answer, list):  # of events
                    status, kind, text = 200, "text/event-stream", "".join(answer).encode()
                elif isinstance(answer, bytes):
                    status, kind, text = 200, "text/html", answer
                else:
                    status = answer[0]
                    kind = "application/json" if status == 200 else "application/problem+json"
                    text = answer[1].encode() if isinstance(answer[1], str) else json.dumps(answer[1]).encode()
                self.send_response(status)
                if status == 503:
                    self.send_header("Retry-After", "Fri, 31 Dec 9999 23:59:59 GMT")
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text[: len(text) // 2] if truncated else text)

            do_POST = do_GET

            def log_message(self, *_):
                pass

        server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
        self.addCleanup(server.server_close)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(server.shutdown)
        self.client = rshub.Client(f"http://127.0.0.1:{server.server_port}", retry_timeout=0, sleep=lambda seconds: None)

    def test_first_page_is_invalid(self):
        for answer in (b"<html>", page("0-0", "1-1", 1, set="other"), (200, {"set": "demo"}), (200, []), END):
            self.script[:] = [answer]
            with self.assertRaises(rshub.NotHubError, msg=answer):
                next(self.client.follow("demo", "start"))

    def test_first_page_skips_changes(self):
        """A first page that skips changes after the cursor is refused."""
        for stream, answer in ((False, page("5-1005", "7-1007", 6, 7)), (True, [event(page("5-1005", "5-1005"))])):
            self.script[:] = [answer]
            with self.assertRaises(rshub.NotHubError, msg=answer):
                next(self.client.follow("demo", "3-1003", stream=stream))
        self.script[:] = [page("5-1005", "7-1007", 6, 7)]
        self.assertEqual(next(self.client.follow("demo", "2026-01")).cursor, "7-1007")

    def test_retry_after_of_a_wrong_clock(self):
        """A Retry-After of years is cut to an hour."""
        slept = []
        self.client.sleep = slept.append
        self.script[:] = [(503, {}), page("0-0", "1-1", 1), (503, {}), part("5-5~1", "a")]
        with self.assertLogs("rshub"):
            self.assertEqual(next(self.client.follow("demo", "start")).cursor, "1-1")
            self.assertEqual(next(self.client.baseline("demo")).cursor, "5-5~1")
        self.assertEqual(slept, [3600.0, 3600.0])

    def test_truncated_response(self):
        self.script[:] = ["truncated", page("0-0", "1-1", 1)]
        with self.assertLogs("rshub"):
            self.assertEqual(next(self.client.follow("demo", "start")).cursor, "1-1")

    def test_lone_surrogate(self):
        """A lone surrogate is refused; an escaped pair is a character."""
        good, bad = page("0-0", "1-1", 1), page("0-0", "1-1", 1)
        good[1]["changes"][0]["title"], bad[1]["changes"][0]["title"] = "\U0001f600", "\ud83d"
        self.script[:] = [good, bad]
        self.assertEqual(next(self.client.follow("demo", "start")).changes[0]["title"], "\U0001f600")
        with self.assertRaises(rshub.NotHubError):
            next(self.client.follow("demo", "start"))

    def test_depth(self):
        """JSON that is nested too deeply is refused in every response: Python may be able to read it, but not to write
        it."""
        self.client.backoff = mock.Mock(side_effect=AssertionError("got a retry, want none"))
        own = [{"loc": "a", "length": 1}]
        summary = (200, {"set": "demo", "cursor": "7-7", "complete": True, "count": 4, "weak": 4, "position": "x", "content": "x"})
        for what, deep in (("arrays", "[" * 100_000 + "]" * 100_000), ("objects", '{"a":' * 100_000 + "1" + "}" * 100_000), ("a bit", "[" * 102 + "]" * 102)):

            def nested(answer, deep=deep):
                return 200, json.dumps({**answer[1], "x": "X"}).replace('"X"', deep)

            db = sqlite3.connect(":memory:", isolation_level=None)
            for name, script, do in (
                ("page", [nested(page("0-0", "1-1", 1))], lambda: next(self.client.follow("demo", "start"))),
                ("change", [(200, json.dumps(page("0-0", "1-1", 1)[1]).replace('"updated"', f'"updated", "x": {deep}'))], lambda: next(self.client.follow("demo", "start"))),
                ("event", [[f"data: {nested(page('0-0', '0-0'))[1]}\n\n"]], lambda: next(self.client.follow("demo", "start", stream=True))),
                ("CloudEvent", [[f"data: {deep}\n\n"]], lambda: list(self.client.events(self.client.hub))),
                ("baseline", [nested(part("5-5~1", "a"))], lambda: next(self.client.baseline("demo"))),
                ("replica", [nested(part("5-5~1", "a"))], lambda: list(rshub.Replica(db, self.client, "demo").catch_up())),
                ("summary", [nested(summary)], lambda: self.client.summary("demo")),
                ("ranges", [summary, nested((200, {"set": "demo", "cursor": "7-7", "ranges": []}))], lambda: self.client.audit("demo", own)),
                ("receipt", [nested((200, {"set": "demo", "first": "1-1", "cursor": "1-1", "count": 1}))], lambda: self.client.publish("demo", own)),
            ):
                with self.subTest(what, of=name):
                    self.script[:] = script
                    with self.assertRaises(rshub.NotHubError):
                        do()
            db.close()
            with self.subTest(what, of="problem"):
                problem = f'{{"type": "https://github.com/rshub/rshub/terms/problems/gone", "title": "Gone", "detail": {deep}}}'
                self.script[:] = [(410, problem)]
                with self.assertRaisesRegex(rshub.RefusedError, "410"):
                    next(self.client.follow("demo", "start"))
        self.script[:] = [(200, json.dumps(page("0-0", "1-1", 1)[1]).replace('"updated"', f'"updated", "x": {"[" * 97 + "]" * 97}')), page("1-1", "1-1")]
        with contextlib.redirect_stdout(io.StringIO()) as output:
            self.assertEqual(main(["--hub", self.client.hub, "follow", "demo", "--since", "start", "--once"]), 0)
        self.assertIn("[" * 97, output.getvalue())

    def test_depth_after_a_valid_response(self):
        """After a valid response, one that is nested too deeply is an outage."""
        deep = "[" * 100_000 + "]" * 100_000
        self.script[:] = [page("0-0", "2-2", 1, 2), (200, deep), (503, f'{{"detail": {deep}}}'), page("2-2", "3-3", 3), page("3-3", "3-3")]
        with self.assertLogs("rshub") as logged:
            batches = list(self.client.follow("demo", "start", once=True))
        self.assertEqual(([c["position"] for b in batches for c in b.changes], len(logged.output)), ([1, 2, 3], 2))

    def test_invalid_response_after_a_valid_one(self):
        """After a valid response, an invalid one is an outage."""
        self.script[:] = [
            page("0-0", "2-2", 1, 2), page("2-2", "9-9", 9, set="other"), page("5-5", "9-9", 9), b"<html>a proxy's error page", "truncated",
            (502, {}), page("2-2", "3-3", 3), page("3-3", "3-3"),
        ]  # fmt: skip
        with self.assertLogs("rshub") as logged:
            batches = list(self.client.follow("demo", "start", once=True))
        self.assertEqual([c["position"] for b in batches for c in b.changes], [1, 2, 3])
        self.assertEqual(len(logged.output), 5)

    def test_stream(self):
        """A stream that breaks off, skips changes, has invalid events, or is not a stream, is an outage. Incomplete events,
        comments, and unknown events and fields are ignored."""
        self.script[:] = [
            ["retry: 1000\n", ":\n", event(page("0-0", "0-0")), event(page("0-0", "2-2", 1, 2)), event(page("2-2", "3-3", 3))[:-1]],
            [event(page("2-2", "2-2")), "event: news\ndata: x\n\n".replace("x", "1"), "odd: field\nevent\n\n", event(page("5-5", "9-9", 9))],
            [event(page("2-2", "2-2")), "data: {\n\n"], b"<html>", (503, {}), page("2-2", "2-2"), [],
            [event(page("2-2", "2-2")), event(page("2-2", "4-4", 3, 4)).replace("\n", "\r\n").replace('"changes"', '\r\ndata: "changes"')],
            ["event: gone\ndata: ", json.dumps(GONE[1]), "\n\n"],
        ]  # fmt: skip
        got = []
        with self.assertLogs("rshub") as logged, self.assertRaises(rshub.GoneError) as caught:
            for batch in self.client.follow("demo", "start", stream=True):
                got += [c["position"] for c in batch.changes]
        self.assertEqual(got, [1, 2, 3, 4])
        self.assertEqual((caught.exception.code, len(logged.output)), ("gone", 8))
        for answer in (b"<html>", page("0-0", "0-0"), [event(page("0-0", "0-0", set="other"))], ["data: []\n\n"]):
            self.script[:] = [answer]
            with self.assertRaises(rshub.NotHubError, msg=answer):
                next(self.client.follow("demo", "start", stream=True))

    def test_event_size_limit(self):
        """The lines of an event together have at most 64 MiB."""
        with mock.patch("rshub.wire.MAX_RESPONSE", 1 << 20):
            self.script[:] = [["data: x\n" * (1 << 18), "\n"]]
            with self.assertRaisesRegex(rshub.NotHubError, "an event of more than"):
                next(self.client.follow("demo", "start", stream=True))

    @unittest.skipUnless(os.path.exists("/proc/self/fd"), "needs /proc")
    def test_output_before_the_cursor(self):
        """If standard output is a file, it is synced before the cursor is stored. Errors are reported."""
        sync, full = os.fsync, OSError(errno.EIO, "Input/output error")
        for what, error, want in (("durable", None, 0), ("not durable", full, 2)):
            with self.subTest(what), tempfile.TemporaryDirectory() as directory:
                directory = os.path.realpath(directory)
                out, cursor = directory + "/out", directory + "/cursor"
                synced = []

                def note(fd):
                    synced.append((os.readlink(f"/proc/self/fd/{fd}"), lines(out)))
                    if error and synced[-1][0] == out:
                        raise error
                    sync(fd)

                self.script[:] = [page("0-0", "2-2", 1, 2), page("2-2", "2-2")]
                follow = ["--hub", self.client.hub, "follow", "demo", "--since", "start", "--once", "--cursor", cursor]
                output = io.StringIO()
                with open(out, "w") as stdout, contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(output), mock.patch("os.fsync", note):
                    self.assertEqual(main(follow), want, output.getvalue())
                if error:
                    self.assertEqual((synced, os.path.exists(cursor)), ([(out, 2)], False))
                    self.assertIn("Input/output error", output.getvalue())
                else:
                    self.assertEqual(synced, [(out, 2), (cursor + ".new", 2), (directory, 2)])

    def test_output_is_not_a_file(self):
        with tempfile.TemporaryDirectory() as directory, contextlib.redirect_stdout(io.StringIO()) as output:
            cursor = directory + "/cursor"
            self.script[:] = [page("0-0", "1-1", 1), page("1-1", "1-1")]
            self.assertEqual(main(["--hub", self.client.hub, "follow", "demo", "--since", "start", "--once", "--cursor", cursor]), 0)
            self.assertEqual((rshub.CursorFile(cursor).read(), json.loads(output.getvalue())["position"]), ("1-1", 1))

    def test_baseline(self):
        """A baseline that is gone starts over with a restart."""
        self.script[:] = [part("5-5~1", "a"), GONE, part("7-7~1", "b"), (503, {}), part("7-7~2", "c"), END]
        with self.assertLogs("rshub"):
            pages = list(self.client.baseline("demo"))
        self.assertEqual([(p.restart, [r["loc"] for r in p.resources]) for p in pages], [(False, ["a"]), (True, ["b"]), (False, ["c"]), (False, [])])

    def test_baseline_out_of_order(self):
        for first in (part("5-5~1", "b", "a"), part("5-5~1", "a", "a"), part("5-5~1", "a", set="other")):
            self.script[:] = [first]
            with self.assertRaises(rshub.NotHubError, msg=first):
                next(self.client.baseline("demo"))
        self.script[:] = [part("5-5~1", "a")]
        with self.assertRaises(rshub.NotHubError):
            next(self.client.baseline("demo", prefix="b"))

        self.script[:] = [part("5-5~1", "a"), END]
        with self.assertRaisesRegex(rshub.NotHubError, "got 1 resources, want the 2"):
            list(self.client.baseline("demo"))
        self.script[:] = [END]
        self.assertTrue(next(self.client.baseline("demo", after="7-7~1")).end)
        self.script[:] = [part("7-7~9", "c", after="7-7~8")]
        with self.assertRaisesRegex(rshub.NotHubError, "after 7-7~8, want those after 7-7~1"):
            next(self.client.baseline("demo", after="7-7~1"))

    def test_audit(self):
        """An answer that does not cover the whole range is refused."""
        own = [{"loc": c, "length": 1} for c in "abc"]
        summary = (200, {"set": "demo", "cursor": "7-7", "complete": True, "count": 4, "weak": 4, "position": "x", "content": "x"})

        def answer(*ranges, **more):
            return 200, {"set": "demo", "cursor": "7-7", "ranges": list(ranges), **more}

        begin, middle, end = Inventory(own, "content").cut(None, None, 256)
        self.assertEqual((begin["to"], middle["from"], middle["to"], end["from"]), ("b", "b", "c", "c"))
        half, rest = {**middle, "to": "bb"}, {**middle, "from": "bb"}
        d = {"loc": "bd", "e": "00" * 16}
        for what, reply in (
            ("no range, although the digests differ", answer()),
            ("the same range", answer(middle)),
            ("the same range with another digest", answer({**middle, "digest": "x"})),
            ("a gap at the end", answer(half, {**rest, "to": "bz"})),
            ("a gap in the middle", answer(half, {**rest, "from": "bc"})),
            ("another range", answer({**end, "from": "x", "to": "y", "resources": [], "count": 0})),
            ("another cursor", answer(cursor="8-8")),
            ("another set", answer(set="other")),
            ("fewer resources than count", answer({**middle, "count": 2, "resources": [d]})),
            ("a resource outside of the range", answer({**middle, "count": 1, "resources": [{**d, "loc": "x"}]})),
            ("resources out of order", answer({**middle, "count": 2, "resources": [d, d]})),
        ):
            self.script[:] = [summary, reply]
            with self.assertRaises(rshub.NotHubError, msg=what):
                self.client.audit("demo", own, settle=0)

    def test_audit_state_is_gone(self):
        summary = (200, {"set": "demo", "cursor": "7-7", "complete": True, "count": 0, "weak": 0, "position": "x", "content": "x"})
        same = (200, {**summary[1], "count": 1, "content": Inventory([{"loc": "a"}], "content").range()["digest"]})
        self.script[:] = [summary, GONE, summary, GONE, same]
        self.assertEqual(self.client.audit("demo", [{"loc": "a"}]), [])
        self.script[:] = [summary, GONE] * 9
        with self.assertRaises(rshub.GoneError):
            self.client.audit("demo", [{"loc": "a"}])
        self.assertEqual(len(self.script), 8)

    def test_replica_audit_at_a_lagging_hub(self):
        """If the hub with the changes is behind the one with the summary, the audit waits for it."""
        replica = rshub.Replica(sqlite3.connect(":memory:", isolation_level=None), self.client, "demo")
        replica.db.execute("UPDATE rshub_set SET cursor = '5-1005', whole = 1")
        entries = page("5-1005", "7-1007", 6, 7)
        content = Inventory(entries[1]["changes"], "position")
        summary = {"set": "demo", "cursor": "7-1007", "complete": True, "count": 2, "position": content.range()["digest"], "content": "x"}
        differ = {"set": "demo", "cursor": "7-1007", "ranges": [{"from": None, "to": None, "count": 2, "resources": [
            {"loc": c["loc"], "e": content.elements[i][:16].hex()} for i, c in enumerate(entries[1]["changes"])]}]}  # fmt: skip
        self.script[:] = [(200, summary), page("5-1005", "5-1005"), entries, (200, differ)]
        self.assertEqual(replica.audit(), [])
        self.assertEqual(len(self.script), 1)
