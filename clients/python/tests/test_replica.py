import os
import random
import sqlite3
import tempfile
import threading
import unittest.mock

import rshub
from rshub import replica as module
from rshub.audit import changes as changes_between

from .hub import HubTest, changes, names, until


class Baseline(HubTest):
    """A baseline may be at an older cursor than the newest, so each of these sets has one batch."""

    def setUp(self):
        super().setUp()
        self.wait_for_baselines()

    def test_pages(self):
        self.client.publish(self.set_name, changes("c", "a", "b", "d") + changes("d", change="deleted"))
        pages = list(self.client.baseline(self.set_name, limit=2))
        self.assertEqual([names(p.resources) for p in pages], [["a", "b"], ["c"], []])
        self.assertEqual([p.end for p in pages], [False, False, True])
        self.assertEqual((pages[-1].count, pages[-1].complete, pages[-1].cursor.split("-")[0]), (3, False, "5"))
        self.publish("e")
        self.assertEqual(names(next(self.client.follow(self.set_name, pages[-1].cursor)).changes), ["e"])

    def test_resumes_in_another_process(self):
        self.publish(*"abcdef")
        first = next(self.client.baseline(self.set_name, limit=2))
        self.hub.kill()
        self.hub.start()
        rest = list(self.client.baseline(self.set_name, limit=2, after=first.cursor))
        named = [] if rest[0].restart else names(first.resources)
        for page in rest:
            named += names(page.resources)
        self.assertEqual(named, list("abcdef"))

    def test_restart(self):
        """If the hub no longer has the state of the baseline, the next page is a restart."""
        self.publish(*"abcdef")
        pages = self.client.baseline(self.set_name, limit=2)
        self.assertFalse(next(pages).restart)
        self.hub.call("DELETE", f"/sets/{self.set_name}")
        self.publish(*"xyz")
        rest = list(pages)
        self.assertTrue(rest[0].restart)
        self.assertEqual([n for p in rest for n in names(p.resources)], ["x", "y", "z"])

    def test_prefix(self):
        self.publish("a/1", "b/1", "a/2")
        pages = list(self.client.baseline(self.set_name, prefix="https://example.org/a/"))
        self.assertEqual([r["loc"][-3:] for p in pages for r in p.resources], ["a/1", "a/2"])

    def test_collection(self):
        """A baseline of a collection lists its current members."""
        new = changes("a", "b", "c")
        for c in new[:2]:
            c["ln"] = [{"rel": "collection", "href": "urn:x:c"}]
        self.client.publish(self.set_name, new + changes("b"))
        pages = list(self.client.baseline(self.set_name, collection="urn:x:c"))
        self.assertEqual([n for p in pages for n in names(p.resources)], ["a"])
        self.assertEqual((pages[-1].end, pages[-1].count, pages[-1].position), (True, None, ""))


