"""Callbacks: what a hub POSTs to a destination (WebSub). docs/callbacks.md of rshub describes the deliveries.

    delivery = rshub.read_delivery(headers, body, secret)    # raises BadSignature, ValueError
    news = delivery.news(mark)                               # mark: the text that was stored last; None at first
    if news.missed: read a baseline
    process(news.changes), and store news.mark with the result

Answer 2xx only when the changes are safe: the hub sends a delivery again until it gets that answer.
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


class BadSignature(Error):
    """A delivery is not signed with the secret. Do not use it. Answer 403: then the hub sends it again, and nothing is
    lost if only the secret was a wrong one."""


def check_signature(secret: Union[str, bytes], body: bytes, signature: Optional[str]) -> bool:
    """Reports whether signature, the header X-Hub-Signature, is that of the body: sha256, sha384 or sha512. SHA-1, which
    WebSub allows, is not accepted. The time that it takes does not show how much of a wrong signature is right."""
    method, _, given = (signature or "").strip().partition("=")
    algorithm = _ALGORITHMS.get(method.strip().lower())
    if algorithm is None:
        return False
    key = secret.encode() if isinstance(secret, str) else secret
    right = hmac.new(key, body, algorithm).hexdigest()
    return hmac.compare_digest(right.encode(), given.strip().lower().encode())


@dataclass
class News:
    """What a destination has to do about a delivery."""

    #: Those that were not processed yet. None of them: the delivery is a repeat.
    changes: List[Dict[str, Any]]
    #: To be stored with the result of the changes, and given to the next delivery: the position up to which changes were
    #: processed, and the number of the newest delivery. It is an opaque text, "POSITION/NUMBER", or "POSITION" if the hub
    #: numbers no deliveries.
    mark: str
    #: Changes before these will not come any more: read a baseline.
    missed: bool


@dataclass
class Delivery:
    """One delivery: consecutive changes of a set, less what the subscription's filter leaves out."""

    changes: List[Dict[str, Any]]
    #: The cursor before them: that of the delivery before.
    after: str
    #: The cursor behind them.
    cursor: str
    #: 1, or more when the hub sends it again.
    attempt: int = 1
    #: The positions that are gone: "first-last", or "first-" if the set was made anew. Else empty.
    gap: str = ""
    #: The hub has lost its newest changes, and repeats rather than skips.
    diverged: bool = False
    #: The number of the delivery. Retries have the same number, later deliveries a higher one. None if the hub is older
    #: than these numbers.
    number: Optional[int] = None

    def news(self, mark: Union[str, int, None]) -> News:
        """Returns what is new for a destination that stored a mark. None is the mark of a destination without one. A
        position alone, as older versions of this package had it, is a mark without a number.

        A delivery with a lower number than the mark's is a replay, and nothing of it is new. A gap or a lost tail moves the
        mark back only if the number is higher: the signature of an old delivery stays good forever. Raises ValueError for
        an invalid mark."""
        at, newest = _read_mark(mark)
        before, end = position(self.after), position(self.cursor)
        if newest is not None and self.number is not None and self.number < newest:
            return News([], _mark(at or 0, newest), False)
        missed = at is not None and before > at
        if newest is None or self.number is not None and self.number > newest:
            missed = missed or bool(self.gap)
            if self.gap or self.diverged:
                at = before  # positions may be numbered differently from here on
            newest = self.number
        if at is None:
            at = before
        changes = [c for c in self.changes if c["position"] > at]
        return News(changes, _mark(max(at, end), newest), missed)


def _mark(at: int, newest: Optional[int]) -> str:
    return str(at) if newest is None else f"{at}/{newest}"


def _read_mark(mark: Union[str, int, None]) -> Tuple[Optional[int], Optional[int]]:
    """Returns the position and the number of a mark."""
    if mark is None:
        return None, None
    at, slash, newest = str(mark).partition("/")
    try:
        return _natural(at), _natural(newest) if slash else None
    except ValueError:
        raise ValueError(f"invalid mark {mark!r}; store News.mark as it is") from None


def _natural(text: str) -> int:
    """Reads a decimal integer below 2^63."""
    if not (text.isascii() and text.isdecimal() and len(text) <= 19 and int(text) < 1 << 63):
        raise ValueError(f"invalid number {text!r}")
    return int(text)


def _signed(secret: Union[str, bytes], text: bytes, named: Mapping[str, str], name: str) -> bool:
    """For a day after a subscriber has changed the secret, the hub signs with both."""
    return check_signature(secret, text, named.get(name)) or check_signature(secret, text, named.get("rs-former-signature"))


def check_question(headers: Mapping[str, str], query: str, secret: Union[str, bytes], seconds: float = 300) -> None:
    """Checks that a GET of the hub, which asks for a confirmation or says that a subscription has ended, is signed with
    the secret, and was sent within the last seconds. query is all behind "?", as it was received.

    Raises BadSignature.
    """
    named = {name.lower(): value for name, value in headers.items()}
    if not _signed(secret, query.encode(), named, "rs-signature"):
        raise BadSignature("the request is not signed with the secret")
    sent = parse_qs(query).get("rs.time", [""])[-1]
    try:
        age = time.time() - calendar.timegm(time.strptime(sent, "%Y-%m-%dT%H:%M:%SZ"))
    except ValueError:
        raise BadSignature("the request does not say when it was sent") from None
    if abs(age) > seconds:
        raise BadSignature("the request is old: somebody has sent it again, or a clock is wrong")


def read_delivery(headers: Mapping[str, str], body: bytes, secret: Union[str, bytes, None]) -> Delivery:
    """Reads a delivery, after a check of its signature. With None as the secret there is no check: then anybody who
    knows the callback's URL can deliver.

    headers may be a dict, or what http.server, WSGI frameworks and the like have. The order of deliveries is taken
    from the body, which the signature covers. RS-Attempt is a header, and so is RS-Gap, but only if the body has no number
    of the delivery, as those of older hubs.

    Raises BadSignature, or ValueError if the body is no delivery of an rshub.
    """
    named = {name.lower(): value for name, value in headers.items()}
    if secret is not None and not _signed(secret, body, named, "x-hub-signature"):
        raise BadSignature("the delivery is not signed with the secret")
    try:
        text = body.decode()
        if "<!DOCTYPE" in text:
            raise ValueError("a delivery has no DOCTYPE")
        root = ElementTree.fromstring(text)
    except (ElementTree.ParseError, UnicodeDecodeError) as e:
        raise ValueError(f"the delivery is no XML: {e}") from None
    md = root.find(_RS + "md")
    cursor = md.get(_HUB + "cursor") if md is not None else None
    if md is None or cursor is None or root.tag != _SITEMAP + "urlset":
        raise ValueError("the delivery is no change notification of an rshub")
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
    """Returns an entry with the members that it has as JSON."""
    md = url.find(_RS + "md")
    loc = url.findtext(_SITEMAP + "loc")
    if md is None or not loc or not md.get(_HUB + "position"):
        raise ValueError("an entry of the delivery has no loc or no h:position")
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
    """The attributes of an element as JSON has them, without those of the hub."""
    return {name: int(value) if name in ("length", "pri") else value for name, value in element.attrib.items() if not name.startswith(_HUB)}
