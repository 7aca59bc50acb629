"""`PostgresStore`: the `Store` interface on PostgreSQL.

What is written goes through the `Writer` (one connection), what is read through a few others, and `Presence` shows on
one more that this store is alive. All of them live on the event loop: nothing here blocks, and nothing has a thread.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from treadle.store.batches import Batch, GroupStore, closed, settle
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
from treadle.store.postgres import queries
from treadle.store.postgres.failures import is_lost, postgres_failure, slow
from treadle.store.postgres.location import Location, connect, parse_location
from treadle.store.postgres.presence import POSTGRES_LEASE_S, Presence, end
from treadle.store.postgres.schema import migrate
from treadle.store.postgres.writer import AGAIN_S, ANSWER_S, Call, Mark, Writer

T = TypeVar("T")

# The others are for short questions while one searches.
READERS: Final = 4
# A search through millions of messages takes seconds; what takes longer hangs.
READ_S: Final = 30.0

_CLAIM: Final = "SELECT new_fence, ours FROM claim_thread($1, $2, $3)"
_DELETE: Final = "SELECT delete_unused($1, $2)"


async def open_postgres(url: str, *, lease_s: float = POSTGRES_LEASE_S) -> PostgresStore:
    """The store in this database, whose tables are made when they are missing. Raises `StoreError`."""
    location = parse_location(url)
    try:
        import asyncpg  # noqa: F401
    except ImportError:
        raise StoreError("the store in PostgreSQL needs its driver: pip install 'treadle[postgres]'") from None
    presence = Presence(location, lease_s=lease_s)
    writer = Writer(location, presence)
    connection: Any = None
    try:
        connection = await connect(location)
        await migrate(connection, location)
        await presence.start(connection)
        await writer.start()
    except BaseException as error:
        await presence.close()
        if connection is not None:
            await end(connection)
        if isinstance(error, Exception):
            raise postgres_failure(error, str(location)) from error
        raise
    return PostgresStore(location, presence, writer)


class PostgresStore(GroupStore):
    """Opened by `open_postgres`, and to be closed."""

    def __init__(self, location: Location, presence: Presence, writer: Writer) -> None:
        self._location = location
        self._presence = presence
        self._writer = writer
        self._idle: list[Any] = []  # connections for reading
        self._readers = asyncio.Semaphore(READERS)
        self._closed = False

    @property
    def location(self) -> str:
        """The URL of the database, without a password."""
        return str(self._location)

    @property
    def epoch(self) -> str:
        return self._presence.epoch

    @property
    def held_until(self) -> float:
        return self._presence.held_until

    # --- writing -----------------------------------------------------------------------------------------------------

    def submit(
        self, thread_id: str, fence: int, writes: Sequence[Write], done: Done, after_seq: int | None = None
    ) -> None:
        self._writer.put(Batch(thread_id, fence, tuple(writes), after_seq), done)

    def mark_loaded(self, thread_id: str, loaded: bool) -> None:
        self._writer.put(Mark(thread_id, loaded), lambda error: None)

    async def _claim_once(self, thread_id: str, known_fence: int) -> Claim:
        made: list[Any] = []
        claimed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def done(error: StoreError | None) -> None:
            if claimed.cancelled() and error is None:
                # Nobody knows that it is held, so nobody would release it.
                self.submit(thread_id, made[-1]["new_fence"], (Release(thread_id),), lambda error: None)
            settle(claimed, error)

        operands = (self._presence.id, thread_id, known_fence)
        self._writer.put(Call(_CLAIM, operands, made.append, repeatable=True), done)
        await claimed
        fence, ours = made[-1]
        # An equal fence is not enough: who read it while another store held the thread has not seen what that wrote.
        return Claim(fence, None if fence == known_fence + 1 and ours else await self.load(thread_id))

    async def delete_unused(self, thread_id: str, before: int) -> bool:
        made: list[Any] = []
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        call = Call(_DELETE, (thread_id, before), made.append, repeatable=False)
        self._writer.put(call, partial(settle, written))
        await written
        return bool(made[-1][0])

    async def shrink(self) -> None:
        """Nothing to do: the database uses the room of what was deleted again, and gives it back by itself."""

    # --- reading -----------------------------------------------------------------------------------------------------

    async def _read(self, query: Callable[[Any], Awaitable[T]]) -> T:
        async with self._readers:
            deadline = time.monotonic() + ANSWER_S
            while True:
                if self._closed:
                    raise closed()
                connection: Any = None
                try:
                    connection = self._idle.pop() if self._idle else await connect(self._location)
                    async with asyncio.timeout(READ_S):
                        answer = await query(connection)
                except BaseException as error:
                    if connection is not None:
                        connection.terminate()  # perhaps in the middle of an answer
                    if not isinstance(error, Exception):
                        raise
                    if isinstance(error, TimeoutError):
                        raise slow(self.location, READ_S) from None
                    if is_lost(error) and time.monotonic() < deadline:
                        # The database is restarted, perhaps; then those that are idle have ended, too.
                        self._drop_idle()
                        await asyncio.sleep(AGAIN_S)
                        continue
                    raise postgres_failure(error, self.location) from error
                if self._closed:
                    await end(connection)
                else:
                    self._idle.append(connection)
                return answer

    def _drop_idle(self) -> None:
        while self._idle:
            self._idle.pop().terminate()

    async def load(self, thread_id: str) -> Loaded | None:
        return await self._read(lambda connection: queries.load(connection, thread_id))

    async def history(self, thread_id: str) -> list[HistoryRecord]:
        return await self._read(lambda connection: queries.history(connection, thread_id))

    async def turns(
        self, thread_id: str, *, after: int | None = None, limit: int | None = None, descending: bool = False
    ) -> list[TurnRecord]:
        return await self._read(
            lambda connection: queries.turns(connection, self._presence.id, thread_id, after, limit, descending)
        )

    async def turn(self, thread_id: str, turn_id: str) -> TurnRecord | None:
        return await self._read(lambda connection: queries.turn(connection, self._presence.id, thread_id, turn_id))

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

    async def servers(self) -> list[StoreServer]:
        return await self._read(queries.servers)

    async def owner_of(self, thread_id: str) -> StoreServer | None:
        return await self._read(lambda connection: queries.owner_of(connection, thread_id))

    async def close(self) -> None:
        if self._closed:
            return
        await self._writer.close()  # what was submitted, under claims that are still ours
        self._closed = True
        idle, self._idle = self._idle, []
        for connection in idle:
            await end(connection)
        await self._presence.close()
