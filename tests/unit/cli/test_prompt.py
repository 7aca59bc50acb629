"""The prompt of `treadle exec`: argument, standard input, or both."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from treadle.cli import PromptError, read_prompt
from treadle.cli.turn_input import MAX_BYTES

Piped = Callable[[bytes], int]


@pytest.fixture
def piped(tmp_path: Path) -> Iterator[Piped]:
    opened: list[int] = []

    def pipe(data: bytes) -> int:
        (tmp_path / "input").write_bytes(data)
        opened.append(os.open(tmp_path / "input", os.O_RDONLY))
        return opened[-1]

    yield pipe
    for descriptor in opened:
        os.close(descriptor)


def test_an_argument_alone(piped: Piped) -> None:
    assert read_prompt("do it", piped(b"")) == "do it"
    assert read_prompt("do it", piped(b" \n")) == "do it"


@pytest.mark.parametrize("argument", ["a\0b", "a\udcffb"])
def test_what_is_no_text_is_refused(piped: Piped, argument: str) -> None:
    with pytest.raises(PromptError, match="the prompt is no text"):
        read_prompt(argument, piped(b""))


def test_a_nul_in_what_is_piped_in_is_refused(piped: Piped) -> None:
    with pytest.raises(PromptError, match="the prompt is no text"):
        read_prompt("look", piped(b"a\0b"))


def test_what_is_piped_in_is_appended(piped: Piped) -> None:
    assert read_prompt("explain", piped(b"line\n")) == "explain\n\n<stdin>\nline\n</stdin>"


@pytest.mark.parametrize("argument", [None, "-"])
def test_standard_input_alone(piped: Piped, argument: str | None) -> None:
    assert read_prompt(argument, piped(b"from a pipe\n")) == "from a pipe\n"


def test_a_pipe_is_read_to_its_end() -> None:
    reader, writer = os.pipe()
    os.write(writer, b"words")
    os.close(writer)
    try:
        assert read_prompt("say", reader).endswith("<stdin>\nwords\n</stdin>")
    finally:
        os.close(reader)


def test_bytes_that_are_no_text(piped: Piped) -> None:
    assert read_prompt(None, piped(b"\xff!")) == "\ufffd!"


@pytest.mark.parametrize(("argument", "data"), [("", b""), ("  ", b""), (None, b""), ("-", b" \n")])
def test_nothing_to_do(piped: Piped, argument: str | None, data: bytes) -> None:
    with pytest.raises(PromptError, match="nothing to do"):
        read_prompt(argument, piped(data))


def test_too_much(piped: Piped) -> None:
    with pytest.raises(PromptError, match="more than"):
        read_prompt("x", piped(b"y" * (MAX_BYTES + 1)))


def test_what_cannot_be_read(tmp_path: Path) -> None:
    directory = os.open(tmp_path, os.O_RDONLY)
    try:
        with pytest.raises(PromptError, match="cannot be read"):
            read_prompt(None, directory)
    finally:
        os.close(directory)


def test_a_device_is_not_waited_for() -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    try:
        assert read_prompt("go", nothing) == "go"
    finally:
        os.close(nothing)
