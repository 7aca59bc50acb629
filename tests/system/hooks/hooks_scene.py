"""A scene whose home has hooks: shell commands that say what a test wants, and note what they were told."""

from __future__ import annotations

import json
import shlex
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

from kit.hook_files import trusted
from system.agent.scene import Scene, scene

Json: TypeAlias = dict[str, Any]
FULL_ACCESS = {"sandbox_mode": "danger-full-access", "approval_policy": "never"}


def says(answer: object = "", *, note: Path | None = None, code: int = 0, stderr: str = "") -> str:
    """A command that notes its input in a file, a line for each run, and answers."""
    text = answer if isinstance(answer, str) else json.dumps(answer)
    noted = "cat > /dev/null" if note is None else f"tr -d '\\n' >> {note}; echo >> {note}"
    return f"{noted}; printf %s {shlex.quote(text)}; printf %s {shlex.quote(stderr)} >&2; exit {code}"


def specific(event: str, **members: object) -> Json:
    return {"hookSpecificOutput": {"hookEventName": event, **members}}


def command(text: str, *, matcher: str | None = None, **more: Any) -> Json:
    """A group with one command."""
    group: Json = {"hooks": [{"type": "command", "command": text, **more}]}
    return group if matcher is None else {"matcher": matcher, **group}


def write_hooks(folder: Path, events: Mapping[str, list[Json]]) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / "hooks.json"
    path.write_text(json.dumps({"hooks": events}))
    return path


@asynccontextmanager
async def hooked(
    tmp_path: Path,
    events: Mapping[str, list[Json]],
    *,
    settings: Mapping[str, str | int | bool] | None = None,
    extra_toml: str = "",
) -> AsyncIterator[Scene]:
    """With hooks of the user that are trusted."""
    path = write_hooks_of_home(tmp_path, events)
    given = FULL_ACCESS if settings is None else settings
    async with scene(tmp_path, settings=given, extra_toml=extra_toml + trusted(path)) as stage:
        yield stage


def write_hooks_of_home(tmp_path: Path, events: Mapping[str, list[Json]]) -> Path:
    return write_hooks(tmp_path / "home", events)


def told(note: Path) -> list[Json]:
    """What the runs of a hook were told."""
    return [json.loads(line) for line in note.read_text().splitlines()] if note.exists() else []


def runs(stage: Scene) -> list[tuple[str, str, list[tuple[str, str]]]]:
    """The completed runs: event, status and entries."""
    found = [message["params"]["run"] for message in stage.client.told("hook/completed")]
    return [
        (run["eventName"], run["status"], [(entry["kind"], entry["text"]) for entry in run["entries"]]) for run in found
    ]


def warnings(stage: Scene) -> list[str]:
    return [message["params"]["message"] for message in stage.client.told("warning")]
