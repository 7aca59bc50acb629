"""What every back end does around its writing: the writes of many callers become few, in an order that is right.

    submit(…) ─▶ `Batch`          one call: its thread, the fence, the writes
                 `rounds`         calls of a thread that follow each other become one; those of several go together
                 `Batch.check`    whose writes they are, and their numbers
                 `merged`         what is replaced before anybody can see it is left out

                 `join`           events that follow each other share a row
    done(error) ◀─ `report_outcomes`

No connection, no SQL. Here are also the errors that every back end has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from operator import attrgetter
from types import TracebackType
from typing import Any, Final, NamedTuple, Self, TypeVar

from treadle.store.contract import (
    Claim,
    Compaction,
    CopyTurns,
    DeleteThread,
    Done,
    DropItem,
    DropQueued,
    EventRecord,
    HistoryRecord,
    ItemRecord,
    QueuedRecord,
    StoreError,
    ThreadRecord,
    TurnRecord,
    Write,
)

W = TypeVar("W")

_thread_id: Final = attrgetter("thread_id")
# The thread that is written to, where it has another name.
_TARGETS: Final[dict[type, Callable[[Write], str]]] = {
    ThreadRecord: attrgetter("id"),
    CopyTurns: attrgetter("target_id"),
}


class Batch(NamedTuple):
    """The writes of one call of `submit`. They follow event `after_seq`, when that is given."""

    thread_id: str
    fence: int
    writes: tuple[Write, ...]
    after_seq: int | None = None

    def joined(self, later: Batch) -> Batch | None:
        """The two batches as one, when the later one says that it follows this one, and does not read from a thread
        that was written to in between."""
        last_seq = next((write.seq for write in reversed(self.writes) if type(write) is EventRecord), self.after_seq)
        if later.fence != self.fence or later.after_seq is None or later.after_seq != last_seq:
            return None
        if any(type(write) is CopyTurns for write in later.writes):
            return None
        return self._replace(writes=self.writes + later.writes)

    @property
    def makes_thread(self) -> bool:
        """Whether this may be the first that is written to a thread."""
        return self.fence == 0 and bool(self.writes) and type(self.writes[0]) is ThreadRecord

    @property
    def first_seq(self) -> int | None:
        """The number of its first event, which has to be above those that are stored; None without one."""
        for write in self.writes:
            if isinstance(write, EventRecord | DeleteThread):
                return write.seq if isinstance(write, EventRecord) else None
        return None

    def check(self, last_seq: int) -> None:
        """Whether this may be written to its thread, whose last event has this number. Raises `StoreError`."""
        for write in self.writes:
            if _TARGETS.get(type(write), _thread_id)(write) != self.thread_id:
                raise StoreError(f"a {type(write).__name__} of another thread is among the writes of {self.thread_id}")
            if isinstance(write, EventRecord):
                # No table can tell: only the last number of a row is a key in it, and pruned ones are gone.
                if write.seq <= last_seq:
                    raise number_in_use(EventRecord)
                last_seq = write.seq
            elif isinstance(write, DeleteThread):
                last_seq = 0


def rounds(works: Iterable[Batch | W]) -> list[tuple[Batch, ...] | W]:
    """Batches that can be checked and written together, each to another thread, and between them whatever else is
    among the works. Writes of a thread are made before the next of that thread are checked, unless they are known to
    follow."""
    found: list[tuple[Batch, ...] | W] = []
    batches: dict[str, Batch] = {}
    for work in works:
        if not isinstance(work, Batch):
            if batches:
                found.append(tuple(batches.values()))
                batches = {}
            found.append(work)
            continue
        before = batches.get(work.thread_id)
        joined = work if before is None else before.joined(work)
        if joined is None:
            found.append(tuple(batches.values()))
            batches = {}
        batches[work.thread_id] = joined or work
    if batches:
        found.append(tuple(batches.values()))
    return found


# --- fewer writes ----------------------------------------------------------------------------------------------------

# What a write replaces: an earlier one of the same kind and key. A write that drops a record replaces that record.
_KEYS: Final[dict[type, tuple[type, Callable[[Any], Any]]]] = {
    ThreadRecord: (ThreadRecord, attrgetter("id")),
    TurnRecord: (TurnRecord, attrgetter("thread_id", "number")),
    ItemRecord: (ItemRecord, attrgetter("thread_id", "number")),
    DropItem: (ItemRecord, attrgetter("thread_id", "number")),
    QueuedRecord: (QueuedRecord, attrgetter("thread_id", "id")),
    DropQueued: (QueuedRecord, attrgetter("thread_id", "id")),
    Compaction: (Compaction, attrgetter("thread_id", "turn")),
}
# Added, never replaced; a number that is used twice is found out by the writing itself.
_ADDED: Final = (HistoryRecord, EventRecord)
# A thread goes first: all the others belong to one.
_ORDER: Final = (
    *(ThreadRecord, TurnRecord, ItemRecord, DropItem, HistoryRecord, Compaction, EventRecord),
    *(QueuedRecord, DropQueued),
)


def merged(writes: Iterable[Write]) -> list[Sequence[Write]]:
    """Runs of writes of one type that come to the same as `writes` in their order, when all become visible together.

    A record that is written several times is written once, as it ends up. Writes of several threads may be mixed. Those
    that act on more than one record stay at their place: what was before them is written before, what comes after them
    after.
    """
    runs: list[Sequence[Write]] = []
    last: dict[tuple[type, Any], Write] = {}
    added: dict[type, list[Write]] = {}
    every: tuple[Any, ...] = (*writes, None)
    for write in every:
        kind = type(write)
        if kind in _ADDED:
            added.setdefault(kind, []).append(write)
        elif (found := _KEYS.get(kind)) is not None:
            replaced, key = found
            last[replaced, key(write)] = write
        else:  # a write that acts on more than one record, or the end
            by_kind: dict[type, list[Write]] = {kind: [] for kind in _ORDER} | added
            for single in last.values():
                by_kind[type(single)].append(single)
            runs += filter(None, by_kind.values())
            if write is not None:
                runs.append((write,))
            last, added = {}, {}
    return runs


# --- events ----------------------------------------------------------------------------------------------------------

# Between the frames of a row: JSON has no newline inside, unless somebody laid it out over lines.
SEPARATOR: Final = b"\n"


class EventRow(NamedTuple):
    """A row of the table of events: those that were committed together, with numbers that follow each other."""

    thread_id: str
    first_seq: int
    last_seq: int
    frames: bytes


# Reading one event reads the whole row: it must not be much more than a page of events that a client asks for.
MAX_EVENTS: Final = 256
MAX_EVENT_BYTES: Final = 64 * 1024


def join(events: Iterable[EventRecord]) -> Iterator[EventRow]:
    """The rows of these events, in their order; only numbers that follow each other share one.

    A frame of several lines is alone in its row: a newline separates the frames.
    """
    held: list[EventRecord] = []
    size = 0
    for event in events:
        if held:
            last = held[-1]
            fits = (
                event.seq == last.seq + 1
                and event.thread_id == last.thread_id
                and len(held) < MAX_EVENTS
                and size + len(event.frame) <= MAX_EVENT_BYTES
                and SEPARATOR not in event.frame
                and SEPARATOR not in last.frame
            )
            if not fits:
                yield _event_row(held)
                held, size = [], 0
        held.append(event)
        size += len(event.frame)
    if held:
        yield _event_row(held)


def _event_row(events: list[EventRecord]) -> EventRow:
    frames = SEPARATOR.join([event.frame for event in events])
    return EventRow(events[0].thread_id, events[0].seq, events[-1].seq, frames)


# --- callers ---------------------------------------------------------------------------------------------------------

# Servers release a thread a moment after they have used it.
CLAIM_PATIENCE_S: Final = 0.5
CLAIM_AGAIN_S: Final = 0.02


class GroupStore:
    """The part of `Store` that is the same for every back end which commits in groups: waiting, patience, closing.

    A back end has `submit` and `_claim_once`, and calls `report_outcomes` when a group is committed.
    """

    def submit(
        self, thread_id: str, fence: int, writes: Sequence[Write], done: Done, after_seq: int | None = None
    ) -> None:
        raise NotImplementedError

    async def _claim_once(self, thread_id: str, known_fence: int) -> Claim:
        raise NotImplementedError

    async def close(self) -> None:
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

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


def report_outcomes(loop: asyncio.AbstractEventLoop, outcomes: Sequence[tuple[Done, StoreError | None]]) -> None:
    """Call every `done`, also after one that failed."""
    for done, error in outcomes:
        try:
            done(error)
        except Exception as problem:
            loop.call_exception_handler({"message": "a callback of the store failed", "exception": problem})


def settle(future: asyncio.Future[Any], error: Exception | None, value: object = None) -> None:
    """Give the future its error, or else its value, unless its caller was cancelled."""
    if future.done():
        return
    if error is None:
        future.set_result(value)
    else:
        future.set_exception(error)


# --- errors ----------------------------------------------------------------------------------------------------------


def no_thread(thread_id: str) -> StoreError:
    return StoreError(f"there is no thread {thread_id}: it was deleted or never stored", "missing")


def number_in_use(kind: type) -> StoreError:
    return StoreError(f"a {kind.__name__} has a number that is in use already, and these are never replaced")


def stale(thread_id: str, owner: str) -> StoreError:
    return StoreError(
        f"{owner} has taken over thread {thread_id}, and nothing more is written to it from here: resume "
        "the thread to go on from where it is now",
        "stale",
    )


def claimed(thread_id: str, owner: str) -> StoreError:
    return StoreError(f"{owner} is working on thread {thread_id}: end that one, or use it instead", "claimed")


def not_stored(thread_id: str, after_seq: int | None) -> StoreError:
    return StoreError(f"event {after_seq} of thread {thread_id} was not stored, nor is what follows it")


def has_turns(thread_id: str) -> StoreError:
    return StoreError(f"thread {thread_id} has turns already, so none can be copied into it")


def closed() -> StoreError:
    return StoreError("the store is closed: open it again to use it")
