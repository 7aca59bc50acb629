"""`command/exec` and its companions: one command outside of any thread, for one client.

It owns a command from its request to its reply: the checks, the time limit, the output cap, and its end when the
client leaves. Starting and confining it is the business of `treadle.execution`.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
import os
import sys
from collections.abc import Mapping
from typing import Final, TypeAlias

from msgspec import structs

from treadle.agent.event import Event
from treadle.agent.ids import new_id, now_ms
from treadle.errors import INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, ExecError, RpcError
from treadle.execution.process import EventStream, Process
from treadle.execution.process_values import ExecParams, Exited, Failed, Output, OutputStream, ProcessEvent, WriteStatus
from treadle.execution.sandbox.profile_sandbox import Confinement
from treadle.execution.sandbox.sandbox_modes import UNPROTECTED, can_protect, may_write, request_sandbox
from treadle.protocol.app.base import Empty
from treadle.protocol.app.commands import (
    CommandExecOutputDeltaNotification,
    CommandExecParams,
    CommandExecResizeParams,
    CommandExecResponse,
    CommandExecTerminalSize,
    CommandExecTerminateParams,
    CommandExecWriteParams,
)
from treadle.protocol.exec import EnvPolicy, Sandbox
from treadle.server.app import AppServer
from treadle.server.client_base import Call, Client

logger: logging.Logger = logging.getLogger(__name__)

# What a request that names no limits gets; the numbers that clients of Codex know.
DEFAULT_TIMEOUT_S: Final = 10.0
DEFAULT_CAP: Final = 1 << 20
# What a reply holds of each stream at most, also without a cap: a client that wants more has it streamed.
MAX_HELD: Final = 64 << 20
TIMED_OUT: Final = 124
# After its exit, what a child that it left behind may still write into its pipes.
DRAIN_S: Final = 2.0
END_DEADLINE_S: Final = 5.0
MAX_SIZE: Final = 0xFFFF


# A request about a command that was started before.
_Following: TypeAlias = Call[CommandExecWriteParams] | Call[CommandExecResizeParams] | Call[CommandExecTerminateParams]


class Command:
    """One command of a client. `process` is there when it has `begun`, unless it could not be started."""

    def __init__(self, call: Call[CommandExecParams]) -> None:
        params = call.params
        self.params: CommandExecParams = params
        self.begun: asyncio.Event = asyncio.Event()
        self.process: Process | None = None
        self.takes_input: bool = params.stream_stdin or params.tty
        self.input_ended = False
        self._client: Client = call.client
        self._server: AppServer = call.server
        self._task = asyncio.current_task()
        self._streams = params.stream_stdout_stderr or params.tty
        cap = DEFAULT_CAP if params.output_bytes_cap is None else params.output_bytes_cap
        most = sys.maxsize if self._streams else MAX_HELD
        cap = most if params.disable_output_cap else min(cap, most)
        self._room: dict[OutputStream, int | None] = {OutputStream.STDOUT: cap, OutputStream.STDERR: cap}
        """How much of a stream may still be told; None when the cap was reached, and that was told."""
        self._held = {OutputStream.STDOUT: bytearray(), OutputStream.STDERR: bytearray()}
        self._exited = False
        self._ended = False

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def run(self) -> CommandExecResponse:
        try:
            process = self.process = await self._start()
        finally:
            self.begun.set()
        events = process.events()
        try:
            if self.params.size is not None:
                await process.resize(self.params.size.rows, self.params.size.cols)
            in_time = await self._follow(process, events)
        finally:
            events.close()
            if not process.closed:
                await _end(process)
        return CommandExecResponse(
            exit_code=_exit_code(process) if in_time else TIMED_OUT,
            stdout=self._text(OutputStream.STDOUT),
            stderr=self._text(OutputStream.STDERR),
        )

    # --- starting ---

    async def _start(self) -> Process:
        params, server = self.params, self._server
        cwd = _absolute(server.cwd, params.cwd or "")
        policy, env = self._environment(params.env or {})
        try:
            environment = await server.environment()
            return await environment.start(
                ExecParams(
                    process_id=f"command-{new_id()}",
                    argv=params.command,
                    cwd=cwd,
                    env=env,
                    env_policy=policy,
                    tty=params.tty,
                    pipe_stdin=params.stream_stdin,
                    sandbox=await self._sandbox(cwd),
                )
            )
        except ExecError as error:
            raise RpcError(INTERNAL_ERROR, f"failed to spawn command: {error.message}") from None

    async def _sandbox(self, cwd: str) -> Sandbox | None:
        policy = self._confinement()
        protect = not may_write(policy) or await can_protect()
        if not protect:
            self._client.warn_once(UNPROTECTED)
        return await request_sandbox(policy, cwd, self._server.home, protect=protect)

    def _confinement(self) -> Confinement:
        params, config = self.params, self._server.config
        if params.permission_profile is not None:
            if params.sandbox_policy is not None:
                raise RpcError(INVALID_REQUEST, "`permissionProfile` cannot be combined with `sandboxPolicy`")
            return config.profile_permissions(params.permission_profile).sandbox
        return params.sandbox_policy or config.permissions().sandbox

    def _environment(self, changes: Mapping[str, str | None]) -> tuple[EnvPolicy, dict[str, str]]:
        given = self._server.config.env_policy()
        removed = tuple(name for name, value in changes.items() if value is None)
        policy = structs.replace(
            given,
            exclude=(*given.exclude, *removed),
            set={name: value for name, value in given.set.items() if name not in removed},
        )
        env = {"TERM": "xterm"} if self.params.tty and "TERM" not in removed else {}
        return policy, env | {name: value for name, value in changes.items() if value is not None}

    # --- following ---

    async def _follow(self, process: Process, events: EventStream) -> bool:
        """Read to the end; False when the time was up, and then it has been killed."""
        in_time = True
        try:
            async with asyncio.timeout(self._timeout_s()):
                while not self._exited:
                    await self._read(events)
        except TimeoutError:
            in_time = False
            await process.terminate(0)
        # What a terminal held is read before the exit is told; what comes after it is a background job's.
        try:
            async with asyncio.timeout(DRAIN_S):
                while not (self._ended or (self.params.tty and self._exited)):
                    await self._read(events)
        except TimeoutError:
            pass
        return in_time

    def _timeout_s(self) -> float | None:
        if self.params.disable_timeout:
            return None
        return DEFAULT_TIMEOUT_S if self.params.timeout_ms is None else self.params.timeout_ms / 1000

    async def _read(self, events: EventStream) -> None:
        """Nothing is taken before there is room for it, so nothing is lost when the time is up."""
        while self._streams and self._client.congested:
            await self._server.relief()
        event = await anext(events, None)
        if event is None:
            self._exited = self._ended = True
        else:
            self._take(event)

    def _take(self, event: ProcessEvent) -> None:
        if isinstance(event, Failed):
            raise RpcError(INTERNAL_ERROR, f"the command was lost: {event.message}")
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
        if self._streams:
            self._tell(stream, chunk, self._room[stream] is None)
        else:
            self._held[stream] += chunk

    def _tell(self, stream: OutputStream, chunk: bytes, cap_reached: bool) -> None:
        params = CommandExecOutputDeltaNotification(
            process_id=self.params.process_id or "",
            stream=stream.value,
            delta_base64=base64.b64encode(chunk).decode(),
            cap_reached=cap_reached,
        )
        self._client.notify(Event("command/exec/outputDelta", params, None, now_ms()))

    def _text(self, stream: OutputStream) -> str:
        return self._held[stream].decode("utf-8", "replace")


def _absolute(base: str, path: str) -> str:
    return os.path.normpath(os.path.join(base, path))


def _exit_code(process: Process) -> int:
    return -1 if process.exit_code is None else process.exit_code


async def _end(process: Process) -> None:
    """Whatever it left behind goes too. Not for ever: the one who runs it may not answer."""
    try:
        async with asyncio.timeout(END_DEADLINE_S):
            await process.terminate()
    except (TimeoutError, ExecError) as error:
        logger.warning("%s may still run: %s", process.process_id, error or "no answer")


# --- the methods -----------------------------------------------------------------------------------------------------


async def execute(call: Call[CommandExecParams]) -> CommandExecResponse:
    params: CommandExecParams = call.params
    _check(params)
    watches = call.server.watches(call.client)
    name = _name(params.process_id) if params.process_id else f"unnamed command {new_id()}"
    if name in watches:
        raise RpcError(INVALID_REQUEST, f"duplicate active command/exec process id: {_quoted(params.process_id or '')}")
    command = watches[name] = Command(call)
    try:
        return await command.run()
    finally:
        watches.pop(name, None)


def _check(params: CommandExecParams) -> None:
    if not params.command:
        raise RpcError(INVALID_REQUEST, "command must not be empty")
    if (params.tty or params.stream_stdin or params.stream_stdout_stderr) and not params.process_id:
        raise RpcError(INVALID_REQUEST, "command/exec tty or streaming requires a client-supplied processId")
    if params.size is not None:
        if not params.tty:
            raise RpcError(INVALID_PARAMS, "command/exec size requires tty: true")
        _check_size(params.size)
    if params.output_bytes_cap is not None and params.disable_output_cap:
        raise RpcError(INVALID_PARAMS, "command/exec cannot set both outputBytesCap and disableOutputCap")
    if params.timeout_ms is not None:
        if params.disable_timeout:
            raise RpcError(INVALID_PARAMS, "command/exec cannot set both timeoutMs and disableTimeout")
        if params.timeout_ms < 0:
            raise RpcError(INVALID_PARAMS, f"command/exec timeoutMs must be non-negative, got {params.timeout_ms}")


def _check_size(size: CommandExecTerminalSize) -> None:
    if min(size.rows, size.cols) <= 0:
        raise RpcError(INVALID_PARAMS, "command/exec size rows and cols must be greater than 0")
    if max(size.rows, size.cols) > MAX_SIZE:
        raise RpcError(INVALID_PARAMS, f"command/exec size rows and cols must be at most {MAX_SIZE}")


async def write(call: Call[CommandExecWriteParams]) -> Empty:
    params = call.params
    if params.delta_base64 is None and not params.close_stdin:
        raise RpcError(INVALID_PARAMS, "command/exec/write requires deltaBase64 or closeStdin")
    data = _decoded(params.delta_base64 or "")
    command = _find(call)
    if not command.takes_input:
        raise RpcError(INVALID_REQUEST, "stdin streaming is not enabled for this command/exec")
    if command.input_ended:
        raise RpcError(INVALID_REQUEST, "stdin is already closed")
    command.input_ended = params.close_stdin
    process = await _process(call, command)
    try:
        if data and (await process.write(data)).status is WriteStatus.STDIN_CLOSED:
            raise RpcError(INVALID_REQUEST, "stdin is already closed")
        if params.close_stdin:
            await process.close_stdin()
    except ExecError:
        raise _not_active(call) from None
    return Empty()


def _decoded(text: str) -> bytes:
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except ValueError as error:
        raise RpcError(INVALID_PARAMS, f"invalid deltaBase64: {error}") from None


async def resize(call: Call[CommandExecResizeParams]) -> Empty:
    size = call.params.size
    _check_size(size)
    process = await _process(call, _find(call))
    try:
        await process.resize(size.rows, size.cols)
    except ExecError as error:
        raise RpcError(INVALID_REQUEST, f"failed to resize PTY: {error.message}") from None
    return Empty()


async def terminate(call: Call[CommandExecTerminateParams]) -> Empty:
    """At once and without mercy, as clients expect it; its exit is told by the reply to `command/exec`."""
    process = await _process(call, _find(call))
    await process.terminate(0)
    return Empty()


def _find(call: _Following) -> Command:
    command = call.server.watches(call.client).get(_name(call.params.process_id))
    if not isinstance(command, Command):
        raise _not_active(call)
    return command


async def _process(call: _Following, command: Command) -> Process:
    await command.begun.wait()
    if command.process is None:
        raise _not_active(call)
    return command.process


def _name(process_id: str) -> str:
    return f"command {process_id}"


def _not_active(call: _Following) -> RpcError:
    return RpcError(INVALID_REQUEST, f"no active command/exec for process id {_quoted(call.params.process_id)}")


def _quoted(text: str) -> str:
    return f'"{text[:200]}"'
