"""One way to drive both faces of the SDK, so that every story is told once: calls are begun, and their ends waited for.

`Blocking` runs each call on a thread of its own, `Looping` all of them on the event loop of one thread. Every wait has
a deadline that is met only when something hangs. `Fake` is the scripted server that they talk to.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import json
import queue
import socket
import sys
import threading
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from treadle.client import AsyncCodex, AsyncThread, Codex, CodexConfig, Notification, Thread

DEADLINE_S: Final = 20.0
"""Far above what anything here takes."""
PROGRAM: Final = Path(__file__).with_name("fake_server.py")


class Fake:
    """How the scripted server is started, and what it has heard."""

    def __init__(self, deed: str, **config: Any) -> None:
        self._name = f"treadle-{uuid.uuid4().hex}"
        self._ears = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._ears.bind(f"\0{self._name}")
        self._heard: queue.Queue[Any] = queue.Queue()
        # Always: a server that nobody listens to would block.
        self._listener = threading.Thread(target=self._listen, name="test ears", daemon=True)
        self._listener.start()
        self.marker = uuid.uuid4().hex
        env = {"FAKE_EARS": self._name, **config.pop("env", {})}
        command = (sys.executable, "-S", str(PROGRAM), deed, self.marker)
        self.config = CodexConfig(launch_args_override=command, env=env, **config)

    def heard(self, method: str) -> Any:
        """Wait until the server has read a message of this method; the message. Those before it are forgotten."""
        while True:
            message = self.heard_any()
            if message.get("method", "") == method:
                return message

    def heard_any(self) -> Any:
        """The next message that the server has read."""
        return self._heard.get(timeout=DEADLINE_S)

    def _listen(self) -> None:
        while data := self._ears.recv(1 << 16):
            self._heard.put(json.loads(data))

    def heard_answer(self) -> Any:
        """Wait until the server has read an answer; the message."""
        return self.heard("")

    def close(self) -> None:
        self._ears.sendto(b"", f"\0{self._name}")
        self._listener.join(DEADLINE_S)
        self._ears.close()


class Face(ABC):
    """`go` begins a call, which is a function that returns a value or something to await."""

    name: str

    def __init__(self) -> None:
        self._opened: list[Any] = []

    @abstractmethod
    def go(self, call: Callable[[], Any]) -> Future[Any]: ...

    @abstractmethod
    def thread(self, codex: Any, thread_id: str = "thread") -> Any:
        """A thread of the agent, which the scripted server does not have to start."""

    @abstractmethod
    def read(self, turn: Any, **options: Any) -> Reading:
        """Begin to read the stream of a turn."""

    def do(self, call: Callable[[], Any]) -> Any:
        """Begin a call and wait for its end."""
        return self.go(call).result(DEADLINE_S)

    def open(self, config: CodexConfig, **handlers: Any) -> Any:
        """A connected `Codex` or `AsyncCodex`, closed at the end of the test."""
        codex = self.do(lambda: self._open(config, handlers))
        self._opened.append(codex)
        return codex

    @abstractmethod
    def _open(self, config: CodexConfig, handlers: dict[str, Any]) -> Any: ...

    def close(self, codex: Any) -> None:
        self.do(codex.close)

    def request(self, codex: Any, method: str, **params: Any) -> Any:
        """Ask something that only the scripted server knows."""
        return codex._client.request(method, params, response_model=Anything)

    def notify(self, codex: Any, method: str, **params: Any) -> None:
        self.do(lambda: codex._client.notify(method, params))

    def end(self) -> None:
        for codex in self._opened:
            self.close(codex)


class Anything:
    """An answer as it came."""

    def __init__(self, value: Any) -> None:
        self.value = value

    @classmethod
    def model_validate(cls, value: Any) -> Anything:
        return cls(value)


class Reading:
    """A stream that is being read elsewhere."""

    def __init__(self) -> None:
        self._events: queue.Queue[Notification] = queue.Queue()
        self.done: Future[Any]

    def add(self, event: Notification) -> None:
        self._events.put(event)

    def next(self) -> Notification:
        return self._events.get(timeout=DEADLINE_S)


class Blocking(Face):
    name = "sync"

    def go(self, call: Callable[[], Any]) -> Future[Any]:
        future: Future[Any] = Future()

        def run() -> None:
            try:
                future.set_result(call())
            except BaseException as error:
                future.set_exception(error)

        threading.Thread(target=run, name="test call", daemon=True).start()
        return future

    def thread(self, codex: Any, thread_id: str = "thread") -> Thread:
        return Thread(codex._client, thread_id)

    def read(self, turn: Any, **options: Any) -> Reading:
        reading = Reading()

        def run() -> None:
            for event in turn.stream(**options):
                reading.add(event)

        reading.done = self.go(run)
        return reading

    def _open(self, config: CodexConfig, handlers: dict[str, Any]) -> Codex:
        return Codex(config, **handlers)


class Looping(Face):
    name = "async"

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self._calls: dict[Future[Any], asyncio.Task[Any]] = {}
        self._complaints: list[str] = []
        self.loop.set_exception_handler(lambda _, context: self._complaints.append(str(context)))
        self._thread = threading.Thread(target=self.loop.run_forever, name="test loop", daemon=True)
        self._thread.start()

    def go(self, call: Callable[[], Any]) -> Future[Any]:
        async def run() -> Any:
            value = call()
            return await value if inspect.isawaitable(value) else value

        future: Future[Any] = Future()

        def begin() -> None:
            task = self.loop.create_task(run(), name="test call")
            self._calls[future] = task
            task.add_done_callback(end)

        def end(task: asyncio.Task[Any]) -> None:
            del self._calls[future]
            if task.cancelled():
                future.set_exception(asyncio.CancelledError())
            elif (error := task.exception()) is not None:
                future.set_exception(error)
            else:
                future.set_result(task.result())

        self.loop.call_soon_threadsafe(begin)
        return future

    def cancel(self, future: Future[Any]) -> None:
        """Cancel a call and wait until it is over."""
        self.loop.call_soon_threadsafe(lambda: self._calls[future].cancel())
        assert isinstance(future.exception(DEADLINE_S), asyncio.CancelledError)

    def thread(self, codex: Any, thread_id: str = "thread") -> AsyncThread:
        return AsyncThread(codex, thread_id)

    def read(self, turn: Any, **options: Any) -> Reading:
        reading = Reading()

        async def run() -> None:
            async for event in turn.stream(**options):
                reading.add(event)

        reading.done = self.go(run)
        return reading

    async def _open(self, config: CodexConfig, handlers: dict[str, Any]) -> AsyncCodex:
        codex = AsyncCodex(config, **handlers)
        await codex._ensure_initialized()
        return codex

    def end(self) -> None:
        try:
            super().end()
            self.do(self._check)
        finally:
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join(DEADLINE_S)
            self.loop.close()
        assert self._complaints == []

    async def _check(self) -> None:
        left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        assert left == [], f"tasks are left over: {left}"


FACES: Final[Mapping[str, Callable[[], Face]]] = {"sync": Blocking, "async": Looping}


@contextmanager
def nothing_left_over() -> Iterator[None]:
    """Fails when a thread is left that was not there before, a moment after everything was closed."""
    before = set(threading.enumerate())
    yield
    gc.collect()  # what was not closed complains here, and not in another test
    for thread in set(threading.enumerate()) - before:
        thread.join(DEADLINE_S)
        assert not thread.is_alive(), f"the thread {thread.name!r} is left over"
