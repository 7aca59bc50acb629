"""What all stores on SQL have in common: the interface, as jobs for one connection that writes and some that read.

It owns the futures: who awaits may be cancelled at any time, and the job goes on without them. Where the jobs run is
said by the store that inherits from it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from sqlite3 import Connection
from types import TracebackType
from typing import Final, Self, TypeAlias, TypeVar

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
from treadle.store.owners import Living
from treadle.store.sqlite import queries
from treadle.store.sqlite.writes import Batch, claim

T = TypeVar("T")
# What one caller wants written: plain writes, or a function that has the transaction to itself.
Work: TypeAlias = Batch | Callable[[Connection], None]


# Servers let go of a thread a moment after they have used it.
CLAIM_PATIENCE_S: Final = 0.5
CLAIM_AGAIN_S: Final = 0.02


class SqlStore:
    """A `Store`, but for `location`, `_write`, `_read` and `close`.

    `_write` does the work in a transaction; then `done`, on the event loop and in the order of the calls.

    Whoever is `living` may still end its turns; only who is `holding` keeps its claims.
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
        self.submit(thread_id, fence, writes, partial(_settle, written))
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
                self.submit(thread_id, made[-1].fence, (Release(thread_id),), _ignore)
            _settle(claimed, error)

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


def announce(loop: asyncio.AbstractEventLoop, outcomes: Sequence[tuple[Done, StoreError | None]]) -> None:
    """Call every `done`, also after one that failed."""
    for done, error in outcomes:
        try:
            done(error)
        except Exception as problem:
            loop.call_exception_handler({"message": "a callback of the store failed", "exception": problem})


def closed() -> StoreError:
    return StoreError("the store is closed: open it again to use it")


def _settle(future: asyncio.Future[None], error: StoreError | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)


def _ignore(error: StoreError | None) -> None:
    """For writes whose outcome changes nothing."""
