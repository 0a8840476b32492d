import hashlib
import hmac
import time
import unittest

import rshub

from .hub import names, vectors

BODY = """<?xml version="1.0" encoding="UTF-8"?>
<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/" xmlns:h="https://github.com/rshub/rshub/terms/">
<rs:md capability="changenotification" h:after="{after}-5" h:cursor="{cursor}-9"{more}/>
{entries}</urlset>"""
ENTRY = """<url><loc>https://example.org/{0}</loc><lastmod>2024-01-02T03:04:05Z</lastmod>\
<rs:md change="updated" datetime="2026-01-01T00:00:00.000001Z" length="5" type="a&amp;b" h:position="{0}"/>\
<rs:ln rel="describedby" href="https://example.org/{0}.json"/></url>
"""


def delivery(after, cursor, *positions, more="", **headers):
    body = BODY.format(after=after, cursor=cursor, more=more, entries="".join(map(ENTRY.format, positions))).encode()
    return rshub.read_delivery({k.replace("_", "-"): v for k, v in headers.items()}, body, None)


def signature(secret, text):
    return "sha256=" + hmac.new(secret.encode(), text, hashlib.sha256).hexdigest()


class Entries(unittest.TestCase):
    def test_all_members(self):
        """An entry has the same members as in JSON."""
        entry = """<url><loc>https://example.org/1</loc><changefreq>daily</changefreq><rs:md capability="changelist" change="updated" \
datetime="2026-01-01T00:00:00.000001Z" h:sourceDatetime="2026-01-01T00:00:00Z" length="5" h:position="1" xmlns:x="urn:x" x:a="b"/>\
<rs:ln rel="patch" href="https://example.org/2" pri="3" length="4"/></url>"""
        body = BODY.format(after=0, cursor=1, more="", entries=entry).encode()
        self.assertEqual(
            rshub.read_delivery({}, body, None).changes,
            [{"position": 1, "loc": "https://example.org/1", "changefreq": "daily", "capability": "changelist", "change": "updated",
              "datetime": "2026-01-01T00:00:00.000001Z", "sourceDatetime": "2026-01-01T00:00:00Z", "length": 5, "{urn:x}a": "b",
              "ln": [{"rel": "patch", "href": "https://example.org/2", "pri": 3, "length": 4}]}],
        )  # fmt: skip


class Signatures(unittest.TestCase):
    def test_vectors(self):
        for v in vectors("callback/websub/testdata/signature.json"):
            body = v["body"].encode()
            for algorithm, signature in v["signatures"].items():
                self.assertTrue(rshub.check_signature(v["secret"], body, signature), (v["name"], algorithm))
                self.assertTrue(rshub.check_signature(v["secret"].encode(), body, signature.upper()))
                self.assertFalse(rshub.check_signature(v["secret"] + "x", body, signature))
                self.assertFalse(rshub.check_signature(v["secret"], body + b" ", signature))
                self.assertFalse(rshub.check_signature(v["secret"], body, signature[:-1]))

    def test_no_signature(self):
        # The SHA-1 of the RFC's test case 2 is correct, but SHA-1 is not accepted.
        sha1 = "sha1=effcdf6ae5eb2fa2d27416d5f184df9c259a7c79"
        for signature in (None, "", "sha256=", "sha256", "md5=00", "=", "sha256=\u00fc", sha1):
            self.assertFalse(rshub.check_signature("Jefe", b"what do ya want for nothing?", signature), signature)
            with self.assertRaises(rshub.SignatureError):
                rshub.read_delivery({"X-Hub-Signature": signature} if signature else {}, b"what do ya want for nothing?", "Jefe")


    def test_two_secrets(self):
        """During a change of the secret, either signature suffices."""
        body = BODY.format(after=0, cursor=1, more="", entries=ENTRY.format(1)).encode()
        new, old = signature("new", body), signature("old", body)
        for secret, good in (("new", True), ("old", True), ("other", False)):
            headers = {"X-Hub-Signature": new, "RS-Former-Signature": old}
            if good:
                self.assertEqual(len(rshub.read_delivery(headers, body, secret).changes), 1)
            else:
                with self.assertRaises(rshub.SignatureError):
                    rshub.read_delivery(headers, body, secret)

    def test_check_query(self):
        now = time.time()
        for what, age, signed, header, good in (
            ("current", 0, "own", "RS-Signature", True),
            ("a former secret", 0, "own", "rs-former-signature", True),
            ("200 s old", 200, "own", "RS-Signature", True),
            ("a clock that is ahead", -200, "own", "RS-Signature", True),
            ("400 s old", 400, "own", "RS-Signature", False),
            ("another secret", 0, "other", "RS-Signature", False),
            ("the signature of a body", 0, "own", "X-Hub-Signature", False),
        ):
            query = "own=1&hub.mode=denied&rs.time=" + time.strftime("%Y-%m-%dT%H%%3A%M%%3A%SZ", time.gmtime(now - age))
            headers = {header: signature(signed, query.encode())}
            with self.subTest(what):
                if good:
                    rshub.check_query(headers, query, "own")
                    with self.assertRaises(rshub.SignatureError):
                        rshub.check_query(headers, query + "x", "own")
                else:
                    with self.assertRaises(rshub.SignatureError):
                        rshub.check_query(headers, query, "own")
        with self.assertRaises(rshub.SignatureError):
            rshub.check_query({"RS-Signature": signature("own", b"hub.mode=denied")}, "hub.mode=denied", "own")
        with self.assertRaises(rshub.SignatureError):
            rshub.check_query({}, "", "own")


