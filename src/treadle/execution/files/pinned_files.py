"""`PinnedFiles`: a few paths of this machine, resolved once. Whatever is done later is done to what they led to then.

Owns the promise that a decision is about a file and not about a name. Between the look and the write somebody may swap
a directory, or put a link in its place: then the operation fails, and never goes elsewhere. A location is a path
without links and the identity of the directory that it lies in; every operation opens that path without following links
and compares the directory, by descriptor. What may be read and written is decided by `FilePermissions`.
"""

from __future__ import annotations

import errno
import os
import stat
from asyncio import to_thread
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from treadle.errors import INVALID_REQUEST, NOT_FOUND, ExecError
from treadle.execution.files.files_interface import not_a_file, os_error, reported, shown
from treadle.execution.files.safe_open import (
    SEARCH,
    FilePermissions,
    PathAt,
    open_for_reading,
    open_for_writing,
    open_no_symlinks,
    path_at,
    read_all,
    write_all,
)
from treadle.execution.uris import native_path

if TYPE_CHECKING:
    from treadle.execution.sandbox.policy import Policy

Identity = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Location:
    """A path without symbolic links; `directory` is the deepest one above it that exists, `identity` says which."""

    path: str
    directory: str
    identity: Identity


@dataclass(frozen=True, slots=True)
class PinnedTarget:
    """Where a name led. `file` is read and written, `entry` is removed; they differ when the name is a link itself."""

    name: str
    file: Location
    entry: Location
    link: str | None
    """The text of the link at `entry`."""


class PinnedFiles:
    """The files that `names` led to when this was made by `resolve`. By path of a location; any other is refused."""

    def __init__(self, targets: Iterable[PinnedTarget], policy: Policy | None) -> None:
        self.targets: dict[str, PinnedTarget] = {target.name: target for target in targets}
        self._permissions = FilePermissions(policy)
        self._lifted = False
        self._found: dict[str, PinnedTarget] = {}
        self._directories: dict[str, Identity] = {}
        self._made: set[str] = set()
        for target in self.targets.values():
            for location in (target.file, target.entry):
                other = self._found.setdefault(location.path, target)
                if other is not target:
                    raise ExecError(
                        f"{shown(other.name)} and {shown(target.name)} are the same file; use one name", INVALID_REQUEST
                    )
                self._directories.setdefault(location.directory, location.identity)

    @classmethod
    async def resolve(cls, names: Iterable[str], policy: Policy | None) -> PinnedFiles:
        natives = [native_path(name) for name in names]
        return await to_thread(lambda: cls(map(_resolve, natives), policy))

    # --- permissions ---

    def lift(self) -> None:
        """Let these files be written whatever the policy says: somebody who may decide that has seen them."""
        self._lifted = True

    def may_write(self, location: Location) -> bool:
        return self._permissions.may_write(location.path)

    def may_remove(self, location: Location) -> bool:
        return self.may_write(location) and self._permissions.may_write(os.path.dirname(location.path))

    def current(self, location: Location) -> Location:
        """The location with the directory that it lies in by now: what was missing above it may have been made."""
        above = os.path.dirname(location.path)
        identity = self._directories.get(above)
        return location if identity is None else Location(location.path, above, identity)

    async def check(self) -> None:
        """Raise when a name leads elsewhere by now: the result would not be what was asked for."""
        await to_thread(self._check)

    def _check(self) -> None:
        for name, target in self.targets.items():
            if _resolve(name) != target:
                raise _moved(name)

    # --- operations ---

    async def read(self, path: str, /) -> bytes:
        return await to_thread(self._read, path)

    async def write(self, path: str, data: bytes, /) -> None:
        """Create the file, or replace its content in place. A link that was removed comes back as the link it was."""
        await to_thread(self._write, path, data)

    async def remove(self, path: str, /, *, recursive: bool, missing_ok: bool) -> None:
        assert not recursive, "only single files, links and directories of our own making are pinned"
        try:
            await to_thread(self._remove, path)
        except ExecError as error:
            if not missing_ok or error.code != NOT_FOUND:
                raise

    async def mkdir(self, path: str, /, *, parents: bool) -> None:
        assert not parents, "what is made is known one by one"
        await to_thread(self._mkdir, path)

    def _read(self, path: str) -> bytes:
        file = self._target(path).file.path
        self._permissions.require_read(file)
        with self._path_at(file) as at:
            descriptor = open_for_reading(at)
            try:
                return read_all(descriptor, file)
            finally:
                os.close(descriptor)

    def _write(self, path: str, data: bytes) -> None:
        target = self._target(path)
        self._require_write(path)
        with self._path_at(path) as at:
            if target.link is not None and path == target.entry.path:
                os.symlink(target.link, at.name, dir_fd=at.directory)
                return
            descriptor = open_for_writing(at)
            try:
                os.ftruncate(descriptor, 0)
                write_all(descriptor, data)
            finally:
                os.close(descriptor)

    def _remove(self, path: str) -> None:
        self._require_write(path)
        self._require_write(os.path.dirname(path))
        with self._path_at(path) as at:
            if path in self._made:
                if _identity(at.lstat()) != self._directories[path]:
                    raise _moved(path)
                os.rmdir(at.name, dir_fd=at.directory)
                self._made.discard(path)
                del self._directories[path]
                return
            _require_unchanged(self._target(path), path, at)
            os.unlink(at.name, dir_fd=at.directory)

    def _mkdir(self, path: str) -> None:
        self._require_write(path)
        with reported(path):
            if path in self._directories:
                raise os_error(errno.EEXIST)
        with self._path_at(path) as at:
            os.mkdir(at.name, dir_fd=at.directory)
            self._made.add(path)
            self._directories[path] = _identity(at.lstat())

    # --- the check ---

    def _target(self, path: str) -> PinnedTarget:
        target = self._found.get(path)
        if target is None:
            raise ExecError(f"{shown(path)} was not among the files that were resolved", INVALID_REQUEST)
        return target

    def _require_write(self, path: str) -> None:
        if not self._lifted:
            self._permissions.require_write(path)

    @contextmanager
    def _path_at(self, path: str) -> Iterator[PathAt]:
        """Open the directory of a location, and make sure that it is the one that was seen."""
        with reported(path):
            try:
                with path_at(path, no_symlinks=True) as at:
                    if _identity(os.fstat(at.directory)) != self._directories.get(os.path.dirname(path)):
                        raise _moved(path)
                    yield at
            except OSError as error:
                if error.errno == errno.ELOOP:
                    raise _moved(path) from error
                raise


