"""A run on a terminal: what is done stays in lines above, what runs is drawn below with the time that it takes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TextIO

from treadle.cli.live_area import SPINNER, TICK_S, LiveArea
from treadle.cli.run_lines import MAX_RUNNING
from treadle.cli.run_words import DONE, FAILED, NOTE, RUNNING, WARNING, elapsed, mark, session, title, took
from treadle.cli.visible import visible
from treadle.runners.events import ActionEvent, Event, StartedEvent, TextDelta

if TYPE_CHECKING:
    from rich.text import Text

# Of what runs and of the text that is being written: so many lines at most, and on a small terminal fewer.
RUNNING_LINES: Final = 8
TEXT_LINES: Final = 6
_MAX_TEXT: Final = 8000
_STYLES: Final = {DONE: "green", FAILED: "red", WARNING: "yellow", RUNNING: "cyan", NOTE: "dim"}


class LiveView:
    """Shows a run, and the time while nothing happens.

    Args:
        stream: The terminal.
        engine: What runs.
        color: `auto`, `always` or `never`.
    """

    def __init__(self, stream: TextIO, engine: str, *, color: str = "auto") -> None:
        self._frame = RunFrame(engine, time.monotonic)
        self._area = LiveArea(stream, self._frame.lines, color=color)

    def show(self, event: Event) -> None:
        self._area.print(*self._frame.take(event, self._area.console.width - 1))

    def note(self, text: str) -> None:
        self._frame.note = text

    def close(self) -> None:
        self._area.close()


class RunFrame:
    """What is on the screen, without a screen: events in, lines out.

    Args:
        engine: What runs.
        clock: Seconds, from anywhere.
    """

    def __init__(self, engine: str, clock: Callable[[], float]) -> None:
        self._name = engine
        self._clock = clock
        self._began = clock()
        self._running: dict[str, tuple[ActionEvent, float]] = {}
        self._done = self._failed = 0
        self._text = ""
        self.note = ""

    def take(self, event: Event, width: int) -> Text | None:
        """What happened; the line that stays, if it leaves one."""
        if isinstance(event, StartedEvent):
            self._name = session(event)
        elif isinstance(event, TextDelta):
            self._text = (self._text + event.text)[-_MAX_TEXT:]
        elif isinstance(event, ActionEvent) and event.action.kind != "turn":
            if event.phase == "completed":
                return self._completed(event, width)
            self._text = ""  # it was said on the way to something
            if event.action.id in self._running or len(self._running) < MAX_RUNNING:
                since = self._running.get(event.action.id, (event, self._clock()))[1]
                self._running[event.action.id] = (event, since)
        return None

    def lines(self, width: int, height: int) -> list[Text]:
        """What is drawn now."""
        from rich.text import Text

        now = self._clock()
        room = max(1, height - 3)
        lines = self._running_lines(now, width, min(RUNNING_LINES, room))
        lines += self._text_lines(width, min(TEXT_LINES, max(0, room - len(lines))))
        sign = SPINNER[int(now / TICK_S) % len(SPINNER)]
        facts = [self._name, elapsed(now - self._began), *self._counts()]
        lines.append(Text.assemble((f"{sign} ", "cyan"), (" · ".join(facts), "dim")))
        if self.note:
            lines.append(Text(self.note, style="yellow"))
        return lines

    def _completed(self, event: ActionEvent, width: int) -> Text:
        sign = mark(event)
        since = self._running.pop(event.action.id, (event, None))[1]
        if sign in (DONE, FAILED):
            self._done += 1
            self._failed += sign == FAILED
        duration = "" if since is None else took(self._clock() - since)
        return _line(sign, title(event.action), duration, width)

    def _counts(self) -> list[str]:
        failed = f" ({self._failed} failed)" if self._failed else ""
        return [f"{self._done} done{failed}"] if self._done else []

    def _running_lines(self, now: float, width: int, limit: int) -> list[Text]:
        from rich.text import Text

        running = list(self._running.values())
        hidden = len(running) - limit
        if hidden > 0:
            running = running[-(limit - 1) :] if limit > 1 else []
            hidden += limit > 0
        lines = [_line(mark(event), title(event.action), took(now - since), width) for event, since in running]
        return [*([Text(f"… {hidden} more", style="dim")] if hidden > 0 else []), *lines]

    def _text_lines(self, width: int, limit: int) -> list[Text]:
        from rich.cells import chop_cells
        from rich.text import Text

        if limit == 0 or not self._text:
            return []
        rows = [
            row for line in visible(self._text).expandtabs(4).splitlines() for row in chop_cells(line, max(2, width))
        ]
        return [Text(row) for row in rows[-limit:]]


def _line(sign: str, text: str, duration: str, width: int) -> Text:
    """On one line; what is too long loses its end, not the time that it took."""
    from rich.text import Text

    what = Text(text, style="dim" if sign == NOTE else "")
    what.truncate(max(8, width - len(sign) - 1 - len(duration)), overflow="ellipsis")
    return Text.assemble((f"{sign} ", _STYLES[sign]), what, (duration, "dim"), no_wrap=True)
