"""Cursors in files."""

from __future__ import annotations

import errno
import json
import os
from typing import Dict

from .wire import read_json


class CursorFile:
    """Stores a cursor in a file that survives crashes of the program and the machine.

        file = rshub.CursorFile("demo.cursor", first="start")
        for batch in client.follow("demo", since=file.read()):
            process(batch.changes)
            file.write(batch.cursor)
    """

    def __init__(self, path: str, *, first: str = "start") -> None:
        self.path = path
        self.first = first

    def read(self) -> str:
        """Returns the last written cursor, or first if there is none."""
        try:
            with open(self.path, encoding="ascii") as f:
                return f.read().strip() or self.first
        except FileNotFoundError:
            return self.first

    def write(self, cursor: str) -> None:
        """Stores a cursor durably. After a crash the file has either this cursor or the previous one, never a part of one."""
        _replace(self.path, cursor + "\n")


class CursorsFile:
    """Stores the cursors of many sets in a file that survives crashes of the program and the machine. The file is a JSON
    object of cursors by set. Its member ``*`` is the since of sets that are not in the file, if every set is followed.

        for got in client.follow_many(every="now", cursors=rshub.CursorsFile("cursors.json")):
            process(got)

    A subclass can store the cursors elsewhere.
    """

    def __init__(self, path: str) -> None:
        self.path = path

    def read(self) -> Dict[str, str]:
        """Returns the last written cursors. The dict is empty before the first write."""
        try:
            with open(self.path, "rb") as f:
                text = f.read()
        except FileNotFoundError:
            return {}
        try:
            cursors = read_json(text)
        except ValueError:
            cursors = None
        if not isinstance(cursors, dict) or not all(isinstance(cursor, str) for cursor in cursors.values()):
            raise ValueError(f"read {self.path}: want a JSON object of cursors by set")
        return cursors

    def write(self, cursors: Dict[str, str]) -> None:
        """Stores all cursors durably. After a crash the file has either these cursors or the previous ones."""
        _replace(self.path, json.dumps(cursors, indent=0, sort_keys=True) + "\n")


def _replace(path: str, text: str) -> None:
    """Replaces a file durably. After a crash it has either the new text or the previous one."""
    temporary = path + ".new"
    with open(temporary, "w", encoding="ascii") as f:
        f.write(text)
        f.flush()
        os.fsync(f.fileno())
    os.replace(temporary, path)
    if os.name == "posix":  # other systems cannot open a directory
        directory = os.open(os.path.dirname(path) or ".", os.O_RDONLY)
        try:
            os.fsync(directory)  # otherwise a crash of the machine may leave no file, and follow would start at first
        except OSError as e:
            if e.errno != errno.EINVAL:  # the file system does not support it
                raise
        finally:
            os.close(directory)
