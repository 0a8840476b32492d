"""Callbacks: deliveries that a hub POSTs to a destination (WebSub). See docs/callbacks.md of rshub.

    delivery = rshub.read_delivery(headers, body, secret)    # raises SignatureError, ValueError
    new = delivery.new_changes(mark)                         # mark: the stored mark; None at first
    if new.missed: read a baseline
    process(new.changes), and store new.mark with the result

Answer 2xx only when the result is stored: the hub repeats a delivery until it gets that answer.
"""

from __future__ import annotations

import calendar
import hashlib
import hmac
import time
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Tuple, Union
from urllib.parse import parse_qs

from .errors import Error
from .follow import position

_ALGORITHMS = {"sha256": hashlib.sha256, "sha384": hashlib.sha384, "sha512": hashlib.sha512}
_SITEMAP = "{http://www.sitemaps.org/schemas/sitemap/0.9}"
_RS = "{http://www.openarchives.org/rs/terms/}"
_HUB = "{https://github.com/rshub/rshub/terms/}"


class SignatureError(Error):
    """The request is not signed with the secret. Discard it, and answer 403: the hub retries, so nothing is lost if only
    the configured secret was wrong."""


def check_signature(secret: Union[str, bytes], body: bytes, signature: Optional[str]) -> bool:
    """Reports whether signature, the header X-Hub-Signature, matches body. It accepts sha256, sha384 and sha512, but not
    SHA-1, which WebSub allows. The comparison takes constant time."""
    method, _, given = (signature or "").strip().partition("=")
    algorithm = _ALGORITHMS.get(method.strip().lower())
    if algorithm is None:
        return False
    key = secret.encode() if isinstance(secret, str) else secret
    right = hmac.new(key, body, algorithm).hexdigest()
    return hmac.compare_digest(right.encode(), given.strip().lower().encode())


@dataclass
class NewChanges:
    """The part of a delivery that a destination has not processed yet."""

    #: The changes to process. Empty if the delivery is a repeat.
    changes: List[Dict[str, Any]]
    #: The mark to store together with the result, and to pass to the next delivery. It has the position up to which
    #: changes were processed and the number of the newest delivery, and is opaque.
    mark: str
    #: True if changes before these will not be delivered: read a baseline.
    missed: bool


@dataclass
class Delivery:
    """Consecutive changes of a set, without those that the subscription's filter leaves out."""

    changes: List[Dict[str, Any]]
    #: The cursor before the changes, at the end of the previous delivery.
    after: str
    #: The cursor after the changes.
    cursor: str
    #: 1, or more for a retry.
    attempt: int = 1
    #: The positions that are gone, as "first-last", or "first-" if the set was created again; empty if there is no gap.
    gap: str = ""
    #: True if the hub has lost its newest changes. It then repeats changes rather than skip any.
    diverged: bool = False
    #: The number of the delivery. Retries have the same number, later deliveries a higher one. None for older hubs.
    number: Optional[int] = None

    def new_changes(self, mark: Union[str, int, None]) -> NewChanges:
        """Returns what is new for a destination with this mark, which is None before the first delivery. A position
        alone, which older versions of this package stored, is a valid mark.

        A delivery with a lower number than the mark's is a replay without new changes. A gap or a lost tail moves the mark
        back only if the number is higher, because the signature of an old delivery stays valid forever. Raises ValueError
        for an invalid mark."""
        at, newest = _read_mark(mark)
        before, end = position(self.after), position(self.cursor)
        if newest is not None and self.number is not None and self.number < newest:
            return NewChanges([], _mark(at or 0, newest), False)
        missed = at is not None and before > at
        if newest is None or self.number is not None and self.number > newest:
            missed = missed or bool(self.gap)
            if self.gap or self.diverged:
                at = before  # positions may start again here
            newest = self.number
        if at is None:
            at = before
        changes = [c for c in self.changes if c["position"] > at]
        return NewChanges(changes, _mark(max(at, end), newest), missed)


def _mark(at: int, newest: Optional[int]) -> str:
    return str(at) if newest is None else f"{at}/{newest}"


def _read_mark(mark: Union[str, int, None]) -> Tuple[Optional[int], Optional[int]]:
    """Returns the position and the number in a mark."""
    if mark is None:
        return None, None
    at, slash, newest = str(mark).partition("/")
    try:
        return _natural(at), _natural(newest) if slash else None
    except ValueError:
        raise ValueError(f"invalid mark {mark!r}; store NewChanges.mark unchanged") from None


