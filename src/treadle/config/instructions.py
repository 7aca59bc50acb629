"""Project instructions: `AGENTS.md` and the like, from the root of the repository down to the working directory.

It owns finding and reading them. A file that is odd in any way (gone, a pipe, binary, unreadable, a symlink loop, a
link out of the repository) is treated as missing: no turn fails because of one.
"""

from __future__ import annotations

import codecs
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from msgspec import Struct

from treadle.config.file_settings import PROJECT_DOC_MAX_BYTES
from treadle.execution.file_snapshot import FileSnapshot
from treadle.execution.user_files import read_regular

NAMES: Final = ("AGENTS.override.md", "AGENTS.md")
_ROOT_MARK: Final = ".git"
_MAX_DEPTH: Final = 128  # directories between the root of a repository and the working directory


class InstructionFile(Struct, frozen=True):
    path: str
    text: str


def find_instructions(
    cwd: str | Path,
    home: Path | None,
    *,
    max_bytes: int = PROJECT_DOC_MAX_BYTES,
    fallback_names: Iterable[str] = (),
    snapshot: FileSnapshot | None = None,
) -> list[InstructionFile]:
    """The files that apply in `cwd`, the most general first: that of the home, then from the root down.

    Per directory the first of `NAMES` and `fallback_names` counts. `max_bytes` is for all of them together: the file
    that goes beyond it is cut, those after it are left out. A repository's file that is a link to somewhere else is
    left out too: what is there was not written for the model, and could be a secret.

    As long as `snapshot`, which is filled here, is current, there is nothing else to be found.
    """
    snapshot = FileSnapshot() if snapshot is None else snapshot
    names = (*NAMES, *(name for name in fallback_names if _is_plain(name)))
    found: list[InstructionFile] = []
    seen: set[tuple[int, int]] = set()
    directories = _directories(str(cwd), snapshot)
    root = os.path.realpath(directories[0]) if directories else None
    places = [(str(home), NAMES, None)] if home else []
    for directory, wanted, below in [*places, *((directory, names, root) for directory in directories)]:
        if max_bytes <= 0:
            break
        for name in wanted:
            path = os.path.join(directory, name)
            snapshot.note(path)
            data = _read(path, max_bytes, below, seen)
            if data is None:
                continue
            found.append(InstructionFile(path, _decode(data)))
            max_bytes -= len(data)
            break
    return found


def _is_plain(name: str) -> bool:
    """A name, not a way to another place."""
    return bool(name) and name not in (".", "..") and not set(name) & {"/", "\0"}


def _directories(cwd: str, snapshot: FileSnapshot) -> list[str]:
    """From the root of the repository down to `cwd`; only `cwd` outside of one."""
    try:
        cwd = os.path.abspath(cwd)
    except (OSError, ValueError):  # a working directory that was removed
        return []
    upwards = list(_upwards(cwd))
    marks = (os.path.join(directory, _ROOT_MARK) for directory in upwards)
    root = next((index for index, mark in enumerate(marks) if snapshot.note_mark(mark)), 0)
    return upwards[root::-1]


def _upwards(path: str) -> Iterator[str]:
    for _ in range(_MAX_DEPTH):
        yield path
        parent = os.path.dirname(path)
        if parent == path:
            return
        path = parent


def _read(path: str, limit: int, below: str | None, seen: set[tuple[int, int]]) -> bytes | None:
    """At most `limit` bytes of a text that has not been read before; None for anything else."""
    found = read_regular(path, limit, below=below)
    if found is None:
        return None
    data, status = found
    identity = (status.st_dev, status.st_ino)
    if identity in seen or b"\0" in data or not data.strip():
        return None
    seen.add(identity)
    return data


def _decode(data: bytes) -> str:
    """As text; half a character at the end, where the limit cut it, is left out."""
    return codecs.getincrementaldecoder("utf-8")("replace").decode(data)
