"""A turn in the words of the `mcp-server` that Codex once had: its events (`codex/event`), and the elicitations by
which it asked for approvals. Clients written for it read these.

Pure. The forms were recorded from the last version of that program, 0.153 (`tests/data/codex_events.jsonl`). What it
said twice is said once: items as a whole (`item_started`, `raw_response_item`) are in the log messages.
"""

from __future__ import annotations

import base64
import shlex
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from treadle.client.notification import Notification, UnknownNotification
from treadle.client.server_requests import ApprovalDecision, ApprovalRequest, UserInputRequest
from treadle.pages.figures import snake_case
from treadle.protocol.app.base import encode

Json = Mapping[str, Any]

_MAX_SHOWN: Final = 10_000  # of what the tool of another MCP server would be called with
_YES_OR_NO: Final = {"type": "object", "properties": {}}


# --- events ----------------------------------------------------------------------------------------------------------


def session_configured(started: Any) -> Json:
    """The event before those of the first turn of a thread."""
    thread = started.thread
    return {
        "type": "session_configured",
        "session_id": thread.id,
        "thread_id": thread.id,
        "model": started.model,
        "model_provider_id": started.model_provider,
        "approval_policy": started.approval_policy,
        "approvals_reviewer": started.approvals_reviewer,
        "cwd": started.cwd,
        "rollout_path": thread.path,
    }


def codex_events(event: Notification, answer: str | None) -> list[Json]:
    """The events that a notification of a turn is; `answer` is the last message of the agent so far."""
    payload: Any = event.payload
    if isinstance(payload, UnknownNotification):
        return []
    match event.method:
        case "item/started":
            return _begun(payload.item, payload.turn_id)
        case "item/completed":
            return _ended(payload.item, payload.turn_id)
        case "item/agentMessage/delta":
            ids = {"thread_id": payload.thread_id, "turn_id": payload.turn_id, "item_id": payload.item_id}
            return [{"type": "agent_message_content_delta", **ids, "delta": payload.delta}]
        case "item/commandExecution/outputDelta":
            chunk = base64.b64encode(payload.delta.encode()).decode()
            output = {"call_id": payload.item_id, "stream": "stdout", "chunk": chunk}
            return [{"type": "exec_command_output_delta", **output}]
        case "turn/started":
            mode = {"model_context_window": None, "collaboration_mode_kind": "default"}
            turn = payload.turn
            return [{"type": "task_started", "turn_id": turn.id, "started_at": turn.started_at, **mode}]
        case "turn/completed":
            turn = payload.turn
            times = {"started_at": turn.started_at, "completed_at": turn.completed_at, "duration_ms": turn.duration_ms}
            if turn.status == "completed":
                return [{"type": "task_complete", "turn_id": turn.id, "last_agent_message": answer, **times}]
            if turn.status == "interrupted":
                return [{"type": "turn_aborted", "turn_id": turn.id, "reason": "interrupted", **times}]
            return []  # why a turn failed, an `error` has reported
        case "turn/diff/updated":
            return [{"type": "turn_diff", "unified_diff": payload.diff}]
        case "turn/plan/updated":
            plan = [{"step": one.step, "status": snake_case(one.status)} for one in payload.plan]
            return [{"type": "plan_update", "explanation": payload.explanation, "plan": plan}]
        case "thread/tokenUsage/updated":
            usage = payload.token_usage
            info = {
                "total_token_usage": msgspec.structs.asdict(usage.total),
                "last_token_usage": msgspec.structs.asdict(usage.last),
                "model_context_window": usage.model_context_window,
            }
            return [{"type": "token_count", "info": info, "rate_limits": None}]
        case "error":
            kind = "stream_error" if payload.will_retry else "error"
            return [{"type": kind, "message": payload.error.message, "codex_error_info": "other"}]
        case "warning":
            return [{"type": "warning", "message": payload.message}]
    return []


