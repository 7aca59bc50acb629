"""A run on a terminal: finished actions as lines above, running ones drawn below with the elapsed time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TextIO

from treadle.cli.live_area import LiveArea, spinner
from treadle.cli.run.run_text import DONE, FAILED, NOTE, RUNNING, UNFINISHED, WARNING, mark, session, title, took
from treadle.cli.visible import visible, visible_line
from treadle.runners.progress import Progress, Step, elapsed
from treadle.runners.run_events import ActionEvent, CompletedEvent, Event, StartedEvent

if TYPE_CHECKING:
    from rich.text import Text

# Of what runs and of the text that is being written: so many lines at most, and on a small terminal fewer.
RUNNING_LINES: Final = 8
TEXT_LINES: Final = 6
_STYLES: Final = {DONE: "green", FAILED: "red", WARNING: "yellow", RUNNING: "cyan", NOTE: "dim", UNFINISHED: "dim"}


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
        self._progress = Progress(self._began)
        self._since: dict[str, float] = {}  # when each of the running steps began
        self._told = 0  # how long the text was when the last step began: that part was said on the way to it
        self.note = ""

    def take(self, event: Event, width: int) -> list[Text]:
        """What happened; the lines that stay."""
        self._progress.add(event)
        match event:
            case StartedEvent():
                self._name = session(event)
            case ActionEvent() if event.action.kind != "turn":
                return self._action(event, width)
            case CompletedEvent():
                steps = [step for step in self._running() if step.kind != "note"][-RUNNING_LINES:]
                return [_line(UNFINISHED, step.title, " · had not ended", width) for step in steps]
        return []

    def lines(self, width: int, height: int) -> list[Text]:
        """What is drawn now."""
        from rich.text import Text  # rich takes 60 ms: loaded when something is drawn

        now = self._clock()
        seen = self._progress.snapshot()
        room = max(1, height - 3)
        lines = self._running_lines(now, width, min(RUNNING_LINES, room))
        lines += _text_lines(seen.text[self._told :], width, min(TEXT_LINES, max(0, room - len(lines))))
        failed = f" ({seen.failed} failed)" if seen.failed else ""
        facts = [self._name, elapsed(now - self._began), *([f"{seen.done} done{failed}"] if seen.done else [])]
        lines.append(Text.assemble((f"{spinner(now)} ", "cyan"), (" · ".join(facts), "dim")))
        if self.note:
            lines.append(Text(self.note, style="yellow"))
        return lines

    def _action(self, event: ActionEvent, width: int) -> list[Text]:
        now = self._clock()
        running = {step.id for step in self._running()}
        since = self._since.get(event.action.id, now)
        self._since = {id: self._since.get(id, now) for id in running}
        if event.phase != "completed":
            self._told = len(self._progress.snapshot().text)
            return []
        return [_line(mark(event), title(event.action), took(now - since), width)]

    def _running(self) -> list[Step]:
        return [step for step in self._progress.snapshot().steps if step.phase != "completed"]

    def _running_lines(self, now: float, width: int, limit: int) -> list[Text]:
        from rich.text import Text  # rich takes 60 ms: loaded when something is drawn

        running = self._running()
        shown = running if len(running) <= limit else running[len(running) - limit + 1 :]
        lines = [_line(RUNNING, step.title, took(now - self._since.get(step.id, now)), width) for step in shown]
        hidden = len(running) - len(shown)
        return [Text(f"… {hidden} more", style="dim"), *lines] if hidden else lines


def _text_lines(text: str, width: int, limit: int) -> list[Text]:
    """The end of what is being written."""
    # Rich takes 60 ms: loaded when something is drawn.
    from rich.cells import chop_cells
    from rich.text import Text

    if limit == 0 or not text.strip():
        return []
    rows = [row for line in visible(text).expandtabs(4).splitlines() for row in chop_cells(line, max(2, width))]
    return [Text(row) for row in rows[-limit:]]


def _line(sign: str, text: str, duration: str, width: int) -> Text:
    """On one line; what is too long loses its end, not the time that it took."""
    from rich.text import Text  # rich takes 60 ms: loaded when something is drawn

    what = Text(visible_line(text), style="dim" if sign in (NOTE, UNFINISHED) else "")
    what.truncate(max(8, width - len(sign) - 1 - len(duration)), overflow="ellipsis")
    return Text.assemble((f"{sign} ", _STYLES[sign]), what, (duration, "dim"), no_wrap=True)
