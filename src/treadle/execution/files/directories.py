"""Directories: making them, listing them, walking the tree below them, copying and removing it.

Owns what a listing shows and where a walk stops. A copy has the content, the permission bits and links as links; a file
that is copied onto itself, by whatever name, stays as it is. A removal follows nothing on its way down. Both find what
the sandbox forbids before they change anything.
"""

from __future__ import annotations

import errno
import os
import stat
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Final

from treadle.errors import ExecError
from treadle.execution.files.files_interface import (
    MAX_BLOCK,
    MAX_ENTRIES,
    MAX_READ_BYTES,
    MAX_WALK_DEPTH,
    MAX_WALK_DIRECTORIES,
    DirEntry,
    EntryKind,
    WalkEntry,
    WalkFailure,
    WalkLimits,
    WalkOutcome,
    denied_read,
    denied_write,
    os_error,
    os_text,
    refused,
    reported,
    shown,
)
from treadle.execution.files.safe_open import (
    DIRECTORY,
    SEARCH,
    FilePermissions,
    PathAt,
    open_for_reading,
    open_for_writing,
    open_no_symlinks,
    path_at,
    write_all,
)
from treadle.execution.uris import uri_from_path

MAX_RESPONSE_BYTES: Final = 4 * 1024 * 1024
MAX_SCANNED: Final = 4 * MAX_ENTRIES  # names that are not listed (links, fifos) cost time too
MAX_COPY_DEPTH: Final = 100  # two descriptors per level; real trees stay below 60
MAX_REMOVE_DEPTH: Final = 200  # one descriptor per level; real trees stay below 60
MAX_REMOVED: Final = 10_000_000  # ends the race with somebody who adds names while we remove them
_BATCH: Final = 4096
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
    found: list[DirEntry] = []
    with reported(path), permissions.path_at(path, write=False) as at:
        directory = at.open(DIRECTORY)
        try:
            with os.scandir(directory) as entries:
                for count, entry in enumerate(entries):
                    if count >= MAX_ENTRIES:
                        text = f"directory {shown(at.path)} has more than {MAX_ENTRIES} entries; list it by a command"
                        raise refused(text)
                    mode = _mode(permissions, directory, entry, at.path)
                    if mode is not None:
                        name = os.fsencode(entry.name).decode("utf-8", "replace")
                        found.append(DirEntry(name, stat.S_ISDIR(mode), stat.S_ISREG(mode)))
        finally:
            os.close(directory)
    return sorted(found, key=lambda entry: entry.name)


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


# --- walking ---------------------------------------------------------------------------------------------------------


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
        if self._permissions.confined:
            descriptor = open_no_symlinks(directory.location, DIRECTORY)
        else:
            follow = directory.depth == 0 or self._limits.follow_directory_symlinks
            descriptor = os.open(directory.location, DIRECTORY | (0 if follow else os.O_NOFOLLOW))
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
            if not self._limits.follow_directory_symlinks:
                return
            mode = target_mode(self._permissions, location)
            if mode is None or not stat.S_ISDIR(mode):
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

    def _fits(self, path: str, message: str = "") -> bool:
        """Account for one more line of the answer; at the limit the walk ends."""
        self._size += len(uri_from_path(path)) + len(message) + _ENTRY_OVERHEAD
        if self._size > MAX_RESPONSE_BYTES:
            self._truncated = True
        return not self._truncated


# --- copying ---------------------------------------------------------------------------------------------------------


