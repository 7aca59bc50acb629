"""`command/exec` and `process/*`: commands that a client runs outside of any thread.

`ClientCommand` owns such a command from its start to its end: the environment, the time limit, the cap on the output
that is sent, input, size, and its end when the client leaves. Starting and confining it is `treadle.execution`.
`command/exec` runs in a sandbox, and its answer is the end of the command. A process runs without a sandbox and needs
the experimental API; the client names it by a handle, the answer says that it runs, `process/exited` that it has ended.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Final, Protocol, Self

from msgspec import UNSET, Struct, structs

from treadle.agent.event import Event, new_id, now_ms
from treadle.config.environment_settings import LOCAL
from treadle.errors import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    OVERLOAD_DATA,
    OVERLOADED,
    ExecError,
    RpcError,
)
from treadle.execution.environment import Environment
from treadle.execution.process import EventStream, Process
from treadle.execution.process_values import ExecParams, Exited, Failed, Output, OutputStream, ProcessEvent, WriteStatus
from treadle.execution.sandbox.profile_sandbox import Confinement
from treadle.execution.sandbox.sandbox_modes import UNPROTECTED, can_protect, may_write, request_sandbox
from treadle.protocol.app.base import Empty
from treadle.protocol.app.machine_methods import (
    CommandExecOutputDeltaNotification,
    CommandExecParams,
    CommandExecResizeParams,
    CommandExecResponse,
    CommandExecTerminateParams,
    CommandExecWriteParams,
    ProcessExitedNotification,
    ProcessKillParams,
    ProcessOutputDeltaNotification,
    ProcessResizePtyParams,
    ProcessSpawnParams,
    ProcessWriteStdinParams,
)
from treadle.protocol.exec import Sandbox, without
from treadle.server.app import AppServer
from treadle.server.clients import Client, ServerCall

# --- one command ------------------------------------------------------------------------------------------------------


logger: logging.Logger = logging.getLogger(__name__)
# What a request that names no limits gets; the numbers that clients of Codex know.
DEFAULT_TIMEOUT_S: Final = 10.0
DEFAULT_CAP: Final = 1 << 20
# What is held of each stream at most, also without a cap: a client that wants more has it streamed.
MAX_HELD: Final = 64 << 20
TIMED_OUT: Final = 124
# After its exit, what a child that it left behind may still write into its pipes.
DRAIN_S: Final = 2.0
END_DEADLINE_S: Final = 5.0
DEFAULT_SIZE: Final = (24, 80)
MAX_SIZE: Final = 0xFFFF


class TerminalSize(Protocol):
    @property
    def rows(self) -> int: ...
    @property
    def cols(self) -> int: ...


class Wanted(Struct, frozen=True, kw_only=True):
    """What to run, and what of it to send. In `env`, None takes a variable away; no `cap` and no `timeout_s` are no
    limits."""

    argv: tuple[str, ...]
    cwd: str
    env: Mapping[str, str | None]
    tty: bool
    size: tuple[int, int] | None
    takes_input: bool
    streams: bool
    cap: int | None
    timeout_s: float | None

    def __repr__(self) -> str:
        return without(self, "env")


class Ended(Struct, frozen=True, kw_only=True):
    """`drained` is whether all output came before its deadline."""

    exit_code: int
    stdout: str = ""
    stderr: str = ""
    stdout_capped: bool = False
    stderr_capped: bool = False
    drained: bool = True


class ClientCommand(ABC):
    """`start`, then `follow`. The task that does so is cancelled when the client leaves. `name` is the client's own."""

    noun: ClassVar[str]
    """What messages call it."""
    inactive: ClassVar[str]
    """The refusal of a request about one that does not run."""

    def __init__(self, server: AppServer, client: Client, name: str, wanted: Wanted) -> None:
        self.begun: asyncio.Event = asyncio.Event()
        self._name = name
        self._client = client
        self._server = server
        self._wanted = wanted
        self._task = asyncio.current_task()
        self._process: Process | None = None  # when it has begun, unless it could not be started
        self._input_ended = False
        most = sys.maxsize if wanted.streams else MAX_HELD
        cap = most if wanted.cap is None else min(wanted.cap, most)
        self._room: dict[OutputStream, int | None] = {OutputStream.STDOUT: cap, OutputStream.STDERR: cap}
        """How much of a stream may still be sent; None when the cap was reached, and that was reported."""
        self._held = {OutputStream.STDOUT: bytearray(), OutputStream.STDERR: bytearray()}
        self._exited = False
        self._ended = False

    @abstractmethod
    async def place(self) -> tuple[Environment, str, Sandbox | None]:
        """Where it runs, in which directory, confined to what."""

    @abstractmethod
    def send_output(self, stream: OutputStream, chunk: bytes, cap_reached: bool) -> None:
        """Send output to a client that has it streamed."""

    @classmethod
    def find(cls, call: ServerCall[Any], name: str) -> Self:
        """The command of the client that runs under this name."""
        command = call.server.watches(call.client).get(f"{cls.noun} {name}")
        if not isinstance(command, cls):
            raise cls.not_active(name)
        return command

    @classmethod
    def not_active(cls, name: str) -> RpcError:
        return RpcError(INVALID_REQUEST, f"{cls.inactive} {quoted(name)}")

    def cancel(self) -> None:
        """The client has left."""
        if self._task is not None:
            self._task.cancel()

    # --- its life ---

    async def start(self) -> None:
        wanted, server = self._wanted, self._server
        given = server.config.env_policy()
        removed = tuple(name for name, value in wanted.env.items() if value is None)
        policy = structs.replace(
            given,
            exclude=(*given.exclude, *removed),
            set={name: value for name, value in given.set.items() if name not in removed},
        )
        env = {"TERM": "xterm"} if wanted.tty and "TERM" not in removed else {}
        env |= {name: value for name, value in wanted.env.items() if value is not None}
        try:
            environment, cwd, sandbox = await self.place()
            self._process = await environment.start(
                ExecParams(
                    process_id=f"{self.noun}-{new_id()}",
                    argv=wanted.argv,
                    cwd=cwd,
                    env=env,
                    env_policy=policy,
                    tty=wanted.tty,
                    size=wanted.size or DEFAULT_SIZE,
                    pipe_stdin=wanted.takes_input and not wanted.tty,
                    sandbox=sandbox,
                )
            )
        except ExecError as error:
            raise RpcError(INTERNAL_ERROR, f"failed to spawn {self.noun}: {error.message}") from None
        finally:
            self.begun.set()

    async def follow(self) -> Ended:
        """Until it has ended, with whatever it left behind."""
        process = self._process
        assert process is not None
        events = process.events()
        try:
            if self._wanted.size is not None:  # an exec-server has not heard of it yet
                await process.resize(*self._wanted.size)
            in_time = await self._read_to_exit(process, events)
            drained = await self._drain(events)
        finally:
            events.close()
            if not process.closed:
                await end_process(process)
        return Ended(
            exit_code=TIMED_OUT if not in_time else -1 if process.exit_code is None else process.exit_code,
            stdout=self._held[OutputStream.STDOUT].decode("utf-8", "replace"),
            stderr=self._held[OutputStream.STDERR].decode("utf-8", "replace"),
            stdout_capped=self._room[OutputStream.STDOUT] is None,
            stderr_capped=self._room[OutputStream.STDERR] is None,
            drained=drained,
        )

    async def _read_to_exit(self, process: Process, events: EventStream) -> bool:
        """False when the time was up, and then it has been killed."""
        try:
            async with asyncio.timeout(self._wanted.timeout_s):
                while not self._exited:
                    await self._read(events)
        except TimeoutError:
            await process.terminate(0)
            return False
        return True

    async def _drain(self, events: EventStream) -> bool:
        """What a terminal held is read before the exit is reported; what comes after it is a background job's."""
        try:
            async with asyncio.timeout(DRAIN_S):
                while not (self._ended or (self._wanted.tty and self._exited)):
                    await self._read(events)
        except TimeoutError:
            return False
        return True

    async def _read(self, events: EventStream) -> None:
        """Nothing is taken before there is room for it, so nothing is lost when the time is up."""
        while self._wanted.streams and self._client.congested:
            await self._server.wait_until_writable()
        event = await anext(events, None)
        if event is None:
            self._exited = self._ended = True
        else:
            self._take(event)

    def _take(self, event: ProcessEvent) -> None:
        if isinstance(event, Failed):
            raise RpcError(INTERNAL_ERROR, f"the {self.noun} was lost: {event.message}")
        if isinstance(event, Exited):
            self._exited = True
        if not isinstance(event, Output):
            return
        stream = OutputStream.STDERR if event.stream is OutputStream.STDERR else OutputStream.STDOUT
        room = self._room[stream]
        if room is None:
            return
        chunk = event.chunk[:room]
        self._room[stream] = room - len(chunk) or None
        if self._wanted.streams:
            self.send_output(stream, chunk, self._room[stream] is None)
        else:
            self._held[stream] += chunk

    # --- what its client asks of it ---

    async def _started(self) -> Process:
        await self.begun.wait()
        if self._process is None:
            raise self.not_active(self._name)
        return self._process

    async def write(self, delta_base64: str | None, *, close: bool) -> None:
        data = _decoded(delta_base64 or "")
        if not self._wanted.takes_input:
            raise RpcError(INVALID_REQUEST, f"stdin streaming is not enabled for this {self.noun}")
        if self._input_ended:
            raise RpcError(INVALID_REQUEST, "stdin is already closed")
        self._input_ended = close
        process = await self._started()
        try:
            if data and (await process.write(data)).status is WriteStatus.STDIN_CLOSED:
                raise RpcError(INVALID_REQUEST, "stdin is already closed")
            if close:
                await process.close_stdin()
        except ExecError:
            raise self.not_active(self._name) from None

    async def resize(self, rows: int, cols: int) -> None:
        process = await self._started()
        try:
            await process.resize(rows, cols)
        except ExecError as error:
            raise RpcError(INVALID_REQUEST, f"failed to resize PTY: {error.message}") from None

    async def kill(self) -> None:
        """At once and without mercy, as clients expect it; its exit is reported in the usual way."""
        process = await self._started()
        await process.terminate(0)


