"""The connection to an exec-server is lost: what a client loses (nothing), and how it fails when it must."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kit.exec_program import running
from kit.server_process import ServerProcess
from treadle.execution import Closed, Environment, Evicted, ExecError, ExecParams, Exited, Failed, Output, Process
from treadle.transport import Address

pytestmark = pytest.mark.anyio

PATH = {"PATH": "/usr/local/bin:/usr/bin:/bin"}


@pytest.fixture(autouse=True)
async def deadline() -> AsyncIterator[None]:
    async with asyncio.timeout(100):
        yield


class Road:
    """A TCP proxy whose connections can be cut, and which can be closed for a while."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.refusing = False
        self.frozen = 0  # through connections up to this number nothing goes any more, and nobody is told
        self.accepted = 0
        self.refused = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refusing:
            self.refused.set()
            writer.transport.abort()
            return
        self.accepted += 1
        far_reader, far_writer = await asyncio.open_connection(*self._target)
        self._open |= {writer, far_writer}
        both = (self._pump(self.accepted, reader, far_writer), self._pump(self.accepted, far_reader, writer))
        self._tasks |= {asyncio.ensure_future(pump) for pump in both}

    async def _pump(self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                if number <= self.frozen:
                    return
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            if number > self.frozen:
                writer.transport.abort()

    def cut(self) -> None:
        for writer in self._open:
            writer.transport.abort()
        self._open.clear()

    def cut_near_side(self, url: str) -> None:
        for writer in tuple(self._open):
            if writer.get_extra_info("sockname")[1] == Address.parse(url).port:
                writer.transport.abort()

    async def close(self) -> None:
        self.cut()
        if self._tasks:
            await asyncio.wait(self._tasks)


@asynccontextmanager
async def road_to(url: str) -> AsyncIterator[tuple[Road, str]]:
    address = Address.parse(url)
    road = Road(address.host, address.port)
    listener = await asyncio.start_server(road.serve, "127.0.0.1", 0)
    try:
        yield road, Address("ws", "127.0.0.1", listener.sockets[0].getsockname()[1], address.path).url
    finally:
        listener.close()
        await road.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with running(tmp_path, "--listen", "ws://127.0.0.1:0") as server:
        yield server


async def start(env: Environment, script: str, tmp_path: Path, name: str = "p", *, pipe_stdin: bool = False) -> Process:
    argv = ["/bin/sh", "-c", script]
    params = ExecParams(process_id=name, argv=argv, cwd=tmp_path, env=PATH, pipe_stdin=pipe_stdin)
    return await env.start(params)


def text_of(events: list[object]) -> bytes:
    return b"".join(event.chunk for event in events if isinstance(event, Output))


# --- recovery off ---


async def test_without_recovery_every_process_fails_at_once(server: ServerProcess, tmp_path: Path) -> None:
    async with await Environment.connect(server.url, recovery_s=0) as env:
        one = await start(env, "echo before; sleep 1000", tmp_path, "one")
        two = await start(env, "sleep 1000", tmp_path, "two")
        await one.changed(0)
        watching = asyncio.ensure_future(_all_events(one))
        polling = asyncio.ensure_future(two.read(wait_ms=90_000))
        await asyncio.sleep(0)
        server.process.kill()
        async with asyncio.timeout(10):  # it is immediate; the promise is two seconds
            events = await watching
            answer = await polling
        assert isinstance(events[-1], Failed)
        assert events[-1].message.startswith("exec-server transport disconnected")
        assert text_of(events) == b"before\n"
        assert (answer.exited, answer.closed, answer.exit_code) == (True, True, None)
        assert answer.failure is not None
        assert answer.failure.startswith("exec-server transport disconnected")
        with pytest.raises(ExecError, match="transport disconnected"):
            await start(env, "true", tmp_path, "three")
        with pytest.raises(ExecError, match="transport disconnected"):
            await one.write(b"x")


async def _all_events(process: Process) -> list[object]:
    return [event async for event in process.events()]


# --- recovery on ---


async def test_a_cut_connection_loses_and_doubles_nothing(server: ServerProcess, tmp_path: Path) -> None:
    script = "i=0; while [ $i -lt 60 ]; do seq $((i * 50)) $((i * 50 + 49)); i=$((i+1)); read go; done; exit 5"
    async with road_to(server.url) as (road, url), await Environment.connect(url) as env:
        process = await start(env, script, tmp_path, pipe_stdin=True)
        events: list[object] = []
        async for event in process.events():
            events.append(event)
            if len(events) % 5 == 1:
                road.cut()
            if isinstance(event, Output) and text_of(events).endswith((b"49\n", b"99\n")):
                await process.write(b"\n")  # a batch is complete: it waits to be told to go on
        assert text_of(events) == b"".join(b"%d\n" % i for i in range(3000))
        assert [type(event) for event in events[-2:]] == [Exited, Closed]
        assert process.exit_code == 5
        assert road.accepted > 1


async def test_output_while_away_is_not_lost_even_when_it_is_too_much_to_retain(
    server: ServerProcess, tmp_path: Path
) -> None:
    marker = tmp_path / "wrote"
    async with road_to(server.url) as (road, url), await Environment.connect(url) as env:
        process = await start(
            env,
            f"read go; head -c 300000 /dev/zero; touch {marker}; head -c 5000000 /dev/zero",
            tmp_path,
            pipe_stdin=True,
        )
        await process.write(b"\n")
        road.refusing = True
        road.cut()
        while not marker.exists():
            await asyncio.sleep(0.01)
        await road.refused.wait()
        road.refusing = False
        events = await _all_events(process)
        assert len(text_of(events)) == 5_300_000
        assert not any(isinstance(event, Evicted) for event in events)


async def test_stdin_survives_cuts(server: ServerProcess, tmp_path: Path) -> None:
    async with road_to(server.url) as (road, url), await Environment.connect(url) as env:
        process = await start(env, "cat", tmp_path, pipe_stdin=True)
        for number in range(60):
            if number % 7 == 3:
                road.cut()
            await process.write(b"%d\n" % number)
            if number % 11 == 5:
                asyncio.get_running_loop().call_soon(road.cut)
        await process.close_stdin()
        events = await _all_events(process)
        assert text_of(events) == b"".join(b"%d\n" % number for number in range(60))


async def test_a_process_that_ended_while_away_is_told_in_full(server: ServerProcess, tmp_path: Path) -> None:
    async with road_to(server.url) as (road, url), await Environment.connect(url) as env:
        process = await start(env, "read go; echo out; echo err >&2; exit 3", tmp_path, pipe_stdin=True)
        bystander = await start(env, "sleep 1000", tmp_path, "bystander")
        await process.write(b"\n")
        road.refusing = True
        road.cut()
        await road.refused.wait()
        road.refusing = False
        events = await _all_events(process)
        assert sorted(text_of(events).split()) == [b"err", b"out"]
        assert [event.seq for event in events] == list(range(1, len(events) + 1))  # type: ignore[attr-defined]
        assert process.exit_code == 3
        assert not bystander.exited


async def test_new_starts_wait_for_the_recovery(server: ServerProcess, tmp_path: Path) -> None:
    async with road_to(server.url) as (road, url), await Environment.connect(url) as env:
        road.refusing = True
        road.cut()
        await road.refused.wait()
        starting = asyncio.ensure_future(start(env, "exit 4", tmp_path))
        road.refusing = False
        assert await (await starting).wait() == 4


async def test_past_the_limit_it_fails_as_without_recovery(server: ServerProcess, tmp_path: Path) -> None:
    async with road_to(server.url) as (road, url), await Environment.connect(url, recovery_s=0.5) as env:
        process = await start(env, "echo before; sleep 1000", tmp_path)
        await process.changed(0)
        road.refusing = True
        road.cut()
        events = await _all_events(process)
        assert text_of(events) == b"before\n"
        assert isinstance(events[-1], Failed)
        assert "recovery timed out after 0.5s" in events[-1].message
        with pytest.raises(ExecError, match="recovery timed out"):
            await start(env, "true", tmp_path, "next")


async def test_a_server_that_forgot_the_session_ends_the_recovery_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TREADLE_HOME", str(tmp_path / "home"))  # where the secret of the second one is found
    with running(tmp_path, "--listen", "ws://127.0.0.1:0") as first:
        port = Address.parse(first.url).port
        async with await Environment.connect(f"ws://127.0.0.1:{port}") as env:
            process = await start(env, "sleep 1000", tmp_path)
            first.process.kill()
            first.process.wait()
            with running(tmp_path, "--listen", f"ws://127.0.0.1:{port}"):
                events = await _all_events(process)
            assert isinstance(events[-1], Failed)
            assert "unknown session id" in events[-1].message


async def test_a_half_open_connection_does_not_lock_the_client_out(server: ServerProcess, tmp_path: Path) -> None:
    """The client's side is gone, the server's side has not noticed: it probes, and lets the client in again."""
    async with road_to(server.url) as (road, url), await Environment.connect(url) as env:
        process = await start(env, "read go; echo $go", tmp_path, pipe_stdin=True)
        road.frozen = road.accepted
        road.cut_near_side(url)
        await process.write(b"back\n")
        assert text_of(await _all_events(process)) == b"back\n"
