"""The output of a command: bounded to what a model may read (`HeadTail`), and the report that a model gets of it.

Pure. The format of the report is the one that models of the Codex family were trained on.
"""

from __future__ import annotations

import os
from typing import Final

from msgspec import Struct

BYTES_PER_TOKEN: Final = 4
# The line that says what was cut is counted in, so that a limit holds for the whole text.
_LINE_ROOM: Final = 64
_CONTINUATION: Final = range(0x80, 0xC0)


def tokens(size: int) -> int:
    """How many tokens `size` bytes are, rounded up."""
    return -(-size // BYTES_PER_TOKEN)


def cut_to(text: str, max_tokens: int) -> str:
    """A text within a budget, cut in the middle."""
    kept = HeadTail(2 * BYTES_PER_TOKEN * len(text) + _LINE_ROOM)  # all of it: a character has four bytes at most
    kept.add(text)
    return kept.within(max_tokens)


class Taken(Struct, frozen=True):
    """Output, cut to a budget, and how long it was before."""

    text: str
    original_tokens: int


class HeadTail:
    """What was added, up to `limit` bytes of it: half of them from the beginning, half from the end."""

    def __init__(self, limit: int) -> None:
        self._half = max((limit - _LINE_ROOM) // 2, 0)
        self._head = bytearray()
        self._tail = bytearray()
        self.size: int = 0
        """Bytes that were added, kept or not."""

    def add(self, text: str) -> None:
        data = text.encode("utf-8", "replace")
        if self.size == len(self._head):  # nothing is behind the head yet
            start = first_bytes(data, self._half - len(self._head))
            self._head += start
            self._tail += data[len(start) :]
        else:
            self._tail += data
        self.size += len(data)
        if len(self._tail) > 2 * self._half:  # now and then, and not at every step
            del self._tail[: _start_of_last(self._tail, self._half)]

    def text(self) -> str:
        """The whole output, or its beginning and end with a line between them that says how many bytes were cut."""
        if self._whole and len(self._tail) <= self._half:
            return (self._head + self._tail).decode()
        end = last_bytes(bytes(self._tail), self._half)
        missing = self.size - len(self._head) - len(end)
        return _joined(bytes(self._head), f"[… {missing} bytes were cut here …]", end)

    def within(self, max_tokens: int) -> str:
        """The same cut down to a budget, with a line that says how many tokens are missing."""
        budget = max(max_tokens, 0) * BYTES_PER_TOKEN
        if self._whole and self.size <= budget:
            return (self._head + self._tail).decode()
        half = min(budget // 2, self._half)
        head, tail = bytes(self._head), bytes(self._tail)
        if self._whole:
            head = tail = head + tail
        start, end = first_bytes(head, half), last_bytes(tail, half)
        missing = tokens(self.size - len(start) - len(end))
        return _joined(start, f"[… {missing} tokens of output were cut here …]", end)

    @property
    def _whole(self) -> bool:
        return len(self._head) + len(self._tail) == self.size


def _joined(start: bytes, line: str, end: bytes) -> str:
    gap = "" if not start or start.endswith(b"\n") else "\n"
    return f"{start.decode()}{gap}{line}\n{end.decode()}"


def first_bytes(data: bytes, size: int) -> bytes:
    """At most `size` bytes from the beginning, without half a character."""
    if len(data) <= size:
        return data
    while size > 0 and data[size] in _CONTINUATION:
        size -= 1
    return data[:size]


def last_bytes(data: bytes, size: int) -> bytes:
    """At most `size` bytes from the end, without half a character."""
    return data[_start_of_last(data, size) :]


def _start_of_last(data: bytes | bytearray, size: int) -> int:
    start = max(len(data) - size, 0)
    while start < len(data) and data[start] in _CONTINUATION:
        start += 1
    return start


class CommandReport(Struct, frozen=True, kw_only=True):
    """`exit_code` of a command that has ended, `session_id` of one that runs. One that was lost has neither."""

    chunk_id: str
    wall_time_s: float
    taken: Taken
    exit_code: int | None = None
    session_id: int | None = None


def new_chunk_id() -> str:
    """Six hexadecimal digits, so that the model can name a report."""
    return os.urandom(3).hex()


def report_text(report: CommandReport) -> str:
    lines = [f"Chunk ID: {report.chunk_id}", f"Wall time: {report.wall_time_s:.4f} seconds"]
    if report.exit_code is not None:
        lines.append(f"Process exited with code {report.exit_code}")
    if report.session_id is not None:
        lines.append(f"Process running with session ID {report.session_id}")
    lines += [f"Original token count: {report.taken.original_tokens}", "Output:", report.taken.text]
    return "\n".join(lines)
