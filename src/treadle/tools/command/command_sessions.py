"""`CommandSession`: one command that a model started, for as long as anybody may ask about it; `CommandSessions`: all
of those that run for one thread.

A session owns what the command has written, as text and bounded, and when the command counts as ended. The sessions of
a thread own their numbers, the tasks that read them, and their end: the limit on how many there may be, and `close`.
"""

from __future__ import annotations

import asyncio
import codecs
import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from treadle.errors import INVALID_REQUEST, ExecError
from treadle.execution.process import Process
from treadle.execution.process_values import Evicted, ExecParams, Exited, Failed, Output, OutputStream, WriteStatus
from treadle.protocol.exec import EnvPolicy, Sandbox, without
from treadle.tools.command.command_output import HeadTail, Taken, first_bytes, tokens
from treadle.tools.specs import ToolInputError

if TYPE_CHECKING:
    from treadle.execution.environment import Environment


logger: logging.Logger = logging.getLogger(__name__)
MAX_AGGREGATED: Final = 1 << 20
MAX_DELTA: Final = 64 << 10
# What a client is shown while a command runs. Both: a command that writes single bytes would send a million deltas.
MAX_DELTA_BYTES: Final = 1 << 20
MAX_DELTAS: Final = 10_000
# After an exit, output that is on its way is waited for. A child in the background may hold the pipe open for ever.
QUIET_S: Final = 0.25
# Between TERM and KILL the execution layer waits a second; then the close has to come back from the executor.
TERMINATE_DEADLINE_S: Final = 5.0
WRITE_DEADLINE_S: Final = 5.0
_decoder = codecs.getincrementaldecoder("utf-8")


class CommandSpec(Struct, frozen=True, kw_only=True):
    """What to run, in the environment of that id. `env` and `env_policy` are those of `ExecParams`; only a command with
    `tty` can be written to."""

    command: tuple[str, ...]
    cwd: str
    env: Mapping[str, str] = {}
    env_policy: EnvPolicy | None = None
    tty: bool = False
    sandbox: Sandbox | None = None
    environment: str = "local"

    def __repr__(self) -> str:
        return without(self, "env")


