"""An exec-server that shakes hands and then says nothing: nobody waits for it for ever."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import pytest

from channel_pair import Recorder
from treadle.errors import ExecTimeout
from treadle.execution import Environment, ExecParams, RemoteBackend, RemoteFiles
from treadle.protocol.exec import EnvironmentInfo, NoParams, Shell
from treadle.transport import Channel, memory_pair

pytestmark = pytest.mark.anyio

INFO = {"shell": {"name": "sh", "path": "/bin/sh"}, "capabilities": {"processList": True}}


class Mute:
    """The far end. `heard` are the methods that came."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self._channel: Channel | None = None

    async def connect(self) -> Channel:
        near, self._channel = memory_pair()
        self._channel.attach(Recorder(self._received))
        return near

    def _received(self, frame: bytes) -> None:
        message = json.loads(frame)
        self.heard.append(message["method"])
        if message["method"] == "initialize":
            assert self._channel is not None
            answer = {"id": message["id"], "result": {"sessionId": "s", "environmentInfo": INFO}}
            self._channel.send(json.dumps(answer).encode())


async def _opened(limit: float | None) -> tuple[RemoteBackend, Environment, Mute]:
    server = Mute()
    backend = RemoteBackend(server.connect, recovery_s=0, request_timeout=limit)
    await backend.open()
    info = EnvironmentInfo(shell=Shell(name="sh", path="/bin/sh"))
    return backend, Environment(backend, RemoteFiles(backend.call_method), info, backend.close), server


Call = Callable[[Environment], object]


@pytest.mark.parametrize(
    ("call", "method"),
    [
        (lambda env: env.files.read("/x"), "fs/getMetadata"),
        (lambda env: env.files.write("/x", b""), "fs/writeFile"),
        (lambda env: env.processes(), "process/list"),
        (lambda env: env.run(["ls"], cwd="/"), "process/start"),
    ],
)
async def test_what_is_not_answered_is_said(call: Call, method: str) -> None:
    backend, env, server = await _opened(0.05)
    with pytest.raises(TimeoutError, match=f"the exec-server has not answered {method} within 0.05 s") as caught:
        await call(env)  # type: ignore[misc]
    assert isinstance(caught.value, ExecTimeout)
    await asyncio.sleep(0)
    if method == "process/start":  # whether it runs is unknown: it is to be ended
        async with asyncio.timeout(30):
            while "process/terminate" not in server.heard:
                await asyncio.sleep(0)
    backend._link = None  # it would not answer the goodbye either
    await env.close()


async def test_writing_to_a_process_has_no_limit() -> None:
    backend, env, _ = await _opened(0.02)
    params = ExecParams(process_id="p", argv=["cat"], cwd="/", pipe_stdin=True)
    from treadle.execution import RemoteProcess

    writing = asyncio.create_task(RemoteProcess(backend, params).write(b"x"))
    with pytest.raises(ExecTimeout):
        await backend.call("environment/info", NoParams(), EnvironmentInfo)  # it began later, and is over
    assert not writing.done()
    writing.cancel()
    backend._link = None
    await env.close()


def test_there_is_a_limit_without_asking_for_one() -> None:
    import inspect

    assert inspect.signature(Environment.connect).parameters["request_timeout"].default == 300.0
