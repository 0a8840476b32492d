"""Following many sets on one WebSocket."""

from __future__ import annotations

import contextlib
import json
import logging
import re
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Deque, Dict, Generator, Iterable, Iterator, Mapping, Optional, Set, Union

from .cursorfile import CursorsFile
from .errors import Error, NotHubError, RefusedError, UnavailableError
from .follow import Batch, check_since, is_cursor, position, read_batch
from .websocket import SILENCE, ClosedError, WebSocket
from .wire import follower_backoff, is_a, not_hub_response, problem_error, read_json, read_members

if TYPE_CHECKING:
    from .client import Client

log = logging.getLogger("rshub")

EVERY = "*"  # the name that stands for every set
FILTERS = ("prefix", "change", "type", "collection")
MAX_COMMAND = 16 << 10  # bytes of a message that a hub accepts
WINDOW, WINDOW_BYTES = 256, 64 << 10  # commands without an answer: a hub that is reading them must not wait for us
STORE_INTERVAL = 1.0  # minimum seconds between two writes of cursors
UNAUTHORIZED = "https://github.com/rshub/rshub/terms/problems/unauthorized"
NO_RIGHT = 4401  # close code: the token has expired or was withdrawn

#: Names of sets, or their starts: a since, or a dict with since and the filters of the set.
Starts = Union[Iterable[str], Mapping[str, Union[str, Mapping[str, str]]]]


@dataclass
class SetError:
    """The hub no longer follows a set, or never did. Other sets are not affected."""

    set: str
    #: GoneError: read a baseline, and follow the set from its end. Other RefusedErrors: status 404 if the set does not
    #: exist, was deleted, or may not be followed.
    error: RefusedError
    #: With a GoneError, the oldest cursor from which the set could be followed; otherwise empty.
    cursor: str = ""


@dataclass
class _Start:
    """Where a set starts, and the filters."""

    since: str
    filters: Dict[str, str]
    at: Optional[str] = None  # cursor of the last batch

    def command(self, name: str) -> str:
        return json.dumps({"follow": name, "since": self.at or self.since, **self.filters}, ensure_ascii=False)


def follow_many(
    client: Client, sets: Starts, since: str, every: Optional[str], filters: Dict[str, str], cursors: Optional[CursorsFile]
) -> Iterator[Union[Batch, SetError]]:
    """See Client.follow_many."""
    stored = cursors.read() if cursors else {}
    starts: Dict[str, _Start] = {}
    given = sets.items() if isinstance(sets, Mapping) else [(name, since) for name in ([sets] if isinstance(sets, str) else sets)]
    for name, start in given:
        own = {"since": since, **start} if isinstance(start, Mapping) else {"since": start, **filters}
        if not all(key in ("since", *FILTERS) and isinstance(value, str) for key, value in own.items()):
            raise ValueError(f"follow set {name}: got {own}, want strings since, {', '.join(FILTERS)}")
        starts[name] = _Start(own.pop("since"), {k: v for k, v in own.items() if v})
    chosen = {k: v for k, v in filters.items() if v}
    for name, cursor in stored.items():
        if name in starts:
            starts[name].since = cursor
        elif every and name != EVERY:
            starts[name] = _Start(cursor, chosen)
    for name, each in starts.items():
        client.topic(name)  # checks the name
        check_since(each.since)
        if len(each.command(name).encode()) > MAX_COMMAND:
            raise ValueError(f"follow set {name}: filters are larger than {MAX_COMMAND} bytes")
    if every:
        check_since(every)
        if not re.fullmatch(r"now|start|\d{4}(-\d\d(-\d\d.*)?)?", every):
            raise ValueError(f'invalid every {every!r}: want "now", "start" or a datetime')
    if not starts and not every:
        raise ValueError("no sets to follow: want sets or every")
    return _Follower(client, starts, _Start(stored.get(EVERY, every), chosen) if every else None, _Store(cursors, stored)).run()


