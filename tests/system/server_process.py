"""The exec-server as a real child process, and a look at what it leaves behind.

Owns starting it, the deadline on its first line, and its end: whatever a test does, no server outlives it. The client
is in `raw_client`.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import treadle

# Generous: it is met only when something hangs.
DEADLINE_S: Final = 60.0

SOURCE: Final = Path(treadle.__file__).resolve().parents[1]
COMMAND: Final = (sys.executable, "-m", "treadle", "exec-server")


class ServerProcess:
    """One running server. `url` is the first line that it printed."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process = process
        self.log = log
        self.url = ""

    @property
    def stderr(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    def read_line(self) -> str:
        """The next line of its standard output; fails when none comes."""
        assert self.process.stdout is not None
        fd = self.process.stdout.fileno()
        line = b""
        end = time.monotonic() + DEADLINE_S
        while not line.endswith(b"\n"):
            ready, _, _ = select.select([fd], [], [], max(0.0, end - time.monotonic()))
            byte = os.read(fd, 1) if ready else b""
            assert byte, f"the server printed no line but {line!r}; its standard error: {self.stderr}"
            line += byte
        return line.decode().rstrip("\n")

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal and wait; the exit code."""
        self.process.send_signal(number)
        return self.process.wait(DEADLINE_S)


@contextmanager
def running(
    folder: Path,
    *arguments: str,
    env: Mapping[str, str] | None = None,
    stdin: int = subprocess.DEVNULL,
    announced: bool = True,
) -> Iterator[ServerProcess]:
    """A server in `folder`, which it also uses as its working directory; killed and reaped at the end."""
    log = folder / "server.stderr"
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [*COMMAND, *arguments],
            cwd=folder,
            env=server_environment({"TREADLE_HOME": str(folder / "home"), **(env or {})}),
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
        )
    server = ServerProcess(process, log)
    try:
        if announced:
            server.url = server.read_line()
        yield server
    finally:
        process.kill()
        process.wait(DEADLINE_S)
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


def server_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(SOURCE), **(extra or {})}


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
