import contextlib
import io
import json
import os
import random
import shutil
import subprocess
import tempfile
import threading
from unittest import mock

import rshub
from rshub.__main__ import main

from .hub import PROGRAM, TIMEOUT, Hub, HubTest, Wires, changes, names, until


class ManyTest(HubTest):
    def sets(self, *letters):
        return [f"{self.set_name}-{letter}" for letter in letters]

    def publish_to(self, name, *locs):
        return self.client.publish(name, changes(*locs))

    def follow(self, *args, client=None, **kwargs):
        followed = (client or self.client).follow_many(*args, **kwargs)
        self.addCleanup(followed.close)
        return followed

    def until(self, followed, condition):
        """Reads until condition returns True for a value, and returns the names of the changes by set."""
        seen = {}
        for got in followed:
            if isinstance(got, rshub.Batch):
                seen.setdefault(got.set, []).extend(names(got.changes))
            if condition(got, seen):
                return seen


class Many(ManyTest):
    def test_named_sets(self):
        a, b, new = self.sets("a", "b", "new")
        self.publish_to(a, "1", "2")
        cursor = self.publish_to(b, "1").cursor
        self.publish_to(b, "2")
        followed = self.follow({a: "start", b: cursor, new: "now"})
        got = [next(followed) for _ in range(5)]
        self.assertEqual({batch.set for batch in got if not batch.changes}, {a, b, new})
        self.assertEqual({batch.set: names(batch.changes) for batch in got if batch.changes}, {a: ["1", "2"], b: ["2"]})
        self.publish_to(new, "1")
        batch = next(followed)
        self.assertEqual((batch.set, names(batch.changes), batch.diverged), (new, ["1"], False))
        self.publish_to(a, "3")
        batch = next(followed)
        self.assertEqual((batch.set, names(batch.changes), batch.changes[0]["position"]), (a, ["3"], 3))
        self.assertEqual(batch.after, [one.cursor for one in got if one.set == a][-1])

    def test_iterable(self):
        sets = self.sets("a", "b")
        for name in sets:
            self.publish_to(name, "1")
        for given in (sets, tuple(sets), iter(sets)):
            seen = self.until(self.follow(given, "start"), lambda got, seen: len([n for n in seen.values() if n]) == 2)
            self.assertEqual(seen, {name: ["1"] for name in sets})
        self.assertEqual(next(self.follow(sets[0])).set, sets[0])

    def test_more_sets_than_the_window(self):
        """Far more commands than the client sends without an answer."""
        sets = self.sets(*map(str, range(900)))
        self.publish_to(sets[-1], "1")
        seen = self.until(self.follow(sets, "start"), lambda got, seen: seen.get(sets[-1]))
        self.assertEqual((len(seen), seen[sets[-1]]), (900, ["1"]))

    def test_filters(self):
        a, b = self.sets("a", "b")
        for name in (a, b):
            self.publish_to(name, "x/1", "y/1", "x/2")
        followed = self.follow({a: "start", b: {"since": "start", "prefix": "https://example.org/y/"}}, prefix="https://example.org/x/")
        seen = self.until(followed, lambda got, seen: got.cursor[:2] == "3-" and len(seen) == 2 and all(seen.values()))
        self.assertEqual(seen, {a: ["1", "2"], b: ["1"]})

    def test_invalid_arguments(self):
        a = self.sets("a")[0]
        for sets, options, says in (
            ({a: "baseline"}, {}, "Client.baseline"),
            ([a], {"since": "7-8~9"}, "Client.baseline"),
            ((), {"every": "baseline"}, "Client.baseline"),
            ((), {"every": "7-7000"}, "invalid every"),
            ((), {"every": "yesterday"}, "invalid every"),
            ((), {}, "no sets"),
            (["*"], {}, "invalid name"),
            ({"a/b": "now"}, {}, "invalid name"),
            ({a: {"sinse": "now"}}, {}, "sinse"),
            ({a: {"since": 7}}, {}, "want strings"),
            ({a: {"prefix": "x" * 20_000}}, {}, "larger than"),
        ):
            with self.subTest(says, sets=str(sets)[:50]), self.assertRaisesRegex(ValueError, says):
                self.client.follow_many(sets, **options)

    def test_errors_of_one_set(self):
        a, b = self.sets("a", "b")
        cursor = self.publish_to(a, "1").cursor
        self.hub.call("DELETE", f"/sets/{a}")
        self.publish_to(a, "2")
        followed = self.follow({a: cursor, b: "yesterday", self.set_name: "start"})
        errors = {}
        self.until(followed, lambda got, seen: isinstance(got, rshub.SetError) and errors.update({got.set: got}) or len(errors) == 2)
        self.assertEqual(errors[a].error.status, 404)  # the cursor belongs to the deleted set
        self.assertEqual((errors[b].error.status, errors[b].cursor), (400, ""))
        self.assertIn("since", errors[b].error.detail)
        self.publish_to(b, "1")
        self.publish_to(self.set_name, "1")
        self.until(followed, lambda got, seen: seen == {self.set_name: ["1"]})
        again = self.follow({a: errors[a].cursor})
        self.assertEqual(self.until(again, lambda got, seen: seen.get(a)), {a: ["2"]})

    def test_errors_of_all_sets(self):
        elsewhere = rshub.Client(self.hub.url + "/elsewhere")
        with self.assertRaisesRegex(rshub.RefusedError, "404"):
            next(self.follow(every="now", client=elsewhere))
        with self.assertRaisesRegex(rshub.RefusedError, "moved"):
            next(self.follow(every="now", change="moved"))

    def test_command_line(self):
        with tempfile.TemporaryDirectory() as directory:
            a, b = self.sets("a", "b")
            self.publish_to(a, "1")
            self.publish_to(b, "1")
            command = ["--hub", self.hub.url, "follow", "--cursor", directory + "/cursors", "--since", "start"]
            for more in (["--set", a, "--set", b], ["--all"]):
                self.publish_to(a, "2")
                lines = []

                class Output(io.StringIO):
                    def write(self, text, lines=lines):
                        if text.strip():
                            lines.append(json.loads(text))
                        if [line for line in lines if line["set"] == a and line["loc"][-1] == "2"]:
                            raise KeyboardInterrupt
                        return len(text)

                with contextlib.redirect_stdout(Output()):
                    self.assertEqual(main(command + more), 130)
                self.assertTrue(all(line["change"] == "updated" for line in lines))
            self.assertNotIn("2", [line["loc"][-1] for line in lines if line["set"] == b])
        for wrong in ([], ["demo", "--all"], ["--all", "--once"], ["--set", "demo", "--stream"]):
            with contextlib.redirect_stderr(io.StringIO()) as output:
                self.assertEqual(main(["--hub", self.hub.url, "follow", *wrong]), 2)
            self.assertIn("--set", output.getvalue())


