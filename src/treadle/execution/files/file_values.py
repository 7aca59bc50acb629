"""What file operations answer: values without behaviour, the same from a local disk and from a remote server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

MAX_READ_BYTES: Final = 512 * 1024 * 1024
MAX_ENTRIES: Final = 50_000
MAX_WALK_DEPTH: Final = 64
MAX_WALK_DIRECTORIES: Final = 10_000
MAX_BLOCK: Final = 1024 * 1024

OpenMode = Literal["read", "replace"]
EntryKind = Literal["directory", "file"]


@dataclass(frozen=True, slots=True)
class FileStat:
    """A path, described by what it leads to; only `is_symlink` is about the path itself.

    `created_at_ms` is 0 where the creation time is not known.
    """

    is_directory: bool
    is_file: bool
    is_symlink: bool
    size: int
    created_at_ms: int
    modified_at_ms: int


@dataclass(frozen=True, slots=True)
class DirEntry:
    """A name in a directory, described by what it leads to. Bytes that are no UTF-8 show as U+FFFD in `name`."""

    name: str
    is_directory: bool
    is_file: bool


@dataclass(frozen=True, slots=True)
class WalkEntry:
    path: str
    kind: EntryKind


@dataclass(frozen=True, slots=True)
class WalkFailure:
    """A directory that could not be read."""

    path: str
    message: str


@dataclass(frozen=True, slots=True)
class WalkOutcome:
    """Breadth first, each directory sorted by name. `truncated` means that a limit left something out."""

    entries: tuple[WalkEntry, ...]
    errors: tuple[WalkFailure, ...]
    truncated: bool


@dataclass(frozen=True, slots=True)
class WalkLimits:
    """How far a walk goes. With `max_depth` 0 only the names in the root itself are listed."""

    max_depth: int = MAX_WALK_DEPTH
    max_directories: int = MAX_WALK_DIRECTORIES
    max_entries: int = MAX_ENTRIES
    follow_directory_symlinks: bool = False
    prune_hidden_directories: bool = False
