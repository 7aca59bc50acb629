"""The end of `treadle exec-server`: who asks meanwhile whether it is ready learns that it is not."""

from __future__ import annotations

import asyncio
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from treadle.cli import exec_server, server_parser
from treadle.execution.server import ExecServer
from treadle.transport import Address

DEADLINE_S = 30.0


def _health(url: str) -> int:
    try:
        with urllib.request.urlopen(f"{url.replace('ws://', 'http://')}/readyz", timeout=DEADLINE_S) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


@pytest.mark.anyio
async def test_health_says_503_while_the_server_ends(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stop, ending, go_on = asyncio.Event(), asyncio.Event(), asyncio.Event()
    lines: asyncio.Queue[str] = asyncio.Queue()
    close = ExecServer.close

    async def held(server: ExecServer) -> None:
        ending.set()
        await go_on.wait()
        await close(server)

    monkeypatch.setenv("TREADLE_HOME", str(tmp_path))
    monkeypatch.setattr(exec_server, "stop_on_signals", lambda: stop)
    monkeypatch.setattr(exec_server, "exit_with_deadline", lambda: None)
    monkeypatch.setattr(exec_server, "write_stdout", lines.put_nowait)
    monkeypatch.setattr(ExecServer, "close", held)
    async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as group:
        serving = group.create_task(
            exec_server._serve(
                Address.parse("ws://127.0.0.1:0"), server_parser("exec-server").parse_args(["--no-token"])
            )
        )
        url = (await lines.get()).partition("\n")[0]
        assert await asyncio.to_thread(_health, url) == 200
        stop.set()
        await ending.wait()
        meanwhile = await asyncio.to_thread(_health, url)
        go_on.set()
        assert (meanwhile, await serving) == (503, 0)
