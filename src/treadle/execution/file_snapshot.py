"""`FileSnapshot`: how files looked when they were read. That they still look so is seen on an event loop, without a
thread: the files are on disks of this machine, which answer at once.

It owns what is known of such disks, for as long as the kernel's table of mounts stays as it is. Where there is no such
table, no disk is known and no snapshot holds.
"""

from __future__ import annotations

import os
import re
import select
import stat
import threading
import time
from typing import Final, TypeAlias

# Never the answer of another machine, nor of a program. An overlay has its layers where the machine has its root.
LOCAL_TYPES: Final = frozenset(
    {"bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "ramfs", "rootfs", "tmpfs", "xfs", "zfs"}
)
MAX_FOLDERS: Final = 4096  # what is forgotten is found out again
# The clock of a file system is coarse: what was changed just now may change again and look the same.
SETTLED_NS: Final = 1_000_000_000
_TABLE: Final = "/proc/self/mountinfo"
_ESCAPED: Final = re.compile(r"\\([0-7]{3})")
_Look: TypeAlias = tuple[int, ...]
_MISSING: Final[_Look] = ()


class FileSnapshot:
    """To be made before the files are read, and in a thread: all but `is_current` may hang."""

    def __init__(self, *folders: str) -> None:
        self._folders = [folder for folder in folders if disks.survey(folder)]
        self._may_hold = len(self._folders) == len(folders)
        self._looks: dict[str, _Look] = {}
        self._marks: dict[str, bool] = {}

    def note(self, path: str) -> None:
        """A file in one of the folders, or in one above them, which is about to be read if it is there."""
        look = _look_at(path)
        is_link = look is not _MISSING and stat.S_ISLNK(look[0])
        if is_link or time.time_ns() - max((0, *look[-2:])) < SETTLED_NS:
            self._may_hold = False
        self._looks[path] = look

    def note_mark(self, path: str) -> bool:
        """The same for something of which only matters whether it is there."""
        self._marks[path] = is_there = _look_at(path) is not _MISSING
        return is_there

    def is_current(self) -> bool:
        """Whether everything looks as it did. It says no where that cannot be known at once."""
        return (
            self._may_hold
            and all(map(disks.hold, self._folders))
            and all(_look_at(path) == look for path, look in self._looks.items())
            and all((_look_at(path) is not _MISSING) is is_there for path, is_there in self._marks.items())
        )


def _look_at(path: str) -> _Look:
    """What tells a file from another, and from itself before a change."""
    try:
        found = os.lstat(path)
    except (OSError, ValueError):
        return _MISSING
    return found.st_mode, found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


class LocalDisks:
    """What is known about folders. `survey` may hang, and is for a thread; `hold` never does. Both may be called from
    several threads: a process can have more than one event loop."""

    def __init__(self, table: str = _TABLE) -> None:
        self._table = table
        self._lock = threading.Lock()  # a poll object is for one thread at a time
        self._changes: select.poll | None = None
        self._known: dict[str, bool] = {}

    def survey(self, folder: str) -> bool:
        """Whether the folder is on a local disk, with no link on the way to it and no mount inside that is not local.
        Blocking."""
        self._watch()
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

    def hold(self, folder: str) -> bool:
        """Whether it was found to be so, and no mount has come or gone since."""
        with self._lock:
            if self._changes is None or self._changes.poll(0):
                self._known = {}
            return self._known.get(folder, False)

    def _watch(self) -> None:
        """The kernel tells each who keeps the table open, once, that it has changed."""
        with self._lock:
            if self._changes is not None:
                return
            try:
                table = os.open(self._table, os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                return
            changes = select.poll()
            changes.register(table, select.POLLPRI)
            self._changes = changes


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
"""Those of this process."""
