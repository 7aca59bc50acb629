"""`LiveArea`: the last lines of a terminal, redrawn as time passes; finished lines are printed above and stay.

It owns rich's `Live`, the ticks and the cursor. If the terminal goes away, drawing stops and the program goes on:
nobody is watching any more. Who wants to know is told.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TextIO

from treadle.cli.terminal import make_console

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live
    from rich.text import Text

# Often enough for a spinner, seldom enough to cost nothing.
TICK_S: Final = 0.1
_SPINNER: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


def spinner(now: float) -> str:
    """The sign of this moment, of something that goes on."""
    return _SPINNER[int(now / TICK_S) % len(_SPINNER)]


class LiveArea:
    """Draws until `close`.

    Args:
        stream: The terminal.
        draw: The lines of now, for a terminal of this width and height. They are cut, never wrapped.
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
        """Above the area, to stay. A text whose overflow is to be ignored is wrapped by the terminal."""

        def show() -> None:
            with self.console:  # at once: what is printed does not stand beside what it replaces
                if self._live is not None:
                    self._live.refresh()
                for line in lines:
                    self.console.print(line, soft_wrap=getattr(line, "overflow", None) == "ignore")

        if lines:
            self._guarded(show)

    def pause(self) -> None:
        """Draw nothing until `go_on`: the console is somebody else's for a while."""
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
        """The area is gone and the cursor is back; these lines come last. May be called again, and by a handler of
        signals."""
        self.pause()
        self.print(*lines)
        self._on = False

    def _tick(self) -> None:
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
