"""Statements that write records as rows, several at a time.

A statement costs more than its rows: the interpreter's lock is given up around it, and where the event loop is busy it
takes a while to come back. So one for 16 rows is better than 16, and a few lengths are enough: each is prepared once.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, Final

from msgspec import Struct

_LENGTHS: Final = (16, 4, 1)


class Insert:
    """The statement for one table.

    Args:
        table: The table.
        columns: What a row has, in its order.
        keys: The columns whose row is replaced when there is one; without, it is an error of SQLite.
        kept: Columns that are only written with a new row.
    """

    def __init__(self, table: str, columns: Iterable[str], keys: Sequence[str] = (), kept: Sequence[str] = ()) -> None:
        columns = (*columns, *kept)
        head = f"INSERT INTO {table} ({', '.join(columns)}) VALUES "
        row = f"({', '.join('?' * len(columns))})"
        tail = _replacing(keys, [name for name in columns if name not in (*keys, *kept)]) if keys else ""
        self._statements = [(length, head + ", ".join([row] * length) + tail) for length in _LENGTHS]

    def write(self, connection: sqlite3.Connection, rows: Sequence[tuple[Any, ...]]) -> None:
        written = 0
        for length, statement in self._statements:
            while len(rows) - written >= length:
                values = tuple(chain.from_iterable(rows[written : written + length]))
                connection.execute(statement, values)
                written += length


def _replacing(keys: Sequence[str], columns: Iterable[str]) -> str:
    """Not `INSERT OR REPLACE`: that deletes the old row, with the claim of a thread and all that refers to it."""
    changes = ", ".join(f"{name} = excluded.{name}" for name in columns)
    return f" ON CONFLICT ({', '.join(keys)}) DO UPDATE SET {changes}"


def fields(record: type[Struct]) -> tuple[str, ...]:
    """The columns of a record: they are named as its fields."""
    return record.__struct_fields__
