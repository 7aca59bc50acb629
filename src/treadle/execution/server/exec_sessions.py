"""Sessions of the exec-server: a client's processes, which survive the loss of its connection for a while.

attach ─▶ attached ──connection lost──▶ detached ──`detach_s`──▶ ended, with its processes
             ▲                             │
             └────────── resume ───────────┘

How long a session waits is the client's wish, and at most what the server allows. Meanwhile nothing in it is forgotten.

`ProcessMethods` answers the `process/*` requests of the connection that is attached, and `EventPush` sends it the
events of the processes: in order, as fast as the peer takes them and no faster. It has no task and no queue of its own:
each process has a cursor in its log. An append moves it on at once while the channel is writable; when it is not, the
cursor stays behind, the log fills, and that blocks the process.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import UNSET, Struct, UnsetType, convert
from pybase64 import b64encode

from treadle.errors import INVALID_PARAMS, INVALID_REQUEST, SESSION_ATTACHED, ExecError
from treadle.events import Cursor, Gap
from treadle.execution.local_backend import LocalBackend
from treadle.execution.local_process import LocalProcess
from treadle.execution.machine import child_environment
from treadle.execution.process import TERMINATE_GRACE_S
from treadle.execution.process_values import ExecParams, Exited, LogEvent, Output
from treadle.execution.server.rights import Rights
from treadle.execution.supervisor import Supervisor
from treadle.execution.uris import path_from_uri
from treadle.logs.metrics import Gauge
from treadle.protocol.exec import (
    AckParams,
    ClosedNotice,
    CloseStdinParams,
    DetachParams,
    DetachResult,
    Empty,
    ExitedNotice,
    ListResult,
    NoParams,
    OutputNotice,
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
from treadle.rpc import encode_notification
from treadle.transport import RpcLink

if TYPE_CHECKING:
    from treadle.execution.sandbox.remote_sandbox import SeenRoots

logger: logging.Logger = logging.getLogger(__name__)

DETACHED_S = 30.0
# A client that comes back while the server still believes in its old connection makes the server probe that one; it is
# dropped when it shows no sign of life for this long.
PROBE_S = 2.0
END_GRACE_S = 0.5
MAX_SESSIONS = 1024
# A request may not hold a connection's slot for longer than this; the client polls again.
MAX_WAIT_MS = 10 * 60 * 1000
MAX_GRACE_S = 60.0


class Attached(Protocol):
    """The connection that holds a session."""

    def probe(self, deadline_s: float) -> None:
        """Make sure that the peer is alive; end the connection otherwise."""


class ExecSession:
    """One client's processes. At most one connection is attached."""

    def __init__(self, supervisor: Supervisor, rights: Rights) -> None:
        self.id: str = str(uuid.uuid4())
        self.seen: SeenRoots = {}
        bounds = rights if rights.limited else None
        self.backend: LocalBackend = LocalBackend(supervisor, rereadable=True, bounds=bounds, seen=self.seen)
        self.rights = rights
        self.detach_s: float = DETACHED_S
        self.reads_on: bool = False
        """Whether its client has come back to a server that drains, for what it has missed."""
        self.attached: Attached | None = None
        self._acks: dict[LocalProcess, Cursor[LogEvent]] = {}
        self.expiry: asyncio.TimerHandle | None = None

    def expect_acks(self, process: LocalProcess) -> None:
        """Block the process, from here on, while its client has too much not acknowledged."""
        if not process.closed:
            self._acks[process] = process.log.cursor(0, notify=lambda: self._release_if_closed(process))

    def acknowledge(self, process: LocalProcess, seq: int) -> None:
        cursor = self._acks.get(process)
        if cursor is not None:
            cursor.advance(seq)

    def _release_if_closed(self, process: LocalProcess) -> None:
        """Remove the cursor of a process that has closed: nothing is left to hold back."""
        if process.closed and process in self._acks:
            self._acks.pop(process).close()

    def release(self) -> None:
        for cursor in self._acks.values():
            cursor.close()
        self._acks.clear()


