"""The engine `claude`: what `claude -p` takes and what its lines mean. Pure, but for the class at the end.

A text of claude is its answer unless something follows it; then it was commentary, and becomes a note. So the last text
is held back until we know which of the two it is.
"""

from __future__ import annotations

import base64
import mimetypes
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Unpack

import msgspec

from treadle.arguments import option_value, texts
from treadle.runners.engine import (
    ApprovalAnswer,
    ApprovalAsk,
    CloseInput,
    Ending,
    Engine,
    Output,
    Reply,
    ResumeLine,
    RunChoices,
    RunRequest,
    Timeouts,
    Withdrawn,
    plain_prompt,
)
from treadle.runners.engine_reports import Notes, add_usage, cut, end_by_code, read_object, short_output, tool_action
from treadle.runners.logins import LoginStatus, home_of, look_for_login, settings_folder
from treadle.runners.run_events import Action, ActionEvent, CompletedEvent, Event, ResumeToken, StartedEvent, TextDelta
from treadle.runners.runner import Runner

NAME: Final = "claude"
# Seconds: without an answer in time claude would go on as if it were a yes. Whoever watches has a limit of his own.
WATCH_S: Final = 86_400
MAX_OPEN: Final = 1000
"""Tool calls whose end is waited for; beyond this the oldest are dropped."""
# What the runner decides itself, and what would make claude use another session than the one that is locked.
_OURS: Final = frozenset(
    {
        "--output-format",
        "--input-format",
        "--permission-prompt-tool",
        "--resume",
        "-r",
        "--continue",
        "-c",
        "--from-pr",
        "--fork-session",
        "--bg",
        "--background",
        "--",
    }
)
_META: Final[tuple[str, ...]] = (
    "cwd",
    "model",
    "permissionMode",
    "apiKeySource",
    "claude_code_version",
    "tools",
    "mcp_servers",
)
_WHY: Final = {
    "error_max_turns": "claude stopped: it had reached its maximum number of turns",
    "error_max_budget_usd": "claude stopped: it had spent its budget",
    "error_during_execution": "claude was interrupted",
}
_RETRY: Final = ("attempt", "max_retries", "retry_delay_ms", "error_status", "error")
_EXIT_CODE: Final = re.compile(r"Exit code (\d+)\b")


@dataclass(slots=True)
class ClaudeState:
    """The state of a run."""

    cwd: str
    asks: bool
    notes: Notes = field(default_factory=lambda: Notes(NAME))
    started: bool = False
    text: str | None = None  # the last one, as long as nothing came after it
    open: dict[str, Action] = field(default_factory=dict)
    denied: set[str] = field(default_factory=set)
    retries: int = 0  # how often it began to try again
    retry: Action | None = None  # while it tries


def arguments(request: RunRequest) -> list[str]:
    words = [*request.extra_args]
    if servers := request.options.mcp_servers:
        tables = {server.name: {"command": server.command[0], "args": list(server.command[1:])} for server in servers}
        allowed = [f"mcp__{server.name}__{tool}" for server in servers for tool in server.tools]
        words += [
            "--mcp-config",
            msgspec.json.encode({"mcpServers": tables}).decode(),
            "--allowedTools",
            ",".join(allowed),
        ]
    words += ["-p", "--output-format", "stream-json", "--verbose"]
    if asks(request) or request.options.images:
        words += ["--input-format", "stream-json"]
    if asks(request):
        words += ["--permission-prompt-tool", "stdio"]
    if request.options.output_schema is not None:
        words += ["--json-schema", Path(request.options.output_schema).read_text()]
    if request.options.model is not None:
        words += ["--model", request.options.model]
    if request.options.effort is not None:
        words += ["--effort", request.options.effort]
    if request.resume is not None:
        words += ["--resume", request.resume.value]
    return words


def new_state(request: RunRequest) -> ClaudeState:
    return ClaudeState(request.cwd, asks(request))


def translate(state: ClaudeState, line: bytes) -> Iterable[Output]:
    message = read_object(line)
    if message is None:
        return ()
    match message.get("type"):
        case "assistant" | "user" as role:
            return list(_blocks(state, role, message))
        case "stream_event":
            delta = message["event"].get("delta") or {}
            if delta.get("type") == "text_delta" and delta.get("text") and not message.get("parent_tool_use_id"):
                return [TextDelta(NAME, delta["text"])]
        case "system":
            return _system(state, message)
        case "result":
            return list(_result(state, message))
        case "control_request":
            return [_question(message)]
        case "control_cancel_request":
            return [Withdrawn(str(message["request_id"]))]
    return ()


