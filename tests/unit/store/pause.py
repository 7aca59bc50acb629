"""A process of the test that is stopped for longer than its claims last, without waiting for it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from treadle.store import LEASE_S

DEADLINE_S: Final = 60.0


class Pause:
    def __init__(self, process_id: int, locks: Path) -> None:
        self._process_id = process_id
        self._locks = locks

    def pass_lease(self) -> None:
        """Its last sign of life is from before the lease, as if it had been stopped for that long."""
        (lock,) = self._locks.glob(f"{self._process_id}-*.lock")
        then = time.monotonic_ns() - int((LEASE_S + 1) * 1e9)
        os.utime(lock, ns=(then, then))


@contextmanager
def stopped(process_id: int, locks: Path) -> Iterator[Pause]:
    """A child of the test, stopped as a whole. `locks` is the folder `run` of its home."""
    os.kill(process_id, signal.SIGSTOP)
    try:
        _wait_until_stopped(process_id)
        yield Pause(process_id, locks)
    finally:
        os.kill(process_id, signal.SIGCONT)


def _wait_until_stopped(process_id: int) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not all(") T " in path.read_text() for path in _states(process_id)):
        assert time.monotonic() < deadline, f"process {process_id} does not stop"
        time.sleep(0.001)


def _states(process_id: int) -> list[Path]:
    """Of all its threads: the one that writes may be at work while another has stopped."""
    return list(Path(f"/proc/{process_id}/task").glob("*/stat"))
