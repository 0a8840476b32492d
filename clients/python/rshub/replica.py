"""A replica: what a destination holds of a set, kept in SQLite."""

from __future__ import annotations

import copy
import json
import sqlite3
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Dict, Iterable, Iterator, List, Optional, Tuple

from .audit import Difference, again, changes, compare
from .errors import Error, Gone, NotAHub, Unavailable
from .follow import page, position
from .inventory import Inventory, digest, element
from .wire import pause_of_follower

if TYPE_CHECKING:
    from .client import Client

UPDATE = 2000  # the most changes of an update in a baseline
LOOK_EVERY = 3600.0  # seconds until the hub is asked again whether it knows all resources
HALF, WHOLE, MORE = 0, 1, 2  # what rshub_set.whole is; MORE: the destination also holds what the last baseline did not name

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
# The resources of the baseline that the destination does not hold as they are there; and what it holds besides them.
_NEWER = """SELECT b.loc, b.entry FROM rshub_baseline b LEFT JOIN rshub_resource r ON r.name = b.name AND r.loc = b.loc
WHERE b.name = ? AND b.loc > ? AND (r.loc IS NULL OR r.position <> b.position OR r.datetime <> b.datetime)
ORDER BY b.loc LIMIT ?"""
_BESIDES = """FROM rshub_resource r LEFT JOIN rshub_baseline b ON b.name = r.name AND b.loc = r.loc
WHERE r.name = ? AND r.loc > ? AND b.loc IS NULL"""
_LEFT = f"SELECT r.loc, NULL {_BESIDES} ORDER BY r.loc LIMIT ?"


class NotWhole(Error):
    """The replica is at no cursor, because its baseline is not over. Follow or catch up first."""


class TooManyDeleted(Error):
    """A baseline would delete more than max_delete allows. The destination is as it was, and so is the replica. If that
    many are to be deleted, open the replica with a greater max_delete; it then goes on where it was."""

    def __init__(self, deleted: int, held: int, most: int) -> None:
        self.deleted, self.held, self.most = deleted, held, most
        super().__init__(
            f"the baseline does not name {deleted} of the {held} resources that the destination holds, and at most {most} may be "
            "deleted; nothing was deleted. If the set has really lost them, allow it with max_delete"
        )


@dataclass
class Update:
    """What a destination has to do next: get what was created or updated, and remove what was deleted."""

    changes: List[Dict[str, Any]]
    #: The destination then holds everything up to here. Empty within a baseline, whose last update has a cursor, and
    #: no changes.
    cursor: str
    #: The changes are not a part of the log, but what a baseline says besides what the destination holds.
    baseline: bool


