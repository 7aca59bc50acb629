"""The engine `claude`: what `claude -p` takes and what its lines mean. Pure, but for the class at the end.

A text of claude is its answer unless something follows it; then it was commentary, and becomes a note. So the last text
is held back until we know which of the two it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Unpack

import msgspec

from treadle.arguments import texts
from treadle.runners import claude_control
from treadle.runners.action_titles import cut, short_output, tool_action
from treadle.runners.engine import CloseInput, Ending, Engine, Output, RunChoices, RunRequest, Timeouts
from treadle.runners.json_line import read_object
from treadle.runners.notes import Notes, end_by_code
from treadle.runners.resume import ResumeLine
from treadle.runners.run_events import Action, ActionEvent, CompletedEvent, Event, ResumeToken, StartedEvent, TextDelta
from treadle.runners.run_usage import add_usage
from treadle.runners.runner import Runner

NAME: Final = "claude"
MAX_OPEN: Final = 1000
"""Tool calls whose end is waited for; the oldest are forgotten beyond this."""
# What the runner says itself, and what would make it talk to another session than the one it has locked.
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
_EXIT_CODE: Final = re.compile(r"Exit code (\d+)\b")


@dataclass(slots=True)
class ClaudeState:
    """What is remembered during a run."""

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
    words = [*request.extra_args, "-p", "--output-format", "stream-json", "--verbose"]
    if claude_control.asks(request):
        words += ["--input-format", "stream-json", "--permission-prompt-tool", "stdio"]
    if request.options.model is not None:
        words += ["--model", request.options.model]
    if request.options.effort is not None:
        words += ["--effort", request.options.effort]
    if request.resume is not None:
        words += ["--resume", request.resume.value]
    return words


def new_state(request: RunRequest) -> ClaudeState:
    return ClaudeState(request.cwd, claude_control.asks(request))


def translate(state: ClaudeState, line: bytes) -> Iterable[Output]:
    message = read_object(line)
    if message is None:
        return ()
    match message.get("type"):
        case "assistant" | "user" as role:
            return list(_blocks(state, role, message))
        case "stream_event":
            return _delta(message)
        case "system":
            return _system(state, message)
        case "result":
            return list(_result(state, message))
        case "control_request":
            return [claude_control.question(message)]
        case "control_cancel_request":
            return [claude_control.withdrawal(message)]
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
            return [_retry(state, message)]
        case "compact_boundary":
            return [state.notes.note("the conversation was compacted", detail=message.get("compact_metadata"))]
    return ()


def _retry(state: ClaudeState, message: dict[str, Any]) -> ActionEvent:
    first = state.retry is None
    if first:
        state.retries += 1
    id = f"{NAME}.retry" if state.retries == 1 else f"{NAME}.retry.{state.retries}"
    reason = " ".join(str(message[name]) for name in ("error_status", "error") if message.get(name))
    title = f"retry {message.get('attempt')}/{message.get('max_retries')}" + (f": {reason}" if reason else "")
    detail = {name: message.get(name) for name in ("attempt", "max_retries", "retry_delay_ms", "error_status", "error")}
    state.retry = Action(id, "note", title, detail)
    return ActionEvent(NAME, state.retry, "started" if first else "updated")


def _retried(state: ClaudeState, *, ok: bool) -> Iterator[Output]:
    if state.retry is not None:
        yield ActionEvent(NAME, state.retry, "completed", ok=ok)
        state.retry = None


def _delta(message: dict[str, Any]) -> Iterable[Output]:
    delta = message["event"].get("delta") or {}
    if delta.get("type") == "text_delta" and delta.get("text") and not message.get("parent_tool_use_id"):
        return [TextDelta(NAME, delta["text"])]
    return ()


def _result(state: ClaudeState, message: dict[str, Any]) -> Iterator[Output]:
    failed = bool(message.get("is_error"))
    yield from _retried(state, ok=not failed)
    for denial in message.get("permission_denials") or ():
        yield from _denied(state, denial)
    said, answer = state.text or "", _answer(message)
    error = None
    if failed:
        error = _why(message, answer)
        answer = "" if said == error else said
    elif not answer:
        error = "claude gave no answer: the model's reply was empty or cut off"
    elif said and said != answer:
        yield state.notes.note(cut(said), message=said)
    state.text = answer  # if claude goes on by itself, this was said on the way too
    yield CompletedEvent(NAME, ok=error is None, answer=answer, error=error, usage=_usage(message))
    if state.asks:
        yield CloseInput()


def _answer(message: dict[str, Any]) -> str:
    """With `--json-schema`, what was asked for may stand beside an empty text."""
    if not message.get("result") and message.get("structured_output") is not None:
        return msgspec.json.encode(message["structured_output"]).decode()
    return str(message.get("result") or "")


def _why(message: dict[str, Any], answer: str) -> str:
    # Notes of claude to its makers stand among the reasons.
    told = [str(error) for error in message.get("errors") or () if not str(error).startswith("[ede_diagnostic]")]
    subtype = str(message.get("subtype"))
    return "\n".join(told) or answer or _WHY.get(subtype) or f"claude failed: {subtype.replace('_', ' ')}"


def _usage(message: dict[str, Any]) -> dict[str, Any] | None:
    """`usage` is that of the main conversation's last turn; `modelUsage` that of all models in this process."""
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


