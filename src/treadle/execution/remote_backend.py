"""`RemoteBackend`: a client of one exec-server session that survives the loss of its connection.

    open ─▶ ready ──link lost──▶ recovering ──session resumed──▶ ready
              │                     │  not within `recovery_s`, or the session is gone
              │ no recovery         ▼
              └──────────────────▶ failed (final)            close ─▶ closed, from any state

Calls wait while recovering: `_ready` is cleared when the link is lost and set again by the recovery, or by the
failure, whose reason the waiting calls then raise. During the recovery each process reads what it missed before anybody
else may call, so that its events stay in order; and starts that were cut off by the loss are ended, because nobody
knows whether they ran.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec
from msgspec import UNSET, Struct
from pybase64 import b64decode

from treadle.arguments import text_problem
from treadle.errors import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    SANDBOX_DATA,
    SESSION_ATTACHED,
    ChannelClosed,
    ExecError,
    ExecTimeout,
    MalformedMessage,
    RpcError,
    SandboxRefused,
)
from treadle.execution.process_values import (
    Closed,
    ExecParams,
    Exited,
    LogEvent,
    Output,
    OutputStream,
    ProcessInfo,
    argv_of,
)
from treadle.execution.remote_process import RemoteProcess
from treadle.execution.uris import uri_from_path
from treadle.logs.trace import outside
from treadle.protocol.exec import (
    METHODS,
    Capabilities,
    ClosedNotice,
    EnvironmentInfo,
    ExitedNotice,
    InitializeParams,
    InitializeResult,
    ListResult,
    NoParams,
    OutputNotice,
    StartParams,
    StartResult,
    TerminateParams,
    TerminateResult,
)
from treadle.rpc import Notification, Request
from treadle.transport import Channel, RpcLink
from treadle.transport.channel import LoopOwner

logger: logging.Logger = logging.getLogger(__name__)

R = TypeVar("R", bound=Struct)

INITIALIZE_DEADLINE_S = 10.0
# It waits while the process does not read, which is the process's business.
_OPEN_ENDED = frozenset(("process/write",))
RECONNECT_EVERY_S = 0.1
CLOSE_DEADLINE_S = 5.0
# Requests that change nothing.
_READS = frozenset(
    ("fs/readFile", "fs/getMetadata", "fs/canonicalize", "fs/readDirectory", "fs/walk", "environment/status")
)
DISCONNECTED = "exec-server transport disconnected"


class RemoteBackend:
    """One session. `open_channel` connects; it is called again after a loss when `recovery_s` is not 0."""

    def __init__(
        self,
        open_channel: Callable[[], Awaitable[Channel]],
        *,
        recovery_s: float,
        request_timeout: float | None = None,
    ) -> None:
        self._open_channel = open_channel
        self._recovery_s = recovery_s
        self._request_timeout = request_timeout
        self._link: _Link | None = None
        self._ready = asyncio.Event()
        self._owner = LoopOwner("this environment")
        self._recovery: asyncio.Task[None] | None = None
        self._failure: str | None = None
        self._closing = False
        self._session_id: str | None = None
        self._processes: dict[str, RemoteProcess] = {}
        self._orphans: set[str] = set()  # starts that were cut off: whatever became of them is to be ended
        self.info: EnvironmentInfo | None = None
        self.capabilities: Capabilities = Capabilities()

    async def open(self) -> None:
        """Connect and shake hands; raises `ExecError`."""
        try:
            self._link = await self._connect()
        except (ChannelClosed, RpcError, TimeoutError) as error:
            reason = "no answer to initialize" if isinstance(error, TimeoutError) else str(error)
            raise ExecError(f"cannot reach the exec-server: {reason}") from None
        self._ready.set()
        if self.info is None:  # servers before 0.166 say it only when asked
            self.info = await self.call("environment/info", NoParams(), EnvironmentInfo)
            self.capabilities = self.info.capabilities

    async def start(self, params: ExecParams) -> RemoteProcess:
        """Start a process. A start that is cut off is not repeated: whether it ran is unknown, so it is cleaned up."""
        name = params.process_id
        if name in self._processes:
            raise ExecError(f"process {name} already exists", INVALID_REQUEST)
        wire = StartParams(
            process_id=name,
            argv=argv_of(params),
            cwd=uri_from_path(params.cwd),
            env=dict(params.env),
            tty=params.tty,
            pipe_stdin=params.pipe_stdin,
            arg0=params.arg0,
            env_policy=params.env_policy,
            sandbox=params.sandbox,
            acks=True if self.capabilities.process_ack else UNSET,
        )
        process = RemoteProcess(self, params)
        self._processes[name] = process  # before the request: events may overtake its answer
        try:
            try:
                await self._within_limit("process/start", self._call_when_ready("process/start", wire, StartResult))
            except ChannelClosed as error:
                self._orphans.add(name)
                raise ExecError(self._failure or f"{DISCONNECTED}: {error}") from None
            except (asyncio.CancelledError, ExecTimeout):
                if self._link is not None:
                    self._link.rpc.post("process/terminate", TerminateParams(process_id=name))
                raise
        except BaseException:
            process._lose("the process was not started")
            raise
        process._log_start(wire.argv)
        process._started(acks=self.capabilities.process_ack)
        return process

    async def _within_limit(self, method: str, answer: Awaitable[R]) -> R:
        """Nobody waits for ever: neither for an answer nor for the connection that it has to come over."""
        limit = None if method in _OPEN_ENDED else self._request_timeout
        try:
            async with asyncio.timeout(limit):
                return await answer
        except TimeoutError:
            raise ExecTimeout(
                f"the exec-server has not answered {method} within {limit:g} s; "
                "Environment.connect(request_timeout=…) gives it longer"
            ) from None

    async def processes(self) -> list[ProcessInfo]:
        self.require("process_list", "list its processes")
        result = await self.call("process/list", NoParams(), ListResult, repeat=True)
        return [
            ProcessInfo(item.process_id, item.argv, item.tty, item.next_seq, item.exited, item.exit_code, item.closed)
            for item in result.processes
        ]

    def require(self, capability: str, what: str) -> None:
        if not getattr(self.capabilities, capability):
            raise ExecError(f"this exec-server cannot {what}: it does not offer it", METHOD_NOT_FOUND)

    async def call(self, method: str, params: Struct, result: type[R], *, repeat: bool = False) -> R:
        """A request; `repeat` says that it may be sent again when the connection was lost before its answer."""
        return await self._within_limit(method, self._call_until_answered(method, params, result, repeat))

    async def _call_until_answered(self, method: str, params: Struct, result: type[R], repeat: bool) -> R:
        while True:
            try:
                return await self._call_when_ready(method, params, result)
            except ChannelClosed as error:
                # The loss of a link clears `_ready` first, so the next round waits for the recovery.
                if not repeat or self._failure is not None:
                    raise ExecError(self._failure or f"{DISCONNECTED}: {error}") from None

    async def _call_when_ready(self, method: str, params: Struct, result: type[R]) -> R:
        problem = self._owner.problem()
        if problem is not None:
            raise ExecError(problem)
        await self._ready.wait()
        return await self._call_now(method, params, result)

    async def call_method(self, method: str, params: Struct) -> Struct:
        """A request whose result type is the registry's; reads are repeated after a loss."""
        return await self.call(method, params, METHODS[method].result, repeat=method in _READS)

    async def _call_now(self, method: str, params: Struct, result: type[R]) -> R:
        if self._failure is not None:
            raise ExecError(self._failure)
        if self._link is None:
            raise ChannelClosed("not connected")
        try:
            return await self._link.rpc.call(method, params, result)
        except RpcError as error:
            kind = SandboxRefused if error.data == SANDBOX_DATA else ExecError
            raise kind(error.message, error.code) from None
        except UnicodeEncodeError as error:
            raise ExecError(f"{method}: a text {text_problem(error.object)}", INVALID_PARAMS) from None

    def _notify(self, method: str, params: Struct) -> None:
        if self._link is not None:
            self._link.rpc.notify(method, params)

    async def close(self) -> None:
        """End the processes that still run, and close the connection."""
        if self._closing:
            return
        self._closing = True
        if self._recovery is not None:
            self._recovery.cancel()
            await asyncio.wait((self._recovery,))
        if self._link is not None and self._failure is None:
            try:
                async with asyncio.timeout(CLOSE_DEADLINE_S):
                    for name in tuple(self._processes):
                        await self._call_now("process/terminate", TerminateParams(process_id=name), TerminateResult)
            except (ExecError, ChannelClosed, TimeoutError) as error:
                # The server ends them itself when the session has been detached for long enough.
                logger.debug("could not end all processes before leaving: %s", error)
        self._fail("the environment was closed")
        if self._link is not None:
            self._link.rpc.channel.close()
            await self._link.rpc.channel.wait_closed()

    # --- connecting ---

    async def _connect(self) -> _Link:
        channel = await self._open_channel()
        link = _Link(self, channel)
        try:
            link.rpc.start()
            async with asyncio.timeout(INITIALIZE_DEADLINE_S):
                params = InitializeParams(client_name="treadle", resume_session_id=self._session_id)
                answer = await link.rpc.call("initialize", params, InitializeResult)
            link.rpc.notify("initialized")
        except BaseException:
            channel.abort()
            raise
        self._session_id = answer.session_id
        if answer.environment_info is not None:
            self.info = answer.environment_info
            self.capabilities = answer.environment_info.capabilities
        return link

    def _lost(self, link: _Link, reason: str) -> None:
        if link is not self._link or self._closing:
            return
        self._link = None
        self._ready.clear()
        if self._recovery_s <= 0:
            self._fail(f"{DISCONNECTED}: {reason}")
        elif self._recovery is None or self._recovery.done():
            self._recovery = asyncio.get_running_loop().create_task(self._recover(reason), context=outside())

    async def _recover(self, reason: str) -> None:
        try:
            async with asyncio.timeout(self._recovery_s):
                while True:
                    if await self._resume():
                        break
                    await asyncio.sleep(RECONNECT_EVERY_S)
            why = None
        except TimeoutError:
            why = f"recovery timed out after {self._recovery_s:g}s"
        except (RpcError, ExecError) as error:
            why = str(error)
        if why is None:
            self._ready.set()
        else:
            self._fail(f"{DISCONNECTED}: {reason}; failed to resume exec-server session: {why}")

    async def _resume(self) -> bool:
        """One try; False when another one makes sense."""
        try:
            link = self._link = await self._connect()
            for name in tuple(self._orphans):
                await self._call_now("process/terminate", TerminateParams(process_id=name), TerminateResult)
                self._orphans.discard(name)
            for process in tuple(self._processes.values()):
                if process.started:
                    await self._catch_up(process)
        except (ChannelClosed, TimeoutError) as error:
            logger.info("reconnecting to the exec-server", {"reason": error})
            self._link = None
            return False
        except RpcError as error:
            if error.code != SESSION_ATTACHED:
                raise
            return False
        return not link.rpc.channel.closed

    async def _catch_up(self, process: RemoteProcess) -> None:
        try:
            await process._catch_up()
        except ExecError as error:
            if self._failure is not None:
                raise
            process._lose(f"the exec-server no longer knows the process: {error}")

    def _fail(self, message: str) -> None:
        self._failure = message
        for process in tuple(self._processes.values()):
            process._fail(message)
        self._processes.clear()
        self._ready.set()

    def _process_closed(self, process: RemoteProcess) -> None:
        if self._processes.get(process.process_id) is process:
            del self._processes[process.process_id]

    # --- what the server pushes ---

    def _pushed(self, notification: Notification) -> None:
        kind = _EVENTS.get(notification.method)
        if kind is None:
            logger.debug("a notification that this client has no use for: %.80r", notification.method)
            return
        try:
            notice = msgspec.json.decode(notification.params, type=kind)
        except (msgspec.ValidationError, msgspec.DecodeError) as error:
            logger.warning("a %s that cannot be read: %s", notification.method, error)
            return
        self._receive(notice)

    def _receive(self, notice: OutputNotice | ExitedNotice | ClosedNotice) -> None:
        process = self._processes.get(notice.process_id)
        if process is None:
            return
        event: LogEvent
        if isinstance(notice, OutputNotice):
            try:
                event = Output(notice.seq, _STREAMS[notice.stream], b64decode(notice.chunk, validate=True))
            except ValueError as error:
                process._lose(f"the exec-server sent output that is not base64: {error}")
                return
        elif isinstance(notice, ExitedNotice):
            event = Exited(notice.seq, notice.exit_code, notice.sandbox_denied)
        else:
            event = Closed(notice.seq)
        process._offer(event)


