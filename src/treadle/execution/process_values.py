"""The values of the execution layer: what to start, what happened, what was read, and `Data`, what may be written to a
process or a file.

Structs rather than dataclasses: they are made for every chunk, and defining them costs the start of a server a tenth.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterable, Iterable, Mapping, Sequence
from enum import Enum, StrEnum
from typing import TypeAlias

from msgspec import Struct

from treadle.arguments import wrong_type
from treadle.errors import ArgumentValueError
from treadle.protocol.exec import EnvPolicy, Sandbox, without


class OutputStream(StrEnum):
    """Where a process wrote: `PTY` is its terminal, which has one stream for both."""

    STDOUT = "stdout"
    STDERR = "stderr"
    PTY = "pty"


class WriteStatus(Enum):
    """What became of input for a process."""

    ACCEPTED = "accepted"
    STDIN_CLOSED = "stdinClosed"
    UNKNOWN_PROCESS = "unknownProcess"
    STARTING = "starting"


class ExecParams(Struct, frozen=True, kw_only=True):
    """A process to be started.

    Args:
        process_id: The caller's name for it, which no other process of the environment has.
        argv: The program and its arguments. A program without a slash is looked up in the child's PATH, or in the
            system's default path when there is none.
        cwd: Its working directory, as an absolute path.
        env: The whole environment, unless `env_policy` says what to inherit from the executor: it is laid on top then.
        env_policy: What to inherit from the environment of the executor; nothing without it.
        tty: Whether it gets a pseudo-terminal.
        size: Lines and columns of the terminal. Exec-servers begin with 24 x 80, whatever it is: see `Process.resize`.
        pipe_stdin: Without `tty`: whether its standard input is a pipe to write to, or empty.
        arg0: What the program sees as its own name; else the first of `argv`.
        sandbox: What it may do with files and the network; without it, anything.
    """

    process_id: str
    argv: Sequence[str | os.PathLike[str]]
    cwd: str | os.PathLike[str]
    env: Mapping[str, str] = {}
    env_policy: EnvPolicy | None = None
    tty: bool = False
    size: tuple[int, int] = (24, 80)
    pipe_stdin: bool = False
    arg0: str | None = None
    sandbox: Sandbox | None = None

    def __repr__(self) -> str:
        return without(self, "env")


def argv_of(params: ExecParams) -> tuple[str, ...]:
    """The command line, with paths as plain strings."""
    return tuple([os.fspath(word) for word in params.argv])


class Output(Struct, frozen=True):
    """Bytes that the process wrote."""

    seq: int
    stream: OutputStream
    chunk: bytes


class Exited(Struct, frozen=True):
    """The process itself ended; a child of it may still hold its output open. Death by signal n is 128 + n."""

    seq: int
    exit_code: int
    sandbox_denied: bool = False


class Closed(Struct, frozen=True):
    """Exited, and all output has been read: nothing follows."""

    seq: int


class Failed(Struct, frozen=True):
    """The process was lost: its executor went away. Nothing follows."""

    message: str


class Evicted(Struct, frozen=True):
    """Events `first_seq` to `last_seq` are no longer retained: the reader came too late for them."""

    first_seq: int
    last_seq: int


LogEvent = Output | Exited | Closed
ProcessEvent = LogEvent | Failed | Evicted


class OutputChunk(Struct, frozen=True):
    """A piece of output, and its number among the events of the process."""

    seq: int
    stream: OutputStream
    chunk: bytes


class ReadResponse(Struct, frozen=True):
    """What was there after `after_seq`. `next_seq - 1` is where to go on; `evicted` is what can no longer be had."""

    chunks: tuple[OutputChunk, ...]
    next_seq: int
    exited: bool
    exit_code: int | None
    closed: bool
    failure: str | None = None
    sandbox_denied: bool = False
    evicted: Evicted | None = None
    exited_seq: int | None = None


class WriteResult(Struct, frozen=True):
    """What came of a `write`."""

    status: WriteStatus


class ProcessInfo(Struct, frozen=True):
    """One line of `Environment.processes()`."""

    process_id: str
    argv: tuple[str, ...]
    tty: bool
    next_seq: int
    exited: bool
    exit_code: int | None
    closed: bool


class CompletedRun(Struct, frozen=True):
    """The outcome of `Environment.run`. `output` is both streams as they came."""

    exit_code: int
    output: bytes
    stdout: bytes
    stderr: bytes
    truncated: bool = False

    @property
    def text(self) -> str:
        """The output as text; what is no UTF-8 is replaced."""
        return self.output.decode("utf-8", "replace")


Data: TypeAlias = str | bytes | bytearray | memoryview
"""Text is written as UTF-8."""


def as_bytes(data: Data, what: str) -> bytes:
    """The bytes of the data, which nobody changes any more. Raises `ArgumentError`, which names it as `what`."""
    if type(data) is bytes:
        return data
    if isinstance(data, str):
        try:
            return data.encode()
        except UnicodeEncodeError as error:
            raise ArgumentValueError(what, f"{what} has half a character (a lone surrogate) at {error.start}") from None
    if isinstance(data, bytes | bytearray | memoryview):
        return bytes(data)
    raise wrong_type(what, "text (written as UTF-8) or bytes", data)


def blocks_of(given: AsyncIterable[Data] | Iterable[Data]) -> AsyncIterable[Data] | Iterable[Data]:
    """Blocks to be written: a text or bytes are one block, not many of one character."""
    if isinstance(given, str | bytes | bytearray | memoryview):
        return [given]
    if not isinstance(given, AsyncIterable | Iterable):
        raise wrong_type("blocks", "an iterable of text or bytes", given)
    return given
