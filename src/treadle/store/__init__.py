"""Threads on disk: `open_store(home)` gives a `SqliteStore`, `MemoryStore()` one that ends with the process.

Both are a `Store`, the interface in `treadle.store.model`. SQLite is loaded when one of them is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from treadle.store.model import (
    Compaction,
    CopyTurns,
    Counters,
    CutTurns,
    DeleteThread,
    Done,
    DropItem,
    EventPage,
    EventRecord,
    HistoryRecord,
    ItemRecord,
    Loaded,
    PruneEvents,
    Release,
    SearchHit,
    SortKey,
    Store,
    StoreError,
    StoreFailure,
    ThreadCursor,
    ThreadPage,
    ThreadQuery,
    ThreadRecord,
    TurnRecord,
    Write,
)

if TYPE_CHECKING:
    from treadle.store.memory import MemoryStore
    from treadle.store.sqlite import SqliteStore, StoreStats, open_store

_HOME = {
    "MemoryStore": "treadle.store.memory",
    "SqliteStore": "treadle.store.sqlite",
    "StoreStats": "treadle.store.sqlite",
    "open_store": "treadle.store.sqlite",
}

__all__ = [
    "Compaction",
    "CopyTurns",
    "Counters",
    "CutTurns",
    "DeleteThread",
    "Done",
    "DropItem",
    "EventPage",
    "EventRecord",
    "HistoryRecord",
    "ItemRecord",
    "Loaded",
    "MemoryStore",
    "PruneEvents",
    "Release",
    "SearchHit",
    "SortKey",
    "SqliteStore",
    "Store",
    "StoreError",
    "StoreFailure",
    "StoreStats",
    "ThreadCursor",
    "ThreadPage",
    "ThreadQuery",
    "ThreadRecord",
    "TurnRecord",
    "Write",
    "open_store",
]


def __getattr__(name: str) -> object:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'treadle.store' has no attribute {name!r}")
