"""`LogFile`: a log in a file of bounded size. The full file becomes `PATH.1`, in place of the one before it.

Several processes may write to the same file, as an SDK and its servers do when they inherit the same environment.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import stat
import sys
from typing import Final

MAX_BYTES: Final = 10 << 20


class LogFile(logging.Handler):
    """Raises `OSError` when the file cannot be opened. One that cannot be written to any more is given up, and standard
    error told once: what is logged is never worth more than the work."""

    def __init__(self, path: str, max_bytes: int = MAX_BYTES) -> None:
        super().__init__()
        self._path = os.path.abspath(os.path.expanduser(path))
        self._max_bytes = max_bytes
        self._fd = self._open()

    def emit(self, record: logging.LogRecord) -> None:
        if self._fd < 0:
            return
        try:
            line = self.format(record).encode("utf-8", "backslashreplace") + b"\n"
            self._make_room(len(line))
            os.write(self._fd, line)  # in one piece, which does not mix with those of other processes
        except OSError as error:
            self._give_up(error)
        except Exception:
            self.handleError(record)

    def close(self) -> None:
        self._release()
        super().close()

    def _open(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def _make_room(self, size: int) -> None:
        ours = os.fstat(self._fd)
        if not stat.S_ISREG(ours.st_mode) or ours.st_size + size <= self._max_bytes:
            return
        fcntl.flock(self._fd, fcntl.LOCK_EX)  # only who has the file that is full may move it, and only once
        if self._is_at_path(ours):
            os.replace(self._path, f"{self._path}.1")
        self._release()  # and the lock with it
        self._fd = self._open()

    def _is_at_path(self, ours: os.stat_result) -> bool:
        with contextlib.suppress(FileNotFoundError):
            return os.path.samestat(os.stat(self._path), ours)
        return False

    def _release(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def _give_up(self, error: OSError) -> None:
        self._release()
        with contextlib.suppress(OSError, ValueError):  # standard error may be closed too, and nobody is left to tell
            sys.stderr.write(f"treadle: nothing more is logged to {self._path}: {error.strerror}\n")
