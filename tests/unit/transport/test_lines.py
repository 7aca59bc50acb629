"""Framing by lines."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.transport import LineFramer

MESSAGES = st.lists(st.dictionaries(st.text(max_size=5), st.text(max_size=20), max_size=3), max_size=10)


def _receive(framer: LineFramer, stream: bytes, size: int) -> list[bytes]:
    chunks = [stream[at : at + size] for at in range(0, len(stream), size)]
    return [message for chunk in chunks for message in framer.receive(chunk)]


@given(MESSAGES, st.integers(1, 30))
def test_what_is_written_is_read(values: list[dict[str, str]], size: int) -> None:
    messages = [json.dumps(value).encode() for value in values]
    stream = b"".join(b"".join(LineFramer().message(message)) for message in messages)
    assert stream.count(b"\n") == len(messages)
    assert _receive(LineFramer(), stream, size) == messages


@pytest.mark.parametrize("size", [1, 2, 3, 1000])
def test_both_line_ends_and_blank_lines(size: int) -> None:
    stream = b'{"a":1}\r\n\n\r\n  \t\n {"b":2} \n{"c":3}\n'
    assert _receive(LineFramer(), stream, size) == [b'{"a":1}', b'{"b":2}', b'{"c":3}']


def test_incomplete_line_waits() -> None:
    framer = LineFramer()
    assert framer.receive(b'{"a"') == []
    assert framer.receive(b":1}") == []
    assert framer.receive(b"\n{") == [b'{"a":1}']
    assert not framer.ended


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_limit_holds_however_the_line_comes(size: int) -> None:
    framer = LineFramer(max_line=10)
    assert _receive(framer, b"x" * 10 + b"\nok\n" + b"y" * 11 + b"\nnever\n", size) == [b"x" * 10, b"ok"]
    assert framer.ended
    assert "over the limit of 10 bytes" in framer.end_reason
    assert framer.receive(b"more\n") == []


def test_limit_holds_without_an_end_of_line() -> None:
    framer = LineFramer(max_line=10)
    framer.receive(b"x" * 10)
    assert not framer.ended
    framer.receive(b"x")
    assert framer.ended


def test_long_line_in_small_pieces_is_searched_once() -> None:
    """A search from the start for each piece would take minutes."""
    framer = LineFramer()
    piece = b"x" * 16
    for _ in range(200_000):
        framer.receive(piece)
    assert len(framer.receive(b"\n")[0]) == 16 * 200_000


def test_end_of_input_is_told_once() -> None:
    framer = LineFramer(max_line=3)
    framer.receive_eof()
    assert framer.ended
    assert framer.end_reason == "end of input"
    too_long = LineFramer(max_line=3)
    too_long.receive(b"xxxx")
    too_long.receive_eof()
    assert "limit" in too_long.end_reason


def test_nothing_but_messages_is_written() -> None:
    framer = LineFramer()
    assert framer.ping() == []
    assert framer.close() == []
