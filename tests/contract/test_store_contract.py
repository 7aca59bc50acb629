"""What every store does, on disk or in memory: the suite that is shipped for stores of others."""

from __future__ import annotations

from pathlib import Path

import pytest

from treadle.store import EphemeralStore, open_sqlite
from treadle.testing import STORE_CHECKS, check_store

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("check", STORE_CHECKS)
async def test_threads_in_a_file(check: str, tmp_path: Path) -> None:
    await check_store(lambda name: open_sqlite(tmp_path / name), only=[check])


async def _memory(name: str) -> EphemeralStore:
    return EphemeralStore()


async def test_threads_in_memory() -> None:
    await check_store(_memory, shared=False)
