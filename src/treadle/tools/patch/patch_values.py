"""The values of the patch language: what a patch says, what it will change, and what can be wrong with it.

Owns no behaviour: `grammar` makes a `Patch`, `planner` makes `FileChange`s of it, `patch_transaction` carries them out.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from treadle.errors import TreadleError

Mark: TypeAlias = Literal[" ", "-", "+"]
Kind: TypeAlias = Literal["add", "delete", "update"]
Reason: TypeAlias = Literal["syntax", "mismatch", "stale", "failed"]


class PatchError(TreadleError):
    """A patch cannot be read, does not fit the files, or could not be written; the message is fit for the model.

    `reason` is `syntax` (with `line`, the line of the patch), `mismatch` (the files are not as the patch says), `stale`
    (they changed after the plan) or `failed` (a write did). `unrestored` names the files that could not be put back
    after a failure; otherwise every file is as it was.
    """

    def __init__(
        self,
        message: str,
        reason: Reason,
        *,
        line: int | None = None,
        path: str | None = None,
        unrestored: tuple[str, ...] = (),
    ) -> None:
        super().__init__(message)
        self.message = message
        self.reason = reason
        self.line = line
        self.path = path
        self.unrestored = unrestored


class HunkLine(Struct, frozen=True):
    mark: Mark
    text: str


class Hunk(Struct, frozen=True, kw_only=True):
    """Lines to find and replace. `anchors` are the texts of the `@@` lines before it, outermost first."""

    line: int
    anchors: tuple[str, ...] = ()
    lines: tuple[HunkLine, ...] = ()
    at_end: bool = False


class AddFile(Struct, frozen=True, kw_only=True):
    line: int
    path: str
    content: str


class DeleteFile(Struct, frozen=True, kw_only=True):
    line: int
    path: str


class UpdateFile(Struct, frozen=True, kw_only=True):
    line: int
    path: str
    move_path: str | None = None
    hunks: tuple[Hunk, ...] = ()


Section: TypeAlias = AddFile | DeleteFile | UpdateFile


class Patch(Struct, frozen=True):
    """The sections in the order of the text; `line` of each part is its line in the text, from 1."""

    sections: tuple[Section, ...]


class FileChange(Struct, frozen=True, kw_only=True):
    """The net change of one file: `old` is what was read (`None`: no such file), `new` what will be there.

    With `move_path`, `new` goes there, `path` goes away, and `move_old` is what was there before. `diff` is what the
    item `fileChange` shows. Paths are absolute.
    """

    path: str
    kind: Kind
    old: bytes | None
    new: bytes | None
    diff: str
    move_path: str | None = None
    move_old: bytes | None = None
