"""A server that violates RFC 6455 or the protocol of a hub is refused or reconnected to, and nothing is lost silently."""

import base64
import hashlib
import json
import random
import socket
import threading
import unittest
from unittest import mock

import rshub

from .hub import TIMEOUT, until

TEXT, CLOSE, PING, PONG = 1, 8, 9, 10


def frame(payload, opcode=TEXT, final=True, mask=False, reserved=0, size=None):
    payload = payload.encode() if isinstance(payload, str) else payload
    size = len(payload) if size is None else size
    if size < 126:
        length = bytes([size])
    else:
        length = b"\x7e" + size.to_bytes(2, "big") if size < 1 << 16 else b"\x7f" + size.to_bytes(8, "big")
    length = bytes([length[0] | (0x80 if mask else 0)]) + length[1:] + (b"\0\0\0\0" if mask else b"")
    return bytes([(0x80 if final else 0) | reserved << 4 | opcode]) + length + payload


def close(code, reason=""):
    return frame(code.to_bytes(2, "big") + reason.encode(), CLOSE)


def batch(after, cursor, *positions, name="demo", **more):
    changes = [{"position": p, "datetime": "2026-01-01T00:00:00Z", "loc": f"https://example.org/{p}", "change": "updated"} for p in positions]
    return frame(json.dumps({"set": name, "after": after, "cursor": cursor, "changes": changes, **more}))


def message(**members):
    return frame(json.dumps(members))


def problem(status, name="demo", kind="x", **more):
    error = {"status": status, "type": "https://github.com/rshub/rshub/terms/problems/" + kind, "title": "x", "detail": "y", **more}
    return message(**({"set": name} if name else {}), error=error)


def read_frame(file):
    """Reads a frame of a client, which must be masked."""
    head = file.read(2)
    if len(head) < 2:
        return None
    assert head[0] & 0x70 == 0 and head[1] & 0x80, head
    size = head[1] & 0x7F
    if size >= 126:
        size = int.from_bytes(file.read(2 if size == 126 else 8), "big")
    mask, payload = file.read(4), file.read(size)
    return head[0] & 0x0F, bytes(c ^ mask[i % 4] for i, c in enumerate(payload))


