"""What a turn may be allowed beyond its sandbox: files by path, pattern or special place, and the network."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, UnsetType

from treadle.protocol.app.base import Closed, Variant, Wire, Word


class FileSystemAccessMode(Word):
    read = "read"
    write = "write"
    deny = "deny"


class FileSystemSpecialPath(Wire, frozen=True, kw_only=True):
    """`path` belongs to the kind `unknown`, `subpath` to `project_roots` and `unknown`."""

    kind: Literal["root", "minimal", "project_roots", "tmpdir", "slash_tmp", "unknown"]
    path: str | UnsetType = UNSET
    subpath: str | UnsetType | None = UNSET


class PathFileSystemPath(Variant, frozen=True, kw_only=True, tag="path"):
    path: str


class GlobPatternFileSystemPath(Variant, frozen=True, kw_only=True, tag="glob_pattern"):
    pattern: str


class SpecialFileSystemPath(Variant, frozen=True, kw_only=True, tag="special"):
    value: FileSystemSpecialPath


FileSystemPath = PathFileSystemPath | GlobPatternFileSystemPath | SpecialFileSystemPath


class FileSystemSandboxEntry(Wire, frozen=True, kw_only=True):
    access: Closed[FileSystemAccessMode]
    path: FileSystemPath


class AdditionalFileSystemPermissions(Wire, frozen=True, kw_only=True):
    entries: tuple[FileSystemSandboxEntry, ...] | None = None
    glob_scan_max_depth: int | None = None
    read: tuple[str, ...] | None = None
    write: tuple[str, ...] | None = None


class AdditionalNetworkPermissions(Wire, frozen=True, kw_only=True):
    enabled: bool | None = None


class RequestPermissionProfile(Wire, frozen=True, kw_only=True):
    file_system: AdditionalFileSystemPermissions | None = None
    network: AdditionalNetworkPermissions | None = None
