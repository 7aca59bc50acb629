"""`Tui`: the terminal interface of the real codex, driven as a person would: type, press keys, look at the screen.

Owns its process and its terminal. What is waited for is on the screen; nothing here sleeps.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from interop.programs import STOP_SECONDS
from interop.tui.screen import COLUMNS, ROWS, Screen

# A busy machine is no reason to fail.
DEADLINE: Final = 30.0
KEYS: Final = {
    "enter": "\r",
    "escape": "\x1b",
    "down": "\x1b[B",
    "tab": "\t",
    "f2": "\x1bOQ",
    "ctrl-c": "\x03",
    "ctrl-d": "\x04",
    "ctrl-z": "\x1a",
    "ctrl-u": "\x15",
}


class Tui:
    """One run of it, from construction until `close()`."""

    def __init__(
        self,
        command: Sequence[str],
        cwd: Path,
        env: Mapping[str, str],
        *,
        columns: int = COLUMNS,
        rows: int = ROWS,
    ) -> None:
        self._terminal, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", rows, columns, 0, 0))
        self.process = subprocess.Popen(
            ["setsid", "-c", "-w", *command], stdin=theirs, stdout=theirs, stderr=theirs, cwd=cwd, env=env
        )
        os.close(theirs)
        self._screen = Screen(columns, rows)
        self._sent = bytearray()
        self._changed = threading.Condition()  # guards the screen and `_ended`
        self._ended = False
        self._reader = threading.Thread(target=self._read, name="terminal", daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Hang up, as when a window is closed. May be called again."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGHUP)
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._reader.join(STOP_SECONDS)
        if self._terminal >= 0:
            os.close(self._terminal)
        self._terminal = -1

    def type(self, text: str, *, prompt: str = "›") -> None:
        """Write into the composer, and wait until it is there."""
        self._send(text)
        self.wait_for(f"{prompt} {text}")

    def press(self, *keys: str) -> None:
        for key in keys:
            self._send(KEYS.get(key, key))

    def say(self, text: str) -> None:
        """A message or a slash command, sent."""
        self.type(text)
        self.press("enter")

    def choose(self, entry: str, *, key: str = "enter") -> None:
        """Go down a list to an entry, and take it with a key."""
        self.wait_for(entry)
        seen: list[str] = []
        while entry not in (selected := _selected(self.text)):
            assert selected not in seen, f"{entry!r} cannot be reached; the list has {seen}"
            seen.append(selected)
            self.press("down")
            self._wait(lambda text: _selected(text) != seen[-1], "another entry", DEADLINE)
        self.press(key)

    @property
    def text(self) -> str:
        """What the screen shows now."""
        with self._changed:
            return self._screen.text

    @property
    def history(self) -> str:
        """What it shows, and what has been scrolled off before."""
        with self._changed:
            return self._screen.history

    @property
    def sent(self) -> str:
        """All that was sent to the terminal, also what it shows nothing of."""
        with self._changed:
            return self._sent.decode("utf-8", "replace")

    def resize(self, columns: int, rows: int) -> None:
        """As when a person pulls at the window."""
        with self._changed:
            self._screen.resize(columns, rows)
        fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("4H", rows, columns, 0, 0))

    def wait_for(self, *wanted: str, deadline: float = DEADLINE) -> str:
        """The screen when all these texts are on it."""
        return self._wait(lambda text: all(part in text for part in wanted), f"{wanted} on the screen", deadline)

    def wait_for_sequence(self, *wanted: str, deadline: float = DEADLINE) -> str:
        """The screen when all these texts are on it, one after the other."""
        sequence = re.compile(".*".join(map(re.escape, wanted)), re.DOTALL)
        return self._wait(lambda text: sequence.search(text) is not None, f"{wanted} in this order", deadline)

    def wait_until_gone(self, unwanted: str, deadline: float = DEADLINE) -> str:
        return self._wait(lambda text: unwanted not in text, f"a screen without {unwanted!r}", deadline)

    def wait_for_end(self, deadline: float = DEADLINE) -> int:
        """Its exit status."""
        return self.process.wait(deadline)

    def _wait(self, wanted: Callable[[str], bool], named: str, deadline: float) -> str:
        end = time.monotonic() + deadline
        with self._changed:
            while not wanted(text := self._screen.text):
                left = end - time.monotonic()
                why = "the program ended" if self._ended else f"{deadline} s were not enough" if left <= 0 else ""
                if why:
                    raise AssertionError(f"waited for {named}, but {why}; it showed:\n{self._screen.history}")
                self._changed.wait(left)
            return text

    def _send(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._terminal, 65536)
                with self._changed:
                    self._sent += data
                    answer = self._screen.feed(data)
                    self._changed.notify_all()
                os.write(self._terminal, answer)
            except OSError:  # how a terminal ends whose program has gone
                break
        with self._changed:
            self._ended = True
            self._changed.notify_all()


def _selected(text: str) -> str:
    """The entry that the cursor is on; the entries, when lists lie above each other."""
    entries = re.findall(r"› \d+\. .*", text)
    assert entries, f"there is no list on the screen:\n{text}"
    return "\n".join(entries)