class Audit(HubTest):
    def test_differences(self):
        every = changes(*map(str, range(1500)), change="created", length=5)
        self.client.publish(self.set_name, every)
        own = [{"loc": c["loc"], "length": 5} for c in every]
        self.assertEqual(self.client.audit(self.set_name, own, settle=0.01), [])
        own[7] = {"loc": own[7]["loc"], "length": 6}
        own[200] = {"loc": own[200]["loc"], "hash": "md5:00"}
        own.append({"loc": "https://example.org/x", "length": 5})
        del own[100]
        found = {(d.kind, d.loc.rpartition("/")[2]) for d in self.client.audit(self.set_name, own, settle=0.01)}
        self.assertEqual(found, {("stale", "7"), ("missing", "100"), ("extra", "x"), ("unknown", "200")})

    def test_proof(self):
        """The hub is told of an audit without differences, and of no other."""
        self.client.publish(self.set_name, changes("a", "b", length=5))
        own = [{"loc": f"https://example.org/{n}", "length": 5} for n in "ab"]
        self.assertEqual(self.client.audit(self.set_name, own, settle=0.01), [])
        self.assertEqual(len(self.client.audit(self.set_name, own[:1], settle=0.01, name="less")), 1)
        self.assertEqual(self.client.audit(self.set_name, own, settle=0.01, name="a & b"), [])
        proofs = self.client.request(self.client.set_url(self.set_name) + "/proofs")["proofs"]
        self.assertEqual([(p["name"], p["compared"], p["count"]) for p in proofs], [("a & b", "content", 2)])

    def test_evidence(self):
        """If only one side has a hash, lastmod and length are compared."""
        many = [{"loc": f"https://example.org/{i}", "change": "created", "hash": f"sha-256:{i:064x}", "length": i} for i in range(200)]
        self.client.publish(self.set_name, many)
        own = [{"loc": c["loc"], "length": c["length"] + (c["length"] == 3)} for c in many]
        self.assertEqual(self.client.audit(self.set_name, own, settle=0.01), [rshub.Difference("stale", "https://example.org/3")])

    def test_prefix(self):
        self.publish("a/1", "b/1", length=5)
        own = [{"loc": "https://example.org/a/1", "length": 5}, {"loc": "https://example.org/c", "length": 5}]
        self.assertEqual(self.client.audit(self.set_name, own, prefix="https://example.org/a/", settle=0.01), [])

    def test_own_changes_during_audit(self):
        self.publish("a", "b", length=5)
        reads = [[{"loc": "https://example.org/a", "length": 5}], [{"loc": "https://example.org/a", "length": 5}]]

        def own():
            if len(reads) == 1:  # between the two reads
                self.client.summary(self.set_name, since=self.publish("b", change="deleted").cursor)
            return reads.pop()

        self.assertEqual(self.client.audit(self.set_name, own, settle=0.01), [])
        self.assertEqual(reads, [])

    def test_log_explains_difference(self):
        """Both reads find the same difference, and a change in the log explains it."""
        self.publish("a", length=6)
        reads = []

        def own():
            if reads:
                self.client.summary(self.set_name, since=self.publish("a", length=7).cursor)
            reads.append(1)
            return [{"loc": "https://example.org/a", "length": 5}]

        self.assertEqual(self.client.audit(self.set_name, own, settle=0.01), [])
        self.assertEqual(len(reads), 2)

    def test_many_missing(self):
        every = changes(*map(str, range(3000)), length=5)
        self.client.publish(self.set_name, every)
        own = [{"loc": c["loc"], "length": 5} for c in every[:100]]
        found = self.client.audit(self.set_name, own, settle=0.01)
        self.assertEqual({(d.kind, d.loc) for d in found}, {("missing", c["loc"]) for c in every[100:]})
        self.assertEqual(len(found), 2900)

    def test_changes_between_two_cursors(self):
        self.publish(*map(str, range(9)))
        cursor = {c["position"]: b.cursor for b in self.client.follow(self.set_name, "start", limit=1, once=True) for c in b.changes}
        between = changes_between(self.client, self.set_name, cursor[3], "", cursor[6])
        self.assertEqual([c["position"] for c in between], [4, 5, 6])

    def test_empty(self):
        self.publish("a")
        self.publish("a", change="deleted")
        self.assertEqual(self.client.audit(self.set_name, []), [])


