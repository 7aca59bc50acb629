"""`Terminal`: a program in a terminal of its own, and what a person would see there, with its colours.

Owns the pseudo-terminal and the emulator (`pyte`). Knows nothing of pictures.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyte
from pyte.screens import Char

# Where the cursor is: asked by what reads keys, which waits for the answer.
_QUESTION: Final = b"\x1b[6n"
# Titles, links and keyboard modes: nothing that is drawn, and pyte takes some of it for text.
_UNSEEN: Final = re.compile(
    rb"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b\[[<>=][\d;:]*[ -/]*[@-~]|\x1b\[\?[\d;]*\$?[a-gi-km-z]"
)
DEADLINE_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Cell:
    """One character. Colours are names of the sixteen, six hexadecimal digits, or `default`."""

    text: str
    foreground: str = "default"
    background: str = "default"
    bold: bool = False
    dim: bool = False
    italic: bool = False
    underline: bool = False


Row = tuple[Cell, ...]


class Terminal:
    """A context: leaving it ends the program."""

    def __init__(
        self, command: Sequence[str], *, columns: int, rows: int, cwd: Path, environment: Mapping[str, str]
    ) -> None:
        self._columns, self._rows = columns, rows
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        try:
            # The terminal is the controlling one, so that Ctrl-C reaches the program.
            self._child = subprocess.Popen(
                ["setsid", "--ctty", "--wait", *command],
                stdin=slave,
                stdout=slave,
                stderr=slave,
                cwd=cwd,
                env=dict(environment),
            )
        finally:
            os.close(slave)
        self._seen = b""

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *unused: object) -> None:
        # It ends as if the window were closed; what does not is ended.
        os.close(self._master)
        try:
            self._child.wait(10)
        except subprocess.TimeoutExpired:
            self._child.send_signal(signal.SIGKILL)
            self._child.wait()

    def type(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def wait_for(self, pattern: str, *, quiet: float = 0.0) -> None:
        """Until this is on the screen and, if wanted, nothing has been drawn for a while."""
        seen = re.compile(pattern, re.DOTALL)
        self._read(lambda: seen.search(self.text) is not None, f"{pattern!r} on the screen")
        if quiet:
            self._settle(quiet)

    def wait_for_end(self) -> None:
        self._read(lambda: False, "the end of the program", ends=True)
        code = self._child.wait(DEADLINE_S)
        if code:
            raise RuntimeError(f"the program ended with {code}:\n{self.text}")

    @property
    def text(self) -> str:
        return "\n".join("".join(cell.text for cell in row).rstrip() for row in self.screen())

    def screen(self) -> list[Row]:
        """The rows as far as something has been drawn."""
        screen = self._drawn(self._seen)
        rows = [tuple(_cell(screen.buffer[y][x]) for x in range(self._columns)) for y in range(self._rows)]
        while rows and not "".join(cell.text for cell in rows[-1]).strip():
            rows.pop()
        return rows

    def _drawn(self, data: bytes) -> _DimScreen:
        screen = _DimScreen(self._columns, self._rows)
        pyte.ByteStream(screen).feed(_UNSEEN.sub(b"", data))
        return screen

    def _read(self, enough: Callable[[], bool], what: str, *, ends: bool = False) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not enough():
            if time.monotonic() > deadline:
                raise RuntimeError(f"waited in vain for {what}:\n{self.text}")
            if not self._take(0.2):
                if ends:
                    return
                raise RuntimeError(f"the program ended before {what}:\n{self.text}")

    def _settle(self, quiet: float) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline and select.select([self._master], [], [], quiet)[0] and self._take(0):
            pass

    def _take(self, seconds: float) -> bool:
        """What has come, if anything has; false when there will be nothing more."""
        if not select.select([self._master], [], [], seconds)[0]:
            return True
        try:
            data = os.read(self._master, 65536)
        except OSError:  # how Linux says that the other end is closed
            return False
        for _ in range(data.count(_QUESTION)):
            cursor = self._drawn(self._seen + data).cursor
            os.write(self._master, f"\x1b[{cursor.y + 1};{cursor.x + 1}R".encode())
        self._seen += data
        return bool(data)


class _DimScreen(pyte.Screen):
    """pyte knows no faint text; it has a blinking one, which nobody uses."""

    def select_graphic_rendition(self, *attrs: int, **kwargs: Any) -> None:
        given, wanted = list(attrs), []
        while given:
            code = given.pop(0)
            if code in (38, 48):
                size = 4 if given[:1] == [2] else 2
                wanted += [code, *given[:size]]
                del given[:size]
            else:
                wanted += {2: [5], 22: [22, 25]}.get(code, [code])
        super().select_graphic_rendition(*wanted, **kwargs)


def _cell(char: Char) -> Cell:
    front, back = (char.bg, char.fg) if char.reverse else (char.fg, char.bg)
    if char.reverse:
        front, back = ("black" if front == "default" else front), ("white" if back == "default" else back)
    return Cell(
        text=char.data or " ",
        foreground=front,
        background=back,
        bold=char.bold,
        dim=char.blink,
        italic=char.italics,
        underline=char.underscore,
    )
