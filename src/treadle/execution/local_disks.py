"""Which folders are on disks of this machine: what is read from there comes at once, and needs no thread of its own.

It owns what was found out about folders, for as long as the kernel's table of mounts stays as it is. Where there is no
such table, no folder is known to be local.
"""

from __future__ import annotations

import os
import re
import select
from typing import Final

# Never the answer of another machine, nor of a program. An overlay has its layers on what the machine was started with.
LOCAL_TYPES: Final = frozenset(
    {"bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "ramfs", "rootfs", "tmpfs", "xfs", "zfs"}
)
MAX_FOLDERS: Final = 4096  # what is forgotten is found out again
_TABLE: Final = "/proc/self/mountinfo"
_ESCAPED: Final = re.compile(r"\\([0-7]{3})")


class LocalDisks:
    """What is known about folders. `survey` may hang, and is for a thread; `hold` never does."""

    def __init__(self, table: str = _TABLE) -> None:
        self._table = table
        self._changes: select.poll | None = None
        self._known: dict[str, bool] = {}

    def hold(self, folder: str) -> bool:
        """Whether the folder was found to be on a local disk, with no link on the way to it and no mount inside that is
        not local."""
        if self._has_changed():
            self._known = {}
        return self._known.get(folder, False)

    def survey(self, folder: str) -> None:
        """Find that out, after `hold` did not know. Blocking."""
        known = self._known  # `hold` leaves it behind when the table changes from now on
        if folder in known:
            return
        if len(known) >= MAX_FOLDERS:
            known.clear()
        try:
            known[folder] = os.path.realpath(folder) == folder and is_local(folder, _read_mounts(self._table))
        except (OSError, ValueError):
            known[folder] = False

    def _has_changed(self) -> bool:
        """Since the last call. The kernel says so of a table that is kept open, to each who asks once."""
        if self._changes is None:
            try:
                table = os.open(self._table, os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                return True
            self._changes = select.poll()
            self._changes.register(table, select.POLLPRI)
        return bool(self._changes.poll(0))


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
