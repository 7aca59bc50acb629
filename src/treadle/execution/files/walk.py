"""Walking a directory tree: breadth first, sorted, and within limits.

Owns what a walk lists and where it stops. Links to files, links that lead nowhere and special files are never listed;
links to directories only when asked for, and then no directory is entered twice.
"""

from __future__ import annotations

import errno
import os
import stat
from collections import deque
from dataclasses import dataclass
from typing import Final

from treadle.execution.files.directory import target_mode
from treadle.execution.files.failures import os_text, refused, reported
from treadle.execution.files.file_values import (
    MAX_ENTRIES,
    MAX_WALK_DEPTH,
    MAX_WALK_DIRECTORIES,
    EntryKind,
    WalkEntry,
    WalkFailure,
    WalkLimits,
    WalkOutcome,
)
from treadle.execution.files.place import DIRECTORY, at, open_plain
from treadle.execution.files.rights import Rights
from treadle.execution.uris import uri_from_path

MAX_RESPONSE_BYTES: Final = 4 * 1024 * 1024
MAX_SCANNED: Final = 4 * MAX_ENTRIES  # names that are not listed (links, fifos) cost time too
_ENTRY_OVERHEAD: Final = 40  # braces, names and commas around a path in JSON


@dataclass(frozen=True, slots=True)
class _Directory:
    path: str
    """As the caller will see it."""
    location: str
    """Where it is; differs from `path` when confined and below a link."""
    depth: int


def walk(rights: Rights, path: str, limits: WalkLimits) -> WalkOutcome:
    if (
        limits.max_depth > MAX_WALK_DEPTH
        or limits.max_directories > MAX_WALK_DIRECTORIES
        or limits.max_entries > MAX_ENTRIES
    ):
        raise refused(
            f"filesystem walk limits exceed maximums: depth={MAX_WALK_DEPTH}, "
            f"directories={MAX_WALK_DIRECTORIES}, entries={MAX_ENTRIES}"
        )
    location = rights.location(path)
    rights.require_read(location)
    with reported(path), at(location, plain=rights.confined) as place:
        mode = place.stat().st_mode
    if not stat.S_ISDIR(mode):
        return WalkOutcome((), (), truncated=False)
    return _Walk(rights, limits).run(_Directory(path, location, 0))


class _Walk:
    """The state of one walk."""

    def __init__(self, rights: Rights, limits: WalkLimits) -> None:
        self._rights = rights
        self._limits = limits
        self._queue: deque[_Directory] = deque()
        self._entries: list[WalkEntry] = []
        self._errors: list[WalkFailure] = []
        self._seen: set[tuple[int, int]] = set()
        self._scanned = 0
        self._size = 0
        self._truncated = False
        self._exhausted = False

    def run(self, root: _Directory) -> WalkOutcome:
        self._queue.append(root)
        while self._queue and not self._truncated and not self._exhausted:
            directory = self._queue.popleft()
            try:
                self._enter(directory)
            except OSError as error:
                message = os_text(error.errno or errno.EIO)
                if self._fits(directory.path, message):
                    self._errors.append(WalkFailure(directory.path, message))
        return WalkOutcome(tuple(self._entries), tuple(self._errors), self._truncated or self._exhausted)

    def _enter(self, directory: _Directory) -> None:
        descriptor = self._open(directory)
        try:
            found = os.fstat(descriptor)
            if (found.st_dev, found.st_ino) in self._seen:
                return
            if len(self._seen) >= self._limits.max_directories:
                self._truncated = True
                return
            self._seen.add((found.st_dev, found.st_ino))
            names = self._scan(descriptor)
        finally:
            os.close(descriptor)
        for name, kind in names:
            self._visit(directory, name, kind)
            if self._truncated:
                return

    def _open(self, directory: _Directory) -> int:
        if self._rights.confined:
            return open_plain(directory.location, DIRECTORY)
        follow = directory.depth == 0 or self._limits.follow_directory_symlinks
        return os.open(directory.location, DIRECTORY | (0 if follow else os.O_NOFOLLOW))

    def _scan(self, descriptor: int) -> list[tuple[str, EntryKind | None]]:
        """Names with their kind, sorted; None for a link."""
        found: list[tuple[str, EntryKind | None]] = []
        with os.scandir(descriptor) as scan:
            for entry in scan:
                if self._scanned >= MAX_SCANNED:
                    self._exhausted = True
                    break
                self._scanned += 1
                if entry.is_symlink():
                    found.append((entry.name, None))
                elif entry.is_dir(follow_symlinks=False):
                    found.append((entry.name, "directory"))
                elif entry.is_file(follow_symlinks=False):
                    found.append((entry.name, "file"))
        found.sort(key=lambda pair: pair[0])
        return found

    def _visit(self, parent: _Directory, name: str, kind: EntryKind | None) -> None:
        location = os.path.join(parent.location, name)
        if not self._rights.may_read(location):
            return
        if kind is None:
            if not self._leads_to_directory(location):
                return
            kind, location = "directory", self._rights.location(location)
        path = os.path.join(parent.path, name)
        if len(self._entries) >= self._limits.max_entries or not self._fits(path):
            self._truncated = True
            return
        self._entries.append(WalkEntry(path, kind))
        pruned = self._limits.prune_hidden_directories and name.startswith(".")
        if kind == "directory" and parent.depth < self._limits.max_depth and not pruned:
            self._queue.append(_Directory(path, location, parent.depth + 1))

    def _leads_to_directory(self, location: str) -> bool:
        if not self._limits.follow_directory_symlinks:
            return False
        mode = target_mode(self._rights, location)
        return mode is not None and stat.S_ISDIR(mode)

    def _fits(self, path: str, message: str = "") -> bool:
        """Account for one more line of the answer; at the limit the walk ends."""
        self._size += len(uri_from_path(path)) + len(message) + _ENTRY_OVERHEAD
        if self._size > MAX_RESPONSE_BYTES:
            self._truncated = True
        return not self._truncated
