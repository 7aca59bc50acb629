"""The patch language that models write: read it (`parse`), see what it would do (`plan`), do it (`apply`).

    patch = parse(text)
    changes = plan(patch, read, cwd)     # `read` returns the bytes of a file, or None
    await apply(changes, files)          # all or nothing

`PatchError` is the only error of the first two, apart from what `read` raises; its message is meant for the model.
"""

from __future__ import annotations

from treadle.tools.patch.grammar import (
    AddFile,
    DeleteFile,
    FileChange,
    Hunk,
    HunkLine,
    Patch,
    PatchError,
    Section,
    UpdateFile,
    parse,
)
from treadle.tools.patch.patch_transaction import PatchFiles, apply
from treadle.tools.patch.planner import paths, plan

__all__ = [
    "AddFile",
    "DeleteFile",
    "FileChange",
    "Hunk",
    "HunkLine",
    "Patch",
    "PatchError",
    "PatchFiles",
    "Section",
    "UpdateFile",
    "apply",
    "parse",
    "paths",
    "plan",
]
