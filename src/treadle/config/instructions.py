"""Project instructions: `AGENTS.md` and the like, from the root of the repository down to the working directory.

The module owns finding and reading them. A file that is odd in any way (a pipe, binary, unreadable, a symlink loop, a
link out of the repository, somebody else's) is left out, and `ProjectFiles` has the reason: no turn fails because of
one.
"""

from __future__ import annotations

import codecs
import os
from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from treadle.config.file_settings import PROJECT_DOC_MAX_BYTES
from treadle.execution.project_files import ProjectFiles
from treadle.execution.user_files import read_regular

NAMES: Final = ("AGENTS.override.md", "AGENTS.md")


class InstructionFile(Struct, frozen=True):
    """A file that applies."""

    path: str
    text: str


def find_instructions(
    project: ProjectFiles, *, max_bytes: int = PROJECT_DOC_MAX_BYTES, fallback_names: Iterable[str] = ()
) -> list[InstructionFile]:
    """The files that apply in the working directory, the most general first: that of the home, then from the root down.

    Per directory the first of `NAMES` and `fallback_names` counts. `max_bytes` is for all of them together: the file
    that goes beyond it is cut, those after it are left out. A repository's file that is a link to somewhere else is
    left out too: what is there was not written for the model, and could be a secret. The home is the user's own.

    As long as the project's snapshot, which is filled here, is current, there is nothing else to be found.
    """
    # Plain names only, not a way to another place.
    plain = (name for name in fallback_names if name not in ("", ".", "..") and not set(name) & {"/", "\0"})
    names = (*NAMES, *plain)
    found: list[InstructionFile] = []
    seen: set[tuple[int, int]] = set()
    places = [(project.home, NAMES, False)] if project.home else []
    for directory, wanted, of_project in [*places, *((folder, names, True) for folder in project.folders)]:
        if max_bytes <= 0:
            break
        for name in wanted:
            path = os.path.join(directory, name)
            project.snapshot.note(path)
            data = _read(path, max_bytes, project if of_project else None, seen)
            if data is None:
                continue
            # Half a character at the end, where the limit cut it, is left out.
            text = codecs.getincrementaldecoder("utf-8")("replace").decode(data)
            found.append(InstructionFile(path, text))
            max_bytes -= len(data)
            break
    return found


def _read(path: str, limit: int, project: ProjectFiles | None, seen: set[tuple[int, int]]) -> bytes | None:
    """At most `limit` bytes of a text that has not been read before; None for anything else."""
    found = read_regular(path, limit) if project is None else project.read(path, limit, inside=True)
    if found is None:
        return None
    data, status = found
    identity = (status.st_dev, status.st_ino)
    if identity in seen or not data.strip():
        return None
    if b"\0" in data:
        if project is not None:
            project.left_out[path] = "it is not text"
        return None
    seen.add(identity)
    return data
