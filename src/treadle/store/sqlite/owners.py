"""Which stores are alive: each holds a lock on a file of its own, and the kernel releases it whatever happens.

It owns `<home>/run`. Ids of owners are never used twice, so a lock that is free is one of a store that is gone. A store
whose process is stopped still has its lock; what stands still is its beat: the time of its file. The host's
conversations use it, too.
"""

from __future__ import annotations

import fcntl
import logging
import os
import struct
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final, TypeAlias

from treadle.store.contract import StoreError, StoreServer

# Gives the process id of an owner that is alive, None for one that is gone.
Living: TypeAlias = Callable[[str], int | None]

logger: logging.Logger = logging.getLogger(__name__)

_SUFFIX: Final = ".lock"
# Opening takes milliseconds, a migration of a big home perhaps a minute.
_DEADLINE_S: Final = 120.0
_POLL_S: Final = 0.02
# An owner that was silent for longer than this may lose what it holds. It is long for a machine that is busy or swaps,
# and short for a person who waits for a thread that a stopped server has.
LEASE_S: Final = 30.0
BEAT_S: Final = 5.0


class Owners:
    """The folder of locks in one home.

    `use` is what these owners have open, where that is not the threads: it stands at the end of their ids.
    """

    def __init__(self, home: str, use: str = "") -> None:
        self._folder = os.path.join(home, "run")
        self._use = [use] if use else []
        os.makedirs(self._folder, mode=0o700, exist_ok=True)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """A section for one process at a time; the others wait."""
        fd = os.open(self._folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            deadline = time.monotonic() + _DEADLINE_S
            while not _lock(fd, fcntl.LOCK_EX):
                if time.monotonic() > deadline:
                    raise StoreError(
                        f"another process has been opening {os.path.dirname(self._folder)} for {_DEADLINE_S:.0f} s: "
                        "end it and try again",
                        "busy",
                    )
                # The kernel has no wait for this lock with a deadline.
                time.sleep(_POLL_S)
            yield
        finally:
            os.close(fd)

    def enter(self) -> Owner:
        """Become an owner. To be called `alone`: a lock file that is not locked yet looks like one of a dead store.

        The process id is in the name and not in the file: on a full disk a name can still be made.
        """
        owner_id = "-".join([str(os.getpid()), os.urandom(12).hex(), *self._use])
        path = self._path(owner_id)
        fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
        except BaseException:
            os.unlink(path)
            os.close(fd)
            raise
        owner = Owner(owner_id, path, fd)
        owner.beat()
        return owner

    def living(self, owner_id: str) -> int | None:
        """The process id of an owner that is alive. The lock file of one that is gone is removed."""
        path = self._path(owner_id)
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            # Shared: two processes that look at the same time must not take each other for the owner.
            if _lock(fd, fcntl.LOCK_SH):
                with suppress(OSError):
                    os.unlink(path)
                return None
            return process_of(owner_id)
        finally:
            os.close(fd)

    def holding(self, owner_id: str) -> int | None:
        """The process id of an owner whose claims are valid: it is alive, and its last beat is within the lease."""
        process_id = self.living(owner_id)
        if process_id is None:
            return None
        try:
            beat = os.stat(self._path(owner_id)).st_mtime_ns
        except FileNotFoundError:  # the owner has left just now
            return None
        return None if time.monotonic_ns() - beat > LEASE_S * 1e9 else process_id

    def servers(self) -> list[StoreServer]:
        """Those with the same use, dead or alive, that have not left."""
        found = []
        for name in sorted(os.listdir(self._folder)):
            owner_id = name.removesuffix(_SUFFIX)
            if owner_id != name and owner_id.split("-", 2)[2:] == self._use:
                with suppress(FileNotFoundError):  # it has left just now
                    found.append(self.server(owner_id))
        return found

    def server(self, owner_id: str) -> StoreServer:
        """Raises `FileNotFoundError` for one that has left, or is known to be gone."""
        silent_s = (time.monotonic_ns() - os.stat(self._path(owner_id)).st_mtime_ns) / 1e9
        return StoreServer(owner_id, server_of(owner_id), silent_s, self.holding(owner_id) is not None)

    def sweep(self) -> list[int]:
        """Remove the lock files of dead owners; the process ids of those alive with the same use. To be called `alone`,
        as `enter`."""
        ids = [name.removesuffix(_SUFFIX) for name in os.listdir(self._folder) if name.endswith(_SUFFIX)]
        found = [(owner_id, self.living(owner_id)) for owner_id in ids]
        return [pid for owner_id, pid in found if pid is not None and owner_id.split("-", 2)[2:] == self._use]

    def _path(self, owner_id: str) -> str:
        return os.path.join(self._folder, owner_id + _SUFFIX)


class LoadedMarks:
    """Which threads some store of this home has in memory: locks on the bytes of one file, one for each thread, which
    the kernel releases whatever happens to the process, and which need no room on a full disk. Two threads may have the
    same byte: then one stands for both, and the other is left alone, too."""

    def __init__(self, home: str) -> None:
        self._path = os.path.join(home, "run", "loaded")
        self._fd = -1  # until there is a thread

    def set(self, thread_id: str, loaded: bool) -> None:
        try:
            if self._fd < 0:
                self._fd = os.open(self._path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            _lock_byte(self._fd, fcntl.F_OFD_SETLK, fcntl.F_RDLCK if loaded else fcntl.F_UNLCK, thread_id)
        except OSError as error:
            logger.warning("thread %s cannot be marked in %s: %s", thread_id, self._path, error)

    def has(self, thread_id: str) -> bool:
        """Whether any store has the thread, this one too."""
        try:
            fd = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)  # locks of one's own open file are not seen
        except FileNotFoundError:
            return False
        try:
            return _lock_byte(fd, fcntl.F_OFD_GETLK, fcntl.F_WRLCK, thread_id) != fcntl.F_UNLCK
        finally:
            os.close(fd)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)