class _Store:
    """Writes the cursors of processed batches to a CursorsFile, at most once per STORE_INTERVAL."""

    def __init__(self, file: Optional[CursorsFile], cursors: Dict[str, str]) -> None:
        self._file = file
        self._cursors = cursors
        self._changed = False
        self._written = 0.0  # time of the last write

    def set(self, name: str, cursor: Optional[str]) -> None:
        """Sets or, with None, removes a cursor."""
        if self._cursors.get(name) == cursor:
            return
        if cursor is None:
            del self._cursors[name]
        else:
            self._cursors[name] = cursor
        self._changed = self._file is not None

    def wait(self) -> float:
        """Returns the seconds until a write is due."""
        return max(0.0, self._written + STORE_INTERVAL - time.monotonic()) if self._changed else SILENCE

    def write(self) -> None:
        if self._changed and self._file:
            self._file.write(self._cursors)
            self._changed, self._written = False, time.monotonic()


@dataclass
class _Connection:
    """The state of one connection."""

    socket: WebSocket
    queue: Deque[str] = field(default_factory=deque)  # names of sets whose follow or unfollow must be sent
    every_sent: bool = False  # whether the command to follow every set was sent
    unanswered: Dict[str, int] = field(default_factory=dict)  # sizes of sent commands by set
    started: Set[str] = field(default_factory=set)  # sets with a starting cursor
    ignored: Set[str] = field(default_factory=set)  # sets whose messages are ignored until the hub has unfollowed them
    failed: Set[str] = field(default_factory=set)  # sets to follow again at retry_at
    retry_at: float = 0.0
    retries: int = 0


