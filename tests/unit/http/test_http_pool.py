"""HttpPool: how many connections there are, which is used next, and what becomes of those that are not."""

from __future__ import annotations

import asyncio

import pytest

from treadle.http import HttpPool, HttpUnusable, PoolStats

pytestmark = pytest.mark.anyio
DEADLINE = 60.0


async def test_the_connection_used_last_is_used_next() -> None:
    pool = HttpPool(1.0)
    first, second = await pool.acquire(), await pool.acquire()
    pool.release(first, reuse=True)
    pool.release(second, reuse=True)
    assert await pool.acquire() is second
    assert await pool.acquire() is first
    await pool.close()


async def test_a_connection_after_a_failure_is_closed() -> None:
    pool = HttpPool(1.0)
    connection = await pool.acquire()
    pool.release(connection, reuse=False)
    assert connection.is_closed
    assert await pool.acquire() is not connection
    await pool.close()


async def test_idle_connections_are_bounded_and_the_oldest_goes() -> None:
    pool = HttpPool(1.0, max_idle=2)
    made = [await pool.acquire() for _ in range(3)]
    for connection in made:
        pool.release(connection, reuse=True)
    assert [connection.is_closed for connection in made] == [True, False, False]
    await pool.close()


async def test_idle_connections_go_one_by_one_as_their_time_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("treadle.http.http_connection.KEEP_ALIVE_S", 0.2)
    pool = HttpPool(1.0)
    first, second, third = [await pool.acquire() for _ in range(3)]
    pool.release(first, reuse=True)
    loop = asyncio.get_running_loop()
    first._idle_since = loop.time() - 0.19
    pool.release(second, reuse=True)
    async with asyncio.timeout(DEADLINE):
        while not first.is_closed:
            await asyncio.sleep(0.001)
        assert third in pool._busy
        while not second.is_closed:
            await asyncio.sleep(0.001)
    assert loop.time() - second._idle_since >= 0.2
    assert pool.stats() == PoolStats(busy=1, idle=0)
    assert not third.is_closed
    await pool.close()


async def test_one_request_too_many_waits_for_a_free_connection() -> None:
    pool = HttpPool(1.0, max_connections=1)
    connection = await pool.acquire()
    waiting = asyncio.create_task(pool.acquire())
    for _ in range(10):
        await asyncio.sleep(0)
    assert not waiting.done()
    pool.release(connection, reuse=True)
    async with asyncio.timeout(DEADLINE):
        assert await waiting is connection
    await pool.close()


async def test_close_ends_all_connections_and_refuses_more() -> None:
    pool = HttpPool(1.0, max_connections=2)
    idle, busy = await pool.acquire(), await pool.acquire()
    pool.release(idle, reuse=True)
    await pool.close()
    await pool.close()
    assert idle.is_closed
    assert busy.is_closed
    for _ in range(3):  # a refusal takes no place
        with pytest.raises(HttpUnusable, match="closed"):
            await pool.acquire()
    pool.release(busy, reuse=True)


async def test_a_waiter_that_gives_up_takes_no_connection() -> None:
    pool = HttpPool(1.0, max_connections=1)
    connection = await pool.acquire()
    waiting = asyncio.create_task(pool.acquire())
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    pool.release(connection, reuse=True)
    async with asyncio.timeout(DEADLINE):
        assert await pool.acquire() is connection
    await pool.close()
