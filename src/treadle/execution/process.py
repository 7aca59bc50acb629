"""`Process`: a running command with a numbered event log, wherever it runs.

Reading is the same for every backend, because it is reading the log; a backend adds the events and carries out the
verbs.
"""

from __future__ import annotations

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence

from msgspec import Struct

from treadle.errors import ExecError
from treadle.events import EventLog, Gap, Subscription
from treadle.execution.process_values import (
    Closed,
    Data,
    Evicted,
    Exited,
    Failed,
    LogEvent,
    Output,
    OutputChunk,
    OutputStream,
    ProcessEvent,
    ProcessInfo,
    ReadResponse,
    WriteResult,
)
from treadle.logs.metrics import OUTPUT, PROCESSES
from treadle.logs.trace import IDS
from treadle.protocol.exec import SignalName
from treadle.transport.channel import LoopOwner

logger: logging.Logger = logging.getLogger(__name__)

MAX_LOGGED = 200  # of the name of a program
RETAINED_BYTES = 1 << 20
RETAINED_CHUNKS = 50_000
# A subscriber this far behind blocks the process. Half of what is retained: what is on its way when the process is
# stopped still fits, so a subscriber that keeps reading never meets an eviction.
HIGH_WATER = RETAINED_BYTES // 2
# Between TERM and KILL.
TERMINATE_GRACE_S = 1.0


class _Ending(Struct):
    seq: int
    exit_code: int
    sandbox_denied: bool


