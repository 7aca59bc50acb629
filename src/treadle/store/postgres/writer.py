"""`Writer`: everything that is written, in order, a group at a time, each group in one statement and exactly once.

    put(work, done) ─▶ _queue ─▶ `run`: all that waits is a group ─▶ write_group(number, steps, bytes)
                                    │ refused: each work as a group of its own, so that nobody fails for another
                                    │ connection lost, or no answer in time: connect again and send the same group
                                    │   with the same number, which the database makes once
                                    └▶ done(error) of each, in order

A group whose answer does not come within `PATIENCE_S` is reported as `unknown` when it was sent, else as `unreachable`.
What was sent may still be made after that; so the store writes under another name from then on, and a thread under a
new claim.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias, cast

import msgspec

from treadle.logs.metrics import COMMIT_FAILURES, COMMIT_SECONDS
from treadle.store.batches import Batch, closed, join, merged, report_outcomes, rounds
from treadle.store.contract import (
    Compaction,
    CopyTurns,
    CutTurns,
    DeleteThread,
    Done,
    DropItem,
    DropQueued,
    EventRecord,
    HistoryRecord,
    ItemRecord,
    PruneEvents,
    QueuedRecord,
    Release,
    StoreError,
    ThreadRecord,
    TurnRecord,
)
from treadle.store.postgres.failures import is_lost, postgres_failure, unknown
from treadle.store.postgres.location import Location, connect
from treadle.store.postgres.message_words import vector
from treadle.store.postgres.presence import Presence, end
from treadle.store.rows import text_in

logger: logging.Logger = logging.getLogger(__name__)

# For one answer; a commit takes milliseconds, and longer than this only where the database hangs.
ANSWER_S: Final = 5.0
# For an answer over several connections: a database that is restarted is back by then.
PATIENCE_S: Final = 15.0
AGAIN_S: Final = 0.1
# Works of a group: enough that all who wait go together, and few enough that nobody waits for a large one.
_GROUP: Final = 128

_BACKEND: Final = "SELECT pid, backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid()"
_END_BACKEND: Final = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = $1 AND backend_start = $2"
_NAME: Final = "INSERT INTO writers VALUES ($1, 0) ON CONFLICT DO NOTHING"


class Mark(NamedTuple):
    """Whether a thread is in memory here."""

    thread_id: str
    loaded: bool


class Call(NamedTuple):
    """A statement on its own. `repeatable` says that it may be made twice, where an answer is lost."""

    statement: str
    operands: tuple[object, ...]
    answer: Callable[[Any], None]
    repeatable: bool


Work: TypeAlias = Batch | Mark | Call


# --- a group as the operands of `write_group` -------------------------------------------------------------------------


class Bytes(list[bytes]):
    """What is not JSON of a group; its rows have the places, from 1 on."""

    def put(self, data: bytes | None) -> int | None:
        if data is None:
            return None
        self.append(data)
        return len(self)


def _thread(record: ThreadRecord, data: Bytes) -> tuple[object, ...]:
    return (
        *(record.id, record.created_at, record.updated_at, record.recency_at, record.cwd, record.model),
        *(record.model_provider, record.source, data.put(record.state), record.originator, text_in(record.name)),
        *(text_in(record.preview), record.forked_from_id, record.archived, record.listed, record.parent_thread_id),
    )


def _turn(turn: TurnRecord, data: Bytes) -> tuple[object, ...]:
    times = (turn.started_at, turn.completed_at, turn.duration_ms)
    return (turn.thread_id, turn.number, turn.id, turn.status, *times, data.put(turn.error), data.put(turn.usage))


def _item(item: ItemRecord, data: Bytes) -> tuple[object, ...]:
    return (
        *(item.thread_id, item.number, item.turn, item.id, item.type, data.put(item.data), text_in(item.text)),
        *(item.open, item.started_at_ms, item.completed_at_ms, None if item.text is None else vector(item.text)),
    )


_ROWS: Final[dict[type, tuple[str, Callable[[Any, Bytes], tuple[object, ...]]]]] = {
    ThreadRecord: ("threads", _thread),
    TurnRecord: ("turns", _turn),
    ItemRecord: ("items", _item),
    HistoryRecord: ("history", lambda row, data: (row.thread_id, row.number, row.turn, data.put(row.data))),
    Compaction: ("compactions", lambda row, _: (row.thread_id, row.turn, row.start)),
    QueuedRecord: ("queue", lambda row, data: (row.thread_id, row.id, row.position, data.put(row.data))),
    DropItem: ("drop items", lambda row, _: (row.thread_id, row.number)),
    DropQueued: ("drop queued", lambda row, _: (row.thread_id, row.id)),
}
# Those that act on more than one record: each is a step.
_ACTIONS: Final[dict[type, tuple[str, Callable[[Any], tuple[object, ...]]]]] = {
    CutTurns: ("cut", lambda write: (write.thread_id, write.turn)),
    CopyTurns: (
        "copy",
        lambda copy: (copy.source_id, copy.target_id, copy.last_turn),
    ),
    PruneEvents: ("prune", lambda write: (write.thread_id, write.seq)),
    DeleteThread: ("delete", lambda write: (write.thread_id,)),
    Release: ("release", lambda write: (write.thread_id,)),
}


def steps_of(works: Sequence[Batch | Mark]) -> tuple[str, list[bytes]]:
    """A group as JSON, and the bytes that it names. Raises for what cannot be stored."""
    steps: list[tuple[str, Sequence[object]]] = []
    data = Bytes()
    for each in rounds(works):
        if isinstance(each, Mark):
            steps.append(("loaded" if each.loaded else "unloaded", (each.thread_id,)))
            continue
        for batch in each:
            # Where the event before its first one is: whether that is so, the database knows.
            batch.check((batch.first_seq or 1) - 1)
        steps.append(("check", [(b.thread_id, b.fence, b.after_seq, b.first_seq, b.makes_thread) for b in each]))
        for run in merged(write for batch in each for write in batch.writes):
            kind = type(run[0])
            if kind is EventRecord:
                rows = [
                    (row.thread_id, row.first_seq, row.last_seq, data.put(row.frames))
                    for row in join(cast("Sequence[EventRecord]", run))
                ]
                steps.append(("events", rows))
            elif kind in _ROWS:
                name, row_of = _ROWS[kind]
                steps.append((name, [row_of(write, data) for write in run]))
            else:
                name, operands = _ACTIONS[kind]
                steps.append((name, operands(run[0])))
    return msgspec.json.encode(steps).decode(), data


# --- writing ----------------------------------------------------------------------------------------------------------


class Writer:
    """Its connection is made by `start`, and `close` writes what was put before it."""

    def __init__(self, location: Location, presence: Presence) -> None:
        self._location = location
        self._presence = presence
        self._queue: deque[tuple[Work, Done]] = deque()
        self._wake = asyncio.Event()
        self._ending = False
        self._names = 0
        self._name = presence.id  # under which groups are numbered
        self._number = 0  # of the last group
        self._connection: Any = None
        self._backend: Any = None  # what serves the connection, in the database
        self._running: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._queue)

    async def start(self) -> None:
        await self._connect()
        self._running = asyncio.get_running_loop().create_task(self._run(), name="writes of the store")

    def put(self, work: Work, done: Done) -> None:
        if self._ending:
            loop = asyncio.get_running_loop()
            loop.call_soon(report_outcomes, loop, [(done, closed())])
            return
        self._queue.append((work, done))
        self._wake.set()

    async def close(self) -> None:
        self._ending = True
        self._wake.set()
        if self._running is not None:
            await asyncio.wait([self._running])
        if self._connection is not None:
            await end(self._connection)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while self._queue or not self._ending:
            if not self._queue:
                self._wake.clear()
                await self._wake.wait()
                continue
            jobs = [self._queue.popleft()]
            # A call is alone; else all that waits goes together.
            while self._queue and len(jobs) < _GROUP and not isinstance(self._queue[0][0], Call):
                if isinstance(jobs[0][0], Call):
                    break
                jobs.append(self._queue.popleft())
            began = time.perf_counter()
            errors = await self._write([work for work, _ in jobs])
            COMMIT_SECONDS.add(time.perf_counter() - began)
            for problem in filter(None, errors):
                COMMIT_FAILURES.add(problem.kind)
            report_outcomes(loop, [(done, problem) for (_, done), problem in zip(jobs, errors, strict=True)])

    async def _write(self, works: Sequence[Work]) -> list[StoreError | None]:
        """Do all the works; the outcome of each."""
        error = await self._attempt(works)
        if error is None or len(works) == 1 or error.kind in ("unreachable", "unknown"):
            return [error] * len(works)
        errors: list[StoreError | None] = []
        for work in works:
            # One thread that is locked is no reason for the others to wait; two in a row are more than a thread.
            locked = [last for last in errors[-2:] if last is not None and last.kind == "busy"]
            errors.append(locked[-1] if len(locked) == 2 else await self._attempt((work,)))
        return errors

    async def _attempt(self, works: Sequence[Work]) -> StoreError | None:
        try:
            if isinstance(call := works[0], Call):
                call.answer(await self._ask("fetchrow", call.statement, *call.operands, repeatable=call.repeatable))
                return None
            steps, data = steps_of([work for work in works if not isinstance(work, Call)])
            statement = "SELECT write_group($1, $2, $3, $4, $5)"
            await self._ask("fetchval", statement, self._presence.id, self._name, self._number + 1, steps, data)
            self._number += 1  # a group that was refused has not used its number
        except Exception as error:
            return postgres_failure(error, str(self._location))
        return None

    async def _ask(self, method: str, statement: str, *operands: object, repeatable: bool = True) -> Any:
        """Ask until there is an answer. Raises `StoreError` when there is none, and what the database refuses."""
        deadline = time.monotonic() + (ANSWER_S if self._ending else PATIENCE_S)
        sent = False
        while True:
            try:
                if self._connection is None:
                    await self._connect()
                sent = True
                return await getattr(self._connection, method)(statement, *operands, timeout=ANSWER_S)
            except Exception as error:
                if not is_lost(error):
                    raise
                if self._connection is not None:
                    lost, self._connection = self._connection, None
                    lost.terminate()  # without waiting: it does not answer
                if time.monotonic() >= deadline or (sent and not repeatable):
                    if not sent:
                        raise
                    self._names += 1
                    self._name, self._number = f"{self._presence.id}-{self._names}", 0
                    raise unknown(str(self._location)) from None
                logger.warning("the connection to %s was lost: %s", self._location, error)
                await asyncio.sleep(AGAIN_S)

    async def _connect(self) -> None:
        connection = await connect(self._location)
        try:
            if self._backend is not None:
                # What was sent to it may still be waiting for a lock, or hold one.
                await connection.execute(_END_BACKEND, *self._backend, timeout=ANSWER_S)
            self._backend = await connection.fetchrow(_BACKEND, timeout=ANSWER_S)
            await connection.execute(_NAME, self._name, timeout=ANSWER_S)
        except BaseException:
            connection.terminate()
            raise
        self._connection = connection
