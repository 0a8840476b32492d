"""Baselines: all resources of a set at one cursor."""

from __future__ import annotations

import urllib.parse
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Optional

from .errors import GoneError, NotHubError, UnavailableError
from .wire import backoff, follower_backoff, read_entries, read_members

if TYPE_CHECKING:
    from .client import Client


@dataclass
class BaselinePage:
    """A page of a baseline."""

    #: The resources in the order of loc, each with its newest change.
    resources: List[Dict[str, Any]]
    #: Where to continue: ``after`` of baseline, or at the end ``since`` of follow.
    cursor: str
    #: True if the baseline starts over with this page. Forget the resources of earlier pages.
    restart: bool
    #: True if this is the last page. Resources that were not listed no longer exist, but only if ``complete`` is true.
    end: bool
    #: True if the hub knows all resources of the set.
    complete: bool
    #: Number of resources in the whole baseline. None for a collection.
    count: Optional[int]
    #: Digest of all resources by position, on the last page; empty for a collection.
    position: str = ""
    #: Digest of all resources by content, likewise.
    content: str = ""


def baseline(client: Client, set_name: str, prefix: str, collection: str, after: str, limit: int) -> Iterator[BaselinePage]:
    """See Client.baseline."""
    topic = client.topic(set_name)
    place, last, started, tries, restarts = after, "", False, 0, 0
    lost = False  # whether the previous baseline was lost, so that the next page is a restart
    listed = 0  # resources of this baseline so far
    from_start = not after  # whether listed counts from the start of the baseline
    while True:
        query = {"since": place or "baseline", "limit": str(limit)}
        query.update((name, value) for name, value in (("prefix", prefix), ("collection", collection)) if value)
        url = f"{topic}?{urllib.parse.urlencode(query)}"
        try:
            page = _page(client, set_name, url, place, last, prefix)
        except GoneError:
            if not place:
                raise
            place, last, lost = "", "", True
            restarts += 1
            if restarts > 1:
                client.sleep(backoff(restarts - 2))  # the hub drops its states faster than they are read
            continue
        except (UnavailableError, NotHubError) as e:
            if not started and (isinstance(e, NotHubError) or e.permanent):
                raise
            client.backoff(e, follower_backoff(tries, e))
            tries += 1
            continue
        started, tries = True, 0
        page.restart = page.restart or lost
        restarts = restarts if page.restart else 0
        place, lost = page.cursor, False
        last = page.resources[-1]["loc"] if page.resources else "" if page.restart else last
        listed = len(page.resources) + (0 if page.restart else listed)
        from_start = from_start or page.restart
        if page.end and from_start and not collection and listed != page.count:
            raise NotHubError(f"{url}: got {listed} resources, want the {page.count} of the baseline")
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
        raise NotHubError(f"{url}: got resources of the set {page['set']}, want {set_name}")
    if read.restart:
        last = ""
    elif place and page.get("after", place) != place:  # for example a cache that ignores queries
        raise NotHubError(f"{url}: got resources after {page['after']}, want those after {place}")
    for r in read.resources:
        if not r["loc"].startswith(prefix) or r["loc"] <= last:
            raise NotHubError(f"{url}: got {r['loc']}, want a loc after {last!r} with the prefix {prefix!r}")
        last = r["loc"]
    return read