def copy(permissions: FilePermissions, source: str, destination: str, *, recursive: bool) -> None:
    with reported(source), permissions.path_at(source, write=False, link=True) as origin:
        mode = origin.lstat().st_mode
        if stat.S_ISDIR(mode):
            if not recursive:
                raise refused("fs/copy requires recursive: true when sourcePath is a directory")
            real_source, real_target = os.path.realpath(origin.path), os.path.realpath(destination)
            if real_target == real_source or real_target.startswith(real_source.rstrip("/") + "/"):
                raise refused("fs/copy cannot copy a directory to itself or one of its descendants")
            # Find what would fail half way: content that may not be read, and places that may not be written.
            permissions.require_write(real_target)
            for hidden in permissions.unreadable_below(real_source):
                if os.path.lexists(hidden):
                    raise denied_read(hidden)
            for protected in permissions.unwritable_below(real_target):
                if os.path.lexists(os.path.join(real_source, os.path.relpath(protected, real_target))):
                    raise denied_write(protected)
            with reported(destination):
                if not os.path.lexists(real_target):
                    create_parents(permissions, os.path.dirname(real_target))
                with path_at(real_target, no_symlinks=permissions.confined) as at:
                    _TreeCopy(permissions).tree(origin, at, existed=_make(at), depth=1)
            return
        if not stat.S_ISREG(mode) and not stat.S_ISLNK(mode):
            raise refused("fs/copy only supports regular files, directories, and symlinks")
        link = stat.S_ISLNK(mode)
        with reported(destination), permissions.path_at(destination, write=True, link=link) as target:
            _copy_entry(origin, target, link=link)


def _copy_entry(origin: PathAt, target: PathAt, *, link: bool) -> None:
    if link:
        try:
            os.symlink(os.readlink(origin.name, dir_fd=origin.directory), target.name, dir_fd=target.directory)
        except FileExistsError:
            if not os.path.samestat(origin.lstat(), target.lstat()):
                raise
        return
    with reported(origin.path):
        reader = open_for_reading(PathAt(origin.directory, origin.name, origin.path, follow=False))
    try:
        source = os.fstat(reader)
        bits = stat.S_IMODE(source.st_mode) & 0o777
        writer = open_for_writing(target, bits)
        try:
            if os.path.samestat(source, os.fstat(writer)):
                return
            os.ftruncate(writer, 0)
            # What is appended while we copy is left out, else a busy log would never end. Kernel files say size 0.
            left = source.st_size or MAX_READ_BYTES
            while left and (block := os.read(reader, min(left, MAX_BLOCK))):
                write_all(writer, block)
                left -= len(block)
            os.fchmod(writer, bits)
        finally:
            os.close(writer)
    finally:
        os.close(reader)


class _TreeCopy:
    """One recursive copy. Fifos, sockets and devices inside the tree are left out."""

    def __init__(self, permissions: FilePermissions) -> None:
        self._permissions = permissions
        self._made: tuple[int, int] | None = None

    def tree(self, origin: PathAt, target: PathAt, *, existed: bool, depth: int) -> None:
        if depth > MAX_COPY_DEPTH:
            raise refused(f"{shown(origin.path)} is more than {MAX_COPY_DEPTH} directories deep; copy it by a command")
        with reported(origin.path):
            reader = os.open(origin.name, DIRECTORY | os.O_NOFOLLOW, dir_fd=origin.directory)
        try:
            with reported(target.path):
                writer = target.open(DIRECTORY)
            try:
                # Paths may hide that the copy is inside its source (a bind mount); the directories themselves do not.
                if self._made is None:
                    made = os.fstat(writer)
                    self._made = (made.st_dev, made.st_ino)
                read = os.fstat(reader)
                if (read.st_dev, read.st_ino) == self._made:
                    raise refused("fs/copy cannot copy a directory to itself or one of its descendants")
                self._content(reader, writer, origin.path, target.path, depth)
                if not existed:
                    os.fchmod(writer, stat.S_IMODE(os.fstat(reader).st_mode) & 0o777)
            finally:
                os.close(writer)
        finally:
            os.close(reader)

    def _content(self, reader: int, writer: int, source: str, target: str, depth: int) -> None:
        with os.scandir(reader) as scan:
            for entry in scan:
                origin = PathAt(reader, entry.name, os.path.join(source, entry.name), follow=False)
                copied = PathAt(writer, entry.name, os.path.join(target, entry.name), follow=False)
                self._permissions.require_read(origin.path)
                self._permissions.require_write(copied.path)
                with reported(origin.path):
                    mode = origin.lstat().st_mode
                if stat.S_ISDIR(mode):
                    self.tree(origin, copied, existed=_make(copied), depth=depth + 1)
                elif stat.S_ISREG(mode) or stat.S_ISLNK(mode):
                    with reported(copied.path):
                        _copy_entry(origin, copied, link=stat.S_ISLNK(mode))