class CommandSession:
    """A command that was started. `id` is its number for the model, `process_id` the same for clients."""

    def __init__(self, session_id: int, process: Process, tty: bool, on_output: Callable[[str], None]) -> None:
        self.id = session_id
        self.process_id: str = str(session_id)
        self.exit_code: int | None = None
        self.sandbox_denied: bool = False
        self.failure: str | None = None
        """Why the command was lost, when its executor went away."""
        self._process: Process | None = process  # until it is closed: its log is a mebibyte
        self._tty = tty
        self._deltas: _Deltas | None = _Deltas(on_output)  # until it has ended: who listens may hold the session
        self._decoders = {stream: _decoder("replace") for stream in OutputStream}
        self._aggregated = HeadTail(MAX_AGGREGATED)
        self._untaken = HeadTail(MAX_AGGREGATED)
        self._loop = asyncio.get_running_loop()
        self._started = self._loop.time()
        self._duration: float | None = None
        self._ended = asyncio.Event()
        self._closed = asyncio.Event()
        self._quiet: asyncio.TimerHandle | None = None
        self._on_end: Callable[[CommandSession], None] | None = None

    def __repr__(self) -> str:
        state = "running" if self.running else "ended" if self._closed.is_set() else "ended, output still open"
        return f"<CommandSession {self.id} {state}>"

    # --- state ---

    @property
    def running(self) -> bool:
        return not self._ended.is_set()

    @property
    def closed(self) -> bool:
        """Ended, and no more output can come."""
        return self._closed.is_set()

    @property
    def aggregated(self) -> str:
        """Everything that was written so far; of more than 1 MiB the beginning and the end."""
        return self._aggregated.text()

    @property
    def duration_ms(self) -> int:
        """Until the exit, or until now."""
        seconds = self._loop.time() - self._started if self._duration is None else self._duration
        return int(seconds * 1000)

    @property
    def executor_id(self) -> str:
        """What the executor calls the command; empty when it has ended."""
        return "" if self._process is None else self._process.process_id

    @property
    def on_end(self) -> Callable[[CommandSession], None] | None:
        """Called once, on the event loop, when the command has ended; soon, when it already had."""
        return self._on_end

    @on_end.setter
    def on_end(self, hook: Callable[[CommandSession], None] | None) -> None:
        self._on_end = hook
        if not self.running:
            self._loop.call_soon(self._call_hook)

    # --- verbs ---

    async def wait(self, seconds: float) -> bool:
        """Whether the command ended within this time: its output is closed, or it exited and has been quiet."""
        if self.running and seconds > 0:
            try:
                async with asyncio.timeout(seconds):
                    await self._ended.wait()
            except TimeoutError:
                pass
        return not self.running

    async def wait_ended(self) -> None:
        """Return when the command has ended, however long that takes."""
        await self._ended.wait()

    def take_output(self, max_tokens: int) -> Taken:
        """What was written since the last time, cut in the middle to `max_tokens`."""
        taken = self.peek_output(max_tokens)
        self._untaken = HeadTail(MAX_AGGREGATED)
        return taken

    def peek_output(self, max_tokens: int) -> Taken:
        """What `take_output` will give."""
        return Taken(self._untaken.within(max_tokens), tokens(self._untaken.size))

    async def write(self, text: str) -> None:
        """Send text to the command's terminal. Nothing happens when the command has ended meanwhile."""
        process = self._process
        if process is None or not self.running or not text:
            return
        if not self._tty and text == "\x03":  # what a terminal would make of it
            await process.signal("interrupt")
            return
        try:
            async with asyncio.timeout(WRITE_DEADLINE_S):
                result = await process.write(text.encode("utf-8", "replace"))
        except TimeoutError:
            raise ToolInputError(
                f"session {self.id} does not read its input, or cannot be reached now. It may still get it: look "
                "before you type it again, or interrupt it"
            ) from None
        except ExecError:
            if not process.exited:
                raise
            return
        if result.status is not WriteStatus.ACCEPTED and not process.exited:
            raise ToolInputError(
                f"stdin of session {self.id} is closed; run the command again with tty set to true to write to it"
            )

    async def terminate(self, notice: str | None = None) -> None:
        """End the command and its descendants, and wait for that; `notice` becomes the last line of its output."""
        process = self._process
        if process is None:
            return
        if notice is not None and self.running:
            self._add(f"\n[{notice}]\n")
        try:
            async with asyncio.timeout(TERMINATE_DEADLINE_S):
                await process.terminate()
                await self._closed.wait()
        except (TimeoutError, ExecError) as error:
            logger.warning("command %s may still run: %s", self.process_id, error or "its end was not reported in time")
        self._end()

    # --- reading ---

    async def read(self) -> None:
        """Follow the process until nothing more can come; the owner runs this as a task."""
        assert self._process is not None, "a session is read once"
        events = self._process.events()
        try:
            async for event in events:
                match event:
                    case Output():
                        self._add(self._decoders[event.stream].decode(event.chunk))
                    case Exited():
                        self.exit_code = event.exit_code
                        self.sandbox_denied = event.sandbox_denied
                        self._duration = self._loop.time() - self._started
                        self._quiet = self._loop.call_later(QUIET_S, self._end)
                    case Failed():
                        self.failure = event.message
                    case Evicted():
                        self._add("\n[some output was lost here]\n")
        finally:
            events.close()
            self._add("".join(decoder.decode(b"", True) for decoder in self._decoders.values()))
            self._end()
            self._process = None
            self._closed.set()

    def _add(self, text: str) -> None:
        if not text:
            return
        self._aggregated.add(text)
        self._untaken.add(text)
        if self._deltas is not None:
            self._deltas.add(text)

    def _end(self) -> None:
        if self._quiet is not None:
            self._quiet.cancel()
        if not self.running:
            return
        if self._duration is None:
            self._duration = self._loop.time() - self._started
        self._ended.set()
        self._deltas = None  # the end was published: nothing may follow
        self._call_hook()

    def _call_hook(self) -> None:
        hook, self._on_end = self._on_end, None
        if hook is None:
            return
        try:
            hook(self)
        except Exception:
            logger.exception("the hook for the end of command %s failed", self.process_id)


