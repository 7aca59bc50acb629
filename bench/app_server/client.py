"""The client of the benchmark: JSON lines over two pipes, blocking, in one thread. It knows nothing of processes.

It looks only at `id`, `method` and the thread of a frame while time is taken; `null` says what that costs.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from bench.servers import BenchError

# No single step takes this long on a machine that can be measured at all.
STEP_SECONDS: Final = 600.0
# What fits into a pipe that nobody reads: a batch must not fill it, or both sides would wait for each other.
_MAX_BATCH: Final = 60_000
_READ: Final = 1 << 20


class Frame(Struct):
    id: int | None = None
    method: str | None = None
    params: Raw = Raw(b"{}")
    result: Raw = Raw(b"{}")
    error: Any = None


class _Turn(Struct):
    status: str
    error: Any = None


class _Completed(Struct, rename="camel"):
    thread_id: str
    turn: _Turn


class CommandItem(Struct, rename="camel"):
    status: str
    exit_code: int | None = None
    aggregated_output: str | None = None


class _Command(Struct):
    item: CommandItem


class _Delta(Struct):
    delta: str


class _Started(Struct):
    class Thread(Struct):
        id: str

    thread: Thread


_frame: Final = msgspec.json.Decoder(Frame).decode
_completed: Final = msgspec.json.Decoder(_Completed).decode
_command: Final = msgspec.json.Decoder(_Command).decode
_delta: Final = msgspec.json.Decoder(_Delta).decode
_started: Final = msgspec.json.Decoder(_Started).decode
_encode: Final = msgspec.json.Encoder().encode


class Client:
    """A session over the server's standard input and output."""

    def __init__(self, to_server: int, from_server: int) -> None:
        self._to = to_server
        self._from = from_server
        self._readable = select.poll()
        self._readable.register(from_server, select.POLLIN)
        self._rest = b""
        self._lines: list[bytes] = []
        self._next_id = 0

    # --- verbs ---

    def initialize(self) -> None:
        info = {"name": "treadle_bench", "title": None, "version": "1"}
        self.call("initialize", {"clientInfo": info, "capabilities": {"experimentalApi": True}})
        self._write(b'{"method":"initialized"}\n')

    def call(self, method: str, params: Mapping[str, Any]) -> Raw:
        return self.calls(method, [params])[0]

    def calls(self, method: str, many: Sequence[Mapping[str, Any]]) -> list[Raw]:
        """All at once; the results in the order of the requests."""
        ids = self._send(method, many)
        results: dict[int, Raw] = {}
        while len(results) < len(ids):
            for line in self._read():
                frame = _frame(line)
                if frame.method is None and frame.id is not None:
                    results[frame.id] = _result(method, frame)
        return [results[number] for number in ids]

    def start_threads(self, count: int, at_once: int = 50, params: Mapping[str, Any] | None = None) -> list[str]:
        found: list[str] = []
        while len(found) < count:
            results = self.calls("thread/start", [params or {}] * min(at_once, count - len(found)))
            found += [_started(result).thread.id for result in results]
        return found

    def turn(self, thread: str) -> float:
        """Seconds from the request to the end of the turn."""
        return self.turns([thread])

    def turns(self, threads: Iterable[str]) -> float:
        """One turn in each thread, all at once; seconds until the last has ended."""
        waiting = set(threads)
        began = time.perf_counter()
        self._send("turn/start", [_turn_of(thread) for thread in waiting])
        while waiting:
            for line in self._read():
                if b'"turn/completed"' in line:
                    waiting.discard(_checked(line))
                elif line.startswith(b'{"error"') or b'"error":{"code"' in line:
                    raise BenchError(f"a turn was refused: {line[:300]!r}")
        return time.perf_counter() - began

    def long_turn(self, thread: str, deltas: int, text: str) -> tuple[float, int]:
        """Seconds, and in how many notifications the deltas came; they may be joined, but no text may be missing."""
        lines: list[bytes] = []
        began = time.perf_counter()
        self._send("turn/start", [_turn_of(thread)])
        while not lines or b'"turn/completed"' not in lines[-1]:
            lines += self._read()
        seconds = time.perf_counter() - began
        _checked(lines[-1])
        parts = [_delta(_frame(line).params).delta for line in lines if b'"item/agentMessage/delta"' in line]
        if "".join(parts) != text * deltas:
            raise BenchError(f"{len(parts)} deltas came, and they are not the text of the model")
        return seconds, len(parts)

    def command_turn(self, thread: str) -> tuple[float, CommandItem]:
        """Seconds from the request to the end of the turn's command, and its item; the turn has ended too."""
        began, ended, item = time.perf_counter(), 0.0, None
        self._send("turn/start", [_turn_of(thread)])
        while True:
            for line in self._read():
                if item is None and b'"item/completed"' in line and b'"commandExecution"' in line:
                    ended, item = time.perf_counter(), _command(_frame(line).params).item
                elif b'"turn/completed"' in line:
                    _checked(line)
                    if item is None:
                        raise BenchError("the turn has ended without a command")
                    return ended - began, item

    # --- inside ---

    def _send(self, method: str, many: Sequence[Mapping[str, Any]]) -> list[int]:
        ids = list(range(self._next_id, self._next_id + len(many)))
        self._next_id += len(many)
        batch = b"".join(
            _encode({"id": number, "method": method, "params": params}) + b"\n"
            for number, params in zip(ids, many, strict=True)
        )
        if len(batch) > _MAX_BATCH:
            raise BenchError(f"{len(many)} requests of {method} are too many at once")
        self._write(batch)
        return ids

    def _write(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._to, data) :]

    def _read(self) -> list[bytes]:
        """Whole lines: at least one, and all that are there."""
        while True:
            if not self._readable.poll(STEP_SECONDS * 1000):
                raise BenchError(f"the server said nothing for {STEP_SECONDS:g} s")
            data = os.read(self._from, _READ)
            if not data:
                raise BenchError("the server has ended")
            *lines, self._rest = (self._rest + data).split(b"\n")
            if lines:
                return lines


def _turn_of(thread: str) -> dict[str, Any]:
    return {"threadId": thread, "input": [{"type": "text", "text": "hello"}]}


def _result(method: str, frame: Frame) -> Raw:
    if frame.error is not None:
        raise BenchError(f"{method} was refused: {frame.error}")
    return frame.result


def _checked(line: bytes) -> str:
    """The thread of a turn that has ended well."""
    completed = _completed(_frame(line).params)
    if completed.turn.status != "completed":
        raise BenchError(f"a turn ended as {completed.turn.status}: {completed.turn.error}")
    return completed.thread_id
