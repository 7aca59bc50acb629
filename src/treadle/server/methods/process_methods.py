"""`process/*`: processes that a client runs on this machine, outside of any thread and of any sandbox.

A client names each by a handle of its own and has the experimental API to ask for it. That it runs is told by the
answer, its end by `process/exited`; it ends with the connection.
"""

from __future__ import annotations

import base64
import logging
import os
from typing import Final, TypeAlias

from msgspec import UNSET

from treadle.agent.event import Event
from treadle.agent.ids import now_ms
from treadle.errors import INVALID_PARAMS, INVALID_REQUEST, OVERLOAD_DATA, OVERLOADED, RpcError
from treadle.execution.process_values import OutputStream
from treadle.protocol.app.base import Empty
from treadle.protocol.app.commands import (
    ProcessExitedNotification,
    ProcessKillParams,
    ProcessOutputDeltaNotification,
    ProcessResizePtyParams,
    ProcessSpawnParams,
    ProcessWriteStdinParams,
)
from treadle.server.client_base import Call
from treadle.server.client_command import (
    DEFAULT_CAP,
    DEFAULT_TIMEOUT_S,
    ClientCommand,
    Ended,
    Wanted,
    check_input,
    check_size,
    end_process,
    quoted,
)

logger: logging.Logger = logging.getLogger(__name__)

# Processes of one client at a time.
MAX_PROCESSES: Final = 64

_Following: TypeAlias = Call[ProcessWriteStdinParams] | Call[ProcessResizePtyParams] | Call[ProcessKillParams]


class SpawnedProcess(ClientCommand):
    noun = "process"

    def __init__(self, call: Call[ProcessSpawnParams]) -> None:
        super().__init__(call.server, call.client, _wanted(call.params))
        self._handle = call.params.process_handle

    async def sandbox(self, cwd: str) -> None:
        return None

    def tell(self, stream: OutputStream, chunk: bytes, cap_reached: bool) -> None:
        params = ProcessOutputDeltaNotification(
            process_handle=self._handle,
            stream=stream.value,
            delta_base64=base64.b64encode(chunk).decode(),
            cap_reached=cap_reached,
        )
        self._client.notify(Event("process/outputDelta", params, None, now_ms()))

    def not_active(self) -> RpcError:
        return _not_active(self._handle)

    def cancel(self) -> None:
        super().cancel()
        if self._process is not None:  # whose task may not have had its first step
            self._server.spawn(end_process(self._process), f"end of {self._process.process_id}")

    def go_on(self) -> None:
        """The client knows that it runs: from now on it is told of it, unless it has left meanwhile."""
        if not self._client.closed:
            self._task = self._server.spawn(self._live(), f"process {quoted(self._handle)}")

    async def _live(self) -> None:
        try:
            ended = await self.follow()
        except RpcError as error:
            logger.warning("process %s: %s", quoted(self._handle), error.message)
            ended = Ended(exit_code=-1, stderr=error.message)
        finally:
            self.forget()
        params = ProcessExitedNotification(
            process_handle=self._handle,
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
            self._server.watches(self._client).pop(_name(self._handle), None)


def _wanted(params: ProcessSpawnParams) -> Wanted:
    timeout_ms = DEFAULT_TIMEOUT_S * 1000 if params.timeout_ms is UNSET else params.timeout_ms
    return Wanted(
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


# --- the methods -----------------------------------------------------------------------------------------------------


async def spawn(call: Call[ProcessSpawnParams]) -> Empty:
    _check(call.params)
    watches = call.server.watches(call.client)
    name = _name(call.params.process_handle)
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


def _check(params: ProcessSpawnParams) -> None:
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


async def write(call: Call[ProcessWriteStdinParams]) -> Empty:
    params = call.params
    check_input(params.delta_base64, params.close_stdin, "process/writeStdin")
    await _find(call).write(params.delta_base64, close=params.close_stdin)
    return Empty()


async def resize(call: Call[ProcessResizePtyParams]) -> Empty:
    rows, cols = check_size(call.params.size, "process")
    await _find(call).resize(rows, cols)
    return Empty()


async def kill(call: Call[ProcessKillParams]) -> Empty:
    await _find(call).kill()
    return Empty()


def _find(call: _Following) -> SpawnedProcess:
    process = call.server.watches(call.client).get(_name(call.params.process_handle))
    if not isinstance(process, SpawnedProcess):
        raise _not_active(call.params.process_handle)
    return process


def _name(handle: str) -> str:
    return f"process {handle}"


def _not_active(handle: str) -> RpcError:
    return RpcError(INVALID_REQUEST, f"no active process for process handle {quoted(handle)}")
