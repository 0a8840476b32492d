#!/usr/bin/env python3
"""Publishes the changes of an SQL table that has no record of them.

    python3 table.py articles.db resources.sql http://127.0.0.1:8080 demo

Run it after each import, or from cron. It compares the result of the query in resources.sql with the set, which takes one
small request if nothing changed, and publishes the differences. So it needs no triggers and no state, it can be killed, and
the next run repairs a failed one. For PostgreSQL or MySQL, replace resources().

A broken query must not empty the set: if the query finds nothing, or more than ten resources and more than a tenth of the set
would be deleted, nothing is published, unless --delete-all is given.

rspublish sync does the same for a list of lines, with more limits and checks.
"""

import json
import os
import sqlite3
import sys

import rshub


def resources(path, query):
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as db:
        return [json.loads(line) for (line,) in db.execute(query)]


def differences(client, set_name, now, own):
    """Returns the changes that make the set equal to now. own reads the table again, to confirm the differences."""
    try:
        found = client.audit(set_name, own, settle=1)
    except rshub.RefusedError as e:
        if e.code != "no-such-set":
            raise
        found = [rshub.Difference("extra", loc) for loc in now]  # nothing has been published yet
    kinds = {"extra": "created", "stale": "updated", "unknown": "updated", "missing": "deleted"}
    changes = []
    for d in found:
        if d.kind == "missing":
            changes.append({"loc": d.loc, "change": "deleted"})
        elif d.loc in now:
            changes.append({**now[d.loc], "change": kinds[d.kind]})
    return changes


def main(path, query_file, hub, set_name, *flags):
    client = rshub.Client(hub, token=os.environ.get("RSHUB_TOKEN"))
    with open(query_file, encoding="utf-8") as f:
        query = f.read()
    now = {r["loc"]: r for r in resources(path, query)}
    changes = differences(client, set_name, now, lambda: resources(path, query))
    deleted = sum(c["change"] == "deleted" for c in changes)
    too_many = deleted > 0 and not now or deleted > 10 and deleted > client.summary(set_name).count / 10
    if too_many and "--delete-all" not in flags:
        print(f"{deleted} resources would be deleted, so nothing was published; if they are really gone, use --delete-all", file=sys.stderr)
        return 1
    for receipt in client.publish_all(set_name, changes):
        print(f"published {receipt.count} changes, cursor {receipt.cursor}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(*sys.argv[1:]))
    except rshub.Error as e:
        sys.exit(f"table.py: {e}")
