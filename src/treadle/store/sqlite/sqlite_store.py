"""The `Store` interface on SQLite: `SqliteStore`, threads in `threads.db` of a home for this process and any other on
the same machine, and `EphemeralStore`, threads in memory that end with the process.

`SqliteBase` has the interface, as jobs for one connection that writes and some that read, and owns the futures: a
caller that awaits may be cancelled at any time, and the job goes on without it. The store in memory works on the event
loop itself. That on disk owns operating-system threads, one that writes and two that read, with their connections and
queues. The queues are bounded by their users: each waits for an answer before it asks for more. What comes back goes
through `call_soon_threadsafe`, once for a whole group of writes:

    event loop            writer thread                              event loop
    put(work, done) ─▶ take_all ─▶ Transactions.run(all works) ─▶ report_outcomes: done(error) of each
    ask(query) ──────▶ take ─────▶ query(connection)  (a reader thread) ─▶ the caller's future

The writer thread also opens the database and closes it, and holds the lock that shows that this store is alive.
"""

from __future__ import annotations

import asyncio
import math
import os
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from sqlite3 import Connection
from typing import Any, Final, Generic, TypeAlias, TypeVar
from urllib.parse import unquote, urlsplit

from msgspec import Struct

from treadle.logs.metrics import COMMIT_FAILURES, COMMIT_SECONDS
from treadle.store.batches import Batch, GroupStore, closed, report_outcomes, settle
from treadle.store.contract import (
    Claim,
    Compaction,
    Done,
    EventPage,
    HistoryRecord,
    ItemRecord,
    Loaded,
    MessageText,
    QueuedRecord,
    Release,
    SearchHit,
    StoreError,
    StoreServer,
    ThreadPage,
    ThreadQuery,
    TurnRecord,
    UnusedThread,
    Write,
)
from treadle.store.sqlite import queries, schema
from treadle.store.sqlite.failures import failure
from treadle.store.sqlite.owners import BEAT_S, Living, LoadedMarks, Owner, Owners, server_of
from treadle.store.sqlite.writes import Transactions, Work, claim, delete_unused, give_back

T = TypeVar("T")
_ReadJob: TypeAlias = "tuple[Callable[[sqlite3.Connection], Any], asyncio.Future[Any]]"

FILE_NAME: Final = "threads.db"
# The second is for short questions while the first searches.
READERS: Final = 2

_OWNER: Final = "memory"


