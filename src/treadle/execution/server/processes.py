"""The `process/*` methods of one connection."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from msgspec import UNSET, Struct, UnsetType

from treadle.errors import INVALID_PARAMS, INVALID_REQUEST, ExecError
from treadle.execution.local import LocalProcess
from treadle.execution.process import TERMINATE_GRACE_S
from treadle.execution.process_values import ExecParams, ReadResponse
from treadle.execution.server.exec_sessions import Session
from treadle.execution.server.push import EventPush
from treadle.execution.uris import path_from_uri
from treadle.protocol.exec import (
    AckParams,
    CloseStdinParams,
    Empty,
    ListResult,
    NoParams,
    ProcessSummary,
    ReadParams,
    ReadResult,
    ResizeParams,
    SignalParams,
    StartParams,
    StartResult,
    TerminateParams,
    TerminateResult,
    WireChunk,
    WireEvicted,
    WriteParams,
    WriteResult,
)

# A request may not hold a connection's slot for longer than this; the client polls again.
MAX_WAIT_MS = 10 * 60 * 1000
MAX_GRACE_S = 60.0


class ProcessMethods:
    """Requests about the processes of a session, answered over the connection that is attached to it."""

    def __init__(self, session: Session, push: EventPush) -> None:
        self._session = session
        self._push = push
        self.handlers: Mapping[str, Callable[[Any], Awaitable[Struct]]] = {
            "process/start": self._start,
            "process/read": self._read,
            "process/write": self._write,
            "process/signal": self._signal,
            "process/terminate": self._terminate,
            "process/resize": self._resize,
            "process/closeStdin": self._close_stdin,
            "process/list": self._list,
        }

    def resume_pushes(self) -> None:
        """After an attach: events from now on; the client fetches by `process/read` what it missed."""
        for process in self._session.backend.open_processes():
            self._push.add(process, process.log.last_seq)

    def started(self, params: StartParams) -> None:
        """The reply to `process/start` is on its way: events may follow."""
        process = self._session.backend.get(params.process_id)
        if process is not None:
            self._push.add(process, 0)

    def acknowledge(self, params: AckParams) -> None:
        process = self._session.backend.get(params.process_id)
        if process is not None:
            self._session.acknowledge(process, params.seq)

    async def _start(self, params: StartParams) -> StartResult:
        if not params.argv:
            raise ExecError("argv must not be empty", INVALID_PARAMS)
        cwd = path_from_uri(params.cwd, field="cwd")
        _refuse_unsupported(params)
        process = await self._session.backend.start(
            ExecParams(
                process_id=params.process_id,
                argv=params.argv,
                cwd=cwd,
                env=params.env,
                env_policy=params.env_policy,
                tty=params.tty,
                pipe_stdin=params.pipe_stdin,
                arg0=params.arg0,
                sandbox=params.sandbox,
            )
        )
        if params.acks is True:
            self._session.expect_acks(process)
        return StartResult(process_id=params.process_id, sandbox_type=process.sandbox_type)

    async def _read(self, params: ReadParams) -> ReadResult:
        process = self._known(params.process_id)
        wait_ms = min(params.wait_ms or 0, MAX_WAIT_MS)
        return _read_result(await process.read(params.after_seq, params.max_bytes, wait_ms))

    async def _write(self, params: WriteParams) -> WriteResult:
        if not params.write_id:
            raise ExecError("writeId must not be empty", INVALID_PARAMS)
        backend = self._session.backend
        process = backend.get(params.process_id)
        if process is None:
            return WriteResult(status="starting" if backend.is_starting(params.process_id) else "unknownProcess")
        result = await process.write(params.chunk, params.write_id)
        return WriteResult(status=result.status.value)

    async def _signal(self, params: SignalParams) -> Empty:
        process = self._session.backend.get(params.process_id)
        if process is not None:
            await process.signal(params.signal)
        return Empty()

    async def _terminate(self, params: TerminateParams) -> TerminateResult:
        if self._session.backend.cancel_start(params.process_id):
            return TerminateResult(running=True)
        process = self._session.backend.get(params.process_id)
        if process is None:
            return TerminateResult(running=False)
        grace = TERMINATE_GRACE_S if isinstance(params.grace_ms, UnsetType) else params.grace_ms / 1000
        return TerminateResult(running=await process.terminate(min(grace, MAX_GRACE_S)))

    async def _resize(self, params: ResizeParams) -> Empty:
        await self._known(params.process_id).resize(params.rows, params.cols)
        return Empty()

    async def _close_stdin(self, params: CloseStdinParams) -> Empty:
        await self._known(params.process_id).close_stdin()
        return Empty()

    async def _list(self, params: NoParams) -> ListResult:
        return ListResult(
            processes=tuple(
                ProcessSummary(
                    process_id=info.process_id,
                    argv=info.argv,
                    tty=info.tty,
                    next_seq=info.next_seq,
                    exited=info.exited,
                    exit_code=info.exit_code,
                    closed=info.closed,
                )
                for info in await self._session.backend.processes()
            )
        )

    def _known(self, process_id: str) -> LocalProcess:
        backend = self._session.backend
        if backend.is_starting(process_id):
            raise ExecError(f"process id {process_id} is starting", INVALID_REQUEST)
        process = backend.get(process_id)
        if process is None:
            raise ExecError(f"unknown process id {process_id}", INVALID_REQUEST)
        return process


def _refuse_unsupported(params: StartParams) -> None:
    """What asks for confinement or set-up that this server does not do must not run without it."""
    if params.enforce_managed_network or params.managed_network is not None or params.network_proxy is not None:
        raise ExecError("this server has no managed network: the process was not started", INVALID_REQUEST)
    if params.shell_snapshot is not None:
        raise ExecError("this server has no shell snapshots: the process was not started", INVALID_REQUEST)


def _read_result(response: ReadResponse) -> ReadResult:
    evicted = response.evicted
    return ReadResult(
        chunks=tuple(
            WireChunk(seq=chunk.seq, stream=chunk.stream.value, chunk=chunk.chunk) for chunk in response.chunks
        ),
        next_seq=response.next_seq,
        exited=response.exited,
        exit_code=response.exit_code,
        closed=response.closed,
        failure=response.failure,
        sandbox_denied=response.sandbox_denied,
        evicted=UNSET if evicted is None else WireEvicted(first_seq=evicted.first_seq, last_seq=evicted.last_seq),
        exited_seq=UNSET if response.exited_seq is None else response.exited_seq,
    )
