"""`Shell`: the threading side of the blocking client: waiting, opening and closing, running handlers.

`async_shell` defines the same names for an event loop, so that both clients come from one source. One thread per
connection reads, and no user code runs there; each handler gets a thread of its own. `_lock` guards the router, which
any number of threads use.

A fork has copies of the locks, which nobody releases, and no thread that reads. `_check_usable` and `close` are the one
guard against it: they look before they touch anything.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Container
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from msgspec import Raw

from treadle.arguments import wait_of
from treadle.client.codex_config import CodexConfig
from treadle.client.requests import MAX_HANDLER_THREADS, MAX_HANDLERS, Handlers
from treadle.client.router import Router, ServerRequest
from treadle.client.sdk_errors import CodexError, TransportClosedError
from treadle.rpc import RequestId

if TYPE_CHECKING:
    import asyncio

    from treadle.client.connection import Connection
    from treadle.client.server_requests import HandlerCall

T = TypeVar("T")

Answer: TypeAlias = "Future[Raw]"


def new_answer() -> Answer:
    """An answer that has not come yet."""
    return Future()


def answer_within(answer: Answer, limit: float | None) -> Raw:
    """Wait for an answer. Raises `TimeoutError`; the answer may still come after that."""
    return answer.result(limit)


class Waiter:
    """Threads wait here until an event can be taken."""

    def __init__(self) -> None:
        self._changed = threading.Condition()

    def set(self) -> None:
        """Wake all waiting threads."""
        with self._changed:
            self._changed.notify_all()

    def take(self, take: Callable[[], T | None], timeout: float | None = None) -> T:
        """What `take` returns, as soon as that is not None. Raises `TimeoutError`."""
        timeout = wait_of(timeout)
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._changed:
            while (found := take()) is None:
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    raise TimeoutError
                self._changed.wait(left)
            return found


class Shell(ABC):
    """The threading side of a client."""

    def __init__(self, config: CodexConfig, handlers: Handlers) -> None:
        self.config: CodexConfig = config
        self.handlers: Handlers = handlers
        self._extensions: frozenset[str] = frozenset()  # what the server can do beyond the Codex protocol
        self._router = self._new_router()
        # Around each call of the router. A signal may arrive while it is held, and its handler may use the client.
        self._lock = threading.RLock()
        self._news: Waiter | None = None  # for readers of the backlog; made by the first one
        self._connection: Connection | None = None
        self._opening = threading.Lock()
        self._closing = threading.RLock()  # around `close`; a signal may close a client that is being closed
        self._handling: set[_Handling] = set()
        self._handler_threads = 0
        self._counting = threading.Lock()  # around the two above
        self._pid: int | None = None  # of the process in which it was started

    def _new_router(self) -> Router:
        """A router for one conversation."""
        return Router()

    @abstractmethod
    def frames_received(self, frames: list[bytes]) -> None:
        """Take frames of the server; called by the connection."""

    @abstractmethod
    def connection_ended(self, failure: TransportClosedError) -> None:
        """Fail everyone who waits: the connection is over. Called by the connection."""

    @abstractmethod
    def _reply(self, request: ServerRequest, result: Any) -> None: ...

    # --- life ---

    def start(self) -> None:
        """Connect to the server, and start it if it is our own. Does nothing if it is connected."""
        from treadle.client.connection import open_connection  # loaded when a client connects

        self._check_usable()
        with self._opening:
            if self._connection is None:
                self._router = self._new_router()
                self._connection = open_connection(self.config, self)
                self._pid = os.getpid()
                if self.config.url is None:
                    atexit.register(self.close)  # a server of ours ends with this process, also if nobody closes it

    def close(self) -> None:
        """End the connection, and the server with all that it started if it is our own. May be called again."""
        if self._forked:  # all of it belongs to another process, which may be using it
            self._connection = None
            return
        atexit.unregister(self.close)
        self.connection_ended(TransportClosedError("the client was closed"))
        with self._closing:
            connection, self._connection = self._connection, None
            self._pid = None
            if connection is not None:
                connection.close()

    @property
    def _forked(self) -> bool:
        return self._pid is not None and self._pid != os.getpid()

    def _check_usable(self) -> None:
        """Raise `CodexError` in a fork."""
        if self._forked:
            from treadle.transport.channel import forked  # it loads asyncio

            raise CodexError(forked("this client", self._pid or 0))

    def _check_owner(self) -> None:
        self._check_usable()

    # --- answering ---

    def _request_received(self, request: ServerRequest) -> None:
        from treadle.client import server_requests  # loaded with the first request of the server

        handling = _Handling(request)
        with self._counting:
            busy = len(self._handling) >= MAX_HANDLERS or self._handler_threads >= MAX_HANDLER_THREADS
            if not busy:
                self._handling.add(handling)
                self._handler_threads += 1
        if busy:
            self._reply(request, server_requests.busy(MAX_HANDLERS))
        else:
            threading.Thread(
                target=self._answer, args=(handling,), name=f"treadle {request.method}", daemon=True
            ).start()

    def _withdrawn(self, questions: Container[RequestId]) -> None:
        """Cancel the handlers of requests that no longer need an answer. A plain function runs on, on its thread."""
        with self._counting:
            withdrawn = [handling for handling in self._handling if handling.request.id in questions]
            self._handling.difference_update(withdrawn)
        for handling in withdrawn:
            handling.cancel()

    def _answer(self, handling: _Handling) -> None:
        from treadle.client.server_requests import handler_call_for  # loaded with the first request of the server

        try:
            result = handling.result_of(handler_call_for(handling.request, self.handlers, self._router.changes))
            with self._counting:
                wanted = handling in self._handling
                self._handling.discard(handling)
            if wanted:
                self._reply(handling.request, result)
        finally:
            with self._counting:
                self._handling.discard(handling)
                self._handler_threads -= 1


class _Handling:
    """A server request that a thread is answering. An async handler gets an event loop of its own on that thread."""

    def __init__(self, request: ServerRequest) -> None:
        self.request = request
        self._lock = threading.Lock()
        self._cancelled = False
        self._task: asyncio.Task[Any] | None = None

    def result_of(self, work: HandlerCall) -> Any:
        try:
            value = work.call()
            if hasattr(value, "__await__"):
                import asyncio  # only for async handlers

                value = asyncio.run(self._finish(value))
            return work.answer(value)
        except BaseException as error:  # also one that would end the thread: the server waits for an answer
            return work.refuse(error if isinstance(error, Exception) else RuntimeError(repr(error)))

    async def _finish(self, value: Any) -> Any:
        import asyncio  # only for async handlers

        with self._lock:
            self._task = task = asyncio.current_task()
            if self._cancelled and task is not None:
                task.cancel()
        try:
            return await value
        finally:
            with self._lock:  # from here on the loop may be closed
                self._task = None

    def cancel(self) -> None:
        with self._lock:
            self._cancelled = True
            if self._task is not None:
                self._task.get_loop().call_soon_threadsafe(self._task.cancel)
