"""What kind of thing a tool call is, by the names that claude, opencode and pi give their tools. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from treadle.runners.run_events import Action, ActionKind
from treadle.runners.titles import command_title, cut, relative

_KINDS: Final[Mapping[str, ActionKind]] = {
    "bash": "command",
    "shell": "command",
    "killshell": "command",
    "bashoutput": "command",
    "edit": "file_change",
    "write": "file_change",
    "multiedit": "file_change",
    "notebookedit": "file_change",
    "patch": "file_change",
    "apply_patch": "file_change",
    "websearch": "web_search",
    "webfetch": "web_search",
    "todowrite": "note",
    "todoread": "note",
    "askuserquestion": "note",
    "exitplanmode": "note",
    "task": "subagent",
    "agent": "subagent",
}
_PATHS: Final = ("file_path", "filePath", "notebook_path", "path")
_WORDS: Final = ("query", "url", "pattern", "subject", "description", "prompt", "skill", "name")


def tool_action(id: str, tool: str, input: object, cwd: str, detail: Mapping[str, Any] | None = None) -> Action:
    """The action of a tool call.

    Args:
        id: The engine's id of the call.
        tool: The tool's name.
        input: What it is called with.
        cwd: Where the engine works.
        detail: What else there is to say about it.
    """
    given: Mapping[str, Any] = input if isinstance(input, Mapping) else {}
    kind = _KINDS.get(tool.lower().replace("_", "") if tool.lower() not in _KINDS else tool.lower(), "tool")
    title = _title(kind, tool, given, cwd)
    return Action(id, kind, title, {"tool": tool, "input": dict(given), **(detail or {})})


def _title(kind: ActionKind, tool: str, given: Mapping[str, Any], cwd: str) -> str:
    if kind == "command":
        command = given.get("command")
        return command_title(command, cwd) if isinstance(command, str) and command else tool
    path = next((given[name] for name in _PATHS if isinstance(given.get(name), str)), None)
    if kind == "file_change":
        return cut(f"{tool.lower()} {relative(path, cwd)}") if path else tool
    if kind == "note" and isinstance(given.get("todos"), list):
        return _todo_title(given["todos"])
    word = relative(path, cwd) if path else next((given[n] for n in _WORDS if isinstance(given.get(n), str)), None)
    if kind in ("web_search", "subagent"):
        return cut(word) if word else tool
    return cut(f"{tool}: {word}") if word else tool


def _todo_title(todos: list[Any]) -> str:
    known = [todo for todo in todos if isinstance(todo, Mapping)]
    left = [todo for todo in known if todo.get("status") != "completed"]
    title = f"todo {len(known) - len(left)}/{len(known)}"
    return cut(f"{title}: {left[0].get('content')}") if left else title
