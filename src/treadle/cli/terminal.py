"""The terminal: tables of texts of others, colours, rich on top of it, and lines that are redrawn.

asyncio and rich are imported here only when something is drawn. A terminal that is gone raises `OutputFailed`, like any
output; a `LiveArea` stops drawing instead, and the program goes on: nobody is watching any more.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TextIO
from urllib.parse import quote

from treadle.cli.streams import OutputFailed
from treadle.pages.safe_text import printable_line

if TYPE_CHECKING:
    import asyncio

    from rich.console import Console, RenderableType
    from rich.live import Live
    from rich.text import Text


def table_lines(rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a table whose cells others wrote."""
    shown = [[printable_line(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    lines = ("  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)) for row in shown)
    return [line.rstrip() for line in lines]


def file_address(path: str) -> str:
    """A file of this machine as terminals can click it (OSC 8). Nothing in it is acted upon: it is ASCII without
    control characters."""
    return f"file://{quote(os.uname().nodename)}{quote(path.encode('utf-8', 'surrogateescape'))}"


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


# rich's own suit black terminals only: code on black, links in blue.
_STYLES: Final = {
    "markdown.code": "bold cyan",
    "markdown.code_block": "cyan",
    "markdown.link": "cyan",
    "markdown.link_url": "underline",
}


def make_console(stream: TextIO, color: str = "auto", *, width: int | None = None) -> Console:
    """rich on a terminal; with a width: on text that goes to one."""
    # rich takes 60 ms: loaded when something is drawn
    from rich.console import Console
    from rich.theme import Theme

    colors = wants_color(color, stream, os.environ)
    # Text of others is shown verbatim: no markup, no emoji codes, no coloured numbers.
    return Console(
        file=stream,
        width=width,
        force_terminal=None if width is None else True,
        # The sixteen colours of the terminal itself: they can be read on its background, be that dark or light.
        color_system="standard" if width is not None or is_terminal(stream) else None,
        no_color=not colors,
        highlight=False,
        markup=False,
        emoji=False,
        soft_wrap=False,
        theme=Theme(_STYLES),
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
        self._held: list[RenderableType] | None = None  # what is printed while something else uses the console
        self.go_on()

    def print(self, *lines: RenderableType) -> None:
        """Print above the area, to stay. A text whose overflow is to be ignored is wrapped by the terminal."""

        def show() -> None:
            with self.console:  # at once: what is printed does not stand beside what it replaces
                if self._live is not None:
                    self._live.refresh()
                for line in lines:
                    self.console.print(line, soft_wrap=getattr(line, "overflow", None) == "ignore")

        if lines and self._held is not None:
            self._held += lines
        elif lines:
            self._guarded(show)

    def pause(self) -> None:
        """Draw nothing until `go_on`: something else uses the console for a while."""
        if self._timer is not None:
            self._timer.cancel()
        live, self._live = self._live, None
        if live is not None:
            self._guarded(live.stop)

    @contextmanager
    def aside(self) -> Iterator[Console]:
        """The console for something else, such as a question. What is printed meanwhile comes afterwards. Raises
        `OutputFailed` if the terminal is gone."""
        self.pause()
        self._held = []
        try:
            yield self.console
        except OSError as error:
            raise OutputFailed(f"the terminal is gone: {error.strerror}") from None
        finally:
            held, self._held = self._held, None
            self.go_on()
            self.print(*held or ())

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
        held, self._held = self._held, None
        self.print(*held or (), *lines)
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
