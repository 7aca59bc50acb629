"""The helper process that runs the commands, when the world is against it."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kit.processes import processes_left, processes_with
from treadle.execution import Environment, ExecError, ExecParams, LocalBackend
from treadle.execution import supervisor as client

pytestmark = pytest.mark.anyio

RLIMIT_LOCKS = 10
PATH = {"PATH": "/usr/local/bin:/usr/bin:/bin"}

WITHOUT_TAGS = """
import asyncio, sys
from treadle.execution import Environment, ExecError, ExecParams
from treadle.execution.local_backend import LocalBackend

async def main():
    async with await Environment.connect(None) as env:
        script = f"sleep 1000.{sys.argv[1]} & setsid sleep 1000.{sys.argv[1]} & echo ready; wait"
        argv = ["/bin/sh", "-c", script]
        process = await env.start(ExecParams(process_id="p", argv=argv, cwd="/", env={}))
        await process.changed(0)
        await process.terminate(0)
        print(await process.wait())

asyncio.run(main())
"""


@pytest.fixture(autouse=True)
async def deadline() -> AsyncIterator[None]:
    async with asyncio.timeout(100):
        yield


async def test_families_are_found_without_tags(tmp_path: Path) -> None:
    """Where the limit that carries the tags has been lowered for good, sessions and descent must do."""
    marker = str(uuid.uuid4().int)[:20]

    def lower() -> None:
        resource.setrlimit(RLIMIT_LOCKS, (1000, 1000))

    command = [sys.executable, "-c", WITHOUT_TAGS, marker]
    done = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, preexec_fn=lower, timeout=90, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "137\n", "")
    assert await asyncio.to_thread(processes_left, f"1000.{marker}") == []


async def test_a_helper_that_hangs_does_not_keep_an_environment_open(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(client, "PATIENCE_S", -4.9)  # the whole wait becomes a tenth of a second
    marker = str(uuid.uuid4().int)[:20]
    env = await Environment.connect(None)
    params = ExecParams(process_id="p", argv=["sleep", f"1000.{marker}"], cwd=tmp_path, env=PATH)
    await env.start(params)
    helper = env._backend._supervisor._process  # type: ignore[attr-defined]
    os.kill(helper.pid, signal.SIGSTOP)
    await env.close()
    assert await asyncio.to_thread(processes_left, f"1000.{marker}") == []
    assert processes_with(str(helper.args[-1])) == []


async def test_what_is_remembered_of_closed_processes_is_bounded(tmp_path: Path) -> None:
    supervisor = client.Supervisor()
    backend = LocalBackend(supervisor, rereadable=True)
    for number in range(70):
        params = ExecParams(process_id=str(number), argv=["head", "-c", "1000000", "/dev/zero"], cwd=tmp_path, env=PATH)
        await (await backend.start(params)).wait()
    known = [info.process_id for info in await backend.processes()]
    assert known[-1] == "69"
    assert 60 <= len(known) <= 67
    await backend.close()
    await supervisor.close()


async def test_groups_are_used_again_only_after_their_owner_has_closed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(client, "_GROUP_BITS", 3)
    supervisor = client.Supervisor()
    kept = LocalBackend(supervisor)
    params = ExecParams(process_id="p", argv=["sleep", "1000"], cwd=tmp_path, env=PATH)
    process = await kept.start(params)
    for _ in range(20):  # more than there are groups
        await LocalBackend(supervisor).close()
    assert not process.exited
    await kept.close(0)
    await supervisor.close()


async def test_a_helper_that_cannot_be_started_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "no-python"))
    before = os.listdir("/proc/self/fd")
    with pytest.raises(ExecError, match="cannot be started"):
        await Environment.connect(None)
    assert os.listdir("/proc/self/fd") == before