def check_size(size: TerminalSize, what: str) -> tuple[int, int]:
    """Lines and columns."""
    if min(size.rows, size.cols) <= 0:
        raise RpcError(INVALID_PARAMS, f"{what} size rows and cols must be greater than 0")
    if max(size.rows, size.cols) > MAX_SIZE:
        raise RpcError(INVALID_PARAMS, f"{what} size rows and cols must be at most {MAX_SIZE}")
    return size.rows, size.cols


def check_input(delta_base64: str | None, close: bool, method: str) -> None:
    if delta_base64 is None and not close:
        raise RpcError(INVALID_PARAMS, f"{method} requires deltaBase64 or closeStdin")
    _decoded(delta_base64 or "")


def _decoded(text: str) -> bytes:
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except ValueError as error:
        raise RpcError(INVALID_PARAMS, f"invalid deltaBase64: {error}") from None


def quoted(text: str) -> str:
    return f'"{text[:200]}"'


def joined(base: str, path: str) -> str:
    """A path as text: it may be one of another machine."""
    return os.path.normpath(os.path.join(base, path))


async def end_process(process: Process) -> None:
    """Whatever it left behind goes too. Not for ever: the one who runs it may not answer."""
    try:
        async with asyncio.timeout(END_DEADLINE_S):
            await process.terminate()
    except (TimeoutError, ExecError) as error:
        logger.warning("%s may still run: %s", process.process_id, error or "no answer")


