"""`RemoteBackend`: a client of one exec-server session that survives the loss of its connection.

    open ─▶ ready ──link lost──▶ recovering ──session resumed──▶ ready
              │                     │  not within `recovery_s`, or the session is gone
              │ no recovery         ▼
              └──────────────────▶ failed (final)            close ─▶ closed, from any state

Calls wait while recovering: `_ready` is cleared when the link is lost and set again by the recovery, or by the
failure, whose reason the waiting calls then raise. During the recovery each process reads what it missed before anybody
else may call, so that its events stay in order. A start that was cut off by the loss is looked up by its id; where
nobody knows whether it ran, it is ended and not repeated.

The server is believed no more than a network: what it says is checked and bounded, and a session that comes back as
another one, or with less to offer, is lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec
from msgspec import UNSET, Struct, UnsetType
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
    OutcomeUnknown,
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
    DetachParams,
    DetachResult,
    EnvironmentInfo,
    EnvironmentStatus,
    ExitedNotice,
    InitializeParams,
    InitializeResult,
    ListResult,
    NoParams,
    OutputNotice,
    Sandbox,
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
T = TypeVar("T")

INITIALIZE_DEADLINE_S = 10.0
# It waits while the process does not read, which is the process's business.
_OPEN_ENDED = frozenset(("process/write",))
RECONNECT_EVERY_S = 0.1
CLOSE_DEADLINE_S = 5.0
# Requests that change nothing.
_READS = frozenset(
    (
        *("fs/readFile", "fs/getMetadata", "fs/look", "fs/canonicalize", "fs/readDirectory", "fs/walk"),
        "environment/status",
    )
)
DISCONNECTED = "exec-server transport disconnected"
# A start may be sent again under its id for so long: servers remember the id of a process that has ended for 30 s.
REPEAT_START_S = 15.0
# How long a start that is refused because the first one arrived as well may take to be known.
START_KNOWN_S = 5.0
MAX_TEXT = 4096  # characters of what a server says of itself, or of an error
MAX_ODD = 100  # messages that are none, before the server is not listened to any more; each is logged


class RemoteBackend:
    """One session. `open_channel` connects; it is called again after a loss when `recovery_s` is not 0."""

    def __init__(
        self,
        open_channel: Callable[[], Awaitable[Channel]],
        *,
        recovery_s: float,
        detach_s: float | None = None,
        request_timeout: float | None = None,
        on_connection: Callable[[bool], object] | None = None,
        session_id: str | None = None,
    ) -> None:
        self._open_channel = open_channel
        self._recovery_s = recovery_s
        self._request_timeout = request_timeout
        self._detach_s = detach_s
        self._on_connection = on_connection or (lambda connected: None)
        self._link: _Link | None = None
        self._ready = asyncio.Event()
        self._owner = LoopOwner("this environment")
        self._recovery: asyncio.Task[None] | None = None
        self.failure: str | None = None
        self._closing = False
        self.session_id: str | None = session_id
        self._processes: dict[str, RemoteProcess] = {}
        # In a session of another program: what is known here of it. The rest belongs to those who may come for it.
        self._known: set[str] | None = None if session_id is None else set()
        self._orphans: set[str] = set()  # starts that were cut off: whatever became of them is to be ended
        self._odd_ones = 0
        self.info: EnvironmentInfo | None = None
        self.capabilities: Capabilities = Capabilities()
        self._confines_by: str | UnsetType | None = UNSET

    async def open(self) -> None:
        """Connect and shake hands; raises `ExecError`."""
        try:
            self._link = await self._connect()
        except RpcError as error:
            raise ExecError(f"cannot reach the exec-server: {error}", error.code) from None
        except (ChannelClosed, TimeoutError) as error:
            reason = "no answer to initialize" if isinstance(error, TimeoutError) else str(error)
            raise ExecError(f"cannot reach the exec-server: {reason}") from None
        self._ready.set()
        if self.info is None:  # servers before 0.166 say it only when asked
            try:
                self.info = _checked(await self.call("environment/info", NoParams(), EnvironmentInfo))
            except BaseException:
                self._link.rpc.channel.abort()
                raise
            self.capabilities = self.info.capabilities

    async def start(self, params: ExecParams) -> RemoteProcess:
        """Start a process. Raises `OutcomeUnknown` when nobody knows whether it ran; then it is cleaned up."""
        name = params.process_id
        if self._known is not None:
            self._known.add(name)
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
                answer = await self._within_limit("process/start", self._start_once(process, wire))
                if answer is not None and answer.sandbox_type == "none" and _restricts(wire.sandbox):
                    await self.call("process/terminate", TerminateParams(process_id=name), TerminateResult, repeat=True)
                    raise ExecError(
                        "the exec-server ran the command without the sandbox that was asked for, and was told to end it"
                    )
            except OutcomeUnknown:
                self._orphans.add(name)
                raise
            except (asyncio.CancelledError, ExecTimeout):
                if self._link is None:
                    self._orphans.add(name)
                else:
                    self._link.rpc.post("process/terminate", TerminateParams(process_id=name))
                raise
        except BaseException:
            process._lose("the process was not started")
            raise
        process._log_start(wire.argv)
        process._started(acks=self.capabilities.process_ack)
        return process

    async def take_up(self, process_id: str) -> RemoteProcess:
        """A process that runs in the session already, from the beginning of what is retained of it."""
        process = RemoteProcess(self, ExecParams(process_id=process_id, argv=("found again",), cwd="/"))
        self._processes[process_id] = process
        if self._known is not None:
            self._known.add(process_id)
        try:
            process._started(acks=self.capabilities.process_ack)
            async with asyncio.timeout(self._request_timeout):
                await self._caught_up(process)
        except (RpcError, ExecError, TimeoutError) as error:
            process._lose("the process was not found again")
            reason = "no answer" if isinstance(error, TimeoutError) else error
            raise ExecError(f"the process was not found again: {reason}") from None
        return process

    async def _caught_up(self, process: RemoteProcess) -> None:
        """Read what there is of a process, however often the connection is lost meanwhile."""
        while True:
            await self._ready.wait()
            try:
                await process._catch_up()
            except ChannelClosed:
                continue
            return

    async def _start_once(self, process: RemoteProcess, wire: StartParams) -> StartResult | None:
        """Have a process started, however often the connection is lost on the way. Its id says whether it was; None for
        one that was found."""
        loop = asyncio.get_running_loop()
        until = loop.time() + REPEAT_START_S
        try:
            return await self._call_when_ready("process/start", wire, StartResult)
        except ChannelClosed as error:
            reason = str(error)
        while True:
            try:
                if await self._find(process):
                    return None
                if loop.time() < until:
                    known_by = loop.time() + START_KNOWN_S
                    try:
                        return await self._call_when_ready("process/start", wire, StartResult)
                    except ExecError as refusal:
                        # Of itself, or because the first one has come in meanwhile and is being started.
                        while not await self._find(process):
                            if loop.time() > known_by:
                                raise refusal from None
                            await asyncio.sleep(RECONNECT_EVERY_S)
                        return None
            except ChannelClosed:
                continue
            raise OutcomeUnknown(f"{DISCONNECTED}: {reason}; nobody knows whether the command ran")

    async def _find(self, process: RemoteProcess) -> bool:
        """Whether the server knows the process, whose events so far are then read."""
        await self._ready.wait()
        try:
            await process._catch_up()
        except ExecError:
            if self.failure is not None:  # which every call raises then
                raise OutcomeUnknown(f"{self.failure}; nobody knows whether the command ran") from None
            return False
        return True

    async def _within_limit(self, method: str, answer: Awaitable[T]) -> T:
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

    @property
    def is_connected(self) -> bool:
        return self._link is not None and self._ready.is_set() and self.failure is None

    async def check(self) -> None:
        await self.call("environment/status", NoParams(), EnvironmentStatus, repeat=True)

    async def confines_by(self) -> str | None:
        if self._confines_by is UNSET and self.capabilities.sandbox_orders:  # others do not tell
            info = _checked(await self.call("environment/info", NoParams(), EnvironmentInfo, repeat=True))
            self._confines_by = info.confines_by
        return None if self._confines_by is UNSET else self._confines_by

    async def processes(self) -> list[ProcessInfo]:
        self.require("process_list", "list its processes")
        result = await self.call("process/list", NoParams(), ListResult, repeat=True)
        return msgspec.convert(result.processes, list[ProcessInfo], from_attributes=True)

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
                if self.failure is not None:
                    raise ExecError(self.failure) from None
                if not repeat:
                    raise OutcomeUnknown(f"{DISCONNECTED}: {error}") from None

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
        if self.failure is not None:
            raise ExecError(self.failure)
        if self._link is None:
            raise ChannelClosed("not connected")
        sandbox: object = getattr(params, "sandbox", None)
        if isinstance(sandbox, Sandbox) and sandbox.protect_orders is True and not self.capabilities.sandbox_orders:
            # It would be overlooked. Whoever made it has asked another server what it can, or an earlier one here.
            raise SandboxRefused("this exec-server does not protect what it was asked to protect", INVALID_REQUEST)
        try:
            return await self._link.rpc.call(method, params, result)
        except RpcError as error:
            kind = SandboxRefused if error.data == SANDBOX_DATA else ExecError
            raise kind(_bounded(error.message), error.code) from None
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
        if self._link is not None and self.failure is None:
            try:
                async with asyncio.timeout(CLOSE_DEADLINE_S):
                    for name in tuple(self._processes):
                        await self._call_now("process/terminate", TerminateParams(process_id=name), TerminateResult)
                    # Nobody will come back to it.
                    if self.capabilities.session_detach and self._detach_s and not await self._has_others():
                        await self._call_now("session/detach", DetachParams(detach_s=0), DetachResult)
            except (ExecError, ChannelClosed, TimeoutError) as error:
                # The server ends them itself when the session has been detached for long enough.
                logger.debug("could not end all processes before leaving: %s", error)
        self._fail("the environment was closed")
        if self._link is not None:
            channel = self._link.rpc.channel
            channel.close()
            await channel.wait_closed()

    async def _has_others(self) -> bool:
        """Whether there are processes in the session that somebody else may come for."""
        if self._known is None:
            return False
        if not self.capabilities.process_list:
            return True
        listed = await self._call_now("process/list", NoParams(), ListResult)
        return any(process.process_id not in self._known for process in listed.processes)

    # --- connecting ---

    async def _connect(self) -> _Link:
        channel = await self._open_channel()
        link = _Link(self, channel)
        try:
            link.rpc.start()
            async with asyncio.timeout(INITIALIZE_DEADLINE_S):
                wish = UNSET if self._detach_s is None else self._detach_s  # other servers overlook it
                params = InitializeParams(client_name="treadle", resume_session_id=self.session_id, detach_s=wish)
                answer = await link.rpc.call("initialize", params, InitializeResult)
            self._check(answer)
            link.rpc.notify("initialized")
        except BaseException:
            channel.abort()
            raise
        self.session_id = answer.session_id
        if answer.environment_info is not None:
            self.info = answer.environment_info
            self.capabilities = answer.environment_info.capabilities
        return link

    def _check(self, answer: InitializeResult) -> None:
        """Raises `ExecError` for a server that is another one than before, or none."""
        if len(answer.session_id) > MAX_TEXT:
            raise ExecError("the exec-server answered with a session id that is none")
        if self.session_id not in (None, answer.session_id):
            raise ExecError("the exec-server answered with another session than the one that was asked for")
        if answer.environment_info is None:
            return
        _checked(answer.environment_info)
        if self.info is not None and answer.environment_info.capabilities != self.capabilities:
            # Sandboxes that are on their way were made for what it could before.
            raise ExecError("the exec-server came back with other capabilities than before")

    def _odd(self, link: _Link, what: str) -> None:
        """A message that is none: logged, up to a number."""
        self._odd_ones += 1
        if self._odd_ones <= MAX_ODD:
            logger.warning("%s: %s", link.rpc.channel.peer, what)
        else:
            link.rpc.channel.abort()

    def _lost(self, link: _Link, reason: str) -> None:
        if link is not self._link:
            return
        self._link = None
        if self.failure is not None:
            return
        self._ready.clear()  # also for `close`: whoever tries again waits for the end of that
        if self._closing:
            return
        self._on_connection(False)
        if self._recovery_s <= 0:
            self._fail(f"{DISCONNECTED}: {reason}")
        elif self._odd_ones > MAX_ODD:
            self._fail(f"{DISCONNECTED}: more than {MAX_ODD} of the exec-server's messages were not of its protocol")
        elif self._recovery is None or self._recovery.done():
            self._recovery = asyncio.get_running_loop().create_task(self._recover(reason), context=outside())

    async def _recover(self, reason: str) -> None:
        try:
            async with asyncio.timeout(self._recovery_s):
                while self.failure is None:
                    if await self._resume():
                        break
                    await asyncio.sleep(RECONNECT_EVERY_S)
            why = None
        except TimeoutError:
            why = f"recovery timed out after {self._recovery_s:g}s"
        except (RpcError, ExecError) as error:
            why = str(error)
        if self.failure is not None:
            return
        if why is None:
            self._ready.set()
            self._on_connection(True)
        else:
            self._fail(f"{DISCONNECTED}: {reason}; failed to resume exec-server session: {why}")
            if self._link is not None:  # it answers, but not with what is needed
                self._link.rpc.channel.abort()

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
            if self.failure is not None:
                raise
            process._lose(f"the exec-server no longer knows the process: {error}")

    def _fail(self, message: str) -> None:
        self.failure = message
        for process in tuple(self._processes.values()):
            process._fail(message)
        self._processes.clear()
        self._ready.set()

    def _process_closed(self, process: RemoteProcess) -> None:
        if self._processes.get(process.process_id) is process:
            del self._processes[process.process_id]

    # --- what the server pushes ---

    def _pushed(self, link: _Link, notification: Notification) -> None:
        kind = _EVENTS.get(notification.method)
        if kind is None:
            logger.debug("a notification that this client has no use for: %.80r", notification.method)
            return
        try:
            notice = msgspec.json.decode(notification.params, type=kind)
        except (msgspec.DecodeError, RecursionError) as error:
            what = f"a {notification.method} that cannot be read: {_bounded(str(error))}"
            self._odd(link, what)
            with contextlib.suppress(msgspec.DecodeError, RecursionError):  # without it, events of that one are missing
                name = msgspec.json.decode(notification.params, type=_Named).process_id
                if name in self._processes:
                    self._processes[name]._lose(f"the exec-server sent {what}")
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


def _restricts(sandbox: Sandbox | None) -> bool:
    """Whether a command in it has to be confined, by whomever."""
    permissions = None if sandbox is None else sandbox.permissions
    if permissions is None or permissions.type != "managed" or permissions.file_system is None:
        return False
    return permissions.file_system.type == "restricted"


def _bounded(text: str) -> str:
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}… ({len(text)} characters)"


def _checked(info: EnvironmentInfo) -> EnvironmentInfo:
    """Raises `ExecError` for what nobody can be called, or be in."""
    lists = (*info.temporary_directories[:MAX_TEXT], *info.prepend_path_dirs[:MAX_TEXT])
    texts = (info.shell.name, info.shell.path, info.cwd, info.user_home_dir, info.temp_dir, info.platform_os, *lists)
    for text in (*texts, info.executor_version, info.provider_id, info.confines_by):
        if text is not None and (len(text) > MAX_TEXT or not text.isprintable()):
            raise ExecError(f"the exec-server says of itself what cannot be true: {text[:100]!a}")
    return info


class _Named(Struct, rename="camel"):
    process_id: str


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
        what = f"this client does not implement `{request.method[:80]}`"
        self._backend._odd(self, what)
        if self.rpc.channel.writable and len(str(request.id)) <= MAX_TEXT:  # nobody need keep answers for it
            self.rpc.fail(request.id, METHOD_NOT_FOUND, what)

    def notification_received(self, notification: Notification) -> None:
        self._backend._pushed(self, notification)

    def malformed_received(self, error: MalformedMessage) -> None:
        self._backend._odd(self, _bounded(str(error)))

    def link_closed(self, reason: str) -> None:
        self._backend._lost(self, reason)

    def link_writable(self) -> None:
        pass
