"""The end of a program that did not close its client: it is not held up, and says nothing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kit.exec_program import server_environment
from kit.processes import processes_left
from system.client.faces import DEADLINE_S, Fake
from treadle.testing import AppServerHarness

MakeFake = Callable[..., Fake]

DROPPED = """
import sys
from treadle.client import Codex, CodexConfig, Thread

codex = Codex(CodexConfig(launch_args_override=tuple(sys.argv[1:]) or None))
{rest}
print("end", flush=True)
"""

DROPPED_ASYNC = """
import asyncio, sys
from treadle.client import AsyncCodex, CodexConfig, AsyncThread

async def main():
    codex = AsyncCodex(CodexConfig(launch_args_override=tuple(sys.argv[1:]) or None))
    await codex._ensure_initialized()
    {rest}
    print("end", flush=True)

asyncio.run(main())
"""


def run(code: str, *arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env=server_environment(env),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=4 * DEADLINE_S,
        check=False,
    )


@pytest.mark.parametrize("rest", ["del codex", "Thread(codex._client, 't').turn('go on')", "codex.close()"])
def test_a_program_that_drops_its_client_ends(fake: MakeFake, rest: str) -> None:
    server = fake("exit")
    done = run(DROPPED.format(rest=rest), *map(str, server.config.launch_args_override or ()), env=server.config.env)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"end\n", b"")
    assert processes_left(server.marker) == []


@pytest.mark.parametrize("rest", ["del codex", "await AsyncThread(codex, 't').turn('go on')", "await codex.close()"])
def test_an_async_program_that_drops_its_client_ends(fake: MakeFake, rest: str) -> None:
    server = fake("exit")
    done = run(
        DROPPED_ASYNC.format(rest=rest), *map(str, server.config.launch_args_override or ()), env=server.config.env
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"end\n", b"")
    assert processes_left(server.marker) == []


@pytest.mark.parametrize("code", [DROPPED, DROPPED_ASYNC])
def test_a_program_that_drops_a_client_of_a_server_in_its_process_ends(code: str, tmp_path: Path) -> None:
    with AppServerHarness(tmp_path) as harness:
        done = run(code.format(rest=""), env=harness.environ())
    assert (done.returncode, done.stdout, done.stderr) == (0, b"end\n", b"")


def test_a_program_that_fails_while_a_turn_runs_ends(fake: MakeFake) -> None:
    server = fake("exit")
    code = DROPPED.format(rest="Thread(codex._client, 't').turn('go on')\nraise SystemExit(3)")
    done = run(code, *map(str, server.config.launch_args_override or ()), env=server.config.env)
    assert (done.returncode, done.stdout, done.stderr) == (3, b"", b"")
    assert processes_left(server.marker) == []
