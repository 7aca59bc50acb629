"""A group of jobs in one transaction; when it fails, each job in its own.

It owns the rule that one caller's failure is not another's.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import suppress

from treadle.store.contract import StoreError
from treadle.store.sqlite.failures import failure
from treadle.store.sqlite.sql_store import Work
from treadle.store.sqlite.writes import Batch, apply, check


class Transactions:
    """Writing through one connection, for one owner."""

    def __init__(self, connection: sqlite3.Connection, path: str, owner_id: str) -> None:
        self._connection = connection
        self._path = path
        self._owner_id = owner_id

    def run(self, works: Sequence[Work]) -> list[StoreError | None]:
        """Do all the works; what became of each."""
        error = self._attempt(works)
        if error is None or len(works) == 1 or error.kind == "busy":
            return [error] * len(works)
        return [self._attempt((work,)) for work in works]

    def _attempt(self, works: Sequence[Work]) -> StoreError | None:
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            self._perform(works)
            self._connection.execute("COMMIT")
        except Exception as error:
            problem = failure(error, self._path)
            self._roll_back()
            return problem
        return None

    def _perform(self, works: Sequence[Work]) -> None:
        # Writes of several callers are made together: many of one kind in a row are much cheaper than one by one. Those
        # of one thread are made before the next of that thread are checked, unless they are known to follow.
        batches: dict[str, Batch] = {}
        for work in works:
            if not isinstance(work, Batch):
                self._write(batches)
                work(self._connection)
                continue
            before = batches.get(work.thread_id)
            joined = work if before is None else before.joined(work)
            if joined is None:
                self._write(batches)
            batches[work.thread_id] = joined or work
        self._write(batches)

    def _write(self, batches: dict[str, Batch]) -> None:
        """All of them, which it takes out."""
        if batches:
            check(self._connection, tuple(batches.values()), self._owner_id)
            apply(self._connection, (write for batch in batches.values() for write in batch.writes), self._owner_id)
            batches.clear()

    def _roll_back(self) -> None:
        # After some errors SQLite has done it by itself; a failure here leaves nothing written either.
        if self._connection.in_transaction:
            with suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")
