"""One client connection: the handshake, then requests run side by side.

It owns what dies with the connection (tasks, file handles, HTTP streams, pushes); the session outlives it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
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
from treadle.execution.server.exec_sessions import Session, Sessions
from treadle.execution.server.processes import ProcessMethods
from treadle.execution.server.push import EventPush
from treadle.logs.trace import IDS, new_trace, trace_of
from treadle.protocol.exec import (
    METHODS,
    AckParams,
    EnvironmentStatus,
    InitializeParams,
    InitializeResult,
    Method,
    StartParams,
)
from treadle.rpc import Notification, Request, RequestId
from treadle.rpc.peer import UnmatchedAnswer
from treadle.transport import Channel, RpcLink

logger: logging.Logger = logging.getLogger(__name__)

# Requests of one connection that may be under way; more are refused, not queued.
MAX_IN_FLIGHT = 1024

# What msgspec raises; the last two are not of its own kind.
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

HandlerOf = Callable[[Any], Awaitable[Struct]]


class Connection:
    """Speaks the exec-server protocol over one channel until it closes."""

    def __init__(self, channel: Channel, sessions: Sessions, number: int = 0) -> None:
        """`number` is what logs call it."""
        self._number = number
        self._sessions = sessions
        self._link = RpcLink(channel, self, untrusted=True)
        self._push = EventPush(self._link)
        self._session: Session | None = None
        self._processes: ProcessMethods | None = None
        self._ready = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._handlers: dict[str, HandlerOf] = {}
        self._closers: list[Callable[[], Awaitable[None]]] = []
        self._closed = asyncio.Event()
        self._room = asyncio.Event()

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
            self._receive(request)
        finally:
            IDS.reset(before)

    def _receive(self, request: Request) -> None:
        self._hold()
        method = METHODS.get(request.method)
        if method is None:
            text = f"this exec-server does not implement `{request.method:.80}`"
            self._link.fail(request.id, METHOD_NOT_FOUND, text)
            return
        try:
            params = msgspec.json.decode(request.params, type=method.params)
        except _UNREADABLE as error:
            self._link.fail(request.id, INVALID_PARAMS, str(error))
            return
        if isinstance(params, InitializeParams):
            self._initialize(request.id, params)
        elif self._may_use(request.id, method):
            self._dispatch(request.id, request.method, params)

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
        self._room.set()

    def link_writable(self) -> None:
        self._room.set()
        self._push.resume()
        if self._link.channel.writable:
            self._link.channel.resume()

    def _hold(self) -> None:
        """While answers wait for the peer, refusals too, no more questions are taken."""
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

    def _may_use(self, request_id: RequestId, method: Method) -> bool:
        if self._ready:
            return True
        verb = "call initialize" if self._session is None else "send initialized"
        self._link.fail(request_id, INVALID_REQUEST, f"client must {verb} before using {method.family} methods")
        return False

    async def _info(self, params: Struct) -> Struct:
        return machine_info()

    async def _status(self, params: Struct) -> Struct:
        return EnvironmentStatus(status="ready")

    # --- requests ---

    def _dispatch(self, request_id: RequestId, name: str, params: Struct) -> None:
        if len(self._tasks) >= MAX_IN_FLIGHT:
            text = f"{MAX_IN_FLIGHT} requests are under way on this connection: retry later"
            self._link.fail(request_id, OVERLOADED, text)
            return
        task = asyncio.get_running_loop().create_task(self._answer(request_id, name, params))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

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
            self._room.clear()
            await self._room.wait()

    def _load(self, name: str) -> HandlerOf:
        """Handlers that most connections need late or never; their modules are loaded at the first such request."""
        if name.startswith("fs/"):
            from treadle.execution.files.fs_handlers import FileMethods

            files = FileMethods(asyncio.to_thread, self._link.notify)
            self._handlers.update(files.handlers)
            self._closers.append(files.close)
        else:
            from treadle.execution.http import HttpRequests

            http = HttpRequests(self._link.notify, self._drained)
            self._handlers["http/request"] = http.request
            self._closers.append(http.close)
        return self._handlers[name]
