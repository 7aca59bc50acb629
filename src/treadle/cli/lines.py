"""A turn as plain lines, while it happens: plan, commands with their output, changes, answer, usage.

It owns how things look. It knows the events of the protocol and nothing of where they come from.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, TextIO

from treadle.protocol.app.items import (
    AgentMessageThreadItem,
    CommandExecutionThreadItem,
    FileChangeThreadItem,
    ImageViewThreadItem,
    ReasoningThreadItem,
    WebSearchThreadItem,
)
from treadle.protocol.app.turns import Turn

_MARKS: Final = {"completed": "[x]", "inProgress": "[>]", "pending": "[ ]"}
_DIM, _BOLD, _RED, _GREEN, _CYAN, _END = "\x1b[2m", "\x1b[1m", "\x1b[31m", "\x1b[32m", "\x1b[36m", "\x1b[0m"
# Of a command or a diff; the rest is counted.
SHOWN_LINES: Final = 40


class Lines:
    def __init__(self, out: TextIO, *, color: bool) -> None:
        self._out = out
        self._color = color
        self._in_text = False  # an answer is being written, without a line end so far
        self._shown: dict[str, int] = {}  # lines of a command's output that were shown
        self._usage: Any = None

    # --- the frame ---

    def started(self, started: Any) -> None:
        model = f"{started.model} ({started.model_provider})"
        self._line(f"{self._paint('model', _DIM)}    {model}")
        self._line(f"{self._paint('where', _DIM)}    {started.cwd}")
        self._line(f"{self._paint('sandbox', _DIM)}  {_words(started.sandbox.type)}")
        self._line(f"{self._paint('thread', _DIM)}   {started.thread.id}")
        self._line("")

    def ended(self, turn: Turn) -> None:
        if turn.status == "failed":
            message = "it failed" if turn.error is None else turn.error.message
            self._line(self._paint(f"failed: {message}", _RED))
        elif turn.status == "interrupted":
            self._line(self._paint("interrupted", _RED))
        seconds = (turn.duration_ms or 0) / 1000
        self._line(self._paint(f"{_tokens(self._usage)}{seconds:.1f} s", _DIM))

    def note(self, text: str) -> None:
        self._line(self._paint(text, _DIM))

    # --- what happens ---

    def show(self, method: str, params: Any) -> None:
        match method:
            case "item/agentMessage/delta":
                self._text(params.delta)
            case "item/commandExecution/outputDelta":
                self._output(params.item_id, params.delta)
            case "item/started":
                self._item_started(params.item)
            case "item/completed":
                self._item_completed(params.item)
            case "turn/plan/updated":
                self._plan(params)
            case "thread/tokenUsage/updated":
                self._usage = params.token_usage.total
            case "error" if params.will_retry:
                self.note(f"{params.error.message} ({params.error.additional_details})")
            case "warning":
                self._line(self._paint(f"warning: {params.message}", _RED))

    def _item_started(self, item: Any) -> None:
        if isinstance(item, CommandExecutionThreadItem):
            self._line(self._paint(f"$ {_plain(item)}", _BOLD))
            self._shown[item.id] = 0

    def _item_completed(self, item: Any) -> None:
        match item:
            case AgentMessageThreadItem():
                self._end_text()
                self._line("")
            case CommandExecutionThreadItem():
                self._command_ended(item)
            case FileChangeThreadItem():
                self._changes(item)
            case ReasoningThreadItem():
                for part in item.summary:
                    self._block(part.splitlines(), _DIM)
            case ImageViewThreadItem():
                self._line(f"looked at {item.path}")
            case WebSearchThreadItem():
                self._line(f"searched the web: {item.query}")

    def _plan(self, params: Any) -> None:
        self._line(self._paint("plan", _CYAN))
        for step in params.plan:
            self._line(f"  {_MARKS.get(step.status, '[ ]')} {step.step}")
        self._line("")

    # --- commands ---

    def _output(self, item_id: str, delta: str) -> None:
        for line in delta.splitlines():
            self._shown[item_id] = self._shown.get(item_id, 0) + 1
            if self._shown[item_id] <= SHOWN_LINES:
                self._line(self._paint("  | ", _DIM) + line)

    def _command_ended(self, item: CommandExecutionThreadItem) -> None:
        shown = self._shown.pop(item.id, 0)
        if not shown and item.aggregated_output:
            self._output(item.id, item.aggregated_output)
            shown = self._shown.pop(item.id, 0)
        if shown > SHOWN_LINES:
            self._line(self._paint(f"  | … {shown - SHOWN_LINES} more lines", _DIM))
        if item.status == "inProgress":
            outcome = "still runs in the background"
        elif item.exit_code is None:
            outcome = item.status
        else:
            outcome = f"exit {item.exit_code}"
        failed = item.exit_code not in (0, None) or item.status in ("failed", "declined")
        seconds = "" if item.duration_ms is None else f" · {item.duration_ms / 1000:.1f} s"
        self._line("  " + self._paint(f"{outcome}{seconds}", _RED if failed else _DIM))
        self._line("")

    # --- changes ---

    def _changes(self, item: FileChangeThreadItem) -> None:
        for change in item.changes:
            self._line(self._paint(f"{_verb(str(change.kind.type), item.status)} {change.path}", _BOLD))
            lines = change.diff.splitlines()
            if change.kind.type == "add":
                lines = [f"+{line}" for line in lines]
            elif change.kind.type == "delete":
                lines = [f"-{line}" for line in lines]
            self._diff(lines)
        self._line("")

    def _diff(self, lines: list[str]) -> None:
        for line in lines[:SHOWN_LINES]:
            style = {"+": _GREEN, "-": _RED, "@": _CYAN}.get(line[:1], "")
            self._line("  " + (self._paint(line, style) if style else line))
        if len(lines) > SHOWN_LINES:
            self._line(self._paint(f"  … {len(lines) - SHOWN_LINES} more lines", _DIM))

    # --- writing ---

    def _text(self, delta: str) -> None:
        self._out.write(delta)
        self._out.flush()
        self._in_text = not delta.endswith("\n") if delta else self._in_text

    def _end_text(self) -> None:
        if self._in_text:
            self._in_text = False
            self._out.write("\n")

    def _block(self, lines: Iterable[str], style: str) -> None:
        for line in lines:
            self._line(self._paint(line, style))

    def _line(self, text: str) -> None:
        self._end_text()
        self._out.write(text + "\n")
        self._out.flush()

    def _paint(self, text: str, style: str) -> str:
        return f"{style}{text}{_END}" if self._color else text


def _plain(item: CommandExecutionThreadItem) -> str:
    """What was asked for, without the shell around it."""
    commands = [action.command for action in item.command_actions if hasattr(action, "command")]
    return " && ".join(commands) if commands else item.command


def _verb(kind: str, status: str) -> str:
    if status != "completed":
        return f"{status}: {kind}"
    return {"add": "added", "delete": "deleted", "update": "changed"}.get(kind, kind)


def _words(name: str) -> str:
    return "".join(f" {char.lower()}" if char.isupper() else char for char in name)


def _tokens(usage: Any) -> str:
    return "" if usage is None else f"{usage.input_tokens} tokens in, {usage.output_tokens} out · "
