"""The client of one hub."""

from __future__ import annotations

import logging
import time
import urllib.parse
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Tuple, TypeVar, Union

from . import audit as _audit
from . import baseline as _baseline
from . import follow as _follow
from . import follow_many as _follow_many
from . import publish as _publish
from . import websocket as _websocket
from .cursorfile import CursorsFile
from .errors import Error, UnavailableError
from .wire import Wire, backoff

T = TypeVar("T")
log = logging.getLogger("rshub")


class Client:
    """A client of one hub. It has no connection and no state, and is safe for use by several threads.

    hub is a URL such as https://hub.example.org. token is sent as ``Authorization: Bearer``. retry_timeout is the number
    of seconds for which a publish or an audit is retried while the hub is unreachable or not ready; 0 disables retries.
    Following is retried forever. sleep is called to wait between tries.
    """

    def __init__(
        self,
        hub: str = "http://127.0.0.1:8080",
        *,
        token: Optional[str] = None,
        retry_timeout: float = 600.0,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        url = urllib.parse.urlsplit(hub)
        if url.scheme not in ("http", "https") or not url.hostname:
            raise ValueError("invalid URL of a hub: want one such as https://hub.example.org")
        if url.username is not None or url.query or url.fragment:
            raise ValueError("invalid URL of a hub: want no user name, query or fragment")
        if token is not None and not (token.isascii() and token.isprintable() and token and " " not in token):
            raise ValueError("invalid token: want one word of ASCII")
        self.hub = hub.rstrip("/")
        self.retry_timeout = retry_timeout
        self.sleep = sleep
        self._wire = Wire(self.hub, token)

    def topic(self, set_name: str) -> str:
        """Returns the URL at which a set is followed and published to."""
        return self.set_url(set_name) + "/changes"

    def set_url(self, set_name: str) -> str:
        if not set_name or "/" in set_name or urllib.parse.quote(set_name) != set_name:
            raise ValueError(f"invalid name of a set: {set_name!r}")
        return f"{self.hub}/sets/{set_name}"

    # For destinations.

    def follow(
        self,
        set_name: str,
        since: str = "now",
        *,
        prefix: str = "",
        change: str = "",
        type: str = "",
        collection: str = "",
        limit: int = 1000,
        wait: float = 30.0,
        once: bool = False,
        stream: bool = False,
    ) -> Iterator[_follow.Batch]:
        """Yields the changes of a set in order, batch by batch. It blocks while there are none.

        since is a cursor, a datetime, "start" (the oldest change that the hub has) or "now". prefix (of the loc),
        change and type (several are separated by commas) and collection (the URI of a link rel=collection) select
        changes; deletions match every collection. The hub holds each request for up to wait seconds, at most 300, while
        there is no change.

        The first batch may have no changes; its cursor is where following starts. Store the cursor of a batch after its
        changes were processed, and pass it as since at the next start. Then each change arrives at least once, even
        after outages and crashes: follow retries until the hub is back.

        With once, it ends when there are no more changes. With stream, the hub sends the changes as events on one
        connection (Server-Sent Events), which saves a request per batch, but some proxies delay events. Raises
        GoneError, RefusedError, or, before the first batch, NotHubError. Batch.diverged marks a hub that was restored
        from a backup.
        """
        choose = {"prefix": prefix, "change": change, "type": type, "collection": collection}
        return _follow.follow(self, set_name, since, choose, limit, wait, once, stream)

    def follow_many(
        self,
        sets: _follow_many.Starts = (),
        since: str = "now",
        *,
        every: Optional[str] = None,
        prefix: str = "",
        change: str = "",
        type: str = "",
        collection: str = "",
        cursors: Optional[CursorsFile] = None,
    ) -> Iterator[Union[_follow.Batch, _follow_many.SetError]]:
        """Yields the changes of many sets from one WebSocket. It blocks while there are none.

        sets has names of sets, which start at since, or is a dict of set to since. A since can also be a dict with
        ``since`` and the filters of the set, which replace the filters of all sets: prefix, change, type and collection
        as in follow. With every ("now", "start" or a datetime), every set that the caller may follow is followed, too,
        including sets that are created later, from their start.

        The batches of a set (Batch.set) are consecutive and in order; batches of different sets have no order. The first
        batch of a set has no changes; its cursor is where following starts. A batch without changes may follow later, if
        filters left out all changes up to its cursor. After an outage, every set continues at the cursor of its last
        batch.

        An error of one set, such as a GoneError, is yielded as a SetError, and the others continue. Call follow_many
        again to follow the set again. With every, a set that was deleted is followed from its start once it is created
        again; the first batch is then diverged.

        With a CursorsFile, following starts at the stored cursors, whatever since says, and with every, all stored sets
        are followed. The cursor of a batch is stored after the next one was requested, within about a second. Then each
        change arrives at least once, even after crashes.

        The hub closes the connection if nothing is read for a while. If processing takes a minute, do it in another
        thread. Raises RefusedError, or, before the first message, NotHubError. With close, the iterator disconnects.
        """
        choose = {"prefix": prefix, "change": change, "type": type, "collection": collection}
        return _follow_many.follow_many(self, sets, since, every, choose, cursors)

    def baseline(self, set_name: str, *, prefix: str = "", collection: str = "", after: str = "", limit: int = 5000) -> Iterator[_baseline.BaselinePage]:
        """Yields all resources of a set at one cursor, page by page in the order of loc. The last page has no resources
        and end set: follow from its cursor, and nothing is missed in between.

        It continues after outages. If it cannot continue where it was, the next page has restart set: forget the
        resources of earlier pages. after is the cursor of an earlier page, to continue after it in another process.
        With collection, a URI, only resources with a link rel=collection to it are listed; pages may then be empty
        before the end, too.
        """
        return _baseline.baseline(self, set_name, prefix, collection, after, limit)

    def summary(self, set_name: str, *, since: str = "", prefix: str = "") -> _audit.Summary:
        """Returns the number of resources in a set and their digests, at the cursor since or a later one."""
        return _audit.summary(self, set_name, since, prefix)

    def audit(
        self,
        set_name: str,
        own: Union[Iterable[Dict[str, Any]], Callable[[], Iterable[Dict[str, Any]]]],
        *,
        prefix: str = "",
        settle: float = 5.0,
        name: str = "",
    ) -> List[_audit.Difference]:
        """Compares the caller's resources with a set, by content, and returns the differences. An empty list means that
        both are equal.

        own has a dict with loc, and hash or lastmod and length, for each resource. It is an iterable, or a function that
        returns one, which is called again settle seconds later to confirm the differences. Resources that change in
        the meantime are not reported. All of own is in memory.

        With a name, the hub is told if the digests are equal, and shows operators when this destination last was in sync.

        For a copy that follows the log, use Replica, which compares by position and is exact.
        """
        return _audit.audit_content(self, set_name, own, prefix, settle, name)

    # For sources.

    def publish(self, set_name: str, changes: Iterable[Dict[str, Any]], *, key: Optional[str] = None) -> _publish.Receipt:
        """Publishes changes, all or none, in order. When it returns, the hub has stored them durably and once.

        Each change has at least loc and change. A publish has at most 50,000 changes; publish_all accepts more.
        While the hub is unreachable or not ready, the request is retried with the same Idempotency-Key until
        retry_timeout has passed, and not before the hub's Retry-After. With a key of your own (one word), the same
        changes can be published again after a crash without being added twice; the hub remembers it for a day.

        Raises RefusedError with the hub's explanation, or UnavailableError after retry_timeout. If uncertain is set on
        the error, the hub may have the changes anyway: publish them again with the same key.
        """
        return _publish.publish(self, set_name, list(changes), key)

    def publish_all(
        self, set_name: str, changes: Iterable[Dict[str, Any]], *, key: Optional[str] = None, size: int = 1000
    ) -> Iterator[_publish.Receipt]:
        """Publishes any number of changes, size at a time, and yields a receipt for each batch. Batches with a receipt
        are published; an error ends the iteration. With a key, the same changes can be published again after a crash,
        with the same key and size: for a day, the hub does not add a batch again. Once the hub has forgotten a batch, it
        adds that batch and all later ones again, in order.

        The Idempotency-Key of a batch is derived from key, the batch's number, and the cursor of the previous batch.

        Nothing is sent until the first receipt is requested.
        """
        return _publish.publish_all(self, set_name, changes, key, size)

    # Requests.

    def request(self, url: str, *, body: Any = None, headers: Optional[Dict[str, str]] = None, wait: float = 0) -> Any:
        """Sends one request, without retries, and returns the JSON of the response. With a body it is a POST. wait is the
        number of seconds for which the hub may hold the request."""
        return self._wire.request(url, body, headers or {}, wait)

    def events(self, url: str, *, headers: Optional[Dict[str, str]] = None) -> Iterator[Tuple[str, Any]]:
        """Opens an event stream, without retries, and yields the type (empty if it has none) and the JSON of each event.

        headers replace the default headers; an Accept can ask for CloudEvents."""
        return self._wire.events(url, headers or {})

    def open_websocket(self, url: str) -> _websocket.WebSocket:
        """Opens a WebSocket for messages in JSON, without retries."""
        return _websocket.connect(self._wire, url, "rs.json")

    def retry(self, try_: Callable[[], T]) -> T:
        """Calls try_ until it succeeds, raises a permanent error, or retry_timeout has passed."""
        deadline = None
        tries = 0
        while True:
            try:
                return try_()
            except UnavailableError as e:
                if e.permanent:
                    raise
                now = time.monotonic()
                deadline = deadline or now + self.retry_timeout
                left = deadline - now
                if left <= 0 or e.retry_after > left:
                    raise
                self.backoff(e, min(backoff(tries, e.retry_after), left))
            tries += 1

    def backoff(self, e: Error, seconds: float) -> None:
        """Logs e, and waits before the next try."""
        log.warning("%s; retrying in %.1f s", e, seconds)
        self.sleep(seconds)