# --- command/exec -----------------------------------------------------------------------------------------------------


class ExecutedCommand(ClientCommand):
    noun = "command"
    inactive = "no active command/exec for process id"

    def __init__(self, call: ServerCall[CommandExecParams]) -> None:
        params = call.params
        cap = DEFAULT_CAP if params.output_bytes_cap is None else params.output_bytes_cap
        timeout_s = DEFAULT_TIMEOUT_S if params.timeout_ms is None else params.timeout_ms / 1000
        wanted = Wanted(
            argv=params.command,
            cwd=params.cwd or "",
            env=params.env or {},
            tty=params.tty,
            size=None if params.size is None else check_size(params.size, "command/exec"),
            takes_input=params.stream_stdin or params.tty,
            streams=params.stream_stdout_stderr or params.tty,
            cap=None if params.disable_output_cap else cap,
            timeout_s=None if params.disable_timeout else timeout_s,
        )
        super().__init__(call.server, call.client, params.process_id or "", wanted)
        self._params = params

    async def place(self) -> tuple[Environment, str, Sandbox | None]:
        params, server = self._params, self._server
        config = server.config
        policy: Confinement
        if params.permission_profile is None:
            policy = params.sandbox_policy or config.permissions().sandbox
        elif params.sandbox_policy is None:
            policy = config.profile_permissions(params.permission_profile).sandbox
        else:
            raise RpcError(INVALID_REQUEST, "`permissionProfile` cannot be combined with `sandboxPolicy`")
        if params.environment_id not in (None, LOCAL):
            machine = server.machine(params.environment_id)
            cwd = joined(await machine.directory(), self._wanted.cwd)
            roots = await machine.roots(policy, cwd, {})
            return await machine.environment(), cwd, await machine.sandbox(policy, cwd, roots)
        protect = not may_write(policy) or await can_protect()
        if not protect:
            self._client.warn_once(UNPROTECTED)
        cwd = joined(server.cwd, self._wanted.cwd)
        return await server.environment(), cwd, await request_sandbox(policy, cwd, server.home, protect=protect)

    def send_output(self, stream: OutputStream, chunk: bytes, cap_reached: bool) -> None:
        params = CommandExecOutputDeltaNotification(
            process_id=self._name,
            stream=stream.value,
            delta_base64=base64.b64encode(chunk).decode(),
            cap_reached=cap_reached,
        )
        self._client.notify(Event("command/exec/outputDelta", params, None, now_ms()))


