import importlib.util
import itertools
import random
import sys
import unittest

import rshub
from rshub.audit import same_content
from rshub.inventory import Inventory, digest, element, lastmod, prefix_end, version

from .hub import ROOT, vectors


class Vectors(unittest.TestCase):
    """Test vectors that the hub and docs/audit.py use, too."""

    def setUp(self):
        self.vectors = vectors("internal/inventory/audit/testdata/digest.json")

    def test_versions(self):
        for v in self.vectors["versions"]:
            self.assertEqual(version(v["change"], "content"), v["version"], v["name"])

    def test_elements(self):
        for v in self.vectors["elements"]:
            self.assertEqual(element(v["loc"], v["version"]).hex(), v["e"])

    def test_digests(self):
        for v in self.vectors["digests"]:
            self.assertEqual(digest(int.from_bytes(bytes.fromhex(v["sum"]), "little"), v["count"]), v["digest"])

    def test_prefixes(self):
        for v in self.vectors["prefixes"]:
            if v["prefix"]:
                self.assertEqual(prefix_end(v["prefix"]), v["to"])

    def test_sets(self):
        for s, by in itertools.product(self.vectors["sets"], ("position", "content")):
            own = Inventory(s["resources"], by)
            for r in s["ranges"]:
                want = {"from": r["from"], "to": r["to"], "count": r["count"], "digest": r[by]}
                self.assertEqual(own.range(r["from"], r["to"]), want, s["name"])

    @unittest.skipIf(sys.version_info < (3, 10), "docs/audit.py needs Python 3.10")
    def test_reference_implementation(self):
        """docs/audit.py divides ranges in the same way."""
        spec = importlib.util.spec_from_file_location("reference", ROOT / "docs/audit.py")
        reference = importlib.util.module_from_spec(spec)
        written, sys.dont_write_bytecode = sys.dont_write_bytecode, True
        try:
            spec.loader.exec_module(reference)
        finally:
            sys.dont_write_bytecode = written
        choose = random.Random(1)
        for n in (0, 1, 2, 65, 1000):
            resources = [{"loc": f"https://example.org/{choose.random()}", "position": i + 1, "length": i} for i in range(n)]
            for by in ("position", "content"):
                ours, theirs = Inventory(resources, by), reference.Inventory(resources, by)
                for parts in (1, 8, 256):
                    self.assertEqual(ours.cut(None, None, parts), theirs.cut(None, None, parts))


class Inventories(unittest.TestCase):
    def test_lastmod_format(self):
        for text, want in {
            "2024-01-02T03:04:05Z": "2024-01-02T03:04:05Z",
            "2024-01-02T03:04:05.120Z": "2024-01-02T03:04:05.12Z",
            "2024-01-02T03:04:05.000000001Z": "2024-01-02T03:04:05.000000001Z",
            "2024-01-02T03:04:05.000Z": "2024-01-02T03:04:05Z",
            "2024-01-02T03:04:05+02:00": "2024-01-02T01:04:05Z",
            "2024-01-02T03:04:05": "2024-01-02T03:04:05Z",
            "2024-01-02": "2024-01-02T00:00:00Z",
            "": "",
        }.items():
            self.assertEqual(lastmod(text), want, text)
        with self.assertRaisesRegex(ValueError, "yesterday"):
            lastmod("yesterday")

    def test_duplicate(self):
        with self.assertRaisesRegex(ValueError, "duplicate resource a"):
            Inventory([{"loc": "a"}, {"loc": "b"}, {"loc": "a"}], "content")

    def test_prefix_end(self):
        for prefix, want in {"a": "b", "\ud7ff": "\ue000", "a\U0010ffff": "b", "\U0010ffff": None}.items():
            self.assertEqual(prefix_end(prefix), want)

    def test_evidence(self):
        for a, b, want in (
            ({"hash": "md5:AB sha-256:00"}, {"hash": "md5:ab"}, True),
            ({"hash": "md5:ab sha-256:00"}, {"hash": "md5:ab sha-256:01"}, False),
            ({"hash": "md5:ab"}, {"hash": "sha-256:01"}, None),
            ({"hash": "md5:ab", "length": 5}, {"length": 5}, True),
            ({"lastmod": "2024-01-02T03:04:05.0Z", "length": 5}, {"lastmod": "2024-01-02T03:04:05Z"}, True),
            ({"lastmod": "2024-01-02T03:04:05Z", "length": 5}, {"lastmod": "2024-01-02T03:04:05Z", "length": 6}, False),
            ({"length": 0}, {"length": 0}, True),
            ({}, {"length": 5}, None),
        ):
            self.assertIs(same_content(a, b), want, (a, b))

    def test_exports_have_docstrings(self):
        for name in rshub.__all__:
            self.assertTrue(getattr(rshub, name).__doc__, name)
