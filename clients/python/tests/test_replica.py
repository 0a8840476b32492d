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
    """A baseline may be as of a cursor that is not the newest, so each of these sets has one batch."""

    def setUp(self):
        super().setUp()
        self.warm()

    def test_pages(self):
        self.client.publish(self.set_name, changes("c", "a", "b", "d") + changes("d", change="deleted"))
        pages = list(self.client.baseline(self.set_name, limit=2))
        self.assertEqual([names(p.resources) for p in pages], [["a", "b"], ["c"], []])
        self.assertEqual([p.end for p in pages], [False, False, True])
        self.assertEqual((pages[-1].count, pages[-1].complete, pages[-1].cursor.split("-")[0]), (3, False, "5"))
        self.publish("e")
        self.assertEqual(names(next(self.client.follow(self.set_name, pages[-1].cursor)).changes), ["e"])

    def test_goes_on_in_another_process(self):
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
        """The hub does not have what the baseline was at: it begins anew, and says so."""
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
        """A baseline of a collection names what is in it now."""
        new = changes("a", "b", "c")
        for c in new[:2]:
            c["ln"] = [{"rel": "collection", "href": "urn:x:c"}]
        self.client.publish(self.set_name, new + changes("b"))
        pages = list(self.client.baseline(self.set_name, collection="urn:x:c"))
        self.assertEqual([n for p in pages for n in names(p.resources)], ["a"])
        self.assertEqual((pages[-1].end, pages[-1].count, pages[-1].position), (True, None, ""))


