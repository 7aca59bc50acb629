"""`SessionLock`: one run at a time per session, in this program and in all others of the same user.

Two concurrent runs of one session lose a turn (claude), loop (opencode) or fail (codex). Within a program, runs queue
in order of arrival; between programs a file lock decides, which the kernel releases when its holder exits, however that
happens. `SessionState` is stored beside it: the process that works on the session, and what the engine needs to know
for the next run.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import itertools
import os
import stat
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from treadle.config.home_files import make_home
from treadle.errors import TreadleError
from treadle.home import home_place
from treadle.runners.run_events import ResumeToken

RUNS: Final = "runs"
_SESSIONS: Final = "sessions"
# Records that are stored: an old session's first run after that counts its usage from the beginning.
MAX_RECORDS: Final = 4096
# How many records are written between two looks at how many there are.
LOOK_EVERY: Final = 500

_stored = itertools.count(1)

_queues: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, weakref.WeakValueDictionary[str, asyncio.Lock]] = (
    weakref.WeakKeyDictionary()
)


class LockUnusable(TreadleError):
    """The lock's file cannot be made."""


def make_runs_folder(home: str | os.PathLike[str], *below: str) -> Path:
    """`runs` of a home, or a folder below it. Prompts and errors are in there: it is for its owner alone, whatever the
    umask is and whichever program has made it."""
    folder = Path(home)
    make_home(folder)
    for name in (RUNS, *below):
        folder /= name
        folder.mkdir(mode=0o700, exist_ok=True)
        if stat.S_IMODE(folder.stat().st_mode) != 0o700:
            folder.chmod(0o700)
    return folder


def check_locks() -> None:
    """Raises `LockUnusable` when sessions cannot be locked, before a run finds out in the middle."""
    place = home_place(os.environ)
    if place is None:
        return
    folder = _folder(place[0])
    try:
        make_runs_folder(place[0], _SESSIONS)
    except OSError as error:
        raise _unusable(folder, error.strerror) from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise _unusable(folder, "Permission denied")


class SessionLock:
    """The right to run a session: `queue`, then `take` until it is true; `release` at the end."""

    def __init__(self, token: ResumeToken) -> None:
        loop = asyncio.get_running_loop()
        queues = _queues.setdefault(loop, weakref.WeakValueDictionary())
        lock = queues.get(str(token))
        if lock is None:
            lock = queues[str(token)] = asyncio.Lock()
        self._lock = lock
        self._queued = False
        self._path = _place(token, ".lock")
        self._fd = -1

    async def queue(self) -> None:
        """Wait until it is our turn in this program."""
        await self._lock.acquire()
        self._queued = True

    def take(self) -> bool:
        """Whether no other program has it, then it is ours. Does not wait; on a local disk it takes microseconds, and a
        detour over a thread would let two runs that start together pass each other."""
        if self._path is None:
            return True
        while self._fd < 0:
            fd = _open(self._path)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(fd)
                return False
            try:
                same = os.path.samestat(os.stat(self._path), os.fstat(fd))
            except FileNotFoundError:
                same = False
            if same:
                self._fd = fd
            else:  # its last holder has removed it in between
                os.close(fd)
        return True

    def release(self) -> None:
        if self._fd >= 0:
            assert self._path is not None
            self._path.unlink(missing_ok=True)  # still locked: who waits for it will see that it is another one
            os.close(self._fd)
            self._fd = -1
        if self._queued:
            self._queued = False
            self._lock.release()


class SessionState(msgspec.Struct):
    """What is stored about a session between its runs, and while one runs.

    Args:
        pid: The engine's process, while there is one.
        born: When that process started, in the kernel's ticks: pids are used again.
        carried: What the engine wants to know at the next run.
    """

    pid: int = 0
    born: int = 0
    carried: dict[str, Any] | None = None

    @classmethod
    def load(cls, token: ResumeToken) -> SessionState:
        """The record of a session; an empty one when there is none that can be read."""
        path = _place(token, ".json")
        try:
            return msgspec.json.decode(path.read_bytes(), type=cls) if path is not None else cls()
        except (OSError, msgspec.MsgspecError):
            return cls()

    @property
    def still_runs(self) -> bool:
        """Whether the process of a run that was never ended is still there: the program that had started it died."""
        return self.pid > 0 and process_start_time(self.pid) == self.born

    def store(self, token: ResumeToken) -> None:
        """Write the record, or remove it when it is empty. A disk that is full costs the next run its usage, not
        this one its answer."""
        path = _place(token, ".json")
        if path is None:
            return
        try:
            if self.pid == 0 and self.carried is None:
                path.unlink(missing_ok=True)
                return
            make_runs_folder(path.parents[2], _SESSIONS)
            # Not synced to the disk: after a power cut nothing of the run is left that it could describe.
            fresh = path.with_suffix(f".{os.getpid()}.tmp")
            with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as file:
                file.write(msgspec.json.encode(self))
            fresh.replace(path)
            if next(_stored) % LOOK_EVERY == 0:
                remove_old_records()
        except OSError:
            with suppress(OSError):
                path.unlink(missing_ok=True)


def process_start_time(pid: int) -> int:
    """When a process started, in ticks; 0 when there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
        fields = stat.rpartition(b")")[2].split()
        return 0 if fields[0] in (b"Z", b"X") else int(fields[19])
    except (OSError, ValueError, IndexError):
        return 0


def remove_old_records(keep: int = MAX_RECORDS) -> None:
    """Remove the oldest records when there are too many."""
    place = home_place(os.environ)
    if place is None:
        return
    try:
        with os.scandir(_folder(place[0])) as entries:
            records = [entry for entry in entries if entry.name.endswith(".json")]
        if len(records) <= keep:
            return
        for entry in sorted(records, key=lambda entry: entry.stat().st_mtime)[: len(records) - keep]:
            os.unlink(entry.path)
    except OSError:
        return


def _folder(home: str) -> Path:
    return Path(home) / RUNS / _SESSIONS


def _place(token: ResumeToken, suffix: str) -> Path | None:
    place = home_place(os.environ)
    if place is None:
        return None
    # Ids are words, but a path can be one, and names of files have a limit.
    name = hashlib.sha256(str(token).encode("utf-8", "replace")).hexdigest()[:32]
    engine = "".join(letter if letter.isalnum() else "_" for letter in token.engine)[:32]
    return _folder(place[0]) / f"{engine}-{name}{suffix}"


def _open(path: Path) -> int:
    try:
        try:
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except FileNotFoundError:
            make_runs_folder(path.parents[2], _SESSIONS)
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise _unusable(path, error.strerror) from None


def _unusable(path: Path, why: str | None) -> LockUnusable:
    return LockUnusable(
        f"the session cannot be locked against other programs: {path}: {why}; "
        "set TREADLE_HOME to a folder that can be written"
    )
