"""How `codex exec --json` describes an item: its members in order, without the id. Pure.

None for items that it does not report, such as the user's own message.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

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

Json: TypeAlias = dict[str, Any]

_CAPITAL: Final = re.compile(r"[A-Z]")


def described(item: Any) -> Json | None:
    match item:
        case AgentMessageThreadItem():
            return {"type": "agent_message", "text": item.text}
        case ReasoningThreadItem():
            text = "\n".join(item.summary)
            return {"type": "reasoning", "text": text} if text.strip() else None
        case CommandExecutionThreadItem():
            return _command(item)
        case FileChangeThreadItem():
            return _changes(item)
        case WebSearchThreadItem():
            return _search(item)
        case McpToolCallThreadItem():
            return _tool_call(item)
        case CollabAgentToolCallThreadItem():
            return _agent_call(item)
    return None


def _command(item: CommandExecutionThreadItem) -> Json:
    return {
        "type": "command_execution",
        "command": item.command,
        "aggregated_output": item.aggregated_output or "",
        "exit_code": item.exit_code,
        "status": _snake(item.status),
    }


def _changes(item: FileChangeThreadItem) -> Json:
    changes = [{"path": change.path, "kind": _snake(change.kind.type)} for change in item.changes]
    status = "failed" if item.status == "declined" else _snake(item.status)
    return {"type": "file_change", "changes": changes, "status": status}


def _search(item: WebSearchThreadItem) -> Json:
    """Codex writes two members `id` here; whoever reads them gets the second one, the provider's."""
    return {"type": "web_search", "id": item.id, "query": item.query, "action": _action(item.action)}


def _action(action: Any) -> Json:
    match action:
        case SearchWebSearchAction():
            return _given(type="search", query=action.query, queries=action.queries)
        case OpenPageWebSearchAction():
            return _given(type="open_page", url=action.url)
        case FindInPageWebSearchAction():
            return _given(type="find_in_page", url=action.url, pattern=action.pattern)
    return {"type": "other"}


def _tool_call(item: McpToolCallThreadItem) -> Json:
    result = item.result
    return {
        "type": "mcp_tool_call",
        "server": item.server,
        "tool": item.tool,
        "arguments": item.arguments,
        "result": result and {"content": result.content, "structured_content": result.structured_content},
        "error": item.error and {"message": item.error.message},
        "status": _snake(item.status),
    }


def _agent_call(item: CollabAgentToolCallThreadItem) -> Json:
    return {
        "type": "collab_tool_call",
        "tool": _snake(item.tool),
        "sender_thread_id": item.sender_thread_id,
        "receiver_thread_ids": item.receiver_thread_ids,
        "prompt": item.prompt,
        "agents_states": _states(item.agents_states),
        "status": _snake(item.status),
    }


def _states(states: Mapping[str, Any]) -> Json:
    return {name: {"status": _snake(state.status), "message": state.message} for name, state in states.items()}


def _given(**members: Any) -> Json:
    return {name: value for name, value in members.items() if value is not None}


def _snake(word: object) -> str:
    """`inProgress` as `in_progress`."""
    return _CAPITAL.sub(lambda letter: f"_{letter[0].lower()}", str(word))
