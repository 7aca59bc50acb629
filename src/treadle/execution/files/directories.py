"""Directories: making them, listing them and walking the tree below them.

Owns what a listing shows and where a walk stops. Copying and removing trees is `tree_changes`.
"""

from __future__ import annotations

import errno
import os
import stat
from collections import deque
from dataclasses import dataclass
from typing import Final

from treadle.errors import ExecError
from treadle.execution.files.file_errors import os_error, os_text, refused, reported, shown
from treadle.execution.files.files_interface import (
    MAX_ENTRIES,
    MAX_WALK_DEPTH,
    MAX_WALK_DIRECTORIES,
    DirEntry,
    EntryKind,
    WalkEntry,
    WalkFailure,
    WalkLimits,
    WalkOutcome,
)
from treadle.execution.files.safe_open import DIRECTORY, SEARCH, FilePermissions, PathAt, open_no_symlinks, path_at
from treadle.execution.uris import uri_from_path

MAX_RESPONSE_BYTES: Final = 4 * 1024 * 1024
MAX_SCANNED: Final = 4 * MAX_ENTRIES  # names that are not listed (links, fifos) cost time too
_ENTRY_OVERHEAD: Final = 40  # braces, names and commas around a path in JSON


def create_directory(permissions: FilePermissions, path: str, recursive: bool) -> None:
    with reported(path):
        if recursive:
            create_parents(permissions, permissions.location(path))
            return
        with permissions.path_at(path, write=True, link=True) as at:
            os.mkdir(at.name, dir_fd=at.directory)


def create_parents(permissions: FilePermissions, path: str) -> None:
    """Make the directory and all that is missing above it; `path` is a location, canonical when confined."""
    permissions.require_write(path)
    parts = [part for part in path.split("/") if part]
    directory = os.open("/", SEARCH)
    try:
        for count, part in enumerate(parts, 1):
            inner = _enter(
                permissions, PathAt(directory, part, "/" + "/".join(parts[:count]), follow=not permissions.confined)
            )
            os.close(directory)
            directory = inner
    except NotADirectoryError:
        if count == len(parts):
            raise os_error(errno.EEXIST) from None
        raise
    finally:
        os.close(directory)


def _enter(permissions: FilePermissions, at: PathAt) -> int:
    try:
        return at.open(SEARCH)
    except FileNotFoundError:
        permissions.require_write(at.path)
    try:
        os.mkdir(at.name, dir_fd=at.directory)
    except FileExistsError:
        # Somebody else was faster, or a link leads nowhere.
        if stat.S_ISLNK(at.lstat().st_mode):
            raise
    return at.open(SEARCH)


def list_directory(permissions: FilePermissions, path: str) -> list[DirEntry]:
    """What the names lead to, sorted; what leads nowhere or may not be read is left out."""
    with reported(path), permissions.path_at(path, write=False) as at:
        directory = at.open(DIRECTORY)
        try:
            return _list(permissions, directory, at.path)
        finally:
            os.close(directory)


def _list(permissions: FilePermissions, directory: int, path: str) -> list[DirEntry]:
    entries: list[DirEntry] = []
    with os.scandir(directory) as scan:
        for count, entry in enumerate(scan):
            if count >= MAX_ENTRIES:
                raise refused(f"directory {shown(path)} has more than {MAX_ENTRIES} entries; list it by a command")
            mode = _mode(permissions, directory, entry, path)
            if mode is not None:
                name = os.fsencode(entry.name).decode("utf-8", "replace")
                entries.append(DirEntry(name, stat.S_ISDIR(mode), stat.S_ISREG(mode)))
    entries.sort(key=lambda entry: entry.name)
    return entries


def _mode(permissions: FilePermissions, directory: int, entry: os.DirEntry[str], path: str) -> int | None:
    """The mode of what an entry leads to; None for what a reader would not find."""
    if not permissions.confined:
        return _stat_mode(entry.name, directory, follow=True)
    inside = os.path.join(path, entry.name)
    if not permissions.may_read(inside):
        return None
    if entry.is_symlink():
        return target_mode(permissions, inside)
    return _stat_mode(entry.name, directory, follow=False)


def target_mode(permissions: FilePermissions, path: str) -> int | None:
    """The mode of what a link leads to; None when it leads nowhere or out of what may be read."""
    try:
        target = permissions.location(path)
        permissions.require_read(target)
        with path_at(target, no_symlinks=permissions.confined) as at:
            return at.stat().st_mode
    except (OSError, ExecError):  # nothing there for this reader, which is the answer
        return None


def _stat_mode(name: str, directory: int, *, follow: bool) -> int | None:
    try:
        return os.stat(name, dir_fd=directory, follow_symlinks=follow).st_mode
    except OSError:  # a dangling link, or gone since it was read: not an entry
        return None


@dataclass(frozen=True, slots=True)
class _Directory:
    path: str
    """As the caller will see it."""
    location: str
    """Where it is; differs from `path` when confined and below a link."""
    depth: int


def walk(permissions: FilePermissions, path: str, limits: WalkLimits) -> WalkOutcome:
    if (
        limits.max_depth > MAX_WALK_DEPTH
        or limits.max_directories > MAX_WALK_DIRECTORIES
        or limits.max_entries > MAX_ENTRIES
    ):
        raise refused(
            f"filesystem walk limits exceed maximums: depth={MAX_WALK_DEPTH}, "
            f"directories={MAX_WALK_DIRECTORIES}, entries={MAX_ENTRIES}"
        )
    location = permissions.location(path)
    permissions.require_read(location)
    with reported(path), path_at(location, no_symlinks=permissions.confined) as at:
        mode = at.stat().st_mode
    if not stat.S_ISDIR(mode):
        return WalkOutcome((), (), truncated=False)
    return _Walk(permissions, limits).run(_Directory(path, location, 0))


class _Walk:
    """The state of one walk, breadth first.

    Links to files, links that lead nowhere and special files are never listed; links to directories only when asked
    for, and then no directory is entered twice.
    """

    def __init__(self, permissions: FilePermissions, limits: WalkLimits) -> None:
        self._permissions = permissions
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
        if self._permissions.confined:
            return open_no_symlinks(directory.location, DIRECTORY)
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
        if not self._permissions.may_read(location):
            return
        if kind is None:
            if not self._leads_to_directory(location):
                return
            kind, location = "directory", self._permissions.location(location)
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
        mode = target_mode(self._permissions, location)
        return mode is not None and stat.S_ISDIR(mode)

    def _fits(self, path: str, message: str = "") -> bool:
        """Account for one more line of the answer; at the limit the walk ends."""
        self._size += len(uri_from_path(path)) + len(message) + _ENTRY_OVERHEAD
        if self._size > MAX_RESPONSE_BYTES:
            self._truncated = True
        return not self._truncated
