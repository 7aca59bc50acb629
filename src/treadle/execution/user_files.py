"""Reading a file of a user's directory without trusting it: a regular file only, bounded in size.

A repository may come from anywhere. Its files may be pipes, endless, or links out of it, and the file system that they
are on may hang: callers on an event loop use `bounded_reads`. Standard library only: a search runs without the rest.
"""

from __future__ import annotations

import os
import stat


def read_regular(path: str, limit: int, *, below: str | None = None) -> tuple[bytes, os.stat_result] | None:
    """The first `limit` bytes of a regular file, and what it is; None for anything else. Blocking.

    `below`: a canonical directory that the file must lie in after all links were followed.
    """
    try:
        # Not blocking: the name could be that of a pipe.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    try:
        with open(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or not _lies_below(path, descriptor, below):
                return None
            return file.read(limit), status
    except OSError:
        return None


def _lies_below(path: str, descriptor: int, below: str | None) -> bool:
    if below is None:
        return True
    try:
        # The name of what was opened, not of what the path leads to by now.
        real = os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:
        real = os.path.realpath(path)
    return real.startswith(below.rstrip("/") + "/")
