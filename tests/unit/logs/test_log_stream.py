"""Standard error that nobody reads: lines are lost, and no time."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator

import pytest

from treadle.logs import JsonLine, LogStream

MANY = 5_000  # far more than a pipe holds


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


def _say(handler: LogStream, text: str) -> None:
    handler.handle(logging.LogRecord("treadle", logging.INFO, "", 0, text, None, None))


def _read(end: int) -> str:
    os.set_blocking(end, False)
    text = b""
    while True:
        try:
            text += os.read(end, 1 << 20)
        except BlockingIOError:
            return text.decode()


def test_a_pipe_that_is_not_read_loses_whole_lines_and_is_told_how_many(pipe: tuple[int, int]) -> None:
    there, here = pipe
    handler = LogStream(here)
    handler.setFormatter(JsonLine())
    for number in range(MANY):
        _say(handler, f"line {number:050}")
    kept = _messages(_read(there))
    assert kept == [f"line {number:050}" for number in range(len(kept))]
    assert 0 < len(kept) < MANY
    _say(handler, "again")
    _say(handler, "and again")
    text = _read(there)
    assert _messages(text) == ["lines of the log are lost: nobody has read them", "again", "and again"]
    assert json.loads(text.splitlines()[0])["lines"] == MANY - len(kept)


def _messages(text: str) -> list[str]:
    return [json.loads(line)["message"] for line in text.splitlines()]


def test_after_a_line_that_was_cut_the_next_begins_on_its_own(pipe: tuple[int, int]) -> None:
    there, here = pipe
    handler = LogStream(here)
    _say(handler, "x" * (1 << 20))  # more than a pipe holds
    cut = _read(there)
    assert cut == "x" * len(cut)
    for text in ("one", "two"):
        _say(handler, text)
    assert _read(there) == "\none\ntwo\n"


def test_a_long_line_is_written_whole_where_there_is_room(pipe: tuple[int, int]) -> None:
    there, here = pipe
    _say(LogStream(here), "é" * 20_000)
    assert _read(there) == "é" * 20_000 + "\n"


def test_a_pipe_that_was_closed_is_no_error(capfd: pytest.CaptureFixture[str]) -> None:
    there, here = os.pipe()
    os.close(there)
    _say(LogStream(here), "nobody hears it")
    os.close(here)
    assert capfd.readouterr().err == ""
