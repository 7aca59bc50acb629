"""`treadle` with shorter patience and a clock of its own. Run as a file, with the arguments of `treadle`.

A silent peer is dead after 3 s and not after 90 s, so that a soak sees in seconds what takes minutes. The wall clock of
its Python code is off by what a file says, at any time. (Under libfaketime, which would give it to C code as well, the
app-server hung.)
"""

from __future__ import annotations

import mmap
import os
import struct
import sys
import time
from typing import Final

CLOCK: Final = "TREADLE_SOAK_CLOCK"
"""The variable with the file: the offset in seconds, as a C long."""
KEEPALIVE_S: Final = 1.0


def set_clock(path: str) -> None:
    end = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    shared = mmap.mmap(end, 8, prot=mmap.PROT_READ)
    os.close(end)
    real, real_ns = time.time, time.time_ns

    def offset() -> int:
        seconds: int = struct.unpack("q", shared[:8])[0]
        return seconds

    time.time = lambda: real() + offset()
    time.time_ns = lambda: real_ns() + offset() * 10**9


def main() -> int:
    set_clock(os.environ[CLOCK])  # first: modules may take the functions by name
    from treadle.cli import main as treadle
    from treadle.transport import stream

    stream.KEEPALIVE_S = KEEPALIVE_S
    stream.DEAD_AFTER_S = 3 * KEEPALIVE_S
    return treadle()


if __name__ == "__main__":
    sys.exit(main())
