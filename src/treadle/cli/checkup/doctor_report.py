"""Shows the findings of `treadle doctor` as they come in: blocks of lines in a fixed order, each
once it is complete.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Protocol, TextIO

from treadle.cli.checkup.check import MARKS, Check
from treadle.cli.live_area import LiveArea, spinner
from treadle.cli.run.engine_table import STYLES
from treadle.cli.run.run_text import took
from treadle.cli.visible import visible_line
from treadle.runners.progress import elapsed

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

_INDENT: Final = "      "


class DoctorView(Protocol):
    """Shows the progress; used in a `with` block."""

    def __enter__(self) -> DoctorView: ...
    def __exit__(self, *_: object) -> None: ...

    def began(self, subject: str) -> None:
        """It is being looked at."""

    def told(self, subject: str, check: Check) -> None:
        """Something was found."""

    def ended(self, subject: str) -> None:
        """All was found."""

    def summary(self, text: str, seconds: float) -> None:
        """All of them were looked at."""


def check_lines(check: Check) -> list[str]:
    """A check as plain lines; the first one has the mark."""
    lines = [f"  {MARKS[check.verdict]} {visible_line(check.what)}{took(check.seconds or 0)}"]
    lines += [f"{_INDENT}| {visible_line(line)}" for line in check.detail]
    if check.advice:
        lines.append(f"{_INDENT}{visible_line(check.advice)}")
    return lines


class _Blocks:
    """Which blocks can be shown: those that are complete and preceded only by shown ones."""

    def __init__(self, subjects: Sequence[str]) -> None:
        self._waiting = list(subjects)
        self._complete: set[str] = set()
        self.checks: dict[str, list[Check]] = {subject: [] for subject in subjects}

    def ended(self, subject: str) -> list[str]:
        self._complete.add(subject)
        ready: list[str] = []
        while self._waiting and self._waiting[0] in self._complete:
            ready.append(self._waiting.pop(0))
        return ready


class PlainReport:
    """For pipes."""

    def __init__(self, subjects: Sequence[str], write: Callable[[str], None]) -> None:
        self._blocks = _Blocks(subjects)
        self._write = write

    def __enter__(self) -> PlainReport:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def began(self, subject: str) -> None:
        pass

    def told(self, subject: str, check: Check) -> None:
        self._blocks.checks[subject].append(check)

    def ended(self, subject: str) -> None:
        for ready in self._blocks.ended(subject):
            lines = [line for check in self._blocks.checks[ready] for line in check_lines(check)]
            self._write("".join(f"{line}\n" for line in [ready, *lines]))

    def summary(self, text: str, seconds: float) -> None:
        self._write(f"{text}{took(seconds)}\n")


class LiveReport:
    """For terminals: checks still in progress are drawn below, with the elapsed time."""

    def __init__(self, subjects: Sequence[str], stream: TextIO) -> None:
        self._blocks = _Blocks(subjects)
        self._stream = stream
        self._since: dict[str, float] = {}
        self._area: LiveArea | None = None

    def __enter__(self) -> LiveReport:
        self._area = LiveArea(self._stream, self._draw)
        return self

    def __exit__(self, *_: object) -> None:
        if self._area is not None:
            self._area.close()

    def began(self, subject: str) -> None:
        self._since[subject] = time.monotonic()

    def told(self, subject: str, check: Check) -> None:
        self._blocks.checks[subject].append(check)

    def ended(self, subject: str) -> None:
        from rich.text import Text  # rich takes 60 ms: loaded when something is drawn

        assert self._area is not None
        self._since.pop(subject, None)
        for ready in self._blocks.ended(subject):
            checks = self._blocks.checks[ready]
            self._area.print(Text(ready, style="bold"), *(line for check in checks for line in styled_check(check)))

    def summary(self, text: str, seconds: float) -> None:
        from rich.text import Text  # rich takes 60 ms: loaded when something is drawn

        assert self._area is not None
        self._area.print(Text(f"{text}{took(seconds)}", style="bold"))

    def _draw(self, width: int, height: int) -> list[Text]:
        from rich.text import Text  # rich takes 60 ms: loaded when something is drawn

        now = time.monotonic()
        return [
            Text(f"{spinner(now)} {name} · {elapsed(now - since)}", style="dim") for name, since in self._since.items()
        ]


def styled_check(check: Check) -> list[RenderableType]:
    """The same for a terminal: what is wrapped stays below what it belongs to."""
    # rich takes 60 ms: loaded when something is drawn
    from rich.text import Text

    from treadle.cli.turn.turn_blocks import Hanging

    mark = MARKS[check.verdict]
    first, *rest = check_lines(check)
    front = Text(first[:4])
    front.stylize(STYLES[mark], 2, 3)
    style = "yellow" if check.verdict in ("failed", "warning") else "dim"
    said = Hanging(front, Text(first[4:], style="dim" if check.verdict == "skipped" else ""))
    return [said, *(Hanging(Text(_INDENT), Text(more.removeprefix(_INDENT), style=style)) for more in rest)]
