"""Server-Sent Events, sans I/O: bytes in, events out.

It owns line ends, fields and the limit on the size of an event. It knows nothing of HTTP, nor of what the data says.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from treadle.errors import TreadleError

# One event can hold a whole response with its output: a long answer, or an image in base64.
MAX_EVENT: Final = 32 * 1024 * 1024

_BOM: Final = b"\xef\xbb\xbf"


class SseTooLarge(TreadleError):
    """An event, or a single line, is larger than the parser's limit."""


class SseEvent(Struct, frozen=True):
    """`event` is "" when the stream gave no name; `id` is the last one seen, also in an earlier event."""

    event: str
    data: str
    id: str = ""


class SseParser:
    """Feed it with `receive` as the bytes come, however they are cut; call `end` when there are no more."""

    def __init__(self, *, max_event: int = MAX_EVENT) -> None:
        self._max_event = max_event
        self._line = bytearray()  # the line that has not ended yet
        self._at_start = True
        self._skip_lf = False  # the last byte was a CR, which has ended a line: an LF now belongs to it
        self._data: list[str] = []
        self._size = 0
        self._event = ""
        self._id = ""
        self._failure: SseTooLarge | None = None

    def receive(self, data: bytes) -> list[SseEvent]:
        """The events that `data` completes. After an event that is too large it raises, now and from then on."""
        events: list[SseEvent] = []
        try:
            self._check()
            self._read(self._joined(data), events)
            self._fits(self._line)
        except SseTooLarge as error:
            self._failure = error
            if not events:
                raise
        return events

    def end(self) -> bool:
        """Whether the stream ended inside an event, which is then dropped, as the standard wants."""
        self._check()
        return bool(self._line or self._data)

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _joined(self, data: bytes) -> bytes:
        """`data` with LF as its only line end, after the line that it goes on with; nothing when no line ends in it."""
        if self._skip_lf and data:
            data = data.removeprefix(b"\n")
            self._skip_lf = False
        if b"\r" in data:
            self._skip_lf = data.endswith(b"\r")
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        if not self._line:
            return data
        self._line += data
        # A long line that comes in small pieces is copied once, when it ends.
        if b"\n" not in data:
            return b""
        data = bytes(self._line)
        self._line.clear()
        return data

    def _read(self, data: bytes, events: list[SseEvent]) -> None:
        """Whole events at a time where that can be; the line that does not end in `data` waits in `_line`."""
        *blocks, rest = data.split(b"\n\n")
        between = not (self._data or self._event or self._at_start)
        for block in blocks:
            event = self._usual(block) if between else None
            if event is None:
                self._take_lines([*block.split(b"\n"), b""], events)
            else:
                events.append(event)
            between = True
        *lines, rest = rest.split(b"\n")
        self._take_lines(lines, events)
        self._line += rest

    def _usual(self, block: bytes) -> SseEvent | None:
        """Nearly every event is a line of data, perhaps with a name before it. None for all others."""
        name, at = "", 0
        if block.startswith(b"event: "):
            at = block.find(b"\n") + 1
            name = block[7 : at - 1].decode("utf-8", "replace")
        if not block.startswith(b"data: ", at) or block.find(b"\n", at) >= 0 or len(block) > self._max_event:
            return None
        return SseEvent(name, block[at + 6 :].decode("utf-8", "replace"), self._id)

    def _take_lines(self, lines: list[bytes], events: list[SseEvent]) -> None:
        for line in lines:
            event = self._take(line)
            if event is not None:
                events.append(event)

    def _take(self, line: bytes) -> SseEvent | None:
        self._fits(line)
        if self._at_start:
            self._at_start = False
            line = line.removeprefix(_BOM)
        if not line:
            return self._dispatch()
        name, _, value = line.partition(b":")
        self._field(name, value.removeprefix(b" "))
        return None

    def _field(self, name: bytes, value: bytes) -> None:
        if name == b"data":
            self._data.append(value.decode("utf-8", "replace"))
            self._size += len(value) + 1
        elif name == b"event":
            self._event = value.decode("utf-8", "replace")
        elif name == b"id" and b"\0" not in value:
            self._id = value.decode("utf-8", "replace")

    def _dispatch(self) -> SseEvent | None:
        event = SseEvent(self._event, "\n".join(self._data), self._id) if self._data else None
        self._data.clear()
        self._size = 0
        self._event = ""
        return event

    def _fits(self, line: bytes | bytearray) -> None:
        if self._size + len(line) > self._max_event:
            raise SseTooLarge(f"a server-sent event is larger than {self._max_event} bytes; the rest was not read")
