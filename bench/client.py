"""What the benchmark needs of a client, whichever it is: `raw` and `public` are two."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Final, Protocol
from zlib import crc32

from bench.servers import BenchError

# No single step takes this long on a machine that can be measured at all.
STEP_SECONDS: Final = 300.0
CAT: Final = ("/bin/cat",)


@dataclass(slots=True)
class Heard:
    """The output of a command."""

    size: int = 0
    checksum: int = 0

    def add(self, chunk: bytes) -> None:
        self.size += len(chunk)
        self.checksum = crc32(chunk, self.checksum)


class Client(Protocol):
    """A session with a server."""

    async def run(self, argv: tuple[str, ...], *, tty: bool = False) -> Heard:
        """Run a command to its close, on a terminal if so wished; it must exit with 0."""

    async def start(self, argv: tuple[str, ...]) -> None:
        """Start a command and leave it."""

    async def start_echo(self) -> Callable[[bytes], Awaitable[None]]:
        """Start `cat`; the value sends it bytes and returns when they are back."""


Session = Callable[[str], AbstractAsyncContextManager[Client]]


def check_exit(argv: tuple[str, ...], exit_code: int | None) -> None:
    if exit_code != 0:
        raise BenchError(f"{argv} ended with exit code {exit_code}")
