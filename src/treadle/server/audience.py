"""Who hears what of a thread: some news goes to every client, the rest to those that have subscribed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from treadle.agent.event import Event
from treadle.agent.services import Ask

if TYPE_CHECKING:
    from treadle.server.app import AppServer
    from treadle.server.client_base import Client

BROADCAST: Final = frozenset(
    {
        "thread/started",
        "thread/status/changed",
        "thread/archived",
        "thread/unarchived",
        "thread/deleted",
        "thread/name/updated",
        "thread/closed",
    }
)


class ThreadAudience:
    """The audience of one thread. It may change at any time: what is told next goes to whoever is there then."""

    __slots__ = ("_server", "subscribers")

    def __init__(self, server: AppServer) -> None:
        self._server = server
        self.subscribers: dict[Client, None] = {}

    def tell(self, event: Event) -> None:
        listeners = self._server.clients if event.method in BROADCAST else self.subscribers
        for client in tuple(listeners):
            client.tell(event)

    def ask(self, ask: Ask) -> None:
        for client in tuple(self.subscribers):
            client.send_ask(ask)

    async def keep_up(self) -> None:
        while any(client.congested and client.must_not_lose for client in self.subscribers):
            await self._server.relief()
        # A burst of deltas must not keep everyone else from being served.
        await asyncio.sleep(0)
