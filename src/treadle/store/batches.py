"""What every back end does before it writes: the writes of many callers become few, in an order that is right.

    submit(…) ─▶ `Batch`          one call: its thread, the fence, the writes
                 `rounds`         calls of a thread that follow each other become one; those of several go together
                 `Batch.check`    whose writes they are, and their numbers
                 `merged`         what is replaced before anybody can see it is left out

Pure: no connection, no SQL. Here are also the errors that every back end has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any, Final, NamedTuple, TypeVar

from treadle.store.contract import (
    Compaction,
    CopyTurns,
    DeleteThread,
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


def rounds(works: Iterable[Batch | W]) -> Iterator[tuple[Batch, ...] | W]:
    """Batches that can be checked and written together, each to another thread, and between them whatever else is
    among the works. Writes of a thread are made before the next of that thread are checked, unless they are known to
    follow."""
    batches: dict[str, Batch] = {}
    for work in works:
        if not isinstance(work, Batch):
            if batches:
                yield tuple(batches.values())
                batches = {}
            yield work
            continue
        before = batches.get(work.thread_id)
        joined = work if before is None else before.joined(work)
        if joined is None:
            yield tuple(batches.values())
            batches = {}
        batches[work.thread_id] = joined or work
    if batches:
        yield tuple(batches.values())


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