def _begun(item: Any, turn_id: str) -> list[Json]:
    match item.type:
        case "commandExecution":
            return [{"type": "exec_command_begin", **_command(item, turn_id)}]
        case "fileChange":
            begun = {"call_id": item.id, "turn_id": turn_id, "auto_approved": True, "changes": changes_of(item)}
            return [{"type": "patch_apply_begin", **begun}]
        case "mcpToolCall":
            return [{"type": "mcp_tool_call_begin", "call_id": item.id, "invocation": _invocation(item)}]
        case "webSearch":
            return [{"type": "web_search_begin", "call_id": item.id}]
    return []


def _ended(item: Any, turn_id: str) -> list[Json]:
    match item.type:
        case "userMessage":
            texts = (getattr(part, "text", None) for part in item.content)
            return [{"type": "user_message", "message": "\n".join(filter(None, texts)), "images": []}]
        case "agentMessage":
            return [{"type": "agent_message", "message": item.text, "phase": item.phase, "memory_citation": None}]
        case "reasoning":
            return [{"type": "agent_reasoning", "text": text} for text in item.summary]
        case "commandExecution":
            output = item.aggregated_output or ""
            outputs = {"stdout": output, "stderr": "", "aggregated_output": output, "formatted_output": output}
            code = {"exit_code": -1 if item.exit_code is None else item.exit_code, "status": snake_case(item.status)}
            ended = {**_command(item, turn_id), **outputs, **code, "duration": _duration(item.duration_ms)}
            return [{"type": "exec_command_end", **ended}]
        case "fileChange":
            ended = {"call_id": item.id, "turn_id": turn_id, "stdout": "", "stderr": "", "changes": changes_of(item)}
            made = {"success": item.status == "completed", "status": snake_case(item.status)}
            return [{"type": "patch_apply_end", **ended, **made}]
        case "mcpToolCall":
            failure = None if item.error is None else item.error.message
            result = {"Err": failure or "no result"} if item.result is None else {"Ok": item.result}
            ended = {"invocation": _invocation(item), "duration": _duration(item.duration_ms), "result": result}
            return [{"type": "mcp_tool_call_end", "call_id": item.id, **ended}]
        case "webSearch":
            return [{"type": "web_search_end", "call_id": item.id, "query": item.query}]
    return []


def _command(item: Any, turn_id: str) -> Json:
    return {
        "call_id": item.id,
        "process_id": item.process_id,
        "turn_id": turn_id,
        "command": _words(item.command),
        "cwd": item.cwd,
        "parsed_cmd": _parsed(msgspec.to_builtins(item.command_actions)),
        "source": snake_case(item.source),
    }


def changes_of(item: Any) -> Json:
    """The changes of a patch, by their paths."""
    changes: dict[str, Json] = {}
    for change in item.changes:
        kind = str(change.kind.type)
        if kind == "update":
            moved = getattr(change.kind, "move_path", None)
            changes[change.path] = {"type": kind, "unified_diff": change.diff, "move_path": moved}
        else:
            changes[change.path] = {"type": kind, "content": change.diff}
    return changes


def _invocation(item: Any) -> Json:
    return {"server": item.server, "tool": item.tool, "arguments": item.arguments}


def _duration(milliseconds: int | None) -> Json:
    seconds, rest = divmod(milliseconds or 0, 1000)
    return {"secs": seconds, "nanos": rest * 1_000_000}


def _parsed(actions: Any) -> list[Json]:
    return [
        {**{key: value for key, value in action.items() if key != "command"}, "type": snake_case(action["type"])}
        | ({"cmd": action["command"]} if "command" in action else {})
        for action in actions or ()
    ]


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:
        return [command]


# --- questions -------------------------------------------------------------------------------------------------------

_DECISIONS: Final = {
    "accept": ApprovalDecision.accept,
    "acceptForSession": ApprovalDecision.accept_for_session,
    "approved": ApprovalDecision.accept,
    "approved_for_session": ApprovalDecision.accept_for_session,
    "abort": ApprovalDecision.cancel,
    "cancel": ApprovalDecision.cancel,
}


class AgentQuestion(Struct, frozen=True):
    """What is asked, as params of an elicitation. `event` goes before it."""

    subject: str
    params: Json
    event: Json | None = None