def _make(at: PathAt) -> bool:
    """Make the directory; True when it was there. It stays private until its content is complete."""
    with reported(at.path):
        try:
            os.mkdir(at.name, 0o700, dir_fd=at.directory)
        except FileExistsError:
            if not stat.S_ISDIR(at.lstat().st_mode):
                raise
            return True
        return False


# --- removing --------------------------------------------------------------------------------------------------------


# One wrong path must not take the machine along: folders that every system has are not removed with what is in them.
SYSTEM_FOLDERS: Final = frozenset(
    [
        *("/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/lib64", "/media", "/mnt", "/opt", "/proc", "/root"),
        *("/run", "/sbin", "/srv", "/sys", "/tmp", "/usr", "/var"),
    ]
)


def remove(permissions: FilePermissions, path: str, *, recursive: bool, force: bool, follow: bool) -> None:
    """Remove what is at the path: a link itself, never its target. `force`: nothing there is fine."""
    with reported(path):
        try:
            with permissions.path_at(path, write=True, follow=follow, link=True) as at:
                mode = at.lstat().st_mode
                if at.path == "/":
                    raise refused("the root directory cannot be removed")
                if at.name in (".", ".."):
                    raise refused(f"{shown(at.path)} cannot be removed: name the folder itself")
                if stat.S_ISLNK(mode) and not follow:
                    raise os_error(errno.ELOOP)
                permissions.require_write(os.path.dirname(at.path))
                if not stat.S_ISDIR(mode):
                    os.unlink(at.name, dir_fd=at.directory)
                elif not recursive:
                    os.rmdir(at.name, dir_fd=at.directory)
                elif os.path.join(os.path.realpath(os.path.dirname(at.path)), at.name) in SYSTEM_FOLDERS:
                    raise refused(f"{at.path} is a folder of the system: remove what is in it by name")
                else:
                    for protected in permissions.unwritable_below(at.path):
                        if os.path.lexists(protected):
                            raise denied_write(protected)
                    _Removal(permissions).tree(at, depth=1)
        except FileNotFoundError:
            if not force:
                raise


class _Removal:
    """One recursive removal and its budget."""

    def __init__(self, permissions: FilePermissions) -> None:
        self._permissions = permissions
        self._removed = 0

    def tree(self, at: PathAt, depth: int) -> None:
        if depth > MAX_REMOVE_DEPTH:
            raise refused(f"{shown(at.path)} is more than {MAX_REMOVE_DEPTH} directories deep; remove it by a command")
        with reported(at.path), suppress(FileNotFoundError):
            directory = os.open(at.name, DIRECTORY | os.O_NOFOLLOW, dir_fd=at.directory)
            try:
                self._content(directory, at.path, depth)
            finally:
                os.close(directory)
            os.rmdir(at.name, dir_fd=at.directory)

    def _content(self, directory: int, path: str, depth: int) -> None:
        while True:
            # Names are read in batches: a directory may hold more of them than fit in memory.
            with os.scandir(directory) as scan:
                batch = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in islice(scan, _BATCH)]
            if not batch:
                return
            self._removed += len(batch)
            if self._removed > MAX_REMOVED:
                raise refused(f"{shown(path)}: gave up after {MAX_REMOVED} names; remove it by a command")
            for name, is_directory in batch:
                at = PathAt(directory, name, os.path.join(path, name), follow=False)
                self._permissions.require_write(at.path)
                if is_directory:
                    self.tree(at, depth + 1)
                    continue
                with suppress(FileNotFoundError):
                    os.unlink(at.name, dir_fd=at.directory)