class Server:
    """A server with a script of connections. Each is bytes to send after the handshake, or a dict of headers that replace
    those of the handshake, or bytes that replace the whole response. It then waits for the client to leave."""

    def __init__(self):
        self.script = []
        self.received = []  # frames by connection
        self.requests = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.threads = [threading.Thread(target=self.run, daemon=True)]
        self.threads[0].start()

    def run(self):
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            step = self.script.pop(0) if self.script else {"status": "404 Not Found"}
            self.received.append([])
            self.threads.append(threading.Thread(target=self.connected, args=(sock, step, self.received[-1]), daemon=True))
            self.threads[-1].start()

    def connected(self, sock, step, received):
        sock.settimeout(TIMEOUT)
        with sock, sock.makefile("rb") as file:
            try:
                self.serve(sock, file, step, received)
            except OSError:
                pass

    def serve(self, sock, file, step, received):
        lines = list(iter(lambda: file.readline().strip().decode(), ""))
        headers = dict(line.split(": ", 1) for line in lines[1:])
        self.requests.append((lines[0], headers))
        accept = base64.b64encode(hashlib.sha1(headers["Sec-WebSocket-Key"].encode() + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest()).decode()
        answer = {
            "status": "101 Switching Protocols", "Upgrade": "websocket", "Connection": "keep-alive, Upgrade", "Sec-WebSocket-Accept": accept,
            "Sec-WebSocket-Protocol": "rs.json",
        }  # fmt: skip
        if isinstance(step, dict):
            answer.update(step)
            step = b""
        head = f"HTTP/1.1 {answer.pop('status')}\r\n" + "".join(f"{k}: {v}\r\n" for k, v in answer.items() if v is not None) + "\r\n"
        leave = step.endswith(b"LEAVE")
        sock.sendall(head.encode() + (step[:-5] if leave else step))  # in one segment: frames may follow immediately
        if leave:
            sock.shutdown(socket.SHUT_WR)
        if not head.startswith("HTTP/1.1 101"):
            return
        for got in iter(lambda: read_frame(file), None):
            received.append(got)

    def finish(self):
        """Waits until all clients have left."""
        for thread in self.threads[1:]:
            thread.join(TIMEOUT)

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for thread in self.threads:
            thread.join(TIMEOUT)


class Scripted(unittest.TestCase):
    def setUp(self):
        self.server = Server()
        self.addCleanup(self.server.close)
        self.client = rshub.Client(self.server.url, token="secret", sleep=lambda seconds: None)

    def follow(self, script, *args, **kwargs):
        self.server.script[:] = script
        followed = self.client.follow_many(*(args or [{"demo": "start"}]), **kwargs)
        self.addCleanup(followed.close)
        return followed

    def positions(self, followed, n):
        """Reads n changes and returns their positions."""
        got = []
        while len(got) < n:
            got += [c["position"] for c in next(followed).changes]
        return got


class Handshake(Scripted):
    def test_request(self):
        next(self.follow([batch("0-0", "0-0")]))
        line, headers = self.server.requests[0]
        self.assertEqual(line, "GET /changes HTTP/1.1")
        self.assertEqual(len(base64.b64decode(headers["Sec-WebSocket-Key"])), 16)
        want = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Protocol": "rs.json"}
        want.update({"Authorization": "Bearer secret", "Host": self.server.url[7:]})
        self.assertEqual({k: headers[k] for k in want}, want)

    def test_invalid_handshakes(self):
        for step in (
            {"Sec-WebSocket-Accept": base64.b64encode(b"x" * 20).decode()}, {"Sec-WebSocket-Accept": None}, {"Upgrade": "h2c"}, {"Upgrade": None},
            {"Connection": "close"}, {"Connection": None}, {"Sec-WebSocket-Protocol": None}, {"Sec-WebSocket-Protocol": "rs.json+zstd"},
            {"Sec-WebSocket-Extensions": "permessage-deflate"}, {"status": "200 OK", "Content-Length": "0"},
        ):  # fmt: skip
            with self.subTest(str(step)), self.assertRaises(rshub.NotHubError):
                next(self.follow([step]))

    def test_redirects_are_refused(self):
        """The token must not go to another host."""
        other = Server()
        self.addCleanup(other.close)
        for status in ("301 Moved", "302 Found", "307 Temporary Redirect", "308 Permanent Redirect"):
            with self.assertRaisesRegex(rshub.RefusedError, "redirect to"):
                next(self.follow([{"status": status, "Location": other.url + "/changes", "Content-Length": "0"}]))
        self.assertEqual(other.requests, [])

    def test_refused(self):
        for status in ("400 Bad Request", "401 Unauthorized", "403 Forbidden", "404 Not Found", "426 Upgrade Required"):
            with self.assertRaisesRegex(rshub.RefusedError, status[:3]):
                next(self.follow([{"status": status, "Content-Length": "0"}]))

    def test_unavailable(self):
        """Outages before the first message are waited for, with the Retry-After of the hub."""
        slept = []
        self.client.sleep = slept.append
        busy = [{"status": f"{status} X", "Content-Length": "0", "Retry-After": "7"} for status in (503, 429, 502)]
        with self.assertLogs("rshub") as logged:
            self.assertEqual(next(self.follow([*busy, batch("0-0", "0-0")])).cursor, "0-0")
        self.assertEqual((slept, len(logged.output)), ([7.0, 7.0, 7.0], 3))


class Frames(Scripted):
    def test_valid_frames(self):
        """Fragments with control frames between them, frames of every length, and pings are accepted."""
        text = json.dumps({"set": "demo", "after": "0-0", "cursor": "2-2000", "changes": [], "x": "\u00fc" * 40}, ensure_ascii=False).encode()
        long = [batch(f"{n}-{n}000", f"{n + 1}-{n + 1}000", n + 1, x="y" * size) for n, size in ((2, 100), (3, 70_000))]
        half = text.index("\u00fc".encode()) + 1  # within a character
        first = frame(text[:half], final=False) + frame(b"p1", PING) + frame(b"", 0, final=False) + frame(b"", PONG) + frame(text[half:], 0)
        followed = self.follow([b"".join([first, frame(b"x" * 125, PING), *long])])
        self.assertEqual(next(followed).cursor, "2-2000")
        self.assertEqual(self.positions(followed, 2), [3, 4])
        followed.close()
        self.server.finish()
        want = [(TEXT, b'{"follow": "demo", "since": "start"}'), (PONG, b"p1"), (PONG, b"x" * 125), (CLOSE, b"\x03\xe8")]
        self.assertEqual(self.server.received, [want])

    def test_invalid_frames(self):
        for what, sent, code in (
            ("masked", frame("{}", mask=True), 1002),
            ("reserved bits", frame("{}", reserved=4), 1002),
            ("unknown opcode", frame("{}", 3), 1002),
            ("binary", frame("{}", 2), 1002),
            ("continuation without a start", frame("{}", 0), 1002),
            ("message within a message", frame("{", final=False) + frame("}"), 1002),
            ("fragmented ping", frame("", PING, final=False), 1002),
            ("long ping", frame(b"x" * 126, PING), 1002),
            ("length of 16 bits", b"\x81\x7e\0\x02{}", 1002),
            ("length of 64 bits", b"\x81\x7f" + b"\0" * 7 + b"\x02{}", 1002),
            ("too large", frame("", size=(64 << 20) + 1), 1009),
            ("length with a sign", b"\x81\x7f" + b"\xff" * 8, 1009),
            ("too large together", frame("{" + " " * 65_000, final=False) + frame("", 0, size=64 << 20), 1009),
            ("not UTF-8", frame(b"\xff"), 1007),
            ("surrogate in UTF-8", frame(b'"\xed\xa0\x80"'), 1007),
            ("close code of one byte", frame(b"\x03", CLOSE), 1002),
            ("close code 999", close(999), 1002),
            ("close code 1006", close(1006), 1002),
            ("close reason is not UTF-8", frame(b"\x03\xe8\xff", CLOSE), 1002),
        ):
            with self.subTest(what):
                with self.assertRaises(rshub.NotHubError):
                    next(self.follow([sent]))
                until("the client says goodbye", lambda: self.server.received[-1][-1:] == [(CLOSE, code.to_bytes(2, "big"))])

    def test_invalid_frame_after_a_valid_message(self):
        """After a valid message, violations are outages, and the next connection continues at the cursor."""
        start, first = batch("0-0", "0-0"), batch("0-0", "2-2000", 1, 2)
        resumed = batch("2-2000", "2-2000")
        script = [
            start + first + frame("{}", mask=True), resumed + frame("{"), {"Sec-WebSocket-Accept": "x"}, {"status": "200 OK", "Content-Length": "0"},
            resumed + frame(b"[]"), resumed + first[:-1] + b"LEAVE", b"LEAVE", resumed + batch("2-2000", "3-3000", 3),
        ]  # fmt: skip
        followed = self.follow(script)
        with self.assertLogs("rshub") as logged:
            self.assertEqual(self.positions(followed, 3), [1, 2, 3])
        self.assertEqual(len(logged.output), 7)
        self.assertEqual({json.loads(r[0][1])["since"] for r in self.server.received[1:] if r}, {"2-2000"})

    def test_silence(self):
        with mock.patch("rshub.websocket.SILENCE", 0.02), self.assertLogs("rshub") as logged:
            followed = self.follow([batch("0-0", "0-0"), batch("0-0", "0-0")[:-1], batch("0-0", "0-0") + batch("0-0", "1-1000", 1)])
            self.assertEqual(self.positions(followed, 1), [1])
        self.assertEqual([line.partition("; ")[0].rpartition(": ")[2] for line in logged.output], ["timeout"] * 2)

    def test_close_codes(self):
        start = batch("0-0", "0-0")
        for code, reason, says in ((1001, "the hub is stopping", "1001 the hub is stopping"), (4408, "too slow", "4408"), (1011, "", "1011"), (4410, "", "4410")):
            followed = self.follow([start + close(code, reason), start + batch("0-0", "1-1000", 1)])
            with self.assertLogs("rshub") as logged:
                self.assertEqual(self.positions(followed, 1), [1])
            self.assertIn(says, logged.output[0])
        for first in (b"", start):
            followed = self.follow([first + close(4401, "the token has expired")])
            with self.assertRaisesRegex(rshub.RefusedError, "the token has expired") as caught:
                list(followed)
            self.assertEqual((caught.exception.status, caught.exception.code), (401, "unauthorized"))


class Messages(Scripted):
    def test_first_message_is_invalid(self):
        for what, sent in (
            ("not JSON", frame("<html>")),
            ("not an object", frame("[]")),
            ("too deep", frame("[" * 100_000 + "]" * 100_000)),
            ("lone surrogate", frame('{"set":"demo","after":"0-0","cursor":"0-0","changes":[],"x":"\\ud800"}')),
            ("no members", frame("{}")),
            ("baseline", message(set="demo", baseline=True, resources=[], cursor="1-1~1")),
            ("foreign set", batch("0-0", "0-0", name="other")),
            ("batch of every set", batch("0-0", "0-0", name="*")),
            ("changes before a start", batch("0-0", "1-1000", 1)),
            ("invalid cursor", batch("x", "x")),
            ("cursor that moves back", batch("5-5000", "4-4000")),
            ("cursors of a set that is not started", message(cursors={"demo": "1-1000"})),
            ("followed without a follow", message(followed="*", sets=0)),
            ("unfollowed without an unfollow", message(unfollowed="demo")),
            ("error of a foreign set", problem(404, "other")),
            ("temporary error of a foreign set", problem(503, "other")),
            ("error of every set", problem(400, "*")),
            ("error without a status", message(set="demo", error={})),
            ("error with an odd status", problem(200)),
        ):
            with self.subTest(what), self.assertRaises(rshub.NotHubError):
                next(self.follow([sent]))
        with self.assertRaisesRegex(rshub.NotHubError, "after 5-5000, want those after 3-3000"):
            next(self.follow([batch("5-5000", "5-5000")], {"demo": "3-3000"}))
        with self.assertRaisesRegex(rshub.RefusedError, "400"):
            next(self.follow([problem(400, None)]))

    def test_gaps(self):
        """A gap, a repeat, or changes of a foreign set are never yielded; the next connection continues at the cursor."""
        start, resumed = batch("0-0", "0-0") + batch("0-0", "2-2000", 1, 2), batch("2-2000", "2-2000")
        followed = self.follow([
            start + batch("3-3000", "4-4000", 4), resumed + batch("0-0", "2-2000", 1, 2), resumed + batch("2-2000", "4-4000", 4, 3),
            resumed + batch("2-2000", "3-3000", 4), resumed + batch("2-2000", "3-3000", 3, name="other"), batch("3-3000", "3-3000"),
            resumed + message(cursors={"demo": "1-1000"}), resumed + message(cursors={"other": "9-9000"}), resumed + batch("2-2000", "3-3000", 3),
        ])  # fmt: skip
        with self.assertLogs("rshub") as logged:
            self.assertEqual(self.positions(followed, 3), [1, 2, 3])
        self.assertEqual(len(logged.output), 8)

    def test_diverged(self):
        followed = self.follow([batch("5-5000", "5-5000") + batch("3-3000", "4-4444", 4, diverged=True)], {"demo": "5-5000"})
        self.assertEqual([(got.after, got.cursor, got.diverged) for got in (next(followed), next(followed))], [("5-5000", "5-5000", False), ("3-3000", "4-4444", True)])

    def test_cursors(self):
        followed = self.follow([batch("0-0", "0-0") + message(cursors={"demo": "7-7000"}) + batch("7-7000", "8-8000", 8)])
        self.assertEqual([(got.after, got.cursor) for got in (next(followed) for _ in range(3))], [("0-0", "0-0"), ("0-0", "7-7000"), ("7-7000", "8-8000")])

    def test_commands_of_a_reconnect(self):
        """After a reconnect, all sets are named with their cursors, sets with final errors are excluded, and other sets
        begin at their start."""
        first = b"".join([
            batch("0-0", "0-0", name="a"), problem(410, "b", "gone", cursor="7-7000"), batch("5-5000", "5-5000", name="c"), message(followed="*", sets=1),
            problem(404, "c"), batch("0-0", "2-2000", 1, 2, name="a"), b"LEAVE",
        ])  # fmt: skip
        second = b"".join([
            batch("2-2000", "2-2000", name="a"), batch("0-0", "0-0", name="b"), batch("0-0", "1-1000", 1, name="b"), problem(404, "b"),
            message(cursors={"b": "1-1000"}), batch("0-0", "0-0", name="d"), message(followed="*", sets=2), message(unfollowed="b"), batch("2-2000", "3-3000", 3, name="a"),
        ])  # fmt: skip
        followed = self.follow([first, second], {"a": "start", "b": "3-3000"}, every="now")
        got = [next(followed) for _ in range(5)]
        self.assertEqual([(g.set, getattr(g, "cursor", "")) for g in got], [("a", "0-0"), ("b", "7-7000"), ("c", "5-5000"), ("c", ""), ("a", "2-2000")])
        self.assertIsInstance(got[1].error, rshub.GoneError)
        with self.assertLogs("rshub"):
            got = [next(followed), next(followed)]
        self.assertEqual([(g.set, g.cursor) for g in got], [("d", "0-0"), ("a", "3-3000")])
        followed.close()
        self.server.finish()
        commands = [[json.loads(text) for kind, text in received if kind == TEXT] for received in self.server.received]
        self.assertEqual(commands[0], [{"follow": "a", "since": "start"}, {"follow": "b", "since": "3-3000"}, {"follow": "*", "since": "now"}])
        self.assertEqual(commands[1], [{"follow": "a", "since": "2-2000"}, {"follow": "*", "since": "start"}, {"unfollow": "b"}])

    def test_reconnect_before_every_set_was_followed(self):
        """A connection that breaks before every set was followed did not start the others."""
        followed = self.follow([batch("3-3000", "3-3000", name="a") + b"LEAVE", batch("3-3000", "3-3000", name="a") + batch("0-0", "0-0", name="b")], (), every="now", prefix="x")
        with self.assertLogs("rshub"):
            self.assertEqual([next(followed).set, next(followed).set], ["a", "b"])
        followed.close()
        self.server.finish()
        self.assertEqual([json.loads(text) for kind, text in self.server.received[1] if kind == TEXT], [{"follow": "a", "since": "3-3000", "prefix": "x"}, {"follow": "*", "since": "now", "prefix": "x"}])

    def test_temporary_errors_of_sets(self):
        """Errors that may pass are retried on the same connection."""
        followed = self.follow([problem(503) + problem(429) + batch("0-0", "0-0") + batch("0-0", "1-1000", 1) + problem(500) + batch("1-1000", "1-1000") + batch("1-1000", "2-2000", 2)])
        with mock.patch("rshub.follow_many.follower_backoff", lambda *_: 0.0), self.assertLogs("rshub") as logged:
            self.assertEqual(self.positions(followed, 2), [1, 2])
        self.assertEqual(len(logged.output), 3)
        self.assertEqual(len(self.server.requests), 1)


class Random(Scripted):
    def test_random_bytes(self):
        """Whatever a server sends, only errors of this package are raised, and changes are consecutive."""
        seed = random.randrange(1 << 32)
        choose = random.Random(seed)
        parts = [batch("0-0", "0-0"), batch("0-0", "2-2000", 1, 2), message(cursors={"demo": "3-3000"}), problem(503), problem(404), batch("3-3000", "4-4000", 4), frame("", PING)]
        for _ in range(150):
            sent = bytearray(b"".join(choose.choices(parts, k=choose.randrange(1, 8))))
            for _ in range(choose.randrange(4)):
                sent[choose.randrange(len(sent))] = choose.randrange(256)
            self.server.script[:] = [bytes(sent) + b"LEAVE", {"status": "410 Gone", "Content-Length": "0"}]
            at = None
            try:
                with self.assertLogs("rshub"):
                    for got in self.client.follow_many({"demo": "start"}):
                        if isinstance(got, rshub.Batch):
                            self.assertTrue(at is None or got.after == at or got.diverged or not rshub.position(at), f"seed {seed}: {bytes(sent)!r}")
                            at = got.cursor
            except rshub.Error:
                pass
            except AssertionError as e:
                if "no logs" not in str(e):
                    raise
            except Exception as e:
                raise AssertionError(f"seed {seed}: {bytes(sent)!r}") from e
