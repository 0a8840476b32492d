"""A cursor that is kept in a file."""

from __future__ import annotations

import errno
import os


class CursorFile:
    """Keeps a cursor in a file, so that it outlives the program and the machine's crash.

        place = rshub.CursorFile("demo.cursor", first="start")
        for batch in client.follow("demo", since=place.read()):
            process(batch.changes)
            place.write(batch.cursor)
    """

    def __init__(self, path: str, *, first: str = "start") -> None:
        self.path = path
        self.first = first

    def read(self) -> str:
        """Returns the cursor that was written last, or first if none was."""
        try:
            with open(self.path, encoding="ascii") as f:
                return f.read().strip() or self.first
        except FileNotFoundError:
            return self.first

    def write(self, cursor: str) -> None:
        """Keeps a cursor. Whenever the program ends, the file has this cursor or the one before, and no part of one."""
        beside = self.path + ".new"
        with open(beside, "w", encoding="ascii") as f:
            f.write(cursor + "\n")
            f.flush()
            os.fsync(f.fileno())
        os.replace(beside, self.path)
        if os.name == "posix":  # elsewhere a directory cannot be opened
            directory = os.open(os.path.dirname(self.path) or ".", os.O_RDONLY)
            try:
                os.fsync(directory)  # else a crash of the machine may leave no file, and follow would begin at first
            except OSError as e:
                if e.errno != errno.EINVAL:  # a file system that cannot do it
                    raise
            finally:
                os.close(directory)