class Every(ManyTest):
    variables = {"RSHUB_HEARTBEAT": "1s"}

    def setUp(self):
        super().setUp()
        for s in json.loads(self.hub.call("GET", "/sets"))["sets"]:
            self.hub.call("DELETE", f"/sets/{s['set']}")

    def test_sets_that_come_and_go(self):
        a, b = self.sets("a", "b")
        self.publish_to(a, "old")
        followed = self.follow(every="now")
        self.assertEqual((next(followed).set, rshub.position(self.publish_to(a, "1").cursor)), (a, 2))
        self.assertEqual(self.until(followed, lambda got, seen: seen), {a: ["1"]})
        self.publish_to(b, "2", "3")
        self.assertEqual(self.until(followed, lambda got, seen: seen.get(b)), {b: ["2", "3"]})
        self.hub.call("DELETE", f"/sets/{a}")
        got = next(followed)
        self.assertEqual((got.set, got.error.status), (a, 404))
        self.publish_to(a, "4")
        got = next(followed)
        self.assertEqual((got.set, got.changes, got.diverged), (a, [], True))
        self.assertEqual(names(next(followed).changes), ["4"])

    def test_filtered_cursors(self):
        """The hub reports the cursor of changes that a filter left out."""
        self.publish_to(self.set_name, "1")
        followed = self.follow(every="start", prefix="https://example.org/x/")
        self.assertEqual(rshub.position(next(followed).cursor), 0)
        self.publish_to(self.set_name, "2")
        got = self.until(followed, lambda got, seen: rshub.position(got.cursor) == 2)
        self.assertEqual(got, {self.set_name: []})

    def test_reconnect_excludes_sets_with_errors(self):
        """After a reconnect, sets with a final error are not followed although every set is."""
        a, b = self.sets("a", "b")
        self.publish_to(a, "1")
        wires = Wires(self.hub)
        self.addCleanup(wires.close)
        client = rshub.Client(wires.url, sleep=self.client.sleep)
        followed = self.follow({a: "2999-01-01"}, every="start", client=client)
        self.assertEqual(next(followed).error.status, 400)
        self.publish_to(b, "1")
        self.until(followed, lambda got, seen: seen.get(b))
        for n in range(2):
            wires.cut()
            self.publish_to(a, f"lost-{n}")
            self.publish_to(b, f"after-{n}")
            with self.assertLogs("rshub", "WARNING"):
                self.assertEqual(self.until(followed, lambda got, seen: seen.get(b)), {b: [f"after-{n}"]})
            self.publish_to(a, f"excluded-{n}")
            self.publish_to(b, f"live-{n}")
            self.assertEqual(self.until(followed, lambda got, seen: seen.get(b)), {b: [f"live-{n}"]})

    def test_cursors_file(self):
        """Cursors of processed batches are stored, and a restart continues there. Sets that were created in the meantime
        are followed from their start."""
        a, b, c = self.sets("a", "b", "c")
        self.publish_to(a, "old")
        self.publish_to(b, "old")
        with tempfile.TemporaryDirectory() as directory:
            file = rshub.CursorsFile(directory + "/cursors")
            self.assertEqual(file.read(), {})
            followed = self.follow(every="now", cursors=file)
            starts = {got.set: got.cursor for got in (next(followed), next(followed))}
            self.publish_to(a, "1")
            got = next(followed)
            followed.close()
            stored = file.read()
            self.assertEqual(stored, {**starts, "*": "start"})
            self.assertEqual(os.listdir(directory), ["cursors"])
            self.publish_to(c, "1")
            followed = self.follow(every="now", cursors=file)
            seen = self.until(followed, lambda got, seen: seen.get(c) and seen.get(a))
            followed.close()
            self.assertEqual((seen[a], seen[c]), (["1"], ["1"]))  # the batch in progress is repeated
            file.write({a: got.cursor, "*": "start"})
            followed = self.follow({a: "start"}, cursors=file)
            self.assertEqual((next(followed).cursor, self.publish_to(a, "2").count), (got.cursor, 1))
            self.assertEqual(names(next(followed).changes), ["2"])
            followed.close()

    def test_cursor_of_a_deleted_set_is_removed(self):
        a, b = self.sets("a", "b")
        self.publish_to(a, "1")
        self.publish_to(b, "1")
        with tempfile.TemporaryDirectory() as directory:
            file = rshub.CursorsFile(directory + "/cursors")
            followed = self.follow(every="start", cursors=file)
            self.until(followed, lambda got, seen: seen.get(a) and seen.get(b))
            self.hub.call("DELETE", f"/sets/{a}")
            self.until(followed, lambda got, seen: isinstance(got, rshub.SetError))
            self.publish_to(b, "2")
            self.until(followed, lambda got, seen: seen.get(b))
            followed.close()
            self.assertEqual(sorted(file.read()), ["*", b])

    def test_invalid_cursors_file(self):
        with tempfile.TemporaryDirectory() as directory:
            for text in ("", "[]", '{"a":1}', "{", '{"a":"\\ud800"}'):
                with open(directory + "/cursors", "w") as f:
                    f.write(text)
                with self.assertRaisesRegex(ValueError, "want a JSON object of cursors"):
                    self.client.follow_many(every="now", cursors=rshub.CursorsFile(directory + "/cursors"))


