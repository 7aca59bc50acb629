"""`SqliteStore`: threads in `threads.db` of a home, for this process and any other on the same machine.

It owns the lock that says that this store is alive, one thread that writes and some that read.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from sqlite3 import Connection
from typing import Final, TypeVar

from msgspec import Struct

from treadle.store.owners import Owner, Owners
from treadle.store.sqlite import schema
from treadle.store.sqlite.failures import failure
from treadle.store.sqlite.sql_store import SqlStore
from treadle.store.sqlite.transaction import Transactions
from treadle.store.sqlite.worker_threads import ReaderThreads, WriterThread

T = TypeVar("T")
FILE_NAME: Final = "threads.db"


class StoreStats(Struct, frozen=True):
    """How many calls wait in the queues, the group at work not counted."""

    waiting_writes: int
    waiting_reads: int


class SqliteStore(SqlStore):
    """A `Store` on disk. Opened by `open_sqlite`, and to be closed: its threads keep the process from ending."""

    def __init__(self, home: _Home, writer: WriterThread) -> None:
        super().__init__(home.owner.id, home.owners.living, home.owners.holding)
        self._home = home
        self._writer = writer
        self._write = writer.put
        self._readers = ReaderThreads(home.path)

    @property
    def location(self) -> str:
        """The database file."""
        return self._home.path

    def stats(self) -> StoreStats:
        return StoreStats(self._writer.waiting, self._readers.waiting)

    async def _read(self, query: Callable[[Connection], T]) -> T:
        return await self._readers.ask(query)

    async def close(self) -> None:
        # Those who stop waiting change nothing: the threads write what was submitted, and end by themselves.
        self._writer.end()
        self._readers.end()
        await self._readers.ended()
        await self._writer.ended()


class _Home:
    """A home as the writing thread finds it, or makes it. The store is alive from `open` to `close`."""

    owners: Owners
    owner: Owner

    def __init__(self, folder: str) -> None:
        self._folder = os.path.abspath(folder)
        self._connection: Connection | None = None
        self.path: str = os.path.join(self._folder, FILE_NAME)

    def open(self) -> Transactions:
        try:
            os.makedirs(self._folder, mode=0o700, exist_ok=True)
            self.owners = Owners(self._folder)
            with self.owners.alone():
                users = self.owners.sweep()
                self._connection = schema.open_database(self.path, users=users)
                self.owner = self.owners.enter()
        except Exception as error:
            self._disconnect()
            raise failure(error, self.path) from error
        return Transactions(self._connection, self.path, self.owner.id)

    def beat(self) -> None:
        self.owner.beat()

    def close(self) -> None:
        self._disconnect()
        self.owner.leave()

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()


async def open_sqlite(home: str | os.PathLike[str]) -> SqliteStore:
    """The store in this home, which is made when it is missing. Raises `StoreError`."""
    folder = _Home(os.fspath(home))
    writer = WriterThread(folder)
    try:
        await writer.opened
    except BaseException:
        writer.end()  # it closes what it opened, if it did
        raise
    return SqliteStore(folder, writer)
