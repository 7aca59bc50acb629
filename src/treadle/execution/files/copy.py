"""Copying a file, a link or a whole directory.

Owns what a copy keeps (content, permission bits, links as links) and what it refuses. A file copied onto itself, by
whatever name, stays as it is.
"""

from __future__ import annotations

import os
import stat
from typing import Final

from treadle.execution.files.directory import create_parents
from treadle.execution.files.failures import denied_read, denied_write, refused, reported, shown
from treadle.execution.files.file_values import MAX_BLOCK, MAX_READ_BYTES
from treadle.execution.files.place import DIRECTORY, Place, at
from treadle.execution.files.regular import open_for_reading, open_for_writing, write_all
from treadle.execution.files.rights import Rights

MAX_DEPTH: Final = 100  # two descriptors per level; real trees stay below 60


def copy(rights: Rights, source: str, destination: str, *, recursive: bool) -> None:
    with reported(source), rights.place(source, write=False, link=True) as origin:
        mode = origin.lstat().st_mode
        if stat.S_ISDIR(mode):
            if not recursive:
                raise refused("fs/copy requires recursive: true when sourcePath is a directory")
            _copy_directory(rights, origin, destination)
            return
        if not stat.S_ISREG(mode) and not stat.S_ISLNK(mode):
            raise refused("fs/copy only supports regular files, directories, and symlinks")
        link = stat.S_ISLNK(mode)
        with reported(destination), rights.place(destination, write=True, link=link) as target:
            _copy_entry(origin, target, link=link)


def _copy_entry(origin: Place, target: Place, *, link: bool) -> None:
    if link:
        _copy_link(origin, target)
        return
    with reported(origin.path):
        reader = open_for_reading(Place(origin.directory, origin.name, origin.path, follow=False))
    try:
        _copy_content(reader, target)
    finally:
        os.close(reader)


def _copy_link(origin: Place, target: Place) -> None:
    try:
        os.symlink(os.readlink(origin.name, dir_fd=origin.directory), target.name, dir_fd=target.directory)
    except FileExistsError:
        if not os.path.samestat(origin.lstat(), target.lstat()):
            raise


def _copy_content(reader: int, target: Place) -> None:
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


def _copy_directory(rights: Rights, origin: Place, destination: str) -> None:
    source, target = os.path.realpath(origin.path), os.path.realpath(destination)
    if target == source or target.startswith(source.rstrip("/") + "/"):
        raise refused("fs/copy cannot copy a directory to itself or one of its descendants")
    _refuse_protected(rights, source, target)
    with reported(destination):
        if not os.path.lexists(target):
            create_parents(rights, os.path.dirname(target))
        with at(target, plain=rights.confined) as place:
            _TreeCopy(rights).tree(origin, place, existed=_make(place), depth=1)


def _refuse_protected(rights: Rights, source: str, target: str) -> None:
    """Find what would fail half way: content that may not be read, and places that may not be written."""
    rights.require_write(target)
    for hidden in rights.unreadable_below(source):
        if os.path.lexists(hidden):
            raise denied_read(hidden)
    for protected in rights.unwritable_below(target):
        if os.path.lexists(os.path.join(source, os.path.relpath(protected, target))):
            raise denied_write(protected)


class _TreeCopy:
    """One recursive copy. Fifos, sockets and devices inside the tree are left out."""

    def __init__(self, rights: Rights) -> None:
        self._rights = rights
        self._made: tuple[int, int] | None = None

    def tree(self, origin: Place, target: Place, *, existed: bool, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise refused(f"{shown(origin.path)} is more than {MAX_DEPTH} directories deep; copy it by a command")
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
                origin = Place(reader, entry.name, os.path.join(source, entry.name), follow=False)
                copied = Place(writer, entry.name, os.path.join(target, entry.name), follow=False)
                self._entry(origin, copied, depth)

    def _entry(self, origin: Place, target: Place, depth: int) -> None:
        self._rights.require_read(origin.path)
        self._rights.require_write(target.path)
        with reported(origin.path):
            mode = origin.lstat().st_mode
        if stat.S_ISDIR(mode):
            self.tree(origin, target, existed=_make(target), depth=depth + 1)
        elif stat.S_ISREG(mode) or stat.S_ISLNK(mode):
            with reported(target.path):
                _copy_entry(origin, target, link=stat.S_ISLNK(mode))


def _make(place: Place) -> bool:
    """Make the directory; True when it was there. It stays private until its content is complete."""
    with reported(place.path):
        try:
            os.mkdir(place.name, 0o700, dir_fd=place.directory)
        except FileExistsError:
            if not stat.S_ISDIR(place.lstat().st_mode):
                raise
            return True
        return False