class RandomOutages(ManyTest):
    def test_random_outages(self):
        """While connections are cut, the hub is killed and the program restarts, nothing is lost and the order is kept."""
        seed = int(os.environ.get("RSHUB_TEST_SEED") or random.randrange(1 << 32))
        choose, total, sets = random.Random(seed), 80, self.sets(*"abcd")
        fates = ["cut"] * 4 + ["restart"] * 4 + ["kill", "stop"]
        choose.shuffle(fates)
        wires = Wires(self.hub)
        self.addCleanup(wires.close)
        client = rshub.Client(wires.url, sleep=self.client.sleep)
        last = {name: 0 for name in sets}  # last position that was received

        def publish(name):
            for n in range(0, total, 2):
                until("the changes arrive", lambda: last[name] > n - 10)
                self.publish_to(name, str(n), str(n + 1))

        publishers = [threading.Thread(target=publish, args=(name,), daemon=True) for name in sets]
        for publisher in publishers:
            publisher.start()
        with tempfile.TemporaryDirectory() as directory, self.assertLogs("rshub", "WARNING"):
            file = rshub.CursorsFile(directory + "/cursors")
            while min(last.values()) < total:
                with contextlib.closing(client.follow_many(sets[:2], "start", every="start", cursors=file)) as followed:
                    self.read(followed, last, total, choose, fates, wires, f"RSHUB_TEST_SEED={seed}")
        for publisher in publishers:
            publisher.join()

    def read(self, followed, last, total, choose, fates, wires, seed):
        """Reads until last is total, or the program should restart."""
        cursors = {}
        for got in followed:
            self.assertIsInstance(got, rshub.Batch, seed)
            if got.set in cursors:
                self.assertEqual((got.after, got.diverged), (cursors[got.set], False), seed)
            else:
                self.assertEqual(got.changes, [], seed)
            cursors[got.set] = got.cursor if rshub.position(got.cursor) else mock.ANY  # the set may not exist yet
            for change in got.changes:
                self.assertLessEqual(change["position"], last[got.set] + 1, seed)
                self.assertEqual(names([change]), [str(change["position"] - 1)], seed)
                last[got.set] = max(last[got.set], change["position"])
            if min(last.values()) == total:
                return
            if fates and choose.random() < 0.2:
                fate = fates.pop()
                if fate == "restart":
                    return
                if fate == "cut":
                    wires.cut()
                    continue
                if fate == "kill":
                    self.hub.kill()
                else:
                    self.hub.process.terminate()
                    self.hub.process.wait()
                self.hub.start()


