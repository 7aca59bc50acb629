"""The app-server as a real child process: started, spoken to, stopped; whatever a test does, none outlives it."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from kit.app_client import AppClient
from kit.processes import DEADLINE_S
from kit.transports import Pipes
from treadle.testing import AppServerHarness


class Program:
    """One running server. `url` is what it printed, for one that listens; `client` is there for one on stdio."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process = process
        self.log = log
        self.url = ""
        self.client: AppClient = None  # type: ignore[assignment]

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def stderr(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    def send_signal(self, number: signal.Signals = signal.SIGTERM) -> None:
        self.process.send_signal(number)

    def hang_up(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    def wait(self) -> int:
        """The exit code."""
        return self.process.wait(DEADLINE_S)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.send_signal(number)
        return self.wait()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(DEADLINE_S)

    def wait_for_log(self, text: str) -> None:
        """Until the program has said something on standard error."""
        end = time.monotonic() + DEADLINE_S
        while text not in self.stderr:
            assert self.process.poll() is None, f"the server ended: {self.stderr}"
            assert time.monotonic() < end, f"{text!r} was not said: {self.stderr}"
            select.select([], [], [], 0.01)  # a file cannot be waited for

    def _first_line(self) -> str:
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], DEADLINE_S)
        assert ready, "the server printed nothing"
        line = self.process.stdout.readline().decode().rstrip("\n")
        assert line, f"the server ended: {self.stderr}"
        return line


@contextmanager
def stdio_server(
    harness: AppServerHarness,
    *,
    env: Mapping[str, str] | None = None,
    log: str = "server",
    wrapper: Sequence[str] = (),
    command: Sequence[str] = (),
) -> Iterator[Program]:
    """For one client, which has not shaken hands yet. `wrapper` is a command that runs the server, `command` another
    server."""
    with _started(harness, [*wrapper, *(command or harness.command())], env, log) as program:
        assert program.process.stdin is not None
        assert program.process.stdout is not None
        program.client = AppClient(Pipes(program.process.stdin, program.process.stdout))
        yield program


@contextmanager
def listening_server(
    harness: AppServerHarness, *arguments: str, env: Mapping[str, str] | None = None, log: str = "server"
) -> Iterator[Program]:
    """For several clients: `ws://` on a free port unless told otherwise."""
    command = harness.command(*(arguments or ("--listen", "ws://127.0.0.1:0")))
    with _started(harness, command, env, log) as program:
        program.url = program._first_line()
        yield program


@contextmanager
def _started(
    harness: AppServerHarness, command: Sequence[str], env: Mapping[str, str] | None, log: str
) -> Iterator[Program]:
    path = harness.workspace.parent / f"{log}.stderr"
    with path.open("ab") as errors:
        process = subprocess.Popen(
            command,
            cwd=harness.workspace,
            env={**harness.environ(), **(env or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
        )
    try:
        yield Program(process, path)
    finally:
        process.kill()
        process.wait(DEADLINE_S)
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            try:
                pipe.close()
            except BrokenPipeError:
                continue  # something was not taken


def refused(
    harness: AppServerHarness,
    *arguments: str,
    env: Mapping[str, str] | None = None,
    wrapper: Sequence[str] = (),
    code: int = 1,
) -> str:
    """Run the server with arguments that it must refuse: an exit code, nothing on standard output; what it says."""
    done = subprocess.run(
        [*wrapper, *harness.command(*arguments)],
        cwd=harness.workspace,
        env={**harness.environ(), **(env or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=DEADLINE_S,
        check=False,
    )
    text = done.stderr.decode()
    assert (done.returncode, done.stdout) == (code, b""), text
    assert "Traceback" not in text
    return text


def resident_bytes(pid: int) -> int:
    """The memory that a process has in use."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