_EVENTS: dict[str, type[OutputNotice | ExitedNotice | ClosedNotice]] = {
    "process/output": OutputNotice,
    "process/exited": ExitedNotice,
    "process/closed": ClosedNotice,
}


class _OutputMessage(Struct):
    params: OutputNotice


_output_decoder = msgspec.json.Decoder(_OutputMessage)
_STREAMS = {stream.value: stream for stream in OutputStream}


class _Link:
    """The handler of one connection: passes on what belongs to the backend, as long as it is the current one."""

    def __init__(self, backend: RemoteBackend, channel: Channel) -> None:
        self._backend = backend
        self.rpc = RpcLink(channel, self, tap=self._output_received)

    def _output_received(self, frame: bytes) -> bool:
        """Output as servers write it is decoded in one pass over its bytes; anything else takes the usual way."""
        if not frame.startswith(b'{"method":"process/output",'):
            return False
        try:
            message = _output_decoder.decode(frame)
        except msgspec.DecodeError:
            return False
        self._backend._receive(message.params)
        return True

    def request_received(self, request: Request) -> None:
        self.rpc.fail(request.id, METHOD_NOT_FOUND, f"this client does not implement `{request.method}`")

    def notification_received(self, notification: Notification) -> None:
        self._backend._pushed(notification)

    def malformed_received(self, error: MalformedMessage) -> None:
        logger.warning("%s: %s", self.rpc.channel.peer, error)

    def link_closed(self, reason: str) -> None:
        self._backend._lost(self, reason)

    def link_writable(self) -> None:
        pass
