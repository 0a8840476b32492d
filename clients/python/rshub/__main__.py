"""The command line: python3 -m rshub follow|baseline|audit|publish."""

from __future__ import annotations

import argparse
import json
import os
import stat
import sys
from typing import Any, Dict, Iterator, List, Optional, TextIO

from . import Client, CursorFile, CursorsFile, Error, SetError
from .wire import is_a, read_json


def _lines(file: TextIO) -> Iterator[Dict[str, Any]]:
    for number, line in enumerate(file, 1):
        if line.strip():
            try:
                read = read_json(line.encode())
            except ValueError as e:
                raise ValueError(f"read line {number}: invalid JSON: {e}") from None
            if not isinstance(read, dict) or not isinstance(read.get("loc"), str):
                raise ValueError(f"read line {number}: want an object with loc")
            for name, kind in (("hash", str), ("lastmod", str), ("length", int)):
                if read.get(name) is not None and not is_a(read[name], kind):
                    raise ValueError(f"read line {number}: invalid {name} {read[name]!r}")
            yield read


def _put(value: Any) -> None:
    print(json.dumps(value, ensure_ascii=False))


def _sync() -> None:
    """Flushes standard output and, if it is a file, syncs it to disk."""
    sys.stdout.flush()
    try:
        fd = sys.stdout.fileno()
    except OSError:  # standard output was replaced
        return
    if stat.S_ISREG(os.fstat(fd).st_mode):
        os.fsync(fd)


def _follow(client: Client, args: argparse.Namespace) -> int:
    if args.sets or args.all:
        return _follow_many(client, args)
    if not args.set:
        raise ValueError("follow: want a set, --set or --all")
    cursor_file = CursorFile(args.cursor, first=args.since) if args.cursor else None
    for batch in client.follow(args.set, cursor_file.read() if cursor_file else args.since, prefix=args.prefix, once=args.once, stream=args.stream):
        if batch.diverged:
            print("rshub: the hub has lost its newest changes; changes may repeat", file=sys.stderr)
        for change in batch.changes:
            _put(change)
        if cursor_file:
            _sync()  # otherwise, after a crash, the cursor could be ahead of the output
            cursor_file.write(batch.cursor)
        else:
            sys.stdout.flush()
    return 0


def _follow_many(client: Client, args: argparse.Namespace) -> int:
    if args.set or args.once or args.stream:
        raise ValueError("follow: with --set or --all, want no other set, --once or --stream")
    cursors = CursorsFile(args.cursor) if args.cursor else None
    for got in client.follow_many(args.sets, args.since, every=args.since if args.all else None, prefix=args.prefix, cursors=cursors):
        if isinstance(got, SetError):
            print(f"rshub: set {got.set} is not followed: {got.error}", file=sys.stderr)
            continue
        if got.diverged:
            print(f"rshub: set {got.set}: the hub has lost its newest changes; changes may repeat", file=sys.stderr)
        for change in got.changes:
            _put({"set": got.set, **change})
        _sync()  # the cursor is stored afterwards
    return 0


def _baseline(client: Client, args: argparse.Namespace) -> int:
    for page in client.baseline(args.set, prefix=args.prefix):
        if page.restart and page.cursor:
            print("rshub: the baseline starts over; discard the previous lines", file=sys.stderr)
        for resource in page.resources:
            _put(resource)
        if page.end:
            print(f"rshub: {page.count} resources; complete: {page.complete}; follow with --since {page.cursor}", file=sys.stderr)
    return 0


def _audit(client: Client, args: argparse.Namespace) -> int:
    with args.file as file:
        differences = client.audit(args.set, list(_lines(file)), prefix=args.prefix, name=args.name)
    for d in differences:
        _put({"difference": d.kind, "loc": d.loc})
    return 1 if differences else 0


def _publish(client: Client, args: argparse.Namespace) -> int:
    with args.file as file:
        for receipt in client.publish_all(args.set, _lines(file), key=args.key):
            _put({"set": receipt.set, "count": receipt.count, "cursor": receipt.cursor, "replayed": receipt.replayed})
            sys.stdout.flush()
    return 0


def main(arguments: Optional[List[str]] = None) -> int:
    parser = argparse.ArgumentParser(prog="python3 -m rshub", description="Follow, read, compare and publish a set of a hub, as lines of JSON.")
    parser.add_argument("--hub", default="http://127.0.0.1:8080", help="URL of the hub (default: %(default)s)")
    parser.add_argument("--token-file", help="file with the token (default: the token in RSHUB_TOKEN)")
    commands = parser.add_subparsers(dest="command", required=True)

    def command(name: str, run: Any, text: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text)
        if name == "follow":
            sub.add_argument("set", nargs="?", help="name of the set")
        else:
            sub.add_argument("set", help="name of the set")
        sub.set_defaults(run=run)
        return sub

    follow = command("follow", _follow, "Print changes as they arrive, and reconnect after outages.")
    follow.add_argument("--set", dest="sets", action="append", default=[], metavar="SET", help="follow this set, and all others that are given this way, on one connection; each line then has its set")
    follow.add_argument("--all", action="store_true", help="follow every set on one connection, including sets that are created later")
    follow.add_argument("--since", default="now", help="a cursor, a datetime, start or now (the default)")
    follow.add_argument("--cursor", metavar="FILE", help="file of the cursor, or of the cursors of many sets, from which the next start continues")
    follow.add_argument("--once", action="store_true", help="end when there are no more changes")
    follow.add_argument("--stream", action="store_true", help="use an event stream instead of long polls")
    baseline = command("baseline", _baseline, "Print all resources of the set.")
    audit = command("audit", _audit, "Compare a list of resources with the set, by content; exit with 1 if they differ.")
    audit.add_argument("--name", default="rshub for Python", help="name under which the hub records that the list is equal (default: %(default)s)")
    publish = command("publish", _publish, "Publish changes, 1,000 at a time.")
    publish.add_argument("--key", help="key with which the same changes, published again within a day, are not added twice")
    for sub in (follow, baseline, audit):
        sub.add_argument("--prefix", default="", help="only resources whose loc starts with this")
    for sub in (audit, publish):
        sub.add_argument("file", nargs="?", type=argparse.FileType("r", encoding="utf-8"), default=sys.stdin, help="file of JSON lines (default: standard input)")

    args = parser.parse_args(arguments)
    token = os.environ.get("RSHUB_TOKEN") or None
    try:
        if args.token_file:
            with open(args.token_file, encoding="ascii") as f:
                token = f.read().strip()
        return int(args.run(Client(args.hub, token=token), args))
    except (Error, ValueError, OSError) as e:
        uncertain = " (the hub may have the changes anyway; publish them again with --key)" if getattr(e, "uncertain", False) else ""
        print(f"rshub: {e}{uncertain}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
