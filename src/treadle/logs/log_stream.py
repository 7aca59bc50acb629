"""`LogStream`: a log on standard error that nobody waits for. A pipe that is not read, or a terminal that was stopped,
loses lines instead of holding up the program; how many, it is told when it takes some again.
"""

from __future__ import annotations

import logging
import os
import select
from typing import Final

# What a pipe takes in one piece, without waiting, when it says that it takes something.
_PIECE: Final = select.PIPE_BUF


class LogStream(logging.Handler):
    def __init__(self, fd: int) -> None:
        super().__init__()
        self._fd = fd
        self._room = select.poll()
        self._room.register(fd, select.POLLOUT)
        self._lost = 0

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record).encode("utf-8", "backslashreplace") + b"\n"
            if self._lost:
                line = b"(%d lines of the log are lost: nobody has read them)\n" % self._lost + line
            self._lost = 0 if self._write(line) else self._lost + 1
        except OSError:
            return  # it is closed, and nobody is left to tell
        except Exception:
            self.handleError(record)

    def _write(self, line: bytes) -> bool:
        """False when nothing was written. Of a long line the end may be missing."""
        for start in range(0, len(line), _PIECE):
            if not any(ready & select.POLLOUT for _, ready in self._room.poll(0)):
                return start > 0
            os.write(self._fd, line[start : start + _PIECE])
        return True