def finish(state: ClaudeState, ending: Ending, completed: CompletedEvent | None) -> Iterable[Event]:
    cut_off = completed is None and state.started and ending.exit_code == 0 and ending.stopped is None
    if cut_off:
        error = "claude ended without a result."
        return [CompletedEvent(NAME, ok=False, answer=state.text or "", error=error)]
    return end_by_code(NAME, NAME, ending, state.notes, answer=state.text or "", completed=completed, ok=False)


# --- the course of a run ---


def _system(state: ClaudeState, message: dict[str, Any]) -> Iterable[Output]:
    match message.get("subtype"):
        case "init":
            state.started = True
            state.cwd = str(message.get("cwd") or state.cwd)
            meta = {name: message[name] for name in _META if name in message}
            token = ResumeToken(NAME, message["session_id"])
            return [StartedEvent(NAME, token, title=message.get("model"), meta=meta)]
        case "api_retry":
            first = state.retry is None
            if first:
                state.retries += 1
            id = f"{NAME}.retry" if state.retries == 1 else f"{NAME}.retry.{state.retries}"
            reason = " ".join(str(message[name]) for name in ("error_status", "error") if message.get(name))
            title = f"retry {message.get('attempt')}/{message.get('max_retries')}" + (f": {reason}" if reason else "")
            state.retry = Action(id, "note", title, {name: message.get(name) for name in _RETRY})
            return [ActionEvent(NAME, state.retry, "started" if first else "updated")]
        case "compact_boundary":
            return [state.notes.note("the conversation was compacted", detail=message.get("compact_metadata"))]
    return ()


def _retried(state: ClaudeState, *, ok: bool) -> Iterator[Output]:
    if state.retry is not None:
        yield ActionEvent(NAME, state.retry, "completed", ok=ok)
        state.retry = None


def _result(state: ClaudeState, message: dict[str, Any]) -> Iterator[Output]:
    failed = bool(message.get("is_error"))
    yield from _retried(state, ok=not failed)
    for denial in message.get("permission_denials") or ():
        id, tool = str(denial.get("tool_use_id")), str(denial.get("tool_name"))
        if id in state.denied:
            continue  # a later turn of the same process reports it again
        state.denied.add(id)
        title = tool_action(id, tool, denial.get("tool_input"), state.cwd).title
        hint = None if state.asks else f"allow it: allowed_tools=[{tool!r}], or answer claude's questions with approve"
        detail = {"tool": tool, "input": denial.get("tool_input"), "tool_use_id": id}
        yield state.notes.warning(cut(f"{tool} was not allowed: {title}"), message=hint, detail=detail)
    text, answer, error = state.text or "", str(message.get("result") or ""), None
    if not answer and message.get("structured_output") is not None:
        # With `--json-schema`, what was asked for may stand beside an empty text.
        answer = msgspec.json.encode(message["structured_output"]).decode()
    if failed:
        # Notes of claude to its makers stand among the reasons.
        reasons = [str(why) for why in message.get("errors") or () if not str(why).startswith("[ede_diagnostic]")]
        subtype = str(message.get("subtype"))
        error = "\n".join(reasons) or answer or _WHY.get(subtype) or f"claude failed: {subtype.replace('_', ' ')}"
        answer = "" if text == error else text
    elif not answer:
        error = "claude gave no answer: the model's reply was empty or cut off"
    elif text and text != answer:
        yield state.notes.note(cut(text), message=text)
    state.text = answer  # if claude goes on by itself, this was commentary too
    yield CompletedEvent(NAME, ok=error is None, answer=answer, error=error, usage=_usage(message))
    if state.asks:
        yield CloseInput()


def _usage(message: dict[str, Any]) -> dict[str, Any] | None:
    # `usage` is that of the main conversation's last turn; `modelUsage` that of all models in this process.
    used: dict[str, Any] = {}
    for model in (message.get("modelUsage") or {}).values():
        if isinstance(model, dict):
            add_usage(
                used,
                fresh=model.get("inputTokens"),
                cached=model.get("cacheReadInputTokens"),
                cache_write=model.get("cacheCreationInputTokens"),
                output=model.get("outputTokens"),
            )
    main = message.get("usage")
    if not used and isinstance(main, dict):
        add_usage(
            used,
            fresh=main.get("input_tokens"),
            cached=main.get("cache_read_input_tokens"),
            cache_write=main.get("cache_creation_input_tokens"),
            output=main.get("output_tokens"),
        )
    if isinstance(message.get("total_cost_usd"), int | float):
        used["cost_usd"] = message["total_cost_usd"]
    return used or None