def _natural(text: str) -> int:
    """Reads a decimal integer below 2^63."""
    if not (text.isascii() and text.isdecimal() and len(text) <= 19 and int(text) < 1 << 63):
        raise ValueError(f"invalid number {text!r}")
    return int(text)


def _signed(secret: Union[str, bytes], text: bytes, named: Mapping[str, str], name: str) -> bool:
    """Reports whether text is signed. For a day after a change of the secret, the hub signs with both."""
    return check_signature(secret, text, named.get(name)) or check_signature(secret, text, named.get("rs-former-signature"))


def check_query(headers: Mapping[str, str], query: str, secret: Union[str, bytes], seconds: float = 300) -> None:
    """Checks that a GET from the hub (a verification, or the end of a subscription) is signed with the secret, and was
    sent within the last seconds. query is everything after "?", as received.

    Raises SignatureError.
    """
    named = {name.lower(): value for name, value in headers.items()}
    if not _signed(secret, query.encode(), named, "rs-signature"):
        raise SignatureError("check request: not signed with the secret")
    sent = parse_qs(query).get("rs.time", [""])[-1]
    try:
        age = time.time() - calendar.timegm(time.strptime(sent, "%Y-%m-%dT%H:%M:%SZ"))
    except ValueError:
        raise SignatureError(f"check request: invalid rs.time {sent!r}") from None
    if abs(age) > seconds:
        raise SignatureError(f"check request: sent {age:.0f} seconds ago, want at most {seconds:.0f}; it is a replay, or a clock is wrong")


def read_delivery(headers: Mapping[str, str], body: bytes, secret: Union[str, bytes, None]) -> Delivery:
    """Checks the signature of a delivery and parses it. With None as the secret there is no check, and anyone who knows
    the callback's URL can deliver.

    headers is any mapping, as http.server and WSGI frameworks have it. Order and gap are read from the body, which the
    signature covers. The header RS-Gap is used only if the body has no h:delivery, as from older hubs.

    Raises SignatureError, or ValueError if the body is not a delivery of rshub.
    """
    named = {name.lower(): value for name, value in headers.items()}
    if secret is not None and not _signed(secret, body, named, "x-hub-signature"):
        raise SignatureError("read delivery: not signed with the secret")
    try:
        text = body.decode()
        if "<!DOCTYPE" in text:
            raise ValueError("read delivery: got a DOCTYPE, want none")
        root = ElementTree.fromstring(text)
    except (ElementTree.ParseError, UnicodeDecodeError) as e:
        raise ValueError(f"read delivery: invalid XML: {e}") from None
    md = root.find(_RS + "md")
    cursor = md.get(_HUB + "cursor") if md is not None else None
    if md is None or cursor is None or root.tag != _SITEMAP + "urlset":
        raise ValueError("read delivery: not a change notification of rshub: h:cursor is missing")
    after, number = md.get(_HUB + "after") or "0-0", md.get(_HUB + "delivery")
    for place in (after, cursor):
        _natural(place.partition("-")[0])
    return Delivery(
        [_change(url) for url in root.iter(_SITEMAP + "url")],
        after,
        cursor,
        int(named.get("rs-attempt") or 1),
        (named.get("rs-gap") if number is None else md.get(_HUB + "gap")) or "",
        md.get(_HUB + "diverged") == "true",
        None if number is None else _natural(number),
    )


def _change(url: ElementTree.Element) -> Dict[str, Any]:
    """Returns an entry with the members of its JSON form."""
    md = url.find(_RS + "md")
    loc = url.findtext(_SITEMAP + "loc")
    if md is None or not loc or not md.get(_HUB + "position"):
        raise ValueError("read delivery: an entry lacks loc or h:position")
    change: Dict[str, Any] = {"position": int(md.get(_HUB + "position", "")), "loc": loc.strip()}
    change.update(_members(md))
    if md.get(_HUB + "sourceDatetime") is not None:
        change["sourceDatetime"] = md.get(_HUB + "sourceDatetime")
    for name in ("lastmod", "changefreq"):
        text = url.findtext(_SITEMAP + name)
        if text:
            change[name] = text.strip()
    links = [_members(ln) for ln in url.findall(_RS + "ln")]
    if links:
        change["ln"] = links
    return change


def _members(element: ElementTree.Element) -> Dict[str, Any]:
    """Returns the attributes of an element as JSON members, without the hub's own."""
    return {name: int(value) if name in ("length", "pri") else value for name, value in element.attrib.items() if not name.startswith(_HUB)}
