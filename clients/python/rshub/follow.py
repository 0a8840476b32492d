"""Following: the changes of a set as they come, by long poll or by an event stream."""

from __future__ import annotations

import re
import time
import urllib.parse
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Optional

from .errors import Gone, NotAHub, Refused, Unavailable
from .wire import pause_of_follower, read_entries, read_members

if TYPE_CHECKING:
    from .client import Client


@dataclass
class Batch:
    """Some consecutive changes of a set. There are none if a filter left all of them out, or at the beginning."""

    changes: List[Dict[str, Any]]
    #: The cursor before the changes: that of the batch before.
    after: str
    #: The cursor behind them. Keep it when the changes are processed.
    cursor: str
    #: The hub has lost its newest changes, as after a restored backup, and the log goes on at ``after``. What you have
    #: may include changes that the hub does not know: read a baseline to be sure. Positions may come again.
    diverged: bool = False


def position(cursor: str) -> int:
    """The position of a cursor, for those who compare two."""
    try:
        return int(cursor.partition("-")[0])
    except ValueError:
        raise NotAHub(f"{cursor!r} is no cursor") from None


def follow(
    client: Client, set_name: str, since: str, choose: Dict[str, str], limit: int, wait: float, once: bool, stream: bool
) -> Iterator[Batch]:
    """See Client.follow."""
    if stream and once:
        raise ValueError("an event stream does not end: follow it without once")
    if since == "baseline" or "~" in since:
        raise ValueError("a baseline is read with Client.baseline; follow from the cursor of its end")
    at: Optional[str] = None  # the cursor of the page before
    first = since if re.fullmatch(r"\d+-\d{3,}", since) else None  # 2026-01 is a month
    tries = 0
    while True:
        held = wait if at is not None and not once else 0.0
        asked = time.monotonic()
        try:
            if stream:
                for batch in events(client, set_name, at or since, choose, at or first):
                    news = at is None or at != batch.cursor or batch.diverged or bool(batch.changes)
                    at, tries = batch.cursor, 0
                    if news:
                        yield batch
                raise Unavailable("the event stream has ended")
            batch = page(client, set_name, at or since, choose, limit, held, at or first)
        except Refused:
            raise
        except (Unavailable, NotAHub) as e:
            # After one good answer the URL is right, and a strange answer is an outage.
            if at is None and (isinstance(e, NotAHub) or e.lasting):
                raise
            client.pause(e, pause_of_follower(tries, e))
            tries += 1
            continue
        tries = 0
        news = at is None or at != batch.cursor or batch.diverged or bool(batch.changes)
        at = batch.cursor
        if news:
            yield batch
        if once and not batch.changes and batch.cursor == batch.after:
            return
        if held and not news and time.monotonic() - asked < min(1.0, held):
            client.sleep(min(1.0, held))  # a hub that is stopping answers at once with an empty page


def page(client: Client, set_name: str, since: str, choose: Dict[str, str], limit: int, held: float, at: Optional[str]) -> Batch:
    """Asks once for the changes after a place. The hub holds the request for so many seconds while there are none. at is the
    place as a cursor, if it is one."""
    query = {"since": since, "limit": str(limit), **{k: v for k, v in choose.items() if v}}
    if held:
        query["wait"] = f"{int(held * 1000)}ms"
    url = f"{client.topic(set_name)}?{urllib.parse.urlencode(query)}"
    return _batch(client.request(url, wait=held), url, set_name, at)


def events(client: Client, set_name: str, since: str, choose: Dict[str, str], at: Optional[str]) -> Iterator[Batch]:
    """Yields the changes after a place as one event stream brings them, until it ends. The first batch has none."""
    query = {"since": since, **{k: v for k, v in choose.items() if v}}
    url = f"{client.topic(set_name)}?{urllib.parse.urlencode(query)}"
    for kind, read in client.events(url):
        if kind == "gone":
            raise Gone(410, read if isinstance(read, dict) else {})
        if kind == "":
            batch = _batch(read, url, set_name, at)
            at = batch.cursor
            yield batch


def _batch(answer: Any, url: str, set_name: str, at: Optional[str]) -> Batch:
    read = read_members(answer, url, ("set", str), ("after", str), ("cursor", str), ("changes", list))
    batch = Batch(read_entries(read["changes"], url), read["after"], read["cursor"], read.get("diverged") is True)
    if read["set"] != set_name:
        raise NotAHub(f"{url} answers with changes of the set {read['set']}")
    last = position(batch.after)
    for c in batch.changes:
        if not last < c["position"] <= position(batch.cursor):
            raise NotAHub(f"{url} answers with position {c['position']} behind {last}, up to {batch.cursor}")
        last = c["position"]
    # The answer may come from something else than the hub, such as a cache that does not look at queries.
    if at is not None and not batch.diverged and batch.after != at and (position(at) or position(batch.after)):
        raise NotAHub(f"{url} answers with what follows {batch.after}, and not {at}")
    return batch
