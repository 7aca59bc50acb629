"""The terminal: text of others made safe for it, colours, rich on top of it, and lines that are redrawn.

asyncio and rich are imported here only when something is drawn. A terminal that is gone raises `OutputFailed`, like any
output; a `LiveArea` stops drawing instead, and the program goes on: nobody is watching any more.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TextIO

from treadle.cli.streams import OutputFailed

if TYPE_CHECKING:
    import asyncio

    from rich.console import Console, RenderableType
    from rich.live import Live
    from rich.text import Text

# --- text of others ---
#
# The output of a command, the words of a model or the name of a file may contain sequences that clear the screen, set
# the title, fill the clipboard or reverse the writing direction. They are shown escaped, never passed to the terminal.

# Colours and font weights, which are simply removed.
_COLOURS: Final = re.compile(r"\x1b\[[0-9;:]*m")
_LINE_END: Final = re.compile(r"\r\n?")
_ESCAPED: Final = (
    *(range(0x09), range(0x0B, 0x20), range(0x7F, 0xA0)),  # control characters but tab and newline
    *(range(0x061C, 0x061D), range(0x200E, 0x2010), range(0x2028, 0x202F), range(0x2066, 0x206A)),  # directions, lines
    *(range(0xD800, 0xE000), range(0xFFF9, 0xFFFC), range(0xE0000, 0xE0080)),  # halves of letters, hidden text
)
_TABLE: Final = {
    code: f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
    for codes in _ESCAPED
    for code in codes
}


def printable(text: str) -> str:
    """The text without anything that a terminal would act upon, except tabs and line ends.

    A carriage return counts as a line end: what it would have overwritten is shown too.
    """
    if text.isascii() and text.isprintable():
        return text
    return _LINE_END.sub("\n", _COLOURS.sub("", text)).translate(_TABLE)


def printable_line(text: str) -> str:
    """The same on one line."""
    return printable(text).replace("\n", "\\n")


def table_lines(rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a table whose cells others wrote."""
    shown = [[printable_line(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    lines = ("  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)) for row in shown)
    return [line.rstrip() for line in lines]


# --- colours and rich ---


class Colors:
    """Text in colours, or as it is when they are off."""

    def __init__(self, on: bool) -> None:
        self._on = on

    def dim(self, text: str) -> str:
        return self._in(text, "2")

    def bold(self, text: str) -> str:
        return self._in(text, "1")

    def red(self, text: str) -> str:
        return self._in(text, "31")

    def green(self, text: str) -> str:
        return self._in(text, "32")

    def cyan(self, text: str) -> str:
        return self._in(text, "36")

    def _in(self, text: str, style: str) -> str:
        return f"\x1b[{style}m{text}\x1b[0m" if self._on and text else text


def wants_color(asked: str, stream: TextIO | None, environ: Mapping[str, str]) -> bool:
    """`asked` is always, never or auto; auto means on terminals, unless the user has opted out."""
    if asked != "auto":
        return asked == "always"
    return stream is not None and stream.isatty() and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"


def is_terminal(stream: TextIO | None) -> bool:
    """Whether drawing works there; a dumb terminal gets plain lines."""
    return stream is not None and stream.isatty() and os.environ.get("TERM", "") not in ("", "dumb", "unknown")


def make_console(stream: TextIO, color: str = "auto") -> Console:
    """rich on a terminal."""
    # rich takes 60 ms: loaded when something is drawn
    from rich.console import Console
    from rich.theme import Theme

    colors = wants_color(color, stream, os.environ)
    # Text of others is shown verbatim: no markup, no emoji codes, no coloured numbers.
    return Console(
        file=stream,
        no_color=not colors,
        highlight=False,
        markup=False,
        emoji=False,
        soft_wrap=False,
        theme=Theme({"markdown.code": "bold cyan"}),  # without the black behind it, which only suits black terminals
    )


@contextmanager
def console(stream: TextIO, color: str = "auto") -> Iterator[Console]:
    """A console for as long as something is shown. Raises `OutputFailed` if the terminal is gone."""
    try:
        yield make_console(stream, color)
    except OSError as error:
        raise OutputFailed(f"the terminal cannot be written: {error.strerror}") from None


# --- lines that are redrawn ---

# Often enough for a spinner, seldom enough to cost nothing.
TICK_S: Final = 0.1
_SPINNER: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


def spinner(now: float) -> str:
    """The frame of the spinner at this moment."""
    return _SPINNER[int(now / TICK_S) % len(_SPINNER)]


class LiveArea:
    """The last lines of a terminal, redrawn as time passes; finished lines are printed above and stay. It owns rich's
    `Live`, the ticks and the cursor, until `close`.

    Args:
        stream: The terminal.
        draw: Gives the lines of this moment, for a terminal of this width and height. They are cut, never wrapped.
        color: `auto`, `always` or `never`.
        on_lost: Called once when the terminal has gone away.
    """

    def __init__(
        self,
        stream: TextIO,
        draw: Callable[[int, int], list[Text]],
        *,
        color: str = "auto",
        on_lost: Callable[[], None] | None = None,
    ) -> None:
        self.console: Console = make_console(stream, color)
        self._draw = draw
        self._on_lost = on_lost
        self._live: Live | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._on = True
        self.go_on()

    def print(self, *lines: RenderableType) -> None:
        """Print above the area, to stay. A text whose overflow is to be ignored is wrapped by the terminal."""

        def show() -> None:
            with self.console:  # at once: what is printed does not stand beside what it replaces
                if self._live is not None:
                    self._live.refresh()
                for line in lines:
                    self.console.print(line, soft_wrap=getattr(line, "overflow", None) == "ignore")

        if lines:
            self._guarded(show)

    def pause(self) -> None:
        """Draw nothing until `go_on`: something else uses the console for a while."""
        if self._timer is not None:
            self._timer.cancel()
        live, self._live = self._live, None
        if live is not None:
            self._guarded(live.stop)

    def go_on(self) -> None:
        """Draw. Each time anew: rich would look for its last lines where something else is now."""
        from rich.live import Live  # rich takes 60 ms: loaded when something is drawn

        if not self._on or self._live is not None:
            return
        self._live = Live(
            get_renderable=self._frame,
            console=self.console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._guarded(self._live.start)
        self._tick()

    def close(self, *lines: RenderableType) -> None:
        """Remove the area, show the cursor again, and print these lines last. May be called again, and by a handler of
        signals."""
        self.pause()
        self.print(*lines)
        self._on = False

    def _tick(self) -> None:
        import asyncio  # loaded when something is drawn: help and completion do without it

        if self._live is not None:
            self._guarded(self._live.refresh)
        if self._on:
            self._timer = asyncio.get_running_loop().call_later(TICK_S, self._tick)

    def _frame(self) -> RenderableType:
        from rich.console import Group  # rich takes 60 ms: loaded when something is drawn

        # The last column stays empty: some terminals wrap when it is written.
        width, height = self.console.width - 1, self.console.height
        lines = self._draw(width, height)[: max(1, height - 1)]
        for line in lines:
            line.no_wrap = True
            line.truncate(width, overflow="ellipsis")
        return Group(*lines)

    def _guarded(self, drawing: Callable[[], None]) -> None:
        if not self._on:
            return
        try:
            drawing()
        except OSError:
            self._on = False
            if self._on_lost is not None:
                self._on_lost()
