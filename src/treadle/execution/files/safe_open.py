"""Opening files so that the one that was checked is the one that is used.

Three steps, from the bottom up. `PathAt` is a name in an open directory: whatever happens to the path above it, both
the check and the operation see the same directory. `open_for_reading` and `open_for_writing` take regular files only.
`FilePermissions` asks the sandbox policy. What is then done with a file is not decided here.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final

from treadle.execution.files.files_interface import (
    MAX_READ_BYTES,
    denied_read,
    denied_write,
    not_a_file,
    os_error,
    too_large,
)

if TYPE_CHECKING:
    from treadle.execution.sandbox.policy import Policy

# To list a directory, and to reach what is in it, which needs no permission to list.
DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
SEARCH: Final = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_OPENAT2: Final = 437  # the same number on every architecture
_RESOLVE_NO_SYMLINKS: Final = 0x04
_AT_FDCWD: Final = -100
_HARMLESS: Final = os.O_NONBLOCK | os.O_NOCTTY
_PIECE: Final = 64 * 1024

Opener = Callable[[str, int, int], int]


@dataclass(frozen=True, slots=True)
class PathAt:
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
        """The facts of what `open` would open; a link that may not be followed is an error, as it is for `open`."""
        found = os.stat(self.name, dir_fd=self.directory, follow_symlinks=self.follow)
        if stat.S_ISLNK(found.st_mode):
            raise os_error(errno.ELOOP)
        return found

    def lstat(self) -> os.stat_result:
        return os.stat(self.name, dir_fd=self.directory, follow_symlinks=False)


@contextmanager
def path_at(path: str, *, no_symlinks: bool) -> Iterator[PathAt]:
    """Open the directory of an absolute path. `no_symlinks`: no component of it may be a symbolic link."""
    parent, name = os.path.split(path)
    directory = open_no_symlinks(parent, SEARCH) if no_symlinks else os.open(parent, SEARCH)
    try:
        yield PathAt(directory, name or ".", path, follow=not no_symlinks)
    finally:
        os.close(directory)


def open_no_symlinks(path: str, flags: int, mode: int = 0) -> int:
    """Open an absolute path of which no component, the last included, is a symbolic link (else `ELOOP`)."""
    opener = _kernel_opener() or open_by_component
    return opener(path, flags | os.O_CLOEXEC, mode)


def open_by_component(path: str, flags: int, mode: int = 0) -> int:
    """What `open_no_symlinks` does on a kernel without `openat2`."""
    *parents, name = [part for part in path.split("/") if part] or ["."]
    directory = os.open("/", SEARCH)
    try:
        for parent in parents:
            inner = _open_child(parent, SEARCH, 0, directory)
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
    import ctypes  # loaded at the first use: it takes 4 ms

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
        os.close(opener("/", SEARCH, 0))
    except OSError:  # ENOSYS, or EPERM from a seccomp filter: whichever, there is the other way
        return None
    return opener


# A fifo, device or socket is refused before it is opened, because opening alone can block or act. The second check, of
# the opened file, is for a name that changed in between.


def open_for_reading(at: PathAt) -> int:
    _require_regular(at.stat().st_mode, at.path)
    return _checked(at.open(os.O_RDONLY | _HARMLESS), at.path)


def open_for_writing(at: PathAt, mode: int = 0o666) -> int:
    """Open, or create with `mode`; the content is left as it is."""
    try:
        found = at.stat().st_mode
    except FileNotFoundError:
        pass
    else:
        if stat.S_ISDIR(found):
            raise os_error(errno.EISDIR)
        _require_regular(found, at.path)
    return _checked(at.open(os.O_WRONLY | os.O_CREAT | _HARMLESS, mode), at.path)


def read_all(descriptor: int, path: str) -> bytes:
    size = os.fstat(descriptor).st_size
    pieces: list[bytes] = []
    total = 0
    if size <= MAX_READ_BYTES:
        # Sizes lie (kernel files say 0, others grow): read to the end, but not past the limit.
        while piece := os.read(descriptor, max(size - total, _PIECE)):
            pieces.append(piece)
            total += len(piece)
            if total > MAX_READ_BYTES:
                break
        else:
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)
    raise too_large(path)


def write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _checked(descriptor: int, path: str) -> int:
    try:
        _require_regular(os.fstat(descriptor).st_mode, path)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _require_regular(mode: int, path: str) -> None:
    if not stat.S_ISREG(mode):
        raise not_a_file(path)


class FilePermissions:
    """What one request may read and write; without a policy everything, and links are then the kernel's business.

    A permission is asked for the canonical location, and the operation then opens exactly that location without
    following links: a link that is swapped in after the check makes the operation fail, never go elsewhere.
    """

    __slots__ = ("_policy",)

    def __init__(self, policy: Policy | None) -> None:
        self._policy = policy

    @property
    def confined(self) -> bool:
        return self._policy is not None

    def may_read(self, path: str) -> bool:
        return self._policy is None or self._policy.access(path) != "none"

    def may_write(self, path: str) -> bool:
        return self._policy is None or self._policy.access(path) == "write"

    def require_read(self, path: str) -> None:
        if not self.may_read(path):
            raise denied_read(path)

    def require_write(self, path: str) -> None:
        if not self.may_write(path):
            raise denied_write(path)

    def unreadable_below(self, path: str) -> list[str]:
        """Where rules take the right to read away, inside a directory that may be read."""
        return [rule for rule in self._rules_below(path) if not self.may_read(rule)]

    def unwritable_below(self, path: str) -> list[str]:
        return [rule for rule in self._rules_below(path) if not self.may_write(rule)]

    def location(self, path: str, *, link: bool = False) -> str:
        """Where the path leads, as far as permissions depend on it. With `link`, a link at its end is not followed."""
        if self._policy is None:
            return path
        if not link:
            return os.path.realpath(path)
        parent, name = os.path.split(path)
        return os.path.join(os.path.realpath(parent), name)

    @contextmanager
    def path_at(self, path: str, *, write: bool, follow: bool = True, link: bool = False) -> Iterator[PathAt]:
        """Check the permission for the path and open its directory. Without `follow` no component may be a link."""
        target = self.location(path, link=link) if follow else path
        if write:
            self.require_write(target)
        else:
            self.require_read(target)
        with path_at(target, no_symlinks=self.confined or not follow) as at:
            yield at

    def _rules_below(self, path: str) -> Iterator[str]:
        if self._policy is None:
            return
        prefix = path.rstrip("/") + "/"
        for rule in self._policy.rules:
            if rule.path.startswith(prefix) and rule.path != path:
                yield rule.path
