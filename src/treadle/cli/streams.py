"""Standard output, standard error and the exit codes of a program for people and scripts.

The module owns what happens when the streams do not work: closed, full, gone, or unable to encode the text. The program
then ends with one line, if there is anywhere to write it, and never with a traceback. A reader that has seen enough
(`| head`) is no error, and no message is written. Servers load this module at their start: it imports nothing heavy.
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

FAILED: Final = 1
"""The command was tried and did not work."""
REFUSED: Final = 2
"""Wrong usage or configuration: nothing was run."""
TIMED_OUT: Final = 124
"""The time limit has passed; the code of the shell's `timeout`."""
INTERRUPTED: Final = 130
"""Ended by Ctrl-C."""
READER_GONE: Final = 141
"""The reader of standard output has closed it, as `| head` does: what a shell shows for SIGPIPE. A code of its own,
since 1 is an answer of some commands."""

# A pipe that polls as writable takes this much without blocking.
_PIECE: Final = getattr(select, "PIPE_BUF", 512)
# How often to check whether the rest is still wanted.
_LOOK_UP_MS: Final = 100


class OutputFailed(TreadleError):
    """Output cannot be written. The message says why."""


class ReaderGone(OutputFailed):
    """The reader of the output has closed it."""


def prepare() -> None:
    """Make the streams usable, at the start of the program. Characters that a stream cannot encode are escaped. A
    closed stream is replaced by /dev/null: otherwise the next file opened would get its number, and output would go
    there."""
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
        _discard_rest(stream)
        raise ReaderGone(f"whoever read {name} has closed it") from None
    except (OSError, ValueError) as error:
        _discard_rest(stream)
        reason = getattr(error, "strerror", None) or error
        raise OutputFailed(f"{name} cannot be written: {reason}") from None


def write_bytes(data: bytes, unwanted: Callable[[], bool]) -> None:
    """Write to standard output. Raises `OutputFailed`. Waits for a slow reader until `unwanted` says that the rest need
    not be written; Python signal handlers run meanwhile."""
    writable = select.poll()
    writable.register(1, select.POLLOUT)
    rest = memoryview(data)
    try:
        while rest:
            if writable.poll(_LOOK_UP_MS):
                with contextlib.suppress(BlockingIOError):  # another process has made it non-blocking
                    rest = rest[os.write(1, rest[:_PIECE]) :]
            elif unwanted():
                return
    except OSError as error:
        if sys.stdout is not None:
            _discard_rest(sys.stdout)
        if isinstance(error, BrokenPipeError):
            raise ReaderGone("whoever read standard output has closed it") from None
        raise OutputFailed(f"standard output cannot be written: {error.strerror}") from None


def _discard_rest(stream: TextIO) -> None:
    """Discard what is left in the buffer; otherwise the interpreter would try to flush it at exit, and complain."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def write_stdout(text: str) -> None:
    """Write a line to standard output, unless that is closed: then nobody wants it. Raises `OutputFailed`."""
    if sys.stdout is not None:
        write(sys.stdout, f"{text}\n")


def write_json(value: object) -> None:
    """Write a value to standard output as JSON, for programs and for people. Raises `OutputFailed`."""
    import msgspec  # servers load this module first

    write(sys.stdout, msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n")


def write_stderr(text: str) -> None:
    """Write a line to standard error, if possible."""
    with contextlib.suppress(OutputFailed):
        if sys.stderr is not None:
            write(sys.stderr, f"{text}\n")


def finish(code: int) -> int:
    """Flush the streams before the program ends; gives the exit code, which is not 0 if that of standard output has
    failed. What standard error cannot take, of a terminal that was closed say, is lost: else Python itself would try to
    flush it, and exit with 120."""
    with contextlib.suppress(OutputFailed):
        if sys.stderr is not None:
            write(sys.stderr, "")
    try:
        if sys.stdout is not None:
            write(sys.stdout, "")  # what is still in its buffer
    except OutputFailed as error:
        return code or failed(error)
    return code


def failed(error: OutputFailed) -> int:
    """The exit code of a program whose output cannot be written, after a line about it on standard error."""
    if isinstance(error, ReaderGone):
        return READER_GONE
    write_stderr(f"treadle: {error}")
    return FAILED
