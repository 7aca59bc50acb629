"""One line for people about what an engine does: commands without their wrapping, paths seen from the folder. Pure."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable
from typing import Final

MAX_TITLE: Final = 300
MAX_OUTPUT: Final = 4000
_SHELL: Final = re.compile(r"^(?:/usr)?(?:/bin/)?(?:ba|z|da)?sh -l?c ")


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
