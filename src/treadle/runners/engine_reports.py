"""What engines have in common when they translate their lines: JSON, titles of actions, notes, usage, ends. Pure."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from treadle.runners.engine import Ending
from treadle.runners.run_events import Action, ActionEvent, ActionKind, CompletedEvent, Event, Level

# --- lines -----------------------------------------------------------------------------------------------------------

_decode = msgspec.json.Decoder().decode


def read_object(line: bytes) -> dict[str, Any] | None:
    """The object, or None for anything else, such as a warning of a library that was printed on the wrong stream.

    JavaScript programs cut strings between the two halves of a surrogate pair and print the remaining half. That is no
    reason to lose the line, which may be the answer.
    """
    try:
        value = _decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        try:
            value = json.loads(line.decode("utf-8", "replace"))
            value = _decode(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
        except (ValueError, RecursionError, msgspec.DecodeError):
            return None
    return value if isinstance(value, dict) else None


# --- actions ---------------------------------------------------------------------------------------------------------

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
    """A text in one line, and not too long."""
    line = " ".join(text[: limit * 4].split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def short_output(text: str) -> str:
    """The end of an output."""
    return text if len(text) <= MAX_OUTPUT else f"…{text[-MAX_OUTPUT:]}"


def command_title(command: str, cwd: str) -> str:
    """The command that is run, without the shell around it, with paths inside the folder as seen from there."""
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
        detail: More about it.
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
        todos = [todo for todo in given["todos"] if isinstance(todo, Mapping)]
        left = [todo for todo in todos if todo.get("status") != "completed"]
        title = f"todo {len(todos) - len(left)}/{len(todos)}"
        return cut(f"{title}: {left[0].get('content')}") if left else title
    word = relative(path, cwd) if path else next((given[n] for n in _WORDS if isinstance(given.get(n), str)), None)
    if kind in ("web_search", "subagent"):
        return cut(word) if word else tool
    return cut(f"{tool}: {word}") if word else tool


# --- notes, ends, usage ----------------------------------------------------------------------------------------------


class Notes:
    """Numbers the notes of one run: `codex.note.1`, `codex.note.2`, …"""

    def __init__(self, engine: str) -> None:
        self._engine = engine
        self._last = 0

    def note(self, title: str, *, message: str | None = None, detail: Mapping[str, Any] | None = None) -> ActionEvent:
        """A note: something to know, nothing to worry about."""
        return self._event("note", title, ok=True, message=message, level="info", detail=detail)

    def warning(
        self, title: str, *, message: str | None = None, detail: Mapping[str, Any] | None = None
    ) -> ActionEvent:
        """A warning: something that went wrong on the way."""
        return self._event("warning", title, ok=False, message=message, level="warning", detail=detail)

    def _event(
        self, kind: Any, title: str, *, ok: bool, message: str | None, level: Level, detail: Mapping[str, Any] | None
    ) -> ActionEvent:
        self._last += 1
        action = Action(f"{self._engine}.note.{self._last}", kind, title, dict(detail or {}))
        return ActionEvent(self._engine, action, "completed", ok=ok, message=message, level=level)


def end_by_code(
    engine: str,
    label: str,
    ending: Ending,
    notes: Notes,
    *,
    answer: str,
    completed: CompletedEvent | None,
    ok: bool,
    usage: dict[str, Any] | None = None,
) -> list[Event]:
    """The last events of a process, for engines whose exit code is true.

    Args:
        engine: Its name.
        label: What is run, as in "codex exec failed (rc=1).".
        ending: How the process ended.
        notes: The run's notes.
        answer: The answer so far.
        completed: How the engine itself reported its end, if it did.
        ok: Whether an end without that, with code 0, is a good one.
        usage: What the run used until then.
    """
    code = ending.exit_code
    if completed is not None:
        if completed.ok and code not in (0, None) and ending.stopped is None:
            return [notes.warning(f"{label} ended with rc={code} after its answer"), completed]
        return [completed]
    if ending.stopped is not None:
        return [CompletedEvent(engine, ok=False, answer=answer, error=ending.stopped, usage=usage)]
    if code != 0:
        error = f"{label} failed (rc={'unknown' if code is None else code})."
        return [notes.warning(error), CompletedEvent(engine, ok=False, answer=answer, error=error, usage=usage)]
    if ok:
        return [CompletedEvent(engine, ok=True, answer=answer, usage=usage)]
    hint = "" if ending.lines == 0 else ": what it printed was not understood; its version may be too old or too new"
    error = f"{label} ended without an answer{hint}."
    return [CompletedEvent(engine, ok=False, answer=answer, error=error, usage=usage)]


def add_usage(
    used: dict[str, Any],
    *,
    fresh: object,
    cached: object,
    cache_write: object,
    output: object,
    reasoning: object = None,
    cost: object = None,
) -> None:
    """Add one answer of a model to `used`; what is no number counts as nothing.

    `input_tokens` is all input, including cache reads and writes; `output_tokens` is all output, including reasoning.
    Engines that count those separately are added up here.

    Args:
        used: The sum so far.
        fresh: Tokens of the input that have nothing to do with the cache.
        cached: Tokens of the input that came from the cache.
        cache_write: Tokens of the input that were written to the cache.
        output: Tokens of the output without thoughts, or with them when they are not counted apart.
        reasoning: Tokens of the thoughts; None from an engine that does not report them.
        cost: What it cost in dollars.
    """
    more = {
        "input_tokens": number(fresh) + number(cached) + number(cache_write),
        "cached_input_tokens": number(cached),
        "cache_write_input_tokens": number(cache_write),
        "output_tokens": number(output) + number(reasoning),
    }
    if reasoning is not None:
        more["reasoning_output_tokens"] = number(reasoning)
    more["cost_usd"] = number(cost)
    for name, value in more.items():
        used[name] = used.get(name, 0) + value


COUNTED: Final = (
    "input_tokens",
    "cached_input_tokens",
    "cache_write_input_tokens",
    "output_tokens",
    "reasoning_output_tokens",
)


def tokens_of(used: Mapping[str, Any]) -> dict[str, int]:
    """The tokens of a `CompletedEvent.usage`, and all of them as `total_tokens`."""
    counted = {name: int(number(used.get(name))) for name in COUNTED}
    return {**counted, "total_tokens": counted["input_tokens"] + counted["output_tokens"]}


def number(value: object) -> Any:
    """The value, if it is a number; else 0."""
    return value if isinstance(value, int | float) else 0
