"""Nothing is left behind: not by a server that stops or is killed, not by a session that ends, not by a dead owner."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kit.exec_program import running
from kit.processes import DEADLINE_S, processes_left, processes_with
from treadle.execution import Closed, Environment, ExecParams, Exited
from treadle.execution.server import ExecServer
from treadle.transport import Address
from treadle.transport.listen import listen

pytestmark = pytest.mark.anyio

PATH = {"PATH": "/usr/local/bin:/usr/bin:/bin"}

# A family with a deaf parent, a child, a child in a session of its own, and a daemon that has cut all ties.
FAMILY = """
trap '' TERM HUP INT
sleep 1000.{marker}1 &
setsid sleep 1000.{marker}2 &
(setsid sleep 1000.{marker}3 </dev/null >/dev/null 2>&1 &)
echo ready
while :; do sleep 1000.{marker}4; done
"""


@pytest.fixture(autouse=True)
async def deadline() -> AsyncIterator[None]:
    async with asyncio.timeout(100):
        yield


@pytest.fixture
def marker() -> str:
    return str(uuid.uuid4().int)[:20]


async def start_family(env: Environment, marker: str, cwd: Path, *, tty: bool = False) -> None:
    script = FAMILY.format(marker=marker)
    process = await env.start(
        ExecParams(process_id=f"family-{tty}", argv=["/bin/sh", "-c", script], cwd=cwd, env=PATH, tty=tty)
    )
    await process.changed(0)
    while len(processes_with(f"1000.{marker}")) < 4:
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
async def test_a_stopped_or_killed_server_leaves_nothing(number: signal.Signals, marker: str, tmp_path: Path) -> None:
    with running(tmp_path, "--listen", "ws://127.0.0.1:0") as server:
        env = await Environment.connect(server.url, recovery_s=0)
        await start_family(env, marker, tmp_path)
        server.process.send_signal(number)
        code = await asyncio.to_thread(server.process.wait, DEADLINE_S)
        assert code == (-number if number is signal.SIGKILL else 0)
        assert await asyncio.to_thread(processes_left, f"1000.{marker}") == []
        await env.close()


async def test_a_killed_server_on_stdio_leaves_nothing(marker: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "treadle", "exec-server", "--listen", "stdio://"]
    async with await Environment.connect([*command]) as env:
        await start_family(env, marker, tmp_path)
    assert await asyncio.to_thread(processes_left, f"1000.{marker}") == []


async def test_an_expired_session_leaves_nothing_and_others_are_untouched(marker: str, tmp_path: Path) -> None:
    async with ExecServer(detached_s=0.2) as server:
        listener = await listen(Address.parse("ws://127.0.0.1:0"), server.accept)
        async with await Environment.connect(listener.url) as other:
            bystander = await other.start(ExecParams(process_id="b", argv=["sleep", "1000"], cwd=tmp_path, env=PATH))
            env = await Environment.connect(listener.url, recovery_s=0)
            await start_family(env, marker, tmp_path)
            env._backend._link.rpc.channel.abort()  # type: ignore[attr-defined]
            assert await asyncio.to_thread(processes_left, f"1000.{marker}") == []
            assert not bystander.exited
            await env.close()
        await listener.close()


@pytest.mark.parametrize("tty", [False, True])
async def test_a_closed_environment_leaves_nothing(marker: str, tmp_path: Path, tty: bool) -> None:
    async with await Environment.connect(None) as env:
        await start_family(env, marker, tmp_path, tty=tty)
    assert processes_with(f"1000.{marker}") == []


OWNER = """
import asyncio, sys
from treadle.execution import Environment, ExecParams

async def main():
    env = await Environment.connect(None)
    process = await env.start(ExecParams(process_id="f", argv=["/bin/sh", "-c", sys.argv[1]], cwd="/", env={}))
    await process.changed(0)
    print("started", flush=True)
    await asyncio.sleep(1000)

asyncio.run(main())
"""


async def test_a_killed_owner_of_a_local_environment_leaves_nothing(marker: str) -> None:
    with subprocess.Popen([sys.executable, "-c", OWNER, FAMILY.format(marker=marker)], stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        assert await asyncio.to_thread(owner.stdout.readline) == b"started\n"
        while len(processes_with(f"sleep\0001000.{marker}")) < 4:
            await asyncio.sleep(0.01)
        owner.kill()
        assert await asyncio.to_thread(processes_left, f"1000.{marker}") == []


async def test_a_killed_helper_ends_its_processes_leaves_nothing_and_is_replaced(marker: str, tmp_path: Path) -> None:
    async with await Environment.connect(None) as env:
        await start_family(env, marker, tmp_path)
        process = await env.start(ExecParams(process_id="p", argv=["sleep", "1000"], cwd=tmp_path, env=PATH))
        helper = env._backend._supervisor._process  # type: ignore[attr-defined]
        os.kill(helper.pid, signal.SIGKILL)
        events = [event async for event in process.events()]
        assert events == [Exited(1, -1), Closed(2)]  # nobody can tell how it would have ended
        assert await asyncio.to_thread(processes_left, f"1000.{marker}") == []
        assert (await env.run(["echo", "again"])).stdout == b"again\n"


async def test_a_cancelled_start_leaves_nothing(marker: str, tmp_path: Path) -> None:
    async with await Environment.connect(None) as env:
        for _ in range(20):
            params = ExecParams(process_id="c", argv=["sleep", f"1000.{marker}"], cwd=tmp_path, env=PATH)
            starting = asyncio.ensure_future(env.start(params))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            starting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                process = await starting
                await process.terminate(0)
                await process.wait()
                break
        assert await asyncio.to_thread(processes_left, f"1000.{marker}") == []


async def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    async with await Environment.connect(None) as env:
        await env.run(["true"], cwd=tmp_path)
        before = os.listdir("/proc/self/fd")
        for tty in (False, True) * 10:
            name = str(uuid.uuid4())
            process = await env.start(
                ExecParams(process_id=name, argv=["echo"], cwd=tmp_path, env=PATH, tty=tty, pipe_stdin=True)
            )
            await process.wait()
        assert os.listdir("/proc/self/fd") == before
