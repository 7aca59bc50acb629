"""Standard output and standard error of a program for people and scripts.

It owns what happens when they do not work: closed, full, gone, or unable to encode the text. The program then ends with
one line, if there is anywhere to write it, and never with a traceback.
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

# A pipe that polls as writable takes this much without blocking.
_PIECE: Final = select.PIPE_BUF
# How often to check whether the rest is still wanted.
_LOOK_UP_MS: Final = 100


class OutputFailed(TreadleError):
    """Output cannot be written. The message says why."""


def prepare() -> None:
    """Called at the start of the program. Characters that a stream cannot encode are escaped. A closed stream is
    replaced by /dev/null: otherwise the next file opened would get its number, and output would go there.
    """
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
    """Write to standard output. Raises `OutputFailed`. Waits for a slow reader until `unwanted` says that the rest need
    not be written; Python signal handlers run meanwhile.
    """
    room = select.poll()
    room.register(1, select.POLLOUT)
    rest = memoryview(data)
    try:
        while rest:
            if room.poll(_LOOK_UP_MS):
                with contextlib.suppress(BlockingIOError):  # another process has made it non-blocking
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
    """Discard what is left in the buffer; otherwise the interpreter would try to flush it at exit, and complain."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def write_stdout(text: str) -> None:
    """Write a line to standard output, unless that is closed: then nobody wants it. Raises `OutputFailed`."""
    if sys.stdout is not None:
        write(sys.stdout, f"{text}\n")


def write_stderr(text: str) -> None:
    """Write a line to standard error, if possible."""
    with contextlib.suppress(OutputFailed):
        if sys.stderr is not None:
            write(sys.stderr, f"{text}\n")


def finish(code: int) -> int:
    """Called before the program ends: the exit code, which is 1 if output could not be written."""
    try:
        if sys.stdout is not None:
            write(sys.stdout, "")  # what is still in its buffer
    except OutputFailed as error:
        write_stderr(f"treadle: {error}")
        return code or 1
    return code
