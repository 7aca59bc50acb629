"""What git and we take orders from, below the directories that commands may write.

Owns the list of paths. A name that is missing is in it too: a command must not make it. Blocking.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Final

from treadle.errors import ExecError
from treadle.execution.sandbox.policy import contains, refused
from treadle.execution.user_files import read_regular

GIT: Final = ".git"
PROTECTED: Final = (GIT, ".codex", ".treadle", ".agents")
_MAX_POINTER: Final = 4096 + 64  # a path and the word before it


def protected_paths(roots: Sequence[str], writable: Sequence[str], opened: Sequence[str] = ()) -> list[str]:
    """Canonical, for canonical roots. Raises `ExecError` for a link, which cannot be kept from being replaced.

    `opened` are those of the roots that are protected paths themselves, and were named by somebody who wants them to be
    written: a `.git` in which commits are to be made.
    """
    found = _protected([root for root in roots if root not in opened], roots, writable)
    return [path for path in found if not any(contains(root, path) for root in opened)]


def _protected(below: Sequence[str], roots: Sequence[str], writable: Sequence[str]) -> dict[str, None]:
    found: dict[str, None] = {}
    for root in below:
        if not os.path.isdir(root):
            continue  # nothing is granted there
        for name in PROTECTED:
            path = os.path.join(root, name)
            if os.path.islink(path):
                raise _refused(path)
            found[path] = None
        for directory in _git_directories(os.path.join(root, ".git")):
            if any(contains(path, directory) for path in writable) and not any(contains(directory, r) for r in roots):
                found[directory] = None
    return found


def _git_directories(path: str) -> Iterator[str]:
    """The real directories behind a `.git`: of a worktree or submodule, and what several worktrees share."""
    pointer = _text(path)
    if pointer is not None:
        word, _, target = pointer.partition(":")
        if word != "gitdir":
            return
        path = os.path.realpath(os.path.join(os.path.dirname(path), target.strip()))
        yield path
    shared = _text(os.path.join(path, "commondir"))
    if shared is not None:
        yield os.path.realpath(os.path.join(path, shared.strip()))


def _text(path: str) -> str | None:
    """Of a small regular file; None for anything else."""
    found = read_regular(path, _MAX_POINTER + 1)
    return None if found is None or len(found[0]) > _MAX_POINTER or b"\0" in found[0] else os.fsdecode(found[0])


def _refused(path: str) -> ExecError:
    return refused(
        f"{path!a} is a symbolic link, which a command could replace by another; put a directory there (or, for git, a "
        "file with `gitdir: …`), or run without a sandbox"
    )
