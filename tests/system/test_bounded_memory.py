"""What a server keeps does not grow with what it has done."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from treadle.execution import Environment, ExecParams, ExecSession
from treadle.execution.server import ExecServer
from treadle.transport import Address
from treadle.transport.listen import listen

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
async def deadline() -> AsyncIterator[None]:
    async with asyncio.timeout(100):
        yield


async def test_ended_processes_leave_nothing_in_the_session(tmp_path: Path) -> None:
    async with ExecServer() as server:
        listener = await listen(Address.parse("ws://127.0.0.1:0"), server.accept)
        async with await Environment.connect(listener.url) as env:
            for number in range(30):
                params = ExecParams(process_id=str(number), argv=["echo", "x"], cwd=tmp_path)
                await (await env.start(params)).wait()
            session: ExecSession
            [session] = server.sessions._sessions.values()
            assert session._acks == {}
            assert session.attached._push._cursors == {}  # type: ignore[union-attr]
            known = [session.backend.get(str(number)) for number in range(30)]
            assert [process.log.stats().cursors for process in known if process] == [0] * 30
            assert env._backend._processes == {}  # type: ignore[attr-defined]
        await listener.close()


async def test_an_idle_session_makes_room_for_a_new_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("treadle.execution.server.exec_sessions.MAX_SESSIONS", 3)
    async with ExecServer() as server:
        listener = await listen(Address.parse("ws://127.0.0.1:0"), server.accept)
        busy = await Environment.connect(listener.url, recovery_s=0)
        process = await busy.start(ExecParams(process_id="p", argv=["sleep", "1000"], cwd=tmp_path))
        for _ in range(6):
            async with await Environment.connect(listener.url) as env:
                assert (await env.run(["echo", "hi"])).stdout == b"hi\n"
        assert len(server.sessions) <= 3
        assert not process.exited
        await busy.close()
        await listener.close()


@pytest.mark.parametrize("remote", [False, True])
async def test_output_is_freed_without_the_garbage_collector(tmp_path: Path, remote: bool) -> None:
    async with ExecServer() as server:
        listener = await listen(Address.parse("ws://127.0.0.1:0"), server.accept)
        async with await Environment.connect(listener.url if remote else None) as env:
            process = await env.start(ExecParams(process_id="p", argv=["echo", "x"], cwd=tmp_path))
            await process.wait()
            log = weakref.ref(process.log)
            gc.disable()
            try:
                del process
                await asyncio.sleep(0)
                assert log() is None
            finally:
                gc.enable()
        await listener.close()