def _require_unchanged(target: PinnedTarget, path: str, at: PathAt) -> None:
    """A removal is of a regular file, or of the very link that was seen."""
    mode = at.lstat().st_mode
    if path == target.entry.path and target.link is not None:
        if not stat.S_ISLNK(mode) or os.readlink(at.name, dir_fd=at.directory) != target.link:
            raise _moved(path)
    elif stat.S_ISLNK(mode):
        raise _moved(path)
    elif not stat.S_ISREG(mode):
        raise not_a_file(path)


def _resolve(name: str) -> PinnedTarget:
    with reported(name):  # also what `realpath` raises when a link is swapped under it
        parent, last = os.path.split(name)
        entry = os.path.join(os.path.realpath(parent), last)
        try:
            link = os.readlink(entry)
        except OSError:  # no link, or nothing there: the name is the file
            location = _locate(entry)
            return PinnedTarget(name, location, location, None)
        return PinnedTarget(name, _locate(os.path.realpath(entry)), _locate(entry), link)


def _locate(path: str) -> Location:
    directory = os.path.dirname(path)
    while True:
        try:
            descriptor = open_no_symlinks(directory, SEARCH)
        except (FileNotFoundError, NotADirectoryError):
            directory = os.path.dirname(directory)
            continue
        try:
            return Location(path, directory, _identity(os.fstat(descriptor)))
        finally:
            os.close(descriptor)


def _identity(found: os.stat_result) -> Identity:
    return found.st_dev, found.st_ino


def _moved(path: str) -> ExecError:
    return ExecError(
        f"{shown(path)} leads elsewhere now than when it was checked; look at what is there", INVALID_REQUEST
    )