# --- texts and tools ---


def _blocks(state: ClaudeState, role: str, message: dict[str, Any]) -> Iterator[Output]:
    if role == "assistant":
        yield from _retried(state, ok="error" not in message)
    content, parent = message["message"].get("content"), message.get("parent_tool_use_id")
    origin = {"parent_tool_use_id": parent} if parent else {}
    for block in content if isinstance(content, list) else ():
        kind = str(block.get("type"))
        if kind.endswith("tool_result"):
            yield from _tool_ended(state, block)
            continue
        if role != "assistant":
            continue
        # What was the last text until now was commentary. A subagent's text never is the answer.
        if not parent:
            yield from _commentary(state, state.text, {})
            state.text = str(block.get("text") or "") if kind == "text" else None
        if kind == "thinking" or (kind == "text" and parent):
            yield from _commentary(state, block.get(kind), origin)
        elif kind.endswith("tool_use"):
            id, name = str(block["id"]), str(block.get("name"))
            shown = name.removeprefix("mcp__").replace("__", ".", 1) if name.startswith("mcp__") else name
            action = tool_action(id, shown, block.get("input"), state.cwd, {"tool": name, **origin})
            state.open[id] = action
            if len(state.open) > MAX_OPEN:
                del state.open[next(iter(state.open))]
            yield ActionEvent(NAME, action, "started")


def _commentary(state: ClaudeState, text: str | None, origin: Mapping[str, Any]) -> Iterator[Output]:
    if text:
        yield state.notes.note(cut(text), message=text, detail=origin)


