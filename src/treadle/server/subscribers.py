"""Fan-out: some news of a thread goes to every client, the rest to those that have subscribed to it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from treadle.agent.client_requests import ClientRequest
from treadle.agent.event import Event

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


class ThreadSubscribers:
    """Those of one thread. They may change at any time: what is published next goes to whoever is there then."""

    __slots__ = ("_server", "clients")

    def __init__(self, server: AppServer) -> None:
        self._server = server
        self.clients: dict[Client, None] = {}

    def publish(self, event: Event) -> None:
        clients = self._server.clients if event.method in BROADCAST else self.clients
        for client in tuple(clients):
            client.notify(event)

    def ask(self, request: ClientRequest) -> None:
        for client in tuple(self.clients):
            client.send_request(request)

    async def wait_for_room(self) -> None:
        while any(client.congested and client.must_not_lose for client in self.clients):
            await self._server.relief()
        # A burst of deltas must not keep everyone else from being served.
        await asyncio.sleep(0)
