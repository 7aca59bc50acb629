"""The commands of a turn on a terminal: each that runs with the end of its output, each that has ended as one block."""

from __future__ import annotations

from collections import deque
from typing import Final

from rich.console import RenderableType
from rich.text import Text

from treadle.cli.run.run_text import DONE, FAILED, RUNNING, UNFINISHED, took
from treadle.cli.turn.command_view import asked_for
from treadle.cli.turn.hints import Hint
from treadle.cli.turn.output_lines import MAX_LINE, OutputLines
from treadle.cli.turn.turn_blocks import SIGN_STYLES, beneath, hint_blocks, left_out, signed
from treadle.cli.visible import visible, visible_line
from treadle.protocol.app.items import CommandExecutionThreadItem

# Of the output of a command that went well, and of one that did not: its last lines say what is wrong.
HEAD: Final = 6
TAIL: Final = 6
FAILED_TAIL: Final = 20
# Of a command of several lines, such as a script.
_SCRIPT: Final = 12
# Of each command that runs.
_LIVE_TAIL: Final = 3


class RunningCommand:
    """A command, and what is kept of its output: the beginning and the end."""

    def __init__(self, item: CommandExecutionThreadItem, now: float) -> None:
        self.item = item
        self._since = now
        self._head: list[str] = []
        self._tail: deque[str] = deque(maxlen=FAILED_TAIL)
        self._lines = OutputLines()

    def output(self, delta: str) -> None:
        self._take(self._lines.add(delta))

    def live(self, now: float, width: int, room: int) -> list[Text]:
        """One line that says what runs and for how long, and the last of what it wrote."""
        time = took(now - self._since)
        title = Text(visible_line(asked_for(self.item)))
        title.truncate(max(8, width - 2 - len(time)), overflow="ellipsis")
        tail = [line for line in (*self._head[-_LIVE_TAIL:], *self._tail, self._lines.rest) if line.strip()]
        shown = tail[-min(_LIVE_TAIL, room - 1) :] if room > 1 else []
        return [
            Text.assemble((f"{RUNNING} ", SIGN_STYLES[RUNNING]), title, (time, "dim")),
            *(Text(f"  │ {visible_line(line[:MAX_LINE])}", "dim") for line in shown),
        ]

    def said(self) -> list[str]:
        """The beginning and the end of what it wrote."""
        return [line[:MAX_LINE] for line in (*self._kept(FAILED_TAIL), self._lines.rest) if line]

    def ended(self, item: CommandExecutionThreadItem, why: str | None, hint: Hint | None) -> list[RenderableType]:
        """`why` it was declined or has failed, if that is known; what its output and its `hint` tell comes with it."""
        self._take(self._lines.end(item.aggregated_output))
        bad = item.exit_code not in (0, None) or item.status in ("failed", "declined")
        output = beneath(self._kept(FAILED_TAIL if bad else TAIL))
        return [_title(item, why, bad), *output, *hint_blocks(hint)]

    def _take(self, lines: list[str]) -> None:
        room = HEAD - len(self._head)
        self._head += lines[:room]
        self._tail += lines[room:]

    def _kept(self, tail: int) -> list[str]:
        last = list(self._tail)[-tail:]
        hidden = self._lines.count - len(self._head) - len(last)
        lines = [*self._head, *([left_out(hidden)] if hidden else []), *last]
        return [line[:MAX_LINE] for line in lines]


def _title(item: CommandExecutionThreadItem, why: str | None, bad: bool) -> RenderableType:
    lines = visible(asked_for(item)).rstrip().split("\n")
    script = lines if len(lines) <= _SCRIPT else [*lines[: _SCRIPT - 1], left_out(len(lines) - _SCRIPT + 1)]
    sign = UNFINISHED if item.status == "inProgress" else FAILED if bad else DONE
    time = "" if item.duration_ms is None else took(item.duration_ms / 1000)
    return signed(
        sign, Text.assemble(("\n".join(script), "bold"), (_outcome(item, why), "red" if bad else "dim"), (time, "dim"))
    )


def _outcome(item: CommandExecutionThreadItem, why: str | None) -> str:
    reason = f": {visible_line(why)}" if why else ""
    if item.status == "inProgress":
        return " · had not ended when the turn did"
    if item.status == "declined":
        return f" · declined, and not run{reason}"
    if item.exit_code is None:
        return f" · {item.status}{reason}" if item.status != "completed" else ""
    return f" · exit {item.exit_code}{reason}" if item.exit_code else ""
