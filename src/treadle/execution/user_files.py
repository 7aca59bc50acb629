"""Reading a file of a user's directory without trusting it: a regular file only, bounded in size.

A repository may come from anywhere. Its files may be pipes, endless, or links out of it, and the file system that they
are on may hang: callers on an event loop use `bounded_reads`. Standard library only: the program
of a file search runs without the rest.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from typing import Final

_PIECE: Final = 64 << 10  # what is read of a file whose size is not known to its file system


def read_regular(
    path: str, limit: int, check: Callable[[str, os.stat_result], bool] | None = None
) -> tuple[bytes, os.stat_result] | None:
    """The first `limit` bytes of a regular file, and what it is; None for anything else. Blocking.

    `check` is asked with the name that the open file has without links, and may say no.
    """
    try:
        # Looked at before, because to open a device can have effects. Not blocking, because it may be a pipe by now.
        if not stat.S_ISREG(os.stat(path).st_mode):
            return None
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    try:
        with open(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or (check and not check(_name_of(descriptor, path), status)):
                return None
            # Not `limit` at once: to allocate megabytes takes longer than to read what is there.
            return file.read(min(limit, max(status.st_size, _PIECE))), status
    except OSError:
        return None


def _name_of(descriptor: int, path: str) -> str:
    """The name of the file that was opened, not of what the path leads to by now."""
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}").removesuffix(" (deleted)")  # it may have been replaced
    except OSError:
        return os.path.realpath(path)
