"""Which threads are in memory and for how long, with handles that only pretend."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from treadle.agent import ThreadHandle
from treadle.server import AppServer, LoadedThreads, ThreadSubscribers
from treadle.store import StoreError

pytestmark = pytest.mark.anyio


class FakeThread:
    """A thread with a goal: when a turn ends, the next one runs."""

    def __init__(self) -> None:
        self.id = "t"
        self.parent_id = None
        self.turn_id: str | None = "turn 1"
        self.is_closed = False
        self.waits_for_answer = False
        self.ended = asyncio.Event()

    def mark_loaded(self, loaded: bool) -> None:
        pass

    def on_idle(self, action: object) -> None:
        pass

    async def wait_turn(self) -> None:
        await self.ended.wait()
        self.turn_id = "turn 2"

    async def unload(self) -> None:
        self.is_closed = True
        raise StoreError("the disk is full", "full")


@pytest.fixture
async def fake() -> FakeThread:
    return FakeThread()


@pytest.fixture
async def threads(fake: FakeThread) -> AsyncIterator[LoadedThreads]:
    async with AppServer() as server:
        made = LoadedThreads(server)
        made.add(cast("ThreadHandle", cast("Any", fake)), ThreadSubscribers(server))
        yield made


async def test_draining_does_not_wait_for_the_next_turn_of_a_goal(threads: LoadedThreads, fake: FakeThread) -> None:
    draining = asyncio.ensure_future(threads.wait_idle())
    await asyncio.sleep(0)
    assert not draining.done()
    fake.ended.set()
    async with asyncio.timeout(10):
        await draining
    assert fake.turn_id == "turn 2"


async def test_a_thread_that_was_closed_is_forgotten_even_if_its_end_cannot_be_kept(threads: LoadedThreads) -> None:
    """Else it would be found, and refuse everything, until the server ends."""
    with pytest.raises(StoreError, match="full"):
        await threads.unload("t")
    assert threads.get("t") is None