class _Deltas:
    """Output for a client, while it is not too much."""

    def __init__(self, on_output: Callable[[str], None]) -> None:
        self._on_output = on_output
        self._bytes_left = MAX_DELTA_BYTES
        self._count_left = MAX_DELTAS

    @property
    def _has_room(self) -> bool:
        return self._bytes_left > 0 and self._count_left > 0

    def add(self, text: str) -> None:
        data = text.encode("utf-8", "replace") if self._has_room else b""
        while data and self._has_room:
            piece = first_bytes(data, min(MAX_DELTA, self._bytes_left))
            if not piece:  # no room for one character
                self._bytes_left = 0
                return
            data = data[len(piece) :]
            self._bytes_left -= len(piece)
            self._count_left -= 1
            try:
                self._on_output(piece.decode())
            except Exception:
                self._count_left = 0
                logger.exception("output of a command could not be passed on; the rest is only collected")


MAX_SESSIONS: Final = 64
# Commands of whose end the model has not been told yet: each is a text of some ten kilobytes.
MAX_UNREAD: Final = 8
CLOSE_DEADLINE_S: Final = 2 * TERMINATE_DEADLINE_S
_NUMBERS: Final = range(10_000, 100_000)


class CommandSessions:
    """`environment` gives the place where commands run, by its id; it is asked for at every start. `on_closed` is
    called when a command has ended and no more output of it can come."""

    def __init__(
        self,
        environment: Callable[[str], Awaitable[Environment]],
        on_closed: Callable[[CommandSession], None] = lambda session: None,
    ) -> None:
        self._environment = environment
        self._on_closed = on_closed
        self._sessions: dict[int, CommandSession] = {}  # least recently used first
        self._starting: set[int] = set()
        self._forgotten: set[int] = set()
        self._last_reports: dict[int, str] = {}
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
            environment = await self._environment(spec.environment)
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
            process = await environment.start(params)
            if self._closed:  # meanwhile
                await process.terminate()
                raise _closed()
            session = CommandSession(number, process, spec.tty, on_output)
            self._sessions[number] = session
        finally:
            self._starting.discard(number)
        self._follow(session)
        await self._make_room(MAX_SESSIONS)  # several may have started at once
        return session

    def take_up(self, number: int, process: Process, tty: bool, on_output: Callable[[str], None]) -> CommandSession:
        """A command that runs already, under the number that it had."""
        session = CommandSession(number, process, tty, on_output)
        self._sessions[number] = session
        self._follow(session)
        return session

    def get(self, session_id: int) -> CommandSession | None:
        """The session of this number, unless it has been forgotten; it counts as used."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._sessions[session_id] = session
        return session

    def forget(self, session: CommandSession, last_report: str | None = None) -> None:
        """Remove a session whose end was reported: nobody will ask again. It stays while it runs, or a child holds its
        output open. `last_report` is for a model that has not been told of the end yet, and may still ask."""
        self._last_reports.pop(session.id, None)
        if last_report is not None:
            self._last_reports[session.id] = last_report
            while len(self._last_reports) > MAX_UNREAD:
                del self._last_reports[next(iter(self._last_reports))]
        if session.closed:
            self._sessions.pop(session.id, None)
        elif not session.running and session.id in self._sessions:
            self._forgotten.add(session.id)

    def take_last_report(self, session_id: int) -> str | None:
        """What there is to say of a command that was forgotten before the model was told of its end; once."""
        return self._last_reports.pop(session_id, None)

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

    def _follow(self, session: CommandSession) -> None:
        task = asyncio.get_running_loop().create_task(session.read(), name=f"command {session.id}")
        self._readers[task] = session
        task.add_done_callback(self._read)

    def _reserve(self) -> int:
        if self._closed:
            raise _closed()
        taken = self._starting | self._sessions.keys() | self._last_reports.keys()
        while True:
            number = _NUMBERS[int.from_bytes(os.urandom(4)) % len(_NUMBERS)]
            if number not in taken:
                self._starting.add(number)
                return number

    async def _make_room(self, most: int) -> None:
        """End sessions that are too many: one that has ended first, then the one that was not used for the longest
        time."""
        while len(self._sessions) > max(most, 0):
            ended = (session for session in self._sessions.values() if not session.running)
            victim = next(ended, None) or next(iter(self._sessions.values()))
            del self._sessions[victim.id]
            self._forgotten.discard(victim.id)
            await victim.terminate(f"ended to make room: no more than {MAX_SESSIONS} commands can run at a time")

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


__all__ = ["CommandSession", "CommandSessions", "CommandSpec"]
