"""The client of an `AppServerRuntime`: which app-server is started with which settings, and `HostClient`, the SDK's
client which also notes notifications outside of the turn being read.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Final, TypeVar

from treadle.client.async_client import AsyncAppServerClient
from treadle.client.codex_config import CodexConfig
from treadle.client.lifecycle import InitializeResponse, client_info
from treadle.client.notification import Notification
from treadle.client.provider_settings import with_provider
from treadle.client.router import Received, Router
from treadle.client.sdk_errors import TransportClosedError
from treadle.host.app_server.server_events import usage_of
from treadle.host.runtime import Usage
from treadle.llm.known_providers import KNOWN, OPENAI, OPENAI_KEY_VARIABLE
from treadle.own_python import treadle_command
from treadle.protocol.app.accounts import RateLimitSnapshot

EPHEMERAL_ONLY: Final = "treadle/ephemeralThreadsOnly"
"""What the server calls a client that has ephemeral threads alone."""


def server_config(
    config: CodexConfig | None, *, provider: str | None, api_key: str | None, base_url: str | None
) -> CodexConfig:
    """The caller's own server, or Treadle's as a child; with the provider that was named."""
    # Hosts pass an empty text for what they do not have.
    named = {"provider": provider or None, "api_key": api_key or None, "base_url": base_url or None}
    chosen = with_provider(config, **named) or CodexConfig()
    if config is not None:
        return chosen
    words = [word for setting in chosen.config_overrides for word in ("--config", setting)]
    command = treadle_command(*words, "app-server", "--listen", "stdio://")
    return CodexConfig(launch_args_override=command, env={"NO_COLOR": "1", **(chosen.env or {})})


def login_advice(config: CodexConfig | None, *, provider: str | None, has_key: bool) -> str:
    """What to do when a server says that nobody is logged in.

    Args:
        config: The caller's own server, if it is one.
        provider: The provider that was named, if one was.
        has_key: Whether the runtime was given a key for it.
    """
    if has_key:
        return "Pass another api_key: this one is not accepted."
    if config is not None and config.codex_bin is not None:
        return "Log in again with `codex login`, or give an API key that is valid; then try again."
    if config is not None and (config.url is not None or config.launch_args_override is not None):
        return "Log in again where the server runs (`codex login`, or the key of its provider); then try again."
    known = KNOWN.get(provider or OPENAI)
    variable = OPENAI_KEY_VARIABLE if known is None else known.table.get("env_key", OPENAI_KEY_VARIABLE)
    return f"Set {variable} (or what config.toml names) to a key that is accepted, or pass api_key=…; then try again."


# --- the client ------------------------------------------------------------------------------------------------------

T = TypeVar("T")

MAX_TURNS: Final = 64
"""Turns that are remembered as begun; only the last one matters, and the one before it."""
MAX_WARNINGS: Final = 50


class HostClient(AsyncAppServerClient):
    """`thread_id` is the thread that it listens to. `limits` and `usage` are the last ones reported. With
    `ephemeral_only` our server opens no file of threads for it."""

    def __init__(self, config: CodexConfig, *, ephemeral_only: bool = False) -> None:
        self._ephemeral_only = ephemeral_only
        self.thread_id: str | None = None
        self.limits: RateLimitSnapshot | None = None
        self.usage: Usage | None = None
        self.begun: dict[str, None] = {}
        self._warnings: deque[str] = deque(maxlen=MAX_WARNINGS)
        self._noted = asyncio.Event()
        self.is_over: bool = False
        super().__init__(config)

    def _new_router(self) -> Router:
        self.is_over = False
        return _Router(self._note)

    def connection_ended(self, failure: TransportClosedError) -> None:
        super().connection_ended(failure)
        self.is_over = True
        self._noted.set()

    async def initialize(self) -> InitializeResponse:
        """Shake hands."""
        params = client_info(self.config)
        if self._ephemeral_only:
            params["capabilities"]["extensions"] = {EPHEMERAL_ONLY: True}
        answer = await self.request("initialize", params, response_model=InitializeResponse)
        self.notify("initialized")
        return answer

    async def wait_for(self, find: Callable[[], T | None], seconds: float) -> T | None:
        """What `find` finds, as soon as it does; None when it has not after so long, or when the connection is over."""
        try:
            async with asyncio.timeout(seconds):
                while (found := find()) is None and not self.is_over:
                    self._noted.clear()
                    await self._noted.wait()
                return found
        except TimeoutError:
            return None

    def take_warnings(self) -> list[str]:
        """The warnings about the thread since the last call."""
        taken = list(self._warnings)
        self._warnings.clear()
        return taken

    def _note(self, notification: Notification) -> None:
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
            case "warning" if self.thread_id is not None and getattr(payload, "thread_id", None) == self.thread_id:
                self._warnings.append(payload.message)
            case _:
                return
        self._noted.set()


class _Router(Router):
    def __init__(self, note: Callable[[Notification], None]) -> None:
        super().__init__()
        self._note = note

    def deliver(self, notification: Notification, received: Received) -> None:
        self._note(notification)
        super().deliver(notification, received)
