"""`AsyncShell`: the event-loop side of the asyncio client: waiting, opening and closing, running handlers.

`shell` defines the same names for threads, so that both clients come from one source. Everything happens on the loop on
which the client was started; only handlers that are plain functions run on threads.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Container
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from msgspec import Raw

from treadle.client.codex_config import CodexConfig
from treadle.client.handlers import MAX_HANDLER_THREADS, MAX_HANDLERS, Handlers
from treadle.client.own_thread import run_on_own_thread
from treadle.client.router import Router, ServerRequest
from treadle.client.sdk_errors import CodexError, TransportClosedError
from treadle.rpc import RequestId
from treadle.transport.loop_owner import LoopOwner, needs_loop

if TYPE_CHECKING:
    from treadle.client.async_connection import AsyncConnection
    from treadle.client.server_requests import HandlerCall

T = TypeVar("T")

AsyncAnswer: TypeAlias = "asyncio.Future[Raw]"

CLOSE_S: Final = 15.0
"""Whoever closes a client that is being closed waits this long at most: a server has ended by then."""


def new_answer() -> AsyncAnswer:
    """The place of an answer that has not come."""
    return asyncio.get_running_loop().create_future()


async def answer_within(answer: AsyncAnswer, limit: float | None) -> Raw:
    """Wait for an answer. Raises `TimeoutError`; the answer may still come after that."""
    async with asyncio.timeout(limit):
        return await asyncio.shield(answer)


class AsyncWaiter:
    """Tasks wait here until there is something to take."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def set(self) -> None:
        """There may be."""
        self._event.set()

    async def take(self, take: Callable[[], T | None], timeout: float | None = None) -> T:
        """What `take` gives as soon as that is not None. Raises `TimeoutError`."""
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
        self._router = self._new_router()
        self._news = AsyncWaiter()  # for whoever reads the backlog
        self._connection: AsyncConnection | None = None
        self._opening: asyncio.Lock | None = None
        self._closing: asyncio.Future[None] | None = None
        self._handling: dict[asyncio.Task[None], RequestId] = {}
        self._handler_threads: set[object] = set()
        self._owner: LoopOwner | None = None

    def _new_router(self) -> Router:
        """For one conversation."""
        return Router()

    @abstractmethod
    def frames_received(self, frames: list[bytes]) -> None:
        """What the server said; called by the connection."""

    @abstractmethod
    def connection_ended(self, failure: TransportClosedError) -> None:
        """The connection is over: everyone who waits is told. Called by the connection."""

    @abstractmethod
    def _reply(self, request: ServerRequest, result: Any) -> None: ...

    # --- life ---

    async def start(self) -> None:
        """Connect to the server, starting it when the config says so. Does nothing when that was done."""
        from treadle.client.async_connection import open_connection  # loaded when a client connects

        self._check_usable()
        if self._opening is None:
            self._opening = asyncio.Lock()
            self._owner = LoopOwner("this client")
        async with self._opening:
            if self._connection is None:
                self._router = self._new_router()
                self._news = AsyncWaiter()  # it belongs to the loop that it was used on, as the lock does
                self._connection = await open_connection(self.config, self)

    async def close(self) -> None:
        """End the connection, and the server with all that it started if it is our own. May be called again."""
        owner = self._owner
        if owner is None:  # it was never started, is closed, or somebody is at it
            self.connection_ended(TransportClosedError("the client was closed"))
            await self._wait_until_closed()
            return
        self._check_closable()
        connection, self._connection = self._connection, None
        self._opening = self._owner = None
        if owner.forked:  # then all of it belongs to somebody else, who may be using it
            return
        if owner.gone:
            self._handling.clear()
            if connection is not None:
                await connection.abandon()
            return
        closing = self._closing = asyncio.get_running_loop().create_future()
        try:
            await self._end(connection)
        finally:
            closing.set_result(None)
            if self._closing is closing:
                self._closing = None

    async def _end(self, connection: AsyncConnection | None) -> None:
        self.connection_ended(TransportClosedError("the client was closed"))
        tasks = self._handling.keys() - {asyncio.current_task()}  # a handler may close the client that it works for
        for task in tasks:
            task.cancel()
        if connection is not None:
            await connection.close()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _wait_until_closed(self) -> None:
        """Wait, unless the caller is itself a handler: closing waits for handlers, so that would deadlock."""
        closing = self._closing
        if closing is None or asyncio.current_task() in self._handling:
            return
        if closing.get_loop() is asyncio.get_running_loop():
            await asyncio.wait([closing], timeout=CLOSE_S)

    @property
    def _forked(self) -> bool:
        return self._owner is not None and self._owner.forked

    def _check_closable(self) -> None:
        """It can also be closed where it cannot be used any more: in a fork, and when its loop has ended."""
        if self._owner is not None and not self._owner.gone and not self._owner.forked:
            self._check_usable()

    def _check_usable(self) -> None:
        """Raises `CodexError` where the client cannot be used: on another event loop, on none, or in a fork."""
        problem = self._owner.problem() if self._owner is not None else needs_loop("an asyncio client")
        if problem is not None:
            raise CodexError(problem)

    def _check_owner(self) -> None:
        """The same for what needs no loop as long as there is no connection."""
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
        task.add_done_callback(self._handled)

    def _handled(self, task: asyncio.Task[None]) -> None:
        self._handling.pop(task, None)

    def _withdrawn(self, questions: Container[RequestId]) -> None:
        """Nobody waits for these answers any more."""
        for task, request_id in self._handling.items():
            if request_id in questions:
                task.cancel()

    async def _answer(self, request: ServerRequest) -> None:
        from treadle.client.server_requests import handler_call_for  # loaded with the first request of the server

        work = handler_call_for(request, self.handlers, self._router.changes)
        self._reply(request, await self._result_of(work))

    async def _result_of(self, work: HandlerCall) -> Any:
        try:
            value = await self._call_on_thread(work) if work.blocking else work.call()
            if hasattr(value, "__await__"):
                value = await value
            return work.answer(value)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            return work.refuse(RuntimeError(repr(error)))
        except BaseException as error:  # also one that would end the loop: the server waits for an answer
            return work.refuse(error if isinstance(error, Exception) else RuntimeError(repr(error)))

    async def _call_on_thread(self, work: HandlerCall) -> Any:
        """A plain function may take its time; what it gives may have to be awaited, on the loop."""
        running = object()  # for as long as the thread: a handler whose question was withdrawn goes on
        self._handler_threads.add(running)

        def call() -> Any:
            try:
                return work.call()
            finally:
                self._handler_threads.discard(running)

        return await run_on_own_thread(call)