class Sessions:
    """All sessions of a server. `spawn` runs a coroutine as a task that the server owns."""

    def __init__(
        self,
        supervisor: Supervisor,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        *,
        detached_s: float = DETACHED_S,
        max_processes: int | None = None,
    ) -> None:
        self._max_processes = max_processes
        self.draining: bool = False
        self._supervisor = supervisor
        self._spawn = spawn
        self._longest_s = detached_s
        self._sessions: dict[str, ExecSession] = {}

    def attach(
        self, connection: Attached, resume_id: str | None, detach_s: float | None, rights: Rights
    ) -> ExecSession:
        """A new session, or the one to resume. `detach_s` is the wish of the client; without one it stays as it is."""
        if resume_id is None:
            self._check_draining("sessions")
            own = [each for each in self._sessions.values() if each.rights is rights]
            if rights.limited and len(own) >= rights.entry.sessions and not self._drop_an_idle_one(own):
                raise rights.denied(f"has {len(own)} sessions open, which is its limit: end one first")
            if len(self._sessions) >= MAX_SESSIONS and not self._drop_an_idle_one(own):
                raise ExecError(f"{MAX_SESSIONS} sessions are open: try again later", INVALID_REQUEST)
            session = ExecSession(self._supervisor, rights)
            self._sessions[session.id] = session
            return self._attached(session, connection, detach_s)
        found = self._sessions.get(resume_id)
        if found is None or found.rights is not rights:  # whose it is, is nobody else's business
            raise ExecError(f"unknown session id {resume_id}", INVALID_REQUEST)
        if found.attached is not None:
            found.attached.probe(PROBE_S)
            raise ExecError(f"session {resume_id} is already attached to another connection", SESSION_ATTACHED)
        if found.expiry is not None:
            found.expiry.cancel()
            found.expiry = None
        found.backend.hold_closed(False)
        found.reads_on = self.draining
        return self._attached(found, connection, detach_s)

    def _attached(self, session: ExecSession, connection: Attached, detach_s: float | None) -> ExecSession:
        session.attached = connection
        self.wish(session, session.detach_s if detach_s is None else detach_s)
        return session

    def wish(self, session: ExecSession, detach_s: float) -> float:
        """How long the session will wait for its client after a loss."""
        session.detach_s = min(detach_s, self._longest_s)
        return session.detach_s

    def check_start(self, rights: Rights) -> None:
        """Raise `ExecError` when no further command may be started for a client."""
        self._check_draining("commands")
        sessions = self._sessions.values()
        if rights.limited:
            running = sum(each.backend.running for each in sessions if each.rights is rights)
            if running >= rights.entry.processes:
                raise rights.denied(f"has {running} commands running, which is its limit: end one first")
        if self._max_processes is not None and sum(each.backend.running for each in sessions) >= self._max_processes:
            text = f"{self._max_processes} commands are running, which is this server's limit: try again later"
            raise ExecError(text, INVALID_REQUEST)

    def _check_draining(self, what: str) -> None:
        if self.draining:
            raise ExecError(f"the server is shutting down and takes no new {what}: use another", INVALID_REQUEST)

    @property
    def busy(self) -> bool:
        """Whether a command runs, or a client that is away has not read all of one that has ended."""
        return any(
            each.backend.running or (each.backend.has_closed and (each.attached is None or each.reads_on))
            for each in self._sessions.values()
        )

    def _drop_an_idle_one(self, own: list[ExecSession]) -> bool:
        """End a detached session of the same client in which nothing runs before its time, for a new one: the oldest,
        but rather one of which nothing is left to read."""
        idle = (each for each in own if each.attached is None and not each.backend.running)
        session = min(idle, key=lambda each: each.backend.has_closed, default=None)
        if session is None or session.expiry is None:
            return False
        session.expiry.cancel()
        self._expire(session)
        return True

    def detach(self, session: ExecSession) -> None:
        """The connection is gone; the session waits for it to come back, then ends."""
        session.attached = None
        session.backend.hold_closed(True)
        session.expiry = asyncio.get_running_loop().call_later(session.detach_s, self._expire, session)

    def _expire(self, session: ExecSession) -> None:
        if self._sessions.pop(session.id, None) is not None:
            self._spawn(self._end(session))

    async def _end(self, session: ExecSession) -> None:
        logger.info("session ends", {"session": session.id, "processes": len(session.backend.open_processes())})
        session.release()
        await session.backend.close(END_GRACE_S)

    async def close(self) -> None:
        """End all sessions and everything in them."""
        sessions, self._sessions = self._sessions, {}
        for session in sessions.values():
            if session.expiry is not None:
                session.expiry.cancel()
        async with asyncio.TaskGroup() as group:
            for session in sessions.values():
                group.create_task(self._end(session))

    def __len__(self) -> int:
        return len(self._sessions)

    def gauges(self) -> Iterator[Gauge]:
        """What is true now, for metrics."""
        sessions = tuple(self._sessions.values())
        running = sum(len(session.backend.open_processes()) for session in sessions)
        yield Gauge("treadle_sessions", "Sessions, those that wait for their client included.", len(sessions))
        detached = sum(session.attached is None for session in sessions)
        yield Gauge("treadle_sessions_detached", "Sessions whose client is gone and may come back.", detached)
        yield Gauge("treadle_processes_running", "Commands that run.", running)


