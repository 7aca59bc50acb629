"""A turn as plain lines, as it happens: plan, commands with their output, changes, answer, usage.

It owns how things look. It knows the events of the protocol, not where they come from. Text from anyone else is made
`visible` before it is shown.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from treadle.cli.terminal import Colors
from treadle.cli.turn.command_view import Commands, hint_lines
from treadle.cli.turn.frame import Frame, confinement
from treadle.cli.turn.hints import patch_hint
from treadle.cli.turn.turn_usage import TurnUsage
from treadle.cli.visible import visible, visible_line
from treadle.protocol.app.items import (
    AgentMessageThreadItem,
    CommandExecutionThreadItem,
    DynamicToolCallThreadItem,
    FileChangeThreadItem,
    ImageViewThreadItem,
    ReasoningThreadItem,
    WebSearchThreadItem,
)
from treadle.protocol.app.turns import Turn

_MARKS: Final = {"completed": "[x]", "inProgress": "[>]", "pending": "[ ]"}
# Of a diff: the first lines and the last ones, the rest is counted.
DIFF_HEAD: Final = 40
DIFF_TAIL: Final = 10


class View:
    """`write` takes text with its line ends. With `holds_answer` the last message is left to the caller. `frame` is
    what is said before and after.
    """

    def __init__(
        self,
        write: Callable[[str], None],
        *,
        color: bool,
        holds_answer: bool = False,
        frame: Frame | None = None,
    ) -> None:
        self._write = write
        self._colors = Colors(color)
        self._commands = Commands(self._line, self._colors)
        self._holds_answer = holds_answer
        self._frame = frame or Frame()
        self._held = ""
        self._begun = False  # an answer is being written, and not shown
        self._in_text = False  # an answer is being written, without a line end so far
        self._usage = TurnUsage()
        self._confinement: str | None = None

    # --- the frame ---

    def started(self, started: Any) -> None:
        self._confinement, network = confinement(started)
        self._commands.confined(self._confinement, network=network)
        self._facts(self._frame.facts(started))
        self._line("")

    def _facts(self, facts: dict[str, str]) -> None:
        for name, fact in facts.items():
            self._line(f"{self._colors.dim(name)}{' ' * (9 - len(name))}{visible_line(fact)}")

    def ended(self, turn: Turn) -> None:
        if turn.status != "completed":
            self._show_held()
        if turn.status == "failed":
            self._line(
                self._colors.red(f"failed: {'it failed' if turn.error is None else visible(turn.error.message)}")
            )
        elif turn.status == "interrupted":
            self._line(self._colors.red("interrupted"))
        self._line(self._colors.dim(self._usage.words(turn.duration_ms)))
        self._facts(self._frame.next_steps(turn.error))

    def close(self) -> None:
        """Nothing is to be put back."""

    def note(self, text: str) -> None:
        self._line(self._colors.dim(visible(text)))

    # --- what happens ---

    def show(self, method: str, params: Any) -> None:
        match method:
            case "item/agentMessage/delta":
                self._text(params.delta)
            case "item/commandExecution/outputDelta":
                self._commands.output(params.item_id, params.delta)
            case "item/started":
                self._item_started(params.item)
            case "item/completed":
                self._item_completed(params.item)
            case "turn/plan/updated":
                self._plan(params)
            case "thread/tokenUsage/updated":
                self._usage.update(params.token_usage)
            case "turn/started":
                self._usage.begin()
            case "error" if params.will_retry:
                self._restart(f"{params.error.message} ({params.error.additional_details})")
            case "warning":
                self._line(self._colors.red(f"warning: {visible(params.message)}"))

    def _item_started(self, item: Any) -> None:
        self._show_held()
        if isinstance(item, CommandExecutionThreadItem):
            self._commands.started(item)

    def _item_completed(self, item: Any) -> None:
        match item:
            case AgentMessageThreadItem() if self._holds_answer:
                self._show_held()
                self._held, self._begun = item.text, False
            case AgentMessageThreadItem():
                self._end_text()
                self._line("")
            case CommandExecutionThreadItem():
                self._commands.ended(item)
            case FileChangeThreadItem():
                self._changes(item)
            case ReasoningThreadItem():
                for text in "\n".join(map(visible, item.summary)).splitlines():
                    self._line(self._colors.dim(text))
            case ImageViewThreadItem():
                self._line(f"looked at {visible_line(item.path)}")
            case WebSearchThreadItem():
                self._line(f"searched the web: {visible_line(item.query)}")
            case DynamicToolCallThreadItem():
                self._line(f"{visible_line(item.tool)}: {item.status}")
            case _ if (call := item.as_tool_call()) is not None:
                self._line(f"{visible_line(call.tool)}: {call.status}")

    def _plan(self, params: Any) -> None:
        self._line(self._colors.cyan("plan"))
        for step in params.plan:
            self._line(f"  {_MARKS.get(step.status, '[ ]')} {visible_line(step.step)}")
        self._line("")

    def _restart(self, reason: str) -> None:
        """The model's stream was cut. What it was saying, it says again; what it had said before stays."""
        cut = self._in_text or self._begun
        self._begun = False
        self._show_held()
        self.note(reason + ("; the answer begins again" if cut else ""))

    # --- changes ---

    def _changes(self, item: FileChangeThreadItem) -> None:
        for change in item.changes:
            title = f"{_verb(str(change.kind.type), item.status)} {visible_line(change.path)}"
            self._line(self._colors.bold(title) if item.status == "completed" else self._colors.red(title))
            lines = visible(change.diff).splitlines()
            if change.kind.type == "add":
                lines = [f"+{line}" for line in lines]
            elif change.kind.type == "delete":
                lines = [f"-{line}" for line in lines]
            self._diff(lines)
        for line in hint_lines(patch_hint(self._confinement) if item.status == "failed" else None):
            self._line(line)
        self._line("")

    def _diff(self, lines: list[str]) -> None:
        hidden = len(lines) - DIFF_HEAD - DIFF_TAIL
        paints = {"+": self._colors.green, "-": self._colors.red, "@": self._colors.cyan}
        for number, line in enumerate(lines):
            if hidden <= 0 or number < DIFF_HEAD or number >= DIFF_HEAD + hidden:
                self._line("  " + paints.get(line[:1], str)(line))
            elif number == DIFF_HEAD:
                self._line(self._colors.dim(f"  … {hidden} lines left out …"))

    # --- writing ---

    def _text(self, delta: str) -> None:
        if self._holds_answer or not delta:
            self._begun = self._begun or bool(delta)
            return
        self._write(visible(delta))
        self._in_text = not delta.endswith("\n")

    def _show_held(self) -> None:
        if self._held:
            held, self._held = self._held, ""
            self._line(visible(held))
            self._line("")

    def _end_text(self) -> None:
        if self._in_text:
            self._in_text = False
            self._write("\n")

    def _line(self, text: str) -> None:
        self._end_text()
        self._write(text + "\n")


def _verb(kind: str, status: str) -> str:
    if status != "completed":
        return f"{status}: {kind}"
    return {"add": "added", "delete": "deleted", "update": "changed"}.get(kind, kind)
