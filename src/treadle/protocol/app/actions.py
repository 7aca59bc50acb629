"""What a command does, as far as its text tells, and what a patch changes."""

from __future__ import annotations

from msgspec import field

from treadle.protocol.app.base import OrUnknown, Variant, Wire


class ReadCommandAction(Variant, frozen=True, kw_only=True, tag="read"):
    command: str
    name: str
    path: str


class ListFilesCommandAction(Variant, frozen=True, kw_only=True, tag="listFiles"):
    command: str
    path: str | None = None


class SearchCommandAction(Variant, frozen=True, kw_only=True, tag="search"):
    command: str
    path: str | None = None
    query: str | None = None


class UnknownCommandAction(Variant, frozen=True, kw_only=True, tag="unknown"):
    command: str


CommandAction = ReadCommandAction | ListFilesCommandAction | SearchCommandAction | UnknownCommandAction


class AddPatchChangeKind(Variant, frozen=True, kw_only=True, tag="add"):
    pass


class DeletePatchChangeKind(Variant, frozen=True, kw_only=True, tag="delete"):
    pass


class UpdatePatchChangeKind(Variant, frozen=True, kw_only=True, tag="update"):
    move_path: str | None = field(name="move_path", default=None)


PatchChangeKind = AddPatchChangeKind | DeletePatchChangeKind | UpdatePatchChangeKind


class FileUpdateChange(Wire, frozen=True, kw_only=True):
    diff: str
    kind: OrUnknown[PatchChangeKind]
    path: str
