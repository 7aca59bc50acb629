"""Small events, for programs that do not want the protocol: what the agent says, runs, changes, plans and uses.

`EventReader` makes them from the notifications of a turn; everything else is in `turn.stream()`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeAlias

from msgspec import Struct

from treadle.client.notification import Notification
from treadle.client.result import Collector, OutputT, TurnResult
from treadle.tools.command.command_shell import asked

if TYPE_CHECKING:
    from treadle.client.output_type import OutputType


class TextDelta(Struct, frozen=True, kw_only=True):
    """A piece of what the agent says, as it comes."""

    text: str
    item_id: str
    kind: Literal["text_delta"] = "text_delta"


class TextRestarted(Struct, frozen=True, kw_only=True):
    """The model's stream broke off and begins anew: what came of this message is void and can be cleared.

    Its text comes again under another `item_id`.
    """

    item_id: str
    kind: Literal["text_restarted"] = "text_restarted"


class Text(Struct, frozen=True, kw_only=True):
    """A whole message of the agent; `final` when it is its answer."""

    text: str
    item_id: str
    final: bool
    kind: Literal["text"] = "text"


class Reasoning(Struct, frozen=True, kw_only=True):
    """What the agent has thought, as far as the model tells."""

    text: str
    item_id: str
    kind: Literal["reasoning"] = "reasoning"


class CommandStarted(Struct, frozen=True, kw_only=True):
    """The agent runs a command: `command` is what the model asked for, `command_line` that with the shell around it."""

    command: str
    command_line: str
    cwd: str
    item_id: str
    kind: Literal["command_started"] = "command_started"


class CommandOutput(Struct, frozen=True, kw_only=True):
    """A piece of what a command writes, as it comes."""

    text: str
    item_id: str
    kind: Literal["command_output"] = "command_output"


class CommandFinished(Struct, frozen=True, kw_only=True):
    """A command has ended, or was not allowed: then `status` is `declined` and there is no `exit_code`."""

    command: str
    command_line: str
    output: str
    exit_code: int | None
    status: str
    duration_ms: int | None
    item_id: str
    kind: Literal["command_finished"] = "command_finished"


class FileChange(Struct, frozen=True, kw_only=True):
    """Files were changed, or were not: `status` says. `changes` has the path, the kind and the diff of each."""

    paths: tuple[str, ...]
    changes: tuple[Any, ...]
    status: str
    item_id: str
    kind: Literal["file_change"] = "file_change"


class ToolCall(Struct, frozen=True, kw_only=True):
    """A tool has been called: one of your functions, or one of an MCP server, which `server` then names."""

    tool: str
    arguments: Any
    status: str
    server: str | None
    item_id: str
    kind: Literal["tool_call"] = "tool_call"


class PlanStep(Struct, frozen=True, kw_only=True):
    """A step of a plan; `status` is `pending`, `inProgress` or `completed`."""

    step: str
    status: str


class Plan(Struct, frozen=True, kw_only=True):
    """What the agent means to do, and how far it is."""

    steps: tuple[PlanStep, ...]
    explanation: str | None
    kind: Literal["plan"] = "plan"


class Usage(Struct, frozen=True, kw_only=True):
    """Tokens of the thread so far, and what the turn has cost so far, in dollars (None when that is not known)."""

    input_tokens: int
    cached_input_tokens: int
    output_tokens: int
    total_tokens: int
    context_window: int | None
    cost_usd: float | None = None
    kind: Literal["usage"] = "usage"


class Problem(Struct, frozen=True, kw_only=True):
    """Something went wrong; `will_retry` when the server tries again by itself."""

    message: str
    will_retry: bool
    kind: Literal["problem"] = "problem"


class Done(Struct, Generic[OutputT], frozen=True, kw_only=True):
    """The last event: what came of the turn."""

    result: TurnResult[OutputT]
    kind: Literal["done"] = "done"


Event: TypeAlias = (
    TextDelta
    | TextRestarted
    | Text
    | Reasoning
    | CommandStarted
    | CommandOutput
    | CommandFinished
    | FileChange
    | ToolCall
    | Plan
    | Usage
    | Problem
    | Done[OutputT]
)


class EventReader(Generic[OutputT]):
    """The events of one turn. A failed turn raises `TurnFailed` at its end, as `run` does."""

    def __init__(self, turn_id: str, output_type: OutputType[OutputT] | None = None) -> None:
        self._collector = Collector(turn_id)
        self._output_type = output_type
        self._growing: dict[str, None] = {}  # messages of which a part was told, oldest first

    def read(self, notification: Notification) -> list[Event[OutputT]]:
        """The events that a notification is: mostly one, or none."""
        self._collector.add(notification)
        read = _READERS.get(notification.method)
        if read is not None and notification.payload.__class__.__name__ != "UnknownNotification":
            event = read(notification.payload)
            return [] if event is None else [event, *self._restarted(event)]
        if notification.method == "turn/completed":
            return [Done(result=self._collector.result(self._output_type))]
        return []

    def _restarted(self, event: Event[OutputT]) -> list[Event[OutputT]]:
        """When the server asks the model once more, the messages that it had begun will never be ended."""
        if isinstance(event, TextDelta):
            self._growing[event.item_id] = None
        elif isinstance(event, Text):
            self._growing.pop(event.item_id, None)
        elif isinstance(event, Problem) and event.will_retry:
            void, self._growing = self._growing, {}
            return [TextRestarted(item_id=item_id) for item_id in void]
        return []


def _text_delta(payload: Any) -> Event:
    return TextDelta(text=payload.delta, item_id=payload.item_id)


def _command_output(payload: Any) -> Event:
    return CommandOutput(text=payload.delta, item_id=payload.item_id)


def _started(payload: Any) -> Event | None:
    item = payload.item
    if item.type != "commandExecution":
        return None
    return CommandStarted(command=asked(item.command), command_line=item.command, cwd=item.cwd, item_id=item.id)


def _completed(payload: Any) -> Event | None:
    read = _ITEMS.get(payload.item.type)
    if read is not None:
        return read(payload.item)
    call = payload.item.as_tool_call()
    return None if call is None else _call(call)


def _message(item: Any) -> Event:
    return Text(text=item.text, item_id=item.id, final=item.phase in ("final_answer", None))


def _reasoning(item: Any) -> Event | None:
    text = "\n\n".join(item.summary or item.content)
    return Reasoning(text=text, item_id=item.id) if text else None


def _command(item: Any) -> Event:
    return CommandFinished(
        command=asked(item.command),
        command_line=item.command,
        output=item.aggregated_output or "",
        exit_code=item.exit_code,
        status=str(item.status),
        duration_ms=item.duration_ms,
        item_id=item.id,
    )


def _change(item: Any) -> Event:
    paths = tuple(change.path for change in item.changes)
    return FileChange(paths=paths, changes=item.changes, status=str(item.status), item_id=item.id)


def _call(item: Any) -> Event:
    server = getattr(item, "server", None)
    return ToolCall(tool=item.tool, arguments=item.arguments, status=str(item.status), server=server, item_id=item.id)


def _plan(payload: Any) -> Event:
    steps = tuple(PlanStep(step=step.step, status=str(step.status)) for step in payload.plan)
    return Plan(steps=steps, explanation=payload.explanation)


def _usage(payload: Any) -> Event:
    total = payload.token_usage.total
    return Usage(
        input_tokens=total.input_tokens,
        cached_input_tokens=total.cached_input_tokens,
        output_tokens=total.output_tokens,
        total_tokens=total.total_tokens,
        context_window=payload.token_usage.model_context_window,
        cost_usd=payload.token_usage.cost_usd,
    )


def _problem(payload: Any) -> Event:
    return Problem(message=payload.error.message, will_retry=payload.will_retry)


_READERS: Final[Mapping[str, Callable[[Any], Event | None]]] = {
    "item/agentMessage/delta": _text_delta,
    "item/commandExecution/outputDelta": _command_output,
    "item/started": _started,
    "item/completed": _completed,
    "turn/plan/updated": _plan,
    "thread/tokenUsage/updated": _usage,
    "error": _problem,
}
_ITEMS: Final[Mapping[str, Callable[[Any], Event | None]]] = {
    "agentMessage": _message,
    "reasoning": _reasoning,
    "commandExecution": _command,
    "fileChange": _change,
    "dynamicToolCall": _call,
    "mcpToolCall": _call,
}
