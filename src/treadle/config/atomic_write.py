"""Replaces a file atomically: a reader sees the old content or the new, never a mixture."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

PRIVATE: Final = 0o600


def make_home(home: Path) -> None:
    """The directory, for its owner alone if it is new."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)


def replace_file(path: Path, data: bytes, mode: int) -> None:
    """Write `data` with exactly `mode`; a symbolic link stays one, and what it points to is replaced."""
    target = os.path.realpath(path)
    temporary = f"{target}.{os.getpid()}.{os.urandom(6).hex()}.new"
    # Never wider than the final mode, not even for a moment: there may be a key in it.
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, PRIVATE)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            os.fchmod(descriptor, mode)
            file.flush()
            os.fsync(descriptor)
        os.replace(temporary, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
    _sync_directory(os.path.dirname(target))


def _sync_directory(path: str) -> None:
    """So that the new name survives a power cut, where the file system can promise it."""
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
