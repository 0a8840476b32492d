"""A replica: the state of a destination's copy of a set, in SQLite."""

from __future__ import annotations

import copy
import json
import sqlite3
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Dict, Iterable, Iterator, List, Optional, Tuple

from .audit import Difference, changes, compare, retry_gone
from .errors import Error, GoneError, NotHubError, UnavailableError
from .follow import page, position
from .inventory import Inventory, digest, element
from .wire import follower_backoff

if TYPE_CHECKING:
    from .client import Client

MAX_UPDATE = 2000  # changes per update within a baseline
SUMMARY_INTERVAL = 3600.0  # seconds between checks whether the set has become complete
INCOMPLETE, COMPLETE, SURPLUS = 0, 1, 2  # values of rshub_set.whole: a baseline is needed or in progress; it was applied; it was, and the destination has more than it listed

_SCHEMA = """
CREATE TABLE IF NOT EXISTS rshub_set (
    name TEXT PRIMARY KEY, prefix TEXT NOT NULL, cursor TEXT NOT NULL, whole INTEGER NOT NULL, place TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS rshub_resource (
    name TEXT NOT NULL, loc TEXT NOT NULL, position INTEGER NOT NULL, datetime TEXT NOT NULL, entry TEXT NOT NULL,
    PRIMARY KEY (name, loc)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS rshub_baseline (
    name TEXT NOT NULL, loc TEXT NOT NULL, position INTEGER NOT NULL, datetime TEXT NOT NULL, entry TEXT NOT NULL,
    PRIMARY KEY (name, loc)) WITHOUT ROWID;
"""
# Resources of the baseline that the destination lacks or has in another version, and those that only the destination has.
_CHANGED = """SELECT b.loc, b.entry FROM rshub_baseline b LEFT JOIN rshub_resource r ON r.name = b.name AND r.loc = b.loc
WHERE b.name = ? AND b.loc > ? AND (r.loc IS NULL OR r.position <> b.position OR r.datetime <> b.datetime)
ORDER BY b.loc LIMIT ?"""
_FROM_UNLISTED = """FROM rshub_resource r LEFT JOIN rshub_baseline b ON b.name = r.name AND b.loc = r.loc
WHERE r.name = ? AND r.loc > ? AND b.loc IS NULL"""
_UNLISTED = f"SELECT r.loc, NULL {_FROM_UNLISTED} ORDER BY r.loc LIMIT ?"


class BaselinePendingError(Error):
    """The replica has no cursor yet, because its baseline is incomplete. Follow or catch up first."""


class DeleteLimitError(Error):
    """A baseline would delete more resources than max_delete allows. Neither destination nor replica has changed. To allow
    the deletions, open the replica with a greater max_delete; it then continues where it was."""

    def __init__(self, deleted: int, held: int, most: int) -> None:
        self.deleted, self.held, self.most = deleted, held, most
        super().__init__(
            f"the baseline would delete {deleted} of the {held} resources of the destination, and at most {most} may be deleted; "
            "nothing was deleted. If the set has really lost them, allow it with max_delete"
        )


@dataclass
class Update:
    """Changes for a destination to apply: get resources that were created or updated, and remove deleted ones."""

    changes: List[Dict[str, Any]]
    #: The cursor of the destination after this update. Empty within a baseline, whose last update has a cursor but no
    #: changes.
    cursor: str
    #: True if the changes are from a baseline, not from the log.
    baseline: bool


