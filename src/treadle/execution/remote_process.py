"""`RemoteProcess`: the local mirror of a process's event log, fed by pushes and, after a reconnect, by reads.

    push ─▶ ┐
            ├▶ ReorderBuffer ─▶ log ─▶ readers        consumed bytes ─▶ process/ack ─▶ the server goes on
    read ─▶ ┘

A server may push out of order (the real Codex one does), and after a reconnect the same events can come twice: once
pushed, once read. Each number goes through the `ReorderBuffer` once, in order.
"""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import TYPE_CHECKING, Generic, TypeVar, get_args

from msgspec import UNSET, UnsetType

from treadle.arguments import LONGEST_S, one_of, seconds
from treadle.errors import INVALID_REQUEST, ExecError, TreadleError
from treadle.execution.process import TERMINATE_GRACE_S, Process
from treadle.execution.process_values import (
    Closed,
    Data,
    ExecParams,
    Exited,
    LogEvent,
    Output,
    OutputStream,
    WriteResult,
    WriteStatus,
    argv_of,
    as_bytes,
)
from treadle.protocol.exec import (
    AckParams,
    CloseStdinParams,
    Empty,
    ReadParams,
    ReadResult,
    ResizeParams,
    SignalName,
    SignalParams,
    TerminateParams,
    TerminateResult,
    WriteParams,
)
from treadle.protocol.exec import WriteResult as WireWriteResult

if TYPE_CHECKING:
    from treadle.execution.remote_backend import RemoteBackend

# How much may be consumed before the server is notified: well below the window at which it blocks the process.
ACK_EVERY = 192 << 10
MAX_HELD_EVENTS = 1024
MAX_HELD_BYTES = 4 << 20

E = TypeVar("E")


class RemoteProcess(Process):
    """A process of an exec-server."""

    def __init__(self, backend: RemoteBackend, params: ExecParams) -> None:
        super().__init__(params.process_id)
        self.params = params
        self._backend = backend
        self._order: ReorderBuffer[LogEvent] = ReorderBuffer()
        self._write_lock = asyncio.Lock()
        self._writes = 0
        self._acked = 0
        self._acks = False
        self.started: bool = False
        self.log.on_progress = self._acknowledge

    # --- events in ---

    def _offer(self, event: LogEvent) -> None:
        """An event from the server, in any order, perhaps for the second time."""
        if self.log.closed:
            return
        if isinstance(event, Exited) and not -(2**31) <= event.exit_code < 2**31:
            self._lose("the exec-server sent an exit code that is none")
            return
        size = len(event.chunk) if isinstance(event, Output) else 0
        try:
            ready = self._order.offer(event.seq, event, size)
        except TooFarAhead as error:
            self._lose(f"process events were lost: {error}")
            return
        for item in ready:
            if self.log.closed:  # a server that numbers events after the close is not believed
                break
            if not self._start_is_logged:  # it has overtaken the answer to the start
                self._log_start(argv_of(self.params))
            if isinstance(item, Output):
                self._add_output(item.stream, item.chunk)
            elif isinstance(item, Exited) and self.exited:
                self._lose("the exec-server sent a second exit")
            elif isinstance(item, Exited):
                self._add_exit(item.exit_code, item.sandbox_denied)
            else:
                self._add_close()
                self._backend._process_closed(self)
        self._acknowledge()

    def _lose(self, reason: str) -> None:
        self._fail(reason)
        self._backend._process_closed(self)

    def _started(self, *, acks: bool) -> None:
        self.started = True
        self._acks = acks
        self._acknowledge()  # events may have come before the answer to the start

    def _acknowledge(self) -> None:
        if not self._acks:
            return
        consumed = self.log.consumed_bytes
        if consumed - self._acked >= ACK_EVERY:
            self._acked = consumed
            params = AckParams(process_id=self.process_id, seq=self.log.consumed_seq)
            self._backend._notify("process/ack", params)

    async def _catch_up(self) -> None:
        """After a reconnect: fetch what was missed. Events that are gone for good end the process here and there."""
        after = self._order.next_seq - 1
        params = ReadParams(process_id=self.process_id, after_seq=after)
        result = await self._backend._call_now("process/read", params, ReadResult)
        self._acked = self.log.consumed_bytes
        if self._acks:
            self._backend._notify("process/ack", AckParams(process_id=self.process_id, seq=self.log.consumed_seq))
        for event in missed_events(result, after, exit_known=self._ending is not None):
            self._offer(event)
        if self._order.next_seq < result.next_seq and not self.log.closed:
            self._lose(
                f"process events {self._order.next_seq} and later are no longer retained by the exec-server, which ran "
                "without this client for too long"
            )
            await self._backend._call_now(
                "process/terminate", TerminateParams(process_id=self.process_id), TerminateResult
            )

    # --- verbs ---

    async def write(self, data: Data) -> WriteResult:
        sent = as_bytes(data, "data")
        async with self._write_lock:
            if self.failure is not None:
                raise ExecError(self.failure)
            self._writes += 1
            # The id makes the write safe to repeat when the connection is lost before the answer.
            params = WriteParams(process_id=self.process_id, chunk=sent, write_id=str(self._writes))
            result = await self._backend.call("process/write", params, WireWriteResult, repeat=True)
        return WriteResult(WriteStatus(result.status))

    async def close_stdin(self) -> None:
        if self.params.tty:
            await self.write(b"\x04")
            return
        self._backend.require("process_close_stdin", "close stdin")
        async with self._write_lock:
            params = CloseStdinParams(process_id=self.process_id)
            await self._backend.call("process/closeStdin", params, Empty, repeat=True)

    async def signal(self, name: SignalName) -> None:
        one_of("name", name, get_args(SignalName))
        if name != "interrupt":
            self._backend.require("process_signals", f"send the signal {name!r}")
        if not self.exited:
            await self._backend.call("process/signal", SignalParams(process_id=self.process_id, signal=name), Empty)

    async def terminate(self, grace_s: float = TERMINATE_GRACE_S) -> bool:
        grace_s = min(seconds("grace_s", grace_s), LONGEST_S)
        if self.log.closed:
            return False
        grace = int(grace_s * 1000) if self._backend.capabilities.process_graceful_terminate else UNSET
        params = TerminateParams(process_id=self.process_id, grace_ms=grace)
        result = await self._backend.call("process/terminate", params, TerminateResult, repeat=True)
        return result.running

    async def resize(self, rows: int, cols: int) -> None:
        if not self.params.tty:
            raise ExecError(f"process {self.process_id} has no terminal: start it with tty", INVALID_REQUEST)
        self._backend.require("process_resize", "resize a terminal")
        params = ResizeParams(process_id=self.process_id, rows=rows, cols=cols)
        await self._backend.call("process/resize", params, Empty, repeat=True)


