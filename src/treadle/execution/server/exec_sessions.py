"""Sessions: what a client owns on the server, kept for a while when its connection is lost."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from treadle.errors import INVALID_REQUEST, SESSION_ATTACHED, ExecError
from treadle.events import Cursor
from treadle.execution.local import LocalBackend, LocalProcess
from treadle.execution.process_values import LogEvent
from treadle.execution.supervisor import Supervisor

logger: logging.Logger = logging.getLogger(__name__)

DETACHED_S = 30.0
# A client that comes back while the server still believes in its old connection makes the server probe that one; it is
# dropped when it shows no sign of life for this long.
PROBE_S = 2.0
END_GRACE_S = 0.5
MAX_SESSIONS = 1024


class Attached(Protocol):
    """The connection that holds a session."""

    def probe(self, deadline_s: float) -> None:
        """Make sure that the peer is alive; end the connection otherwise."""


class Session:
    """One client's processes. At most one connection is attached."""

    def __init__(self, backend: LocalBackend) -> None:
        self.id: str = str(uuid.uuid4())
        self.backend = backend
        self.attached: Attached | None = None
        self._acks: dict[LocalProcess, Cursor[LogEvent]] = {}
        self.expiry: asyncio.TimerHandle | None = None

    def expect_acks(self, process: LocalProcess) -> None:
        """From here on the process is held back by what its client has not acknowledged."""
        if not process.closed:
            self._acks[process] = process.log.cursor(0, notify=lambda: self._release_if_closed(process))

    def acknowledge(self, process: LocalProcess, seq: int) -> None:
        cursor = self._acks.get(process)
        if cursor is not None:
            cursor.advance(seq)

    def _release_if_closed(self, process: LocalProcess) -> None:
        """There is nothing left to hold back."""
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
    ) -> None:
        self._supervisor = supervisor
        self._spawn = spawn
        self._detached_s = detached_s
        self._sessions: dict[str, Session] = {}

    def attach(self, connection: Attached, resume_id: str | None) -> Session:
        """A new session, or the one to resume."""
        if resume_id is None:
            if len(self._sessions) >= MAX_SESSIONS and not self._drop_an_idle_one():
                raise ExecError(f"{MAX_SESSIONS} sessions are open: try again later", INVALID_REQUEST)
            session = Session(LocalBackend(self._supervisor, rereadable=True))
            self._sessions[session.id] = session
        else:
            session = self._resumable(resume_id)
        session.attached = connection
        return session

    def _drop_an_idle_one(self) -> bool:
        """Make room: the oldest detached session in which nothing runs goes before its time."""
        for session in self._sessions.values():
            if session.attached is None and session.expiry is not None and not session.backend.open_processes():
                session.expiry.cancel()
                self._expire(session)
                return True
        return False

    def _resumable(self, session_id: str) -> Session:
        session = self._sessions.get(session_id)
        if session is None:
            raise ExecError(f"unknown session id {session_id}", INVALID_REQUEST)
        if session.attached is not None:
            session.attached.probe(PROBE_S)
            raise ExecError(f"session {session_id} is already attached to another connection", SESSION_ATTACHED)
        if session.expiry is not None:
            session.expiry.cancel()
            session.expiry = None
        return session

    def detach(self, session: Session) -> None:
        """The connection is gone; the session waits for it to come back, then ends."""
        session.attached = None
        session.expiry = asyncio.get_running_loop().call_later(self._detached_s, self._expire, session)

    def _expire(self, session: Session) -> None:
        if self._sessions.pop(session.id, None) is not None:
            self._spawn(self._end(session))

    async def _end(self, session: Session) -> None:
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
