"""The SSE parser against one that goes line by line: from the same bytes the same events, the same limit and end."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from treadle.http import SseEvent, SseParser, SseTooLarge

# Of one `receive`: the events, whether it raised, and what `end` says after it.
Step = tuple[list[SseEvent], bool, bool | None]


class LineByLine:
    """Slow and plain: every byte is looked at, and the limit is asked at every line and for the unfinished one."""

    def __init__(self, max_event: int) -> None:
        self._max_event = max_event
        self._line = b""
        self._first = True
        self._after_cr = False
        self._data: list[bytes] = []
        self._name = b""
        self._id = b""
        self._failed = False

    def receive(self, data: bytes) -> Step:
        events: list[SseEvent] = []
        if self._failed:
            return [], True, None
        for line in self._lines(data):
            self._failed = self._failed or not self._fits(line)
            if not self._failed:
                self._take(line, events)
        self._failed = self._failed or not self._fits(self._line)
        return events, self._failed and not events, None if self._failed else bool(self._line or self._data)

    def _lines(self, data: bytes) -> list[bytes]:
        lines: list[bytes] = []
        for byte in re.findall(rb"(?s).", data):
            if byte == b"\n" and self._after_cr:
                self._after_cr = False
                continue
            self._after_cr = byte == b"\r"
            if byte in b"\r\n":
                lines.append(self._line)
                self._line = b""
            else:
                self._line += byte
        return lines

    def _fits(self, line: bytes) -> bool:
        return sum(len(value) + 1 for value in self._data) + len(line) <= self._max_event

    def _take(self, line: bytes, events: list[SseEvent]) -> None:
        if self._first:
            line = line.removeprefix(b"\xef\xbb\xbf")
        self._first = False
        if not line:
            if self._data:
                texts = (self._name, b"\n".join(self._data), self._id)
                events.append(SseEvent(*(text.decode("utf-8", "replace") for text in texts)))
            self._data, self._name = [], b""
            return
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value)
        elif field == b"event":
            self._name = value
        elif field == b"id" and b"\0" not in value:
            self._id = value


def observed(parser: SseParser, data: bytes) -> Step:
    events: list[SseEvent] = []
    raised = False
    try:
        events = parser.receive(data)
    except SseTooLarge:
        raised = True
    try:
        return events, raised, parser.end()
    except SseTooLarge:
        return events, raised, None


END = st.sampled_from([b"\n", b"\n", b"\n", b"\r\n", b"\r\n", b"\r"])
TEXT = st.sampled_from([b"", b" ", b"x", b'{"type":"d"}', b"data: x", "é€😀".encode(), b"\xe2\x82", b"\0"]) | st.binary(
    max_size=8
)
USUAL = st.tuples(st.just(b"event: "), TEXT, END, st.just(b"data: "), TEXT, END, END).map(b"".join)
NAMELESS = st.tuples(st.just(b"data: "), TEXT, END, END).map(b"".join)
FIELD = st.sampled_from(
    [b"data:", b"data: ", b"data", b"event:", b"event: ", b"event", b"id: ", b"id", b": ", b"retry: "]
)
ODD = st.tuples(FIELD, TEXT, END).map(b"".join) | END
STREAM = st.tuples(
    st.sampled_from([b"", b"", b"\xef\xbb\xbf"]),
    st.lists(USUAL | USUAL | NAMELESS | ODD, max_size=25).map(b"".join),
    st.sampled_from([b"", b"data: rest", b"event: rest"]),
).map(b"".join)


@st.composite
def pieces(draw: st.DrawFn) -> list[bytes]:
    stream = draw(STREAM)
    places = sorted(draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    return [stream[start:end] for start, end in zip([0, *places], [*places, len(stream)], strict=True)]


@given(pieces(), st.integers(1, 60) | st.just(1 << 20))
def test_each_piece_gives_what_it_gives_line_by_line(parts: list[bytes], limit: int) -> None:
    parser, plain = SseParser(max_event=limit), LineByLine(limit)
    for part in [*parts, b""]:
        assert observed(parser, part) == plain.receive(part)


@given(st.lists(USUAL, min_size=1, max_size=20), st.integers(1, 60) | st.just(1 << 20))
def test_an_event_at_a_time(events: list[bytes], limit: int) -> None:
    parser, plain = SseParser(max_event=limit), LineByLine(limit)
    for event in [b"\n", *events]:
        assert observed(parser, event) == plain.receive(event)


def test_a_name_of_before_stays_when_the_next_lines_have_none() -> None:
    parser = SseParser()
    parser.receive(b": a comment\n\n")
    assert parser.receive(b"event: a\nevent: b\ndata: 1\n\n") == [SseEvent("b", "1")]
    assert parser.receive(b"event: a\nid: 7\ndata: 1\n\n") == [SseEvent("a", "1", "7")]
    assert parser.receive(b"event: a\nevent: \ndata: 1\n\ndata: 2\n\n") == [
        SseEvent("", "1", "7"),
        SseEvent("", "2", "7"),
    ]


def test_a_long_line_in_small_pieces_is_copied_once() -> None:
    """A copy for each piece would take minutes."""
    parser = SseParser()
    assert parser.receive(b"event: e\ndata: ") == []
    for _ in range(200_000):
        assert parser.receive(b"x" * 64) == []
    (event,) = parser.receive(b"\n\n")
    assert event.data == "x" * (64 * 200_000)