def _lock_byte(fd: int, command: int, kind: int, thread_id: str) -> int:
    """Set a lock, or ask for the kind of one that would be in the way."""
    layout = "hhqqi"  # struct flock: kind, whence, start, length, process
    asked = struct.pack(layout, kind, os.SEEK_SET, zlib.crc32(thread_id.encode()), 1, 0)
    found: int = struct.unpack_from("h", fcntl.fcntl(fd, command, asked))[0]
    return found


class Owner:
    """An owner that is alive until `leave`, or until its process ends; it has to `beat` every `BEAT_S`."""

    __slots__ = ("_beaten", "_fd", "_path", "held_until", "id")

    def __init__(self, owner_id: str, path: str, fd: int) -> None:
        self.id: str = owner_id
        self._path = path
        self._fd = fd
        self._beaten = 0
        self.held_until: float = 0.0  # nobody may take its place before, by `time.monotonic`

    def beat(self) -> None:
        """Show that the owner still answers; may be called as often as one likes."""
        now = time.monotonic_ns()
        if now - self._beaten < BEAT_S * 0.2e9:
            return
        self._beaten = now
        self.held_until = now / 1e9 + LEASE_S
        try:
            # The time since the start of the machine, which stands still while the machine sleeps: nobody loses a claim
            # because the lid was closed. As the time of the file it needs no space on a full disk.
            os.utime(self._fd, ns=(now, now))
        except OSError as error:
            logger.warning("the lock %s cannot be kept up to date: %s", self._path, error)

    def leave(self) -> None:
        with suppress(OSError):
            os.unlink(self._path)
        os.close(self._fd)


def process_of(owner_id: str) -> int:
    """The process of an owner, alive or not; 0 when its id does not have it."""
    digits = owner_id.partition("-")[0]
    return int(digits) if digits.isdecimal() else 0


def server_of(owner_id: str | None) -> str:
    """The store with this id as errors call it: a thread that nobody has claimed has none."""
    process_id = process_of(owner_id or "")
    return f"another server (process {process_id})" if process_id else "another server"


def _lock(fd: int, kind: int) -> bool:
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
