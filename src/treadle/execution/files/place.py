"""A place: an open directory and a name in it, so that an operation acts where the check looked.

Owns the opening of paths without following symbolic links, by `openat2` where the kernel has it and component by
component elsewhere. Knows nothing of sandbox policies and of what is done at the place.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Final

from treadle.execution.files.failures import os_error

DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_SEARCH: Final = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_OPENAT2: Final = 437  # the same number on every architecture
_RESOLVE_NO_SYMLINKS: Final = 0x04
_AT_FDCWD: Final = -100

Opener = Callable[[str, int, int], int]


@dataclass(frozen=True, slots=True)
class Place:
    """`name` in the directory that `directory` is a descriptor of. `path` is what both together are called."""

    directory: int
    name: str
    path: str
    follow: bool
    """Whether a symbolic link at `name` itself is followed."""

    def open(self, flags: int, mode: int = 0) -> int:
        nofollow = 0 if self.follow else os.O_NOFOLLOW
        return os.open(self.name, flags | nofollow | os.O_CLOEXEC, mode, dir_fd=self.directory)

    def stat(self) -> os.stat_result:
        """Of what `open` would open; a link that may not be followed is an error, as it is for `open`."""
        found = os.stat(self.name, dir_fd=self.directory, follow_symlinks=self.follow)
        if stat.S_ISLNK(found.st_mode):
            raise os_error(errno.ELOOP)
        return found

    def lstat(self) -> os.stat_result:
        return os.stat(self.name, dir_fd=self.directory, follow_symlinks=False)


@contextmanager
def at(path: str, *, plain: bool) -> Iterator[Place]:
    """The place of an absolute path. `plain`: no component of it may be a symbolic link."""
    parent, name = os.path.split(path)
    directory = open_plain(parent, _SEARCH) if plain else os.open(parent, _SEARCH)
    try:
        yield Place(directory, name or ".", path, follow=not plain)
    finally:
        os.close(directory)


def open_plain(path: str, flags: int, mode: int = 0) -> int:
    """Open an absolute path of which no component, the last included, is a symbolic link (else `ELOOP`)."""
    opener = _kernel_opener() or open_by_component
    return opener(path, flags | os.O_CLOEXEC, mode)


def open_by_component(path: str, flags: int, mode: int = 0) -> int:
    """What `open_plain` does on a kernel without `openat2`."""
    *parents, name = [part for part in path.split("/") if part] or ["."]
    directory = os.open("/", _SEARCH)
    try:
        for parent in parents:
            inner = _open_child(parent, _SEARCH, 0, directory)
            os.close(directory)
            directory = inner
        return _open_child(name, flags | os.O_CLOEXEC, mode, directory)
    finally:
        os.close(directory)


def _open_child(name: str, flags: int, mode: int, directory: int) -> int:
    try:
        opened = os.open(name, flags | os.O_NOFOLLOW, mode, dir_fd=directory)
    except NotADirectoryError:
        if stat.S_ISLNK(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
            raise os_error(errno.ELOOP) from None
        raise
    # O_PATH with O_NOFOLLOW opens a link itself instead of failing.
    if flags & os.O_PATH and stat.S_ISLNK(os.fstat(opened).st_mode):
        os.close(opened)
        raise os_error(errno.ELOOP)
    return opened


@cache
def _kernel_opener() -> Opener | None:
    """`openat2` that follows no link; None where it is missing or a filter forbids it."""
    import ctypes

    class OpenHow(ctypes.Structure):
        _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))

    syscall = ctypes.CDLL(None, use_errno=True).syscall
    syscall.restype = ctypes.c_long

    def opener(path: str, flags: int, mode: int) -> int:
        how = OpenHow(flags, mode, _RESOLVE_NO_SYMLINKS)
        while True:
            result: int = syscall(
                ctypes.c_long(_OPENAT2),
                ctypes.c_int(_AT_FDCWD),
                ctypes.c_char_p(os.fsencode(path)),
                ctypes.byref(how),
                ctypes.c_size_t(ctypes.sizeof(how)),
            )
            if result >= 0:
                return result
            if (number := ctypes.get_errno()) != errno.EINTR:
                raise os_error(number)

    try:
        os.close(opener("/", _SEARCH, 0))
    except OSError:  # ENOSYS, or EPERM from a seccomp filter: whichever, there is the other way
        return None
    return opener
