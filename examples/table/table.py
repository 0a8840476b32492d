#!/usr/bin/env python3
"""An SQL table as a source that keeps no record of its changes: finds out what the hub does not know yet, and publishes that.

    python3 table.py articles.db resources.sql http://127.0.0.1:8080 demo

Run it after each import, or from cron. It compares what the query in resources.sql finds with what the hub knows, which
is one small request if nothing changed, and publishes the differences. So it needs no triggers and no state, it may be
killed, and a run that failed is made good by the next one. For PostgreSQL or MySQL, replace resources().

A broken query must not empty the set: a run that finds nothing, or would delete more than ten resources and more than a tenth
of all that the hub knows, publishes nothing and says so, unless --delete-all is given.

rspublish sync does the same for a list of lines, with more bounds and checks.
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
    """Returns the changes that bring the hub to what there is now. own reads it again, for the audit's second look."""
    try:
        found = client.audit(set_name, own, settle=1)
    except rshub.Refused as e:
        if e.code != "no-such-set":
            raise
        found = [rshub.Difference("extra", loc) for loc in now]  # nothing was published yet
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
    too_many = deleted > 0 and not now or deleted > 10 and deleted > client.look(set_name).count / 10
    if too_many and "--delete-all" not in flags:
        print(f"{deleted} resources would be deleted: is the table whole? Nothing is published; --delete-all does it", file=sys.stderr)
        return 1
    for receipt in client.publish_all(set_name, changes):
        print(f"published {receipt.count}, up to {receipt.cursor}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(*sys.argv[1:]))
    except rshub.Error as e:
        sys.exit(f"table.py: {e}")
