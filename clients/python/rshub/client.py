"""The client of one hub."""

from __future__ import annotations

import logging
import time
import urllib.parse
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Tuple, TypeVar, Union

from . import audit as _audit
from . import baseline as _baseline
from . import follow as _follow
from . import publish as _publish
from .errors import Error, Unavailable
from .wire import Wire, pause

T = TypeVar("T")
log = logging.getLogger("rshub")


class Client:
    """Speaks to one hub. It keeps no connection and no state, so several threads may use it.

    hub is a URL such as https://hub.example.org. token is sent as ``Authorization: Bearer``. patience is how many
    seconds a publish or an audit is tried again while the hub cannot be reached or is not ready; 0: it is tried
    once. Following is tried again for ever. sleep is called to wait between tries.
    """

    def __init__(
        self,
        hub: str = "http://127.0.0.1:8080",
        *,
        token: Optional[str] = None,
        patience: float = 600.0,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        url = urllib.parse.urlsplit(hub)
        if url.scheme not in ("http", "https") or not url.hostname:
            raise ValueError("a hub's URL must be like https://hub.example.org")
        if url.username is not None or url.query or url.fragment:
            raise ValueError("a hub's URL has no user, no query and no fragment")
        if token is not None and not (token.isascii() and token.isprintable() and token and " " not in token):
            raise ValueError("a token must be one word of ASCII")
        self.hub = hub.rstrip("/")
        self.patience = patience
        self.sleep = sleep
        self._wire = Wire(self.hub, token)

    def topic(self, set_name: str) -> str:
        """The URL of a set: where it is followed, and where changes are published."""
        return self.set_url(set_name) + "/changes"

    def set_url(self, set_name: str) -> str:
        if not set_name or "/" in set_name or urllib.parse.quote(set_name) != set_name:
            raise ValueError(f"{set_name!r} is no name of a set")
        return f"{self.hub}/sets/{set_name}"

    # What a destination does.

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
        """Yields the changes of a set as they come, in order, batch by batch. It blocks while there are none.

        since says where to begin: after a cursor, at a datetime, at the oldest change that is kept ("start"), or
        behind the newest ("now"). prefix (of the loc), change and type (several separated by commas) choose among the changes;
        so does collection, the URI that a link rel=collection leads to. Deletions pass whatever the collection.
        The hub holds each request for up to wait seconds, at most 300, while there is no change.

        The first batch may have no changes; its cursor says where following begins. Keep the cursor of a batch
        after its changes were processed, and give it as since at the next start. Then each change comes at least
        once, also after outages and crashes: follow asks again until the hub is back, for as long as that takes.

        With once, it ends when there are no more changes. With stream, the hub sends the changes as events on one
        connection (Server-Sent Events), instead of answering a request for each batch: that spares the requests, and
        with TLS a handshake each. Some proxies hold events back; long polls pass everywhere. Raises Gone, Refused, or, at the beginning, NotAHub.
        See Batch.diverged for a hub that was restored from a backup.
        """
        choose = {"prefix": prefix, "change": change, "type": type, "collection": collection}
        return _follow.follow(self, set_name, since, choose, limit, wait, once, stream)

    def baseline(self, set_name: str, *, prefix: str = "", collection: str = "", after: str = "", limit: int = 5000) -> Iterator[_baseline.BaselinePage]:
        """Yields all resources of a set as they were at one cursor, page by page in the order of loc. The last
        page has no resources, and is marked as end: follow from its cursor, and nothing is missed in between.

        It goes on after outages. When it cannot go on where it was, a page is marked as restart: forget which
        resources were named before that page. after is the cursor of an earlier page, to go on behind it in
        another process. With collection, a URI, only resources with a link rel=collection to it are named; then pages
        may be empty before the end, too.
        """
        return _baseline.baseline(self, set_name, prefix, collection, after, limit)

    def look(self, set_name: str, *, since: str = "", prefix: str = "") -> _audit.Look:
        """Returns how many resources the hub knows of a set, and their digests, at the cursor since or a later one."""
        return _audit.look(self, set_name, since, prefix)

    def audit(
        self,
        set_name: str,
        own: Union[Iterable[Dict[str, Any]], Callable[[], Iterable[Dict[str, Any]]]],
        *,
        prefix: str = "",
        settle: float = 5.0,
        name: str = "",
    ) -> List[_audit.Difference]:
        """Compares what the caller has with what the hub knows of a set, by content, and returns each resource that
        differs. An empty list means that both have the same.

        own has a dict with loc, and hash or lastmod and length, of each resource. It is an iterable, or a function
        that returns one: that is asked again for the second look, settle seconds later, at what differs. What
        changes meanwhile is not reported. All of own is held in memory.

        With a name, the hub is told if the digests are equal, and shows its operators when this destination last was.

        For a copy that follows the log, use Replica, which compares by position and is exact.
        """
        return _audit.by_content(self, set_name, own, prefix, settle, name)

    # What a source does.

    def publish(self, set_name: str, changes: Iterable[Dict[str, Any]], *, key: Optional[str] = None) -> _publish.Receipt:
        """Publishes changes, all of them or none, in their order. When it returns, the hub has them durably and once.

        Each change has at least loc and change. A publish has at most 50,000 changes; publish_all takes more.
        While the hub cannot be reached or is not ready, the changes are sent again with the same Idempotency-Key,
        for as long as the client is patient, and as the hub's Retry-After asks. Give a key of your own (one word)
        to publish the same changes again after a crash without doubling them; the hub remembers it for a day.

        Raises Refused with the hub's text if it does not want them, Unavailable when patience is over. If doubt is
        set on the error, the hub may have them all the same: publish them again with the same key.
        """
        return _publish.publish(self, set_name, list(changes), key)

    def publish_all(
        self, set_name: str, changes: Iterable[Dict[str, Any]], *, key: Optional[str] = None, size: int = 1000
    ) -> Iterator[_publish.Receipt]:
        """Publishes any number of changes, size at a time, and yields a receipt for each such batch. What the
        receipts name is published; an error ends it there. With a key, the same changes may be published again after a
        crash, with the same key and size: batches that the hub remembers are not appended again, for a day. If the hub
        has forgotten a batch, it appends that batch and all later ones again, in order.

        The key of each batch is made of the key, the batch's number, and the cursor of the batch before.

        Nothing is sent until the receipts are asked for.
        """
        return _publish.publish_all(self, set_name, changes, key, size)

    # How requests are sent.

    def request(self, url: str, *, body: Any = None, headers: Optional[Dict[str, str]] = None, wait: float = 0) -> Any:
        """Sends one request, once, and returns the JSON of the answer. With a body it is a POST. wait is how many
        seconds the hub was asked to hold the request."""
        return self._wire.request(url, body, headers or {}, wait)

    def events(self, url: str, *, headers: Optional[Dict[str, str]] = None) -> Iterator[Tuple[str, Any]]:
        """Asks for an event stream, once, and yields the type (empty if it has none) and the JSON of each event.

        headers replace those that are sent without it: an Accept may ask for CloudEvents."""
        return self._wire.events(url, headers or {})

    def patiently(self, try_: Callable[[], T]) -> T:
        """Calls try_ until it returns, raises an error that time does not mend, or patience is over."""
        deadline = None
        tries = 0
        while True:
            try:
                return try_()
            except Unavailable as e:
                if e.lasting:
                    raise
                now = time.monotonic()
                deadline = deadline or now + self.patience
                left = deadline - now
                if left <= 0 or e.after > left:
                    raise
                self.pause(e, min(pause(tries, e.after), left))
            tries += 1

    def pause(self, e: Error, seconds: float) -> None:
        """Waits before another try, and logs why."""
        log.warning("%s; next try in %.1f s", e, seconds)
        self.sleep(seconds)
