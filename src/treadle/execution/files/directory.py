"""Directories: making them and listing them.

Owns what happens to one directory. Trees are the business of `walk`, `copy` and `remove`.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import Final

from treadle.errors import ExecError
from treadle.execution.files.failures import os_error, refused, reported, shown
from treadle.execution.files.file_values import MAX_ENTRIES, DirEntry
from treadle.execution.files.place import DIRECTORY, Place, at
from treadle.execution.files.rights import Rights

_SEARCH: Final = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC


def create_directory(rights: Rights, path: str, recursive: bool) -> None:
    with reported(path):
        if recursive:
            create_parents(rights, rights.location(path))
            return
        with rights.place(path, write=True, link=True) as place:
            os.mkdir(place.name, dir_fd=place.directory)


def create_parents(rights: Rights, path: str) -> None:
    """Make the directory and all that is missing above it; `path` is a location, canonical when confined."""
    rights.require_write(path)
    parts = [part for part in path.split("/") if part]
    directory = os.open("/", _SEARCH)
    try:
        for count, part in enumerate(parts, 1):
            inner = _enter(rights, Place(directory, part, "/" + "/".join(parts[:count]), follow=not rights.confined))
            os.close(directory)
            directory = inner
    except NotADirectoryError:
        if count == len(parts):
            raise os_error(errno.EEXIST) from None
        raise
    finally:
        os.close(directory)


def _enter(rights: Rights, place: Place) -> int:
    try:
        return place.open(_SEARCH)
    except FileNotFoundError:
        rights.require_write(place.path)
    try:
        os.mkdir(place.name, dir_fd=place.directory)
    except FileExistsError:
        # Somebody else was faster, or a link leads nowhere.
        if stat.S_ISLNK(place.lstat().st_mode):
            raise
    return place.open(_SEARCH)


def list_directory(rights: Rights, path: str) -> list[DirEntry]:
    """What the names lead to, sorted; what leads nowhere or may not be read is left out."""
    with reported(path), rights.place(path, write=False) as place:
        directory = place.open(DIRECTORY)
        try:
            return _list(rights, directory, place.path)
        finally:
            os.close(directory)


def _list(rights: Rights, directory: int, path: str) -> list[DirEntry]:
    entries: list[DirEntry] = []
    with os.scandir(directory) as scan:
        for count, entry in enumerate(scan):
            if count >= MAX_ENTRIES:
                raise refused(f"directory {shown(path)} has more than {MAX_ENTRIES} entries; list it by a command")
            mode = _mode(rights, directory, entry, path)
            if mode is not None:
                name = os.fsencode(entry.name).decode("utf-8", "replace")
                entries.append(DirEntry(name, stat.S_ISDIR(mode), stat.S_ISREG(mode)))
    entries.sort(key=lambda entry: entry.name)
    return entries


def _mode(rights: Rights, directory: int, entry: os.DirEntry[str], path: str) -> int | None:
    """The mode of what an entry leads to; None for what a reader would not find."""
    if not rights.confined:
        return _stat_mode(entry.name, directory, follow=True)
    inside = os.path.join(path, entry.name)
    if not rights.may_read(inside):
        return None
    if entry.is_symlink():
        return target_mode(rights, inside)
    return _stat_mode(entry.name, directory, follow=False)


def target_mode(rights: Rights, path: str) -> int | None:
    """The mode of what a link leads to; None when it leads nowhere or out of what may be read."""
    try:
        target = rights.location(path)
        rights.require_read(target)
        with at(target, plain=rights.confined) as place:
            return place.stat().st_mode
    except (OSError, ExecError):  # nothing there for this reader, which is the answer
        return None


def _stat_mode(name: str, directory: int, *, follow: bool) -> int | None:
    try:
        return os.stat(name, dir_fd=directory, follow_symlinks=follow).st_mode
    except OSError:  # a dangling link, or gone since it was read: not an entry
        return None
