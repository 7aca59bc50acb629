"""Which back end keeps the threads: the one place that knows them by name."""

from __future__ import annotations

import os

from treadle.store.contract import Store
from treadle.store.sqlite.file_store import open_sqlite
from treadle.store.sqlite.memory_store import MemoryStore


async def open_store(home: str | os.PathLike[str]) -> Store:
    """The store of a home, which is made when it is missing. Raises `StoreError`."""
    return await open_sqlite(home)


def ephemeral_store() -> Store:
    """A store that ends with the process."""
    return MemoryStore()
