"""Simplified events of a turn, for programs that do not want the protocol: what the agent says, runs, changes, plans
and uses. `EventReader` makes them from the notifications of a turn; everything else is in `turn.stream()`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from treadle.client.notification import Notification, UnknownNotification
from treadle.client.turn_values import Collector, OutputT, TokensUsed, TurnResult
from treadle.tools.command.command_shell import asked

if TYPE_CHECKING:
    from treadle.client.schemas import OutputType


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
    """A whole message of the agent; `final` when it is its answer: not one after which the turn went on."""

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


class ToolCallStarted(Struct, frozen=True, kw_only=True):
    """The agent calls a tool: one of your functions, or one of an MCP server, which `server` then names."""

    tool: str
    arguments: Any
    server: str | None
    item_id: str
    kind: Literal["tool_call_started"] = "tool_call_started"


class ToolCallProgress(Struct, frozen=True, kw_only=True):
    """What an MCP server says while its tool runs."""

    message: str
    item_id: str
    kind: Literal["tool_call_progress"] = "tool_call_progress"


class ToolCall(Struct, frozen=True, kw_only=True):
    """A call has ended: `status` is `completed` or `failed`, `output` the text of the result, and `error` why there is
    none.
    """

    tool: str
    arguments: Any
    status: str
    server: str | None
    item_id: str
    output: str = ""
    error: str | None = None
    duration_ms: int | None = None
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
    """What was used so far: by the turn and by the thread, as the result has it in the end.

    The other members are the tokens of the thread, the context window of the model, and the cost of the turn in dollars
    (None when that is not known).
    """

    input_tokens: int
    cached_input_tokens: int
    output_tokens: int
    total_tokens: int
    context_window: int | None
    cost_usd: float | None = None
    turn_usage: TokensUsed | None = None
    thread_usage: TokensUsed | None = None
    kind: Literal["usage"] = "usage"


class Problem(Struct, frozen=True, kw_only=True):
    """An error of the turn; `will_retry` when the server tries again by itself."""

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
    | ToolCallStarted
    | ToolCallProgress
    | ToolCall
    | Plan
    | Usage
    | Problem
    | Done[OutputT]
)


# With these the turn goes on after a message, which then was not its answer.
_GOES_ON: Final = frozenset(("item/started", "item/completed", "turn/plan/updated"))


class EventReader(Generic[OutputT]):
    """The events of one turn. A failed turn raises `TurnFailed` at its end, as `run` does."""

    def __init__(self, turn_id: str, output_type: OutputType[OutputT] | None = None) -> None:
        self._collector = Collector(turn_id)
        self._output_type = output_type
        self._growing: dict[str, None] = {}  # messages of which a part was sent, oldest first
        self._marked = False  # whether there was a message that is marked as the answer
        self._text: Text | None = None
        self._usage: Usage | None = None

    def read(self, notification: Notification) -> Iterator[Event[OutputT]]:
        """The events that a notification is: mostly one, or none.

        Most models do not mark their answer: a message is the answer if the turn does nothing more. Such a `Text` is
        held until that is known, and `Usage` behind it.
        """
        self._collector.add(notification)
        method: str = notification.method
        payload: Any = notification.payload
        if method == "turn/completed":
            failed = isinstance(payload, UnknownNotification) or payload.turn.status == "failed"
            yield from self._decided(final=not (self._marked or failed))
            yield Done(result=self._collector.result(self._output_type))
            return
        if method in _GOES_ON:
            yield from self._decided(final=False)
        event = None if isinstance(payload, UnknownNotification) else _event(method, payload)
        if isinstance(event, Usage):
            used = self._collector
            event = replace(event, turn_usage=used.turn_usage, thread_usage=used.thread_usage)
        if isinstance(event, Text) and payload.item.phase is None:
            self._text = event
        elif isinstance(event, Usage) and self._text is not None:
            self._usage = event
        elif event is not None:
            self._marked = self._marked or (isinstance(event, Text) and event.final)
            yield event
        # When the server asks the model once more, the messages that it had begun will never be ended.
        if isinstance(event, TextDelta):
            self._growing[event.item_id] = None
        elif isinstance(event, Text):
            self._growing.pop(event.item_id, None)
        elif isinstance(event, Problem) and event.will_retry:
            void, self._growing = self._growing, {}
            for item_id in void:
                yield TextRestarted(item_id=item_id)

    def _decided(self, *, final: bool) -> Iterator[Event[OutputT]]:
        """The `Text` that was held, now that it is known whether it is the answer, and the `Usage` behind it."""
        if self._text is not None:
            yield replace(self._text, final=final)
        if self._usage is not None:
            yield self._usage
        self._text = self._usage = None


def _event(method: str, payload: Any) -> Event | None:
    """The event that a notification is, if it is one."""
    match method:
        case "item/agentMessage/delta":
            return TextDelta(text=payload.delta, item_id=payload.item_id)
        case "item/commandExecution/outputDelta":
            return CommandOutput(text=payload.delta, item_id=payload.item_id)
        case "item/started" if payload.item.type == "commandExecution":
            command = payload.item.command
            return CommandStarted(
                command=asked(command), command_line=command, cwd=payload.item.cwd, item_id=payload.item.id
            )
        case "item/started" if (call := _call(payload.item)) is not None:
            server = getattr(call, "server", None)
            return ToolCallStarted(tool=call.tool, arguments=call.arguments, server=server, item_id=call.id)
        case "item/mcpToolCall/progress":
            return ToolCallProgress(message=payload.message, item_id=payload.item_id)
        case "item/completed":
            return _item_event(payload.item)
        case "turn/plan/updated":
            steps = tuple(PlanStep(step=step.step, status=str(step.status)) for step in payload.plan)
            return Plan(steps=steps, explanation=payload.explanation)
        case "thread/tokenUsage/updated":
            total = payload.token_usage.total
            return Usage(
                input_tokens=total.input_tokens,
                cached_input_tokens=total.cached_input_tokens,
                output_tokens=total.output_tokens,
                total_tokens=total.total_tokens,
                context_window=payload.token_usage.model_context_window,
                cost_usd=payload.token_usage.cost_usd,
            )
        case "error":
            return Problem(message=payload.error.message, will_retry=payload.will_retry)
    return None


def _item_event(item: Any) -> Event | None:
    """The event that a completed item is, if it is one."""
    match item.type:
        case "agentMessage":
            return Text(text=item.text, item_id=item.id, final=item.phase == "final_answer")
        case "reasoning":
            text = "\n\n".join(item.summary or item.content)
            return Reasoning(text=text, item_id=item.id) if text else None
        case "commandExecution":
            return CommandFinished(
                command=asked(item.command),
                command_line=item.command,
                output=item.aggregated_output or "",
                exit_code=item.exit_code,
                status=str(item.status),
                duration_ms=item.duration_ms,
                item_id=item.id,
            )
        case "fileChange":
            paths = tuple(change.path for change in item.changes)
            return FileChange(paths=paths, changes=item.changes, status=str(item.status), item_id=item.id)
    call = _call(item)
    return None if call is None else _tool_call(call)


def _call(item: Any) -> Any:
    """The call that an item is, if it is one. One of a tool that we don't know may still say so."""
    return item if item.type in ("dynamicToolCall", "mcpToolCall") else item.as_tool_call()


def _tool_call(call: Any) -> ToolCall:
    if call.type == "mcpToolCall":
        error = None if call.error is None else call.error.message
        blocks = () if call.result is None else call.result.content
        texts = [block.get("text") for block in blocks if isinstance(block, dict)]
    else:
        error, texts = None, [getattr(block, "text", None) for block in call.content_items or ()]
    return ToolCall(
        tool=call.tool,
        arguments=call.arguments,
        status=str(call.status),
        server=getattr(call, "server", None),
        item_id=call.id,
        output="\n".join(text for text in texts if isinstance(text, str)),
        error=error,
        duration_ms=call.duration_ms,
    )
