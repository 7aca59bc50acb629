"""A run of an engine, as a person sees it: `LiveView` draws it on a terminal, `LineView` writes plain lines, and
`failure_reason`, `stderr_lines` and `advice` say why it failed and what to type next.

An engine reports actions, of which there is one line each, and no items: so there is no translation to blocks here, as
there is for turns of our own (`view_blocks`). Everything that an engine wrote is made `printable` here, the only
module that shows the end of an engine's standard error: without secrets.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING, Any, Final, Protocol, TextIO

from treadle.cli.terminal import Colors, LiveArea, spinner
from treadle.pages.figures import took
from treadle.pages.safe_text import printable, printable_line
from treadle.pages.view_blocks import DONE, FAILED, NOTE, RUNNING, SIGN_STYLES, UNFINISHED, WARNING
from treadle.runners.engine import Ending, UnknownEngine
from treadle.runners.engine_registry import find_engine
from treadle.runners.progress import Progress, Step, elapsed
from treadle.runners.run_events import Action, ActionEvent, CompletedEvent, Event, StartedEvent
from treadle.secrets import redact

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

# Of what runs and of the text that is being written: so many lines at most, and on a small terminal fewer.
RUNNING_LINES: Final = 8
TEXT_LINES: Final = 6
# Running actions that are remembered; an engine that never ends them does not fill the memory.
MAX_RUNNING: Final = 1000
# Of an engine's standard error: the last lines, and so much of each.
TAIL_LINES: Final = 12
MAX_LINE: Final = 300

_LOGIN: Final = re.compile(
    r"\b401\b|unauthori[sz]ed|not (?:logged|signed) in|log ?in\b|authenticat"
    r"|(?:invalid|missing|no|incorrect) api[ _-]?key",
    re.IGNORECASE,
)
_NO_SESSION: Final = re.compile(
    r"no (?:conversation|session|thread|rollout)\b.*found|(?:session|thread|conversation) not found"
    r"|no such (?:session|thread)",
    re.IGNORECASE,
)


class RunView(Protocol):
    """Shows a run. Nothing is shown after `close`."""

    def show(self, event: Event) -> None:
        """Show an event."""

    def note(self, text: str) -> None:
        """Show a note of our own, which no engine wrote."""

    def close(self) -> None:
        """The run is over, or we leave: the terminal is as it was."""


class LineView:
    """A line when an action begins and one when it has ended.

    Args:
        write: Takes a line with its end.
        color: Whether with colours.
        clock: Seconds, from anywhere.
    """

    def __init__(
        self, write: Callable[[str], None], *, color: bool, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._write = write
        self._colors = Colors(color)
        self._clock = clock
        self._began: dict[str, float] = {}
        self._shown: dict[str, str] = {}

    def show(self, event: Event) -> None:
        if isinstance(event, StartedEvent):
            self._write(self._colors.bold(session(event)) + "\n")
        elif isinstance(event, ActionEvent) and event.action.kind != "turn":
            self._action(event)

    def note(self, text: str) -> None:
        self._write(self._colors.dim(text) + "\n")

    def close(self) -> None:
        pass

    def _action(self, event: ActionEvent) -> None:
        id, sign, text = event.action.id, mark(event), title(event.action)
        if event.phase == "completed":
            began = self._began.pop(id, None)
            self._shown.pop(id, None)
            duration = "" if began is None else took(self._clock() - began)
            self._line(sign, f"{text}{duration}")
        elif len(self._began) < MAX_RUNNING or id in self._began:
            self._began.setdefault(id, self._clock())
            if self._shown.get(id) != text:  # an update with nothing new in its title is not worth a line
                self._shown[id] = text
                self._line(sign, text)

    def _line(self, sign: str, text: str) -> None:
        colors = self._colors
        paints = {FAILED: colors.red, WARNING: colors.red, NOTE: colors.dim, RUNNING: colors.dim}
        self._write(f"{paints.get(sign, str)(f'{sign} {text}')}\n")


class LiveView:
    """Shows a run, and the time while nothing happens.

    Args:
        stream: The terminal.
        engine: What runs.
        color: `auto`, `always` or `never`.
    """

    def __init__(self, stream: TextIO, engine: str, *, color: str = "auto") -> None:
        self._renderer = RunRenderer(engine, time.monotonic)
        self._area = LiveArea(stream, self._renderer.lines, color=color)

    def show(self, event: Event) -> None:
        self._area.print(*self._renderer.take(event, self._area.console.width - 1))

    def note(self, text: str) -> None:
        self._renderer.note = text

    def aside(self) -> AbstractContextManager[Console]:
        """The terminal for a question. Raises `OutputFailed` if it is gone."""
        return self._area.aside()

    def close(self) -> None:
        self._area.close()


class RunRenderer:
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
        self._text_before = 0  # how long the text was when the last step began: that part led to the step
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
        limit, running = min(RUNNING_LINES, room), self._running()
        shown = running if len(running) <= limit else running[len(running) - limit + 1 :]
        hidden = len(running) - len(shown)
        lines = [Text(f"… {hidden} more", style="dim")] if hidden else []
        lines += [_line(RUNNING, step.title, took(now - self._since.get(step.id, now)), width) for step in shown]
        lines += _text_lines(seen.text[self._text_before :], width, min(TEXT_LINES, max(0, room - len(lines))))
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
            self._text_before = len(self._progress.snapshot().text)
            return []
        return [_line(mark(event), title(event.action), took(now - since), width)]

    def _running(self) -> list[Step]:
        return [step for step in self._progress.snapshot().steps if step.phase != "completed"]


def _text_lines(text: str, width: int, limit: int) -> list[Text]:
    """The end of what is being written."""
    # Rich takes 60 ms: loaded when something is drawn.
    from rich.cells import chop_cells
    from rich.text import Text

    if limit == 0 or not text.strip():
        return []
    rows = [row for line in printable(text).expandtabs(4).splitlines() for row in chop_cells(line, max(2, width))]
    return [Text(row) for row in rows[-limit:]]


def _line(sign: str, text: str, duration: str, width: int) -> Text:
    """On one line; what is too long loses its end, not the time that it took."""
    from rich.text import Text  # rich takes 60 ms: loaded when something is drawn

    what = Text(printable_line(text), style="dim" if sign in (NOTE, UNFINISHED) else "")
    what.truncate(max(8, width - len(sign) - 1 - len(duration)), overflow="ellipsis")
    return Text.assemble((f"{sign} ", SIGN_STYLES[sign]), what, (duration, "dim"), no_wrap=True)


# --- events as text, one line each ---


def title(action: Action) -> str:
    """The title of an action, on one line; of a command that failed, with its exit code."""
    text = printable_line(action.title) or action.kind
    code = action.detail.get("exit_code")
    return f"{text} (exit {code})" if isinstance(code, int) and code != 0 else text


def mark(event: ActionEvent) -> str:
    """The state of an action as a symbol."""
    kind = event.action.kind
    if kind == "warning" or event.level in ("warning", "error"):
        return WARNING
    if event.phase != "completed":
        return RUNNING
    if event.ok is False:
        return FAILED
    return NOTE if kind in ("note", "telemetry") else DONE


def session(started: StartedEvent) -> str:
    """Which engine runs, and with what."""
    name = printable_line(started.title) if started.title else ""
    return f"{started.engine} · {name}" if name else started.engine


def usage(used: Mapping[str, Any] | None) -> str:
    """`1,200 tokens in (1,000 cached), 34 out · $0.0123`; empty if nothing was reported."""
    if not used:
        return ""
    parts: list[str] = []
    if isinstance(used.get("input_tokens"), int):
        cached = used.get("cached_input_tokens")
        more = f" ({cached:,} cached)" if isinstance(cached, int) and cached else ""
        parts.append(f"{used['input_tokens']:,} tokens in{more}, {used.get('output_tokens') or 0:,} out")
    cost = used.get("cost_usd")
    if isinstance(cost, int | float) and cost:
        parts.append(f"${cost:.4f}")
    if parts and used.get("scope") == "session":
        parts.append("in the whole session")
    return " · ".join(parts)


# --- why a run failed ---


def failure_reason(completed: CompletedEvent, secrets: Iterable[str]) -> str:
    """The reason, as it may be shown and stored."""
    return printable(redact(completed.error or "it did not say why", secrets)).strip()


def stderr_lines(stderr: str, secrets: Iterable[str]) -> list[str]:
    """The last lines of a standard error, as they may be shown."""
    lines = [line.rstrip() for line in printable(redact(stderr, secrets)).splitlines() if line.strip()]
    return [line if len(line) <= MAX_LINE else f"{line[: MAX_LINE - 1]}…" for line in lines[-TAIL_LINES:]]


def advice(completed: CompletedEvent, ending: Ending | None, stderr: str) -> str:
    """What to type next. The errors of engines have no code, so their text is searched."""
    engine, error = completed.engine, completed.error or ""
    limit = None if ending is None else ending.limit
    if limit == "idle":
        return "to wait longer: --idle-timeout SECONDS"
    if limit == "total":
        return "to give it more time: --timeout SECONDS"
    text = f"{error}\n{stderr}"
    if completed.resume is not None and _NO_SESSION.search(text):
        return "to begin a new session, leave the session out"
    if _LOGIN.search(text):
        with suppress(UnknownEngine):
            if log_in := find_engine(engine).log_in:
                return f"it looks as if {engine} is not logged in: {log_in}"
    return f"to try it out offline: treadle doctor {engine}"
