"""What the threads of one server share, as the agent sees it. The server makes it; tests may make a smaller one."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from treadle.agent.event import Event
    from treadle.agent.state import Settings
    from treadle.config import Config
    from treadle.execution import Environment
    from treadle.llm import Model


class Services(Protocol):
    user_agent: str

    @property
    def home(self) -> str:
        """Where threads are kept."""

    def config_for(self, settings: Settings) -> Config:
        """The configuration with what the thread was given on top."""

    def model_for(self, settings: Settings) -> Model:
        """The model of the thread's provider. Raises `ProviderConfigError` or `ModelError`."""

    async def environment(self) -> Environment:
        """Where commands run; started when it is first asked for."""

    def next_request_id(self) -> int:
        """For a request to clients: unique in this server."""

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Run something that the server owns and ends."""


class Ask:
    """A request to the clients of a thread. The first answer counts."""

    __slots__ = ("answer", "id", "method", "params")

    def __init__(self, request_id: int, method: str) -> None:
        self.id: int = request_id
        self.method: str = method
        self.params: Any = None  # until it is sent
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()


class Audience(Protocol):
    """Who hears what happens in a thread."""

    def tell(self, event: Event) -> None: ...

    def ask(self, ask: Ask) -> None: ...

    async def keep_up(self) -> None:
        """Return when the slowest listener that must not lose anything has room."""
