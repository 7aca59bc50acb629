"""`SqliteBase`: the `Store` interface as jobs for one SQLite connection that writes and some that read.

It owns the futures: a caller that awaits may be cancelled at any time, and the job goes on without it. Where the jobs
run is the matter of the two stores that inherit from it: `SqliteStore` has threads and a file, `EphemeralStore` below
has a database in memory and works on the event loop itself.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from sqlite3 import Connection
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from treadle.store.contract import (
    Claim,
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
    ThreadPage,
    ThreadQuery,
    TurnRecord,
    Write,
)
from treadle.store.sqlite import queries, schema
from treadle.store.sqlite.failures import failure
from treadle.store.sqlite.owners import Living
from treadle.store.sqlite.writes import Batch, Transactions, Work, claim

T = TypeVar("T")
_OWNER: Final = "memory"
# Servers release a thread a moment after they have used it.
CLAIM_PATIENCE_S: Final = 0.5
CLAIM_AGAIN_S: Final = 0.02


class SqliteBase:
    """A `Store`, but for `location`, `_write`, `_read` and `close`.

    `_write` does the work in a transaction; then it calls `done`, on the event loop and in the order of the calls.

    An owner that is `living` may still end its turns; only one that is `holding` keeps its claims.
    """

    _write: Callable[[Work, Done], None]

    def __init__(self, owner_id: str, living: Living, holding: Living) -> None:
        self._owner_id = owner_id
        self._living = living
        self._holding = holding

    async def _read(self, query: Callable[[Connection], T]) -> T:
        raise NotImplementedError

    async def close(self) -> None:
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # --- writing -----------------------------------------------------------------------------------------------------

    def submit(
        self, thread_id: str, fence: int, writes: Sequence[Write], done: Done, after_seq: int | None = None
    ) -> None:
        self._write(Batch(thread_id, fence, tuple(writes), after_seq), done)

    async def commit(self, thread_id: str, fence: int, writes: Sequence[Write]) -> None:
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.submit(thread_id, fence, writes, partial(settle, written))
        await written

    async def claim(self, thread_id: str, known_fence: int) -> Claim:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + CLAIM_PATIENCE_S
        while True:
            try:
                return await self._claim_once(thread_id, known_fence)
            except StoreError as error:
                if error.kind != "claimed" or loop.time() >= deadline:
                    raise
            await asyncio.sleep(CLAIM_AGAIN_S)

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
        return await self._read(lambda connection: queries.events(connection, thread_id, after_seq, limit))

    async def queue(self, thread_id: str) -> list[QueuedRecord]:
        return await self._read(lambda connection: queries.queue(connection, thread_id))

    async def threads(self, query: ThreadQuery) -> ThreadPage:
        return await self._read(lambda connection: queries.threads(connection, query))

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
        super().__init__(_OWNER, lambda owner_id: None, lambda owner_id: None)
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


def report_outcomes(loop: asyncio.AbstractEventLoop, outcomes: Sequence[tuple[Done, StoreError | None]]) -> None:
    """Call every `done`, also after one that failed."""
    for done, error in outcomes:
        try:
            done(error)
        except Exception as problem:
            loop.call_exception_handler({"message": "a callback of the store failed", "exception": problem})


def closed() -> StoreError:
    return StoreError("the store is closed: open it again to use it")


def settle(future: asyncio.Future[Any], error: Exception | None, value: object = None) -> None:
    """Give the future its error, or else its value, unless its caller was cancelled."""
    if future.done():
        return
    if error is None:
        future.set_result(value)
    else:
        future.set_exception(error)