# --- one connection --------------------------------------------------------------------------------------------------


class ProcessMethods:
    """Requests about the processes of a session, answered over the connection that is attached to it."""

    def __init__(self, sessions: Sessions, session: ExecSession, push: EventPush) -> None:
        self._sessions = sessions
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
            "session/detach": self._detach,
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
        # What asks for confinement or set-up that this server does not do must not run without it.
        if params.enforce_managed_network or params.managed_network is not None or params.network_proxy is not None:
            raise ExecError("this server has no managed network: the process was not started", INVALID_REQUEST)
        if params.shell_snapshot is not None:
            raise ExecError("this server has no shell snapshots: the process was not started", INVALID_REQUEST)
        rights = self._session.rights
        env, env_policy = params.env, params.env_policy
        if rights.limited:
            rights.check_cwd(cwd)
            env, env_policy = child_environment(env, env_policy, rights.environment()), None
        self._sessions.check_start(rights)
        process = await self._session.backend.start(
            ExecParams(
                process_id=params.process_id,
                argv=params.argv,
                cwd=cwd,
                env=env,
                env_policy=env_policy,
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
        response = await process.read(params.after_seq, params.max_bytes, wait_ms)
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
        found = await self._session.backend.processes()
        return ListResult(processes=convert(found, tuple[ProcessSummary, ...], from_attributes=True))

    async def _detach(self, params: DetachParams) -> DetachResult:
        return DetachResult(detach_s=self._sessions.wish(self._session, params.detach_s))

    def _known(self, process_id: str) -> LocalProcess:
        backend = self._session.backend
        if backend.is_starting(process_id):
            raise ExecError(f"process id {process_id} is starting", INVALID_REQUEST)
        process = backend.get(process_id)
        if process is None:
            raise ExecError(f"unknown process id {process_id}", INVALID_REQUEST)
        return process


class EventPush:
    """The pushes of one connection."""

    def __init__(self, link: RpcLink) -> None:
        self._link = link
        self._cursors: dict[LocalProcess, Cursor[LogEvent]] = {}

    def add(self, process: LocalProcess, after_seq: int) -> None:
        """Push what comes after `after_seq`, beginning now."""
        cursor = process.log.cursor(after_seq)
        self._cursors[process] = cursor
        cursor.notify = partial(self._flush, process, cursor)
        self._flush(process, cursor)

    def resume(self) -> None:
        """The channel is writable again."""
        for process, cursor in tuple(self._cursors.items()):
            self._flush(process, cursor)

    def close(self) -> None:
        for cursor in self._cursors.values():
            cursor.close()
        self._cursors.clear()

    def _flush(self, process: LocalProcess, cursor: Cursor[LogEvent]) -> None:
        while self._link.channel.writable:
            item = cursor.take()
            if item is None:
                break
            if isinstance(item, Gap):  # it shows as a jump in the numbers; `process/read` reports it
                continue
            event = item.event
            if isinstance(event, Output):
                # The chunk is put into the last and still empty member of the notification: base64 needs no escapes.
                notice = OutputNotice(process_id=process.process_id, seq=event.seq, stream=event.stream.value, chunk="")
                frame = encode_notification("process/output", notice)
                self._link.channel.send(frame[:-3] + b64encode(event.chunk) + frame[-3:])
            elif isinstance(event, Exited):
                self._link.notify(
                    "process/exited",
                    ExitedNotice(
                        process_id=process.process_id,
                        seq=event.seq,
                        exit_code=event.exit_code,
                        sandbox_denied=event.sandbox_denied,
                    ),
                )
            else:
                self._link.notify("process/closed", ClosedNotice(process_id=process.process_id, seq=event.seq))
        if process.log.closed and cursor.position >= process.log.last_seq:
            cursor.close()
            self._cursors.pop(process, None)