class Replica(HubTest):
    def setUp(self):
        super().setUp()
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)
        self.open()
        self.db.execute("CREATE TABLE copy (loc TEXT PRIMARY KEY)")

    def open(self, **options):
        """Opens the replica like a program that restarts."""
        self.db = sqlite3.connect(self.directory.name + "/copy.db", isolation_level=None)
        self.addCleanup(self.db.close)
        self.replica = rshub.Replica(self.db, self.client, self.set_name, **options)

    def apply(self, update):
        for c in update.changes:
            if c["change"] == "deleted":
                self.db.execute("DELETE FROM copy WHERE loc = ?", (c["loc"],))
            else:
                self.db.execute("INSERT OR REPLACE INTO copy VALUES (?)", (c["loc"],))

    def copy(self):
        return {loc.rpartition("/")[2] for (loc,) in self.db.execute("SELECT loc FROM copy")}

    def complete(self):
        self.hub.call("PUT", f"/sets/{self.set_name}", '{"complete":true}')

    def check_in_sync(self, *want):
        for update in self.replica.catch_up():
            self.apply(update)
        self.assertEqual(self.copy(), set(want))
        self.assertEqual({n for n in names(self.replica.resources())}, set(want))
        self.assertEqual(self.replica.audit(), [])

    def test_catches_up(self):
        self.assertIsNone(self.replica.cursor)
        with self.assertRaises(rshub.BaselinePendingError):
            self.replica.audit()
        self.publish("a", "b", "c")
        self.check_in_sync("a", "b", "c")
        self.publish("b", change="deleted")
        self.publish("d")
        self.assertEqual(self.replica.audit(), [])  # as of its own cursor
        self.assertEqual(len(self.replica), 3)
        self.check_in_sync("a", "c", "d")

    def test_audit_finds_damage(self):
        self.publish(*map(str, range(300)))
        self.check_in_sync(*map(str, range(300)))
        self.db.execute("DELETE FROM rshub_resource WHERE loc LIKE '%/17'")
        self.db.execute("UPDATE rshub_resource SET position = 1 WHERE loc LIKE '%/42'")
        self.publish("new")
        want = {("missing", "https://example.org/17"), ("stale", "https://example.org/42")}
        self.assertEqual({(d.kind, d.loc) for d in self.replica.audit()}, want)

    def test_failure_in_the_loop_repeats_the_update(self):
        """The loop's writes are rolled back together with the update."""
        self.publish("a", "b")
        self.check_in_sync("a", "b")
        self.publish("c")
        cursor = self.replica.cursor
        iterators = []  # a traceback, too, refers to the iterator of the loop
        for n in range(3):
            updates = self.replica.catch_up()
            iterators.append(updates)
            self.apply(next(updates))
            self.assertEqual((names(self.replica.resources()), self.copy()), (["a", "b", "c"], set("abc")))
            if n == 1:
                updates.close()
        with self.assertRaisesRegex(RuntimeError, "another loop"):
            next(iterators[0])
        self.assertEqual(self.copy(), set("abc"))  # the third update is still in its transaction
        iterators.pop().close()
        self.open()
        self.assertEqual((self.copy(), self.replica.cursor), ({"a", "b"}, cursor))
        self.check_in_sync("a", "b", "c")

    def test_interrupted_baseline(self):
        """A baseline that is interrupted after each of its steps resumes."""
        self.publish(*map(str, range(40)))
        self.addCleanup(setattr, module, "MAX_UPDATE", module.MAX_UPDATE)
        module.MAX_UPDATE = 10
        applied = []
        for _ in range(100):
            self.open()
            for n, update in enumerate(self.replica.catch_up()):
                self.apply(update)
                applied += names(update.changes)
                if n == 1:
                    break  # the second update is not committed
            else:
                break
        self.assertEqual(len(set(applied)), 40)
        self.check_in_sync(*map(str, range(40)))

    def test_gone(self):
        """If the set was deleted and created again, the replica applies the differences from a new baseline."""
        self.publish("a", "b", "c")
        self.complete()
        self.check_in_sync("a", "b", "c")
        self.hub.call("DELETE", f"/sets/{self.set_name}")
        self.publish("b", "d")
        for update in self.replica.catch_up():
            self.apply(update)
        # The set is not complete: nothing is deleted, and the audit lists the extra resources.
        self.assertEqual(self.copy(), set("abcd"))
        self.assertEqual({(d.kind, d.loc[-1]) for d in self.replica.audit()}, {("extra", "a"), ("extra", "c")})
        with unittest.mock.patch.object(rshub.Client, "summary", side_effect=rshub.UnavailableError("the inventory is damaged")):
            self.publish("f")  # changes arrive anyway
            for update in self.replica.catch_up():
                self.apply(update)
        self.assertEqual(self.copy(), set("abcdf"))
        self.hub.call("DELETE", f"/sets/{self.set_name}")
        self.publish("b", "e")
        self.complete()
        self.check_in_sync("b", "e")

    def recreate(self, *names):
        self.hub.call("DELETE", f"/sets/{self.set_name}")
        self.publish(*names)

    def test_max_delete(self):
        """A baseline that would delete more than max_delete changes nothing."""
        every = list(map(str, range(50)))
        self.publish(*every)
        self.check_in_sync(*every)
        cursor, held = self.replica.cursor, list(self.replica.resources())
        self.recreate(*every[:39], *map(str, range(1000, 1500)))  # additional resources do not count
        self.complete()
        for options in {}, {"max_delete": 10}, {"max_delete": 0}:
            self.open(**options)
            with self.assertRaisesRegex(rshub.DeleteLimitError, "11 of the 50.*max_delete"):
                for update in self.replica.catch_up():
                    self.apply(update)
            self.open()
            self.assertEqual((self.replica.cursor, list(self.replica.resources()), len(self.copy())), (cursor, held, 50))
        self.open(max_delete=11)
        self.check_in_sync(*every[:39], *map(str, range(1000, 1500)))
        self.recreate("a")
        self.complete()
        self.open(max_delete=-1)
        self.check_in_sync("a")

    def test_set_becomes_complete(self):
        """Unlisted resources are deleted once the set is complete, even if nothing else has changed."""
        self.publish("a", "b", "c")
        self.check_in_sync("a", "b", "c")
        self.recreate("b", "d")
        for update in self.replica.catch_up():
            self.apply(update)
        self.publish("e")
        for update in self.replica.catch_up():
            self.apply(update)
        self.assertEqual(self.copy(), set("abcde"))
        self.complete()
        until("a baseline is complete", lambda: list(self.client.baseline(self.set_name))[-1].complete)
        self.open()
        self.check_in_sync("b", "d", "e")

    def test_set_becomes_complete_while_following(self):
        self.publish("a", "b")
        self.check_in_sync("a", "b")
        self.recreate("b")
        self.addCleanup(setattr, module, "SUMMARY_INTERVAL", module.SUMMARY_INTERVAL)
        for update in self.replica.follow():
            self.apply(update)
            if update.cursor:  # end of the baseline
                self.complete()
                until("a baseline is complete", lambda: list(self.client.baseline(self.set_name))[-1].complete)
                module.SUMMARY_INTERVAL = 0.0
                self.publish("c")
            if self.copy() == {"b", "c"}:
                break
        self.check_in_sync("b", "c")

    def test_baseline_restarts(self):
        """Pages of an earlier baseline are discarded."""
        self.publish("a", "b")
        self.db.execute("INSERT INTO rshub_baseline VALUES (?, 'https://example.org/old', 1, '', '{}')", (self.set_name,))
        self.db.execute("UPDATE rshub_set SET place = '1-1~1'")
        self.check_in_sync("a", "b")

    def test_baseline_yields_only_differences(self):
        self.wait_for_baselines()
        self.publish("a", "b", "c")
        self.check_in_sync("a", "b", "c")
        self.db.execute("UPDATE rshub_set SET whole = 0, place = ''")
        self.assertEqual([names(u.changes) for u in self.replica.catch_up()], [[]])

    def test_prefix(self):
        self.publish("a/1", "b/1")
        replica = rshub.Replica(self.db, self.client, self.set_name + "-x", prefix="https://example.org/a/")
        replica.client.publish(replica.set_name, changes("a/1", "b/1"))
        list(replica.catch_up())
        replica.client.publish(replica.set_name, changes("b/2", "a/2"))
        list(replica.catch_up())
        self.assertEqual(names(replica.resources()), ["1", "2"])
        self.assertEqual(replica.audit(), [])
        with self.assertRaisesRegex(ValueError, "prefix"):
            rshub.Replica(self.db, self.client, self.set_name + "-x")

    def test_wait(self):
        self.assertTrue(self.replica.wait(5))
        self.publish("a")
        self.check_in_sync("a")
        self.assertFalse(self.replica.wait(0.01))
        threading.Timer(0.1, self.publish, ["b"]).start()
        self.assertTrue(self.replica.wait(60))
        self.check_in_sync("a", "b")
        self.hub.kill()
        with self.assertLogs("rshub"):
            self.assertFalse(self.replica.wait(0.01))
        self.hub.start()
        self.hub.call("DELETE", f"/sets/{self.set_name}")
        self.publish("b")
        self.assertTrue(self.replica.wait(5))

    def test_foreign_transactions(self):
        self.publish("a")
        self.db.execute("BEGIN")
        with self.assertRaisesRegex(RuntimeError, "of the caller is open"):
            next(self.replica.catch_up())
        self.db.execute("COMMIT")
        with self.assertRaisesRegex(RuntimeError, "has ended"):
            for _ in self.replica.catch_up():
                self.db.execute("COMMIT")

    def test_connection(self):
        with self.assertRaisesRegex(ValueError, "isolation_level"):
            db = sqlite3.connect(":memory:")
            self.addCleanup(db.close)
            rshub.Replica(db, self.client, self.set_name)

    def test_kills_under_load(self):
        """Despite kills of the hub and failures of the destination, both are equal in the end."""
        choose = random.Random(int(os.environ.get("RSHUB_TEST_SEED", "1")))
        total, exists = 200, {}
        done = threading.Event()
        client = self.hub.client(sleep=self.client.sleep)

        def publish():
            try:
                for n in range(total):
                    name = str(choose.randrange(60))
                    exists[name] = choose.random() < 0.7
                    client.publish(self.set_name, changes(name, change="updated" if exists[name] else "deleted"))
            finally:
                done.set()

        publisher = threading.Thread(target=publish)
        publisher.start()
        failures = random.Random(2)
        kills = 0
        with self.assertLogs("rshub"):
            while not done.is_set():
                for n, update in enumerate(self.replica.catch_up()):
                    self.apply(update)
                    if failures.random() < 0.2:
                        break
                    if n % 10 == 9 and kills < 3:
                        self.hub.kill()
                        self.hub.start()
                        kills += 1
                if kills < 1:
                    self.hub.kill()
                    self.hub.start()
                    kills += 1
            publisher.join()
        self.check_in_sync(*(name for name, there in exists.items() if there))
