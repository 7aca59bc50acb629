"""The operating-system threads of a store: one that writes, a few that read.

They own their connections and their queues. The queues are bounded by their users: each waits for an answer before it
asks for more. What comes back goes through `call_soon_threadsafe`, once for a whole group of writes.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

from treadle.store.contract import Done
from treadle.store.owners import BEAT_S
from treadle.store.sqlite import schema
from treadle.store.sqlite.failures import failure
from treadle.store.sqlite.sql_store import Work, announce, closed
from treadle.store.sqlite.transaction import Transactions

T = TypeVar("T")
_WriteJob: TypeAlias = tuple[Work, Done]
_ReadJob: TypeAlias = "tuple[Callable[[sqlite3.Connection], Any], asyncio.Future[Any]]"

# The second is for short questions while the first searches.
READERS: Final = 2


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
        """What is there is still taken; nothing more comes."""
        if not self._ended:
            self._ended = True
            self._queue.put(None)

    def take(self) -> T | None:
        """The next job, or None at the end."""
        job = self._queue.get()
        if job is None:
            self._queue.put(None)  # for the others who take from it
        return job

    def take_all(self, timeout_s: float) -> list[T] | None:
        """All that there is; nothing when nothing has come for so long, None at the end."""
        jobs: list[T] = []
        with suppress(Empty):
            job = self._queue.get(timeout=timeout_s)
            while job is not None:
                jobs.append(job)
                job = self._queue.get_nowait()
            self._queue.put(None)  # it ends when it is looked at again
            return jobs or None
        return jobs


class Database(Protocol):
    """What the writing thread writes to; it alone calls these."""

    def open(self) -> Transactions: ...

    def beat(self) -> None:
        """Called every `BEAT_S` at least, unless the disk hangs: it says that the store still answers."""

    def close(self) -> None: ...


class WriterThread:
    """Opens the database, writes everything that was put, in order and a group at a time, and closes it.

    `opened` fails with what `open` raises; then there is nothing to close.
    """

    def __init__(self, database: Database) -> None:
        self._loop = asyncio.get_running_loop()
        self._database = database
        self._jobs: _Jobs[_WriteJob] = _Jobs()
        self._thread = threading.Thread(target=self._run, name="treadle-store-writer", daemon=True)
        self.opened: asyncio.Future[None] = self._loop.create_future()
        self._ended = asyncio.Event()
        self._thread.start()

    def put(self, work: Work, done: Done) -> None:
        if not self._jobs.put((work, done)):
            self._loop.call_soon(announce, self._loop, [(done, closed())])

    def end(self) -> None:
        """Write what was put, then end."""
        self._jobs.end()

    async def ended(self) -> None:
        await self._ended.wait()
        self._thread.join()

    @property
    def waiting(self) -> int:
        return len(self._jobs)

    def _run(self) -> None:
        try:
            transactions = self._database.open()
        except Exception as error:
            _tell(self._loop, _fail, self.opened, error)
        else:
            _tell(self._loop, _succeed, self.opened, None)
            self._serve(transactions)
            self._database.close()
        finally:
            _tell(self._loop, self._ended.set)

    def _serve(self, transactions: Transactions) -> None:
        while (jobs := self._jobs.take_all(BEAT_S)) is not None:
            self._database.beat()
            if not jobs:
                continue
            errors = transactions.run([work for work, _ in jobs])
            outcomes = [(done, error) for (_, done), error in zip(jobs, errors, strict=True)]
            _tell(self._loop, announce, self._loop, outcomes)
            del jobs, errors, outcomes  # or a thread that waits would keep what it wrote last in memory


class ReaderThreads:
    """Answers questions, each on a connection that sees what is committed and waits for no writer."""

    def __init__(self, path: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._path = path
        self._jobs: _Jobs[_ReadJob] = _Jobs()
        self._threads = [
            threading.Thread(target=self._run, name=f"treadle-store-reader-{number}", daemon=True)
            for number in range(READERS)
        ]
        self._running = len(self._threads)
        self._ended = asyncio.Event()
        for thread in self._threads:
            thread.start()

    async def ask(self, query: Callable[[sqlite3.Connection], T]) -> T:
        answer: asyncio.Future[T] = self._loop.create_future()
        if not self._jobs.put((query, answer)):
            raise closed()
        return await answer

    def end(self) -> None:
        self._jobs.end()

    async def ended(self) -> None:
        await self._ended.wait()
        for thread in self._threads:
            thread.join()

    @property
    def waiting(self) -> int:
        return len(self._jobs)

    def _run(self) -> None:
        connection: sqlite3.Connection | None = None
        while job := self._jobs.take():
            query, answer = job
            try:
                # Opened with the first question: most servers that start have none.
                connection = connection or schema.connect_reader(self._path)
                _tell(self._loop, _succeed, answer, query(connection))
            except Exception as error:
                _tell(self._loop, _fail, answer, failure(error, self._path))
            del job, query, answer  # or a thread that waits would keep the last answer in memory
        if connection is not None:
            connection.close()
        _tell(self._loop, self._one_ended)

    def _one_ended(self) -> None:
        self._running -= 1
        if not self._running:
            self._ended.set()


def _tell(loop: asyncio.AbstractEventLoop, call: Callable[..., object], *arguments: object) -> None:
    # A loop that is closed has nobody left to tell.
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(call, *arguments)


def _succeed(future: asyncio.Future[Any], value: object) -> None:
    if not future.done():
        future.set_result(value)


def _fail(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