class SqliteBase(GroupStore):
    """A `Store`, but for `_write`, `_read`, `mark_loaded`, `close`, and what is known of the place and its servers.

    `_write` does the work in a transaction; then it calls `done`, on the event loop and in the order of the calls.

    An owner that is `living` may still end its turns; only one that is `holding` keeps its claims. `is_loaded` says
    whether some store has marked a thread; it is called where the writing is done.
    """

    _write: Callable[[Work, Done], None]

    def __init__(self, owner_id: str, living: Living, holding: Living, is_loaded: Callable[[str], bool]) -> None:
        self._owner_id = owner_id
        self._living = living
        self._holding = holding
        self._is_loaded = is_loaded

    @property
    def epoch(self) -> str:
        raise NotImplementedError

    async def _read(self, query: Callable[[Connection], T]) -> T:
        raise NotImplementedError

    # --- writing -----------------------------------------------------------------------------------------------------

    def submit(
        self, thread_id: str, fence: int, writes: Sequence[Write], done: Done, after_seq: int | None = None
    ) -> None:
        self._write(Batch(thread_id, fence, tuple(writes), after_seq), done)

    async def delete_unused(self, thread_id: str, before: int) -> bool:
        return await self._change(
            lambda connection: delete_unused(connection, thread_id, before, self._holding, self._is_loaded)
        )

    async def shrink(self) -> None:
        while await self._change(give_back):
            pass

    async def _change(self, change: Callable[[Connection], T]) -> T:
        """Do something in a transaction; what it answers."""
        answers: list[T] = []  # once more when the group that it was in failed
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._write(lambda connection: answers.append(change(connection)), partial(settle, written))
        await written
        return answers[-1]

    async def _claim_once(self, thread_id: str, known_fence: int) -> Claim:
        made: list[Claim] = []  # once more when the group that it was in failed

        def work(connection: Connection) -> None:
            made.append(claim(connection, thread_id, known_fence, self._owner_id, self._holding))

        def done(error: StoreError | None) -> None:
            if claimed.cancelled() and error is None:
                # Nobody knows that it is held, so nobody would release it.
                self.submit(thread_id, made[-1].fence, (Release(thread_id),), lambda error: None)
            settle(claimed, error)

        claimed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._write(work, done)
        await claimed
        return made[-1]

    # --- reading -----------------------------------------------------------------------------------------------------

    async def load(self, thread_id: str) -> Loaded | None:
        return await self._read(lambda connection: queries.load(connection, thread_id))

    async def history(self, thread_id: str) -> list[HistoryRecord]:
        return await self._read(lambda connection: queries.history(connection, thread_id))

    async def turns(
        self, thread_id: str, *, after: int | None = None, limit: int | None = None, descending: bool = False
    ) -> list[TurnRecord]:
        return await self._read(
            lambda connection: queries.turns(
                connection, self._owner_id, self._living, thread_id, after, limit, descending
            )
        )

    async def turn(self, thread_id: str, turn_id: str) -> TurnRecord | None:
        return await self._read(
            lambda connection: queries.turn(connection, self._owner_id, self._living, thread_id, turn_id)
        )

    async def items(
        self,
        thread_id: str,
        *,
        turns: tuple[int, int] | None = None,
        after: int | None = None,
        limit: int | None = None,
        descending: bool = False,
    ) -> list[ItemRecord]:
        return await self._read(
            lambda connection: queries.items(connection, thread_id, turns, after, limit, descending)
        )

    async def item(self, thread_id: str, item_id: str) -> ItemRecord | None:
        return await self._read(lambda connection: queries.item(connection, thread_id, item_id))

    async def events(self, thread_id: str, after_seq: int, limit: int) -> EventPage:
        return await self._read(lambda connection: queries.events(connection, thread_id, after_seq, limit, self.epoch))

    async def thread_ids(self, after: str, limit: int) -> list[str]:
        return await self._read(lambda connection: queries.thread_ids(connection, after, limit))

    async def whole_history(self, thread_id: str, after: int, limit: int) -> list[HistoryRecord]:
        return await self._read(lambda connection: queries.whole_history(connection, thread_id, after, limit))

    async def compactions(self, thread_id: str) -> list[Compaction]:
        return await self._read(lambda connection: queries.compactions(connection, thread_id))

    async def queue(self, thread_id: str) -> list[QueuedRecord]:
        return await self._read(lambda connection: queries.queue(connection, thread_id))

    async def threads(self, query: ThreadQuery) -> ThreadPage:
        return await self._read(lambda connection: queries.threads(connection, query))

    async def unused(self, before: int) -> list[UnusedThread]:
        return await self._read(lambda connection: queries.unused(connection, before))

    async def search(self, words: str, limit: int = 20) -> list[SearchHit]:
        return await self._read(lambda connection: queries.search(connection, words, limit))

    async def messages(self, thread_id: str, part: str, *, first: int = 0, limit: int = 100) -> list[MessageText]:
        return await self._read(lambda connection: queries.messages(connection, thread_id, part, first, limit))


