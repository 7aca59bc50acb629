"""`Keyboard`: keys and lines that a person types at the terminal while a question is open.

It owns the mode of the terminal, and puts it back. It reads nothing between questions: what was typed before a question
was asked is no answer to it, and is thrown away.
"""

from __future__ import annotations

import asyncio
import os
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from treadle.cli.streams import OutputFailed

# A line that is longer is cut by the terminal itself.
_MOST: Final = 4096


class Keyboard:
    def __init__(self, descriptor: int = 0) -> None:
        self._descriptor = descriptor
        self._before: list[Any] | None = None  # the mode to put back
        self._waiter: asyncio.Future[None] | None = None

    def is_ours(self) -> bool:
        """Whether who types is talking to us: a program in the background may not read, and would be stopped."""
        try:
            return os.tcgetpgrp(self._descriptor) == os.getpgrp()
        except OSError:
            return False

    @contextmanager
    def keys(self) -> Iterator[None]:
        """What is typed comes key by key, and is not shown. Raises `OutputFailed` if the terminal is gone."""
        try:
            self._before = termios.tcgetattr(self._descriptor)
            tty.setcbreak(self._descriptor, termios.TCSAFLUSH)
        except termios.error as error:
            raise OutputFailed(f"the terminal is gone: {error.args[-1]}") from None
        try:
            yield
        finally:
            self.restore()

    async def read(self) -> str:
        """What is typed next: a key, or else a line. Empty at the end of input, or when the question is withdrawn."""
        return (await self._read()).decode("utf-8", "replace")

    def withdraw(self) -> None:
        """Who waits for something typed waits no longer."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.cancel()

    def restore(self) -> None:
        """The terminal as it was. May be called again, and by a handler of signals."""
        before, self._before = self._before, None
        if before is not None:
            try:
                termios.tcsetattr(self._descriptor, termios.TCSADRAIN, before)
            except termios.error:  # the terminal is gone
                return

    async def _read(self) -> bytes:
        loop = asyncio.get_running_loop()
        waiter = self._waiter = loop.create_future()
        loop.add_reader(self._descriptor, lambda: None if waiter.done() else waiter.set_result(None))
        try:
            await asyncio.wait([waiter])
        finally:
            loop.remove_reader(self._descriptor)
            self._waiter = None
        if waiter.cancelled():
            return b""
        try:
            return os.read(self._descriptor, _MOST)
        except OSError:  # the terminal is gone
            return b""
