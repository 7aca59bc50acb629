"""Threads on disk: `open_store(home)` gives the `Store` of a home, `ephemeral_store()` one that ends with the process.

The interface is in `treadle.store.contract`. A back end is loaded when one of the two is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from treadle.store.contract import (
    Claim,
    Compaction,
    CopyTurns,
    Counters,
    CutTurns,
    DeleteThread,
    Done,
    DropItem,
    DropQueued,
    EventPage,
    EventRecord,
    HistoryRecord,
    ItemRecord,
    Loaded,
    MessageText,
    PruneEvents,
    QueuedRecord,
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
    from treadle.store.backends import ephemeral_store, open_store

_BACKEND = ("ephemeral_store", "open_store")

__all__ = [
    "Claim",
    "Compaction",
    "CopyTurns",
    "Counters",
    "CutTurns",
    "DeleteThread",
    "Done",
    "DropItem",
    "DropQueued",
    "EventPage",
    "EventRecord",
    "HistoryRecord",
    "ItemRecord",
    "Loaded",
    "MessageText",
    "PruneEvents",
    "QueuedRecord",
    "Release",
    "SearchHit",
    "SortKey",
    "Store",
    "StoreError",
    "StoreFailure",
    "ThreadCursor",
    "ThreadPage",
    "ThreadQuery",
    "ThreadRecord",
    "TurnRecord",
    "Write",
    "ephemeral_store",
    "open_store",
]


def __getattr__(name: str) -> object:
    if name in _BACKEND:
        return getattr(import_module("treadle.store.backends"), name)
    raise AttributeError(f"module 'treadle.store' has no attribute {name!r}")