def missed_events(result: ReadResult, after: int, *, exit_known: bool) -> list[LogEvent]:
    """The events behind a read result. It has no number for the exit, so without our extension that is inferred: the
    close is the highest number, and the exit is the one that no chunk has."""
    events: list[LogEvent] = [Output(chunk.seq, OutputStream(chunk.stream), chunk.chunk) for chunk in result.chunks]
    closed_seq = result.next_seq - 1 if result.closed else None
    if result.exited and not exit_known:
        seq: int | None
        if isinstance(result.exited_seq, UnsetType):
            taken = {event.seq for event in events} | {closed_seq}
            free = list(islice((n for n in range(after + 1, result.next_seq) if n not in taken), 2))
            # More than one free number means that output was evicted: then the exit looks like a loss.
            seq = free[0] if len(free) == 1 else None
        else:
            seq = result.exited_seq
        if seq is not None:
            events.append(Exited(seq, -1 if result.exit_code is None else result.exit_code, result.sandbox_denied))
    if closed_seq is not None:
        events.append(Closed(closed_seq))
    return sorted(events, key=lambda event: event.seq)


class TooFarAhead(TreadleError):
    """More is held than can be waiting for honest reasons: the missing event will not come."""


class ReorderBuffer(Generic[E]):
    """Takes events in any order (`offer`) and gives them back in order."""

    def __init__(self, next_seq: int = 1) -> None:
        self.next_seq: int = next_seq
        self._held: dict[int, tuple[E, int]] = {}
        self._held_bytes = 0

    def offer(self, seq: int, event: E, size: int = 0) -> list[E]:
        """The events that can go out now."""
        if seq < self.next_seq or seq in self._held:
            return []
        if seq > self.next_seq:
            self._held_bytes += size
            if len(self._held) >= MAX_HELD_EVENTS or self._held_bytes > MAX_HELD_BYTES:
                later = len(self._held) + 1
                self._held.clear()  # whoever is lost may be held for long
                raise TooFarAhead(f"event {self.next_seq} is missing and {later} later ones have come")
            self._held[seq] = (event, size)
            return []
        ready = [event]
        self.next_seq += 1
        while self.next_seq in self._held:
            held, held_size = self._held.pop(self.next_seq)
            self._held_bytes -= held_size
            ready.append(held)
            self.next_seq += 1
        return ready
