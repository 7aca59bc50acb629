"""`MemoryStore`: threads that end with the process.

The tables are those of the store on disk, in a database that is nowhere. It is quick enough to be used on the event
loop itself, so it has no threads, and one serves any number of ephemeral conversations.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from sqlite3 import Connection
from typing import Final, TypeVar

from treadle.store.contract import Done, StoreError
from treadle.store.sqlite import schema
from treadle.store.sqlite.failures import failure
from treadle.store.sqlite.sql_store import SqlStore, Work, announce, closed
from treadle.store.sqlite.transaction import Transactions

T = TypeVar("T")
_OWNER: Final = "memory"


class MemoryStore(SqlStore):
    """A `Store` without files. Nobody else can see it, so every claim succeeds."""

    def __init__(self) -> None:
        super().__init__(_OWNER, _nobody, _nobody)
        self._connection: Connection | None = schema.open_memory()
        self._transactions = Transactions(self._connection, schema.MEMORY, _OWNER)
        self._outcomes: deque[tuple[Done, StoreError | None]] = deque()
        self._write = self._write_now

    @property
    def location(self) -> None:
        return None

    def _write_now(self, work: Work, done: Done) -> None:
        error = closed() if self._connection is None else self._transactions.run((work,))[0]
        loop = asyncio.get_running_loop()
        if not self._outcomes:
            loop.call_soon(self._announce, loop)
        self._outcomes.append((done, error))

    def _announce(self, loop: asyncio.AbstractEventLoop) -> None:
        outcomes = tuple(self._outcomes)
        self._outcomes.clear()
        announce(loop, outcomes)

    async def _read(self, query: Callable[[Connection], T]) -> T:
        if self._connection is None:
            raise closed()
        try:
            return query(self._connection)
        except Exception as error:
            raise failure(error, schema.MEMORY) from error

    async def close(self) -> None:
        if self._connection is None:
            return
        connection, self._connection = self._connection, None
        connection.close()
        if self._outcomes:
            self._announce(asyncio.get_running_loop())


def _nobody(owner_id: str) -> None:
    """No other store can have this database."""