class Deliveries(unittest.TestCase):
    def test_read(self):
        d = delivery(3, 5, 4, 5, RS_ATTEMPT="2", rs_gap="1-3")
        self.assertEqual((d.after, d.cursor, d.attempt, d.gap, d.diverged), ("3-5", "5-9", 2, "1-3", False))
        want = {
            "position": 4, "loc": "https://example.org/4", "datetime": "2026-01-01T00:00:00.000001Z", "change": "updated",
            "type": "a&b", "length": 5, "lastmod": "2024-01-02T03:04:05Z",
            "ln": [{"rel": "describedby", "href": "https://example.org/4.json"}],
        }  # fmt: skip
        self.assertEqual(d.changes[0], want)

    def test_order(self):
        """Each row has a mark, a delivery, and the new changes, the next mark and whether changes were missed."""
        for what, mark, d, want in (
            ("the first", None, delivery(7, 9, 8, 9), (["8", "9"], "9", False)),
            ("the next", "9", delivery(9, 10, 10), (["10"], "10", False)),
            ("a repeat", "10", delivery(9, 10, 10), ([], "10", False)),
            ("a repeat with another range", "9", delivery(7, 11, 8, 9, 10, 11), (["10", "11"], "11", False)),
            ("an old repeat", "20", delivery(7, 9, 8, 9), ([], "20", False)),
            ("the filter left out the last change", "9", delivery(9, 12, 10), (["10"], "12", False)),
            ("the delivery after that", "12", delivery(12, 13, 13), (["13"], "13", False)),
            ("a delivery is missing", "9", delivery(10, 11, 11), (["11"], "11", True)),
            ("a gap", "3", delivery(9, 10, 10, RS_Gap="4-9"), (["10"], "10", True)),
            ("the set was created again", "50", delivery(0, 2, 1, 2, RS_Gap="1-"), (["1", "2"], "2", True)),
            ("the log lost its tail", "50", delivery(40, 42, 41, 42, more=' h:diverged="true"'), (["41", "42"], "42", False)),
            ("a position of an older version", 9, delivery(7, 10, 8, 9, 10), (["10"], "10", False)),
        ):
            got = d.new_changes(mark)
            self.assertEqual((names(got.changes), got.mark, got.missed), want, what)

    def test_numbers(self):
        """A gap or a lost tail counts only if the number is higher or none is known."""
        gap, lost, new = ' h:gap="4-9"', ' h:diverged="true"', {"RS_Gap": "1-"}

        def numbered(n, *rest, more="", **headers):
            return delivery(*rest, more=more + f' h:delivery="{n}"', **headers)

        for what, mark, d, want in (
            ("the first", None, numbered(5, 7, 9, 8, 9), (["8", "9"], "9/5", False)),
            ("the first with a gap", None, numbered(5, 9, 10, 10, more=gap), (["10"], "10/5", True)),
            ("no number yet", "9", numbered(5, 9, 10, 10), (["10"], "10/5", False)),
            ("no number yet, and an int", 9, numbered(5, 9, 10, 10), (["10"], "10/5", False)),
            ("no number yet, a gap", "3", numbered(5, 9, 10, 10, more=gap), (["10"], "10/5", True)),
            ("no number yet, a lost tail", "50", numbered(5, 40, 42, 41, 42, more=lost), (["41", "42"], "42/5", False)),
            ("no number yet, an unsigned header", "50", numbered(5, 0, 2, 1, 2, **new), ([], "50/5", False)),
            ("higher", "9/5", numbered(6, 9, 10, 10), (["10"], "10/6", False)),
            ("higher, a repeat", "9/5", numbered(6, 7, 9, 8, 9), ([], "9/6", False)),
            ("higher, a delivery is missing", "9/5", numbered(7, 10, 11, 11), (["11"], "11/7", True)),
            ("higher, a gap", "3/5", numbered(6, 9, 10, 10, more=gap), (["10"], "10/6", True)),
            ("higher, the set was created again", "50/5", numbered(6, 0, 2, 1, 2, more=' h:gap="1-"'), (["1", "2"], "2/6", True)),
            ("higher, a lost tail", "50/5", numbered(6, 40, 42, 41, 42, more=lost), (["41", "42"], "42/6", False)),
            ("higher, an unsigned header", "50/5", numbered(6, 0, 2, 1, 2, **new), ([], "50/6", False)),
            ("equal", "9/5", numbered(5, 7, 9, 8, 9), ([], "9/5", False)),
            ("equal, with more", "9/5", numbered(5, 7, 11, 8, 9, 10, 11), (["10", "11"], "11/5", False)),
            ("equal, a delivery is missing", "9/5", numbered(5, 10, 11, 11), (["11"], "11/5", True)),
            ("equal, a gap", "10/5", numbered(5, 9, 10, 10, more=gap), ([], "10/5", False)),
            ("equal, a lost tail", "50/5", numbered(5, 40, 42, 41, 42, more=lost), ([], "50/5", False)),
            ("equal, an unsigned header", "50/5", numbered(5, 0, 2, 1, 2, **new), ([], "50/5", False)),
            ("lower", "9/5", numbered(4, 9, 10, 10), ([], "9/5", False)),
            ("lower, a delivery is missing", "9/5", numbered(4, 12, 13, 13), ([], "9/5", False)),
            ("lower, a gap", "10/5", numbered(4, 2, 4, 3, 4, more=gap), ([], "10/5", False)),
            ("lower, a lost tail", "50/5", numbered(4, 40, 42, 41, 42, more=lost), ([], "50/5", False)),
            ("lower, an unsigned header", "50/5", numbered(4, 0, 2, 1, 2, **new), ([], "50/5", False)),
            ("missing", "9/5", delivery(9, 10, 10), (["10"], "10/5", False)),
            ("missing, a repeat", "9/5", delivery(7, 9, 8, 9), ([], "9/5", False)),
            ("missing, a delivery is missing", "9/5", delivery(10, 11, 11), (["11"], "11/5", True)),
            ("missing, a gap ahead", "3/5", delivery(9, 10, 10, RS_Gap="4-9"), (["10"], "10/5", True)),
            ("missing, a gap behind", "50/5", delivery(0, 2, 1, 2, **new), ([], "50/5", False)),
            ("missing, a lost tail", "50/5", delivery(40, 42, 41, 42, more=lost), ([], "50/5", False)),
            ("the highest", f"9/{2**63 - 2}", numbered(2**63 - 1, 9, 10, 10), (["10"], f"10/{2**63 - 1}", False)),
            ("one below the highest", f"9/{2**63 - 1}", numbered(2**63 - 2, 9, 10, 10), ([], f"9/{2**63 - 1}", False)),
            ("zero", None, numbered(0, 0, 1, 1), (["1"], "1/0", False)),
            ("after zero", "1/0", numbered(0, 0, 1, 1, more=lost), ([], "1/0", False)),
        ):
            with self.subTest(what):
                got = d.new_changes(mark)
                self.assertEqual((names(got.changes), got.mark, got.missed), want)

    def test_number_and_gap(self):
        d = delivery(9, 10, 10, more=' h:delivery="7" h:gap="4-9"', RS_Gap="1-")
        self.assertEqual((d.number, d.gap), (7, "4-9"))
        d = delivery(9, 10, 10, more=' h:delivery="7"', RS_Gap="1-")
        self.assertEqual((d.number, d.gap), (7, ""))
        d = delivery(9, 10, 10, RS_Gap="4-9")
        self.assertEqual((d.number, d.gap), (None, "4-9"))

    def test_invalid_numbers(self):
        for number in ("", "x", "-1", "+1", "1.5", "1_0", "\u0661", str(2**63), "1" * 5000):
            with self.subTest(number=number[:20]), self.assertRaises(ValueError):
                delivery(9, 10, 10, more=f' h:delivery="{number}"')
            for mark in (f"9/{number}", f"{number}/9", number):
                with self.subTest(mark=mark[:20]), self.assertRaisesRegex(ValueError, "invalid mark"):
                    delivery(9, 10, 10).new_changes(mark)
        for place in ("after", "cursor"):
            body = BODY.format(**{"after": 1, "cursor": 2, place: "x"}, more="", entries="").encode()
            with self.subTest(place), self.assertRaises(ValueError):
                rshub.read_delivery({}, body, None)

    def test_invalid_bodies(self):
        for body in (
            b"", b"<urlset", b"<urlset/>", b"\xff", b"<!DOCTYPE x><urlset/>",
            BODY.format(after=1, cursor=2, more="", entries="<url><loc>https://example.org/a</loc></url>").encode(),
            b'<?xml version="1.0"?><!DOCTYPE a [<!ENTITY b "c">]><urlset>&b;</urlset>',
        ):  # fmt: skip
            with self.assertRaises(ValueError, msg=body):
                rshub.read_delivery({}, body, None)
