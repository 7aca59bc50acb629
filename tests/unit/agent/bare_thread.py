"""A thread without a server: a store in memory, a model that plays events, an audience that remembers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from treadle.agent import AgentServices, ClientRequest, Event, McpServices, Settings, State, Thread
from treadle.config import Config, load_config
from treadle.execution import Environment, RemoteMachine
from treadle.hooks import Hook, HookSet
from treadle.llm import Model, ModelError, ModelEvent, ModelRequest
from treadle.protocol.app import DangerFullAccessSandboxPolicy
from treadle.store import EphemeralStore, Loaded, Store, ThreadRecord

THREAD = "0199a213-81a0-7e00-8000-00000000000a"
RETRIES = 2


class PlayedStream:
    def __init__(self, events: Sequence[ModelEvent | ModelError]) -> None:
        self._events: Iterator[ModelEvent | ModelError] = iter(events)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ModelEvent:
        await asyncio.sleep(0)
        event = next(self._events, None)
        if event is None:
            raise StopAsyncIteration
        if isinstance(event, ModelError):
            raise event
        return event

    async def aclose(self) -> None:
        self._events = iter(())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


class PlayedModel:
    """Every request gets the next of `responses`."""

    def __init__(self, *responses: Sequence[ModelEvent | ModelError]) -> None:
        self.asked: list[ModelRequest] = []
        self._responses = iter(responses)

    def stream(self, request: ModelRequest) -> PlayedStream:
        self.asked.append(request)
        return PlayedStream(next(self._responses))

    async def close(self) -> None:
        pass


class Ears:
    """A subscriber."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.asks: list[ClientRequest] = []
        self.can_ask = True

    def publish(self, event: Event) -> None:
        self.events.append(event)

    def ask(self, ask: ClientRequest) -> None:
        self.asks.append(ask)

    async def wait_for_room(self) -> None:
        pass

    @property
    def told(self) -> list[dict[str, Any]]:
        return [json.loads(event.frame) for event in self.events]


class BareServices:
    user_agent = "test/1"

    def __init__(self, home: Path, model: Model) -> None:
        self._home = home
        self._model = model
        self.draining = False
        self.skill_roots: tuple[str, ...] = ()
        self.ephemeral_store: Store = EphemeralStore()
        provider = f'model_providers.x={{base_url="http://127.0.0.1:9/v1", stream_max_retries={RETRIES}}}'
        self._config = load_config(home, overrides=[provider]).config
        self.tasks: set[asyncio.Task[None]] = set()

    @property
    def home(self) -> str:
        return str(self._home)

    @property
    def cwd(self) -> str:
        return "/"

    @property
    def config(self) -> Config:
        return self._config

    def refresh_config(self) -> None:
        pass

    def config_for(self, settings: Settings) -> Config:
        return self._config

    def model_for(self, settings: Settings) -> Model:
        return self._model

    async def listed_window(self, settings: Settings) -> int | None:
        return None

    default_environments: Sequence[str] = ("local",)

    def machine(self, environment_id: str) -> RemoteMachine:
        raise AssertionError("no other machines here")

    async def environment(self, environment_id: str = "local") -> Environment:
        raise AssertionError("no commands here")

    hooks: tuple[Hook, ...] = ()

    async def python_hooks(self, config: Config) -> HookSet:
        raise AssertionError("no functions here")

    @property
    def agents(self) -> AgentServices:
        raise AssertionError("no test of the unit needs sub-agents")

    @property
    def mcp(self) -> McpServices:
        raise AssertionError("no MCP servers here")

    async def store(self) -> Store:
        return self.ephemeral_store

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task


def settings(**changes: Any) -> Settings:
    values: dict[str, Any] = {
        "model": "m",
        "model_provider": "x",
        "cwd": "/",
        "approval_policy": "never",
        "sandbox": DangerFullAccessSandboxPolicy(),
    }
    return Settings(**{**values, **changes})


@asynccontextmanager
async def bare_thread(tmp_path: Path, model: Model | None = None) -> AsyncIterator[tuple[Thread, Ears]]:
    services = BareServices(tmp_path, model or PlayedModel())
    store = services.ephemeral_store
    state = State(settings=settings())
    record = ThreadRecord(
        id=THREAD,
        created_at=0,
        updated_at=0,
        recency_at=0,
        cwd="/",
        model="m",
        model_provider="x",
        source="cli",
        state=msgspec.json.encode(state),
    )
    await store.commit(THREAD, 0, [record])
    loaded = await store.load(THREAD)
    assert isinstance(loaded, Loaded)
    ears = Ears()
    yield Thread(services, store, ears, loaded), ears
    await store.close()
