"""`ExecServer`: serves clients of the exec-server protocol; closing it ends everything that it started.

A connection begins with a handshake, which attaches it to a session, new or resumed; then its requests run side by
side. What ends with a connection (tasks, file handles, HTTP streams, pushes) belongs to `ExecConnection`; the session
outlives it.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import msgspec
from msgspec import Struct

from treadle.errors import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    OVERLOADED,
    SANDBOX_DATA,
    ExecError,
    MalformedMessage,
    SandboxRefused,
)
from treadle.execution.machine import machine_info
from treadle.execution.server.exec_sessions import DETACHED_S, EventPush, ExecSession, ProcessMethods, Sessions
from treadle.execution.supervisor import Supervisor
from treadle.logs.trace import IDS, new_trace, trace_of
from treadle.protocol.exec import (
    METHODS,
    AckParams,
    EnvironmentStatus,
    InitializeParams,
    InitializeResult,
    StartParams,
)
from treadle.rpc import Notification, Request, RequestId
from treadle.rpc.message import decode_problem
from treadle.rpc.peer import UnmatchedAnswer
from treadle.transport import Channel, RpcLink

logger: logging.Logger = logging.getLogger(__name__)

MAX_CONNECTIONS = 1024
# Requests of one connection that may be under way; more are refused, not queued.
MAX_IN_FLIGHT = 1024
# What msgspec raises; the last two are not of its own kind.
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

_Handler = Callable[[Any], Awaitable[Struct]]


class ExecServer:
    """The exec-server: serves any number of channels. Use it as an async context manager."""

    def __init__(self, *, detached_s: float = DETACHED_S) -> None:
        self._supervisor = Supervisor()
        self._tasks: set[asyncio.Task[None]] = set()
        self._connections: set[Channel] = set()
        self._closing = False
        self._numbers = itertools.count(1)
        self.sessions: Sessions = Sessions(self._supervisor, self._spawn, detached_s=detached_s)

    async def __aenter__(self) -> ExecServer:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def prepare(self) -> None:
        """Have the helper process ready before the first command asks for it."""
        self._supervisor.start()

    def accept(self, channel: Channel) -> None:
        """Serve a channel from now on."""
        if self._closing:  # its handshake ended after the listener was closed
            channel.close()
            return
        if len(self._connections) >= MAX_CONNECTIONS:
            logger.warning("%s: refused, %d connections are open", channel.peer, MAX_CONNECTIONS)
            channel.close()
            return
        self._connections.add(channel)
        self._spawn(self._serve(channel, next(self._numbers)))

    async def _serve(self, channel: Channel, number: int) -> None:
        logger.info("client connected", {"client": number, "peer": channel.peer})
        try:
            await ExecConnection(channel, self.sessions, number).run()
        finally:
            self._connections.discard(channel)
            logger.info("client has left", {"client": number})

    async def close(self) -> None:
        """End all connections, sessions and processes."""
        self._closing = True
        for channel in tuple(self._connections):
            channel.close()
        await self.sessions.close()
        for channel in tuple(self._connections):
            channel.abort()
        while self._tasks:
            await asyncio.wait(self._tasks)
        await self.sessions.close()
        await self._supervisor.close()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logger.error("a connection or session failed", exc_info=task.exception())


class ExecConnection:
    """One client: speaks the exec-server protocol over its channel until that closes."""

    def __init__(self, channel: Channel, sessions: Sessions, number: int = 0) -> None:
        """`number` stands for the connection in logs."""
        self._number = number
        self._sessions = sessions
        self._link = RpcLink(channel, self, untrusted=True)
        self._push = EventPush(self._link)
        self._session: ExecSession | None = None
        self._processes: ProcessMethods | None = None
        self._ready = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._handlers: dict[str, _Handler] = {}
        self._closers: list[Callable[[], Awaitable[None]]] = []
        self._closed = asyncio.Event()
        self._writable = asyncio.Event()

    async def run(self) -> None:
        """Serve until the channel ends; then release everything but the session."""
        self._link.start()
        try:
            await self._closed.wait()
        finally:
            self._link.channel.close()
            self._push.close()
            for task in self._tasks:
                task.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks)
            try:
                for close in self._closers:
                    await close()
            finally:
                if self._session is not None:
                    self._sessions.detach(self._session)

    def probe(self, deadline_s: float) -> None:
        channel = self._link.channel
        before = channel.heard_at
        channel.probe()

        def check() -> None:
            if not channel.closed and channel.heard_at == before:
                channel.abort()

        if before is not None:
            asyncio.get_running_loop().call_later(deadline_s, check)

    # --- what arrives ---

    def request_received(self, request: Request) -> None:
        trace = trace_of(request.traceparent) if request.traceparent else new_trace()
        before = IDS.set({"trace": trace, "request": f"{self._number}:{request.id!s:.80}"})
        try:
            self._hold()
            method = METHODS.get(request.method)
            if method is None:
                text = f"this exec-server does not implement `{request.method:.80}`"
                self._link.fail(request.id, METHOD_NOT_FOUND, text)
                return
            try:
                params = msgspec.json.decode(request.params, type=method.params)
            except _UNREADABLE as error:
                self._link.fail(request.id, INVALID_PARAMS, decode_problem(bytes(request.params), error))
                return
            if isinstance(params, InitializeParams):
                self._initialize(request.id, params)
            elif not self._ready:
                verb = "call initialize" if self._session is None else "send initialized"
                text = f"client must {verb} before using {method.family} methods"
                self._link.fail(request.id, INVALID_REQUEST, text)
            elif len(self._tasks) >= MAX_IN_FLIGHT:
                text = f"{MAX_IN_FLIGHT} requests are under way on this connection: retry later"
                self._link.fail(request.id, OVERLOADED, text)
            else:
                task = asyncio.get_running_loop().create_task(self._answer(request.id, request.method, params))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        finally:
            IDS.reset(before)

    def notification_received(self, notification: Notification) -> None:
        if notification.method == "initialized" and self._session is not None:
            self._ready = True
            return
        if notification.method == "process/ack" and self._processes is not None:
            try:
                self._processes.acknowledge(msgspec.json.decode(notification.params, type=AckParams))
            except _UNREADABLE as error:
                logger.debug("%s: a process/ack that cannot be read: %s", self._link.channel.peer, error)
            else:
                return
        logger.warning("%s: unexpected notification %.80r: disconnecting", self._link.channel.peer, notification.method)
        self._link.channel.abort()

    def malformed_received(self, error: MalformedMessage) -> None:
        self._hold()
        if isinstance(error, UnmatchedAnswer):
            logger.warning("%s: %s: disconnecting", self._link.channel.peer, error)
            self._link.channel.abort()
        else:
            self._link.fail(-1, INVALID_REQUEST, str(error))

    def link_closed(self, reason: str) -> None:
        self._closed.set()
        self._writable.set()

    def link_writable(self) -> None:
        self._writable.set()
        self._push.resume()
        if self._link.channel.writable:
            self._link.channel.resume()

    def _hold(self) -> None:
        """Take no more requests while answers, refusals too, wait for the peer."""
        if not self._link.channel.writable:
            self._link.channel.pause()

    # --- handshake ---

    def _initialize(self, request_id: RequestId, params: InitializeParams) -> None:
        if self._session is not None:
            self._link.fail(request_id, INVALID_REQUEST, "initialize may only be sent once per connection")
            return
        try:
            session = self._sessions.attach(self, params.resume_session_id)
        except ExecError as error:
            self._link.fail(request_id, error.code, error.message)
            return
        self._session = session
        self._processes = ProcessMethods(session, self._push)
        self._handlers.update(self._processes.handlers)
        self._handlers["environment/info"] = self._info
        self._handlers["environment/status"] = self._status
        fields = {"client": self._number, "name": params.client_name[:80], "session": session.id}
        logger.info("session resumed" if params.resume_session_id else "session opened", fields)
        self._link.reply(request_id, InitializeResult(session_id=session.id, environment_info=machine_info()))
        self._processes.resume_pushes()

    async def _info(self, params: Struct) -> Struct:
        return machine_info()

    async def _status(self, params: Struct) -> Struct:
        return EnvironmentStatus(status="ready")

    # --- requests ---

    async def _answer(self, request_id: RequestId, name: str, params: Struct) -> None:
        logger.debug("request received", {"method": name})
        try:
            handler = self._handlers.get(name) or self._load(name)
            self._link.reply(request_id, await handler(params))
        except ExecError as error:
            logger.info("request failed", {"method": name, "code": error.code})
            data = SANDBOX_DATA if isinstance(error, SandboxRefused) else None
            self._link.fail(request_id, error.code, error.message, data)
        except Exception:
            logger.exception("%s: %s failed", self._link.channel.peer, name)
            self._link.fail(request_id, INTERNAL_ERROR, f"{name} failed inside the server; its log has the details")
        else:
            if isinstance(params, StartParams) and self._processes is not None:
                self._processes.started(params)

    async def _drained(self) -> None:
        while not self._link.channel.writable and not self._closed.is_set():
            self._writable.clear()
            await self._writable.wait()

    def _load(self, name: str) -> _Handler:
        """Handlers that most connections need late or never; their modules are loaded at the first such request."""
        if name.startswith("fs/"):
            from treadle.execution.server.file_methods import FileMethods

            files = FileMethods(asyncio.to_thread, self._link.notify)
            self._handlers.update(files.handlers)
            self._closers.append(files.close)
        else:
            from treadle.execution.server.http_requests import HttpRequests

            http = HttpRequests(self._link.notify, self._drained)
            self._handlers["http/request"] = http.request
            self._closers.append(http.close)
        return self._handlers[name]