class Replica:
    """Knows which resources of a set a destination holds, each with the newest change that it has applied. It reads
    baselines by itself, goes on after outages and crashes, and proves that nothing is missing.

        db = sqlite3.connect("copy.db", isolation_level=None)
        replica = rshub.Replica(db, client, "demo")
        for update in replica.follow():
            for change in update.changes:
                db.execute(...)    # is committed together with the update

    db is a connection with isolation_level=None; the replica makes its tables rshub_... in it, and there may be tables
    of your own. Each update comes within a transaction. It is committed when the next update is asked for, and rolled
    back when the loop is left or fails: then the update comes again. So whatever the loop writes through db is in step
    with the log, exactly. What the loop does elsewhere (files, another server) may be repeated after a crash.

    A baseline may delete ten resources, or a tenth of what the destination holds if that is more, because it does not name
    them; max_delete is another number, and below 0 any. If it would delete more, follow ends with TooManyDeleted before
    anything is changed. What the source deletes by a change of its own does not count.

    Several sets may share a db. One program at a time may follow with it. An audit holds all locs in memory, so the
    replica is for sets of up to some million resources.
    """

    def __init__(self, db: sqlite3.Connection, client: Client, set_name: str, *, prefix: str = "", max_delete: Optional[int] = None) -> None:
        if db.isolation_level is not None:
            raise ValueError("a replica needs a connection with isolation_level=None")
        self.db = db
        self.client = client
        self.set_name = set_name
        self.max_delete = max_delete
        self._looked: Optional[float] = None  # when the hub was last asked whether it knows all resources
        self._turn: Optional[object] = None  # whose transaction is open: that of the newest update, until it is over
        client.topic(set_name)  # says what is wrong with the name
        db.executescript(_SCHEMA)
        db.execute("INSERT OR IGNORE INTO rshub_set VALUES (?, ?, '', 0, '')", (set_name, prefix))
        self.prefix: str = self._state("prefix")
        if self.prefix != prefix:
            raise ValueError(f"the replica of {set_name} holds the prefix {self.prefix!r}, and not {prefix!r}")

    def _state(self, column: str) -> Any:
        return self.db.execute(f"SELECT {column} FROM rshub_set WHERE name = ?", (self.set_name,)).fetchone()[0]

    def _set(self, **columns: Any) -> None:
        for column, value in columns.items():
            self.db.execute(f"UPDATE rshub_set SET {column} = ? WHERE name = ?", (value, self.set_name))

    @property
    def cursor(self) -> Optional[str]:
        """The destination holds everything up to here; None: its baseline is not over."""
        return self._state("cursor") if self._state("whole") else None

    def __len__(self) -> int:
        """How many resources the destination holds."""
        return int(self.db.execute("SELECT count(*) FROM rshub_resource WHERE name = ?", (self.set_name,)).fetchone()[0])

    def resources(self) -> Iterator[Dict[str, Any]]:
        """Yields the resources that the destination holds, each with its newest change, in the order of loc."""
        for (entry,) in self.db.execute("SELECT entry FROM rshub_resource WHERE name = ? ORDER BY loc", (self.set_name,)):
            yield json.loads(entry)

    def follow(self, *, wait: float = 30.0) -> Iterator[Update]:
        """Yields what the destination has to do, and blocks while there is nothing. It begins with a baseline, and takes
        another one whenever the hub's log does not reach back far enough or has lost changes. Of a baseline it yields
        only what differs; what the destination holds and the baseline does not name is yielded as deleted, but only
        if the hub knows all resources. As long as the destination keeps something for that reason, the hub is asked at
        the beginning, and now and then, whether it knows all by now; then another baseline comes. An interrupted baseline
        goes on where it was. Raises TooManyDeleted, and what Client.follow does, except Gone."""
        return self._run(wait, once=False)

    def catch_up(self) -> Iterator[Update]:
        """Is follow, but it ends when the hub has no more changes."""
        return self._run(0, once=True)

    def wait(self, seconds: float = 30.0) -> bool:
        """Waits until there is something for catch_up, but not longer than so many seconds, at most 300. Returns whether
        there is. For a loop that has other work, too, outside of the updates' transactions."""
        cursor = self.cursor
        if cursor is None:
            return True
        try:
            batch = page(self.client, self.set_name, cursor, {"prefix": self.prefix}, 1, seconds, None)
        except Gone:
            return True
        except (Unavailable, NotAHub) as e:
            self.client.pause(e, min(seconds, pause_of_follower(0, e)))
            return False
        return batch.cursor != cursor or batch.diverged

    def _run(self, wait: float, once: bool) -> Iterator[Update]:
        if self._turn is not None:  # a loop failed, and something like its traceback still holds the iterator
            self._turn = None
            self.db.execute("ROLLBACK")
        if self.db.in_transaction:
            raise RuntimeError("a transaction of yours is open: commit it before you follow")
        behind, self._looked = not self._state("whole"), None
        while True:
            if behind or self._outgrown():
                yield from self._take_baseline()
            try:
                for batch in self.client.follow(self.set_name, self._state("cursor"), prefix=self.prefix, wait=wait, once=once):
                    if batch.diverged:
                        break
                    if batch.cursor != self._state("cursor"):
                        yield from self._apply(batch.changes, batch.cursor, False)
                    if self._outgrown():
                        break
                else:
                    return
            except Gone:
                pass
            behind = True

    def _outgrown(self) -> bool:
        """Says whether the hub knows all resources by now, and the destination holds what the last baseline did not name.
        The hub is asked once: one that cannot say it, as with a damaged inventory, may still have changes."""
        now = time.monotonic()
        if self._state("whole") != MORE or self._looked is not None and now - self._looked < LOOK_EVERY:
            return False
        self._looked = now
        once = copy.copy(self.client)
        once.patience = 0
        try:
            return once.look(self.set_name, prefix=self.prefix).complete
        except Error:
            return False

    def _apply(self, news: List[Dict[str, Any]], cursor: str, baseline: bool, whole: Optional[int] = None) -> Iterator[Update]:
        """Yields an update within a transaction, and records it when the next one is asked for."""
        self.db.execute("BEGIN IMMEDIATE")
        turn = self._turn = object()
        try:
            self._write("rshub_resource", news)
            if cursor:
                self._set(cursor=cursor)
            if whole is not None:
                self._set(whole=whole)
            if news or baseline:
                yield Update(news, cursor, baseline)
            if self._turn is not turn or not self.db.in_transaction:
                raise RuntimeError("the update's transaction is over: another loop follows, or the loop ended it")
            if baseline and cursor:
                self._forget_baseline("")
            self.db.execute("COMMIT")
            self._turn = None
        finally:
            if self._turn is turn:
                self._turn = None
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

    def _take_baseline(self) -> Iterator[Update]:
        """Reads a baseline beside what the destination holds, and then yields what differs. So a baseline that begins
        anew disturbs nothing, and one that was interrupted goes on in both steps."""
        complete, cursor = self._read_baseline()
        if complete:
            self._check_left()
        for query in (_NEWER, _LEFT) if complete else (_NEWER,):
            last = ""
            while True:
                rows = self.db.execute(query, (self.set_name, last, UPDATE)).fetchall()
                if not rows:
                    break
                last = rows[-1][0]
                left = {"change": "deleted", "position": position(cursor)}
                yield from self._apply([json.loads(entry) if entry else {"loc": loc, **left} for loc, entry in rows], "", True, HALF)
        (named,) = self.db.execute("SELECT count(*) FROM rshub_baseline WHERE name = ?", (self.set_name,)).fetchone()
        yield from self._apply([], cursor, True, MORE if len(self) > named else WHOLE)

    def _check_left(self) -> None:
        """Raises TooManyDeleted if the baseline is not to delete as many resources as it does."""
        (deleted,) = self.db.execute(f"SELECT count(*) {_BESIDES}", (self.set_name, "")).fetchone()
        held = len(self)
        most = max(10, held // 10) if self.max_delete is None else self.max_delete
        if 0 <= most < deleted:
            raise TooManyDeleted(deleted, held, most)

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
                raise NotAHub(f"the baseline of {self.set_name} has {count} resources that do not fit its digest")
            return part.complete, part.cursor
        raise AssertionError("a baseline has an end")

    def audit(self, name: str = "") -> List[Difference]:
        """Proves that the destination is in sync, and returns every resource by which it differs from the hub. An empty
        list means: every change up to the cursor was applied. Changes that arrive meanwhile disturb nothing.

        It compares what the replica was told. To find out whether the destination still has the content, compare a
        list of that: Client.audit. Raises NotWhole before the first baseline is over.

        With a name, the hub is told if nothing differs, and shows its operators when this destination last was in sync."""
        return again(lambda: self._audit(name))

    def _audit(self, name: str) -> List[Difference]:
        cursor = self.cursor
        if cursor is None:
            raise NotWhole(f"the replica of {self.set_name} has not read its baseline yet")
        rows = self.db.execute("SELECT loc, position FROM rshub_resource WHERE name = ?", (self.set_name,))
        held = {loc: {"loc": loc, "position": at} for loc, at in rows}
        look = self.client.look(self.set_name, since=cursor, prefix=self.prefix)
        for change in changes(self.client, self.set_name, cursor, self.prefix, look.cursor):
            if change["change"] == "deleted":
                held.pop(change["loc"], None)
            else:
                held[change["loc"]] = change
        own = Inventory(held.values(), "position")
        return list(compare(self.client, self.set_name, own, look, self.prefix, name))
