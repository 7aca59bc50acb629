"""The SSE parser, against a reference that sees the whole stream at once."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.http import SseEvent, SseParser, SseTooLarge


def reference(stream: bytes) -> list[SseEvent]:
    """The standard, in the plainest way: decode, split, interpret."""
    text = stream.decode("utf-8", "replace").removeprefix("\ufeff")
    *lines, _unfinished = re.split("\r\n|\r|\n", text)
    events, data, name, last_id = [], None, "", ""
    for line in lines:
        if line == "":
            if data is not None:
                events.append(SseEvent(name, data[:-1], last_id))
            data, name = None, ""
            continue
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            data = (data or "") + value + "\n"
        elif field == "event":
            name = value
        elif field == "id" and "\0" not in value:
            last_id = value
    return events


ENDS = st.sampled_from([b"\n", b"\r", b"\r\n"])
FIELDS = st.sampled_from([b"data:", b"data: ", b"data:  ", b"data", b"event: ", b"id: ", b"retry: ", b": ", b":", b""])
VALUES = st.sampled_from([b"", b"a", b"a:b", b"\0", "é€".encode(), b"\xef\xbb\xbf", b"{}"]) | st.binary(max_size=6)
LINES = st.tuples(FIELDS, VALUES, ENDS).map(b"".join) | ENDS
STREAMS = st.tuples(st.sampled_from([b"", b"\xef\xbb\xbf"]), st.lists(LINES, max_size=30)).map(
    lambda parts: parts[0] + b"".join(parts[1])
)


@st.composite
def cut_streams(draw: st.DrawFn) -> list[bytes]:
    stream = draw(STREAMS)
    places = sorted(draw(st.lists(st.integers(0, len(stream)), max_size=20)))
    return [stream[a:b] for a, b in zip([0, *places], [*places, len(stream)], strict=True)]


@given(cut_streams())
def test_however_cut_it_reads_as_the_standard_says(pieces: list[bytes]) -> None:
    parser = SseParser()
    events = [event for piece in pieces for event in parser.receive(piece)]
    assert events == reference(b"".join(pieces))


@given(STREAMS)
def test_byte_by_byte(stream: bytes) -> None:
    parser = SseParser()
    events = [event for n in range(len(stream)) for event in parser.receive(stream[n : n + 1])]
    assert events == reference(stream)


def test_a_stream_as_servers_send_it() -> None:
    stream = b': hi\n\nevent: x\ndata: {"a":\ndata: 1}\nid: 7\n\ndata\n\nevent: dropped\n\ndata: late'
    parser = SseParser()
    assert parser.receive(stream) == [SseEvent("x", '{"a":\n1}', "7"), SseEvent("", "", "7")]
    assert parser.end()


def test_end_tells_a_whole_stream_from_a_cut_one() -> None:
    parser = SseParser()
    assert not parser.end()
    parser.receive(b"data: 1\n")
    assert parser.end()
    parser.receive(b"\n")
    assert not parser.end()


@pytest.mark.parametrize("stream", [b"data: 123456789", b"data: 12\ndata: 345678\n", b": a long comment", b"x" * 11])
def test_an_event_over_the_limit_is_refused_for_good(stream: bytes) -> None:
    parser = SseParser(max_event=10)
    assert parser.receive(b"data: 1234\n\n") == [SseEvent("", "1234")]
    with pytest.raises(SseTooLarge, match="larger than 10 bytes"):
        parser.receive(stream)
    with pytest.raises(SseTooLarge):
        parser.receive(b"\n\n")
    with pytest.raises(SseTooLarge):
        parser.end()


def test_what_came_before_the_limit_is_delivered() -> None:
    parser = SseParser(max_event=10)
    assert parser.receive(b"data: 1\n\ndata: 123456789\n\ndata: 2\n\n") == [SseEvent("", "1")]
    with pytest.raises(SseTooLarge):
        parser.receive(b"")


@given(cut_streams(), st.integers(1, 30))
def test_the_limit_does_not_depend_on_the_cuts(pieces: list[bytes], limit: int) -> None:
    def read(parts: list[bytes]) -> tuple[list[SseEvent], bool]:
        parser, events = SseParser(max_event=limit), []
        try:
            for part in parts:
                events += parser.receive(part)
            parser.end()
        except SseTooLarge:
            return events, True
        return events, False

    assert read(pieces) == read([b"".join(pieces)])


def test_the_last_id_and_the_pause_before_the_next_try_are_told() -> None:
    parser = SseParser()
    assert (parser.last_id, parser.retry_ms) == ("", None)
    assert parser.receive(b"id: 7\nretry: 250\n\n") == []
    assert (parser.last_id, parser.retry_ms) == ("7", 250)
    parser.receive(b"retry: soon\n\nretry: 99999999999\n\nid: 8\ndata: x\n\n")
    assert (parser.last_id, parser.retry_ms) == ("8", 250)
