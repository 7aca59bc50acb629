"""`PlainTurn`: a turn as plain lines, as it happens: plan, commands with their output, changes, answer, usage.

For what is no terminal, or a simple one: nothing is redrawn, and rich is not loaded. Notifications in, lines out. Text
of others is made `printable` here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final

from treadle.cli.terminal import Colors
from treadle.cli.turn.output_view import MAX_LINE, Hint, OutputLines, hint_for, patch_hint
from treadle.cli.turn.turn_header import TurnHeader, TurnUsage, confinement
from treadle.pages.safe_text import printable, printable_line
from treadle.pages.view_blocks import (
    ChangeBlock,
    CommandBlock,
    MessageBlock,
    NoteBlock,
    PlanBlock,
    ThoughtBlock,
    ToolBlock,
    connection_text,
    hook_block,
    item_blocks,
    server_block,
    shortened,
)
from treadle.protocol.app.turns import Turn

_MARKS: Final = {"completed": "[x]", "inProgress": "[>]", "pending": "[ ]"}
# Of the output of a command: the first lines as they come, the last ones when it has ended, the rest is counted.
HEAD: Final = 30
TAIL: Final = 10
# Of a diff: the first lines and the last ones, the rest is counted.
DIFF_HEAD: Final = 40
DIFF_TAIL: Final = 10


class PlainTurn:
    """A turn in lines.

    Args:
        write: Takes text with its line ends.
        color: Whether with colours.
        holds_answer: Whether the last message is left to the caller.
        header: The facts before and after the turn.
    """

    def __init__(
        self,
        write: Callable[[str], None],
        *,
        color: bool,
        holds_answer: bool = False,
        header: TurnHeader | None = None,
    ) -> None:
        self._write = write
        self._colors = Colors(color)
        self._commands = _Commands(self._line, self._colors)
        self._holds_answer = holds_answer
        self._header = header or TurnHeader()
        self._held = ""
        self._begun = False  # an answer is being written, and not shown
        self._in_text = False  # an answer is being written, without a line end so far
        self._usage = TurnUsage()

    # --- before and after ---

    def started(self, started: Any) -> None:
        confined = confinement(started.sandbox, started.active_permission_profile)
        self._commands.confinement, self._commands.network = confined
        self._facts(self._header.facts(started))
        self._line("")

    def _facts(self, facts: dict[str, str]) -> None:
        for name, fact in facts.items():
            self._line(f"{self._colors.dim(name)}{' ' * (9 - len(name))}{printable_line(fact)}")

    def ended(self, turn: Turn) -> None:
        if turn.status != "completed":
            self._show_held()
        if turn.status == "failed":
            why = "it failed" if turn.error is None else printable(turn.error.message)
            self._line(self._colors.red(f"failed: {why}"))
        elif turn.status == "interrupted":
            self._line(self._colors.red("interrupted"))
        self._line(self._colors.dim(self._usage.text(turn.duration_ms)))
        self._facts(self._header.next_steps(turn.error))

    def close(self) -> None:
        """Nothing is to be put back."""

    def note(self, text: str) -> None:
        self._line(self._colors.dim(printable(text)))

    # --- what happens ---

    def show(self, method: str, params: Any) -> None:
        match method:
            case "item/agentMessage/delta" if self._holds_answer:
                self._begun = self._begun or bool(params.delta)
            case "item/agentMessage/delta" if params.delta:
                self._write(printable(params.delta))
                self._in_text = not params.delta.endswith("\n")
            case "item/commandExecution/outputDelta":
                self._commands.output(params.item_id, params.delta)
            case "item/started":
                self._show_held()
                for block in item_blocks(params.item):
                    if isinstance(block, CommandBlock):
                        self._commands.started(params.item.id, block)
            case "item/completed":
                self._item_completed(params.item)
            case "turn/plan/updated":
                self._line(self._colors.cyan("plan"))
                for step in params.plan:
                    self._line(f"  {_MARKS.get(step.status, '[ ]')} {printable_line(step.step)}")
                self._line("")
            case "thread/tokenUsage/updated":
                self._usage.update(params.token_usage)
            case "turn/started":
                self._usage.begin()
            case "error" if params.will_retry:
                # The model's stream was cut. What it was writing, it writes again; what came before stays.
                again = "; the answer begins again" if self._in_text or self._begun else ""
                self._begun = False
                self._show_held()
                self.note(f"{params.error.message} ({params.error.additional_details}){again}")
            case "mcpServer/startupStatus/updated":
                if (server := server_block(params)) is not None:
                    self._tool(server)
            case "hook/completed":
                if (hook := hook_block(params)) is not None:
                    self._tool(hook)
            case "thread/environment/disconnected" | "thread/environment/connected":
                self.note(connection_text(method, params.environment_id))
            case "warning":
                self._line(self._colors.red(f"warning: {printable(params.message)}"))

    def _item_completed(self, item: Any) -> None:
        blocks = list(item_blocks(item))
        for block in blocks:
            match block:
                case MessageBlock(by="agent") if self._holds_answer:
                    self._show_held()
                    self._held, self._begun = block.text, False
                case MessageBlock(by="agent"):
                    self._end_text()
                    self._line("")
                case CommandBlock():
                    self._commands.ended(item.id, block)
                case ChangeBlock():
                    title = block.verb if block.made else f"{block.status}: {block.kind}"
                    title += f" {printable_line(block.path)}"
                    self._line(self._colors.bold(title) if block.made else self._colors.red(title))
                    paints = {"+": self._colors.green, "-": self._colors.red, "@": self._colors.cyan}
                    lines = [f"  {paints.get(row[:1], str)(row)}" for row in map(printable, block.lines)]
                    head, hidden, tail = shortened(lines, DIFF_HEAD, DIFF_TAIL)
                    left_out = [self._colors.dim(f"  … {hidden} lines left out …")] if hidden else []
                    for row in [*head, *left_out, *tail]:
                        self._line(row)
                case ToolBlock():
                    self._tool(block)
                case ThoughtBlock():
                    for text in printable(block.text).splitlines():
                        self._line(self._colors.dim(text))
                case PlanBlock():
                    self._line(self._colors.cyan("proposed plan"))
                    self._line(printable(block.text))
                    self._line("")
                case NoteBlock():
                    self.note(block.title)
                    if block.text.strip():
                        self._line(printable(block.text))
        if blocks and isinstance(blocks[-1], ChangeBlock):
            hint = patch_hint(self._commands.confinement) if blocks[-1].status == "failed" else None
            for line in [*_hint_lines(hint), ""]:
                self._line(line)

    def _tool(self, block: ToolBlock) -> None:
        said = printable_line(block.title) + (f": {block.outcome}" if block.outcome else "")
        reason = printable_line(" ".join(block.result.split()))[:MAX_LINE] if block.failed else ""
        self._line(self._colors.red(f"{said}: {reason}" if reason else said) if block.failed else said)

    # --- writing ---

    def _show_held(self) -> None:
        if self._held:
            held, self._held = self._held, ""
            self._line(printable(held))
            self._line("")

    def _end_text(self) -> None:
        if self._in_text:
            self._in_text = False
            self._write("\n")

    def _line(self, text: str) -> None:
        self._end_text()
        self._write(text + "\n")


class _RunningCommand:
    def __init__(self, number: int, command: str) -> None:
        self.number = number
        self.command = command
        self.named = False  # whether its number was shown with what it is
        self.lines = OutputLines()
        self.shown = 0
        self.tail: deque[str] = deque(maxlen=TAIL)

    @property
    def label(self) -> str:
        return f"[{self.number}] " if self.named else ""

    @property
    def bar(self) -> str:
        return f"{self.number}|" if self.named else "|"


class _Commands:
    """The commands of a turn while they run. Those that run concurrently have a number in front of their lines."""

    def __init__(self, line: Callable[[str], None], colors: Colors) -> None:
        self._line = line
        self._colors = colors
        self._running: dict[str, _RunningCommand] = {}
        self._count = 0
        self.confinement: str | None = None
        """The type of the sandbox policy, to explain why a command failed."""
        self.network: bool = False

    def started(self, item_id: str, block: CommandBlock) -> None:
        self._count += 1
        command = self._running[item_id] = _RunningCommand(self._count, printable_line(block.command))
        for other in self._running.values():
            if len(self._running) > 1 and not other.named and other is not command:
                other.named = True
                self._line(self._colors.dim(f"  [{other.number}] is: {other.command}"))
        command.named = len(self._running) > 1
        self._line(self._colors.bold(f"{command.label}$ {command.command}"))

    def output(self, item_id: str, delta: str) -> None:
        command = self._running.get(item_id)
        if command is not None:
            self._take(command, command.lines.add(delta))

    def ended(self, item_id: str, block: CommandBlock) -> None:
        if item_id not in self._running:  # it was declined before it was begun, or we came late
            self.started(item_id, block)
        command = self._running[item_id]
        self._take(command, command.lines.end(block.output))
        hidden = command.lines.count - HEAD - len(command.tail)
        if hidden > 0:
            self._line(self._colors.dim(f"  {command.bar} … {hidden} lines left out …"))
        for text in command.tail:
            self._show(command, text)
        outcome = "it had not ended when the turn did" if block.status == "inProgress" else block.outcome
        if block.duration_ms is not None:
            outcome += f" · {block.duration_ms / 1000:.1f} s"
        self._line((self._colors.red if block.failed else self._colors.dim)(f"  {command.label}{outcome}"))
        if block.exit_code not in (0, None):
            hint = hint_for(block.output, block.cwd, self.confinement, network=self.network)
            for line in _hint_lines(hint):
                self._line(line)
        del self._running[item_id]
        if not self._running:
            self._line("")

    def _take(self, command: _RunningCommand, lines: list[str]) -> None:
        for text in lines:
            if command.shown < HEAD:
                command.shown += 1
                self._show(command, text)
            else:
                command.tail.append(text)

    def _show(self, command: _RunningCommand, text: str) -> None:
        cut = printable(text[:MAX_LINE]) + (f" … {len(text) - MAX_LINE} more" if len(text) > MAX_LINE else "")
        self._line(f"{self._colors.dim(f'  {command.bar} ')}{cut}")


def _hint_lines(hint: Hint | None) -> list[str]:
    return [] if hint is None else [f"  {word}: {text}" for word, text in hint.lines()]
