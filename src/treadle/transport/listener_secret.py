"""The secret of a listener: made when it starts, stored in a file that only its owner can read, where clients find it.

The files are in the folder `listeners` of the home, one per address: `127.0.0.1-4500.json`. A server holds an exclusive
lock on its file for as long as it listens. A file without one is that of a killed server, whose port may be another
user's by now: clients send its token to nobody, and the next server removes it. Process ids would not do: they mean
different things in different containers.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import msgspec

from treadle.errors import TreadleError
from treadle.home import home_place
from treadle.transport.address import Address

FOLDER = "listeners"
# A file is a few hundred bytes. A starting server cleans up after at most this many killed ones.
MAX_FILE = 4096
MAX_SWEEP = 256
_ASIDE = "."
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class SecretError(TreadleError):
    """The file cannot be made; the message says why."""


class _Record(msgspec.Struct):
    url: str
    """Without the secret."""
    token: str
    pid: int


class SecretFile:
    """The file of a running listener."""

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self._fd = fd

    def remove(self) -> None:
        """Only if it is still ours: a later server on the same address has written its own."""
        with contextlib.suppress(OSError), _opened_folder(os.path.dirname(self.path)) as folder:
            name = os.path.basename(self.path)
            if os.path.samestat(os.stat(name, dir_fd=folder, follow_symlinks=False), os.fstat(self._fd)):
                os.unlink(name, dir_fd=folder)
        os.close(self._fd)


def new_secret() -> str:
    return os.urandom(32).hex()


def home_path(environ: Mapping[str, str]) -> str | None:
    """The home as an absolute path; None for a user without one."""
    place = home_place(environ)
    return None if place is None else os.path.abspath(place[0])


def write_secret(home: str, address: Address, token: str) -> SecretFile:
    """Write the file of a listener, replacing a stale one."""
    path = os.path.join(home, FOLDER)
    try:
        os.makedirs(home, mode=0o700, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o700)
        with _opened_folder(path) as folder:
            # Remove what killed servers have left. A file that another server is about to rename is not locked yet.
            names = [name for name in os.listdir(folder) if not name.startswith(_ASIDE)]
            for name in names[:MAX_SWEEP]:
                with contextlib.suppress(OSError):  # in use, or gone
                    stale = os.open(name, _READ, dir_fd=folder)
                    try:
                        if not _is_locked(stale):
                            os.unlink(name, dir_fd=folder)
                    finally:
                        os.close(stale)
            record = _Record(str(address), token, os.getpid())
            # Write it to a temporary name and rename that: a symlink planted in its place is replaced, not followed.
            aside = f"{_ASIDE}{os.urandom(8).hex()}"
            fd = os.open(aside, _CREATE, 0o600, dir_fd=folder)
            try:
                os.fchmod(fd, 0o600)
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.write(fd, msgspec.json.encode(record))
                os.rename(aside, file_name(address), src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException:
                os.close(fd)
                with contextlib.suppress(OSError):
                    os.unlink(aside, dir_fd=folder)
                raise
    except OSError as error:
        raise SecretError(f"cannot store the secret of the listener in {path}: {error.strerror or error}") from None
    return SecretFile(os.path.join(path, file_name(address)), fd)


def file_name(address: Address) -> str:
    return f"{address.host}-{address.port}.json"


def look_up(path: str, url: str) -> tuple[str | None, str]:
    """The token for that URL, and what to add if the server refuses. None if there is no file, if others could have
    written it, or if its server has ended."""
    missing = None, f", or set TREADLE_HOME to the server's home: it is not in {path}"
    try:
        with _opened_folder(os.path.dirname(path)) as folder:
            fd = os.open(os.path.basename(path), _READ, dir_fd=folder)
            with open(fd, "rb") as file:
                status = os.fstat(fd)
                if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
                    return missing
                if not _is_locked(fd):
                    return None, f": the one in {path} is of a server that has ended, so it was not sent"
                record = msgspec.json.decode(file.read(MAX_FILE), type=_Record)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return missing
    return (record.token, f": the one in {path} is of another server") if record.url == url else missing


def _is_locked(fd: int) -> bool:
    """Whether its server holds it. Whoever asks takes a shared lock, which nobody mistakes for the server's."""
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


@contextmanager
def _opened_folder(path: str) -> Iterator[int]:
    """The folder of the files, after checking that it is ours alone."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        status = os.fstat(fd)
        if status.st_uid != os.geteuid():
            raise PermissionError(None, "it belongs to another user")
        if status.st_mode & 0o077:
            os.fchmod(fd, 0o700)
        yield fd
    finally:
        os.close(fd)
