"""What an engine does, as an action with a one-line title for people: kinds by tool name, short commands and paths.
Pure.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Mapping
from typing import Any, Final

from treadle.runners.run_events import Action, ActionKind

MAX_TITLE: Final = 300
MAX_OUTPUT: Final = 4000
_SHELL: Final = re.compile(r"^(?:/usr)?(?:/bin/)?(?:ba|z|da)?sh -l?c ")

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


def cut(text: str, limit: int = MAX_TITLE) -> str:
    """In one line, and not too long."""
    line = " ".join(text[: limit * 4].split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def short_output(text: str, limit: int = MAX_OUTPUT) -> str:
    """The end of an output."""
    return text if len(text) <= limit else f"…{text[-limit:]}"


def command_title(command: str, cwd: str) -> str:
    """What is run, without the shell around it, with paths inside the folder as seen from there."""
    if _SHELL.match(command):
        try:
            words = shlex.split(command)
        except ValueError:
            words = []
        if len(words) == 3:
            command = words[2]
    if len(cwd) > 1:
        command = command.replace(f"{cwd}/", "")
    return cut(command)


def relative(path: str, cwd: str) -> str:
    """A path as seen from the folder, when it is inside."""
    return path[len(cwd) + 1 :] if len(cwd) > 1 and path.startswith(f"{cwd}{os.sep}") else path


def files_title(changes: Iterable[tuple[object, object]], cwd: str) -> str:
    """`add a.py, update b.py, …`: kinds and paths."""
    named = [f"{kind or 'change'} {relative(str(path), cwd)}" for kind, path in changes]
    more = f", {len(named) - 3} more" if len(named) > 3 else ""
    return cut(", ".join(named[:3]) + more) or "files"


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
