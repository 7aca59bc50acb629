"""`AsyncShell`: the event-loop side of the asyncio client: waiting, opening and closing, running handlers.

`shell` defines the same names for threads, so that both clients come from one source. Everything happens on the loop on
which the client was started, so `_lock` does nothing; only handlers that are plain functions run on threads.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Container
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from msgspec import Raw

from treadle.client.codex_config import CodexConfig
from treadle.client.own_thread import run_on_own_thread
from treadle.client.requests import MAX_HANDLER_THREADS, MAX_HANDLERS, Handlers
from treadle.client.router import Router, ServerRequest
from treadle.client.sdk_errors import CodexError, TransportClosedError
from treadle.rpc import RequestId
from treadle.transport.channel import LoopOwner, needs_loop

if TYPE_CHECKING:
    from treadle.client.async_connection import AsyncConnection
    from treadle.client.server_requests import HandlerCall

T = TypeVar("T")

AsyncAnswer: TypeAlias = "asyncio.Future[Raw]"

CLOSE_S: Final = 15.0
"""A second `close` of a client waits this long at most for the first: a server has ended by then."""


def new_answer() -> AsyncAnswer:
    """An answer that has not come yet."""
    return asyncio.get_running_loop().create_future()


async def answer_within(answer: AsyncAnswer, limit: float | None) -> Raw:
    """Wait for an answer. Raises `TimeoutError`; the answer may still come after that."""
    async with asyncio.timeout(limit):
        return await asyncio.shield(answer)


class AsyncWaiter:
    """Tasks wait here until an event can be taken."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def set(self) -> None:
        """Wake all waiting tasks."""
        self._event.set()

    async def take(self, take: Callable[[], T | None], timeout: float | None = None) -> T:
        """What `take` returns, as soon as that is not None. Raises `TimeoutError`."""
        if timeout is not None:
            async with asyncio.timeout(timeout):
                return await self.take(take)
        while (found := take()) is None:
            self._event.clear()
            await self._event.wait()
        return found


class AsyncShell(ABC):
    """The event-loop side of a client."""

    def __init__(self, config: CodexConfig, handlers: Handlers) -> None:
        self.config: CodexConfig = config
        self.handlers: Handlers = handlers
        self._extensions: frozenset[str] = frozenset()  # what the server can do beyond the Codex protocol
        self._router = self._new_router()
        self._lock = nullcontext()
        self._news: AsyncWaiter | None = None  # for readers of the backlog; made by the first one
        self._connection: AsyncConnection | None = None
        self._opening: asyncio.Lock | None = None
        self._closing: asyncio.Future[None] | None = None
        self._handling: dict[asyncio.Task[None], RequestId] = {}
        self._handler_threads: set[object] = set()
        self._owner: LoopOwner | None = None

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

    async def start(self) -> None:
        """Connect to the server, and start it if it is our own. Does nothing if it is connected."""
        from treadle.client.async_connection import open_connection  # loaded when a client connects

        self._check_usable()
        if self._opening is None:
            self._opening = asyncio.Lock()
            self._owner = LoopOwner("this client")
        async with self._opening:
            if self._connection is None:
                self._router = self._new_router()
                self._news = None  # it belongs to the loop that it was used on, as `_opening` does
                self._connection = await open_connection(self.config, self)

    async def close(self) -> None:
        """End the connection, and the server with all that it started if it is our own. May be called again."""
        owner = self._owner
        if owner is None:  # it was never started, is closed, or is being closed
            self.connection_ended(TransportClosedError("the client was closed"))
            closing = self._closing
            here = closing is not None and closing.get_loop() is asyncio.get_running_loop()
            # A handler that closes its client does not wait: closing waits for handlers.
            if closing is not None and here and asyncio.current_task() not in self._handling:
                await asyncio.wait([closing], timeout=CLOSE_S)
            return
        self._check_closable()
        connection, self._connection = self._connection, None
        self._opening = self._owner = None
        if owner.forked:  # all of it belongs to another process, which may be using it
            return
        if owner.gone:
            self._handling.clear()
            if connection is not None:
                await connection.abandon()
            return
        ended = self._closing = asyncio.get_running_loop().create_future()
        try:
            self.connection_ended(TransportClosedError("the client was closed"))
            tasks = self._handling.keys() - {asyncio.current_task()}  # a handler may close the client that it works for
            for task in tasks:
                task.cancel()
            if connection is not None:
                await connection.close()
            # With a limit: a handler may refuse to be cancelled.
            await asyncio.wait({asyncio.gather(*tasks, return_exceptions=True)}, timeout=CLOSE_S)
        finally:
            ended.set_result(None)
            if self._closing is ended:
                self._closing = None

    @property
    def _forked(self) -> bool:
        return self._owner is not None and self._owner.forked

    def _check_closable(self) -> None:
        """Raise `CodexError` where the client cannot be closed. It can be closed where it cannot be used any more: in a
        fork, and when its loop has ended."""
        if self._owner is not None and not self._owner.gone and not self._owner.forked:
            self._check_usable()

    def _check_usable(self) -> None:
        """Raises `CodexError` where the client cannot be used: on another event loop, on none, or in a fork."""
        problem = self._owner.problem() if self._owner is not None else needs_loop("an asyncio client")
        if problem is not None:
            raise CodexError(problem)

    def _check_owner(self) -> None:
        """`_check_usable` for what needs no loop as long as there is no connection."""
        if self._owner is not None:
            self._check_usable()

    # --- answering ---

    def _request_received(self, request: ServerRequest) -> None:
        from treadle.client import server_requests  # loaded with the first request of the server

        if len(self._handling) >= MAX_HANDLERS or len(self._handler_threads) >= MAX_HANDLER_THREADS:
            self._reply(request, server_requests.busy(MAX_HANDLERS))
            return
        task = asyncio.get_running_loop().create_task(self._answer(request), name=f"treadle {request.method}")
        self._handling[task] = request.id
        task.add_done_callback(lambda done: self._handling.pop(done, None))

    def _withdrawn(self, questions: Container[RequestId]) -> None:
        """Cancel the handlers of requests that no longer need an answer."""
        for task, request_id in self._handling.items():
            if request_id in questions:
                task.cancel()

    async def _answer(self, request: ServerRequest) -> None:
        from treadle.client.server_requests import handler_call_for  # loaded with the first request of the server

        work = handler_call_for(request, self.handlers, self._router.changes)
        try:
            value = await self._call_on_thread(work) if work.blocking else work.call()
            if hasattr(value, "__await__"):
                value = await value
            result = work.answer(value)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            result = work.refuse(RuntimeError(repr(error)))
        except BaseException as error:  # also one that would end the loop: the server waits for an answer
            result = work.refuse(error if isinstance(error, Exception) else RuntimeError(repr(error)))
        self._reply(request, result)

    async def _call_on_thread(self, work: HandlerCall) -> Any:
        """Call a plain function, which may take its time; what it returns may have to be awaited, on the loop."""
        running = object()  # for as long as the thread: a handler whose request was withdrawn runs on
        self._handler_threads.add(running)

        def call() -> Any:
            try:
                return work.call()
            finally:
                self._handler_threads.discard(running)

        return await run_on_own_thread(call)
