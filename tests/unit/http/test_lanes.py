"""Lanes: how many there are, which is used next, and what becomes of those that are not."""

from __future__ import annotations

import asyncio

import pytest

from treadle.http.http_errors import HttpUnusable
from treadle.http.lanes import Lanes, LaneStats

pytestmark = pytest.mark.anyio
DEADLINE = 60.0


async def test_the_lane_used_last_is_used_next() -> None:
    lanes = Lanes(1.0)
    first, second = await lanes.acquire(), await lanes.acquire()
    lanes.release(first, reuse=True)
    lanes.release(second, reuse=True)
    assert await lanes.acquire() is second
    assert await lanes.acquire() is first
    await lanes.close()


async def test_a_lane_after_a_failure_is_closed() -> None:
    lanes = Lanes(1.0)
    lane = await lanes.acquire()
    lanes.release(lane, reuse=False)
    assert lane.is_closed
    assert await lanes.acquire() is not lane
    await lanes.close()


async def test_idle_lanes_are_bounded_and_the_oldest_goes() -> None:
    lanes = Lanes(1.0, max_idle=2)
    made = [await lanes.acquire() for _ in range(3)]
    for lane in made:
        lanes.release(lane, reuse=True)
    assert [lane.is_closed for lane in made] == [True, False, False]
    await lanes.close()


async def test_idle_lanes_go_one_by_one_as_their_time_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("treadle.http.lane.KEEP_ALIVE_S", 0.2)
    lanes = Lanes(1.0)
    first, second, third = [await lanes.acquire() for _ in range(3)]
    lanes.release(first, reuse=True)
    loop = asyncio.get_running_loop()
    first._idle_since = loop.time() - 0.19
    lanes.release(second, reuse=True)
    async with asyncio.timeout(DEADLINE):
        while not first.is_closed:
            await asyncio.sleep(0.001)
        assert third in lanes._busy
        while not second.is_closed:
            await asyncio.sleep(0.001)
    assert loop.time() - second._idle_since >= 0.2
    assert lanes.stats() == LaneStats(busy=1, idle=0)
    assert not third.is_closed
    await lanes.close()


async def test_one_request_too_many_waits_for_a_free_lane() -> None:
    lanes = Lanes(1.0, max_lanes=1)
    lane = await lanes.acquire()
    waiting = asyncio.create_task(lanes.acquire())
    for _ in range(10):
        await asyncio.sleep(0)
    assert not waiting.done()
    lanes.release(lane, reuse=True)
    async with asyncio.timeout(DEADLINE):
        assert await waiting is lane
    await lanes.close()


async def test_close_ends_all_lanes_and_refuses_more() -> None:
    lanes = Lanes(1.0, max_lanes=2)
    idle, busy = await lanes.acquire(), await lanes.acquire()
    lanes.release(idle, reuse=True)
    await lanes.close()
    await lanes.close()
    assert idle.is_closed
    assert busy.is_closed
    for _ in range(3):  # a refusal takes no place
        with pytest.raises(HttpUnusable, match="closed"):
            await lanes.acquire()
    lanes.release(busy, reuse=True)


async def test_a_waiter_that_gives_up_takes_no_lane() -> None:
    lanes = Lanes(1.0, max_lanes=1)
    lane = await lanes.acquire()
    waiting = asyncio.create_task(lanes.acquire())
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    lanes.release(lane, reuse=True)
    async with asyncio.timeout(DEADLINE):
        assert await lanes.acquire() is lane
    await lanes.close()
