"""Whatever a server answers, only errors of this package are raised."""

import copy
import os
import random
import sqlite3
import unittest

import rshub

from .hub import changes

JUNK = (None, True, 0, -1, 1.5, "", "x", "7-7", "99-99", [], {}, [1], {"a": 1}, 10**30, [[]], "5-5~1")


def entries():
    return [{"position": n, "datetime": "2026-01-01T00:00:00Z", **c} for n, c in enumerate(changes("1", "2", length=1), 1)]


ANSWERS = {
    "page": {"set": "demo", "after": "0-0", "cursor": "2-2", "changes": entries()},
    "empty": {"set": "demo", "after": "2-2", "cursor": "2-2", "changes": []},
    "part": {"set": "demo", "baseline": True, "complete": True, "count": 2, "cursor": "2-2~1", "resources": entries()},
    "end": {"set": "demo", "baseline": False, "complete": True, "count": 2, "cursor": "2-2", "changes": [], "position": "x", "content": "y"},
    "summary": {"set": "demo", "cursor": "2-2", "complete": True, "count": 2, "weak": 0, "position": "x", "content": "x"},
    "ranges": {"set": "demo", "cursor": "2-2", "ranges": [{"from": None, "to": None, "count": 1, "digest": "d", "resources": [{"e": "00" * 16, **entries()[0]}]}]},
    "receipt": {"set": "demo", "first": "1-1", "cursor": "1-1", "count": 1},
}


class ScriptEnd(Exception):
    """The script has no more responses."""


class RandomResponses(unittest.TestCase):
    def setUp(self):
        self.seed = int(os.environ.get("RSHUB_TEST_SEED") or random.randrange(1 << 32))
        self.random = random.Random(self.seed)
        self.client = rshub.Client("http://127.0.0.1:1", retry_timeout=0, sleep=lambda seconds: None)
        self.client.backoff = lambda e, seconds: None

    def mutated(self, value):
        if self.random.random() < 0.05:
            return copy.deepcopy(self.random.choice(JUNK))
        if isinstance(value, dict):
            return {k: self.mutated(v) for k, v in value.items() if self.random.random() > 0.02}
        if isinstance(value, list):
            return [self.mutated(v) for v in value]
        return value

    def script(self, *names):
        answers = [self.mutated(ANSWERS[name]) for name in names]

        def request(url, **_):
            if not answers:
                raise ScriptEnd
            return answers.pop(0)

        def events(url):
            if not answers:
                raise ScriptEnd
            while answers:
                yield self.random.choice(("", "", "", "", "gone", "news")), answers.pop(0)

        self.client.request, self.client.events = request, events

    def test_random_responses(self):
        own = [{"loc": c["loc"], "length": 1} for c in entries()]
        follow, succeeded = self.client.follow, 0
        for _ in range(400):
            db = sqlite3.connect(":memory:", isolation_level=None)
            for names, do in (
                (("page", "empty"), lambda: list(follow("demo", "start", once=True))),
                (("page", "empty"), lambda: list(follow("demo", "start", stream=True))),
                (("part", "end"), lambda: list(self.client.baseline("demo"))),
                (("summary", "ranges", "ranges", "summary", "page", "ranges", "ranges"), lambda: self.client.audit("demo", own, settle=0)),
                (("receipt",), lambda: self.client.publish("demo", changes("1"))),
                (("part", "end", "page", "empty"), lambda: list(rshub.Replica(db, self.client, "demo").catch_up())),
            ):
                self.script(*names)
                try:
                    do()
                    succeeded += 1
                except (rshub.Error, ScriptEnd):
                    pass
                except Exception as e:
                    raise AssertionError(f"responses {names}, RSHUB_TEST_SEED={self.seed}") from e
            db.close()
        self.assertGreater(succeeded, 50)  # otherwise the unmutated responses are not valid

    def test_positions(self):
        """Changes out of order, or outside of the cursors, are refused."""
        for positions in ((2, 1), (1, 1), (1, 3), (0, 1)):
            page = copy.deepcopy(ANSWERS["page"])
            for change, at in zip(page["changes"], positions):
                change["position"] = at
            self.client.request = lambda url, page=page, **_: page
            with self.assertRaises(rshub.NotHubError, msg=positions):
                next(self.client.follow("demo", "start"))
