"""A cursor in a file."""

from __future__ import annotations

import errno
import os


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
        temporary = self.path + ".new"
        with open(temporary, "w", encoding="ascii") as f:
            f.write(cursor + "\n")
            f.flush()
            os.fsync(f.fileno())
        os.replace(temporary, self.path)
        if os.name == "posix":  # other systems cannot open a directory
            directory = os.open(os.path.dirname(self.path) or ".", os.O_RDONLY)
            try:
                os.fsync(directory)  # otherwise a crash of the machine may leave no file, and follow would start at first
            except OSError as e:
                if e.errno != errno.EINVAL:  # the file system does not support it
                    raise
            finally:
                os.close(directory)
