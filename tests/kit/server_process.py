"""`ServerProcess`: a server as a real child process. Whatever a test does, none outlives it."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from kit.processes import DEADLINE_S


class ServerProcess:
    """`url` is what a server printed that listens."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process = process
        self.log = log
        self.url = ""

    @property
    def pid(self) -> int:
        return self.process.pid

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

    def wait_for_log(self, text: str) -> None:
        """Until the program has said something on standard error."""
        end = time.monotonic() + DEADLINE_S
        while text not in self.stderr:
            assert self.process.poll() is None, f"the server ended: {self.stderr}"
            assert time.monotonic() < end, f"{text!r} was not said: {self.stderr}"
            select.select([], [], [], 0.01)  # a file cannot be waited for

    def hang_up(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    def send_signal(self, number: signal.Signals = signal.SIGTERM) -> None:
        self.process.send_signal(number)

    def wait(self) -> int:
        """The exit code."""
        return self.process.wait(DEADLINE_S)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.send_signal(number)
        return self.wait()

    def kill(self) -> None:
        self.stop(signal.SIGKILL)

    def check_well(self) -> None:
        """It runs, has had no accident, and ends when it is told to."""
        assert self.process.poll() is None, f"the server ended: {self.stderr}"
        assert "Traceback" not in self.stderr, self.stderr
        assert self.stop() == 0


@contextmanager
def child(
    command: Sequence[str], *, cwd: Path, env: Mapping[str, str], log: Path, stdin: int = subprocess.PIPE
) -> Iterator[subprocess.Popen[bytes]]:
    """Killed and reaped at the end. What it says on standard error is added to `log`."""
    with log.open("ab") as errors:
        process = subprocess.Popen(
            command,
            cwd=cwd,
            env=env,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait(DEADLINE_S)
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):  # something was not taken
                    pipe.close()
