"""The command line: python3 -m rshub follow|baseline|audit|publish."""

from __future__ import annotations

import argparse
import json
import os
import stat
import sys
from typing import Any, Dict, Iterator, List, Optional, TextIO

from . import Client, CursorFile, Error
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
    """Hands over what was printed. If standard output is a file, it is durable then."""
    sys.stdout.flush()
    try:
        fd = sys.stdout.fileno()
    except OSError:  # another program has replaced it
        return
    if stat.S_ISREG(os.fstat(fd).st_mode):
        os.fsync(fd)


def _follow(client: Client, args: argparse.Namespace) -> int:
    place = CursorFile(args.cursor, first=args.since) if args.cursor else None
    for batch in client.follow(args.set, place.read() if place else args.since, prefix=args.prefix, once=args.once, stream=args.stream):
        if batch.diverged:
            print("rshub: the hub has lost its newest changes; changes may come again", file=sys.stderr)
        for change in batch.changes:
            _put(change)
        if place:
            _sync()  # else a crash could leave the cursor of changes that the output does not have
            place.write(batch.cursor)
        else:
            sys.stdout.flush()
    return 0


def _baseline(client: Client, args: argparse.Namespace) -> int:
    for page in client.baseline(args.set, prefix=args.prefix):
        if page.restart and page.cursor:
            print("rshub: the baseline begins anew; forget the lines before", file=sys.stderr)
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
    parser = argparse.ArgumentParser(prog="python3 -m rshub", description="Follow, read, compare and publish a set of an rshub, as lines of JSON.")
    parser.add_argument("--hub", default="http://127.0.0.1:8080", help="URL of the hub (default: %(default)s)")
    parser.add_argument("--token-file", help="holds the token; without it RSHUB_TOKEN does")
    commands = parser.add_subparsers(dest="command", required=True)

    def command(name: str, run: Any, text: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text)
        sub.add_argument("set", help="name of the set")
        sub.set_defaults(run=run)
        return sub

    follow = command("follow", _follow, "Print changes as they come, also after outages.")
    follow.add_argument("--since", default="now", help="a cursor, a datetime, start or now (the default)")
    follow.add_argument("--cursor", metavar="FILE", help="keeps the cursor, and goes on from there at the next start")
    follow.add_argument("--once", action="store_true", help="end when there are no more changes")
    follow.add_argument("--stream", action="store_true", help="have the changes sent as events on one connection, instead of asking again and again")
    baseline = command("baseline", _baseline, "Print all resources of the set.")
    audit = command("audit", _audit, "Compare a list of resources with what the hub knows, by content; exit with 1 if they differ.")
    audit.add_argument("--name", default="rshub for Python", help="the hub keeps under this name when the list last equalled what it knows (default: %(default)s)")
    publish = command("publish", _publish, "Publish changes, 1,000 at a time.")
    publish.add_argument("--key", help="publish the same changes with the same key again: without doubling them within a day, and later all again, in order")
    for sub in (follow, baseline, audit):
        sub.add_argument("--prefix", default="", help="only resources whose loc begins with it")
    for sub in (audit, publish):
        sub.add_argument("file", nargs="?", type=argparse.FileType("r", encoding="utf-8"), default=sys.stdin, help="lines of JSON (default: standard input)")

    args = parser.parse_args(arguments)
    token = os.environ.get("RSHUB_TOKEN") or None
    try:
        if args.token_file:
            with open(args.token_file, encoding="ascii") as f:
                token = f.read().strip()
        return int(args.run(Client(args.hub, token=token), args))
    except (Error, ValueError, OSError) as e:
        doubt = " (the hub may have them all the same: publish again with --key)" if getattr(e, "doubt", False) else ""
        print(f"rshub: {e}{doubt}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
