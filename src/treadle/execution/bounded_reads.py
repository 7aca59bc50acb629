"""Reading a user's files from an event loop: in a thread, and not for ever; or not at all while they look the same.

`read_in_thread` owns the threads in which files are read, and the limits. What is read is up to the caller.

`FileSnapshot` is how files looked when they were read, and `KnownReads` what was found. That they still look so is
found out on the event loop itself, without a thread, when they are on disks of this machine, which answer at once;
anything else (a network, FUSE) may hang the loop. `LocalDisks` is what is known of such disks, for as long as the
kernel's table of mounts stays as it is: the kernel reports a change of the table to a process that polls it, so the
check costs one `poll` instead of reading the table.

Why the turn needs it: before it asks the model, every turn looks whether hooks, AGENTS.md, skills and roles have
changed. To read AGENTS.md in a thread took 0.2 to 0.6 ms of a turn of 1.5 to 2.1 ms; `FileSnapshot.is_current` takes
12 µs.
"""

from __future__ import annotations

import asyncio
import os
import re
import select
import stat
import threading
import time
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Final, Generic, TypeAlias, TypeVar

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
_Look: TypeAlias = tuple[int, ...]

# Reading a directory takes milliseconds. What is not there after this long is on a file system that hangs.
READ_S: Final = 10.0
# Threads that hang with their file system cannot be ended; more of them than this are not begun.
MAX_READS: Final = 32
READER: Final[str] = "bounded-read"
"""The name of the threads."""
# A thread waits this long for the next read: to start one costs more than most reads.
_IDLE_S: Final = 2.0
# Never the answer of another machine, nor of a program. An overlay has its layers where the machine has its root.
LOCAL_TYPES: Final = frozenset(
    {"bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "ramfs", "rootfs", "tmpfs", "xfs", "zfs"}
)
MAX_FOLDERS: Final = 4096  # what is forgotten is found out again
MAX_KNOWN: Final = 64  # likewise, of each kind
# The clock of a file system is coarse: what was changed just now may change again and look the same.
SETTLED_NS: Final = 1_000_000_000
_TABLE: Final = "/proc/self/mountinfo"
_ESCAPED: Final = re.compile(r"\\([0-7]{3})")
_MISSING: Final[_Look] = ()


class Readers:
    """Threads that read, as many as are needed at a time. A read that takes too long is abandoned with its thread."""

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._jobs: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._lock = threading.Lock()  # guards the numbers below
        self._threads = 0
        self._idle = 0
        self._waiting = 0
        self._abandoned = 0

    def put(self, job: Callable[[], None]) -> None:
        """Have a thread do the job. Raises `TimeoutError` when all threads hang."""
        with self._lock:
            if self._abandoned >= self._most:
                raise TimeoutError(f"{self._most} reads are waiting for a file system that does not answer")
            self._waiting += 1
            is_short = self._waiting > self._idle and self._threads < self._most
            if is_short:
                self._threads += 1
                self._idle += 1
        self._jobs.put(job)
        if is_short:
            threading.Thread(target=self._run, name=self._name, daemon=True).start()

    def abandon(self) -> None:
        with self._lock:
            self._abandoned += 1

    def recover(self) -> None:
        """Count a read that was abandoned and has come to its end."""
        with self._lock:
            self._abandoned -= 1

    def _run(self) -> None:
        while True:
            try:
                job = self._jobs.get(timeout=_IDLE_S)
            except Empty:
                with self._lock:
                    if self._waiting >= self._idle:  # a job is on its way to this thread
                        continue
                    self._threads -= 1
                    self._idle -= 1
                return
            with self._lock:
                self._waiting -= 1
                self._idle -= 1
            job()
            del job  # it holds what was read
            with self._lock:
                self._idle += 1


_readers = Readers(MAX_READS, READER)


async def read_in_thread(
    function: Callable[[], T], seconds: float = READ_S, readers: Readers | None = None, *, pause: float = 0
) -> T:
    """Run blocking reads in a thread. Raises `TimeoutError` when they take longer than `seconds`.

    The thread then goes on by itself, so `function` must not write. It is not one of the loop's worker threads: those
    are few, and a directory that hangs must not take them from everybody else. `readers` are other threads, for what
    is no read. The loop stands still for at most `pause`: for what is nearly always done by then, that is quicker than
    to come back to it among all that the loop has to do.
    """
    readers = _readers if readers is None else readers
    outcome: Future[T] = Future()
    outcome.set_running_or_notify_cancel()  # nobody can take it back from the thread

    def work() -> None:
        try:
            outcome.set_result(function())
        except BaseException as error:
            outcome.set_exception(error)

    readers.put(work)
    if pause:
        with suppress(TimeoutError):
            return outcome.result(pause)
    try:
        async with asyncio.timeout(seconds):
            return await asyncio.wrap_future(outcome)
    except TimeoutError:
        readers.abandon()
        outcome.add_done_callback(lambda _: readers.recover())
        raise


class FileSnapshot:
    """How some files look. To be made before they are read, and in a thread: all but `is_current` may hang."""

    def __init__(self, *folders: str) -> None:
        self._folders: list[str] = []
        self._may_hold = True
        for folder in folders:
            self._cover(folder)
        self._looks: dict[str, _Look] = {}
        self._marks: dict[str, bool] = {}

    def note(self, path: str) -> None:
        """Record a file in one of the folders, or above them, which is about to be read if it is there."""
        look = self._record(path)
        if look is not _MISSING and stat.S_ISLNK(look[0]):
            self._may_hold = False

    def _record(self, path: str) -> _Look:
        look = self._looks[path] = look_at(path)
        if time.time_ns() - max((0, *look[-2:])) < SETTLED_NS:
            self._may_hold = False
        return look

    def note_root(self, path: str) -> str | None:
        """Record a folder whose names matter, and the links that lead to it: where it is without links. None, and
        recorded too, for what is no folder."""
        real = os.path.realpath(path)
        self._cover(real)
        if real != os.path.normpath(path):
            from treadle.execution.files.file_watching import lookups  # few have links

            for folder, name in lookups(path):
                step = os.path.join(folder, name)
                if os.path.islink(step):
                    self._record(step)
        if not os.path.isdir(real):
            self.note_mark(real)
            return None
        self.note(real)
        return real

    def _cover(self, folder: str) -> None:
        if disks.survey(folder):
            self._folders.append(folder)
        else:
            self._may_hold = False

    def note_mark(self, path: str) -> bool:
        """Record something of which only matters whether it is there, and say whether it is."""
        self._marks[path] = is_there = look_at(path) is not _MISSING
        return is_there

    def expire(self) -> None:
        """Be current no longer: what was found may change where nobody looks."""
        self._may_hold = False

    def is_current(self) -> bool:
        """Whether everything looks as it did. False where that cannot be known at once."""
        return self._may_hold and disks.hold(*self._folders) and self.looks_same()

    def looks_same(self) -> bool:
        """The same, wherever it is. Blocking."""
        return all(look_at(path) == look for path, look in self._looks.items()) and all(
            (look_at(path) is not _MISSING) is is_there for path, is_there in self._marks.items()
        )


def look_at(path: str) -> _Look:
    """The facts in which a file differs from another, and from itself before a change."""
    try:
        found = os.lstat(path)
    except (OSError, ValueError):
        return _MISSING
    return found.st_mode, found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


class KnownRead(Generic[T]):
    """What was read of some files, and how they looked then."""

    def __init__(self, value: T, snapshot: FileSnapshot) -> None:
        self.value = value
        self._snapshot = snapshot
        self._seen_by: asyncio.AbstractEventLoop | None = None  # in its present step

    def is_current(self) -> bool:
        """Turns that begin in one step of a loop look once: a system call is dear while other threads are busy."""
        loop = asyncio.get_running_loop()
        if self._seen_by is loop:
            return True
        if not self._snapshot.is_current():
            return False
        self._seen_by = loop
        loop.call_soon(setattr, self, "_seen_by", None)
        return True


class KnownReads(Generic[K, T]):
    """What was read of files, by what decides which files those are; at most `MAX_KNOWN` of them."""

    def __init__(self) -> None:
        self._known: dict[K, KnownRead[T]] = {}
        self._asking: dict[tuple[asyncio.AbstractEventLoop, K], asyncio.Future[None]] = {}  # who asked last

    def current(self, key: K) -> T | None:
        """What was stored, when nothing has changed since; None when somebody has to look. To change to another thread
        of the process and back takes ten times as long as to see that."""
        known = self._known.get(key)
        return known.value if known is not None and known.is_current() else None

    def store(self, key: K, value: T, snapshot: FileSnapshot) -> T:
        if len(self._known) >= MAX_KNOWN:
            self._known.clear()
        self._known[key] = KnownRead(value, snapshot)
        return value

    async def find(self, key: K, read: Callable[[], T]) -> T:
        """What is current, else what `read` returns, which stores it. Raises what `read_in_thread` raises.

        Those who ask at a time go on in the order in which they have asked, whichever thread is the first to be done:
        turns reach the model in the order in which they were begun.
        """
        loop = asyncio.get_running_loop()
        before, known = self._asking.get((loop, key)), self.current(key)
        if known is not None and before is None:
            return known
        asked = self._asking[loop, key] = loop.create_future()
        try:
            if known is None:
                known = await read_in_thread(read)
            if before is not None:
                await asyncio.wait([before])
            return known
        finally:
            if self._asking.get((loop, key)) is asked:
                del self._asking[loop, key]
            asked.set_result(None)


class LocalDisks:
    """Which folders are on local disks. `survey` may hang, and is for a thread; `hold` never does. Both may be called
    from several threads: a process can have more than one event loop."""

    def __init__(self, table: str = _TABLE) -> None:
        self._table = table
        self._lock = threading.Lock()  # a poll object is for one thread at a time
        self._changes: select.poll | None = None
        self._known: dict[str, bool] = {}

    def survey(self, folder: str) -> bool:
        """Whether the folder is on a local disk, with no link on the way to it and no mount inside that is not local.
        Blocking."""
        with self._lock:
            if self._changes is None:
                # The kernel reports, once, to each process that has the table open that it has changed.
                with suppress(OSError):
                    table = os.open(self._table, os.O_RDONLY | os.O_CLOEXEC)
                    self._changes = select.poll()
                    self._changes.register(table, select.POLLPRI)
        known = self._known  # `hold` leaves it behind when the table changes from now on
        found = known.get(folder)
        if found is None:
            try:
                found = os.path.realpath(folder) == folder and is_local(folder, _read_mounts(self._table))
            except (OSError, ValueError):
                found = False
            if len(known) >= MAX_FOLDERS:
                known.clear()
            known[folder] = found
        return found

    def hold(self, *folders: str) -> bool:
        """Whether `survey` found the folders to be local, and no mount has come or gone since."""
        with self._lock:
            if self._changes is None or self._changes.poll(0):
                self._known = {}
            return all(self._known.get(folder, False) for folder in folders)


def is_local(folder: str, mounts: dict[str, str]) -> bool:
    """Whether every mount on the way to the folder, and inside of it, is of a local type."""
    inside = folder.rstrip("/") + "/"
    for point, kind in mounts.items():
        concerns = inside.startswith(point.rstrip("/") + "/") or point.startswith(inside)
        if concerns and kind not in LOCAL_TYPES:
            return False
    return True


def _read_mounts(table: str) -> dict[str, str]:
    """The type of file system by the folder that it is mounted on; of several on one folder, the one on top."""
    mounts: dict[str, str] = {}
    with open(table, encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            where, _, what = line.partition(" - ")
            point = _ESCAPED.sub(lambda found: chr(int(found[1], 8)), where.split(" ")[4])
            mounts[point] = what.split(" ")[0]
    return mounts


disks: Final = LocalDisks()
"""The disks of this process."""
