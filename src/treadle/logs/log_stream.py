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
        self._is_cut = False  # the last line has no end

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self._line(record)
            if self._lost:
                line = self._line(_loss(self._lost)) + line
            self._lost = 0 if self._write(line) else self._lost + 1
        except OSError:
            return  # it is closed, and nobody is left to tell
        except Exception:
            self.handleError(record)

    def _line(self, record: logging.LogRecord) -> bytes:
        return self.format(record).encode("utf-8", "backslashreplace") + b"\n"

    def _write(self, line: bytes) -> bool:
        """False when nothing was written. Of a long line the end may be missing."""
        line = b"\n" * self._is_cut + line
        for start in range(0, len(line), _PIECE):
            if not any(ready & select.POLLOUT for _, ready in self._room.poll(0)):
                self._is_cut = self._is_cut or start > 0
                return start > 0
            os.write(self._fd, line[start : start + _PIECE])
        self._is_cut = False
        return True


def _loss(lines: int) -> logging.LogRecord:
    said = "lines of the log are lost: nobody has read them"
    return logging.LogRecord(__name__, logging.WARNING, __file__, 0, said, ({"lines": lines},), None)
