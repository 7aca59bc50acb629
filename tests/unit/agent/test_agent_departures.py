from __future__ import annotations

import asyncio

import pytest

from treadle.agent import departures as module
from treadle.agent.departures import Departures, Ticket

pytestmark = pytest.mark.anyio


async def _depart(ticket: Ticket, ready: asyncio.Event, left: list[int]) -> None:
    await ready.wait()
    await ticket.wait()
    left.append(ticket.key)
    ticket.leave()


async def test_the_order_is_that_of_the_tickets_whoever_is_ready_first() -> None:
    departures = Departures()
    left: list[int] = []
    tickets = [departures.ticket() for _ in range(10)]
    ready = [asyncio.Event() for _ in tickets]
    async with asyncio.TaskGroup() as group:
        for ticket, event in zip(tickets, ready, strict=True):
            group.create_task(_depart(ticket, event, left))
        for event in reversed(ready):
            event.set()
            await asyncio.sleep(0)
    assert left == [ticket.key for ticket in tickets]


async def test_one_that_is_given_up_holds_up_nobody() -> None:
    departures = Departures()
    first, second, third = (departures.ticket() for _ in range(3))
    second.leave()
    waiting = asyncio.ensure_future(third.wait())
    await asyncio.sleep(0)
    assert not waiting.done()
    first.leave()
    first.leave()
    await waiting
    await second.wait()


async def test_one_that_hangs_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE_S", 0.01)
    departures = Departures()
    departures.ticket()
    await departures.ticket().wait()


async def test_an_interrupted_wait_leaves_nothing_behind() -> None:
    departures = Departures()
    first, second, third = (departures.ticket() for _ in range(3))
    waiting = asyncio.ensure_future(second.wait())
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    second.leave()
    last = asyncio.ensure_future(third.wait())
    await asyncio.sleep(0)
    first.leave()
    await last
