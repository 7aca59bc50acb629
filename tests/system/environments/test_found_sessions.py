"""The session of a program that has ended, taken up by another one: for all whose commands are in it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from system.environments.far import until
from treadle.errors import SESSION_ATTACHED, ExecError
from treadle.execution import Environment, ExecParams, Output, RemoteBackend, RemoteMachine, connect_over
from treadle.execution.server import ExecServer
from treadle.transport import Channel, memory_pair

pytestmark = pytest.mark.anyio

DEADLINE_S = 30.0


class There:
    """An exec-server in this process, with a session of a program that was killed in the middle of its commands."""

    def __init__(self, server: ExecServer) -> None:
        self.server = server
        self._channels: list[Channel] = []
        self.session = ""

    async def connect(self, session_id: str | None = None) -> Environment:
        return await connect_over(self._open, "there", recovery_s=20.0, detach_s=30.0, session_id=session_id)

    async def _open(self) -> Channel:
        near, far = memory_pair()
        self.server.accept(far)
        self._channels.append(near)
        return near

    async def begin(self, *names: str) -> None:
        killed = await self.connect()
        assert killed.session_id is not None
        self.session = killed.session_id
        for name in names:
            params = ExecParams(
                process_id=name, argv=["sh", "-c", f"echo {name}; read end; echo $end"], cwd="/", tty=True
            )
            await killed.start(params)
        connection: Any = killed._connection
        connection._recovery_s = 0  # it does not come back
        self._channels[-1].abort()

    def cut(self) -> None:
        self._channels[-1].abort()


@asynccontextmanager
async def there(*names: str) -> AsyncIterator[tuple[There, RemoteMachine]]:
    async with asyncio.timeout(DEADLINE_S), ExecServer(detached_s=60.0) as server:
        place = There(server)
        await place.begin(*names)
        yield place, RemoteMachine("box", place.connect)


async def output(found: Environment, name: str) -> str:
    process = await found.take_up(name)
    written = b""
    async for event in process.events():
        if isinstance(event, Output):
            asked = b"\n" in written
            written += event.chunk
            if b"\n" in written and not asked:  # it has said its name, and reads
                await process.write("end\n")
    return written.decode().replace("\r\n", "\n")


async def test_all_who_have_commands_in_a_session_share_its_connection() -> None:
    async with there("a", "b") as (place, machine):
        first, second = await asyncio.gather(machine.take_up(place.session), machine.take_up(place.session))
        assert await output(first, "a") == "a\nend\nend\n"
        await machine.leave(place.session, first)
        assert await output(second, "b") == "b\nend\nend\n"
        await machine.leave(place.session, second)
        await until(lambda: not place.server.sessions)  # then nobody needs it any more


async def test_who_leaves_a_session_does_not_end_what_others_may_come_for() -> None:
    async with there("a", "b") as (place, machine):
        found = await machine.take_up(place.session)
        assert await output(found, "a") == "a\nend\nend\n"
        await machine.leave(place.session, found)
        found = await machine.take_up(place.session)
        assert await output(found, "b") == "b\nend\nend\n"
        await machine.leave(place.session, found)


async def test_a_connection_that_is_lost_while_a_command_is_found_is_made_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with there("a") as (place, machine):
        found = await machine.take_up(place.session)
        call = RemoteBackend._call_now
        cuts: list[str] = []

        async def cut_once(backend: RemoteBackend, method: str, *given: Any) -> Any:
            if method == "process/read" and not cuts:
                cuts.append(method)
                place.cut()
            return await call(backend, method, *given)

        monkeypatch.setattr(RemoteBackend, "_call_now", cut_once)
        assert await output(found, "a") == "a\nend\nend\n"
        assert cuts
        await machine.leave(place.session, found)


async def test_a_session_that_is_in_use_is_not_taken_away() -> None:
    async with there("a") as (place, machine):
        holder = await place.connect(place.session)
        with pytest.raises(ExecError) as caught:
            await machine.take_up(place.session)
        assert caught.value.code == SESSION_ATTACHED
        await holder.close()