class _Follower:
    """Follows sets over any number of connections. Its state survives connections, except conn."""

    def __init__(self, client: Client, sets: Dict[str, _Start], every: Optional[_Start], store: _Store) -> None:
        self.client = client
        self.url = client.hub + "/changes"
        self.sets = sets  # the followed sets
        self.every = every  # None if only named sets are followed
        self.refused: Set[str] = set()  # sets with a final error, which every must not start
        self.store = store
        self.conn: _Connection

    def run(self) -> Iterator[Union[Batch, SetError]]:
        tries, heard = 0, False
        try:
            while True:
                try:
                    with contextlib.closing(self._messages()) as messages:
                        for got in messages:
                            tries, heard = 0, True
                            if got is None:
                                continue
                            yield got
                            if isinstance(got, Batch):
                                self.store.set(got.set, got.cursor)
                            elif self.every and got.error.status == 404:
                                self.store.set(got.set, None)
                except (UnavailableError, NotHubError) as e:
                    # After one valid message the URL is right, so an invalid one is an outage.
                    if not heard and (isinstance(e, NotHubError) or e.permanent):
                        raise
                    self.store.write()
                    self.client.backoff(e, follower_backoff(tries, e))
                    tries += 1
        finally:
            self.store.write()

    def _messages(self) -> Generator[Union[Batch, SetError, None], None, None]:
        """Yields the news of one connection, and None for a message without news."""
        with contextlib.closing(self.client.open_websocket(self.url)) as socket:
            conn = self.conn = _Connection(socket)
            conn.queue.extend(self.sets)
            if self.every:
                conn.queue.append(EVERY)
                conn.queue.extend(self.refused)
                conn.ignored.update(self.refused)
            while True:
                if conn.failed and time.monotonic() >= conn.retry_at:
                    conn.queue.extend(conn.failed)
                    conn.failed.clear()
                self._send()
                if self.store.wait() == 0:
                    self.store.write()
                timeout = self.store.wait()
                if conn.failed:
                    timeout = min(timeout, max(0.0, conn.retry_at - time.monotonic()))
                try:
                    text = socket.receive(timeout)
                except ClosedError as e:
                    if e.code == NO_RIGHT:
                        raise RefusedError(401, {"type": UNAUTHORIZED, "title": "Unauthorized", "detail": e.reason}) from None
                    raise
                if text is not None:
                    try:
                        message = read_json(text)
                    except ValueError as e:
                        raise NotHubError(f"{self.url}: got a message that is not valid JSON") from e
                    yield from self._read(message)

    def _send(self) -> None:
        """Sends queued commands, as far as the window permits."""
        conn = self.conn
        while conn.queue:
            name = conn.queue[0]
            if name == EVERY and self.every:
                text = self.every.command(name)
            elif name in conn.ignored:
                text = json.dumps({"unfollow": name})
            else:
                text = self.sets[name].command(name)
            size = len(text.encode())
            if conn.unanswered and (len(conn.unanswered) >= WINDOW or sum(conn.unanswered.values()) + size > WINDOW_BYTES):
                return
            conn.queue.popleft()
            conn.unanswered[name] = size
            conn.every_sent = conn.every_sent or name == EVERY
            conn.socket.send(text)

    def _read(self, message: Any) -> Iterator[Union[Batch, SetError, None]]:
        conn = self.conn
        read = read_members(message, self.url)
        if "error" in read:
            yield self._read_error(read)
        elif "unfollowed" in read:
            name = self._answered(read["unfollowed"], conn.ignored)
            conn.ignored.remove(name)
            yield None
        elif "followed" in read:
            self._answered(read["followed"], {EVERY})
            if self.every:
                self.every.since = "start"  # of sets that are created later
                self.store.set(EVERY, "start")
            yield None
        elif "cursors" in read:
            for name, cursor in read_members(read["cursors"], self.url).items():
                if name in conn.ignored:
                    continue
                if name not in conn.started or not is_a(cursor, str):
                    raise not_hub_response(self.url)
                yield self._advance(Batch([], str(self.sets[name].at), cursor, set=name))
            yield None
        else:
            yield self._read_batch(read)

    def _answered(self, name: Any, expected: Set[str]) -> str:
        """Notes the answer to a command that is not followed by a batch or an error."""
        if not is_a(name, str) or name not in expected or self.conn.unanswered.pop(name, None) is None:
            raise not_hub_response(self.url)
        return str(name)

    def _read_batch(self, read: Dict[str, Any]) -> Optional[Batch]:
        conn = self.conn
        name = read_members(read, self.url, ("set", str))["set"]
        if name in conn.ignored:
            return None
        if name == EVERY:
            raise not_hub_response(self.url)
        start = self._find_start(name)
        batch = read_batch(read, self.url, name, start.at or (start.since if is_cursor(start.since) else None))
        if name not in conn.started:
            if batch.changes:
                raise NotHubError(f"{self.url}: got changes of the set {name} before its starting cursor")
            conn.unanswered.pop(name, None)
            conn.started.add(name)
            conn.retries = 0
            self.sets[name] = start
            self.refused.discard(name)
        return self._advance(batch)

    def _advance(self, batch: Batch) -> Optional[Batch]:
        """Moves the cursor of a set. Returns the batch, or None if it has no news."""
        start = self.sets[batch.set]
        if position(batch.cursor) < position(batch.after):
            raise NotHubError(f"{self.url}: got the cursor {batch.cursor} of the set {batch.set} after {batch.after}")
        changed = batch.cursor != start.at or batch.diverged or bool(batch.changes)
        start.at = batch.cursor
        return batch if changed else None

    def _read_error(self, read: Dict[str, Any]) -> Optional[SetError]:
        conn, name = self.conn, read.get("set", "")
        problem = read_members(read["error"], self.url, ("status", int))
        if not is_a(name, str) or not 400 <= problem["status"] < 600:
            raise not_hub_response(self.url)
        if name in conn.ignored:
            return None
        start = self._find_start(name) if name else None
        error = problem_error(self.client.hub, problem["status"], problem)
        if start and isinstance(error, UnavailableError):
            self._retry_later(name, start, error)
            return None
        if not isinstance(error, RefusedError) or name in ("", EVERY):
            raise error
        self.sets.pop(name, None)
        conn.started.discard(name)
        conn.unanswered.pop(name, None)
        if error.status == 404:
            self.refused.discard(name)  # with every, the hub follows it once it exists
        else:
            self.refused.add(name)
        cursor = problem.get("cursor")
        return SetError(name, error, cursor if isinstance(cursor, str) else "")

    def _find_start(self, name: str) -> _Start:
        """Returns the start of a set about which the hub sent a message, or of every set."""
        conn = self.conn
        start = self.every if name == EVERY else self.sets.get(name)
        if start and (name in conn.started or name in conn.unanswered):
            return start
        if start or not self.every or not conn.every_sent:
            raise NotHubError(f"{self.url}: got a message about the set {name}, which is not followed")
        return _Start(self.every.since, self.every.filters)

    def _retry_later(self, name: str, start: _Start, error: Error) -> None:
        """Follows a set again later, after an error that may pass."""
        conn = self.conn
        if name != EVERY:
            self.sets[name] = start
        conn.started.discard(name)
        conn.unanswered.pop(name, None)
        if not conn.failed:
            wait = follower_backoff(conn.retries, error)
            conn.retries += 1
            conn.retry_at = time.monotonic() + wait
            log.warning("follow set %s: %s; retrying in %.1f s", name, error, wait)
        conn.failed.add(name)
