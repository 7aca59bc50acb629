"""Line framing: one message per line, LF or CRLF, blank lines skipped. Sans I/O."""

from __future__ import annotations

MAX_LINE = 64 << 20


class LineFramer:
    """Same interface as `WebSocketFramer`: bytes in, messages out."""

    def __init__(self, *, max_line: int = MAX_LINE) -> None:
        self._max_line = max_line
        self._line = bytearray()  # the one that has not ended yet
        self.outgoing: list[bytes] = []
        self.ended: bool = False
        self.broken: bool = False
        self.end_reason: str = ""

    def receive(self, data: bytes) -> list[bytes]:
        if self.ended:
            return []
        *lines, rest = data.split(b"\n")
        if lines and self._line:
            self._line += lines[0]
            lines[0] = bytes(self._line)
            self._line.clear()
        self._line += rest
        messages: list[bytes] = []
        for line in lines:
            if not self._fits(line):
                return messages
            message = line.strip(b"\r \t")
            if message:
                messages.append(message)
        self._fits(self._line)
        return messages

    def _fits(self, line: bytes | bytearray) -> bool:
        if len(line) > self._max_line:
            self.ended = self.broken = True
            self.end_reason = f"a line is over the limit of {self._max_line} bytes"
            self._line.clear()
        return not self.ended

    def rest(self) -> bytes:
        """What came after the last line end, and no longer is there."""
        rest = bytes(self._line).strip(b"\r \t")
        self._line.clear()
        return rest

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
