"""Standard output and standard error of a program that people and scripts use.

Owns what happens when they do not work: closed, full, gone, or without the letters that are to be written. A program
then ends with one line, if there is anywhere to write it, and never with a traceback.
"""

from __future__ import annotations

import contextlib
import io
import os
import select
import sys
from collections.abc import Callable
from typing import Final, TextIO

from treadle.errors import TreadleError

# A pipe that says that it is ready takes this much at once.
_PIECE: Final = select.PIPE_BUF
# How soon it is noticed that nobody wants the rest.
_LOOK_UP_MS: Final = 100


class OutputFailed(TreadleError):
    """What was to be shown cannot be written. The text says why."""


def prepare() -> None:
    """At the start of the program. What a stream's encoding does not have is written as numbers, and a stream that is
    closed gets a place to be: else the next file that is opened takes its number, and what is printed goes there."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def write(stream: TextIO | None, text: str) -> None:
    """Write and flush. Raises `OutputFailed`, once: what is written afterwards goes nowhere."""
    if stream is None:
        raise OutputFailed("standard output is closed")
    name = "standard error" if stream is sys.stderr else "standard output"
    try:
        stream.write(text)
        stream.flush()
    except BrokenPipeError:
        _give_up(stream)
        raise OutputFailed(f"whoever read {name} has closed it") from None
    except (OSError, ValueError) as error:
        _give_up(stream)
        reason = getattr(error, "strerror", None) or error
        raise OutputFailed(f"{name} cannot be written: {reason}") from None


def write_bytes(data: bytes, unwanted: Callable[[], bool]) -> None:
    """Write to standard output. Raises `OutputFailed`. A reader who does not read is waited for, until `unwanted` says
    that the rest need not be written; Python's signal handlers run meanwhile."""
    room = select.poll()
    room.register(1, select.POLLOUT)
    rest = memoryview(data)
    try:
        while rest:
            if room.poll(_LOOK_UP_MS):
                with contextlib.suppress(BlockingIOError):  # somebody has made it so
                    rest = rest[os.write(1, rest[:_PIECE]) :]
            elif unwanted():
                return
    except OSError as error:
        if sys.stdout is not None:
            _give_up(sys.stdout)
        if isinstance(error, BrokenPipeError):
            raise OutputFailed("whoever read standard output has closed it") from None
        raise OutputFailed(f"standard output cannot be written: {error.strerror}") from None


def _give_up(stream: TextIO) -> None:
    """Throw away what is left in the buffer; else the interpreter would try, and complain, when it ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def tell(text: str) -> None:
    """A line on standard output, unless that is closed: then nobody wants it. Raises `OutputFailed`."""
    if sys.stdout is not None:
        write(sys.stdout, f"{text}\n")


def say(text: str) -> None:
    """One line on standard error, if that is possible."""
    with contextlib.suppress(OutputFailed):
        if sys.stderr is not None:
            write(sys.stderr, f"{text}\n")


def finish(code: int) -> int:
    """Before the program ends: the exit code, which is 1 when what was printed did not get out."""
    try:
        if sys.stdout is not None:
            write(sys.stdout, "")  # what is still in its buffer
    except OutputFailed as error:
        say(f"treadle: {error}")
        return code or 1
    return code
