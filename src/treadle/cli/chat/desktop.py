"""The desktop of the person at the terminal: `copy` fills the clipboard, `Attention` rings when somebody is wanted.

Both go through the terminal, which may be on another machine: OSC 52 and OSC 9 are sequences that it understands or
passes over. What is sent was made harmless: base64, or one printable line.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

from pybase64 import b64encode

from treadle.config.file_settings import TerminalSettings
from treadle.pages.figures import plural
from treadle.pages.safe_text import printable_line

# Terminals take less than 100 kB.
_MAX_OSC_52: Final = 74_000
_COPY_S: Final = 3.0
# What fills the clipboard, and the variable without which it cannot.
_PROGRAMS: Final = {
    "WAYLAND_DISPLAY": (("wl-copy",),),
    "DISPLAY": (("xclip", "-selection", "clipboard"), ("xsel", "--clipboard", "--input")),
    "TMUX": (("tmux", "load-buffer", "-w", "-"),),
}
# Whoever has pressed no key for so long may have gone to do something else.
QUIET_S: Final = 10.0
_MAX_MESSAGE: Final = 200
# Terminals that show OSC 9 as a notification, by what they call themselves; to others, and in tmux, the bell goes.
_SHOW_OSC_9: Final = ("ghostty", "iterm", "kitty", "warp", "wezterm")

FOCUS_REPORTS: Final = "\x1b[?1004h"
NO_FOCUS_REPORTS: Final = "\x1b[?1004l"


async def copy(text: str, send: Callable[[str], None], environ: Mapping[str, str]) -> str:
    """Put a text into the clipboard; gives what was done, in words. `send` writes to the terminal."""
    size = plural(len(text), "character")
    data = text.encode()
    for variable, programs in _PROGRAMS.items():
        for words in programs:
            if environ.get(variable) and shutil.which(words[0]) and await _fed(words, data):
                return f"copied {size} to the clipboard with {words[0]}"
    if len(data) > _MAX_OSC_52:
        return f"not copied: {size} are more than a terminal takes; /export writes the thread to a file"
    send(f"\x1b]52;c;{b64encode(data).decode()}\x07")
    return f"sent {size} to the clipboard of the terminal (OSC 52); some terminals do not take it, or ask you first"


async def _fed(words: tuple[str, ...], data: bytes) -> bool:
    """Whether a program has taken the data."""
    nothing = asyncio.subprocess.DEVNULL
    try:
        program = await asyncio.create_subprocess_exec(
            *words, stdin=asyncio.subprocess.PIPE, stdout=nothing, stderr=nothing
        )
    except OSError:
        return False
    try:
        async with asyncio.timeout(_COPY_S):
            await program.communicate(data)
        return program.returncode == 0
    except TimeoutError:
        return False
    finally:
        if program.returncode is None:
            with suppress(ProcessLookupError):
                program.kill()
            await program.wait()


class Attention:
    """Rings, or sends a notification, when something happens that somebody waits for, and who seems to be away: the
    terminal has lost the focus or cannot tell, and no key was pressed for a while."""

    def __init__(
        self, settings: TerminalSettings, send: Callable[[str], None], environ: Mapping[str, str] = os.environ
    ) -> None:
        self._settings = settings
        self._send = send
        name = f"{environ.get('TERM_PROGRAM', '')} {environ.get('TERM', '')}".casefold()
        shows = not environ.get("TMUX") and any(each in name for each in _SHOW_OSC_9)
        method = settings.notification_method
        self._osc_9 = shows if method == "auto" else method == "osc9"
        self._focused: bool | None = None  # None: the terminal has not told
        self._last_key = time.monotonic()

    def key_pressed(self) -> None:
        self._last_key = time.monotonic()

    def focus_changed(self, focused: bool) -> None:
        self._focused = focused

    def wanted(self, kind: str, text: str) -> None:
        """Notify the person of an event: `agent-turn-complete` or `approval-requested`, as the settings call it."""
        kinds = self._settings.notifications
        if kinds is False or (kinds is not True and kind not in kinds):
            return
        is_there = self._focused or time.monotonic() - self._last_key < QUIET_S
        if is_there and self._settings.notification_condition != "always":
            return
        line = printable_line(f"treadle: {' '.join(text.split())}")[:_MAX_MESSAGE]
        self._send(f"\x1b]9;{line}\x07" if self._osc_9 else "\x07")
