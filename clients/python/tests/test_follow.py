import os
import sqlite3
import subprocess
import tempfile
import threading

import rshub

from .hub import PROGRAM, HubTest, changes, names


class Follow(HubTest):
    def test_from_the_start_and_live(self):
        self.publish("a", "b")
        followed = self.client.follow(self.set_name, "start")
        first = next(followed)
        self.assertEqual((names(first.changes), first.diverged), (["a", "b"], False))
        self.publish("c")
        second = next(followed)
        self.assertEqual((names(second.changes), second.after), (["c"], first.cursor))
        self.assertEqual(second.changes[0]["position"], 3)
        self.assertEqual(rshub.position(second.cursor), 3)

    def test_now_of_a_set_that_does_not_exist_yet(self):
        followed = self.client.follow(self.set_name)
        self.assertEqual(next(followed).changes, [])
        self.publish("a")
        self.assertEqual(names(next(followed).changes), ["a"])

    def test_filters(self):
        self.publish("a/1", "b/1", "a/2")
        self.publish("a/1", change="deleted")
        batches = list(self.client.follow(self.set_name, "start", prefix="https://example.org/a/", change="updated", once=True))
        self.assertEqual([c["loc"][-3:] for b in batches for c in b.changes], ["a/1", "a/2"])
        self.assertEqual(rshub.position(batches[-1].cursor), 4)

    def test_pages(self):
        self.publish(*map(str, range(250)))
        batches = list(self.client.follow(self.set_name, "start", limit=100, once=True))
        self.assertEqual([len(b.changes) for b in batches][:3], [100, 100, 50])
        self.assertEqual([n for b in batches for n in names(b.changes)], [str(i) for i in range(250)])
        for one, other in zip(batches, batches[1:]):
            self.assertEqual(other.after, one.cursor)

    def test_cursor_file(self):
        """A program that stops between two batches resumes there."""
        with tempfile.TemporaryDirectory() as directory:
            file = rshub.CursorFile(os.path.join(directory, "cursor"))
            seen = []
            for n in range(3):
                self.publish(f"{n}-a", f"{n}-b")
                for batch in self.client.follow(self.set_name, file.read(), limit=1):
                    seen += names(batch.changes)
                    file.write(batch.cursor)
                    if len(seen) % 2 == 0:
                        break
            self.assertEqual(seen, ["0-a", "0-b", "1-a", "1-b", "2-a", "2-b"])
            self.assertEqual(os.listdir(directory), ["cursor"])

    def test_stream(self):
        """An event stream has old and new changes that match the filter."""
        self.publish("a/1", "b/1")
        followed = self.client.follow(self.set_name, "start", prefix="https://example.org/a/", stream=True)
        self.addCleanup(followed.close)
        self.assertEqual(next(followed).changes, [])
        first = next(followed)
        self.assertEqual(names(first.changes), ["1"])
        self.publish("b/2")
        self.publish("a/2", "a/3")
        second = next(followed)
        self.assertEqual((names(second.changes), second.after), (["2", "3"], first.cursor))
        self.assertEqual(rshub.position(second.cursor), 5)
        with self.assertRaisesRegex(ValueError, "once"):
            next(self.client.follow(self.set_name, once=True, stream=True))

    def test_stream_of_a_deleted_set(self):
        """The hub ends the stream with the event gone, or answers the next request with 410."""
        self.publish("a")
        followed = self.client.follow(self.set_name, "start", stream=True)
        self.assertEqual(names([c for _ in range(2) for c in next(followed).changes]), ["a"])
        self.hub.call("DELETE", f"/sets/{self.set_name}")
        self.publish("b")
        with self.assertRaises(rshub.GoneError) as caught:
            list(followed)
        self.assertEqual(caught.exception.status, 410)

    def test_gone(self):
        cursor = self.publish("a", "b").cursor
        self.hub.call("DELETE", f"/sets/{self.set_name}")
        self.publish("c")
        with self.assertRaises(rshub.GoneError) as caught:
            list(self.client.follow(self.set_name, cursor, once=True))
        self.assertEqual(caught.exception.status, 410)
        self.assertIn("since=baseline", str(caught.exception))

    def test_refused(self):
        for since in ("yesterday", "1-2-3"):
            with self.assertRaises(rshub.RefusedError) as caught:
                next(self.client.follow(self.set_name, since))
            self.assertEqual(caught.exception.status, 400)
            self.assertIn("since", caught.exception.detail)
        for since in ("baseline", "7-8~9"):
            with self.assertRaisesRegex(ValueError, "Client.baseline"):
                next(self.client.follow(self.set_name, since))

    def test_not_a_hub(self):
        with self.assertRaisesRegex(rshub.RefusedError, "404"):
            next(rshub.Client(self.hub.url + "/elsewhere").follow("demo"))
        with self.assertRaises(rshub.NotHubError):
            rshub.Client(self.hub.url).request(self.hub.url + "/")

    def test_bad_names(self):
        for url in ("hub.example.org", "ftp://hub.example.org", "https://user:secret@hub.example.org", "https://hub.example.org/?a=b"):
            with self.assertRaises(ValueError) as caught:
                rshub.Client(url)
            self.assertNotIn("secret", str(caught.exception))
        for name in ("", "a/b", "a b", "a?b"):
            with self.assertRaises(ValueError):
                self.client.topic(name)
        for token in ("", "two words", "l\nn", "\u00fc"):
            with self.assertRaises(ValueError):
                rshub.Client(self.hub.url, token=token)


