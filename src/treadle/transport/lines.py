"""Framing by lines: one message per line, LF or CRLF, blank lines skipped. Without I/O."""

from __future__ import annotations

MAX_LINE = 64 << 20


class LineFramer:
    """The same shape as `WebSocketFramer`: bytes in, messages out."""

    def __init__(self, *, max_line: int = MAX_LINE) -> None:
        self._max_line = max_line
        self._buffer = bytearray()
        self._scanned = 0
        self.outgoing: list[bytes] = []
        self.ended = False
        self.end_reason = ""

    def receive(self, data: bytes) -> list[bytes]:
        if self.ended:
            return []
        self._buffer += data
        messages: list[bytes] = []
        start = 0
        while (end := self._buffer.find(b"\n", max(start, self._scanned))) >= 0:
            if end - start > self._max_line:
                break
            line = bytes(self._buffer[start:end]).strip(b"\r \t")
            if line:
                messages.append(line)
            start = end + 1
        del self._buffer[:start]
        self._scanned = len(self._buffer)
        if self._scanned > self._max_line:
            self.ended = True
            self.end_reason = f"a line is over the limit of {self._max_line} bytes"
        return messages

    def receive_eof(self) -> None:
        if not self.ended:
            self.ended = True
            self.end_reason = "end of input"

    def message(self, payload: bytes) -> list[bytes]:
        return [payload, b"\n"]

    def ping(self) -> list[bytes]:
        return []

    def close(self) -> list[bytes]:
        return []
