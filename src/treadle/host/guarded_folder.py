"""`GuardedFolder`: reads and replaces files in a folder whose content cannot be trusted, since an agent may write
there; `Refused`: what memory and skills refuse to do, and why.

The host writes memory and skills itself, outside of any sandbox, and they may be where a sandboxed command can write.
So every step goes by a name relative to an open folder, never by a path; no link is followed, and only regular files
are read. Writers hold the lock of the outermost folder; readers need none, because files are replaced atomically.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Final, Literal, TypeAlias

from treadle.errors import TreadleError

LOCK_S: Final = 10.0
_POLL_S: Final = 0.01

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Not blocking: the name could be that of a pipe.
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class GuardedFolder:
    """An open folder. Names are single components; the caller has checked that they are."""

    def __init__(self, path: str, descriptor: int) -> None:
        self.path: str = path
        self.descriptor: int = descriptor

    def place(self, name: str) -> str:
        return os.path.join(self.path, name)

    @contextmanager
    def inner(self, name: str, *, create: bool = False) -> Iterator[GuardedFolder | None]:
        """A folder in this one; None when there is none."""
        path = self.place(name)
        if create:
            with said_clearly(path, "unwritable"), suppress(FileExistsError):
                os.mkdir(name, 0o700, dir_fd=self.descriptor)
        with opened(path, name, self.descriptor) as folder:
            yield folder

    @contextmanager
    def below(self, parts: Sequence[str], *, create: bool = False) -> Iterator[GuardedFolder | None]:
        """A folder some levels down; None when there is none."""
        with ExitStack() as stack:
            folder: GuardedFolder | None = self
            for part in parts:
                if folder is not None:
                    folder = stack.enter_context(folder.inner(part, create=create))
            yield folder

    def names(self) -> list[str]:
        with said_clearly(self.path, "unreadable"):
            return sorted(os.listdir(self.descriptor))

    def is_folder(self, name: str) -> bool:
        """Whether there is a folder of this name; a link to one is none."""
        return stat.S_ISDIR(self._mode(name))

    def is_file(self, name: str) -> bool:
        return stat.S_ISREG(self._mode(name))

    def has(self, name: str) -> bool:
        """Whether there is anything of this name."""
        return self._mode(name) != 0

    def _mode(self, name: str) -> int:
        try:
            return os.stat(name, dir_fd=self.descriptor, follow_symlinks=False).st_mode
        except OSError:
            return 0

    def read(self, name: str, most: int) -> bytes | None:
        """A whole file; None when there is none, refused when it has more than `most` bytes."""
        path = self.place(name)
        with said_clearly(path, "unreadable"):
            try:
                descriptor = os.open(name, _READ, dir_fd=self.descriptor)
            except FileNotFoundError:
                return None
            with open(descriptor, "rb") as file:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    raise Refused("unreadable", f"{path} is not a regular file; move it away")
                data = file.read(most + 1)
        if len(data) > most:
            raise Refused("unreadable", f"{path} has more than {most:,} bytes; shorten it, or move it away")
        return data

    def replace(self, name: str, data: bytes) -> None:
        """Put a file in its place at once. It keeps its mode; a new one is for its owner alone."""
        with said_clearly(self.place(name), "unwritable"):
            # The same name every time, under the lock: what a killed writer left is cleared away by the next one.
            temporary = f".{name}.new"
            with suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=self.descriptor)
            mode = self._mode(name)
            if mode and not stat.S_ISREG(mode):
                raise Refused("unwritable", f"{self.place(name)} is not a regular file; move it away")
            try:
                descriptor = os.open(temporary, _CREATE, 0o600, dir_fd=self.descriptor)
                with open(descriptor, "wb") as file:
                    file.write(data)
                    file.flush()
                    os.fchmod(descriptor, stat.S_IMODE(mode) or 0o600)
                    os.fsync(descriptor)
                os.rename(temporary, name, src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor)
            except BaseException:
                with suppress(OSError):
                    os.unlink(temporary, dir_fd=self.descriptor)
                raise
            self._sync()

    def _sync(self) -> None:
        """So that the new name survives a power cut, where the file system can promise it."""
        with suppress(OSError):
            os.fsync(self.descriptor)

    def remove(self, name: str) -> None:
        with said_clearly(self.place(name), "unwritable"):
            os.unlink(name, dir_fd=self.descriptor)
        self._sync()

    def move(self, name: str, target: GuardedFolder, new_name: str) -> None:
        with said_clearly(self.place(name), "unwritable"):
            os.rename(name, new_name, src_dir_fd=self.descriptor, dst_dir_fd=target.descriptor)
        self._sync()


@contextmanager
def opened(path: str, name: str | None = None, parent: int | None = None) -> Iterator[GuardedFolder | None]:
    """A folder, for reading; None when there is none. A link in its place is not followed.

    Args:
        path: Where it is, for messages, and for the outermost one.
        name: What it is called in the folder that is open as `parent`.
        parent: That folder; without it, `path` is opened.
    """
    try:
        with said_clearly(path, "unreadable"):
            descriptor = os.open(path if name is None else name, _FOLDER, dir_fd=parent)
    except Refused as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            raise
        yield None
        return
    try:
        yield GuardedFolder(path, descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def locked(path: str, wait_s: float = LOCK_S) -> Iterator[GuardedFolder]:
    """The outermost folder, for one writer at a time, of this process or another; it is made if it is not there.

    The lock is on the folder, so no file is left, and it ends with the process that holds it, however that ends.
    """
    with said_clearly(path, "unwritable"):
        os.makedirs(path, mode=0o700, exist_ok=True)
    with opened(path) as folder:
        if folder is None:
            raise Refused("unwritable", f"{path} was removed a moment ago; try again")
        _lock(folder, wait_s)
        yield folder


def _lock(folder: GuardedFolder, wait_s: float) -> None:
    deadline = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(folder.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            # The kernel has no wait for this lock with a deadline.
            if time.monotonic() >= deadline:
                problem = f"somebody has been writing in {folder.path} for {wait_s:g} s; try again later"
                raise Refused("busy", problem) from None
            time.sleep(_POLL_S)
        else:
            return


# --- refusals --------------------------------------------------------------------------------------------------------

RefusalKind: TypeAlias = Literal[
    "invalid",  # it cannot be stored in this form
    "injection",  # it reads like an attack on the agent, or has a secret in it
    "full",  # it does not fit
    "duplicate",  # it is there already
    "not_found",
    "ambiguous",  # it could be several
    "protected",  # it is not for the agent to change
    "unread",  # it was not read before
    "changed",  # somebody else changed it since it was read
    "unreadable",  # the file or folder cannot be read
    "unwritable",  # or not be written
    "busy",  # somebody else holds the lock
]

_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT)
_LINKS: Final = (errno.ELOOP, errno.ENOTDIR)


class Refused(TreadleError):
    """A file was not stored, changed or read. Nothing has changed on the disk.

    Args:
        kind: Why, for programs.
        message: What happened and what to do about it.
    """

    def __init__(self, kind: RefusalKind, message: str) -> None:
        super().__init__(message)
        self.kind: RefusalKind = kind


@contextmanager
def said_clearly(path: str, kind: Literal["unreadable", "unwritable"]) -> Iterator[None]:
    """Errors of the operating system about a path, as refusals."""
    try:
        yield
    except OSError as error:
        verb = "read" if kind == "unreadable" else "written"
        if error.errno in _NO_ROOM:
            why = "the disk is full; make room. What was there is still there"
        elif error.errno in _LINKS:
            why = "it is a symbolic link, or not what it should be, and links are not followed here; "
            why += "put the real thing there"
        else:
            why = error.strerror or os.strerror(error.errno or errno.EIO)
            why += "; correct the permissions, or use another folder"
        raise Refused(kind, f"{path} cannot be {verb}: {why}") from error
