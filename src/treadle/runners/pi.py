"""The engine `pi`: what `pi --print --mode json` takes and what its lines mean. Pure, but for the class at the end.

pi exits with 0 whether it succeeded or not, and what looks like its end may be followed by a retry: the model's last
message decides. Most lines repeat the whole message with one more word, so lines are classified before they are
decoded.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Unpack

from msgspec import structs

from treadle.arguments import option_value, texts
from treadle.runners.engine import UUID, Ending, Engine, Output, ResumeLine, RunChoices, RunRequest, Timeouts
from treadle.runners.engine_reports import (
    Notes,
    add_usage,
    cut,
    end_by_code,
    number,
    read_object,
    short_output,
    tool_action,
)
from treadle.runners.logins import PROVIDER_KEYS, LoginStatus, look_for_login, settings_folder
from treadle.runners.run_events import (
    Action,
    ActionEvent,
    CompletedEvent,
    Event,
    Level,
    Phase,
    ResumeToken,
    StartedEvent,
    TextDelta,
)
from treadle.runners.runner import Runner

NAME: Final = "pi"
MAX_RUNNING: Final = 256
"""Tools that run at once; of more the first are dropped, and their ends have no arguments."""
_OWN: Final = frozenset(
    {"--mode", "--session", "--continue", "-c", "--resume", "-r", "--fork", "--export", "--list-models"}
)
_KIND: Final = re.compile(rb'\{"type":"(\w+)"')
_TEXT: Final = re.compile(
    rb'\{"type":"message_update","assistantMessageEvent":\{"type":"text_delta","contentIndex":\d+,'
    rb'("delta":"[^"\\]*(?:\\.[^"\\]*)*")'
)


@dataclass(slots=True)
class PiState:
    """The state of a run."""

    cwd: str
    resume: ResumeToken | None
    notes: Notes
    started: bool = False
    turns: int = 0
    last: dict[str, Any] | None = None  # the last message of the model
    answer: str = ""
    running: dict[str, Action] = field(default_factory=dict)
    efforts: dict[str, int] = field(default_factory=dict)  # how often it retried, or made its context smaller
    under_way: dict[str, str] = field(default_factory=dict)  # the id of each effort that has not ended
    used: dict[str, Any] = field(default_factory=dict)


def arguments(request: RunRequest) -> list[str]:
    words = ["--print", "--mode", "json", *request.extra_args]
    if request.options.model is not None:
        words += ["--model", request.options.model]
    if request.options.effort is not None:
        words += ["--thinking", request.options.effort]
    if request.resume is not None:
        words += ["--session", request.resume.value]
    return [*words, *(f"@{os.path.abspath(image)}" for image in request.options.images)]


def new_state(request: RunRequest) -> PiState:
    return PiState(request.cwd, request.resume, Notes(NAME))


def translate(state: PiState, line: bytes) -> Iterable[Output]:
    found = _KIND.match(line)
    if found is None:
        return _decoded(state, line)
    match found[1]:
        case b"message_update":
            found = _TEXT.match(line)
            piece = found and read_object(b"{%b}" % found[1])
            return [TextDelta(NAME, piece["delta"])] if piece and piece["delta"] else ()
        case b"turn_start":
            return [_turn_started(state)]
        case b"agent_end":  # with all messages of the run, which all came before
            return _verdict(state)
        case b"turn_end" | b"message_start" | b"agent_start":
            return ()
    return _decoded(state, line)


def finish(state: PiState, ending: Ending, completed: CompletedEvent | None) -> Iterable[Event]:
    if completed is None and ending.stopped is None and ending.exit_code == 0:
        if state.turns:
            return [_completed(state, error="pi ended in the middle of its work.")]
        why = "what it printed was not understood; its version may be too old or too new"
        if state.started:
            why = "the model was asked nothing"
        elif state.resume is not None and ending.lines == 0:
            why = "it goes on with a session only in the folder where the session began"
        return [_completed(state, error=f"pi ended without an answer: {why}.")]
    answer, used = state.answer, dict(state.used) or None
    return end_by_code(NAME, NAME, ending, state.notes, answer=answer, completed=completed, ok=False, usage=used)


def _decoded(state: PiState, line: bytes) -> Iterable[Output]:
    message = read_object(line)
    if message is None:
        return ()
    match message.get("type"):
        case "session":
            state.started = True
            session = str(message["id"])
            token = ResumeToken(NAME, session)
            if state.resume is not None and state.resume.value.endswith(".jsonl"):
                token = state.resume  # it was named by its file
            return [StartedEvent(NAME, token, meta={"session": session, "cwd": message.get("cwd")})]
        case "message_end":
            return _message(state, message.get("message"))
        case "tool_execution_start" | "tool_execution_update" | "tool_execution_end" as kind:
            return _tool(state, kind, message)
        case "auto_retry_start":
            delay = number(message.get("delayMs")) / 1000
            title = f"retry {message.get('attempt')}/{message.get('maxAttempts')} in {delay:g} s"
            return [_effort(state, "retry", f"{title}: {message.get('errorMessage')}", "started")]
        case "auto_retry_end":
            title = "the retry worked" if message.get("success") else f"no more retries: {message.get('finalError')}"
            return [_effort(state, "retry", title, "completed", ok=message.get("success") is True)]
        case "compaction_start":
            return [_effort(state, "compaction", "making the context smaller", "started")]
        case "compaction_end":
            problem = message.get("errorMessage") or ("aborted" if message.get("aborted") else None)
            title = f"the context could not be made smaller: {problem}" if problem else "the context is smaller now"
            return [_effort(state, "compaction", title, "completed", ok=problem is None)]
        case "turn_start":
            return [_turn_started(state)]
        case "agent_end":
            return _verdict(state)
    return ()


def _turn_started(state: PiState) -> ActionEvent:
    state.turns += 1
    return ActionEvent(NAME, Action(f"turn_{state.turns}", "turn", f"turn {state.turns}"), "started")


# --- texts of the model ---


def _message(state: PiState, message: object) -> Iterator[Output]:
    if not isinstance(message, dict) or message.get("role") != "assistant":
        return
    state.last = message
    usage = _table(message.get("usage"))
    if usage:
        add_usage(
            state.used,
            fresh=usage.get("input"),
            cached=usage.get("cacheRead"),
            cache_write=usage.get("cacheWrite"),
            output=usage.get("output"),
            cost=_table(usage.get("cost")).get("total"),
        )
    blocks = [block for block in message.get("content") or () if isinstance(block, dict)]
    for block in blocks:
        if block.get("type") == "thinking" and block.get("thinking"):
            yield state.notes.note(cut(str(block["thinking"])), message=str(block["thinking"]))
    text = "\n\n".join(str(block["text"]) for block in blocks if block.get("type") == "text" and block.get("text"))
    on_the_way = message.get("stopReason") == "toolUse"
    state.answer = "" if on_the_way else text
    if on_the_way and text:
        yield state.notes.note(cut(text), message=text)


def _verdict(state: PiState) -> Iterator[Output]:
    """What the last message of the model means for the run, if no retry follows."""
    last = state.last or {}
    reason = last.get("stopReason")
    if reason in ("error", "aborted"):
        yield _completed(state, error=str(last.get("errorMessage") or f"the model's answer ended with: {reason}"))
    elif reason == "length":
        cut_off = "the answer was cut off: the model has reached its limit of output"
        yield state.notes.warning(cut_off)
        yield _completed(state, error=None if state.answer else cut_off)
    elif not state.answer and not _table(last.get("usage")).get("totalTokens"):
        yield _completed(state, error="pi gave no answer: the model's stream ended before it said anything.")
    else:
        yield _completed(state)


def _completed(state: PiState, error: str | None = None) -> CompletedEvent:
    return CompletedEvent(NAME, ok=error is None, answer=state.answer, error=error, usage=dict(state.used) or None)


def _table(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


# --- tools, retries, compaction ---


def _tool(state: PiState, kind: str, message: dict[str, Any]) -> Iterator[ActionEvent]:
    id, tool = str(message.get("toolCallId")), str(message.get("toolName"))
    if kind == "tool_execution_start":
        while len(state.running) >= MAX_RUNNING:
            del state.running[next(iter(state.running))]
        state.running[id] = tool_action(id, tool, message.get("args"), state.cwd)
        yield ActionEvent(NAME, state.running[id], "started")
        return
    ended = kind == "tool_execution_end"
    content = _table(message.get("result" if ended else "partialResult")).get("content")
    blocks = map(_table, content if isinstance(content, list) else ())
    output = "\n".join(str(block["text"]) for block in blocks if block.get("text"))
    action = state.running.get(id) or tool_action(id, tool, message.get("args"), state.cwd)
    if output:
        action = structs.replace(action, detail={**action.detail, "output": short_output(output)})
    if ended:
        state.running.pop(id, None)
        yield ActionEvent(NAME, action, "completed", ok=not message.get("isError"))
    elif output:
        yield ActionEvent(NAME, action, "updated")


def _effort(state: PiState, name: str, title: str, phase: Phase, *, ok: bool | None = None) -> ActionEvent:
    """An event of the one note that spans all attempts."""
    id = state.under_way.get(name)
    if id is None:
        state.efforts[name] = number = state.efforts.get(name, 0) + 1
        state.under_way[name] = id = f"{NAME}.{name}" if number == 1 else f"{NAME}.{name}.{number}"
    elif phase == "started":
        phase = "updated"
    if phase == "completed":
        del state.under_way[name]
    trouble = not ok if name == "retry" else ok is False
    level: Level = "warning" if trouble else "info"
    return ActionEvent(NAME, Action(id, "note", cut(title)), phase, ok=ok, level=level)


def find_login(environ: Mapping[str, str]) -> LoginStatus:
    folder = settings_folder(environ, "PI_CODING_AGENT_DIR", ".pi/agent")
    return look_for_login(environ, variables=PROVIDER_KEYS, files=(folder / "auth.json", folder / "models.json"))


ENGINE: Final[Engine[PiState]] = Engine(
    name=NAME,
    program="pi",
    install="npm install -g @mariozechner/pi-coding-agent",
    arguments=arguments,
    start=new_state,
    translate=translate,
    finish=finish,
    # A session is also its file. The full id: its beginning is a time, and sessions of one minute share it.
    resume=ResumeLine(NAME, "pi --session {}", r"pi[ \t]+--session", rf"{UUID}|/[^\s\"'`]+\.jsonl"),
    # It may write its session anew after its last word.
    timeouts=Timeouts(linger=10),
    own_flags=_OWN,
    takes_images=True,
    orders=(".pi",),
    own_places=lambda environ: (settings_folder(environ, "PI_CODING_AGENT_DIR", ".pi/agent"),),
    login=find_login,
    log_in="pi, and in it /login",
    tested="0.73.1",
)


class PiRunner(Runner):
    """Runs `pi --print --mode json`.

    Args:
        pi_cmd: The program, or a command line that the arguments are added to.
        extra_args: Words to add, such as `["--tools", "read,grep"]`.
        provider: Whose model it is; else what pi is configured to use.
        choices: As `RunOptions`: `model` may be `provider/model`, `effort` is `off`, `minimal`, `low`, `medium`,
            `high`, `xhigh`; pi goes on with a session only in the `cwd` where it began, and asks nobody, so leave
            `approve` out.
    """

    def __init__(
        self,
        pi_cmd: str | Sequence[str] = "pi",
        extra_args: Sequence[str] = (),
        *,
        provider: str | None = None,
        **choices: Unpack[RunChoices],
    ) -> None:
        words = [] if provider is None else ["--provider", option_value("provider", provider)]
        super().__init__(ENGINE, pi_cmd, [*words, *texts("extra_args", extra_args)], **choices)
