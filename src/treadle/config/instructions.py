"""The instructions of a project: `AGENTS.md` and its kin, from the root of the repository down to where we work.

Owns the finding and the reading. Whatever is odd about a file (gone, a pipe, binary, not ours to read, a circle of
links) makes it a file that is not there: nobody's turn fails because of one.
"""

from __future__ import annotations

import codecs
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from msgspec import Struct

from treadle.config.values import PROJECT_DOC_MAX_BYTES

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
) -> list[InstructionFile]:
    """The files that apply in `cwd`, the most general first: that of the home, then from the root down.

    Per directory the first of `NAMES` and `fallback_names` counts. `max_bytes` is for all of them together: the file
    that goes beyond it is cut, those after it are left out.
    """
    names = (*NAMES, *(name for name in fallback_names if _is_plain(name)))
    found: list[InstructionFile] = []
    seen: set[tuple[int, int]] = set()
    places = ([(str(home), NAMES)] if home else []) + [(directory, names) for directory in _directories(str(cwd))]
    for directory, wanted in places:
        if max_bytes <= 0:
            break
        for name in wanted:
            path = os.path.join(directory, name)
            data = _read(path, max_bytes, seen)
            if data is None:
                continue
            found.append(InstructionFile(path, _decode(data)))
            max_bytes -= len(data)
            break
    return found


def _is_plain(name: str) -> bool:
    """A name, not a way to another place."""
    return bool(name) and name not in (".", "..") and not set(name) & {"/", "\0"}


def _directories(cwd: str) -> list[str]:
    """From the root of the repository down to `cwd`; only `cwd` outside of one."""
    try:
        cwd = os.path.abspath(cwd)
    except (OSError, ValueError):  # a working directory that was removed
        return []
    upwards = list(_upwards(cwd))
    root = next((index for index, directory in enumerate(upwards) if _exists(directory, _ROOT_MARK)), 0)
    return upwards[root::-1]


def _upwards(path: str) -> Iterator[str]:
    for _ in range(_MAX_DEPTH):
        yield path
        parent = os.path.dirname(path)
        if parent == path:
            return
        path = parent


def _exists(directory: str, name: str) -> bool:
    try:
        os.lstat(os.path.join(directory, name))
    except (OSError, ValueError):
        return False
    return True


def _read(path: str, limit: int, seen: set[tuple[int, int]]) -> bytes | None:
    """At most `limit` bytes of a text that has not been read before; None for anything else."""
    try:
        # Not blocking: the name could be that of a pipe.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    try:
        with open(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            identity = (status.st_dev, status.st_ino)
            if not stat.S_ISREG(status.st_mode) or identity in seen:
                return None
            data = file.read(limit)
    except OSError:
        return None
    if b"\0" in data or not data.strip():
        return None
    seen.add(identity)
    return data


def _decode(data: bytes) -> str:
    """As text; half a character at the end, where the limit cut it, is left out."""
    return codecs.getincrementaldecoder("utf-8")("replace").decode(data)
