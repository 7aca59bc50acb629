"""Threads that are stored: `open_store(location)` gives the `Store` of a home or of a database, `ephemeral_store()` one
that ends with the process.

The interface is in `treadle.store.contract`. The functions here are the only place that knows the back ends by name; a
back end is loaded when one of them is first called. Those of other packages are entry points in the group
`treadle.stores`, named as the scheme of their URLs: functions that take the URL and open the store.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Final, TypeAlias

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
    StoreServer,
    ThreadCursor,
    ThreadPage,
    ThreadQuery,
    ThreadRecord,
    TurnRecord,
    UnusedThread,
    Write,
)

OpenStore: TypeAlias = Callable[[str], Awaitable[Store]]

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
    "StoreServer",
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


_BACK_ENDS: Final[Mapping[str, str]] = {
    "sqlite": "treadle.store.sqlite.sqlite_store:open_sqlite_url",
    "postgres": "treadle.store.postgres.postgres_store:open_postgres",
    "postgresql": "treadle.store.postgres.postgres_store:open_postgres",
}
_GROUP: Final = "treadle.stores"


async def open_store(location: str | os.PathLike[str]) -> Store:
    """The store of a home, which is made when it is missing, or that of a URL: `sqlite:///HOME`, `postgres://…`. Raises
    `StoreError`."""
    text = os.fspath(location)
    scheme, separator, _ = text.partition("://")
    if not separator:
        from treadle.store.sqlite.sqlite_store import open_sqlite

        return await open_sqlite(text)
    module, _, name = _BACK_ENDS.get(scheme, "").partition(":")
    if module:
        built_in: OpenStore = getattr(import_module(module), name)
        return await built_in(text)
    from treadle.own_python import plug_ins

    points = plug_ins(_GROUP).get(scheme, [])
    if len(points) != 1:
        reason = "more than one package offers it" if points else f"there are {', '.join(_BACK_ENDS)}"
        raise StoreError(f"there is no store for {scheme}:// ({reason})")
    try:
        offered: OpenStore = points[0].load()
    except Exception as error:
        raise StoreError(f"the store for {scheme}:// cannot be loaded: {error!r}") from error
    return await offered(text)


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
    from treadle.store.batches import Batch, EventRow, MAX_EVENTS, MAX_EVENT_BYTES, join, merged
    from treadle.store.copying import copy_threads, digest
    from treadle.store.postgres.postgres_store import PostgresStore, open_postgres
    from treadle.store.postgres.schema import scripts
    from treadle.store.postgres.writer import PATIENCE_S
    from treadle.store.rows import Unreadable, split
    from treadle.store.sqlite.failures import failure
    from treadle.store.sqlite.owners import LEASE_S, Owner, Owners
    from treadle.store.sqlite.sqlite_store import EphemeralStore, FILE_NAME, SqliteStore, open_sqlite
    from treadle.store.sqlite.writes import Insert, Transactions, apply, claim
