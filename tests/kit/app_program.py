"""The app-server as a real child process: started, spoken to, stopped."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from kit.app_client import AppClient
from kit.processes import DEADLINE_S
from kit.server_process import ServerProcess, child
from kit.transports import Pipes
from treadle.testing import AppServerHarness


class Program(ServerProcess):
    """`client` is there for a server on stdio."""

    client: AppClient


@contextmanager
def server_on_pipes(
    command: Sequence[str], *, cwd: Path, env: Mapping[str, str], log: Path, ours: bool = True
) -> Iterator[Program]:
    """For one client, which has not shaken hands yet. `ours` is false for one that is not held against the schema."""
    with child(command, cwd=cwd, env=env, log=log) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        program = Program(process, log)
        program.client = AppClient(Pipes(process.stdin, process.stdout), ours=ours)
        yield program


@contextmanager
def stdio_server(
    harness: AppServerHarness,
    *,
    env: Mapping[str, str] | None = None,
    log: str = "server",
    wrapper: Sequence[str] = (),
    command: Sequence[str] = (),
    ours: bool = True,
) -> Iterator[Program]:
    """`server_on_pipes` for a harness. `wrapper` is a command that runs the server, `command` another server."""
    with server_on_pipes(
        [*wrapper, *(command or harness.command())],
        cwd=harness.workspace,
        env={**harness.environ(), **(env or {})},
        log=_log(harness, log),
        ours=ours,
    ) as program:
        yield program


@contextmanager
def listening_server(
    harness: AppServerHarness,
    *arguments: str,
    env: Mapping[str, str] | None = None,
    log: str = "server",
    wrapper: Sequence[str] = (),
) -> Iterator[Program]:
    """For several clients: `ws://` on a free port unless told otherwise. `wrapper` as for `stdio_server`."""
    command = [*wrapper, *harness.command(*(arguments or ("--listen", "ws://127.0.0.1:0")))]
    path = _log(harness, log)
    with child(command, cwd=harness.workspace, env={**harness.environ(), **(env or {})}, log=path) as process:
        program = Program(process, path)
        program.url = program.read_line()
        yield program


def _log(harness: AppServerHarness, name: str) -> Path:
    return harness.workspace.parent / f"{name}.stderr"


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
