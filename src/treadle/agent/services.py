"""What the threads of one server share, as the agent sees it. The server makes it; tests may make a smaller one."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from treadle.agent.client_requests import ClientRequest
    from treadle.agent.event import Event
    from treadle.agent.state import Settings
    from treadle.agent.turn_runtime import Runtime
    from treadle.config import Config
    from treadle.execution import Environment
    from treadle.llm import Model
    from treadle.store.contract import Store


class Services(Protocol):
    user_agent: str

    @property
    def home(self) -> str:
        """Where threads are kept."""

    @property
    def cwd(self) -> str:
        """The working directory of threads that name none."""

    @property
    def config(self) -> Config:
        """The configuration for what begins now. Raises `ConfigError` as long as it cannot be used."""

    def config_for(self, settings: Settings) -> Config:
        """The configuration with what the thread was given on top."""

    def model_for(self, settings: Settings) -> Model:
        """The model of the thread's provider. Raises `ProviderConfigError` or `ModelError`."""

    def runtime_for(self, settings: Settings) -> Runtime:
        """What runs the turns of a thread with these settings."""

    async def environment(self) -> Environment:
        """Where commands run; started when it is first asked for."""

    async def store(self) -> Store:
        """The threads that are kept. Raises `StoreError`."""

    @property
    def ephemeral_store(self) -> Store:
        """The threads that end with the server."""

    @property
    def draining(self) -> bool:
        """Whether the server is about to end, so that no message of a queue is sent any more."""

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Run something that the server owns and ends."""


class Subscribers(Protocol):
    """The clients that follow a thread."""

    def publish(self, event: Event) -> None: ...

    def ask(self, request: ClientRequest) -> None: ...

    @property
    def can_ask(self) -> bool:
        """Whether one of them passes a question on to a person."""

    async def wait_for_room(self) -> None:
        """Return when the slowest of those that must not lose anything has room."""