def decision_of(answer: Json) -> ApprovalDecision:
    """The decision in an answer: of MCP (`action`), or of codex (`decision`). What is not understood is a no."""
    action, decision = answer.get("action"), answer.get("decision")
    if action in ("decline", "cancel") or "decision" not in answer:
        decision = action if action in ("accept", "cancel") else None
    return _DECISIONS.get(decision, ApprovalDecision.decline) if isinstance(decision, str) else ApprovalDecision.decline


def approval_elicitation(request: ApprovalRequest, call_id: int | str) -> AgentQuestion:
    """What is asked about something that is not done without a yes; `call_id` is that of the call that it belongs
    to."""
    raw = request.params
    match request.kind:
        case "command":
            command = raw.command or ""
            parsed = _parsed(msgspec.to_builtins(raw.command_actions))
            more: dict[str, Any] = {"command": _words(command), "cwd": request.cwd, "parsed_cmd": parsed}
            subject, kind = request.command or "a command", "exec"
            message = f"Allow the agent to run `{subject}` in `{request.cwd}`?"
        case "patch":
            more = {"changes": changes_of(request), "grant_root": raw.grant_root}
            subject, kind = f"changes of {', '.join(more['changes']) or 'files'}", "patch"
            message = f"Allow the agent to apply {subject}?"
        case "permissions":
            more, kind = {}, "permissions"
            subject = f"the permissions {encode(request.permissions).decode()}"
            message = f"Give the agent {subject}?"
        case _:
            # Whoever is asked must see which server wants it, and with what its tool would be called.
            shown = "" if request.arguments is None else f"\n{encode(request.arguments).decode()[:_MAX_SHOWN]}"
            message = f"MCP server {request.server}: {request.reason}{shown}"
            return AgentQuestion(request.reason or "", {"message": message, "requestedSchema": _YES_OR_NO})
    ids = {"call_id": request.item_id, "turn_id": request.turn_id}
    asked = {
        "message": f"{request.reason}\n{message}" if request.reason else message,
        "requestedSchema": _YES_OR_NO,
        "threadId": request.thread_id,
        "codex_elicitation": f"{kind}-approval",
        "codex_mcp_tool_call_id": str(call_id),
        "codex_event_id": request.turn_id,
        "codex_call_id": request.item_id,
        **({"codex_reason": request.reason} if request.reason else {}),
        **{f"codex_{name}": value for name, value in more.items()},
    }
    name = {"exec": "exec_approval_request", "patch": "apply_patch_approval_request"}.get(kind)
    event = {"type": name, **ids, "reason": request.reason, **more}
    return AgentQuestion(subject, asked, None if name is None else event)


def form_elicitation(request: UserInputRequest) -> AgentQuestion:
    """What the agent, or another MCP server, asks the user."""
    if request.kind == "elicitation":
        message = f"MCP server {request.server}: {request.message}"
        if request.url is not None:
            url = {"url": request.url, "elicitationId": request.params.elicitation_id}
            return AgentQuestion(request.message, {"mode": "url", "message": message, **url})
        return AgentQuestion(request.message, {"mode": "form", "message": message, "requestedSchema": request.schema})
    properties: dict[str, Any] = {}
    for asked in request.questions:
        named = {"type": "string", "title": asked.header, "description": asked.question}
        words = [option.label for option in asked.options or ()]
        properties[asked.id] = {**named, "enum": words} if words and not asked.is_other else named
    message = "\n".join(asked.question for asked in request.questions)
    schema = {"type": "object", "properties": properties, "required": [*properties]}
    return AgentQuestion(message, {"message": message, "requestedSchema": schema})


def form_answers(request: UserInputRequest, answer: Json) -> dict[str, Any] | None:
    """What was filled in; None when nobody has."""
    content = answer.get("content")
    if decision_of(answer) not in (ApprovalDecision.accept, ApprovalDecision.accept_for_session):
        return None
    if request.kind == "elicitation":
        return dict(content) if isinstance(content, Mapping) else {}
    given = content if isinstance(content, Mapping) else {}
    return {asked.id: str(given[asked.id]) for asked in request.questions if asked.id in given}