async def execute(call: ServerCall[CommandExecParams]) -> CommandExecResponse:
    params: CommandExecParams = call.params
    if not params.command:
        raise RpcError(INVALID_REQUEST, "command must not be empty")
    if (params.tty or params.stream_stdin or params.stream_stdout_stderr) and not params.process_id:
        raise RpcError(INVALID_REQUEST, "command/exec tty or streaming requires a client-supplied processId")
    if params.size is not None and not params.tty:
        raise RpcError(INVALID_PARAMS, "command/exec size requires tty: true")
    if params.output_bytes_cap is not None and params.disable_output_cap:
        raise RpcError(INVALID_PARAMS, "command/exec cannot set both outputBytesCap and disableOutputCap")
    if params.timeout_ms is not None:
        if params.disable_timeout:
            raise RpcError(INVALID_PARAMS, "command/exec cannot set both timeoutMs and disableTimeout")
        if params.timeout_ms < 0:
            raise RpcError(INVALID_PARAMS, f"command/exec timeoutMs must be non-negative, got {params.timeout_ms}")
    watches = call.server.watches(call.client)
    name = f"command {params.process_id}" if params.process_id else f"unnamed command {new_id()}"
    if name in watches:
        raise RpcError(INVALID_REQUEST, f"duplicate active command/exec process id: {quoted(params.process_id or '')}")
    command = watches[name] = ExecutedCommand(call)
    try:
        await command.start()
        ended = await command.follow()
        return CommandExecResponse(exit_code=ended.exit_code, stdout=ended.stdout, stderr=ended.stderr)
    finally:
        watches.pop(name, None)


async def write(call: ServerCall[CommandExecWriteParams]) -> Empty:
    params = call.params
    check_input(params.delta_base64, params.close_stdin, "command/exec/write")
    await ExecutedCommand.find(call, call.params.process_id).write(params.delta_base64, close=params.close_stdin)
    return Empty()


async def resize(call: ServerCall[CommandExecResizeParams]) -> Empty:
    rows, cols = check_size(call.params.size, "command/exec")
    await ExecutedCommand.find(call, call.params.process_id).resize(rows, cols)
    return Empty()


async def terminate(call: ServerCall[CommandExecTerminateParams]) -> Empty:
    await ExecutedCommand.find(call, call.params.process_id).kill()
    return Empty()


# --- process/* --------------------------------------------------------------------------------------------------------


# Processes of one client at a time.
MAX_PROCESSES: Final = 64


