"""Which texts are valid branch names: the rules of `git check-ref-format --branch`, and no invisible characters.

Pure. A branch name becomes an argument of git and a path, so every name is checked here first.
"""

from __future__ import annotations

import re
from typing import Final

# A part becomes the name of a folder, and of a file with `.lock` behind it: 255 bytes is what file systems take.
MAX_PART: Final = 240
MAX_NAME: Final = 1000

_FORBIDDEN: Final = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]")


def branch_problem(name: str) -> str | None:
    """Why this is no name of a branch; None when it is one."""
    if name in ("", "@", "HEAD"):
        return f"{name!r} cannot be the name of a branch"
    if name.startswith(("-", "/")):
        return f"it begins with `{name[0]}`"
    if name.endswith(("/", ".")):
        return f"it ends with `{name[-1]}`"
    for piece in ("..", "//", "@{"):
        if piece in name:
            return f"it has `{piece}` in it"
    if found := _FORBIDDEN.search(name):
        return f"it has {found[0]!r} in it"
    if not name.isprintable():
        return "it has letters in it that cannot be seen"
    return _part_problem(name)


def _part_problem(name: str) -> str | None:
    for part in name.split("/"):
        if part.startswith("."):
            return f"`{part}` begins with a dot"
        if part.endswith(".lock"):
            return f"`{part}` ends with `.lock`"
        if len(part.encode()) > MAX_PART:
            return f"a part of it is longer than {MAX_PART} bytes"
    return f"it is longer than {MAX_NAME} bytes" if len(name.encode()) > MAX_NAME else None
