"""`ExecServer`: serves clients of the exec-server protocol; closing it ends everything that it started.

A connection begins with a handshake, which attaches it to a session, new or resumed; then its requests run side by
side. What ends with a connection (tasks, file handles, HTTP streams, pushes) belongs to `ExecConnection`; the session
outlives it.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

import msgspec
from msgspec import UNSET, Struct, structs

from treadle.errors import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    OVERLOADED,
    SANDBOX_DATA,
    ExecDenied,
    ExecError,
    MalformedMessage,
    SandboxRefused,
)
from treadle.execution.machine import machine_info
from treadle.execution.server.exec_sessions import DETACHED_S, EventPush, ExecSession, ProcessMethods, Sessions
from treadle.execution.server.rights import Rights
from treadle.execution.supervisor import Supervisor
from treadle.logs import audit
from treadle.logs.metrics import EXEC_REQUESTS
from treadle.logs.trace import IDS, new_trace, trace_of
from treadle.protocol.exec import (
    METHODS,
    AckParams,
    EnvironmentStatus,
    HttpRequestParams,
    InitializeParams,
    InitializeResult,
    StartParams,
)
from treadle.rpc import Notification, Request, RequestId
from treadle.rpc.message import decode_problem
from treadle.rpc.peer import UnmatchedAnswer
from treadle.transport import Channel, RpcLink
from treadle.transport.address import shown_url

logger: logging.Logger = logging.getLogger(__name__)

# Requests of one connection that may be under way; more are refused, not queued.
MAX_IN_FLIGHT = 1024
# How often to look whether all commands have ended.
DRAIN_LOOK_S = 0.05
# What msgspec raises; the last two are not of its own kind.
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

_Handler = Callable[[Any], Awaitable[Struct]]


class ExecServer:
    """The exec-server: serves any number of channels. Use it as an async context manager."""

    def __init__(
        self,
        *,
        detached_s: float = DETACHED_S,
        rights: Mapping[str, Rights] | None = None,
        max_processes: int | None = None,
    ) -> None:
        """`detached_s` is the longest that a session waits for its client; `rights` are by the names of tokens."""
        self._rights: Mapping[str, Rights] = {"": Rights()} if rights is None else rights
        self._supervisor = Supervisor()
        self._tasks: set[asyncio.Task[None]] = set()
        self._connections: set[Channel] = set()
        self._closing = False
        self._numbers = itertools.count(1)
        self.sessions: Sessions = Sessions(
            self._supervisor, self._spawn, detached_s=detached_s, max_processes=max_processes
        )

    async def __aenter__(self) -> ExecServer:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def used(self) -> bool:
        """Whether anybody is connected, or may come back for a session."""
        return bool(self._connections) or len(self.sessions) > 0

    def prepare(self) -> None:
        """Have the helper process ready before the first command asks for it."""
        self._supervisor.start()

    def accept(self, channel: Channel, taken: Callable[[], None] | None = None) -> None:
        """Serve a channel from now on. `taken` is called when a client begins to use it."""
        rights = self._rights.get(channel.token_name)
        if self._closing or rights is None:  # its handshake ended after the listener was closed
            channel.close()
            return
        self._connections.add(channel)
        self._spawn(self._serve(channel, rights, next(self._numbers), taken))

    async def _serve(self, channel: Channel, rights: Rights, number: int, taken: Callable[[], None] | None) -> None:
        logger.info("client connected", {"client": number, "peer": channel.peer, "token_name": rights.name or None})
        try:
            await ExecConnection(channel, self.sessions, rights, number, taken).run()
        finally:
            self._connections.discard(channel)
            logger.info("client has left", {"client": number})

    async def drain(self, seconds: float) -> None:
        """Take no new sessions and commands, and let those that run go on for so long."""
        self.sessions.draining = True
        logger.info("draining", {"seconds": seconds, "sessions": len(self.sessions)})
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self.sessions.busy:  # noqa: ASYNC110 (many things end it, and it is once in a server's life)
                    await asyncio.sleep(DRAIN_LOOK_S)

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

    def __init__(
        self,
        channel: Channel,
        sessions: Sessions,
        rights: Rights,
        number: int = 0,
        taken: Callable[[], None] | None = None,
    ) -> None:
        """`number` stands for the connection in logs."""
        self._number = number
        self._taken = taken
        self._sessions = sessions
        self._rights = rights
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
        self._link.channel.abort_unless_alive(deadline_s)

    # --- what arrives ---

    def request_received(self, request: Request) -> None:
        trace = trace_of(request.traceparent) if request.traceparent else new_trace()
        ids = {"trace": trace, "request": f"{self._number}:{request.id!s:.80}"}
        before = IDS.set({**ids, "token_name": self._rights.name} if self._rights.name else ids)
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
        if self._taken is not None:
            self._taken()
        if self._session is not None:
            self._link.fail(request_id, INVALID_REQUEST, "initialize may only be sent once per connection")
            return
        try:
            if audit.log is not None:
                who = {"client": self._number, "name": params.client_name[:80], "peer": self._link.channel.peer}
                audit.log.record("session", {**who, "resumes": params.resume_session_id})
            wish = None if params.detach_s is UNSET else params.detach_s
            session = self._sessions.attach(self, params.resume_session_id, wish, self._rights)
        except audit.AuditFailed as error:
            self._link.fail(request_id, INVALID_REQUEST, str(error))
            return
        except ExecError as error:
            self._failed("initialize", error)
            self._link.fail(request_id, error.code, error.message)
            return
        self._session = session
        self._processes = ProcessMethods(self._sessions, session, self._push)
        self._handlers.update(self._processes.handlers)
        self._handlers["environment/info"] = self._info
        self._handlers["environment/status"] = self._status
        fields = {"client": self._number, "name": params.client_name[:80], "session": session.id}
        logger.info("session resumed" if params.resume_session_id else "session opened", fields)
        given = UNSET if wish is None else session.detach_s
        info = self._rights.info(machine_info())
        result = InitializeResult(session_id=session.id, environment_info=info, detach_s=given)
        self._link.reply(request_id, result)
        self._processes.resume_pushes()

    async def _info(self, params: Struct) -> Struct:
        from treadle.execution.sandbox.sandbox_modes import mechanism  # loads all of them, and tries them out

        return structs.replace(self._rights.info(machine_info()), confines_by=await asyncio.to_thread(mechanism))

    async def _status(self, params: Struct) -> Struct:
        return EnvironmentStatus(status="ready")

    # --- requests ---

    async def _answer(self, request_id: RequestId, name: str, params: Struct) -> None:
        logger.debug("request received", {"method": name})
        try:
            if audit.log is not None:
                what = audit.subject(params)
                if isinstance(params, HttpRequestParams):
                    what["url"] = shown_url(params.url)  # the rest of it may be a secret
                audit.log.record("request", {"client": self._number, "method": name, **what})
            self._rights.check_method(name)
            handler = self._handlers.get(name) or self._load(name)
            self._link.reply(request_id, await handler(params))
        except audit.AuditFailed as error:
            self._link.fail(request_id, INVALID_REQUEST, str(error))
        except ExecError as error:
            self._failed(name, error)
            data = SANDBOX_DATA if isinstance(error, SandboxRefused) else None
            self._link.fail(request_id, error.code, error.message, data)
        except Exception:
            logger.exception("%s: %s failed", self._link.channel.peer, name)
            self._link.fail(request_id, INTERNAL_ERROR, f"{name} failed inside the server; its log has the details")
        else:
            EXEC_REQUESTS.add(self._rights.name, "done")
            if isinstance(params, StartParams) and self._processes is not None:
                self._processes.started(params)

    def _failed(self, method: str, error: ExecError) -> None:
        """Count and log a request that was answered with an error: for operators, where the token has a name."""
        denied = isinstance(error, ExecDenied | SandboxRefused)
        EXEC_REQUESTS.add(self._rights.name, "denied" if denied else "failed")
        if not denied or not self._rights.limited:
            logger.info("request failed", {"method": method, "code": error.code})
            return
        fields = {"client": self._number, "method": method, "reason": error.message[:500]}
        self._rights.refusals.add("a request was denied", "request denied", fields)

    async def _drained(self) -> None:
        while not self._link.channel.writable and not self._closed.is_set():
            self._writable.clear()
            await self._writable.wait()

    def _load(self, name: str) -> _Handler:
        """Handlers that most connections need late or never; their modules are loaded at the first such request."""
        if name.startswith("fs/"):
            from treadle.execution.server.file_methods import FileMethods

            assert self._session is not None
            files = FileMethods(self._link.notify, self._rights, self._session.seen)
            self._handlers.update(files.handlers)
            self._closers.append(files.close)
        else:
            from treadle.execution.server.http_requests import HttpRequests

            environ = {} if self._rights.limited else os.environ
            http = HttpRequests(self._link.notify, self._drained, environ=environ)
            self._handlers["http/request"] = http.request
            self._closers.append(http.close)
        return self._handlers[name]
