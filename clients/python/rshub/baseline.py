"""Baselines: all resources of a set as they were at one cursor."""

from __future__ import annotations

import urllib.parse
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Optional

from .errors import Gone, NotAHub, Unavailable
from .wire import pause, pause_of_follower, read_entries, read_members

if TYPE_CHECKING:
    from .client import Client


@dataclass
class BaselinePage:
    """A part of a baseline."""

    #: In the order of loc, each with its newest change.
    resources: List[Dict[str, Any]]
    #: Where to go on: give it as ``after`` to baseline, or at the end as ``since`` to follow.
    cursor: str
    #: The baseline begins anew with this page. Forget which resources were named before.
    restart: bool
    #: You have all of it. What was not named does not exist any more, but only if ``complete`` is true.
    end: bool
    #: The hub knows all resources of the set.
    complete: bool
    #: How many resources the whole baseline names. None: of a collection, the hub does not know it.
    count: Optional[int]
    #: At the end, unless it is of a collection: the digest of all resources, by position.
    position: str = ""
    #: The same by content.
    content: str = ""


def baseline(client: Client, set_name: str, prefix: str, collection: str, after: str, limit: int) -> Iterator[BaselinePage]:
    """See Client.baseline."""
    topic = client.topic(set_name)
    place, last, begun, tries, restarts = after, "", False, 0, 0
    lost = False  # the baseline before is lost, so the next page is a restart
    named = 0  # resources of this baseline
    whole = not after  # they are all since its beginning
    while True:
        query = {"since": place or "baseline", "limit": str(limit)}
        query.update((name, value) for name, value in (("prefix", prefix), ("collection", collection)) if value)
        url = f"{topic}?{urllib.parse.urlencode(query)}"
        try:
            page = _page(client, set_name, url, place, last, prefix)
        except Gone:
            if not place:
                raise
            place, last, lost = "", "", True
            restarts += 1
            if restarts > 1:
                client.sleep(pause(restarts - 2))  # the hub drops what is read too soon
            continue
        except (Unavailable, NotAHub) as e:
            if not begun and (isinstance(e, NotAHub) or e.lasting):
                raise
            client.pause(e, pause_of_follower(tries, e))
            tries += 1
            continue
        begun, tries = True, 0
        page.restart = page.restart or lost
        restarts = restarts if page.restart else 0
        place, lost = page.cursor, False
        last = page.resources[-1]["loc"] if page.resources else "" if page.restart else last
        named = len(page.resources) + (0 if page.restart else named)
        whole = whole or page.restart
        if page.end and whole and not collection and named != page.count:
            raise NotAHub(f"{url} has named {named} resources of a baseline of {page.count}")
        yield page
        if page.end:
            return


def _page(client: Client, set_name: str, url: str, place: str, last: str, prefix: str) -> BaselinePage:
    page = read_members(client.request(url), url, ("set", str), ("cursor", str), ("baseline", bool))
    end = not page["baseline"]
    read = BaselinePage(
        read_entries(page.get("resources", []), url), page["cursor"], page.get("restart") is True, end, page.get("complete") is True,
        page.get("count"), str(page.get("position", "")), str(page.get("content", "")),
    )  # fmt: skip
    if page["set"] != set_name:
        raise NotAHub(f"{url} answers with resources of the set {page['set']}")
    if read.restart:
        last = ""
    elif place and page.get("after", place) != place:  # as of a cache that does not look at queries
        raise NotAHub(f"{url} answers with what follows {page['after']}, and not {place}")
    for r in read.resources:
        if not r["loc"].startswith(prefix) or r["loc"] <= last:
            raise NotAHub(f"{url} answers with {r['loc']} behind {last}")
        last = r["loc"]
    return read