class Replica:
    """Records which resources of a set a destination has, each with the newest change that it has applied. It reads
    baselines when needed, resumes after outages and crashes, and proves that nothing is missing.

        db = sqlite3.connect("copy.db", isolation_level=None)
        replica = rshub.Replica(db, client, "demo")
        for update in replica.follow():
            for change in update.changes:
                db.execute(...)    # committed together with the update

    db is a connection with isolation_level=None. The replica creates its tables rshub_... in it, next to your own. Each
    update is yielded within a transaction, which is committed when the next update is requested, and rolled back if the
    loop ends or fails; then the update is yielded again. So everything that the loop writes through db is applied exactly
    once. Other effects of the loop (files, another server) may repeat after a crash.

    A baseline may delete ten resources, or a tenth of the destination's if that is more, because it does not list them.
    max_delete is another limit; a negative one allows any number. If a baseline would delete more, follow raises
    DeleteLimitError before anything changes. Deletions in the log do not count.

    Several sets can share a db. Only one program at a time may follow with it. An audit has all locs in memory, so a
    replica suits sets of up to some million resources.
    """

    def __init__(self, db: sqlite3.Connection, client: Client, set_name: str, *, prefix: str = "", max_delete: Optional[int] = None) -> None:
        if db.isolation_level is not None:
            raise ValueError("invalid connection: want isolation_level=None")
        self.db = db
        self.client = client
        self.set_name = set_name
        self.max_delete = max_delete
        self._summary_time: Optional[float] = None  # when the hub was last asked whether the set is complete
        self._transaction: Optional[object] = None  # identity of the open transaction and of the newest update; None if none is open
        client.topic(set_name)  # raises an error if the name is invalid
        db.executescript(_SCHEMA)
        db.execute("INSERT OR IGNORE INTO rshub_set VALUES (?, ?, '', 0, '')", (set_name, prefix))
        self.prefix: str = self._state("prefix")
        if self.prefix != prefix:
            raise ValueError(f"open replica of {set_name}: got the prefix {prefix!r}, want {self.prefix!r} as before")

    def _state(self, column: str) -> Any:
        return self.db.execute(f"SELECT {column} FROM rshub_set WHERE name = ?", (self.set_name,)).fetchone()[0]

    def _set(self, **columns: Any) -> None:
        for column, value in columns.items():
            self.db.execute(f"UPDATE rshub_set SET {column} = ? WHERE name = ?", (value, self.set_name))

    @property
    def cursor(self) -> Optional[str]:
        """The cursor up to which the destination has everything; None if its baseline is incomplete."""
        return self._state("cursor") if self._state("whole") else None

    def __len__(self) -> int:
        """Returns the number of resources of the destination."""
        return int(self.db.execute("SELECT count(*) FROM rshub_resource WHERE name = ?", (self.set_name,)).fetchone()[0])

    def resources(self) -> Iterator[Dict[str, Any]]:
        """Yields the resources of the destination, each with its newest change, in the order of loc."""
        for (entry,) in self.db.execute("SELECT entry FROM rshub_resource WHERE name = ? ORDER BY loc", (self.set_name,)):
            yield json.loads(entry)

    def follow(self, *, wait: float = 30.0) -> Iterator[Update]:
        """Yields the updates for the destination, and blocks while there are none. It starts with a baseline, and reads
        another one whenever the hub's log does not reach back far enough or has lost changes. Of a baseline it yields only
        the differences. Resources that the baseline does not list are yielded as deleted only if the set is complete;
        as long as the destination keeps some for that reason, the hub is asked now and then whether the set has become
        complete, and if so another baseline is read. An interrupted baseline resumes. Raises DeleteLimitError, and the
        errors of Client.follow except GoneError."""
        return self._run(wait, once=False)

    def catch_up(self) -> Iterator[Update]:
        """Yields updates like follow, and ends when the hub has no more changes."""
        return self._run(0, once=True)

    def wait(self, seconds: float = 30.0) -> bool:
        """Waits for up to the given seconds, at most 300, until catch_up has something to do, and reports whether it has. It
        is meant for loops with other work outside of the updates' transactions."""
        cursor = self.cursor
        if cursor is None:
            return True
        try:
            batch = page(self.client, self.set_name, cursor, {"prefix": self.prefix}, 1, seconds, None)
        except GoneError:
            return True
        except (UnavailableError, NotHubError) as e:
            self.client.backoff(e, min(seconds, follower_backoff(0, e)))
            return False
        return batch.cursor != cursor or batch.diverged

    def _run(self, wait: float, once: bool) -> Iterator[Update]:
        if self._transaction is not None:  # a loop failed, and something such as its traceback still refers to the iterator
            self._transaction = None
            self.db.execute("ROLLBACK")
        if self.db.in_transaction:
            raise RuntimeError("follow: a transaction of the caller is open; commit it first")
        baseline_needed, self._summary_time = not self._state("whole"), None
        while True:
            if baseline_needed or self._outdated_baseline():
                yield from self._apply_baseline()
            try:
                for batch in self.client.follow(self.set_name, self._state("cursor"), prefix=self.prefix, wait=wait, once=once):
                    if batch.diverged:
                        break
                    if batch.cursor != self._state("cursor"):
                        yield from self._apply(batch.changes, batch.cursor, False)
                    if self._outdated_baseline():
                        break
                else:
                    return
            except GoneError:
                pass
            baseline_needed = True

    def _outdated_baseline(self) -> bool:
        """Reports whether the set has become complete since a baseline that did not list all resources of the destination.
        The hub is asked without retries: if it cannot answer, for example because its inventory is damaged, it may still
        have changes."""
        now = time.monotonic()
        if self._state("whole") != SURPLUS or self._summary_time is not None and now - self._summary_time < SUMMARY_INTERVAL:
            return False
        self._summary_time = now
        once = copy.copy(self.client)
        once.retry_timeout = 0
        try:
            return once.summary(self.set_name, prefix=self.prefix).complete
        except Error:
            return False

    def _apply(self, entries: List[Dict[str, Any]], cursor: str, baseline: bool, whole: Optional[int] = None) -> Iterator[Update]:
        """Yields an update within a transaction, and commits it when the next one is requested."""
        self.db.execute("BEGIN IMMEDIATE")
        transaction = self._transaction = object()
        try:
            self._write("rshub_resource", entries)
            if cursor:
                self._set(cursor=cursor)
            if whole is not None:
                self._set(whole=whole)
            if entries or baseline:
                yield Update(entries, cursor, baseline)
            if self._transaction is not transaction or not self.db.in_transaction:
                raise RuntimeError("follow: the transaction of the update has ended, because another loop follows, or this one committed it")
            if baseline and cursor:
                self._forget_baseline("")
            self.db.execute("COMMIT")
            self._transaction = None
        finally:
            if self._transaction is transaction:
                self._transaction = None
                if self.db.in_transaction:
                    self.db.execute("ROLLBACK")

    def _write(self, table: str, entries: Iterable[Dict[str, Any]]) -> None:
        for e in entries:
            if e["change"] == "deleted":
                self.db.execute(f"DELETE FROM {table} WHERE name = ? AND loc = ?", (self.set_name, e["loc"]))
            else:
                row = (self.set_name, e["loc"], e["position"], e["datetime"], json.dumps(e))
                self.db.execute(f"INSERT OR REPLACE INTO {table} VALUES (?, ?, ?, ?, ?)", row)

    def _forget_baseline(self, place: str) -> None:
        self.db.execute("DELETE FROM rshub_baseline WHERE name = ?", (self.set_name,))
        self._set(place=place)

    def _apply_baseline(self) -> Iterator[Update]:
        """Reads a baseline into a table of its own, and then yields the differences. So a baseline that starts over does no
        harm, and an interrupted one resumes in either step."""
        complete, cursor = self._read_baseline()
        if complete:
            self._check_delete_limit()
        for query in (_CHANGED, _UNLISTED) if complete else (_CHANGED,):
            last = ""
            while True:
                rows = self.db.execute(query, (self.set_name, last, MAX_UPDATE)).fetchall()
                if not rows:
                    break
                last = rows[-1][0]
                left = {"change": "deleted", "position": position(cursor)}
                yield from self._apply([json.loads(entry) if entry else {"loc": loc, **left} for loc, entry in rows], "", True, INCOMPLETE)
        (listed,) = self.db.execute("SELECT count(*) FROM rshub_baseline WHERE name = ?", (self.set_name,)).fetchone()
        yield from self._apply([], cursor, True, SURPLUS if len(self) > listed else COMPLETE)

    def _check_delete_limit(self) -> None:
        """Raises DeleteLimitError if the baseline would delete more resources than allowed."""
        (deleted,) = self.db.execute(f"SELECT count(*) {_FROM_UNLISTED}", (self.set_name, "")).fetchone()
        held = len(self)
        most = max(10, held // 10) if self.max_delete is None else self.max_delete
        if 0 <= most < deleted:
            raise DeleteLimitError(deleted, held, most)

    def _read_baseline(self) -> Tuple[bool, str]:
        for part in self.client.baseline(self.set_name, prefix=self.prefix, after=self._state("place")):
            self.db.execute("BEGIN IMMEDIATE")
            try:
                if part.restart or not self._state("place"):
                    self._forget_baseline("")
                self._write("rshub_baseline", part.resources)
                if not part.end:
                    self._set(place=part.cursor)
                self.db.execute("COMMIT")
            finally:
                if self.db.in_transaction:
                    self.db.execute("ROLLBACK")
            if not part.end:
                continue
            rows = self.db.execute("SELECT loc, position FROM rshub_baseline WHERE name = ?", (self.set_name,))
            count = total = 0
            for loc, at in rows:
                count += 1
                total += int.from_bytes(element(loc, str(at)), "little")
            if count != part.count or digest(total, count) != part.position:
                self._forget_baseline("")
                raise NotHubError(f"baseline of {self.set_name}: got {count} resources with another digest than it says, want {part.count}")
            return part.complete, part.cursor
        raise AssertionError("a baseline has an end")

    def audit(self, name: str = "") -> List[Difference]:
        """Compares the replica with the hub, and returns every difference. An empty list proves that every change up to the
        cursor was applied. Changes that arrive in the meantime do no harm.

        It compares records. To check the contents, pass a list of them to Client.audit. Raises BaselinePendingError before
        the first baseline is complete.

        With a name, the hub is told if nothing differs, and shows operators when this destination last was in sync."""
        return retry_gone(lambda: self._audit(name))

    def _audit(self, name: str) -> List[Difference]:
        cursor = self.cursor
        if cursor is None:
            raise BaselinePendingError(f"audit {self.set_name}: the baseline is incomplete")
        rows = self.db.execute("SELECT loc, position FROM rshub_resource WHERE name = ?", (self.set_name,))
        held = {loc: {"loc": loc, "position": at} for loc, at in rows}
        state = self.client.summary(self.set_name, since=cursor, prefix=self.prefix)
        for change in changes(self.client, self.set_name, cursor, self.prefix, state.cursor):
            if change["change"] == "deleted":
                held.pop(change["loc"], None)
            else:
                held[change["loc"]] = change
        own = Inventory(held.values(), "position")
        return list(compare(self.client, self.set_name, own, state, self.prefix, name))
