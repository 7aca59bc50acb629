"""Looking at processes from outside, by their arguments and their state in /proc, and how long a test is patient."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

# Generous: it is met only when something hangs.
DEADLINE_S: Final = 60.0


def processes_with(marker: str) -> list[int]:
    """The living processes that have `marker` anywhere in their arguments."""
    needle = marker.encode()
    return [pid for pid in _pids() if pid != os.getpid() and needle in _arguments(pid)]


def child_of(pid: int, marker: str) -> int:
    """The only child of a process with `marker` in its arguments."""
    (child,) = (child for child in processes_with(marker) if _status(child, "PPid") == str(pid))
    return child


def state_of(pid: int) -> str:
    """The letter that /proc gives: `S` sleeping, `T` stopped, …"""
    return _status(pid, "State")[:1]


def _status(pid: int, field: str) -> str:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:  # it ended while we looked
        return ""
    return dict(line.split(":\t", 1) for line in lines if ":\t" in line).get(field, "").strip()


def _pids() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdigit())


def _arguments(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:  # it ended while we looked; a process that is only waiting to be reaped has none either
        return b""


def wait_for_process(marker: str) -> None:
    """Return when a process with `marker` runs: a confined one shows its arguments a moment after it was started."""
    end = time.monotonic() + DEADLINE_S
    while not processes_with(marker):
        assert time.monotonic() < end, f"no process with {marker} has started"


def processes_left(marker: str) -> list[int]:
    """Those with `marker` that do not end by themselves, within a generous deadline."""
    end = time.monotonic() + DEADLINE_S
    while (pids := processes_with(marker)) and time.monotonic() < end:
        _wait_for_one(pids, end - time.monotonic())
    return pids


def _wait_for_one(pids: Sequence[int], patience_s: float) -> None:
    poll = select.poll()
    fds = []
    for pid in pids:
        try:
            fds.append(os.pidfd_open(pid))
        except ProcessLookupError:
            continue
        poll.register(fds[-1], select.POLLIN)
    try:
        if len(fds) == len(pids):
            poll.poll(max(0.0, patience_s) * 1000)
    finally:
        for fd in fds:
            os.close(fd)