class Outages(ManyTest):
    def test_orderly_restart(self):
        followed = self.follow([self.set_name], "start")
        next(followed)
        self.hub.process.terminate()
        self.assertEqual(self.hub.process.wait(), 0)
        self.hub.start()
        self.publish("a")
        with self.assertLogs("rshub", "WARNING") as logged:
            self.assertEqual(names(next(followed).changes), ["a"])
        self.assertIn("1001", logged.output[0])

    def test_restored(self):
        self.publish("a", "b")
        backup = self.hub.directory + "/backup"
        self.hub.program("backup", backup)
        followed = self.follow([self.set_name], self.publish("c", "d").cursor)
        next(followed)
        self.hub.kill()
        data = self.hub.variables["RSHUB_DATA"]
        self.addCleanup(self.hub.variables.update, {"RSHUB_DATA": data})
        self.hub.variables["RSHUB_DATA"] = backup
        self.hub.start()
        self.publish("e")
        with self.assertLogs("rshub", "WARNING"):
            got = next(followed)
        self.assertTrue(got.diverged)
        self.assertEqual(names(got.changes)[-1:], ["e"])


class Ways(ManyTest):
    """Ways to the hub: through a proxy, with TLS, and with tokens."""

    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.mkdtemp(prefix="rshub-python-")
        cls.addClassCleanup(shutil.rmtree, cls.directory)
        tokens = cls.directory + "/tokens"
        cls.tokens = {}
        for name in ("open", "limited"):
            command = [PROGRAM, "token", "new", "-name", name, "-rights", f"publish:*,follow:{name}*", "-file", tokens]
            said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=TIMEOUT)
            cls.tokens[name] = next(line.split()[-1] for line in said.stdout.splitlines() if "token:" in line)
        with open(tokens) as f:
            text = f.read()
        with open(tokens, "w") as f:
            f.write(text.rstrip("\n") + " limits=follows:20\n")
        cls.variables = {"RSHUB_TOKENS_FILE": tokens, "RSHUB_HOSTS": "hub.example.org"}
        super().setUpClass()

    def test_limit(self):
        """A set over the limit is followed once there is room."""
        *sets, c = (f"limited-{n}" for n in range(21))
        client = self.hub.client(token=self.tokens["limited"], sleep=self.client.sleep)
        for name in (*sets, c):
            client.publish(name, changes("1"))
        other = self.follow(sets, client=client)
        self.until(other, lambda got, seen: len(seen) == 20)
        followed = self.follow([c], "start", client=client)
        with self.assertLogs("rshub", "WARNING") as logged:
            with mock.patch("rshub.follow_many.follower_backoff", lambda *_: other.close() or 0.01):
                self.assertEqual(self.until(followed, lambda got, seen: seen.get(c)), {c: ["1"]})
        self.assertIn("429", logged.output[0])

    def test_tokens(self):
        client = self.hub.client(token=self.tokens["open"])
        client.publish("open", changes("1"))
        client.publish("closed", changes("1"))
        followed = self.follow({"open": "start", "closed": "start"}, every="start", client=client)
        errors = []
        self.assertEqual(self.until(followed, lambda got, seen: isinstance(got, rshub.SetError) and errors.append(got) or (seen.get("open") and errors)), {"open": ["1"]})
        self.assertEqual([(e.set, e.error.status) for e in errors], [("closed", 404)])
        with self.assertRaises(rshub.RefusedError) as caught:
            next(self.follow(every="now", client=self.hub.client(token="wrong")))
        self.assertEqual((caught.exception.status, caught.exception.code), (401, "unauthorized"))

    def test_proxy(self):
        """The proxies of the environment are used with CONNECT; no_proxy and hubs on this machine are exempt."""
        wires = Wires(self.hub)
        self.addCleanup(wires.close)
        self.hub.client(token=self.tokens["open"]).publish("open-proxy", changes("1"))
        client = rshub.Client("http://hub.example.org", token=self.tokens["open"], sleep=self.client.sleep)
        with mock.patch.dict(os.environ, {"http_proxy": wires.url.replace("//", "//user:pass@"), "no_proxy": ""}):
            self.assertEqual(next(self.follow(["open-proxy"], client=client)).set, "open-proxy")
            self.assertEqual(next(self.follow(["open-proxy"], client=self.hub.client(token=self.tokens["open"]))).set, "open-proxy")
        self.assertEqual(wires.connected, ["hub.example.org:80"])

    def test_tls(self):
        if not shutil.which("openssl"):
            self.skipTest("openssl is not installed")
        cert, key = self.directory + "/cert", self.directory + "/key"
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", key, "-out", cert,
             "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"],
            capture_output=True, check=True, timeout=TIMEOUT,
        )  # fmt: skip
        hub = Hub(RSHUB_TLS_CERT_FILE=cert, RSHUB_TLS_KEY_FILE=key)
        self.addCleanup(hub.close)
        client = rshub.Client(hub.url.replace("http:", "https:"), sleep=self.client.sleep)
        with self.assertRaises(rshub.UnavailableError) as caught:
            next(self.follow(["demo"], client=client))
        self.assertTrue(caught.exception.permanent)
        with mock.patch.dict(os.environ, {"SSL_CERT_FILE": cert}):
            client = rshub.Client(client.hub, sleep=self.client.sleep)
            followed = self.follow(["demo"], "start", client=client)
            next(followed)
            publisher = threading.Thread(target=client.publish, args=("demo", changes(*map(str, range(500)), hash="sha-256:" + "0" * 64)))
            publisher.start()
            self.assertEqual(len(self.until(followed, lambda got, seen: len(seen.get("demo", [])) == 500)["demo"]), 500)
            publisher.join()
