"""The same outcome with fewer writes: what is written again before anybody can see it is written once, as it ends up.

Pure: it knows what the writes mean to each other, and nothing of tables. All writes that are merged have to become
visible together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any, Final

from treadle.store.contract import (
    Compaction,
    DropItem,
    DropQueued,
    EventRecord,
    HistoryRecord,
    ItemRecord,
    QueuedRecord,
    ThreadRecord,
    TurnRecord,
    Write,
)

# What a write replaces: an earlier one of the same kind and key. What is dropped replaces its record.
_KEYS: Final[dict[type, tuple[type, Callable[[Any], Any]]]] = {
    ThreadRecord: (ThreadRecord, attrgetter("id")),
    TurnRecord: (TurnRecord, attrgetter("thread_id", "number")),
    ItemRecord: (ItemRecord, attrgetter("thread_id", "number")),
    DropItem: (ItemRecord, attrgetter("thread_id", "number")),
    QueuedRecord: (QueuedRecord, attrgetter("thread_id", "id")),
    DropQueued: (QueuedRecord, attrgetter("thread_id", "id")),
    Compaction: (Compaction, attrgetter("thread_id", "turn")),
}
# Added, never replaced; a number that is used twice has to be found out by who writes them.
_ADDED: Final = (HistoryRecord, EventRecord)
# A thread goes first: all the others belong to one.
_ORDER: Final = (
    *(ThreadRecord, TurnRecord, ItemRecord, DropItem, HistoryRecord, Compaction, EventRecord),
    *(QueuedRecord, DropQueued),
)


def merged(writes: Iterable[Write]) -> Iterator[Sequence[Write]]:
    """Runs of writes of one type, which come to the same as `writes` in their order.

    Writes of several threads may be mixed. Those that act on more than one record stay at their place: what was before
    them is written before, what comes after them after.
    """
    stretch = _Stretch()
    for write in writes:
        if stretch.add(write):
            continue
        yield from stretch.runs()
        yield (write,)
        stretch = _Stretch()
    yield from stretch.runs()


class _Stretch:
    """Writes to single records, none of which depends on another."""

    def __init__(self) -> None:
        self._last: dict[tuple[type, Any], Write] = {}
        self._added: dict[type, list[Write]] = {kind: [] for kind in _ADDED}

    def add(self, write: Write) -> bool:
        """False when it acts on more than one record."""
        kind = type(write)
        if (added := self._added.get(kind)) is not None:
            added.append(write)
        elif (found := _KEYS.get(kind)) is not None:
            name, key = found
            self._last[name, key(write)] = write
        else:
            return False
        return True

    def runs(self) -> Iterator[Sequence[Write]]:
        by_kind: dict[type, list[Write]] = {kind: [] for kind in _ORDER}
        by_kind |= self._added
        for write in self._last.values():
            by_kind[type(write)].append(write)
        return (run for run in by_kind.values() if run)
