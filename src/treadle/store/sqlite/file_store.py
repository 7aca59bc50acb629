"""`SqliteStore`: threads in `threads.db` of a home, for this process and any other on the same machine.

It owns the operating-system threads, one that writes and two that read, with their connections and queues. The queues
are bounded by their users: each waits for an answer before it asks for more. What comes back goes through
`call_soon_threadsafe`, once for a whole group of writes:

    event loop            writer thread                              event loop
    put(work, done) ─▶ take_all ─▶ Transactions.run(all works) ─▶ report_outcomes: done(error) of each
    ask(query) ──────▶ take ─────▶ query(connection)  (a reader thread) ─▶ the caller's future

The writer thread also opens the database and closes it, and holds the lock that shows that this store is alive.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, Final, Generic, TypeAlias, TypeVar

from msgspec import Struct

from treadle.store.contract import Done
from treadle.store.sqlite import schema
from treadle.store.sqlite.failures import failure
from treadle.store.sqlite.owners import BEAT_S, Owner, Owners
from treadle.store.sqlite.sqlite_base import SqliteBase, closed, report_outcomes, settle
from treadle.store.sqlite.writes import Transactions, Work

T = TypeVar("T")
_ReadJob: TypeAlias = "tuple[Callable[[sqlite3.Connection], Any], asyncio.Future[Any]]"

FILE_NAME: Final = "threads.db"
# The second is for short questions while the first searches.
READERS: Final = 2


class StoreStats(Struct, frozen=True):
    """How many calls wait in the queues, the group at work not counted."""

    waiting_writes: int
    waiting_reads: int


async def open_sqlite(home: str | os.PathLike[str]) -> SqliteStore:
    """The store in this home, which is made when it is missing. Raises `StoreError`."""
    writer = _Writer(os.fspath(home))
    try:
        await writer.opened
    except BaseException:
        writer.jobs.end()  # the thread closes what it opened, if it did
        raise
    return SqliteStore(writer)


class SqliteStore(SqliteBase):
    """A `Store` on disk. Opened by `open_sqlite`, and to be closed: its threads keep the process from ending."""

    def __init__(self, writer: _Writer) -> None:
        super().__init__(writer.owner.id, writer.owners.living, writer.owners.holding)
        self._writer = writer
        self._write = writer.put
        self._readers = _Readers(writer.path)

    @property
    def location(self) -> str:
        """The database file."""
        return self._writer.path

    def stats(self) -> StoreStats:
        return StoreStats(len(self._writer.jobs), len(self._readers.jobs))

    async def _read(self, query: Callable[[sqlite3.Connection], T]) -> T:
        return await self._readers.ask(query)

    async def close(self) -> None:
        # A caller that stops waiting changes nothing: the threads write what was submitted, and end by themselves.
        self._writer.jobs.end()
        self._readers.jobs.end()
        await self._readers.ended()
        await self._writer.ended()


class _Jobs(Generic[T]):
    """A queue from the event loop to threads; only the loop puts and ends.

    A `SimpleQueue`, which is a lock and no more: a `Condition` wakes a thread that then waits for the lock that the
    loop still has.
    """

    def __init__(self) -> None:
        self._queue: SimpleQueue[T | None] = SimpleQueue()  # None is the end
        self._ended = False

    def __len__(self) -> int:
        return self._queue.qsize()

    def put(self, job: T) -> bool:
        """False when the queue has ended."""
        if self._ended:
            return False
        self._queue.put(job)
        return True

    def end(self) -> None:
        """End the queue behind the jobs that are in it."""
        if not self._ended:
            self._ended = True
            self._queue.put(None)

    def take(self) -> T | None:
        """The next job, or None at the end."""
        job = self._queue.get()
        if job is None:
            self._queue.put(None)  # for the other threads that take from it
        return job

    def take_all(self, timeout_s: float) -> list[T] | None:
        """All jobs in the queue; an empty list when none has come for so long, None at the end."""
        jobs: list[T] = []
        with suppress(Empty):
            job = self._queue.get(timeout=timeout_s)
            while job is not None:
                jobs.append(job)
                job = self._queue.get_nowait()
            self._queue.put(None)  # the end is found again by the next call
            return jobs or None
        return jobs


class _Writer:
    """The thread that opens the database, writes everything that was put, in order and a group at a time, and closes
    it. The store is alive, to other processes, from its opening to its closing.

    `opened` fails with what opening raises; then there is nothing to close. `owners` and `owner` are there afterwards.
    """

    owners: Owners
    owner: Owner

    def __init__(self, folder: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._folder = os.path.abspath(folder)
        self.path: str = os.path.join(self._folder, FILE_NAME)
        self.jobs: _Jobs[tuple[Work, Done]] = _Jobs()
        self.opened: asyncio.Future[None] = self._loop.create_future()
        self._ended = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="treadle-store-writer", daemon=True)
        self._thread.start()

    def put(self, work: Work, done: Done) -> None:
        if not self.jobs.put((work, done)):
            self._loop.call_soon(report_outcomes, self._loop, [(done, closed())])

    async def ended(self) -> None:
        await self._ended.wait()
        self._thread.join()

    def _run(self) -> None:
        connection: sqlite3.Connection | None = None
        try:
            os.makedirs(self._folder, mode=0o700, exist_ok=True)
            self.owners = Owners(self._folder)
            with self.owners.alone():
                users = self.owners.sweep()
                connection = schema.open_database(self.path, users=users)
                self.owner = self.owners.enter()
        except Exception as error:
            if connection is not None:
                connection.close()
            _call(self._loop, settle, self.opened, failure(error, self.path))
        else:
            _call(self._loop, settle, self.opened, None)
            transactions = Transactions(connection, self.path, self.owner.id)
            while (jobs := self.jobs.take_all(BEAT_S)) is not None:
                self.owner.beat()
                if not jobs:
                    continue
                errors = transactions.run([work for work, _ in jobs])
                outcomes = [(done, problem) for (_, done), problem in zip(jobs, errors, strict=True)]
                _call(self._loop, report_outcomes, self._loop, outcomes)
                del jobs, errors, outcomes  # or a thread that waits would hold what it wrote last in memory
            connection.close()
            self.owner.leave()
        finally:
            _call(self._loop, self._ended.set)


class _Readers:
    """Threads that answer questions, each on a connection that sees what is committed and waits for no writer."""

    def __init__(self, path: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._path = path
        self.jobs: _Jobs[_ReadJob] = _Jobs()
        self._running = READERS
        self._ended = asyncio.Event()
        self._threads = [
            threading.Thread(target=self._run, name=f"treadle-store-reader-{number}", daemon=True)
            for number in range(READERS)
        ]
        for thread in self._threads:
            thread.start()

    async def ask(self, query: Callable[[sqlite3.Connection], T]) -> T:
        answer: asyncio.Future[T] = self._loop.create_future()
        if not self.jobs.put((query, answer)):
            raise closed()
        return await answer

    async def ended(self) -> None:
        await self._ended.wait()
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        connection: sqlite3.Connection | None = None
        while job := self.jobs.take():
            query, answer = job
            try:
                # Opened with the first question: most servers that start have none.
                connection = connection or schema.connect_reader(self._path)
                _call(self._loop, settle, answer, None, query(connection))
            except Exception as error:
                _call(self._loop, settle, answer, failure(error, self._path))
            del job, query, answer  # or a thread that waits would hold the last answer in memory
        if connection is not None:
            connection.close()
        _call(self._loop, self._count_ended)

    def _count_ended(self) -> None:
        self._running -= 1
        if not self._running:
            self._ended.set()


def _call(loop: asyncio.AbstractEventLoop, call: Callable[..., object], *arguments: object) -> None:
    """Call something on the event loop, from a thread. A loop that is closed has nobody left who waits."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(call, *arguments)
