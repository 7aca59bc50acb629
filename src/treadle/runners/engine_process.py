"""`EngineProcess`: one run of an engine as a local process, from its start until nothing of it is left.

It owns the process and its descendants, its standard input, the deadlines and how to stop it. An `OutputReader`
interprets what it prints. Nothing here knows one engine from another.

    start ─▶ read ──────────────▶ exited ─▶ clean up ─▶ last events
               │ deadline, cancel, GiveUp       ▲
               └─▶ first signal ── grace ─▶ kill┘

Clean-up comes before the last events: whoever reads the `CompletedEvent` may use the session and the folder at once,
so nothing of the process may be left by then. It also runs when the reader stops in the middle.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import shutil
import time
import weakref
from collections.abc import AsyncGenerator, Coroutine, Mapping
from contextlib import aclosing
from typing import Any, Final, Literal, TypeAlias

from treadle.errors import ExecError, needs_linux
from treadle.execution.bounded_reads import read_in_thread
from treadle.execution.local_backend import LocalBackend
from treadle.execution.local_process import LocalProcess
from treadle.execution.process_values import Evicted, ExecParams, Exited, Failed, Output, OutputStream
from treadle.execution.supervisor import Supervisor
from treadle.own_python import pin_imports
from treadle.runners.engine import (
    ApprovalAnswer,
    ApprovalAsk,
    CloseInput,
    Ending,
    Engine,
    GiveUp,
    Reply,
    RunRequest,
    Timeouts,
    Waits,
    Withdrawn,
)
from treadle.runners.output_reader import OutputReader
from treadle.runners.run_events import Event
from treadle.runners.session_lock import SessionState, process_start_time

logger: Final = logging.getLogger(__name__)

Overdue: TypeAlias = tuple[Literal["idle", "total"], str]
"""A limit of a run, and the error of a run that is over it."""

STDERR_TAIL: Final = 16 << 10
"""How much of the engine's standard error is stored, for those who ask."""
DEFAULTS: Final = Timeouts(total=4 * 3600, idle=1800, linger=2, grace=3)
CANCELLED: Final = "cancelled"
# How long what a program that died had started may take to be gone.
LEFTOVER_S: Final = 10.0
# How long a callback that was cancelled may take to end.
CALLBACK_S: Final = 5.0
MAX_ASKS: Final = 64
"""Questions that wait for their answers at once; more are refused."""


_keepers: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, tuple[Supervisor, AsyncGenerator[Supervisor, None]]] = (
    weakref.WeakKeyDictionary()
)


async def shared_supervisor() -> Supervisor:
    """The helper process of the running loop, started when it is first asked for: one per run would cost more than the
    rest of the run.

    It ends with its loop: when a loop ends, it closes the async generators that were started on it (`asyncio.run` and
    everything like it does that), and closing ours ends the helper.
    """
    loop = asyncio.get_running_loop()
    if loop not in _keepers:
        supervisor = Supervisor()
        keeper = _closing(supervisor)
        _keepers[loop] = (supervisor, keeper)
        await keeper.__anext__()
    return _keepers[loop][0]


async def _closing(supervisor: Supervisor) -> AsyncGenerator[Supervisor, None]:
    try:
        yield supervisor
    finally:
        _keepers.pop(asyncio.get_running_loop(), None)
        await supervisor.close()


