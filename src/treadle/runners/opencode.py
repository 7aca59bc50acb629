"""The engine `opencode`: what `opencode run --format json` takes and what its lines mean. Pure, but for the class.

A run is a sequence of steps, each one response of the model. Only the text of the last step is the answer; earlier text
becomes notes. A tool is only reported when it has ended, and retries are not reported at all.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Unpack

import msgspec

from treadle.errors import ArgumentValueError
from treadle.runners.engine import Ending, Engine, GiveUp, Output, ResumeLine, RunChoices, RunRequest, Timeouts
from treadle.runners.engine_reports import Notes, add_usage, cut, end_by_code, read_object, short_output, tool_action
from treadle.runners.logins import PROVIDER_KEYS, LoginStatus, look_for_login, settings_folder
from treadle.runners.run_events import Action, ActionEvent, CompletedEvent, Event, ResumeToken, StartedEvent
from treadle.runners.runner import Runner

NAME: Final = "opencode"
MAX_CIRCLES: Final = 5
"""Steps without a proper end, one after the other, until it is taken for what it is: opencode would go on for ever."""
MCP_TIMEOUT_MS: Final = 3_600_000
_CONTENT: Final = "OPENCODE_CONFIG_CONTENT"
_INSTRUCTIONS: Final = ("AGENTS.md", "CLAUDE.md", "CONTEXT.md")  # the first that is there, as it does itself
_OWN: Final = frozenset(
    {"--format", "--session", "-s", "--continue", "-c", "--fork", "--attach", "--interactive", "-i"}
)


@dataclass(slots=True)
class OpenCodeState:
    """The state of a run."""

    cwd: str
    notes: Notes
    started: bool = False
    steps: int = 0
    texts: list[str] = field(default_factory=list)  # of this step, since its last tool
    used_tool: bool = False  # in this step
    circles: int = 0
    used: dict[str, Any] = field(default_factory=dict)

    @property
    def answer(self) -> str:
        """The answer, if nothing follows."""
        return "\n\n".join(self.texts)


def arguments(request: RunRequest) -> list[str]:
    words = ["run", "--format", "json", *request.extra_args]
    if request.resume is not None:
        words += ["--session", request.resume.value]
    if request.options.model is not None:
        words += ["--model", request.options.model]
    if request.options.effort is not None:
        words += ["--variant", request.options.effort]
    return [*words, *(f"--file={os.path.abspath(image)}" for image in request.options.images)]


def run_env(request: RunRequest, environ: Mapping[str, str]) -> Mapping[str, str]:
    """MCP servers, and that their tools need no yes, which it is told by its settings alone: these go over those of
    files, and keep the user's own. opencode lays rules over each other one by one, so the other tools are as they were.

    It writes into the `.opencode` of a project, and ends when it cannot. A sandbox lets nobody write there, and shows
    one where there is none: then opencode gets the instructions of the project, and none of its settings.
    """
    own = os.path.join(request.cwd, ".opencode", ".gitignore")
    is_shut_out = request.options.sandbox is not None and not os.path.exists(own)
    if not request.options.mcp_servers and not is_shut_out:
        return {}
    given = read_object((environ.get(_CONTENT) or "{}").encode())
    if given is None:
        raise ArgumentValueError("env", f"{_CONTENT} is no object of JSON: correct it, or leave it out")
    more = {}
    if is_shut_out:
        more["OPENCODE_DISABLE_PROJECT_CONFIG"] = "1"
        paths = (os.path.join(request.cwd, name) for name in _INSTRUCTIONS)
        found = next((path for path in paths if os.path.isfile(path)), None)
        if found is not None:
            given["instructions"] = [*(given.get("instructions") or ()), found]
    servers = {
        server.name: {"type": "local", "command": list(server.command), "enabled": True, "timeout": MCP_TIMEOUT_MS}
        for server in request.options.mcp_servers
    }
    allowed = {f"{server.name}_{tool}": "allow" for server in request.options.mcp_servers for tool in server.tools}
    rules = given.get("permission")
    rules = {"*": rules} if isinstance(rules, str) else _table(rules)
    content = {**given, "mcp": {**_table(given.get("mcp")), **servers}, "permission": {**rules, **allowed}}
    return {**more, _CONTENT: msgspec.json.encode(content).decode()}


def new_state(request: RunRequest) -> OpenCodeState:
    return OpenCodeState(request.cwd, Notes(NAME))


def translate(state: OpenCodeState, line: bytes) -> Iterable[Output]:
    message = read_object(line)
    if message is None:
        return ()
    outputs = _translate(state, message)
    session = message.get("sessionID")
    if state.started or not isinstance(session, str):
        return outputs
    state.started = True
    return [StartedEvent(NAME, ResumeToken(NAME, session)), *outputs]


def finish(state: OpenCodeState, ending: Ending, completed: CompletedEvent | None) -> Iterable[Event]:
    answer, used = state.answer, dict(state.used) or None
    return end_by_code(NAME, NAME, ending, state.notes, answer=answer, completed=completed, ok=bool(answer), usage=used)


def _translate(state: OpenCodeState, message: dict[str, Any]) -> Iterable[Output]:
    part = _table(message.get("part"))
    match message.get("type"):
        case "step_start":
            state.steps += 1
            state.used_tool = False
            step = Action(f"turn_{state.steps}", "turn", f"step {state.steps}")
            return [*_commentary(state), ActionEvent(NAME, step, "started")]
        case "text":
            if part.get("text"):
                state.texts.append(str(part["text"]))
        case "reasoning":
            if part.get("text"):
                return [state.notes.note(cut(str(part["text"])), message=str(part["text"]))]
        case "tool_use":
            state.used_tool = True
            return [*_commentary(state), _tool(state, part)]
        case "step_finish":
            return _step_finished(state, part)
        case "error":
            error = _table(message.get("error"))
            reason = _table(error.get("data")).get("message") or error.get("message") or error.get("name")
            return [_completed(state, error=str(reason or "opencode reported an error"))]
    return ()


def _commentary(state: OpenCodeState) -> list[ActionEvent]:
    """Notes of the texts that turned out not to be the answer."""
    texts, state.texts = state.texts, []
    return [state.notes.note(cut(text), message=text) for text in texts]


def _tool(state: OpenCodeState, part: Mapping[str, Any]) -> ActionEvent:
    tool = _table(part.get("state"))
    status, code = tool.get("status"), _table(tool.get("metadata")).get("exit")
    detail: dict[str, Any] = {"status": status}
    if code is not None:
        detail["exit_code"] = code
    if tool.get("output"):
        detail["output"] = short_output(str(tool["output"]))
    action = tool_action(str(part.get("callID")), str(part.get("tool")), tool.get("input"), state.cwd, detail)
    if status not in ("completed", "error"):
        return ActionEvent(NAME, action, "started")
    ok = status == "completed" and code in (0, None)
    return ActionEvent(NAME, action, "completed", ok=ok, message=str(tool["error"]) if tool.get("error") else None)


def _step_finished(state: OpenCodeState, part: Mapping[str, Any]) -> Iterable[Output]:
    tokens = _table(part.get("tokens"))
    if tokens:
        cache = _table(tokens.get("cache"))
        add_usage(
            state.used,
            fresh=tokens.get("input"),
            cached=cache.get("read"),
            cache_write=cache.get("write"),
            output=tokens.get("output"),
            reasoning=tokens.get("reasoning", 0),
            cost=part.get("cost"),
        )
    reason = part.get("reason")
    if reason == "unknown" and not state.used_tool:
        state.circles += 1
        if state.circles >= MAX_CIRCLES:
            return [GiveUp("opencode goes round in circles: the model's answers end before they are complete. Stopped")]
        return ()
    state.circles = 0
    # Some providers say "stop" when they call a tool; opencode goes on then.
    if state.used_tool or reason in ("tool-calls", "unknown"):
        return ()
    if reason == "length":
        cut_off = "the answer was cut off: the model has reached its limit of output"
        return [state.notes.warning(cut_off), _completed(state, error=None if state.answer else cut_off)]
    if reason in ("content-filter", "error"):
        return [_completed(state, error=f"the model gave no answer ({reason})")]
    return [_completed(state)]


def _completed(state: OpenCodeState, error: str | None = None) -> CompletedEvent:
    return CompletedEvent(NAME, ok=error is None, answer=state.answer, error=error, usage=dict(state.used) or None)


def _table(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def find_login(environ: Mapping[str, str]) -> LoginStatus:
    data = settings_folder(environ, "XDG_DATA_HOME", ".local/share")
    config = settings_folder(environ, "XDG_CONFIG_HOME", ".config")
    settings = environ.get("OPENCODE_CONFIG") or config / "opencode" / "opencode.json"
    return look_for_login(environ, variables=PROVIDER_KEYS, files=(data / "opencode" / "auth.json", settings))


def own_places(environ: Mapping[str, str]) -> Sequence[Path]:
    kinds = (("DATA", ".local/share"), ("CONFIG", ".config"), ("STATE", ".local/state"), ("CACHE", ".cache"))
    return [settings_folder(environ, f"XDG_{kind}_HOME", usual) / "opencode" for kind, usual in kinds]


ENGINE: Final[Engine[OpenCodeState]] = Engine(
    name=NAME,
    program="opencode",
    install="npm install -g opencode-ai",
    arguments=arguments,
    start=new_state,
    translate=translate,
    finish=finish,
    resume=ResumeLine(
        NAME, "opencode --session {}", r"opencode(?:[ \t]+run)?[ \t]+(?:--session|-s)", r"ses_[A-Za-z0-9]+"
    ),
    # When its provider fails it tries again for ever, and prints nothing. But it is as silent while a tool or a
    # subagent runs, so it gets time.
    timeouts=Timeouts(idle=600, linger=10),
    own_flags=_OWN,
    run_env=run_env,
    takes_mcp_servers=True,
    takes_images=True,
    orders=(".opencode", "opencode.json", "opencode.jsonc"),
    own_places=own_places,
    login=find_login,
    log_in="opencode auth login",
    tested="1.18.33",
)


class OpenCodeRunner(Runner):
    """Runs `opencode run --format json`.

    Args:
        opencode_cmd: The program, or a command line that the arguments are added to.
        extra_args: Words behind `run`, such as `["--thinking"]` to hear its thoughts, or `["--auto"]` to allow what is
            not denied; without that, what it would have to ask for is refused.
        choices: As `RunOptions`: `model` is `provider/model`, `effort` the variant of the model, such as `high`;
            opencode cannot ask when it runs headless, so leave `approve` out.
    """

    def __init__(
        self,
        opencode_cmd: str | Sequence[str] = "opencode",
        extra_args: Sequence[str] = (),
        **choices: Unpack[RunChoices],
    ) -> None:
        super().__init__(ENGINE, opencode_cmd, extra_args, **choices)
