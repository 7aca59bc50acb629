"""Threads in a database as an earlier version wrote them."""

from __future__ import annotations

import sqlite3

from treadle.store import ThreadRecord

# What came with a later migration.
LATER = frozenset({"parent_thread_id"})


def add_old_threads(connection: sqlite3.Connection, owner: str, *records: ThreadRecord) -> None:
    """Write them into tables of the first version."""
    columns = [name for name in ThreadRecord.__struct_fields__ if name not in LATER]
    for record in records:
        row = [getattr(record, name) for name in columns]
        marks = ", ".join("?" * (len(row) + 1))
        connection.execute(f"INSERT INTO threads ({', '.join(columns)}, owner) VALUES ({marks})", (*row, owner))
