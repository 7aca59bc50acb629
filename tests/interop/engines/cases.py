"""`CASES`: the runs of the real agent programs whose output is kept in `tests/data/engine_streams`."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from treadle.testing import EngineName

Line = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Case:
    """A run. `resumes` names the case whose session it continues, or a session that never was.

    `stop` is the signal that it gets when it tells about a tool and, if the prompt says so, the file `started` exists;
    `seconds` is how long it may run, `lines` how many lines are kept of a run that has no end of its own.
    """

    engine: EngineName
    name: str
    prompt: str
    resumes: str | None = None
    extra: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    stop: signal.Signals | None = None
    seconds: float = 60.0
    lines: int | None = None


# Where they are recorded: always the same folder, so that it is the same in what they print.
STAGE: Final = Path("/tmp/stage")
NO_SESSION: Final = {
    "codex": "00000000-0000-7000-8000-000000000000",
    "claude": "00000000-0000-7000-8000-000000000000",
    "opencode": "ses_doesnotexist00000000000000",
    "pi": "00000000-0000-7000-8000-000000000000",
}
TOOL_STARTED: Final[Mapping[EngineName, Callable[[Line], bool]]] = {
    "codex": lambda line: line["type"] == "item.started",
    "claude": lambda line: '"tool_use"' in json.dumps(line),
    # It tells about a tool when it has ended; before that, what the model said.
    "opencode": lambda line: line["type"] == "text",
    "pi": lambda line: line["type"] == "tool_execution_start",
}
_ALLOWED: Final = ("--allowedTools", "Bash,Read,Edit,Write")
_MCP: Final = ("-c", 'mcp_servers.toy.command="python3"', "-c", f'mcp_servers.toy.args=["{STAGE}/toy_mcp.py"]')
_PLAN: Final = [{"step": "look", "status": "completed"}, {"step": "do it", "status": "in_progress"}]
_TODOS: Final = [
    {"content": "look", "status": "completed", "priority": "high"},
    {"content": "do it", "status": "in_progress", "priority": "low"},
]
_PATCH: Final = "*** Begin Patch\n*** Add File: note.txt\n+hello\n*** End Patch\n"


def _call(tool: str, arguments: object) -> str:
    return f"CALL:{tool} {json.dumps(arguments)}"


def _common(engine: EngineName) -> list[Case]:
    extra = _ALLOWED if engine == "claude" else ()

    def case(name: str, prompt: str, *more: str, **members: Any) -> Case:
        return Case(engine=engine, name=name, prompt=prompt, extra=(*extra, *more), **members)

    return [
        case("text", "hello there"),
        case("tool", "RUN:echo hi-from-tool && pwd"),
        case("resume", "USERS?", resumes="tool"),
        case("toolfail", "RUN:exit 3"),
        case("think", "THINK and answer", *(["--thinking"] if engine == "opencode" else [])),
        case("http401", "HTTP:401", env={"CLAUDE_CODE_MAX_RETRIES": "1"}),
        case("flaky", f"FLAKY:{3 if engine == 'pi' else 2}:{engine}"),
        case("http500", "HTTP:500", env={"CLAUDE_CODE_MAX_RETRIES": "2"}, seconds=40 if engine != "opencode" else 20),
        case("badresume", "hi", resumes="nothing"),
        case("cancel", "RUN:touch started; sleep 5", stop=signal.SIGTERM),
        case("drop", "DROP", **({"seconds": 15, "lines": 8} if engine == "opencode" else {})),
        case("cut", "CUT", **({"seconds": 15, "lines": 8} if engine == "opencode" else {})),
    ]


def _codex(name: str, prompt: str, *extra: str) -> Case:
    return Case(engine="codex", name=name, prompt=prompt, extra=extra)


def _claude(name: str, prompt: str, *extra: str, stop: signal.Signals | None = None) -> Case:
    return Case(engine="claude", name=name, prompt=prompt, extra=extra, stop=stop)


CASES: Final = [
    *_common("codex"),
    _codex("patch", _call("apply_patch", _PATCH)),
    _codex("badpatch", _call("apply_patch", _PATCH.replace("Add", "Update"))),
    _codex("twomsg", "TWOMSG hello"),
    _codex("fallback_model", "hello", "-m", "mock-model"),
    _codex("todo", _call("update_plan", {"plan": _PLAN}), "-c", "tools.update_plan.enabled=true"),
    _codex("search", "SEARCH:weather in Rome"),
    _codex("mcp", _call("mcp__toy.echo", {"text": "hi"}), *_MCP),
    _codex("mcpfail", _call("mcp__toy.echo", {"text": "bad"}), *_MCP),
    _codex("collab", _call("multi_agent_v1.spawn_agent", {"message": "hello from below"})),
    *_common("claude"),
    _claude("cancel_sigint", "RUN:touch started; sleep 5", *_ALLOWED, stop=signal.SIGINT),
    _claude("cancel_early", "RUN:sleep 5", *_ALLOWED, stop=signal.SIGINT),
    _claude("edit", _call("Write", {"file_path": f"{STAGE}/project/note.txt", "content": "hello"}), *_ALLOWED),
    _claude("partial", "hello there", "--include-partial-messages", *_ALLOWED),
    _claude("maxturns", "RUN:echo a", "--max-turns", "1", *_ALLOWED),
    _claude("denied", "RUN:touch denied.txt"),
    _claude("todo", _call("TaskCreate", {"subject": "look", "description": "look at it"})),
    _claude(
        "subagent",
        _call(
            "Agent",
            {"description": "look around", "prompt": "RUN:echo below", "subagent_type": "general-purpose"},
        ).replace("RUN:", "RUN\\u003a"),
        *_ALLOWED,
    ),
    *_common("opencode"),
    Case(engine="opencode", name="todo", prompt=_call("todowrite", {"todos": _TODOS})),
    Case(
        engine="opencode",
        name="subagent",
        prompt=_call("task", {"description": "look around", "prompt": "hello from below", "subagent_type": "general"}),
    ),
    *_common("pi"),
    Case(engine="pi", name="edit", prompt=_call("write", {"path": "note.txt", "content": "hello"})),
]