class EngineProcess:
    """An async iterator over the events of one run; the last one is its `CompletedEvent`.

    `cancel` asks the engine to stop, and the events go on to their end; `aclose` stops it and waits until it is gone.

    Args:
        engine: What is run.
        command: The program, and words that go before the engine's own arguments.
        request: What is asked.
    """

    def __init__(self, engine: Engine[Any], command: list[str], request: RunRequest) -> None:
        self._engine = engine
        self._command = command
        self._request = request
        self._limits = (request.options.timeouts or Timeouts()).over(engine.timeouts).over(DEFAULTS)
        self._reading = OutputReader(engine, request)
        self._wait: asyncio.Timeout | None = None
        self._stopped: str | None = None  # why it is being stopped before it is done
        self._limit: Literal["idle", "total"] | None = None  # that it was over then
        self._process: LocalProcess | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._asks: dict[str, asyncio.Task[None]] = {}  # questions that wait for the caller's answer
        self._exit_code: int | None = None
        self.ending: Ending | None = None
        """How it ended; None as long as it has not, or was never started."""
        self._stderr = bytearray()
        self._stream = self._run()

    def __aiter__(self) -> EngineProcess:
        return self

    async def __anext__(self) -> Event:
        return await self._stream.__anext__()

    async def aclose(self) -> None:
        """Stop the engine, and wait until it and all that it started are gone."""
        await self._stream.aclose()

    def cancel(self) -> None:
        """Ask the engine to stop. The events go on until it has."""
        if self._stopped is None and not self._reading.said_all:
            self._stopped = CANCELLED
            if self._wait is not None and not self._wait.expired():
                self._wait.reschedule(asyncio.get_running_loop().time())

    @property
    def stderr(self) -> str:
        """The last of what it wrote to its standard error. It may hold secrets: for eyes, not for logs."""
        return self._stderr.decode("utf-8", "replace")

    @property
    def pid(self) -> int | None:
        """The id of the engine's process, once there is one."""
        return None if self._process is None else self._process.pid or None

    # --- the run ---

    async def _run(self) -> AsyncGenerator[Event, None]:
        problem = await self._problem()
        if problem is not None:
            yield self._reading.failed(problem)
            return
        try:
            backend = LocalBackend(await shared_supervisor())
        except ExecError as error:
            yield self._reading.failed(f"{self._engine.name} could not be started: {error.message}")
            return
        try:
            problem = await self._start(backend)
            if problem is None:
                async with aclosing(self._read()) as events:
                    async for event in events:
                        yield event
        finally:
            await _finish(self._clean_up(backend))
            ending = Ending(
                exit_code=self._exit_code, stopped=self._stopped, lines=self._reading.lines, limit=self._limit
            )
            if problem is None:
                self.ending = ending
            last = self._reading.end(ending)
            self._store_record(self._reading.carry())
        for event in last if problem is None else [self._reading.failed(problem)]:
            yield event

    async def _problem(self) -> str | None:
        """Why the engine cannot even be started."""
        token, name = self._request.resume, self._engine.name
        if (problem := needs_linux(f"running {name}")) is not None:
            return problem
        if token is not None and not self._engine.resume.fits(token.value):
            return f"{token.value!r} is no session of {name}: pass the full id, as in {self._engine.resume.written}"
        if self._request.options.approve is not None and self._engine.answer is None:
            return f"{name} cannot ask for approval when it runs headless: leave `approve` out"
        if self._request.options.watch is not None and not self._engine.watched:
            return f"{name} does not ask before every call: leave `watch` out"
        if self._request.options.mcp_servers and not self._engine.takes_mcp_servers:
            return f"{name} cannot be given MCP servers: leave `mcp_servers` out"
        files = [*self._request.options.images]
        if files and not self._engine.takes_images:
            return f"{name} cannot be given pictures: name the file in the prompt"
        if (schema := self._request.options.output_schema) is not None:
            if not self._engine.takes_schema:
                return f"{name} cannot be held to a JSON Schema: ask for that form in the prompt"
            files.append(schema)
        try:
            is_there = await read_in_thread(lambda: os.path.isdir(self._request.cwd))
            missing = await read_in_thread(lambda: [file for file in files if not os.access(file, os.R_OK)])
        except TimeoutError:
            return f"{name} cannot work in {self._request.cwd}: its file system does not answer"
        if not is_there:
            return f"{name} cannot work in {self._request.cwd}: there is no such folder"
        if missing:
            return f"{os.fspath(missing[0])} cannot be read, and {name} was to be given it"
        if token is not None:
            # A program that died may have left the engine behind, which is on its way to its end.
            record, deadline = SessionState.load(token), time.monotonic() + LEFTOVER_S
            while record.still_runs:
                if time.monotonic() > deadline:
                    return (
                        f"the session is in use by process {record.pid}, which a program that died has left behind: "
                        f"end it with `kill {record.pid}`"
                    )
                await asyncio.sleep(0.05)
        return None

    async def _start(self, backend: LocalBackend) -> str | None:
        pin_imports()  # the engine may write where this process looks for modules
        engine, options = self._engine, self._request.options
        inherited = {name: value for name, value in os.environ.items() if name not in engine.drop_env}
        # Some engines believe the variable and not the system; the inherited one is where this program was started.
        env = {**engine.env, **inherited, "PWD": self._request.cwd, **(options.env or {})}
        params = ExecParams(
            process_id="engine",
            argv=[*self._command, *engine.arguments(self._request)],
            cwd=self._request.cwd,
            env={**env, **engine.run_env(self._request, env)},
            pipe_stdin=True,
            sandbox=options.sandbox,
        )
        try:
            self._process = process = await backend.start(params)
        except ExecError as error:
            program = self._command[0]
            missing = error.errno in (errno.ENOENT, errno.ENOTDIR)
            if error.errno == errno.EACCES and "/" not in program:
                # Also the error when a folder of the PATH cannot be read.
                path = (self._request.options.env or {}).get("PATH", os.environ.get("PATH"))
                missing = shutil.which(program, os.F_OK, path) is None
            if missing:
                where = "is not there" if "/" in program else "was not found on the PATH"
                return (
                    f"{self._engine.name} is not installed: {program} {where}. Install it with: {self._engine.install}"
                )
            return f"{self._engine.name} could not be started: {error.message}"
        self._spawn(self._feed(process, engine.prompt(self._request)))
        if self._request.resume is not None:
            self._store_record(pid=self.pid or 0)
        return None

    # --- reading ---

    async def _read(self) -> AsyncGenerator[Event, None]:
        """The events until the process has ended, or until it must be ended by force."""
        assert self._process is not None
        clock = asyncio.get_running_loop().time
        started = heard = clock()
        kill_at: float | None = None
        # When this reader has gone, the process runs free: nothing holds it up on its way to its end.
        async with aclosing(self._process.events()) as stream:
            while True:
                if self._stopped is not None and kill_at is None:
                    kill_at = clock() + (self._limits.grace or 0)
                    await self._process.signal(self._engine.first_signal)
                limit, overdue = self._next_limit(started, heard, kill_at)
                try:
                    async with asyncio.timeout_at(limit) as self._wait:
                        event = await stream.__anext__()
                except TimeoutError:
                    if kill_at is not None or (self._stopped is None and overdue is None):
                        return  # it was asked to end and did not, or it has reported its end and lingers
                    if self._stopped is None and overdue is not None:
                        self._limit, self._stopped = overdue
                    continue
                finally:
                    self._wait = None
                if isinstance(event, Output):
                    for out in self._take(event):
                        yield out
                    heard = clock()  # after the reader is done: its time is not the engine's silence
                elif isinstance(event, Evicted):
                    logger.error("%s: output was lost", self._engine.name)
                else:
                    if isinstance(event, Exited):
                        # Output from before its end is numbered before this; who else holds its output is not awaited.
                        self._exit_code = event.exit_code
                    elif isinstance(event, Failed):
                        self._stopped = self._stopped or f"{self._engine.name} was lost: {event.message}"
                    return

    def _next_limit(self, started: float, heard: float, kill_at: float | None) -> tuple[float | None, Overdue | None]:
        """When to stop waiting, and why the run has then failed; without a reason it has not."""
        if kill_at is not None:
            return kill_at, None
        limits, name = self._limits, self._engine.name
        total_at = started + (limits.total or 0)
        total: Overdue = ("total", f"{name} did not end within {_duration(limits.total)}: stopped")
        if self._reading.said_all:
            return min(heard + (limits.linger or 0), total_at), None
        idle_at = heard + (limits.idle or 0)
        if self._asks or self._reading.waits or total_at <= idle_at:
            return total_at, total
        return idle_at, ("idle", f"{name} gave no sign of life for {_duration(limits.idle)}: stopped")

    def _take(self, output: Output) -> list[Event]:
        if output.stream is OutputStream.STDERR:
            self._stderr += output.chunk
            del self._stderr[:-STDERR_TAIL]
            return []
        events: list[Event] = []
        had_session = self._reading.session is not None
        for out in self._reading.receive(output.chunk):
            if isinstance(out, ApprovalAsk):
                self._ask(out)
            elif isinstance(out, Withdrawn):
                if out.id in self._asks:
                    self._asks[out.id].cancel()
            elif isinstance(out, Reply):
                self._spawn(self._write(out.data))
            elif isinstance(out, CloseInput):
                assert self._process is not None
                self._spawn(self._process.close_stdin())
            elif isinstance(out, GiveUp):
                self._stopped = self._stopped or out.reason
            elif not isinstance(out, Waits):  # of that, `self._reading` knows
                events.append(out)
        if self._reading.session is not None and not had_session:
            self._store_record(pid=self.pid or 0)
        return events

    # --- standard input ---

    async def _feed(self, process: LocalProcess, data: bytes) -> None:
        """Write the prompt, beside the reading: a child may write more than a pipe holds before it reads."""
        try:
            await process.write(data)
            if not self._engine.keeps_input_open(self._request):
                await process.close_stdin()
        except ExecError:  # it ended without reading everything: its exit says so
            logger.debug("%s did not read all of its input", self._engine.name)

    def _ask(self, ask: ApprovalAsk) -> None:
        if ask.id in self._asks:
            return  # the answer to the first is the answer to both
        if len(self._asks) >= MAX_ASKS:
            refusal = ApprovalAnswer(allow=False, message="too many questions at once")
            self._spawn(self._write(self._written(ask, refusal)))
        else:
            self._asks[ask.id] = task = self._spawn(self._decide(ask))
            task.add_done_callback(lambda _: self._asks.pop(ask.id, None))

    async def _decide(self, ask: ApprovalAsk) -> None:
        """The caller's answer. What fails is a no."""
        try:
            approve = self._request.options.watch if ask.early else self._request.options.approve
            choice = False if approve is None else await approve(ask)
            answer = choice if isinstance(choice, ApprovalAnswer) else ApprovalAnswer(allow=choice is True)
            data = self._written(ask, answer)
        except Exception:
            logger.exception("the approval callback failed: %s was refused the tool %s", self._engine.name, ask.tool)
            data = self._written(ask, ApprovalAnswer(allow=False, message="nobody could be asked"))
        await self._write(data)

    def _written(self, ask: ApprovalAsk, answer: ApprovalAnswer) -> bytes:
        assert self._engine.answer is not None
        return self._engine.answer(ask, answer)

    async def _write(self, data: bytes) -> None:
        assert self._process is not None
        try:
            await self._process.write(data)
        except ExecError:
            logger.debug("%s ended before it got an answer", self._engine.name)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # --- the end ---

    async def _clean_up(self, backend: LocalBackend) -> None:
        for task in tuple(self._tasks):
            task.cancel()
        process = self._process
        if process is not None and not process.exited and self._stopped is None:
            # It lingers after its end, or its reader stopped in the middle: it gets a signal and a moment.
            await process.signal("terminate" if self._reading.said_all else self._engine.first_signal)
            try:
                async with asyncio.timeout(self._limits.grace):
                    while not process.exited:
                        await process.changed(process.log.last_seq)
            except TimeoutError:
                logger.debug("%s did not end in time and is killed", self._engine.name)
        # Its tools may be in sessions of their own, and outlive it.
        await backend.close(grace_s=0.0)
        # Last, and not for ever: a callback of the caller's may not want to end.
        if self._tasks:
            _, unended = await asyncio.wait(self._tasks, timeout=CALLBACK_S)
            if unended:
                logger.warning("an approval callback for %s did not end when it was cancelled", self._engine.name)

    def _store_record(self, carried: Mapping[str, Any] | None = None, pid: int = 0) -> None:
        """Store which process works on the session, and what its next run gets; as before when there is nothing new."""
        token = self._reading.session or self._request.resume
        if token is not None:
            carried = carried or self._request.carried
            record = SessionState(
                pid, process_start_time(pid) if pid else 0, None if carried is None else dict(carried)
            )
            record.store(token)


async def _finish(work: Any) -> None:
    """Run to the end, also when the caller is cancelled meanwhile: what it cleans up must not stay."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            if task.cancelled():
                raise
            cancelled = error
    task.result()
    if cancelled is not None:
        raise cancelled


def _duration(seconds: float | None) -> str:
    number = seconds or 0
    return f"{number:g} s" if number < 120 else f"{number / 60:g} min"
