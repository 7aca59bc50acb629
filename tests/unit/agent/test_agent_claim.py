"""A thread that another server takes over: what is written here fails, until the thread is claimed again."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from treadle.agent import Thread
from treadle.store import EphemeralStore, StoreError
from treadle.store.sqlite import writes
from unit.agent.bare_thread import THREAD, bare_thread

pytestmark = pytest.mark.anyio


def take_over(thread: Thread, name: str) -> None:
    """As another server would, whose process was not there before."""
    assert isinstance(thread.store, EphemeralStore)
    connection = thread.store._connection
    assert connection is not None
    writes.claim(connection, THREAD, -1, "7-another", lambda owner: None)
    writes.apply(connection, [replace(thread.record, name=name)], "7-another")


async def stale(thread: Thread) -> None:
    thread.journal.write(thread.save())
    with pytest.raises(StoreError) as caught:
        await thread.journal.flush()
    assert caught.value.kind == "stale"
    assert "process 7" in caught.value.message


async def test_a_claim_that_lingers_is_not_ours_any_more(tmp_path: Path) -> None:
    async with bare_thread(tmp_path) as (thread, _):
        await thread.acquire()
        thread.release()  # it lingers for the next turn
        take_over(thread, "theirs")
        await stale(thread)
        await thread.catch_up()
        assert thread.record.name == "theirs"
        await thread.acquire()
        thread.journal.write(thread.save(preview="mine"))
        await thread.journal.flush()
        loaded = await thread.store.load(THREAD)
        assert loaded is not None
        assert (loaded.record.name, loaded.record.preview) == ("theirs", "mine")


async def test_an_acquire_finds_what_the_other_has_written(tmp_path: Path) -> None:
    async with bare_thread(tmp_path) as (thread, _):
        await thread.acquire()
        take_over(thread, "theirs")
        await stale(thread)
        await thread.catch_up()  # not while it is being written
        assert thread.journal.is_stale
        thread.release()
        await thread.acquire()
        assert thread.record.name == "theirs"
        thread.journal.write(thread.save())
        await thread.journal.flush()
