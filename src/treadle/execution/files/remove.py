"""Removing a file, a link or a whole directory.

Owns the order of things: what may not be removed is found before anything is, and nothing is followed on the way down.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from itertools import islice
from typing import Final

from treadle.execution.files.failures import denied_write, os_error, refused, reported, shown
from treadle.execution.files.place import DIRECTORY, Place
from treadle.execution.files.rights import Rights

MAX_DEPTH: Final = 200  # one descriptor per level; real trees stay below 60
MAX_REMOVED: Final = 10_000_000  # ends the race with somebody who adds names while we remove them
_BATCH: Final = 4096


def remove(rights: Rights, path: str, *, recursive: bool, force: bool, follow: bool) -> None:
    """Remove what is at the path: a link itself, never its target. `force`: nothing there is fine."""
    with reported(path):
        try:
            with rights.place(path, write=True, follow=follow, link=True) as place:
                _remove_at(rights, place, recursive, follow)
        except FileNotFoundError:
            if not force:
                raise


def _remove_at(rights: Rights, place: Place, recursive: bool, follow: bool) -> None:
    mode = place.lstat().st_mode
    if place.path == "/":
        raise refused("the root directory cannot be removed")
    if stat.S_ISLNK(mode) and not follow:
        raise os_error(errno.ELOOP)
    rights.require_write(os.path.dirname(place.path))
    if not stat.S_ISDIR(mode):
        os.unlink(place.name, dir_fd=place.directory)
    elif not recursive:
        os.rmdir(place.name, dir_fd=place.directory)
    else:
        for protected in rights.unwritable_below(place.path):
            if os.path.lexists(protected):
                raise denied_write(protected)
        _Removal(rights).tree(place, depth=1)


class _Removal:
    """One recursive removal and its budget."""

    def __init__(self, rights: Rights) -> None:
        self._rights = rights
        self._removed = 0

    def tree(self, place: Place, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise refused(f"{shown(place.path)} is more than {MAX_DEPTH} directories deep; remove it by a command")
        with reported(place.path), suppress(FileNotFoundError):
            directory = os.open(place.name, DIRECTORY | os.O_NOFOLLOW, dir_fd=place.directory)
            try:
                self._content(directory, place.path, depth)
            finally:
                os.close(directory)
            os.rmdir(place.name, dir_fd=place.directory)

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
                self._child(Place(directory, name, os.path.join(path, name), follow=False), is_directory, depth)

    def _child(self, place: Place, is_directory: bool, depth: int) -> None:
        self._rights.require_write(place.path)
        if is_directory:
            self.tree(place, depth + 1)
            return
        with suppress(FileNotFoundError):
            os.unlink(place.name, dir_fd=place.directory)