def _tool_ended(state: ClaudeState, block: dict[str, Any]) -> Iterator[Output]:
    action = state.open.pop(str(block.get("tool_use_id")), None)
    if action is None:
        return
    content, failed = block.get("content"), bool(block.get("is_error"))
    parts = [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []
    output = content if isinstance(content, str) else "\n".join(str(p["text"]) for p in parts if p.get("text"))
    detail = {**action.detail, "output": short_output(output)} if output else action.detail
    code = _EXIT_CODE.match(output) if failed and action.kind == "command" else None
    if code is not None:
        detail = {**detail, "exit_code": int(code[1])}
    yield ActionEvent(NAME, msgspec.structs.replace(action, detail=detail), "completed", ok=not failed)


# --- the control protocol ---
#
# How claude gets its prompt, and how it asks questions if there is someone to answer. Both sides write one JSON object
# per line. Its questions are `control_request`s with an id; each must be answered, or claude waits forever.


def prompt(request: RunRequest) -> bytes:
    """The prompt as text, or as a message when it has pictures, or questions are to be answered after it."""
    if not asks(request) and not request.options.images:
        return plain_prompt(request)
    content: Any = request.prompt
    if request.options.images:
        content = []
        for file in request.options.images:
            kind = mimetypes.guess_type(file)[0] or "image/png"
            data = base64.b64encode(Path(file).read_bytes()).decode()
            content.append({"type": "image", "source": {"type": "base64", "media_type": kind, "data": data}})
        content.append({"type": "text", "text": request.prompt})
    message = _line({"type": "user", "message": {"role": "user", "content": content}})
    watched = {"PreToolUse": [{"matcher": None, "hookCallbackIds": ["watch"], "timeout": WATCH_S}]}
    hooks = None if request.options.watch is None else watched
    hello = {
        "type": "control_request",
        "request_id": "initialize",
        "request": {"subtype": "initialize", "hooks": hooks},
    }
    return _line(hello) + message if asks(request) else message


def asks(request: RunRequest) -> bool:
    """Whether claude's questions will be answered."""
    return request.options.approve is not None or request.options.watch is not None


def _question(message: dict[str, Any]) -> Output:
    """The question of a `control_request`: whether claude may use a tool, or is about to (`watch`). Any other is
    refused."""
    id, request = str(message["request_id"]), message.get("request") or {}
    call = request.get("input")
    if request.get("subtype") == "hook_callback" and isinstance(call, dict) and "tool_name" in call:
        given, detail = call.get("tool_input"), {"tool_use_id": call.get("tool_use_id")}
        given = given if isinstance(given, dict) else {}
        return ApprovalAsk(id=id, tool=str(call["tool_name"]), input=given, detail=detail, early=True)
    if request.get("subtype") == "can_use_tool":
        given = request.get("input")
        return ApprovalAsk(
            id=id, tool=str(request["tool_name"]), input=given if isinstance(given, dict) else {}, detail=request
        )
    refusal = f"{request.get('subtype')} is not supported"
    return Reply(
        _line({"type": "control_response", "response": {"subtype": "error", "request_id": id, "error": refusal}})
    )


def answer(ask: ApprovalAsk, choice: ApprovalAnswer) -> bytes:
    """What is written for a decision."""
    decision: dict[str, Any]
    why = choice.message or f"The user does not allow {ask.tool} here."
    if ask.early:
        denied = {"hookEventName": "PreToolUse", "permissionDecision": "deny", "permissionDecisionReason": why}
        decision = {} if choice.allow else {"hookSpecificOutput": denied}
    elif choice.allow:
        decision = {"behavior": "allow", "updatedInput": ask.input if choice.input is None else dict(choice.input)}
    else:
        decision = {"behavior": "deny", "message": why}
    response = {"subtype": "success", "request_id": ask.id, "response": decision}
    return _line({"type": "control_response", "response": response})


def _line(message: dict[str, Any]) -> bytes:
    return msgspec.json.encode(message) + b"\n"


def find_login(environ: Mapping[str, str]) -> LoginStatus:
    variables = (
        *("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"),
        *("CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX"),
    )
    folder = settings_folder(environ, "CLAUDE_CONFIG_DIR", ".claude")
    return look_for_login(environ, variables=variables, files=(folder / ".credentials.json",))


def own_places(environ: Mapping[str, str]) -> Sequence[str | os.PathLike[str]]:
    if environ.get("CLAUDE_CONFIG_DIR"):
        return (settings_folder(environ, "CLAUDE_CONFIG_DIR", ".claude"),)
    home = home_of(environ)
    file = home / ".claude.json"
    return (home / ".claude", file) if file.exists() else (home / ".claude",)


ENGINE: Final[Engine[ClaudeState]] = Engine(
    name=NAME,
    program="claude",
    install="npm install -g @anthropic-ai/claude-code",
    arguments=arguments,
    start=new_state,
    translate=translate,
    finish=finish,
    resume=ResumeLine(NAME, "claude --resume {}", "claude (?:--resume|-r)"),
    first_signal="interrupt",
    # It stores the conversation on disk after its last line; on a busy machine that takes a moment.
    timeouts=Timeouts(linger=10, grace=5),
    prompt=prompt,
    keeps_input_open=asks,
    answer=answer,
    own_flags=_OURS,
    watched=True,
    takes_mcp_servers=True,
    takes_images=True,
    takes_schema=True,
    orders=(".claude", ".mcp.json"),
    own_places=own_places,
    login=find_login,
    log_in="claude, and in it /login",
    tested="2.1.197",
)


class ClaudeRunner(Runner):
    """Runs `claude -p`.

    Args:
        claude_cmd: The program, or a command line that the arguments are added to.
        extra_args: Words for claude, such as `["--max-turns", "5"]`.
        allowed_tools: Tools that it may use without asking, in its own words: `["Read", "Bash(git *)"]`.
        permission_mode: claude's own rules: `default`, `acceptEdits`, `plan`, `dontAsk`, `bypassPermissions`, …
        stream: Whether the answer also comes in pieces, as `TextDelta`.
        choices: As `RunOptions`: `effort` is `low`, `medium`, `high`, `xhigh`, `max`; `approve` is asked
            before claude uses a tool that its own rules neither allow nor forbid; without it such tools are refused.
    """

    def __init__(
        self,
        claude_cmd: str | Sequence[str] = "claude",
        extra_args: Sequence[str] = (),
        *,
        allowed_tools: Sequence[str] = (),
        permission_mode: str | None = None,
        stream: bool = False,
        **choices: Unpack[RunChoices],
    ) -> None:
        words = texts("extra_args", extra_args)
        if allowed_tools:
            words += ["--allowedTools", option_value("allowed_tools", ",".join(texts("allowed_tools", allowed_tools)))]
        if permission_mode is not None:
            words += ["--permission-mode", option_value("permission_mode", permission_mode)]
        if stream:
            words.append("--include-partial-messages")
        super().__init__(ENGINE, claude_cmd, words, **choices)