class Outage(HubTest):
    def test_kills_with_long_polls(self):
        self.check_kills(stream=False)

    def test_kills_with_streams(self):
        self.check_kills(stream=True)

    def check_kills(self, stream):
        """While a hub is killed repeatedly, a follower receives every published change once and in order."""
        total, seen, cursors = 300, [], []
        client = self.hub.client(sleep=self.client.sleep)

        def publish():
            for n in range(total):
                client.publish(self.set_name, changes(str(n)))

        publisher = threading.Thread(target=publish)
        publisher.start()
        try:
            kills = iter((50, 120, 200))
            next_kill = next(kills)
            with self.assertLogs("rshub", "WARNING") as logged:
                for batch in self.client.follow(self.set_name, "start", limit=20, stream=stream):
                    self.assertFalse(batch.diverged)
                    seen += names(batch.changes)
                    cursors.append(batch)
                    if len(seen) >= next_kill:
                        self.hub.kill()
                        self.hub.start()
                        next_kill = next(kills, total * 2)
                    if len(seen) >= total:
                        break
            self.assertIn("retrying in", logged.output[0])
        finally:
            publisher.join()
        self.assertEqual(seen, [str(n) for n in range(total)])
        for one, other in zip(cursors[1:], cursors[2:]):
            self.assertEqual(other.after, one.cursor)

    def test_orderly_restart_of_an_idle_hub(self):
        followed = self.client.follow(self.set_name, "start", wait=5)
        next(followed)
        self.hub.process.terminate()
        self.assertEqual(self.hub.process.wait(), 0)
        self.hub.start()
        self.publish("a")
        self.assertEqual(names(next(followed).changes), ["a"])

    def test_orderly_restart_of_a_hub_with_a_stream(self):
        followed = self.client.follow(self.set_name, "start", stream=True)
        self.addCleanup(followed.close)
        next(followed)
        self.hub.process.terminate()
        self.assertEqual(self.hub.process.wait(), 0)
        self.hub.start()
        self.publish("a")
        with self.assertLogs("rshub", "WARNING"):
            self.assertEqual(names(next(followed).changes), ["a"])


class Restored(HubTest):
    def test_diverged(self):
        """A hub that was restored from a backup reports diverged, and a replica is in sync again afterwards."""
        db = sqlite3.connect(":memory:", isolation_level=None)
        self.addCleanup(db.close)
        replica = rshub.Replica(db, self.client, self.set_name)
        self.publish("a", "b")
        backup = self.hub.directory + "/backup"
        self.hub.program("backup", backup)
        cursor = self.publish("c", "d").cursor
        self.hub.call("PUT", f"/sets/{self.set_name}", '{"complete":true}')
        list(replica.catch_up())
        self.assertEqual(names(replica.resources()), list("abcd"))

        self.hub.kill()
        self.hub.variables["RSHUB_DATA"] = backup
        self.hub.start()
        self.publish("e")
        batches = list(self.client.follow(self.set_name, cursor, once=True))
        self.assertTrue(batches[0].diverged)
        self.assertEqual(names([c for b in batches for c in b.changes])[-1:], ["e"])
        followed = self.client.follow(self.set_name, cursor, stream=True)
        self.addCleanup(followed.close)
        streamed = [next(followed)]
        self.assertTrue(streamed[0].diverged)
        while names([c for b in streamed for c in b.changes])[-1:] != ["e"]:
            streamed.append(next(followed))
        self.hub.call("PUT", f"/sets/{self.set_name}", '{"complete":true}')
        list(replica.catch_up())
        self.assertEqual(names(replica.resources()), list("abe"))
        self.assertEqual(replica.audit(), [])


class Tokens(HubTest):
    @classmethod
    def setUpClass(cls):
        directory = tempfile.TemporaryDirectory()
        cls.addClassCleanup(directory.cleanup)
        cls.variables = {"RSHUB_TOKENS_FILE": directory.name + "/tokens"}
        cls.tokens = {}
        for name, rights in (("source", "publish:demo,follow:demo"), ("destination", "follow:demo")):
            command = [PROGRAM, "token", "new", "-name", name, "-rights", rights, "-file", cls.variables["RSHUB_TOKENS_FILE"]]
            said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            cls.tokens[name] = next(line.split()[-1] for line in said.splitlines() if "token:" in line)
        super().setUpClass()

    def test_tokens(self):
        self.hub.client(token=self.tokens["source"]).publish("demo", changes("a"))
        destination = self.hub.client(token=self.tokens["destination"])
        self.assertEqual(names(next(destination.follow("demo", "start")).changes), ["a"])
        for client, status in ((destination, 403), (self.hub.client(token="wrong"), 401), (self.hub.client(), 401)):
            with self.assertRaises(rshub.RefusedError) as caught:
                client.publish("demo", changes("b"))
            self.assertEqual((caught.exception.status, caught.exception.uncertain), (status, False))
            self.assertNotIn("wrong", str(caught.exception))
        with self.assertRaises(rshub.RefusedError):
            next(self.hub.client(token="wrong").follow("demo", "start"))
        with self.assertRaises(rshub.RefusedError):
            self.hub.client(token="wrong").audit("demo", [])
