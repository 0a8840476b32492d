#!/usr/bin/env python3
"""A search index of a set: SQLite FTS5, in one file with the replica.

    python3 search.py index.db feed http://127.0.0.1:8080 demo     # follows; --once: until it has caught up
    python3 search.py index.db find 'push AND hub'
    python3 search.py index.db audit http://127.0.0.1:8080 demo    # proves that no change was missed

The loop of the replica only queues work, in the same transaction as the cursor. Resources are fetched after that, so an
outage of a web server only delays the index. The program can be killed at any time.
"""

import html
import re
import sqlite3
import sys
import urllib.error
import urllib.request

import rshub

MAX_RESOURCE = 10 << 20  # bytes of a resource


def open_index(path):
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")  # find reads while feed writes
    db.executescript(
        """CREATE VIRTUAL TABLE IF NOT EXISTS page USING fts5(loc UNINDEXED, text, tokenize = 'porter unicode61');
        CREATE TABLE IF NOT EXISTS row (loc TEXT PRIMARY KEY, id INTEGER NOT NULL);
        CREATE TABLE IF NOT EXISTS queue (loc TEXT PRIMARY KEY);"""
    )
    return db


def remove(db, loc):
    for (row,) in db.execute("SELECT id FROM row WHERE loc = ?", (loc,)).fetchall():
        db.execute("DELETE FROM page WHERE rowid = ?", (row,))
        db.execute("DELETE FROM row WHERE loc = ?", (loc,))
    db.execute("DELETE FROM queue WHERE loc = ?", (loc,))


def text_of(loc):
    """Returns the text of a resource, or None if it does not exist."""
    try:
        with urllib.request.urlopen(loc, timeout=30) as answer:
            content = answer.read(MAX_RESOURCE).decode(answer.headers.get_content_charset() or "utf-8", "replace")
    except urllib.error.HTTPError as e:
        if e.code in (404, 410):
            return None
        raise
    return html.unescape(re.sub(r"(?s)<(script|style)\b.*?</\1>|<[^>]*>", " ", content))


def fetch(db):
    """Indexes the queued resources. Those that cannot be fetched stay in the queue."""
    for (loc,) in db.execute("SELECT loc FROM queue").fetchall():
        try:
            text = text_of(loc)
        except (OSError, ValueError) as e:
            print(f"fetch {loc}: {e}; it stays in the queue", file=sys.stderr)
            continue
        db.execute("BEGIN IMMEDIATE")
        remove(db, loc)
        if text is not None:
            row = db.execute("INSERT INTO page (loc, text) VALUES (?, ?)", (loc, text)).lastrowid
            db.execute("INSERT INTO row VALUES (?, ?)", (loc, row))
        db.execute("COMMIT")


def feed(db, hub, set_name, once=False):
    replica = rshub.Replica(db, rshub.Client(hub), set_name)
    fetch(db)
    while True:
        for update in replica.catch_up():
            for change in update.changes:
                if change["change"] == "deleted":
                    remove(db, change["loc"])
                else:
                    db.execute("INSERT OR IGNORE INTO queue VALUES (?)", (change["loc"],))
        fetch(db)
        if once:
            return
        replica.wait(60)  # for the next change; then failed fetches are retried, too


def main(path, command, *arguments):
    db = open_index(path)
    if command == "feed":
        feed(db, arguments[0], arguments[1], once="--once" in arguments)
    elif command == "find":
        query = "SELECT loc, snippet(page, 1, '[', ']', '…', 12) FROM page WHERE page MATCH ? ORDER BY rank LIMIT 20"
        try:
            for loc, found in db.execute(query, arguments):
                print(f"{loc}\t{' '.join(found.split())}")
        except sqlite3.OperationalError as e:
            sys.exit(f"search.py: invalid query: {e}")
    elif command == "audit":
        differences = rshub.Replica(db, rshub.Client(arguments[0]), arguments[1]).audit()
        print(*differences or ["in sync"], sep="\n")
        return 1 if differences else 0
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
