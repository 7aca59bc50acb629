"""File operations on this machine, by native path, under an optional sandbox policy.

The one door to the disk for the exec-server and for local users. Synchronous: callers run it in a worker thread.
Paths are absolute and normalised (`treadle.execution.uris.native_path`); every refusal is an `ExecError`.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING

from treadle.execution.files.copy import copy
from treadle.execution.files.directory import create_directory, list_directory
from treadle.execution.files.failures import refused, reported, shown
from treadle.execution.files.file_values import DirEntry, FileStat, OpenMode, WalkLimits, WalkOutcome
from treadle.execution.files.regular import open_for_reading, open_for_writing, read_all, write_all
from treadle.execution.files.remove import remove
from treadle.execution.files.rights import Rights
from treadle.execution.files.walk import walk

if TYPE_CHECKING:
    from treadle.execution.sandbox.policy import Policy


class FileAccess:
    """What may be done with files under `policy`; without one, whatever the user of this process may do."""

    __slots__ = ("_rights",)

    def __init__(self, policy: Policy | None = None) -> None:
        self._rights = Rights(policy)

    def read(self, path: str, follow: bool = True) -> bytes:
        descriptor = self.open(path, "read", follow)
        try:
            with reported(path):
                return read_all(descriptor, path)
        finally:
            os.close(descriptor)

    def write(self, path: str, data: bytes, follow: bool = True) -> None:
        """Create the file, or replace its content in place."""
        descriptor = self.open(path, "replace", follow)
        try:
            with reported(path):
                write_all(descriptor, data)
        finally:
            os.close(descriptor)

    def open(self, path: str, mode: OpenMode, follow: bool = True) -> int:
        """A descriptor of a regular file, for the caller to close; `replace` creates it or empties it at once."""
        writing = mode == "replace"
        with reported(path), self._rights.place(path, write=writing, follow=follow) as place:
            if not writing:
                return open_for_reading(place)
            descriptor = open_for_writing(place)
            try:
                os.ftruncate(descriptor, 0)
            except BaseException:
                os.close(descriptor)
                raise
            return descriptor

    def stat(self, path: str, follow: bool = True) -> FileStat:
        with reported(path):
            try:
                with self._rights.place(path, write=False, follow=follow) as place:
                    found = place.stat()
            except OSError as error:
                if not follow and error.errno == errno.ELOOP:
                    raise refused(f"path contains a symbolic link: {shown(path)}") from error
                raise
        return FileStat(
            is_directory=stat.S_ISDIR(found.st_mode),
            is_file=stat.S_ISREG(found.st_mode),
            is_symlink=follow and os.path.islink(path),
            size=found.st_size,
            created_at_ms=0,
            modified_at_ms=max(0, found.st_mtime_ns // 1_000_000),
        )

    def canonicalize(self, path: str) -> str:
        """The path without symbolic links; it must exist."""
        with reported(path):
            if not self._rights.confined:
                return os.path.realpath(path, strict=True)
            with self._rights.place(path, write=False) as place:
                place.stat()
                return place.path

    def create_directory(self, path: str, recursive: bool = True) -> None:
        create_directory(self._rights, path, recursive)

    def list(self, path: str) -> list[DirEntry]:
        return list_directory(self._rights, path)

    def walk(self, path: str, limits: WalkLimits) -> WalkOutcome:
        return walk(self._rights, path, limits)

    def remove(self, path: str, recursive: bool = True, force: bool = True, follow: bool = True) -> None:
        remove(self._rights, path, recursive=recursive, force=force, follow=follow)

    def copy(self, source: str, destination: str, recursive: bool = False) -> None:
        copy(self._rights, source, destination, recursive=recursive)
