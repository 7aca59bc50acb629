"""The engine `codex`: what `codex exec --json` takes and what its lines mean. Pure, but for the class at the end."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Unpack

import msgspec

from treadle.runners.engine import Ending, Engine, Output, ResumeLine, RunChoices, RunRequest, Waits, find_flag
from treadle.runners.engine_reports import (
    Notes,
    command_title,
    cut,
    end_by_code,
    files_title,
    read_object,
    short_output,
)
from treadle.runners.logins import LoginStatus, look_for_login, read_start, settings_folder
from treadle.runners.run_events import (
    Action,
    ActionEvent,
    ActionKind,
    CompletedEvent,
    Event,
    Phase,
    ResumeToken,
    StartedEvent,
)
from treadle.runners.runner import Runner

NAME: Final = "codex"
USAGE: Final = (
    "input_tokens",
    "cached_input_tokens",
    "cache_write_input_tokens",
    "output_tokens",
    "reasoning_output_tokens",
)
# Errors after which the turn goes on by itself.
_GOES_ON: Final = re.compile(r"Reconnecting\.\.\. \d+/\d+|(Waiting for provider )")
# They belong behind the word `exec`, where the runner puts its own; before it codex does not know them.
_EXEC_ONLY: Final = frozenset(
    {
        "--skip-git-repo-check",
        "--json",
        "--experimental-json",
        "--output-schema",
        "--output-last-message",
        "--color",
        "-o",
        "--ephemeral",
        "--ignore-user-config",
        "--ignore-rules",
        "--thread-source",
        "--cyber-access-program",
    }
)
MCP_TIMEOUT_S: Final = 3600
"""For a call of a tool that is given to it: who gives it has limits of his own."""


def find_exec_only_flag(args: Sequence[str]) -> str | None:
    """The first word that cannot go before `exec`, as it was given."""
    return find_flag(args, _EXEC_ONLY)


@dataclass(slots=True)
class CodexState:
    """The state of a run."""

    engine: str
    label: str
    cwd: str
    used_before: Mapping[str, int] | None  # by the session until this run; None when that is unknown
    notes: Notes
    started: bool = False
    turns: int = 0
    in_turn: bool = False
    final: str | None = None
    plain: str | None = None
    used: dict[str, int] = field(default_factory=dict)
    error: str | None = None  # reported by codex, and not yet by us: the failure of the turn repeats it
    reconnecting: bool = False

    @property
    def answer(self) -> str:
        """The answer: the message that is marked as final, else the last one without a mark."""
        return self.final if self.final is not None else self.plain or ""


def arguments(request: RunRequest) -> list[str]:
    words = [*request.extra_args]
    if request.options.model is not None:
        words += ["--model", request.options.model]
    if request.options.effort is not None:
        words += ["-c", f"model_reasoning_effort={request.options.effort}"]
    if request.options.sandbox is not None:
        words += ["-c", "sandbox_mode=danger-full-access"]  # its own cannot be made inside of another
    for server in request.options.mcp_servers:
        settings = {"command": server.command[0], "args": list(server.command[1:]), "tool_timeout_sec": MCP_TIMEOUT_S}
        # Headless it asks nobody, and would refuse them.
        approvals = {f"tools.{tool}.approval_mode": "approve" for tool in server.tools}
        for key, value in {**settings, **approvals}.items():
            words += ["-c", f"mcp_servers.{server.name}.{key}={msgspec.json.encode(value).decode()}"]
    words += ["exec", "--json", "--skip-git-repo-check", "--color=never"]
    if request.resume is not None:
        words += ["resume", request.resume.value]
    if request.options.output_schema is not None:
        words.append(f"--output-schema={os.path.abspath(request.options.output_schema)}")
    words += [f"--image={os.path.abspath(image)}" for image in request.options.images]
    return [*words, "-"]


def new_state(request: RunRequest, engine: str = NAME, label: str = "codex exec") -> CodexState:
    before: Mapping[str, int] | None = {}
    if request.resume is not None:
        before = (request.carried or {}).get("usage")
    return CodexState(engine, label, request.cwd, before, Notes(engine))


def translate(state: CodexState, line: bytes) -> Iterable[Output]:
    message = read_object(line)
    if message is None:
        return ()
    kind = message.get("type")
    held, state.error = state.error, None
    if held is not None and not (kind == "turn.failed" and _failure(message) == held):
        return [state.notes.warning(held), *_translate(state, kind, message)]
    return _translate(state, kind, message)


def finish(state: CodexState, ending: Ending, completed: CompletedEvent | None) -> Iterable[Event]:
    held = [] if state.error is None else [state.notes.warning(state.error)]
    last = end_by_code(
        state.engine, state.label, ending, state.notes, answer=state.answer, completed=completed, ok=state.started
    )
    return [*held, *last]


def carry(state: CodexState) -> Mapping[str, Any] | None:
    """The usage so far: codex counts for the whole session, and the next run must know where it begins."""
    return {"usage": state.used} if state.used else None


def _translate(state: CodexState, kind: object, message: dict[str, Any]) -> Iterable[Output]:
    match kind:
        case "thread.started":
            state.started = True
            return [StartedEvent(state.engine, ResumeToken(state.engine, message["thread_id"]))]
        case "turn.started":
            state.turns += 1
            state.in_turn = True
            state.final = state.plain = None
            turn = Action(f"turn_{state.turns}", "turn", f"turn {state.turns}")
            return [ActionEvent(state.engine, turn, "started")]
        case "turn.completed":
            state.in_turn = False
            usage: dict[str, Any] | None = None
            if isinstance(counts := message.get("usage"), dict):
                state.used = {name: counts[name] for name in USAGE if isinstance(counts.get(name), int)}
                usage = {**state.used, "scope": "session"}
                if state.used_before is not None:
                    usage = {name: max(0, count - state.used_before.get(name, 0)) for name, count in state.used.items()}
            return [CompletedEvent(state.engine, ok=True, answer=state.answer, usage=usage)]
        case "turn.failed":
            return [CompletedEvent(state.engine, ok=False, answer=state.answer, error=_failure(message))]
        case "error":
            text = str(message.get("message") or "codex reported an error")
            if goes_on := _GOES_ON.match(text):
                step: Phase = "updated" if state.reconnecting else "started"
                state.reconnecting = True
                note = ActionEvent(state.engine, Action(f"{state.engine}.reconnect", "note", text), step)
                # That wait may be long, and nothing is printed meanwhile.
                return [note, Waits()] if goes_on[1] else [note]
            if state.in_turn:
                state.error = text
                return ()
            return [state.notes.warning(text)]
        case "item.started" | "item.updated" | "item.completed":
            phase: Phase = kind.removeprefix("item.")  # type: ignore[assignment]
            return _item(state, phase, message["item"])
    return ()


def _failure(message: dict[str, Any]) -> str:
    error = message.get("error")
    return str(error.get("message") if isinstance(error, dict) else error or "the turn failed")


# --- items ---


def _item(state: CodexState, phase: Phase, item: dict[str, Any]) -> Iterator[Output]:
    match item.get("type"):
        case "agent_message" if phase == "completed":
            text = str(item.get("text") or "")
            if item.get("phase") == "commentary":
                yield state.notes.note(cut(text), message=text)
            elif item.get("phase") == "final_answer":
                state.final = text
            else:
                state.plain = text
        case "command_execution":
            command, code = str(item.get("command") or ""), item.get("exit_code")
            detail: dict[str, Any] = {"command": command, "status": item.get("status")}
            if code is not None:
                detail["exit_code"] = code
            if item.get("aggregated_output"):
                detail["output"] = short_output(str(item["aggregated_output"]))
            ok = item.get("status") == "completed" and code in (0, None)
            yield _action(state, phase, item, "command", command_title(command, state.cwd), detail, ok=ok)
        case "file_change":
            changes = [change for change in item.get("changes") or () if isinstance(change, dict)]
            title = files_title([(change.get("kind"), change.get("path")) for change in changes], state.cwd)
            yield _action(state, phase, item, "file_change", title, {"changes": changes, "status": item.get("status")})
        case "mcp_tool_call":
            title = f"{item.get('server')}.{item.get('tool')}"
            detail = {name: item.get(name) for name in ("server", "tool", "arguments", "error") if item.get(name)}
            yield _action(state, phase, item, "tool", title, detail)
        case "web_search":
            yield _action(state, phase, item, "web_search", str(item.get("query") or "web search"), {}, ok=True)
        case "todo_list":
            todos = [todo for todo in item.get("items") or () if isinstance(todo, dict)]
            left = [str(todo.get("text")) for todo in todos if not todo.get("completed")]
            title = f"todo {len(todos) - len(left)}/{len(todos)}" + (f": {left[0]}" if left else "")
            yield _action(state, phase, item, "note", title, {"items": item.get("items")}, ok=True)
        case "reasoning" if item.get("text"):
            yield _action(state, phase, item, "note", cut(str(item["text"])), {}, ok=True, message=item["text"])
        case "error":
            yield state.notes.warning(str(item.get("message") or "codex reported an error"))


def _action(
    state: CodexState,
    phase: Phase,
    item: dict[str, Any],
    kind: ActionKind,
    title: str,
    detail: dict[str, Any],
    *,
    ok: bool | None = None,
    message: str | None = None,
) -> ActionEvent:
    if phase != "completed":
        ok = None
    elif ok is None:
        ok = item.get("status") != "failed"
    return ActionEvent(state.engine, Action(str(item.get("id")), kind, title, detail), phase, ok=ok, message=message)


# --- the login ---


def find_login(environ: Mapping[str, str]) -> LoginStatus:
    home = settings_folder(environ, "CODEX_HOME", ".codex")
    # A provider of the user's own has its own key, or needs none.
    try:
        settings: dict[str, Any] = tomllib.loads(read_start(home / "config.toml"))
    except (OSError, tomllib.TOMLDecodeError):
        settings = {}
    name = settings.get("model_provider")
    if not isinstance(name, str) or name == "openai":
        return look_for_login(environ, variables=("CODEX_API_KEY", "OPENAI_API_KEY"), files=(home / "auth.json",))
    providers = settings.get("model_providers")
    provider = providers.get(name) if isinstance(providers, dict) else None
    key = provider.get("env_key") if isinstance(provider, dict) else None
    if isinstance(key, str) and not environ.get(key):
        return LoginStatus(False, f"{key} of the provider {name} is not set")
    return LoginStatus(True, f"the provider {name}")


ENGINE: Final[Engine[CodexState]] = Engine(
    name=NAME,
    program="codex",
    install="npm install -g @openai/codex",
    arguments=arguments,
    start=new_state,
    translate=translate,
    finish=finish,
    resume=ResumeLine(NAME, "codex resume {}", "codex resume"),
    own_flags=_EXEC_ONLY,
    takes_mcp_servers=True,
    takes_images=True,
    takes_schema=True,
    carry=carry,
    orders=(".codex", ".agents"),
    own_places=lambda environ: (settings_folder(environ, "CODEX_HOME", ".codex"),),
    login=find_login,
    log_in="codex login",
    tested="0.163.0",
)


class CodexRunner(Runner):
    """Runs `codex exec --json`.

    Args:
        codex_cmd: The program, or a command line that the arguments are added to.
        extra_args: Words before `exec`, such as `["-c", "key=value"]`.
        choices: As `RunOptions`: `effort` is `low`, `medium`, `high`, …; codex cannot ask when it runs headless, so
            leave `approve` out.
    """

    def __init__(
        self,
        codex_cmd: str | Sequence[str] = "codex",
        extra_args: Sequence[str] = (),
        **choices: Unpack[RunChoices],
    ) -> None:
        super().__init__(ENGINE, codex_cmd, extra_args, **choices)

    @staticmethod
    def find_exec_only_flag(args: Sequence[str]) -> str | None:
        """The first word that cannot go before `exec`, as it was given.

        Args:
            args: Words that a user wants to add.
        """
        return find_exec_only_flag(args)
