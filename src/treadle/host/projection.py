"""`project`: the items of a turn as chat messages. Pure: the same items give the same messages, live and on resume.

Each tool use becomes two adjacent messages, the call and its result; so whatever happens to a turn, no call is without
an answer. What is of no use to a later reader of the conversation is left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final, NamedTuple

from treadle.client.turn_values import final_response
from treadle.host.chat_messages import change_kind, content_text, patch_summary
from treadle.host.runtime import Message, UserInput
from treadle.protocol.app.base import Unknown
from treadle.protocol.app.items import ThreadItem
from treadle.tools.command.command_shell import asked

MAX_OUTPUT: Final = 16_000
"""Characters of what a command printed: half of them from the beginning, half from the end."""
MAX_RESULT: Final = 4_000
MAX_ERROR: Final = 1_000

DECLINED: Final = "[declined] The user did not allow it, so it was not done."
UNFINISHED: Final = "[interrupted] The turn ended before this was done: it may be half done."

_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_-]")


@dataclass(slots=True)
class Projection:
    """The items of a turn as chat messages: all messages, the answer, and the number of tool uses."""

    messages: list[Message] = field(default_factory=list)
    final_text: str = ""
    tool_iterations: int = 0


class ProjectedTool(NamedTuple):
    """One use of a tool."""

    kind: str
    name: str
    arguments: Any
    result: str


def project(items: Sequence[ThreadItem], *, submitted: UserInput | None = None) -> Projection:
    """The messages of items, in their order. The first user message that only echoes `submitted` is left out.

    An item that was begun and never ended is projected with a result that says so.
    """
    found = _Projecting(submitted)
    for item in items:
        found.add(item.root)
    found.projection.final_text = final_response(list(items)) or ""
    return found.projection


class _Projecting:
    def __init__(self, submitted: UserInput | None) -> None:
        self.projection = Projection()
        self._echo = None if submitted is None else _squeezed(content_text(submitted))
        self._thoughts: list[str] = []
        self._ids: set[str] = set()

    def add(self, item: Any) -> None:
        if isinstance(item, Unknown):
            return
        if (used := _tool_of(item)) is not None:
            self._add_tool(item, used)
        elif item.type == "userMessage":
            parts = [{"type": str(part.type), "text": getattr(part, "text", None)} for part in item.content]
            text = content_text(parts)
            if self._echo is not None and _squeezed(text) == self._echo:
                self._echo = None  # said once more, it is said anew
            elif text:
                self.projection.messages.append({"role": "user", "content": text})
        elif item.type == "agentMessage" and item.text:
            self._add_assistant({"content": item.text})
        elif item.type == "reasoning":
            self._thoughts += [text for text in (*item.summary, *item.content) if text]
        elif (call := item.as_tool_call()) is not None:
            self._add_tool(call, _client_tool(call))

    def _add_assistant(self, members: Message) -> None:
        message: Message = {"role": "assistant", **members}
        if self._thoughts:
            message["reasoning"] = "\n".join(self._thoughts)
            self._thoughts = []
        self.projection.messages.append(message)

    def _add_tool(self, item: Any, used: ProjectedTool) -> None:
        # From the item's own id, so that it is the same whenever it is read; in a form that every provider takes.
        call_id, number = _fitting(f"{used.kind}_{item.id}"), 2
        while call_id in self._ids:
            call_id, number = _fitting(f"{used.kind}_{item.id}_{number}"), number + 1
        self._ids.add(call_id)
        name = _NOT_IN_NAMES.sub("_", used.name)[:64] or "tool"
        arguments = used.arguments if isinstance(used.arguments, dict) else {"arguments": used.arguments}
        function = {"name": name, "arguments": json.dumps(arguments, sort_keys=True, ensure_ascii=False)}
        self._add_assistant({"content": "", "tool_calls": [{"id": call_id, "type": "function", "function": function}]})
        result = UNFINISHED if getattr(item, "status", None) == "inProgress" else used.result
        self.projection.messages.append({"role": "tool", "tool_call_id": call_id, "name": name, "content": result})
        self.projection.tool_iterations += 1


def _fitting(call_id: str) -> str:
    if _ID.fullmatch(call_id):
        return call_id
    return f"call_{sha256(call_id.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"


def _squeezed(text: str) -> str:
    """A server may join the parts of an input in its own way."""
    return " ".join(text.split())


# --- tools -----------------------------------------------------------------------------------------------------------


def _tool_of(item: Any) -> ProjectedTool | None:
    """The use of a tool that an item is; None for talk and thoughts, and for a type that somebody has added."""
    match item.type:
        case "commandExecution":
            printed = item.aggregated_output or ""
            if len(printed) > MAX_OUTPUT:
                half = MAX_OUTPUT // 2
                left_out = len(printed) - 2 * half
                printed = f"{printed[:half]}\n[… {left_out} characters are left out …]\n{printed[-half:]}"
            if item.status == "declined":
                result = DECLINED
            elif item.exit_code is None and item.status == "failed":
                result = f"[failed]\n{printed}"
            else:
                result = printed if not item.exit_code else f"[exit {item.exit_code}]\n{printed}"
            return ProjectedTool("exec", "exec_command", {"command": asked(item.command), "cwd": item.cwd}, result)
        case "fileChange":
            changes = [{"kind": change_kind(change), "path": change.path} for change in item.changes]
            declined = item.status == "declined"
            result = DECLINED if declined else f"{item.status}: {patch_summary(item.changes)}"
            return ProjectedTool("patch", "apply_patch", {"changes": changes}, result)
        case "mcpToolCall":
            if item.error is not None:
                result = f"[error] {_cut(item.error.message, MAX_ERROR)}"
            elif item.result is None:
                result = ""
            else:
                content, structured = item.result.content, item.result.structured_content
                texts = [
                    part["text"] for part in content if isinstance(part, dict) and isinstance(part.get("text"), str)
                ]
                whole = "\n".join(texts) if texts and len(texts) == len(content) else None
                result = _cut(
                    _json(content if structured is None else structured) if whole is None else whole, MAX_RESULT
                )
            return ProjectedTool("mcp", f"mcp__{item.server}__{item.tool}", item.arguments, result)
        case "dynamicToolCall":
            return _client_tool(item)
        case "webSearch":
            action = item.action
            given = {} if action is None else (dict(action) if isinstance(action, dict) else action.model_dump())
            named = {name: value for name, value in given.items() if value is not None}
            result = "" if item.results is None else _cut(_json(item.results), MAX_RESULT)
            return ProjectedTool("search", "web_search", {**named, "query": item.query}, result)
        case "collabAgentToolCall":
            arguments = {"agents": list(item.receiver_thread_ids), "prompt": item.prompt}
            states = {
                name: f"{state.status}: {state.message or ''}".rstrip(": ")
                for name, state in item.agents_states.items()
            }
            result = _cut(f"{item.status} {_json(states)}", MAX_RESULT)
            return ProjectedTool("agent", f"agent__{item.tool}", arguments, result)
    return None


def _client_tool(item: Any) -> ProjectedTool:
    content = [getattr(part, "text", None) or f"[{part.type}]" for part in item.content_items or ()]
    text = _cut("\n".join(content), MAX_OUTPUT)
    name = item.tool if item.namespace is None else f"{item.namespace}__{item.tool}"
    return ProjectedTool("tool", name, item.arguments, text if item.success is not False else f"[error] {text}".strip())


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text)} characters)"
