"""`command/exec` and its companions: one command outside of any thread, for one client. Its reply tells its end."""

from __future__ import annotations

import base64
import os
from typing import TypeAlias

from treadle.agent.event import Event
from treadle.agent.ids import new_id, now_ms
from treadle.errors import INVALID_PARAMS, INVALID_REQUEST, RpcError
from treadle.execution.process_values import OutputStream
from treadle.execution.sandbox.profile_sandbox import Confinement
from treadle.execution.sandbox.sandbox_modes import UNPROTECTED, can_protect, may_write, request_sandbox
from treadle.protocol.app.base import Empty
from treadle.protocol.app.commands import (
    CommandExecOutputDeltaNotification,
    CommandExecParams,
    CommandExecResizeParams,
    CommandExecResponse,
    CommandExecTerminateParams,
    CommandExecWriteParams,
)
from treadle.protocol.exec import Sandbox
from treadle.server.client_base import Call
from treadle.server.client_command import (
    DEFAULT_CAP,
    DEFAULT_TIMEOUT_S,
    ClientCommand,
    Wanted,
    check_input,
    check_size,
    quoted,
)

# A request about a command that was started before.
_Following: TypeAlias = Call[CommandExecWriteParams] | Call[CommandExecResizeParams] | Call[CommandExecTerminateParams]


class Command(ClientCommand):
    noun = "command"

    def __init__(self, call: Call[CommandExecParams]) -> None:
        super().__init__(call.server, call.client, _wanted(call.params, call.server.cwd))
        self._params = call.params

    async def sandbox(self, cwd: str) -> Sandbox | None:
        policy = self._confinement()
        protect = not may_write(policy) or await can_protect()
        if not protect:
            self._client.warn_once(UNPROTECTED)
        return await request_sandbox(policy, cwd, self._server.home, protect=protect)

    def _confinement(self) -> Confinement:
        params, config = self._params, self._server.config
        if params.permission_profile is not None:
            if params.sandbox_policy is not None:
                raise RpcError(INVALID_REQUEST, "`permissionProfile` cannot be combined with `sandboxPolicy`")
            return config.profile_permissions(params.permission_profile).sandbox
        return params.sandbox_policy or config.permissions().sandbox

    def tell(self, stream: OutputStream, chunk: bytes, cap_reached: bool) -> None:
        params = CommandExecOutputDeltaNotification(
            process_id=self._params.process_id or "",
            stream=stream.value,
            delta_base64=base64.b64encode(chunk).decode(),
            cap_reached=cap_reached,
        )
        self._client.notify(Event("command/exec/outputDelta", params, None, now_ms()))

    def not_active(self) -> RpcError:
        return _not_active(self._params.process_id or "")


def _wanted(params: CommandExecParams, base: str) -> Wanted:
    cap = DEFAULT_CAP if params.output_bytes_cap is None else params.output_bytes_cap
    timeout_s = DEFAULT_TIMEOUT_S if params.timeout_ms is None else params.timeout_ms / 1000
    return Wanted(
        argv=params.command,
        cwd=os.path.normpath(os.path.join(base, params.cwd or "")),
        env=params.env or {},
        tty=params.tty,
        size=None if params.size is None else check_size(params.size, "command/exec"),
        takes_input=params.stream_stdin or params.tty,
        streams=params.stream_stdout_stderr or params.tty,
        cap=None if params.disable_output_cap else cap,
        timeout_s=None if params.disable_timeout else timeout_s,
    )


# --- the methods -----------------------------------------------------------------------------------------------------


async def execute(call: Call[CommandExecParams]) -> CommandExecResponse:
    params: CommandExecParams = call.params
    _check(params)
    watches = call.server.watches(call.client)
    name = _name(params.process_id) if params.process_id else f"unnamed command {new_id()}"
    if name in watches:
        raise RpcError(INVALID_REQUEST, f"duplicate active command/exec process id: {quoted(params.process_id or '')}")
    command = watches[name] = Command(call)
    try:
        await command.start()
        ended = await command.follow()
        return CommandExecResponse(exit_code=ended.exit_code, stdout=ended.stdout, stderr=ended.stderr)
    finally:
        watches.pop(name, None)


def _check(params: CommandExecParams) -> None:
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


async def write(call: Call[CommandExecWriteParams]) -> Empty:
    params = call.params
    check_input(params.delta_base64, params.close_stdin, "command/exec/write")
    await _find(call).write(params.delta_base64, close=params.close_stdin)
    return Empty()


async def resize(call: Call[CommandExecResizeParams]) -> Empty:
    rows, cols = check_size(call.params.size, "command/exec")
    await _find(call).resize(rows, cols)
    return Empty()


async def terminate(call: Call[CommandExecTerminateParams]) -> Empty:
    await _find(call).kill()
    return Empty()


def _find(call: _Following) -> Command:
    command = call.server.watches(call.client).get(_name(call.params.process_id))
    if not isinstance(command, Command):
        raise _not_active(call.params.process_id)
    return command


def _name(process_id: str) -> str:
    return f"command {process_id}"


def _not_active(process_id: str) -> RpcError:
    return RpcError(INVALID_REQUEST, f"no active command/exec for process id {quoted(process_id)}")
