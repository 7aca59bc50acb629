"""Commands while they run: which output line belongs to which command, and the beginning and end of their output.

It owns how commands are displayed. Events in, lines out; `View` decides where the lines go.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from treadle.cli.terminal import Colors
from treadle.cli.turn.hints import Hint, hint_for
from treadle.cli.turn.output_lines import MAX_LINE, OutputLines
from treadle.cli.visible import visible, visible_line
from treadle.protocol.app.items import CommandExecutionThreadItem

# Of the output of a command: the first lines as they come, the last ones when it has ended, the rest is counted.
HEAD: Final = 30
TAIL: Final = 10


class _Running:
    def __init__(self, number: int, command: str) -> None:
        self.number = number
        self.command = command
        self.named = False  # whether its number was shown with what it is
        self.lines = OutputLines()
        self.shown = 0
        self.tail: deque[str] = deque(maxlen=TAIL)


class Commands:
    """The commands of a turn. Commands that run concurrently have a number in front of their lines."""

    def __init__(self, line: Callable[[str], None], colors: Colors) -> None:
        self._line = line
        self._colors = colors
        self._running: dict[str, _Running] = {}
        self._count = 0
        self._confinement: str | None = None
        self._network = False

    def confined(self, confinement: str | None, *, network: bool) -> None:
        """By what sandbox, to explain what commands stumble over."""
        self._confinement, self._network = confinement, network

    def started(self, item: CommandExecutionThreadItem) -> None:
        self._count += 1
        command = self._running[item.id] = _Running(self._count, visible_line(asked_for(item)))
        for other in self._running.values():
            if len(self._running) > 1 and not other.named and other is not command:
                other.named = True
                self._line(self._colors.dim(f"  [{other.number}] is: {other.command}"))
        command.named = len(self._running) > 1
        self._line(self._colors.bold(f"{self._label(command)}$ {command.command}"))

    def output(self, item_id: str, delta: str) -> None:
        command = self._running.get(item_id)
        if command is None:
            return
        for text in command.lines.add(delta):
            self._take(command, text)

    def ended(self, item: CommandExecutionThreadItem) -> None:
        if item.id not in self._running:  # it was declined before it was begun, or we came late
            self.started(item)
        command = self._running[item.id]
        for text in command.lines.end(item.aggregated_output):
            self._take(command, text)
        hidden = command.lines.count - HEAD - len(command.tail)
        if hidden > 0:
            self._line(self._colors.dim(f"  {self._bar(command)} … {hidden} lines left out …"))
        for text in command.tail:
            self._show(command, text)
        failed = item.exit_code not in (0, None) or item.status in ("failed", "declined")
        outcome = f"  {self._label(command)}{_outcome(item)}"
        self._line(self._colors.red(outcome) if failed else self._colors.dim(outcome))
        for line in hint_lines(self._hint(item)):
            self._line(line)
        del self._running[item.id]
        if not self._running:
            self._line("")

    def _hint(self, item: CommandExecutionThreadItem) -> Hint | None:
        if item.exit_code in (0, None):
            return None
        return hint_for(item.aggregated_output or "", item.cwd, self._confinement, network=self._network)

    def _take(self, command: _Running, text: str) -> None:
        if command.shown < HEAD:
            command.shown += 1
            self._show(command, text)
        else:
            command.tail.append(text)

    def _show(self, command: _Running, text: str) -> None:
        cut = visible(text[:MAX_LINE]) + (f" … {len(text) - MAX_LINE} more" if len(text) > MAX_LINE else "")
        self._line(f"{self._colors.dim(f'  {self._bar(command)} ')}{cut}")

    def _label(self, command: _Running) -> str:
        return f"[{command.number}] " if command.named else ""

    def _bar(self, command: _Running) -> str:
        return f"{command.number}|" if command.named else "|"


def hint_lines(hint: Hint | None) -> list[str]:
    return [] if hint is None else [f"  {word}: {text}" for word, text in hint.lines()]


def asked_for(item: CommandExecutionThreadItem) -> str:
    """The command without the shell around it."""
    commands = [action.command for action in item.command_actions if hasattr(action, "command")]
    return " && ".join(commands) if commands else item.command


def _outcome(item: CommandExecutionThreadItem) -> str:
    if item.status == "inProgress":
        said = "it had not ended when the turn did"
    elif item.exit_code is None:
        said = {"declined": "declined, and not run"}.get(str(item.status), str(item.status))
    else:
        said = f"exit {item.exit_code}"
    return said if item.duration_ms is None else f"{said} · {item.duration_ms / 1000:.1f} s"