class Process(ABC):
    """A process that was started.

    Args:
        process_id: The caller's name for it.
        retained_bytes: How much of its output is retained for readers that come later.
    """

    def __init__(self, process_id: str, *, retained_bytes: int = RETAINED_BYTES) -> None:
        self.process_id = process_id
        self.log: EventLog[LogEvent] = EventLog(
            max_bytes=retained_bytes, max_events=RETAINED_CHUNKS, high_water=min(HIGH_WATER, retained_bytes // 2)
        )
        self._ending: _Ending | None = None
        self._failure: str | None = None
        self._owner = LoopOwner("this process")
        self._start_is_logged = False
        self._ids = IDS.get()  # its end is logged by a reader that works for everyone
        self._began = time.monotonic()

    def __repr__(self) -> str:
        state = "failed" if self._failure else "closed" if self.closed else "exited" if self.exited else "running"
        return f"<{type(self).__name__} {self.process_id!r} {state}>"

    # --- reading ---

    @property
    def exited(self) -> bool:
        """Whether the process itself has ended, or was lost."""
        return self._ending is not None or self._failure is not None

    @property
    def exit_code(self) -> int | None:
        """What it ended with; death by signal n is 128 + n. None while it runs, and when it was lost."""
        return self._ending.exit_code if self._ending is not None else None

    @property
    def closed(self) -> bool:
        """Nothing more will come."""
        return self.log.closed

    @property
    def failure(self) -> str | None:
        """Why it was lost, if it was."""
        return self._failure

    async def read(self, after_seq: int | None = None, max_bytes: int | None = None, wait_ms: int = 0) -> ReadResponse:
        """The retained output: at least one chunk if there is any, then as many as fit.

        Args:
            after_seq: The number of the last event that is known already; from the beginning without it.
            max_bytes: How much at most; all without it.
            wait_ms: Wait so long for output, for the exit (unless `after_seq` is past it) or for the close.
        """
        after = max(after_seq or 0, 0)
        if wait_ms > 0 and not self._has_news(after):
            self._check_loop()
            try:
                async with asyncio.timeout(wait_ms / 1000):
                    while not self._has_news(after):
                        await self.log.wait(max(after, self.log.last_seq))
            except TimeoutError:
                pass
        chunks: list[OutputChunk] = []
        size = 0
        for _, event in self.log.retained(after):
            if not isinstance(event, Output):
                continue
            size += len(event.chunk)
            if max_bytes is not None and chunks and size > max_bytes:
                break
            chunks.append(OutputChunk(event.seq, event.stream, event.chunk))
        gap = self.log.missing(after)
        ending = self._ending
        return ReadResponse(
            chunks=tuple(chunks),
            next_seq=chunks[-1].seq + 1 if max_bytes is not None and chunks else self.log.next_seq,
            exited=self.exited,
            exit_code=self.exit_code,
            closed=self.log.closed,
            failure=self._failure,
            sandbox_denied=ending.sandbox_denied if ending is not None else False,
            evicted=Evicted(gap.first, gap.last) if gap is not None else None,
            exited_seq=ending.seq if ending is not None else None,
        )

    async def changed(self, after_seq: int = 0) -> int:
        """Wait until something newer is known, or nothing more will come; returns the last number.

        Args:
            after_seq: The number of the last event that is known already.
        """
        self._check_loop()
        await self.log.wait(after_seq)
        return self.log.last_seq

    def events(self, after_seq: int = 0) -> EventStream:
        """All events: first what is retained, then live, until `Closed` or `Failed`.

        A subscriber that stops reading blocks this process, once it is half a mebibyte behind, and nothing else.

        Args:
            after_seq: The number of the last event that is known already.
        """
        return EventStream(self, max(after_seq, 0))

    async def wait(self) -> int | None:
        """Wait for the close; the exit code, or None when the process was lost."""
        self._check_loop()
        while not self.log.closed:
            await self.log.wait(self.log.last_seq)
        return self.exit_code

    def info(self, argv: tuple[str, ...] = (), tty: bool = False) -> ProcessInfo:
        """The line of this process in `Environment.processes`.

        Args:
            argv: The command line to show.
            tty: Whether it has a terminal.
        """
        return ProcessInfo(self.process_id, argv, tty, self.log.next_seq, self.exited, self.exit_code, self.log.closed)

    # --- verbs ---

    @abstractmethod
    async def write(self, data: Data) -> WriteResult:
        """Send bytes, or text as UTF-8, to the process's stdin; waits while the process does not read.

        Args:
            data: The bytes or the text.
        """

    @abstractmethod
    async def close_stdin(self) -> None:
        """End of input: the child reads EOF (on a terminal: the end-of-file character)."""

    @abstractmethod
    async def signal(self, name: SignalName) -> None:
        """Send a signal to the process group; nothing happens when it has ended.

        Args:
            name: `interrupt`, `terminate`, `kill`, `hangup`, `quit`, `usr1`, `usr2`, `stop` or `continue`.
        """

    @abstractmethod
    async def terminate(self, grace_s: float = TERMINATE_GRACE_S) -> bool:
        """TERM, then KILL, for the process and all its descendants. Returns whether it was running.

        Args:
            grace_s: Seconds between the two.
        """

    @abstractmethod
    async def resize(self, rows: int, cols: int) -> None:
        """Change the size of the process's terminal.

        Args:
            rows: Its lines.
            cols: Its columns.
        """

    # --- for backends: adding events ---

    def _log_start(self, argv: Sequence[str], pid: int | None = None) -> None:
        """Log the start, once. Only the program: its arguments are what a model, or a user, has written."""
        if not self._start_is_logged:
            self._start_is_logged = True
            fields = {"process": self.process_id, "program": argv[0][:MAX_LOGGED], "pid": pid}
            logger.info("process started", {**self._ids, **fields})

    def _log_end(self, what: str, **fields: object) -> None:
        if logger.isEnabledFor(logging.INFO):
            took_ms = int((time.monotonic() - self._began) * 1000)
            logger.info(what, {**self._ids, "process": self.process_id, **fields, "duration_ms": took_ms})

    def _add_output(self, stream: OutputStream, chunk: bytes) -> None:
        OUTPUT.add(amount=len(chunk))
        self.log.append(Output(self.log.next_seq, stream, chunk), len(chunk))

    def _add_exit(self, exit_code: int, sandbox_denied: bool = False) -> None:
        seq = self.log.next_seq
        self._ending = _Ending(seq, exit_code, sandbox_denied)
        PROCESSES.add("failed" if exit_code else "succeeded")
        self._log_end("process exited", exit_code=exit_code, sandbox_denied=sandbox_denied or None)
        self.log.append(Exited(seq, exit_code, sandbox_denied), keep=True)

    def _add_close(self) -> None:
        self.log.append(Closed(self.log.next_seq), keep=True)
        self._end_log()

    def _fail(self, message: str) -> None:
        if not self.log.closed:
            self._failure = message
            if self._ending is None:
                PROCESSES.add("lost")
            self._log_end("process lost", reason=message)
            self._end_log()

    def _end_log(self) -> None:
        self.log.close()
        # Without this cycle the output is freed with the last reference, and not when the collector comes by.
        self.log.on_progress = None

    # --- inside ---

    def _check_loop(self) -> None:
        problem = self._owner.problem()
        if problem is not None:
            raise ExecError(problem)

    def _has_news(self, after: int) -> bool:
        if self.log.closed:
            return True
        if self._ending is not None and after < self._ending.seq:
            return True
        # Output after the exit counts too, hence not just the last number.
        return self.log.last_seq > after and any(isinstance(item.event, Output) for item in self.log.retained(after))


class EventStream:
    """The async iterator of `Process.events`. Dropping it, or `close()`, lets the process run freely again."""

    def __init__(self, process: Process, after_seq: int) -> None:
        self._process = process
        self._subscription: Subscription[LogEvent] = Subscription(process.log, after_seq)
        self._done = False

    def __aiter__(self) -> EventStream:
        return self

    async def __anext__(self) -> ProcessEvent:
        if self._done:
            raise StopAsyncIteration
        self._process._check_loop()
        try:
            item = await self._subscription.__anext__()
        except StopAsyncIteration:
            self._done = True
            if self._process.failure is None:
                raise
            return Failed(self._process.failure)
        if isinstance(item, Gap):
            return Evicted(item.first, item.last)
        return item.event

    def close(self) -> None:
        """Stop reading: the process need not wait for this reader any more."""
        self._done = True
        self._subscription.close()

    async def aclose(self) -> None:
        """The same, for `aclosing`."""
        self.close()
