"""Server-Sent Events, sans I/O: bytes in, events out.

It owns line ends, fields and the size limit of an event. It knows nothing of HTTP or of what the data means.
"""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct

from treadle.errors import TreadleError

# One event can hold a whole response with its output: a long answer, or an image in base64.
MAX_EVENT: Final = 32 * 1024 * 1024

_BOM: Final = b"\xef\xbb\xbf"
# Nearly every event is one line of data, perhaps with a name before it: such an event is one match, with groups for the
# two. Any other line is a match of its own, in the last group. Nothing that matches is empty but an empty line.
_MATCHES: Final = re.compile(rb"(?:event: (.+)\n|)data: (.+)\n\n|(.*)\n").findall


class SseTooLarge(TreadleError):
    """An event, or a single line, is larger than the parser's limit."""


class SseEvent(Struct, frozen=True):
    """`event` is "" if the stream gave no name; `id` is the last one seen, possibly in an earlier event."""

    event: str
    data: str
    id: str = ""


class SseParser:
    """Feed it with `receive` as bytes arrive, however they are split; call `end` when there are no more."""

    def __init__(self, *, max_event: int = MAX_EVENT) -> None:
        self._max_event = max_event
        self._line = bytearray()  # the line that has not ended yet
        self._at_start = True
        self._skip_lf = False  # the last byte was a CR, which has ended a line: an LF now belongs to it
        self._inside = True  # of an event: lines came since the last empty one, or none at all
        self._data: list[str] = []
        self._size = 0
        self._event = ""
        self._id = ""
        self._failure: SseTooLarge | None = None
        self.retry_ms: int | None = None

    @property
    def last_id(self) -> str:
        """The last id that was seen; "" without one."""
        return self._id

    def receive(self, data: bytes) -> list[SseEvent]:
        """The events that `data` completes. After an event that is too large it raises, now and from then on."""
        self._check()
        events: list[SseEvent] = []
        try:
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
        """`data` with LF as its only line end, after the line that it goes on with; nothing while that has no end."""
        if self._skip_lf and data:
            data = data.removeprefix(b"\n")
            self._skip_lf = False
        if b"\r" in data:
            self._skip_lf = data.endswith(b"\r")
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        if not self._line:
            return data
        self._line += data
        if b"\n" not in data:  # so a long line in small pieces is copied once, at its end
            return b""
        data = bytes(self._line)
        self._line.clear()
        return data

    def _read(self, data: bytes, events: list[SseEvent]) -> None:
        """The lines that end in `data`; the rest waits in `_line`."""
        end = data.rfind(b"\n") + 1
        if end < len(data):
            self._line += data[end:]
        small = end <= self._max_event
        for name, value, line in _MATCHES(data, 0, end):
            if not value:
                event = self._take(line)
            elif small and not self._inside:
                event = SseEvent(name.decode("utf-8", "replace"), value.decode("utf-8", "replace"), self._id)
            else:
                # Something came before these lines, or they may be too large.
                if name:
                    self._take(b"event: " + name)
                self._take(b"data: " + value)
                event = self._take(b"")
            if event is not None:
                events.append(event)

    def _take(self, line: bytes) -> SseEvent | None:
        self._fits(line)
        if self._at_start:
            self._at_start = False
            line = line.removeprefix(_BOM)
        if not line:
            event = SseEvent(self._event, "\n".join(self._data), self._id) if self._data else None
            self._data.clear()
            self._size = 0
            self._event = ""
            self._inside = False
            return event
        self._inside = True
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value.decode("utf-8", "replace"))
            self._size += len(value) + 1
        elif name == b"event":
            self._event = value.decode("utf-8", "replace")
        elif name == b"id" and b"\0" not in value:
            self._id = value.decode("utf-8", "replace")
        elif name == b"retry" and value.isdigit() and len(value) < 10:
            self.retry_ms = int(value)
        return None

    def _fits(self, line: bytes | bytearray) -> None:
        if self._size + len(line) > self._max_event:
            raise SseTooLarge(f"a server-sent event is larger than {self._max_event} bytes; the rest was not read")


class BodyReader:
    """The body of a response as events, however the bytes are split: an event stream or, from a server that does not
    stream or that failed before it could, one JSON document, which becomes one event.

    Feed it with `receive` as bytes arrive; call `end` when there are no more.
    """

    def __init__(self) -> None:
        self._parser = SseParser(max_event=MAX_EVENT)
        self._document: bytearray | None = None
        self._begun = False

    def receive(self, data: bytes) -> list[SseEvent]:
        """The events that `data` completes. Raises `SseTooLarge`, now and from then on."""
        if not self._begun and (start := data.lstrip()):
            self._begun = True
            if start[:1] == b"{":  # no line of a stream begins so
                self._document = bytearray()
        if self._document is None:
            return self._parser.receive(data)
        if len(self._document) + len(data) > MAX_EVENT:
            raise SseTooLarge(f"the response is larger than {MAX_EVENT} bytes; the rest was not read")
        self._document += data
        return []

    def end(self) -> list[SseEvent]:
        """The event of a JSON document, which is complete only now."""
        document, self._document = self._document, None
        return [] if document is None else [SseEvent("", document.decode("utf-8", "replace"))]
