"""Copying and removing: a file, a link or a whole directory.

A copy keeps content, permission bits and links as links; a file copied onto itself, by whatever name, stays as it is.
A removal follows nothing on its way down. Both find what the sandbox forbids before they change anything.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from itertools import islice
from typing import Final

from treadle.execution.files.directories import create_parents
from treadle.execution.files.file_errors import denied_read, denied_write, os_error, refused, reported, shown
from treadle.execution.files.files_interface import MAX_BLOCK, MAX_READ_BYTES
from treadle.execution.files.safe_open import (
    DIRECTORY,
    FilePermissions,
    PathAt,
    open_for_reading,
    open_for_writing,
    path_at,
    write_all,
)

MAX_COPY_DEPTH: Final = 100  # two descriptors per level; real trees stay below 60
MAX_REMOVE_DEPTH: Final = 200  # one descriptor per level; real trees stay below 60
MAX_REMOVED: Final = 10_000_000  # ends the race with somebody who adds names while we remove them
_BATCH: Final = 4096


def copy(permissions: FilePermissions, source: str, destination: str, *, recursive: bool) -> None:
    with reported(source), permissions.path_at(source, write=False, link=True) as origin:
        mode = origin.lstat().st_mode
        if stat.S_ISDIR(mode):
            if not recursive:
                raise refused("fs/copy requires recursive: true when sourcePath is a directory")
            _copy_directory(permissions, origin, destination)
            return
        if not stat.S_ISREG(mode) and not stat.S_ISLNK(mode):
            raise refused("fs/copy only supports regular files, directories, and symlinks")
        link = stat.S_ISLNK(mode)
        with reported(destination), permissions.path_at(destination, write=True, link=link) as target:
            _copy_entry(origin, target, link=link)


def _copy_entry(origin: PathAt, target: PathAt, *, link: bool) -> None:
    if link:
        _copy_link(origin, target)
        return
    with reported(origin.path):
        reader = open_for_reading(PathAt(origin.directory, origin.name, origin.path, follow=False))
    try:
        _copy_content(reader, target)
    finally:
        os.close(reader)


def _copy_link(origin: PathAt, target: PathAt) -> None:
    try:
        os.symlink(os.readlink(origin.name, dir_fd=origin.directory), target.name, dir_fd=target.directory)
    except FileExistsError:
        if not os.path.samestat(origin.lstat(), target.lstat()):
            raise


def _copy_content(reader: int, target: PathAt) -> None:
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


def _copy_directory(permissions: FilePermissions, origin: PathAt, destination: str) -> None:
    source, target = os.path.realpath(origin.path), os.path.realpath(destination)
    if target == source or target.startswith(source.rstrip("/") + "/"):
        raise refused("fs/copy cannot copy a directory to itself or one of its descendants")
    _refuse_protected(permissions, source, target)
    with reported(destination):
        if not os.path.lexists(target):
            create_parents(permissions, os.path.dirname(target))
        with path_at(target, no_symlinks=permissions.confined) as at:
            _TreeCopy(permissions).tree(origin, at, existed=_make(at), depth=1)


def _refuse_protected(permissions: FilePermissions, source: str, target: str) -> None:
    """Find what would fail half way: content that may not be read, and places that may not be written."""
    permissions.require_write(target)
    for hidden in permissions.unreadable_below(source):
        if os.path.lexists(hidden):
            raise denied_read(hidden)
    for protected in permissions.unwritable_below(target):
        if os.path.lexists(os.path.join(source, os.path.relpath(protected, target))):
            raise denied_write(protected)


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
                self._refuse_own_copy(reader, writer)
                self._content(reader, writer, origin.path, target.path, depth)
                if not existed:
                    os.fchmod(writer, stat.S_IMODE(os.fstat(reader).st_mode) & 0o777)
            finally:
                os.close(writer)
        finally:
            os.close(reader)

    def _refuse_own_copy(self, reader: int, writer: int) -> None:
        """Paths may hide that the copy is inside its source (a bind mount); the directories themselves do not."""
        if self._made is None:
            made = os.fstat(writer)
            self._made = (made.st_dev, made.st_ino)
        read = os.fstat(reader)
        if (read.st_dev, read.st_ino) == self._made:
            raise refused("fs/copy cannot copy a directory to itself or one of its descendants")

    def _content(self, reader: int, writer: int, source: str, target: str, depth: int) -> None:
        with os.scandir(reader) as scan:
            for entry in scan:
                origin = PathAt(reader, entry.name, os.path.join(source, entry.name), follow=False)
                copied = PathAt(writer, entry.name, os.path.join(target, entry.name), follow=False)
                self._entry(origin, copied, depth)

    def _entry(self, origin: PathAt, target: PathAt, depth: int) -> None:
        self._permissions.require_read(origin.path)
        self._permissions.require_write(target.path)
        with reported(origin.path):
            mode = origin.lstat().st_mode
        if stat.S_ISDIR(mode):
            self.tree(origin, target, existed=_make(target), depth=depth + 1)
        elif stat.S_ISREG(mode) or stat.S_ISLNK(mode):
            with reported(target.path):
                _copy_entry(origin, target, link=stat.S_ISLNK(mode))


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


def remove(permissions: FilePermissions, path: str, *, recursive: bool, force: bool, follow: bool) -> None:
    """Remove what is at the path: a link itself, never its target. `force`: nothing there is fine."""
    with reported(path):
        try:
            with permissions.path_at(path, write=True, follow=follow, link=True) as at:
                _remove_at(permissions, at, recursive, follow)
        except FileNotFoundError:
            if not force:
                raise


def _remove_at(permissions: FilePermissions, at: PathAt, recursive: bool, follow: bool) -> None:
    mode = at.lstat().st_mode
    if at.path == "/":
        raise refused("the root directory cannot be removed")
    if stat.S_ISLNK(mode) and not follow:
        raise os_error(errno.ELOOP)
    permissions.require_write(os.path.dirname(at.path))
    if not stat.S_ISDIR(mode):
        os.unlink(at.name, dir_fd=at.directory)
    elif not recursive:
        os.rmdir(at.name, dir_fd=at.directory)
    else:
        for protected in permissions.unwritable_below(at.path):
            if os.path.lexists(protected):
                raise denied_write(protected)
        _Removal(permissions).tree(at, depth=1)


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
                self._child(PathAt(directory, name, os.path.join(path, name), follow=False), is_directory, depth)

    def _child(self, at: PathAt, is_directory: bool, depth: int) -> None:
        self._permissions.require_write(at.path)
        if is_directory:
            self.tree(at, depth + 1)
            return
        with suppress(FileNotFoundError):
            os.unlink(at.name, dir_fd=at.directory)
