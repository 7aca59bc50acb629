"""What every store does, on disk, in memory or in a database: the suite that is shipped for stores of others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kit.postgres import Postgres, running_postgres
from kit.store_faults import PostgresFaults, SqliteFaults
from treadle.store import EphemeralStore, open_postgres, open_sqlite
from treadle.testing import STORE_CHECKS, check_store

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("check", STORE_CHECKS)
async def test_threads_in_a_file(check: str, tmp_path: Path) -> None:
    await check_store(lambda name: open_sqlite(tmp_path / name), only=[check], faults=SqliteFaults())


async def _memory(name: str) -> EphemeralStore:
    return EphemeralStore()


async def test_threads_in_memory() -> None:
    await check_store(_memory, shared=False)


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with running_postgres() as server:
        yield server


@pytest.mark.parametrize("check", STORE_CHECKS)
async def test_threads_in_postgres(check: str, postgres: Postgres) -> None:
    schema = f"check_{STORE_CHECKS.index(check)}"
    await check_store(
        lambda name: open_postgres(postgres.url(schema), lease_s=1.0), only=[check], faults=PostgresFaults()
    )