class SpawnedProcess(ClientCommand):
    noun = "process"
    inactive = "no active process for process handle"

    def __init__(self, call: ServerCall[ProcessSpawnParams]) -> None:
        params = call.params
        timeout_ms = DEFAULT_TIMEOUT_S * 1000 if params.timeout_ms is UNSET else params.timeout_ms
        wanted = Wanted(
            argv=params.command,
            cwd=os.path.normpath(params.cwd),
            env=params.env or {},
            tty=params.tty,
            size=None if params.size is None else check_size(params.size, "process"),
            takes_input=params.stream_stdin or params.tty,
            streams=params.stream_stdout_stderr or params.tty,
            cap=DEFAULT_CAP if params.output_bytes_cap is UNSET else params.output_bytes_cap,
            timeout_s=None if timeout_ms is None else timeout_ms / 1000,
        )
        super().__init__(call.server, call.client, params.process_handle, wanted)

    async def place(self) -> tuple[Environment, str, None]:
        return await self._server.environment(), self._wanted.cwd, None

    def send_output(self, stream: OutputStream, chunk: bytes, cap_reached: bool) -> None:
        params = ProcessOutputDeltaNotification(
            process_handle=self._name,
            stream=stream.value,
            delta_base64=base64.b64encode(chunk).decode(),
            cap_reached=cap_reached,
        )
        self._client.notify(Event("process/outputDelta", params, None, now_ms()))

    def cancel(self) -> None:
        super().cancel()
        if self._process is not None:  # whose task may not have had its first step
            self._server.spawn(end_process(self._process), f"end of {self._process.process_id}")

    def go_on(self) -> None:
        """The client knows that it runs: follow the process, unless the client has left meanwhile."""
        if not self._client.closed:
            self._task = self._server.spawn(self._live(), f"process {quoted(self._name)}")

    async def _live(self) -> None:
        try:
            ended = await self.follow()
        except RpcError as error:
            logger.warning("process %s: %s", quoted(self._name), error.message)
            ended = Ended(exit_code=-1, stderr=error.message)
        finally:
            self.forget()
        params = ProcessExitedNotification(
            process_handle=self._name,
            exit_code=ended.exit_code,
            stdout=ended.stdout,
            stdout_cap_reached=ended.stdout_capped,
            stderr=ended.stderr,
            stderr_cap_reached=ended.stderr_capped,
            output_drain_timed_out=not ended.drained,
        )
        self._client.notify(Event("process/exited", params, None, now_ms()))

    def forget(self) -> None:
        if not self._client.closed:
            self._server.watches(self._client).pop(f"process {self._name}", None)


async def spawn_process(call: ServerCall[ProcessSpawnParams]) -> Empty:
    params = call.params
    if not params.command:
        raise RpcError(INVALID_REQUEST, "command must not be empty")
    if not params.process_handle:
        raise RpcError(INVALID_REQUEST, "processHandle must not be empty")
    if not os.path.isabs(params.cwd):
        raise RpcError(INVALID_REQUEST, f"Invalid request: cwd must be an absolute path, not {quoted(params.cwd)}")
    if params.size is not None and not params.tty:
        raise RpcError(INVALID_PARAMS, "process/spawn size requires tty: true")
    if isinstance(params.timeout_ms, int) and params.timeout_ms < 0:
        raise RpcError(INVALID_PARAMS, f"process/spawn timeoutMs must be non-negative, got {params.timeout_ms}")
    watches = call.server.watches(call.client)
    name = f"process {call.params.process_handle}"
    if name in watches:
        raise RpcError(INVALID_REQUEST, f"duplicate active process handle: {quoted(call.params.process_handle)}")
    if sum(isinstance(watch, SpawnedProcess) for watch in watches.values()) >= MAX_PROCESSES:
        raise RpcError(OVERLOADED, f"{MAX_PROCESSES} processes run; wait for one, or kill one", OVERLOAD_DATA)
    process = watches[name] = SpawnedProcess(call)
    try:
        await process.start()
    except BaseException:
        process.forget()
        raise
    call.afterwards(process.go_on)
    return Empty()


async def write_process(call: ServerCall[ProcessWriteStdinParams]) -> Empty:
    params = call.params
    check_input(params.delta_base64, params.close_stdin, "process/writeStdin")
    await SpawnedProcess.find(call, call.params.process_handle).write(params.delta_base64, close=params.close_stdin)
    return Empty()


async def resize_process(call: ServerCall[ProcessResizePtyParams]) -> Empty:
    rows, cols = check_size(call.params.size, "process")
    await SpawnedProcess.find(call, call.params.process_handle).resize(rows, cols)
    return Empty()


async def kill_process(call: ServerCall[ProcessKillParams]) -> Empty:
    await SpawnedProcess.find(call, call.params.process_handle).kill()
    return Empty()
