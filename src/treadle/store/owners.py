"""Which stores are alive: each holds a lock on a file of its own, and the kernel lets go of it whatever happens.

It owns `<home>/run`. Ids of owners are never used twice, so a lock that is free is one of a store that is gone.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final, TypeAlias

from treadle.store.model import StoreError

# The process id of an owner that is alive, None for one that is gone.
Living: TypeAlias = Callable[[str], int | None]

_SUFFIX: Final = ".lock"
# Opening takes milliseconds, a migration of a big home perhaps a minute.
_DEADLINE_S: Final = 120.0
_POLL_S: Final = 0.02


class Owners:
    """The folder of locks in one home."""

    def __init__(self, home: str) -> None:
        self._folder = os.path.join(home, "run")
        os.makedirs(self._folder, mode=0o700, exist_ok=True)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Only one process at a time gets in here; the others wait."""
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
        """Become an owner. To be called `alone`: a lock file that is not locked yet looks like one of the dead.

        The process id is in the name and not in the file: on a full disk a name can still be made.
        """
        owner_id = f"{os.getpid()}-{os.urandom(12).hex()}"
        path = self._path(owner_id)
        fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
        except BaseException:
            os.unlink(path)
            os.close(fd)
            raise
        return Owner(owner_id, path, fd)

    def living(self, owner_id: str) -> int | None:
        """The process id of an owner that is alive. The lock file of one that is gone is removed."""
        path = self._path(owner_id)
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            # Shared: two who look at the same time must not take each other for the owner.
            if _lock(fd, fcntl.LOCK_SH):
                with suppress(OSError):
                    os.unlink(path)
                return None
            digits = owner_id.partition("-")[0]
            return int(digits) if digits.isdecimal() else 0
        finally:
            os.close(fd)

    def sweep(self) -> None:
        """Remove the lock files of the dead. To be called `alone`, as `enter`."""
        for name in os.listdir(self._folder):
            if name.endswith(_SUFFIX):
                self.living(name.removesuffix(_SUFFIX))

    def _path(self, owner_id: str) -> str:
        return os.path.join(self._folder, owner_id + _SUFFIX)


class Owner:
    """An owner that is alive until `leave`, or until its process ends."""

    __slots__ = ("_fd", "_path", "id")

    def __init__(self, owner_id: str, path: str, fd: int) -> None:
        self.id: str = owner_id
        self._path = path
        self._fd = fd

    def leave(self) -> None:
        with suppress(OSError):
            os.unlink(self._path)
        os.close(self._fd)


def _lock(fd: int, kind: int) -> bool:
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