def _denied(state: ClaudeState, denial: dict[str, Any]) -> Iterator[Output]:
    id, tool = str(denial.get("tool_use_id")), str(denial.get("tool_name"))
    if id in state.denied:
        return  # a later turn of the same process tells it again
    state.denied.add(id)
    title = tool_action(id, tool, denial.get("tool_input"), state.cwd).title
    hint = None if state.asks else f"allow it: allowed_tools=[{tool!r}], or answer claude's questions with approve"
    detail = {"tool": tool, "input": denial.get("tool_input"), "tool_use_id": id}
    yield state.notes.warning(cut(f"{tool} was not allowed: {title}"), message=hint, detail=detail)


# --- what is said and done ---


def _blocks(state: ClaudeState, role: str, message: dict[str, Any]) -> Iterator[Output]:
    if role == "assistant":
        yield from _retried(state, ok="error" not in message)
    content = message["message"].get("content")
    if not isinstance(content, list):
        return
    for block in content:
        kind = str(block.get("type"))
        if kind.endswith("tool_result"):
            yield from _tool_ended(state, block)
        elif role == "assistant":
            yield from _said_or_begun(state, kind, block, message.get("parent_tool_use_id"))


def _said_or_begun(state: ClaudeState, kind: str, block: dict[str, Any], parent: str | None) -> Iterator[Output]:
    origin = {"parent_tool_use_id": parent} if parent else {}
    if kind == "text":
        if parent:  # a subagent's words are not the answer
            yield from _said(state, block.get("text"), origin)
        else:
            yield from _said(state, state.text, {})
            state.text = str(block.get("text") or "")
        return
    if not parent:
        yield from _said(state, state.text, {})
        state.text = None
    if kind == "thinking":
        yield from _said(state, block.get("thinking"), origin)
    elif kind.endswith("tool_use"):
        yield _tool_begun(state, block, origin)


def _said(state: ClaudeState, text: str | None, origin: Mapping[str, Any]) -> Iterator[Output]:
    if text:
        yield state.notes.note(cut(text), message=text, detail=origin)


def _tool_begun(state: ClaudeState, block: dict[str, Any], origin: Mapping[str, Any]) -> ActionEvent:
    id, name = str(block["id"]), str(block.get("name"))
    shown = name
    if name.startswith("mcp__"):
        shown = name.removeprefix("mcp__").replace("__", ".", 1)
    action = tool_action(id, shown, block.get("input"), state.cwd, {"tool": name, **origin})
    state.open[id] = action
    if len(state.open) > MAX_OPEN:
        del state.open[next(iter(state.open))]
    return ActionEvent(NAME, action, "started")


def _tool_ended(state: ClaudeState, block: dict[str, Any]) -> Iterator[Output]:
    action = state.open.pop(str(block.get("tool_use_id")), None)
    if action is None:
        return
    output, failed = _flat(block.get("content")), bool(block.get("is_error"))
    detail = {**action.detail, "output": short_output(output)} if output else action.detail
    code = _EXIT_CODE.match(output) if failed and action.kind == "command" else None
    if code is not None:
        detail = {**detail, "exit_code": int(code[1])}
    yield ActionEvent(NAME, msgspec.structs.replace(action, detail=detail), "completed", ok=not failed)


def _flat(content: object) -> str:
    if isinstance(content, str):
        return content
    blocks = content if isinstance(content, list) else []
    return "\n".join(str(block["text"]) for block in blocks if isinstance(block, dict) and block.get("text"))


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
    # It keeps the conversation on disk after its last word; on a busy machine that takes a moment.
    timeouts=Timeouts(linger=10, grace=5),
    prompt=claude_control.prompt,
    keeps_input_open=claude_control.asks,
    answer=claude_control.answer,
    own_flags=_OURS,
)


class ClaudeRunner(Runner):
    """Runs `claude -p`.

    Args:
        claude_cmd: The program, or a command line that the arguments are added to.
        extra_args: Words for claude, such as `["--max-turns", "5"]`.
        allowed_tools: Tools that it may use without asking, in its own words: `["Read", "Bash(git *)"]`.
        permission_mode: claude's own rules: `default`, `acceptEdits`, `plan`, `dontAsk`, `bypassPermissions`, …
        stream: Whether the answer also comes in pieces, as `TextDelta`.
        **choices: As `RunOptions`: `effort` is `low`, `medium`, `high`, `xhigh`, `max`; `approve` is asked
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
            words += ["--allowedTools", ",".join(texts("allowed_tools", allowed_tools))]
        if permission_mode is not None:
            words += ["--permission-mode", permission_mode]
        if stream:
            words.append("--include-partial-messages")
        super().__init__(ENGINE, claude_cmd, words, **choices)
