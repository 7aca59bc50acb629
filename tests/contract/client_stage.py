"""`Stage`: every way to reach a server, in both faces of the SDK, for scenarios that are written once.

Owns the home, the mock model, and the server where one listens: on a thread here, since `child` is a whole process.
`await stage.call(function, …)` calls either face: a blocking function on a thread, so that several can be under way.
`Reading` reads either kind of stream.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from itertools import product
from pathlib import Path
from typing import Any, Final, Literal

import pytest

from treadle import AsyncCodex, Codex, CodexConfig
from treadle.client import AppServerClient, AsyncAppServerClient
from treadle.server import AppServer
from treadle.testing import AppServerHarness, MockModel, RecordedRequest
from treadle.transport import Address, Channel
from treadle.transport.listen import listen

Way = Literal["in process", "child", "websocket", "unix"]
Face = Literal["sync", "async"]

WAYS: Final[tuple[Way, ...]] = ("in process", "child", "websocket", "unix")
FACES: Final[tuple[Face, ...]] = ("sync", "async")
# Where a test says nothing: both faces without a transport, and both transports. A child is a second's work each time:
# what is its own (start, end, what it inherits) is tested on it, and what every connection has to hold (`everywhere`).
CELLS: Final[list[tuple[Way, Face]]] = [
    ("in process", "sync"),
    ("in process", "async"),
    ("websocket", "sync"),
    ("unix", "async"),
]


class Stage:
    def __init__(self, folder: Path, way: Way, face: Face) -> None:
        self.way = way
        self.face = face
        self.model = MockModel(on_empty=self._answer)
        self.answer: Callable[[RecordedRequest], str] | None = None
        self._folder = folder
        self._harness = AppServerHarness(folder, model=self.model)
        self._server: Listening | None = None

    @property
    def workspace(self) -> Path:
        return self._harness.workspace

    def configure(self, *, provider: Mapping[str, bool | int] | None = None, **settings: str) -> None:
        """Other settings than the usual ones, before there is a server."""
        assert self._server is None
        AppServerHarness(self._folder, model=self.model, settings=settings, provider=provider)

    def config(self, **changes: Any) -> CodexConfig:
        home = str(self._harness.home)
        given: dict[str, Any] = {"env": {"CODEX_HOME": home, "TREADLE_HOME": home}, "cwd": str(self.workspace)}
        if self.way == "child":
            given["launch_args_override"] = tuple(self._harness.command())
        elif self.way != "in process":
            given = {"url": self._listening()}
        return CodexConfig(**{**given, **changes})

    def _listening(self) -> str:
        if self._server is None:
            address = "ws://127.0.0.1:0" if self.way == "websocket" else f"unix://{self._folder}/s"
            self._server = Listening(self._harness, address)
        return self._server.url

    @asynccontextmanager
    async def codex(self, **handlers: Any) -> AsyncIterator[Any]:
        """A client that has shaken hands; with a server of its own unless one listens."""
        if self.face == "async":
            async with AsyncCodex(self.config(), **handlers) as codex:
                yield codex
            return
        blocking = await asyncio.to_thread(Codex, self.config(), **handlers)
        try:
            yield blocking
        finally:
            await asyncio.to_thread(blocking.close)

    def client(self, **changes: Any) -> Any:
        """A low-level client that is not connected."""
        made = AppServerClient if self.face == "sync" else AsyncAppServerClient
        return made(self.config(**changes))

    async def call(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        if self.face == "async":
            return await function(*arguments, **named)
        return await asyncio.to_thread(function, *arguments, **named)

    def read(self, stream: Any) -> Reading:
        return Reading(self, stream)

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        self.model.close()

    def _answer(self, request: RecordedRequest) -> str:
        """What the model says when nothing is queued."""
        if self.answer is None:
            raise AssertionError(f"the model has nothing to say to {request.last_user_text!r}")
        return self.answer(request)


class Listening:
    """A server with a socket, on a thread of its own. With a `token`, only clients that have it come in."""

    def __init__(self, harness: AppServerHarness, address: str, token: str | None = None) -> None:
        self.url = ""
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve(harness, address, token)))
        self._thread.start()
        assert self._ready.wait(30), "the server does not start"

    async def _serve(self, harness: AppServerHarness, address: str, token: str | None) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        async with AppServer(home=harness.home, cwd=str(harness.workspace)) as server:

            def accept(channel: Channel) -> None:
                server.accept(channel)

            listener = await listen(Address.parse(address), accept, token=token, any_path=True, text_only=True)
            self.url = listener.url
            self._ready.set()
            await self._stop.wait()
            await listener.close()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()


@pytest.fixture(params=CELLS, ids="-".join)
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stage]:
    """For the test modules to take over by name."""
    made = Stage(tmp_path, *request.param)
    yield made
    made.close()


def only(*ways: Way, faces: tuple[Face, ...] = FACES) -> pytest.MarkDecorator:
    """For what does not depend on the way, or cannot be done over all."""
    return pytest.mark.parametrize("stage", list(product(ways, faces)), indirect=True, ids="-".join)


everywhere: Final = only(*WAYS)
"""For what each connection has to hold: frames that wait for each other, streams side by side, ends."""


class Reading:
    """What a stream gives, one by one."""

    def __init__(self, stage: Stage, stream: Any) -> None:
        self._stage = stage
        self._stream = stream
        self.seen: list[Any] = []

    async def next(self) -> Any:
        """The next one, or None at the end."""
        if self._stage.face == "async":
            found = await anext(self._stream, None)
        else:
            found = await asyncio.to_thread(next, self._stream, None)
        if found is not None:
            self.seen.append(found)
        return found

    async def until(self, method: str) -> Any:
        """Read up to the next notification with this method, and return it."""
        while (found := await self.next()) is not None:
            if found.method == method:
                return found
        raise AssertionError(f"the stream ended without {method}")

    async def rest(self) -> list[Any]:
        """Read to the end; everything since the start."""
        while await self.next() is not None:
            pass
        return self.seen

    async def close(self) -> None:
        await self._stage.call(self._stream.aclose if self._stage.face == "async" else self._stream.close)


def methods_of(events: list[Any]) -> list[str]:
    return [event.method for event in events]


def text_of(events: list[Any]) -> str:
    """The deltas of the agent's messages, joined."""
    return "".join(event.payload.delta for event in events if event.method == "item/agentMessage/delta")


def items_of(events: list[Any]) -> list[Any]:
    return [event.payload.item.root for event in events if event.method == "item/completed"]
