"""The exec-server as a real child process: started, stopped; whatever a test does, none outlives it."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import treadle
from kit.processes import DEADLINE_S

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