class EphemeralStore(SqliteBase):
    """A `Store` without files, which ends with the process. Nobody else can see it, so every claim succeeds.

    It is quick enough to be used on the event loop itself, so it has no threads, and one serves any number of ephemeral
    conversations.
    """

    def __init__(self) -> None:
        self._loaded: set[str] = set()
        super().__init__(_OWNER, lambda owner_id: None, lambda owner_id: None, self._loaded.__contains__)
        self._connection: Connection | None = schema.open_memory()
        self._epoch = queries.epoch_of(self._connection)
        self._transactions = Transactions(self._connection, schema.MEMORY, _OWNER)
        self._outcomes: deque[tuple[Done, StoreError | None]] = deque()

    @property
    def location(self) -> None:
        return None

    @property
    def epoch(self) -> str:
        return self._epoch

    @property
    def held_until(self) -> float:
        return math.inf

    async def servers(self) -> list[StoreServer]:
        return [StoreServer(_OWNER, "this server", 0.0, True)]

    async def owner_of(self, thread_id: str) -> StoreServer | None:
        held = await self._read(lambda connection: queries.owner_of(connection, thread_id))
        return None if held is None else (await self.servers())[0]

    def mark_loaded(self, thread_id: str, loaded: bool) -> None:
        (self._loaded.add if loaded else self._loaded.discard)(thread_id)

    def _write(self, work: Work, done: Done) -> None:
        error = closed() if self._connection is None else self._transactions.run((work,))[0]
        loop = asyncio.get_running_loop()
        if not self._outcomes:
            loop.call_soon(self._report, loop)
        self._outcomes.append((done, error))

    def _report(self, loop: asyncio.AbstractEventLoop) -> None:
        outcomes = tuple(self._outcomes)
        self._outcomes.clear()
        report_outcomes(loop, outcomes)

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
            self._report(asyncio.get_running_loop())


# --- on disk ---------------------------------------------------------------------------------------------------------


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


async def open_sqlite_url(url: str) -> SqliteStore:
    """The store in the home that a URL names: `sqlite:///var/lib/treadle`. Raises `StoreError`."""
    parts = urlsplit(url)
    home = unquote(parts.path)
    if parts.netloc or not home.strip("/") or parts.query:
        raise StoreError(f"{url} names no home: sqlite:///PATH, with three slashes before an absolute path")
    return await open_sqlite(home)


class SqliteStore(SqliteBase):
    """A `Store` on disk. Opened by `open_sqlite`, and to be closed: its threads keep the process from ending."""

    def __init__(self, writer: _Writer) -> None:
        super().__init__(writer.owner.id, writer.owners.living, writer.owners.holding, writer.marks.has)
        self._writer = writer
        self._write = writer.put
        self._readers = _Readers(writer.path)

    @property
    def location(self) -> str:
        """The database file."""
        return self._writer.path

    @property
    def epoch(self) -> str:
        return self._writer.epoch

    @property
    def held_until(self) -> float:
        return self._writer.owner.held_until

    def mark_loaded(self, thread_id: str, loaded: bool) -> None:
        self._writer.marks.set(thread_id, loaded)

    async def servers(self) -> list[StoreServer]:
        return self._writer.owners.servers()

    async def owner_of(self, thread_id: str) -> StoreServer | None:
        owner_id = await self._read(lambda connection: queries.owner_of(connection, thread_id))
        if owner_id is None:
            return None
        try:
            return self._writer.owners.server(owner_id)
        except FileNotFoundError:
            return StoreServer(owner_id, server_of(owner_id), math.inf, False)

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
    marks: LoadedMarks
    epoch: str

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
                self.marks = LoadedMarks(self._folder)
                self.epoch = queries.epoch_of(connection)
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
                began = time.perf_counter()
                errors = transactions.run([work for work, _ in jobs])
                COMMIT_SECONDS.add(time.perf_counter() - began)
                for problem in filter(None, errors):
                    COMMIT_FAILURES.add(problem.kind)
                outcomes = [(done, problem) for (_, done), problem in zip(jobs, errors, strict=True)]
                _call(self._loop, report_outcomes, self._loop, outcomes)
                del jobs, errors, outcomes  # or a thread that waits would hold what it wrote last in memory
            connection.close()
            self.marks.close()
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
