"""`HostClient`: the SDK's client, which also sees notifications outside of the turn being read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, TypeVar

from treadle.client.async_client import AsyncAppServerClient
from treadle.client.codex_config import CodexConfig
from treadle.client.notification import Notification
from treadle.client.router import Received, Router
from treadle.client.sdk_errors import TransportClosedError
from treadle.host.app_server.server_events import usage_of
from treadle.host.usage import Usage
from treadle.protocol.app.accounts import RateLimitSnapshot

T = TypeVar("T")

MAX_TURNS: Final = 64
"""Turns that are remembered as begun; only the last one matters, and the one before it."""


class HostClient(AsyncAppServerClient):
    """`thread_id` is the thread that it listens to. `limits` and `usage` are the last ones reported."""

    def __init__(self, config: CodexConfig) -> None:
        self.thread_id: str | None = None
        self.limits: RateLimitSnapshot | None = None
        self.usage: Usage | None = None
        self.begun: dict[str, None] = {}
        self._heard = asyncio.Event()
        self.is_over: bool = False
        super().__init__(config)

    def _new_router(self) -> Router:
        self.is_over = False
        return _Router(self._hear)

    def connection_ended(self, failure: TransportClosedError) -> None:
        super().connection_ended(failure)
        self.is_over = True
        self._heard.set()

    async def hear(self, find: Callable[[], T | None], seconds: float) -> T | None:
        """What `find` finds, as soon as it does; None when it has not after so long, or when the connection is over."""
        try:
            async with asyncio.timeout(seconds):
                while (found := find()) is None and not self.is_over:
                    self._heard.clear()
                    await self._heard.wait()
                return found
        except TimeoutError:
            return None

    def _hear(self, notification: Notification) -> None:
        payload: Any = notification.payload
        match notification.method:
            case "account/rateLimits/updated" if hasattr(payload, "rate_limits"):
                self.limits = payload.rate_limits
            case "thread/tokenUsage/updated" if getattr(payload, "thread_id", None) == self.thread_id:
                self.usage = usage_of(payload.token_usage)
            case "turn/started" | "turn/completed" if getattr(payload, "thread_id", None) == self.thread_id:
                self.begun[payload.turn.id] = None
                if len(self.begun) > MAX_TURNS:
                    del self.begun[next(iter(self.begun))]
            case _:
                return
        self._heard.set()


class _Router(Router):
    def __init__(self, hear: Callable[[Notification], None]) -> None:
        super().__init__()
        self._hear = hear

    def deliver(self, notification: Notification, received: Received) -> None:
        self._hear(notification)
        super().deliver(notification, received)
