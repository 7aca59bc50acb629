"""The order in which model requests leave: that of the turns that make them, also across threads.

A turn takes a ticket when it is asked for, and its first request is written when all earlier tickets have been used or
given up. Connections are made meanwhile, so nobody waits for more than the writing of the requests before; and not
longer than a moment for a turn that hangs.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Final

# An earlier turn that cannot reach its provider must not hold up the others.
PATIENCE_S: Final = 0.5


class Ticket:
    """One place in the order. `wait` before the request is written, `leave` after it, or instead of it."""

    __slots__ = ("_departures", "key", "turn_come")

    def __init__(self, departures: Departures, key: int) -> None:
        self._departures = departures
        self.key: int = key
        self.turn_come: asyncio.Event | None = None

    async def wait(self) -> None:
        if self._departures.is_next(self):
            return
        self.turn_come = asyncio.Event()
        try:
            async with asyncio.timeout(PATIENCE_S):
                await self.turn_come.wait()
        except TimeoutError:
            return  # out of order, but not stuck

    def leave(self) -> None:
        """It may be called again."""
        self._departures.drop(self)


class Departures:
    def __init__(self) -> None:
        self._tickets: OrderedDict[int, Ticket] = OrderedDict()
        self._next = 0

    def ticket(self) -> Ticket:
        self._next += 1
        ticket = self._tickets[self._next] = Ticket(self, self._next)
        return ticket

    def is_next(self, ticket: Ticket) -> bool:
        return ticket.key not in self._tickets or next(iter(self._tickets)) == ticket.key

    def drop(self, ticket: Ticket) -> None:
        if self._tickets.pop(ticket.key, None) is None or not self._tickets:
            return
        first = next(iter(self._tickets.values()))
        if first.turn_come is not None:
            first.turn_come.set()
