"""Following a set by long polls or an event stream."""

from __future__ import annotations

import re
import time
import urllib.parse
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Optional

from .errors import GoneError, NotHubError, RefusedError, UnavailableError
from .wire import follower_backoff, read_entries, read_members

if TYPE_CHECKING:
    from .client import Client


@dataclass
class Batch:
    """Consecutive changes of a set. There are none at the start, or if the filter matches none."""

    changes: List[Dict[str, Any]]
    #: The cursor before the changes, at the end of the previous batch.
    after: str
    #: The cursor after the changes. Store it once they are processed.
    cursor: str
    #: True if the hub has lost its newest changes, for example when a backup was restored, and continues at ``after``.
    #: You may have applied changes that the hub no longer knows: read a baseline to be sure. Positions may repeat.
    diverged: bool = False
    #: The name of the set.
    set: str = ""


def position(cursor: str) -> int:
    """Returns the position of a cursor, by which cursors can be compared."""
    try:
        return int(cursor.partition("-")[0])
    except ValueError:
        raise NotHubError(f"invalid cursor {cursor!r}") from None


def check_since(since: str) -> None:
    """Raises a ValueError for a baseline."""
    if since == "baseline" or "~" in since:
        raise ValueError("follow does not read baselines; use Client.baseline, and follow from the cursor of its end")


def is_cursor(since: str) -> bool:
    """Reports whether since is a cursor. 2026-01 is a date."""
    return re.fullmatch(r"\d+-\d{3,}", since) is not None


def follow(
    client: Client, set_name: str, since: str, choose: Dict[str, str], limit: int, wait: float, once: bool, stream: bool
) -> Iterator[Batch]:
    """See Client.follow."""
    if stream and once:
        raise ValueError("an event stream does not end; follow it without once")
    check_since(since)
    at: Optional[str] = None  # cursor of the previous page
    first = since if is_cursor(since) else None
    tries = 0
    while True:
        held = wait if at is not None and not once else 0.0
        asked = time.monotonic()
        try:
            if stream:
                for batch in events(client, set_name, at or since, choose, at or first):
                    changed = at is None or at != batch.cursor or batch.diverged or bool(batch.changes)
                    at, tries = batch.cursor, 0
                    if changed:
                        yield batch
                raise UnavailableError("the event stream ended")
            batch = page(client, set_name, at or since, choose, limit, held, at or first)
        except RefusedError:
            raise
        except (UnavailableError, NotHubError) as e:
            # After one valid response the URL is right, so an invalid one is an outage.
            if at is None and (isinstance(e, NotHubError) or e.permanent):
                raise
            client.backoff(e, follower_backoff(tries, e))
            tries += 1
            continue
        tries = 0
        changed = at is None or at != batch.cursor or batch.diverged or bool(batch.changes)
        at = batch.cursor
        if changed:
            yield batch
        if once and not batch.changes and batch.cursor == batch.after:
            return
        if held and not changed and time.monotonic() - asked < min(1.0, held):
            client.sleep(min(1.0, held))  # a hub that is stopping answers immediately with an empty page


def page(client: Client, set_name: str, since: str, choose: Dict[str, str], limit: int, held: float, at: Optional[str]) -> Batch:
    """Requests the changes after since once. The hub may hold the request for held seconds while there are none. at is
    since if that is a cursor."""
    query = {"since": since, "limit": str(limit), **{k: v for k, v in choose.items() if v}}
    if held:
        query["wait"] = f"{int(held * 1000)}ms"
    url = f"{client.topic(set_name)}?{urllib.parse.urlencode(query)}"
    return read_batch(client.request(url, wait=held), url, set_name, at)


def events(client: Client, set_name: str, since: str, choose: Dict[str, str], at: Optional[str]) -> Iterator[Batch]:
    """Yields the changes after since from one event stream until it ends. The first batch has none."""
    query = {"since": since, **{k: v for k, v in choose.items() if v}}
    url = f"{client.topic(set_name)}?{urllib.parse.urlencode(query)}"
    for kind, read in client.events(url):
        if kind == "gone":
            raise GoneError(410, read if isinstance(read, dict) else {})
        if kind == "":
            batch = read_batch(read, url, set_name, at)
            at = batch.cursor
            yield batch


def read_batch(answer: Any, url: str, set_name: str, at: Optional[str]) -> Batch:
    """Returns the batch in an object of the hub. It must be of this set and, unless at is None, follow the cursor at."""
    read = read_members(answer, url, ("set", str), ("after", str), ("cursor", str), ("changes", list))
    batch = Batch(read_entries(read["changes"], url), read["after"], read["cursor"], read.get("diverged") is True, read["set"])
    if read["set"] != set_name:
        raise NotHubError(f"{url}: got changes of the set {read['set']}, want {set_name}")
    last = position(batch.after)
    for c in batch.changes:
        if not last < c["position"] <= position(batch.cursor):
            raise NotHubError(f"{url}: got position {c['position']}, want one after {last} and up to {batch.cursor}")
        last = c["position"]
    # The response may come from something other than the hub, such as a cache that ignores queries.
    if at is not None and not batch.diverged and batch.after != at and (position(at) or position(batch.after)):
        raise NotHubError(f"{url}: got changes after {batch.after}, want those after {at}")
    return batch