class Audit(HubTest):
    def test_equal_and_not(self):
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
        """The hub is told of an audit that finds nothing, and of no other."""
        self.client.publish(self.set_name, changes("a", "b", length=5))
        own = [{"loc": f"https://example.org/{n}", "length": 5} for n in "ab"]
        self.assertEqual(self.client.audit(self.set_name, own, settle=0.01), [])
        self.assertEqual(len(self.client.audit(self.set_name, own[:1], settle=0.01, name="less")), 1)
        self.assertEqual(self.client.audit(self.set_name, own, settle=0.01, name="a & b"), [])
        proofs = self.client.request(self.client.set_url(self.set_name) + "/proofs")["proofs"]
        self.assertEqual([(p["name"], p["compared"], p["count"]) for p in proofs], [("a & b", "content", 2)])

    def test_evidence(self):
        """One end knows a hash, the other does not: they are compared by what both know."""
        many = [{"loc": f"https://example.org/{i}", "change": "created", "hash": f"sha-256:{i:064x}", "length": i} for i in range(200)]
        self.client.publish(self.set_name, many)
        own = [{"loc": c["loc"], "length": c["length"] + (c["length"] == 3)} for c in many]
        self.assertEqual(self.client.audit(self.set_name, own, settle=0.01), [rshub.Difference("stale", "https://example.org/3")])

    def test_prefix(self):
        self.publish("a/1", "b/1", length=5)
        own = [{"loc": "https://example.org/a/1", "length": 5}, {"loc": "https://example.org/c", "length": 5}]
        self.assertEqual(self.client.audit(self.set_name, own, prefix="https://example.org/a/", settle=0.01), [])

    def test_what_changes_is_no_difference(self):
        self.publish("a", "b", length=5)
        looks = [[{"loc": "https://example.org/a", "length": 5}], [{"loc": "https://example.org/a", "length": 5}]]

        def own():
            if len(looks) == 1:  # between the two looks
                self.client.look(self.set_name, since=self.publish("b", change="deleted").cursor)
            return looks.pop()

        self.assertEqual(self.client.audit(self.set_name, own, settle=0.01), [])
        self.assertEqual(looks, [])

    def test_what_the_log_names_is_no_difference(self):
        """Both looks see the same difference, and a change explains it."""
        self.publish("a", length=6)
        looks = []

        def own():
            if looks:
                self.client.look(self.set_name, since=self.publish("a", length=7).cursor)
            looks.append(1)
            return [{"loc": "https://example.org/a", "length": 5}]

        self.assertEqual(self.client.audit(self.set_name, own, settle=0.01), [])
        self.assertEqual(len(looks), 2)

    def test_much_is_missing(self):
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
        """Opens the replica, as a program does that starts again."""
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

    def in_sync(self, *want):
        for update in self.replica.catch_up():
            self.apply(update)
        self.assertEqual(self.copy(), set(want))
        self.assertEqual({n for n in names(self.replica.resources())}, set(want))
        self.assertEqual(self.replica.audit(), [])

    def test_catches_up(self):
        self.assertIsNone(self.replica.cursor)
        with self.assertRaises(rshub.NotWhole):
            self.replica.audit()
        self.publish("a", "b", "c")
        self.in_sync("a", "b", "c")
        self.publish("b", change="deleted")
        self.publish("d")
        self.assertEqual(self.replica.audit(), [])  # as of its own cursor
        self.assertEqual(len(self.replica), 3)
        self.in_sync("a", "c", "d")

    def test_audit_finds_damage(self):
        self.publish(*map(str, range(300)))
        self.in_sync(*map(str, range(300)))
        self.db.execute("DELETE FROM rshub_resource WHERE loc LIKE '%/17'")
        self.db.execute("UPDATE rshub_resource SET position = 1 WHERE loc LIKE '%/42'")
        self.publish("new")
        want = {("missing", "https://example.org/17"), ("stale", "https://example.org/42")}
        self.assertEqual({(d.kind, d.loc) for d in self.replica.audit()}, want)

    def test_a_failure_in_the_loop_repeats_the_update(self):
        """What the loop wrote is rolled back with the update, so both stay in step."""
        self.publish("a", "b")
        self.in_sync("a", "b")
        self.publish("c")
        cursor = self.replica.cursor
        kept = []  # as a traceback keeps the loop's iterator
        for n in range(3):
            updates = self.replica.catch_up()
            kept.append(updates)
            self.apply(next(updates))
            self.assertEqual((names(self.replica.resources()), self.copy()), (["a", "b", "c"], set("abc")))
            if n == 1:
                updates.close()
        with self.assertRaisesRegex(RuntimeError, "another loop"):
            next(kept[0])
        self.assertEqual(self.copy(), set("abc"))  # the third is still in its transaction
        kept.pop().close()
        self.open()
        self.assertEqual((self.copy(), self.replica.cursor), ({"a", "b"}, cursor))
        self.in_sync("a", "b", "c")

    def test_interrupted_baseline(self):
        """A baseline is left after each of its steps, in turn, and goes on."""
        self.publish(*map(str, range(40)))
        self.addCleanup(setattr, module, "UPDATE", module.UPDATE)
        module.UPDATE = 10
        applied = []
        for _ in range(100):
            self.open()
            for n, update in enumerate(self.replica.catch_up()):
                self.apply(update)
                applied += names(update.changes)
                if n == 1:
                    break  # the second is not applied
            else:
                break
        self.assertEqual(len(set(applied)), 40)
        self.in_sync(*map(str, range(40)))

    def test_gone(self):
        """The set was removed and made anew: a new baseline, of which only what differs comes."""
        self.publish("a", "b", "c")
        self.complete()
        self.in_sync("a", "b", "c")
        self.hub.call("DELETE", f"/sets/{self.set_name}")
        self.publish("b", "d")
        for update in self.replica.catch_up():
            self.apply(update)
        # The hub does not say that it knows all: nothing is removed, and the audit says what only the replica has.
        self.assertEqual(self.copy(), set("abcd"))
        self.assertEqual({(d.kind, d.loc[-1]) for d in self.replica.audit()}, {("extra", "a"), ("extra", "c")})
        with unittest.mock.patch.object(rshub.Client, "look", side_effect=rshub.Unavailable("the inventory is damaged")):
            self.publish("f")  # the changes come all the same
            for update in self.replica.catch_up():
                self.apply(update)
        self.assertEqual(self.copy(), set("abcdf"))
        self.hub.call("DELETE", f"/sets/{self.set_name}")
        self.publish("b", "e")
        self.complete()
        self.in_sync("b", "e")

    def anew(self, *names):
        self.hub.call("DELETE", f"/sets/{self.set_name}")
        self.publish(*names)

    def test_max_delete(self):
        """A baseline that would delete a large part of the copy changes nothing, until somebody allows it."""
        every = list(map(str, range(50)))
        self.publish(*every)
        self.in_sync(*every)
        cursor, held = self.replica.cursor, list(self.replica.resources())
        self.anew(*every[:39], *map(str, range(1000, 1500)))  # more resources, which do not count
        self.complete()
        for options in {}, {"max_delete": 10}, {"max_delete": 0}:
            self.open(**options)
            with self.assertRaisesRegex(rshub.TooManyDeleted, "11 of the 50.*max_delete"):
                for update in self.replica.catch_up():
                    self.apply(update)
            self.open()
            self.assertEqual((self.replica.cursor, list(self.replica.resources()), len(self.copy())), (cursor, held, 50))
        self.open(max_delete=11)
        self.in_sync(*every[:39], *map(str, range(1000, 1500)))
        self.anew("a")
        self.complete()
        self.open(max_delete=-1)
        self.in_sync("a")

    def test_outgrows(self):
        """What the hub did not know is deleted when it knows all, also if nothing else has changed."""
        self.publish("a", "b", "c")
        self.in_sync("a", "b", "c")
        self.anew("b", "d")
        for update in self.replica.catch_up():
            self.apply(update)
        self.publish("e")
        for update in self.replica.catch_up():
            self.apply(update)
        self.assertEqual(self.copy(), set("abcde"))
        self.complete()
        until("a baseline is complete", lambda: list(self.client.baseline(self.set_name))[-1].complete)
        self.open()
        self.in_sync("b", "d", "e")

    def test_outgrows_while_it_follows(self):
        self.publish("a", "b")
        self.in_sync("a", "b")
        self.anew("b")
        self.addCleanup(setattr, module, "LOOK_EVERY", module.LOOK_EVERY)
        for update in self.replica.follow():
            self.apply(update)
            if update.cursor:  # the baseline is over
                self.complete()
                until("a baseline is complete", lambda: list(self.client.baseline(self.set_name))[-1].complete)
                module.LOOK_EVERY = 0.0
                self.publish("c")
            if self.copy() == {"b", "c"}:
                break
        self.in_sync("b", "c")

    def test_a_baseline_that_begins_anew(self):
        """What was read of the baseline before means nothing."""
        self.publish("a", "b")
        self.db.execute("INSERT INTO rshub_baseline VALUES (?, 'https://example.org/old', 1, '', '{}')", (self.set_name,))
        self.db.execute("UPDATE rshub_set SET place = '1-1~1'")
        self.in_sync("a", "b")

    def test_nothing_that_is_held_comes_again(self):
        self.warm()
        self.publish("a", "b", "c")
        self.in_sync("a", "b", "c")
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
        self.in_sync("a")
        self.assertFalse(self.replica.wait(0.01))
        threading.Timer(0.1, self.publish, ["b"]).start()
        self.assertTrue(self.replica.wait(60))
        self.in_sync("a", "b")
        self.hub.kill()
        with self.assertLogs("rshub"):
            self.assertFalse(self.replica.wait(0.01))
        self.hub.start()
        self.hub.call("DELETE", f"/sets/{self.set_name}")
        self.publish("b")
        self.assertTrue(self.replica.wait(5))

    def test_transactions_of_others(self):
        self.publish("a")
        self.db.execute("BEGIN")
        with self.assertRaisesRegex(RuntimeError, "yours"):
            next(self.replica.catch_up())
        self.db.execute("COMMIT")
        with self.assertRaisesRegex(RuntimeError, "is over"):
            for _ in self.replica.catch_up():
                self.db.execute("COMMIT")

    def test_connection(self):
        with self.assertRaisesRegex(ValueError, "isolation_level"):
            db = sqlite3.connect(":memory:")
            self.addCleanup(db.close)
            rshub.Replica(db, self.client, self.set_name)

    def test_under_load_with_kills(self):
        """Somebody publishes, the hub is killed, the destination fails now and then: in the end all are equal."""
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
        mood = random.Random(2)
        kills = 0
        with self.assertLogs("rshub"):
            while not done.is_set():
                for n, update in enumerate(self.replica.catch_up()):
                    self.apply(update)
                    if mood.random() < 0.2:
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
        self.in_sync(*(name for name, there in exists.items() if there))
