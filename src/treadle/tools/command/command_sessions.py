"""`CommandSessions`: the commands that run for one thread.

It owns their numbers, the tasks that read them, and their end: the limit on how many there may be, and `close`. What
one command has written, and whether it has ended, is `command_session`.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from treadle.errors import INVALID_REQUEST, ExecError
from treadle.execution.process import Process
from treadle.execution.process_values import ExecParams
from treadle.tools.command.command_session import TERMINATE_DEADLINE_S, CommandSession, CommandSpec

if TYPE_CHECKING:
    from treadle.execution.environment import Environment

__all__ = ["CommandSession", "CommandSessions", "CommandSpec"]

logger: logging.Logger = logging.getLogger(__name__)

MAX_SESSIONS: Final = 64
CLOSE_DEADLINE_S: Final = 2 * TERMINATE_DEADLINE_S
_NUMBERS: Final = range(10_000, 100_000)


class CommandSessions:
    """`environment` gives the place where commands run; it is asked for at every start. `on_closed` is called when a
    command has ended and no more output of it can come."""

    def __init__(
        self,
        environment: Callable[[], Awaitable[Environment]],
        on_closed: Callable[[CommandSession], None] = lambda session: None,
    ) -> None:
        self._environment = environment
        self._on_closed = on_closed
        self._sessions: dict[int, CommandSession] = {}  # least recently used first
        self._starting: set[int] = set()
        self._forgotten: set[int] = set()
        self._readers: dict[asyncio.Task[None], CommandSession] = {}
        self._closed = False

    def __len__(self) -> int:
        return len(self._sessions)

    async def start(self, spec: CommandSpec, on_output: Callable[[str], None]) -> CommandSession:
        """Start a command. `on_output` gets its text as it comes, until it ends; it must not block.

        Raises `ExecError` when the command cannot be started.
        """
        number = self._reserve()
        try:
            await self._make_room(MAX_SESSIONS - len(self._starting))
            process = await self._start_process(spec)
            if self._closed:  # meanwhile
                await process.terminate()
                raise _closed()
            session = CommandSession(number, process, spec.tty, on_output)
            self._sessions[number] = session
        finally:
            self._starting.discard(number)
        task = asyncio.get_running_loop().create_task(session.read(), name=f"command {number}")
        self._readers[task] = session
        task.add_done_callback(self._read)
        await self._make_room(MAX_SESSIONS)  # several may have started at once
        return session

    def get(self, session_id: int) -> CommandSession | None:
        """The session of this number, unless it has been forgotten; it counts as used."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._sessions[session_id] = session
        return session

    def forget(self, session: CommandSession) -> None:
        """Its end was reported: nobody will ask again. It stays while it runs, or a child holds its output open."""
        if session.closed:
            self._sessions.pop(session.id, None)
        elif not session.running and session.id in self._sessions:
            self._forgotten.add(session.id)

    async def close(self) -> None:
        """End all commands and their descendants, within a deadline. Nothing can be started afterwards."""
        self._closed = True
        self._sessions.clear()
        try:
            async with asyncio.timeout(CLOSE_DEADLINE_S), asyncio.TaskGroup() as group:
                for session in self._readers.values():
                    group.create_task(session.terminate())
        except TimeoutError:
            logger.warning("%d commands did not end in time", len(self._readers))
        finally:
            readers = list(self._readers)
            for task in readers:
                task.cancel()
            await asyncio.gather(*readers, return_exceptions=True)

    # --- inside ---

    def _reserve(self) -> int:
        if self._closed:
            raise _closed()
        taken = self._starting | self._sessions.keys()
        while True:
            number = _NUMBERS[int.from_bytes(os.urandom(4)) % len(_NUMBERS)]
            if number not in taken:
                self._starting.add(number)
                return number

    async def _make_room(self, most: int) -> None:
        """One that has ended goes first, then the one that was not used for the longest time."""
        while len(self._sessions) > max(most, 0):
            ended = (session for session in self._sessions.values() if not session.running)
            victim = next(ended, None) or next(iter(self._sessions.values()))
            del self._sessions[victim.id]
            self._forgotten.discard(victim.id)
            await victim.terminate(f"ended to make room: no more than {MAX_SESSIONS} commands can run at a time")

    async def _start_process(self, spec: CommandSpec) -> Process:
        environment = await self._environment()
        # Not the number: other threads may use the same environment.
        params = ExecParams(
            process_id=f"command-{os.urandom(8).hex()}",
            argv=spec.command,
            cwd=spec.cwd,
            env=spec.env,
            env_policy=spec.env_policy,
            tty=spec.tty,
            sandbox=spec.sandbox,
        )
        return await environment.start(params)

    def _read(self, task: asyncio.Task[None]) -> None:
        session = self._readers.pop(task)
        self._on_closed(session)
        if session.id in self._forgotten and self._sessions.get(session.id) is session:
            self._forgotten.discard(session.id)
            del self._sessions[session.id]
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("command %s can no longer be followed", session.process_id, exc_info=error)


def _closed() -> ExecError:
    return ExecError("the thread is being closed: no more commands can be started", INVALID_REQUEST)
