"""`Environment` beyond single processes: `run`, the list, many at once. The same on every backend."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from backends import Starter, gone
from treadle.execution import Environment

pytestmark = pytest.mark.anyio


async def test_run_collects_output_and_exit_code(env: Environment, tmp_path: Path) -> None:
    done = await env.run(["/bin/sh", "-c", "pwd; echo err >&2; exit 3"], cwd=tmp_path)
    assert (done.exit_code, done.stdout, done.stderr) == (3, os.fsencode(tmp_path) + b"\n", b"err\n")
    assert sorted(done.output.split()) == sorted([os.fsencode(tmp_path), b"err"])


async def test_run_with_input(env: Environment) -> None:
    data = os.urandom(300_000)
    assert (await env.run(["cat"], input=data)).stdout == data
    assert (await env.run(["true"], input=data)).exit_code == 0


async def test_run_times_out_and_ends_the_command(env: Environment) -> None:
    with pytest.raises(TimeoutError) as caught:
        await env.run(["/bin/sh", "-c", "echo $$; sleep 1000"], timeout=0.5)
    pid = int(getattr(caught.value, "output"))  # noqa: B009
    await gone(pid)


async def test_processes_are_listed(env: Environment, start: Starter) -> None:
    running = await start(["sleep", "1000"], name="runs")
    ended = await start("exit 2", name="ended")
    await ended.wait()
    infos = {info.process_id: info for info in await env.processes()}
    assert (infos["runs"].exited, infos["runs"].argv) == (False, ("sleep", "1000"))
    assert (infos["ended"].closed, infos["ended"].exit_code) == (True, 2)
    assert not running.exited


async def test_many_at_once(env: Environment) -> None:
    async with asyncio.TaskGroup() as group:
        runs = [group.create_task(env.run(["/bin/sh", "-c", f"echo {i}; exit {i}"])) for i in range(40)]
    assert [(run.result().exit_code, run.result().stdout) for run in runs] == [(i, b"%d\n" % i) for i in range(40)]
