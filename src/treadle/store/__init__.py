"""Threads on disk: `open_store(home)` gives the `Store` of a home, `ephemeral_store()` one that ends with the process.

The interface is in `treadle.store.contract`. The functions here are the only place that knows the back ends by name; a
back end is loaded when one of them is first called.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from treadle.internal_names import internal_name
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
    UnusedThread,
    Write,
)

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
    "UnusedThread",
    "Write",
    "back_up",
    "ephemeral_store",
    "open_store",
    "vacuum",
]


async def open_store(home: str | os.PathLike[str]) -> Store:
    """The store of a home, which is made when it is missing. Raises `StoreError`."""
    from treadle.store.sqlite.sqlite_store import open_sqlite

    return await open_sqlite(home)


def ephemeral_store() -> Store:
    """A store that ends with the process."""
    from treadle.store.sqlite.sqlite_store import EphemeralStore

    return EphemeralStore()


def back_up(home: str, place: str, *, keys: bool = False) -> int:
    """Copy the databases of a home, and what belongs to them, to a new folder, also while servers use them; its size.
    Raises `StoreError`. Blocking."""
    from treadle.store.sqlite import upkeep

    return upkeep.back_up(home, place, keys=keys)


def vacuum(home: str) -> tuple[int, int]:
    """Make the database of a home smaller, which no server may use; its size before and after. Raises `StoreError`.
    Blocking."""
    from treadle.store.sqlite import upkeep

    return upkeep.vacuum(home)


def __getattr__(name: str) -> object:
    return internal_name(__name__, name)


# fmt: off
# isort: off
if TYPE_CHECKING:  # for tests: see treadle.internal_names
    from treadle.store.batches import Batch, merged
    from treadle.store.postgres.postgres_store import PostgresStore, open_postgres
    from treadle.store.rows import EventRow, MAX_EVENTS, MAX_EVENT_BYTES, Unreadable, join, split
    from treadle.store.sqlite.failures import failure
    from treadle.store.sqlite.owners import LEASE_S, Owner, Owners
    from treadle.store.sqlite.sqlite_store import EphemeralStore, FILE_NAME, SqliteStore, open_sqlite
    from treadle.store.sqlite.writes import Insert, Transactions, apply, claim
