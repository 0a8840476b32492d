"""Callbacks: what a hub POSTs to a destination (WebSub). docs/callbacks.md of rshub describes the deliveries.

    delivery = rshub.read_delivery(headers, body, secret)    # raises BadSignature, ValueError
    news = delivery.news(mark)                               # mark: what was kept last; None at first
    if news.missed: read a baseline
    process(news.changes), and keep news.mark with the result

Answer 2xx only when the changes are safe: the hub sends a delivery again until it gets that answer.
"""

from __future__ import annotations

import calendar
import hashlib
import hmac
import time
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Union
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
    #: To be kept with the result of the changes, and given to the next delivery.
    mark: int
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
    #: The positions that are gone, as RS-Gap says: "first-last", or "first-" when the set was made anew. Else empty.
    gap: str = ""
    #: The hub has lost its newest changes, and repeats rather than skips.
    diverged: bool = False

    def news(self, mark: Optional[int]) -> News:
        """Says what is new for a destination that has processed everything up to a mark; None: it begins."""
        before = position(self.after)
        missed = bool(self.gap) or mark is not None and before > mark
        if mark is None or self.gap or self.diverged:
            mark = before  # positions may count otherwise from here on
        changes = [c for c in self.changes if c["position"] > mark]
        return News(changes, max(mark, position(self.cursor)), missed)


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
    from the body, which the signature covers. Only RS-Gap, which the body does not have, and RS-Attempt are headers.

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
    return Delivery(
        [_change(url) for url in root.iter(_SITEMAP + "url")],
        md.get(_HUB + "after") or "0-0",
        cursor,
        int(named.get("rs-attempt") or 1),
        named.get("rs-gap") or "",
        md.get(_HUB + "diverged") == "true",
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
