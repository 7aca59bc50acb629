"""`Pager`: a text on a terminal that may be long, read with `less` or what `PAGER` names."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
from types import TracebackType
from typing import Any, Final, Self

from treadle.cli.streams import write

# Leave at once when it fits on the screen, show colours, leave the text there afterwards. No other sequences than our
# colours are in it.
_LESS: Final = "FRX"


class PagerClosed(Exception):
    """The reader has seen enough."""


class Pager:
    """Writes to the pager, and to standard output if there is none."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._handler: Any = None

    def __enter__(self) -> Self:
        words = shlex.split(os.environ.get("PAGER") or "less")
        if words and shutil.which(words[0]):
            environ = {"LESS": _LESS, **os.environ}
            self._process = subprocess.Popen(
                words, stdin=subprocess.PIPE, env=environ, text=True, encoding="utf-8", errors="backslashreplace"
            )
            self._handler = signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is for the pager now
        return self

    def write(self, text: str) -> None:
        """Raises `PagerClosed` or `OutputFailed`."""
        if self._process is None or self._process.stdin is None:
            write(sys.stdout, text)
            return
        try:
            self._process.stdin.write(text)
        except BrokenPipeError:
            raise PagerClosed from None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if self._process is not None:
            try:
                assert self._process.stdin is not None
                self._process.stdin.close()
            except BrokenPipeError:
                pass  # what was left in the buffer is not wanted either
            self._process.wait()  # its owner is the person who reads
            signal.signal(signal.SIGINT, self._handler)
        return kind is PagerClosed
