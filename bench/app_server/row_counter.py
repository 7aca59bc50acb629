"""Our server, with every row that it writes counted: what `python row_counter.py app-server …` runs.

The rows are those that its own statements insert, change or delete; what SQLite does by itself for the full-text index
is not among them. The number is kept in the file `rows` of the home, up to date before the server hears of a commit.
"""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

FILE_NAME: Final = "rows"
# Enough digits for any run: the file is written in place, so its length must not change.
_WIDTH: Final = 12


class CountedConnection(sqlite3.Connection):
    """Tells `count` of the rows that each statement has written."""

    count: Callable[[int], None]

    def execute(self, *arguments: Any) -> sqlite3.Cursor:
        return self._counted(super().execute(*arguments))

    def executemany(self, *arguments: Any) -> sqlite3.Cursor:
        return self._counted(super().executemany(*arguments))

    def _counted(self, cursor: sqlite3.Cursor) -> sqlite3.Cursor:
        if cursor.rowcount > 0:  # -1 for what writes nothing
            self.count(cursor.rowcount)
        return cursor


def counting(count: Callable[[int], None]) -> Callable[..., sqlite3.Connection]:
    """What to put in the place of `sqlite3.connect`."""
    factory = type("Counted", (CountedConnection,), {"count": staticmethod(count)})
    return partial(sqlite3.connect, factory=factory)


class RowFile:
    """The number in a file, from this process to the one that measures."""

    def __init__(self, home: Path) -> None:
        self._fd = os.open(home / FILE_NAME, os.O_CREAT | os.O_RDWR, 0o600)
        self._rows = 0
        self.add(0)

    def add(self, rows: int) -> None:
        self._rows += rows
        os.pwrite(self._fd, b"%*d" % (_WIDTH, self._rows), 0)


def rows_of(home: Path) -> int:
    """How many a server on this home has written so far."""
    return int((home / FILE_NAME).read_text())


if __name__ == "__main__":
    sqlite3.connect = counting(RowFile(Path(os.environ["CODEX_HOME"])).add)  # type: ignore[assignment]
    from treadle.cli import main

    sys.exit(main())
