"""A turn as `codex exec --json` reports it: `ExecEvents` from notifications to events, `JsonLines` to lines of JSON.

It owns the format of the events and the numbering of the items, which starts afresh with each run.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import msgspec

from treadle.pages.figures import snake_case
from treadle.protocol.app.items import (
    AgentMessageThreadItem,
    CollabAgentToolCallThreadItem,
    CommandExecutionThreadItem,
    FileChangeThreadItem,
    FindInPageWebSearchAction,
    McpToolCallThreadItem,
    OpenPageWebSearchAction,
    ReasoningThreadItem,
    SearchWebSearchAction,
    WebSearchThreadItem,
)
from treadle.protocol.app.turns import Turn, TurnError

Json: TypeAlias = dict[str, Any]
Events: TypeAlias = list[Json]

_USAGE: Final = (
    "input_tokens",
    "cached_input_tokens",
    "cache_write_input_tokens",
    "output_tokens",
    "reasoning_output_tokens",
)


class ExecEvents:
    """One run. Notifications that have no equivalent give no events."""

    def __init__(self) -> None:
        self._count = 0
        self._numbered: dict[str, str] = {}  # items in progress, with their id here
        self._todo: Json | None = None
        self._usage: Any = None
        self._error = "turn failed"  # the last error, for a turn that failed without saying why

    def started(self, thread_id: str) -> Events:
        """The first event, also of a thread that is resumed."""
        return [{"type": "thread.started", "thread_id": thread_id}]

    def receive(self, method: str, params: Any) -> Events:
        match method:
            case "turn/started":
                return [{"type": "turn.started"}]
            case "item/started":
                item = params.item
                begun = described(item)
                # A message or a thought is reported when it is complete.
                if begun is None or isinstance(item, AgentMessageThreadItem | ReasoningThreadItem):
                    return []
                if item.id not in self._numbered:
                    self._numbered[item.id] = self._new_id()
                return [_event("item.started", self._numbered[item.id], begun)]
            case "item/completed":
                item = params.item
                done = described(item)
                # One that is in progress goes on; only the turn has ended.
                if done is None or done.get("status") == "in_progress":
                    return []
                number = self._numbered.pop(item.id, None) or self._new_id()
                return [_event("item.completed", number, done)]
            case "turn/plan/updated":
                # A turn has one list, which ends with it.
                steps = [{"text": step.step, "completed": step.status == "completed"} for step in params.plan]
                event = "item.started" if self._todo is None else "item.updated"
                todo = self._new_id() if self._todo is None else self._todo["id"]
                self._todo = {"id": todo, "type": "todo_list", "items": steps}
                return [{"type": event, "item": self._todo}]
            case "thread/tokenUsage/updated":
                self._usage = params.token_usage.total
            case "error":
                self._error = _text(params.error)
                return [{"type": "error", "message": self._error}]
            case "warning":
                return [self._warning(params.message)]
            case "deprecationNotice":
                return [self._warning(_joined(params.summary, params.details))]
            case "model/rerouted":
                return [self._warning(f"model rerouted: {params.from_model} -> {params.to_model}")]
            case "turn/completed":
                turn = params.turn
                events: Events = []
                if self._todo is not None:
                    events.append({"type": "item.completed", "item": self._todo})
                    self._todo = None
                if turn.status == "completed":
                    events.append(
                        {"type": "turn.completed", "usage": {name: getattr(self._usage, name, 0) for name in _USAGE}}
                    )
                elif turn.status == "failed":
                    message = self._error if turn.error is None else _text(turn.error)
                    events.append({"type": "turn.failed", "error": {"message": message}})
                return events
        return []

    def _warning(self, text: str) -> Json:
        return _event("item.completed", self._new_id(), {"type": "error", "message": text})

    def _new_id(self) -> str:
        self._count += 1
        return f"item_{self._count - 1}"


class JsonLines:
    """A `TurnDisplay` that writes one event per line. `write` takes whole lines, as bytes."""

    def __init__(self, write: Callable[[bytes], None]) -> None:
        self._write = write
        self._events = ExecEvents()
        self._early: Events | None = []  # held back until `thread.started`, which must come first

    def started(self, started: Any) -> None:
        early, self._early = self._early or [], None
        self._print([*self._events.started(started.thread.id), *early])

    def show(self, method: str, params: Any) -> None:
        events = self._events.receive(method, params)
        if self._early is not None:
            self._early += events
        else:
            self._print(events)

    def note(self, text: str) -> None:
        """Notes are for people only."""

    def close(self) -> None:
        """Nothing is to be put back."""

    def ended(self, turn: Turn) -> None:
        """The last event has reported it."""

    def _print(self, events: Events) -> None:
        for event in events:
            try:
                line = msgspec.json.encode(event)
            except UnicodeEncodeError:  # a lone surrogate, from a file name that is not valid text; json escapes it
                line = json.dumps(event).encode()
            self._write(line + b"\n")


def _event(name: str, number: str, members: Json) -> Json:
    return {"type": name, "item": {"id": number, **members}}


def _text(error: TurnError) -> str:
    """The text of an error, for example `Reconnecting... 1/5 (the reason)`."""
    return _joined(error.message, error.additional_details)


def _joined(text: str, details: str | None) -> str:
    return f"{text} ({details})" if details else text


# --- items ---


def described(item: Any) -> Json | None:
    """An item as `codex exec --json` describes it: its members in order, without the id. None for items that it does
    not report, such as the user's own message."""
    match item:
        case AgentMessageThreadItem():
            return {"type": "agent_message", "text": item.text}
        case ReasoningThreadItem():
            text = "\n".join(item.summary)
            return {"type": "reasoning", "text": text} if text.strip() else None
        case CommandExecutionThreadItem():
            return {
                "type": "command_execution",
                "command": item.command,
                "aggregated_output": item.aggregated_output or "",
                "exit_code": item.exit_code,
                "status": snake_case(item.status),
            }
        case FileChangeThreadItem():
            changes = [{"path": change.path, "kind": snake_case(change.kind.type)} for change in item.changes]
            status = "failed" if item.status == "declined" else snake_case(item.status)
            return {"type": "file_change", "changes": changes, "status": status}
        case WebSearchThreadItem():
            # Codex writes two members `id` here; whoever reads them gets the second one, the provider's.
            return {"type": "web_search", "id": item.id, "query": item.query, "action": _search_action(item.action)}
        case McpToolCallThreadItem():
            result = item.result
            return {
                "type": "mcp_tool_call",
                "server": item.server,
                "tool": item.tool,
                "arguments": item.arguments,
                "result": result and {"content": result.content, "structured_content": result.structured_content},
                "error": item.error and {"message": item.error.message},
                "status": snake_case(item.status),
            }
        case CollabAgentToolCallThreadItem():
            return {
                "type": "collab_tool_call",
                "tool": snake_case(item.tool),
                "sender_thread_id": item.sender_thread_id,
                "receiver_thread_ids": item.receiver_thread_ids,
                "prompt": item.prompt,
                "agents_states": {
                    name: {"status": snake_case(state.status), "message": state.message}
                    for name, state in item.agents_states.items()
                },
                "status": snake_case(item.status),
            }
    return None


def _search_action(action: Any) -> Json:
    match action:
        case SearchWebSearchAction():
            return _given(type="search", query=action.query, queries=action.queries)
        case OpenPageWebSearchAction():
            return _given(type="open_page", url=action.url)
        case FindInPageWebSearchAction():
            return _given(type="find_in_page", url=action.url, pattern=action.pattern)
    return {"type": "other"}


def _given(**members: Any) -> Json:
    return {name: value for name, value in members.items() if value is not None}
