"""`BodyReader`: the body of a response as events, however the bytes are split.

A body is either an event stream or, from a server that does not stream or that failed before it could, one JSON
document, which becomes one event.
"""

from __future__ import annotations

from treadle.llm.sse import MAX_EVENT, SseEvent, SseParser, SseTooLarge


class BodyReader:
    """Feed it with `receive` as bytes arrive; call `end` when there are no more."""

    def __init__(self, *, max_event: int = MAX_EVENT) -> None:
        self._max_event = max_event
        self._parser = SseParser(max_event=max_event)
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
        if len(self._document) + len(data) > self._max_event:
            raise SseTooLarge(f"the response is larger than {self._max_event} bytes; the rest was not read")
        self._document += data
        return []

    def end(self) -> list[SseEvent]:
        """What can only be told now."""
        document, self._document = self._document, None
        return [] if document is None else [SseEvent("", document.decode("utf-8", "replace"))]
