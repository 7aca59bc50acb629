"""Listening and connecting: who may, where, and what is said when it cannot be."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import stat
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from channel_pair import DEADLINE_S, MAX_HELD, Acceptor, Recorder
from treadle.errors import ChannelClosed
from treadle.transport import DEAD_AFTER_S, Address, StreamChannel, Upgrade, connect, stdio_channel
from treadle.transport.listen import ListenError, listen

pytestmark = pytest.mark.anyio


@pytest.fixture
async def acceptor() -> AsyncIterator[Acceptor]:
    acceptor = Acceptor()
    yield acceptor
    await acceptor.close()


async def _until(true: Callable[[], bool]) -> None:
    """For what nobody is told of."""
    async with asyncio.timeout(DEADLINE_S):
        while not true():
            await asyncio.sleep(0.001)


async def test_small_messages_leave_at_once_from_both_ends(acceptor: Acceptor) -> None:
    client = await connect(await acceptor.open("ws://127.0.0.1:0"))
    server = await acceptor.next()
    for channel in (client, server):
        assert isinstance(channel, StreamChannel)
        assert channel._writer is not None
        sock = channel._writer.get_extra_info("socket")
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        channel.abort()


async def test_pings_of_a_peer_that_does_not_read_do_not_pile_up(acceptor: Acceptor) -> None:
    address = await acceptor.open("ws://127.0.0.1:0")
    _, writer = await asyncio.open_connection(address.host, address.port, limit=1024)
    writer.write(Upgrade.new("h", "/", None).request())
    channel = await acceptor.next()
    channel.attach(Recorder())
    pings = (b"\x89\xfd" + bytes(4 + 125)) * 5000
    async with asyncio.timeout(DEADLINE_S):
        for _ in range(MAX_HELD // len(pings)):
            writer.write(pings)
            await writer.drain()
    writer.write(b"\x81\x83" + bytes(4) + b"end")
    await _until(lambda: channel.stats().frames_in == 1)
    assert channel.pending <= 2 << 20
    channel.abort()
    writer.close()


async def test_peer_without_a_sign_of_life_is_given_up(acceptor: Acceptor) -> None:
    client = await connect(await acceptor.open("ws://127.0.0.1:0"))
    recorder = Recorder()
    client.attach(recorder)
    client._tick()
    assert not recorder.reasons
    client.heard_at = asyncio.get_running_loop().time() - DEAD_AFTER_S - 1
    client._tick()
    assert recorder.reasons == [f"no sign of life from the peer for {DEAD_AFTER_S:.0f} s"]
    (await acceptor.next()).abort()


async def test_unix_socket_is_for_its_owner_only_and_goes_with_its_listener(acceptor: Acceptor, tmp_path: Path) -> None:
    path = tmp_path / "s"
    mask = os.umask(0)
    try:
        await acceptor.open(f"unix://{path}")
        assert os.umask(0) == 0
    finally:
        os.umask(mask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    await acceptor.close()
    assert not path.exists()


async def test_stale_unix_socket_is_replaced(acceptor: Acceptor, tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    client = await connect(await acceptor.open(f"unix://{path}"))
    client.abort()


async def test_live_unix_socket_is_not_replaced(acceptor: Acceptor, tmp_path: Path) -> None:
    address = await acceptor.open(f"unix://{tmp_path}/s")
    with pytest.raises(ListenError, match="another server"):
        await listen(address, lambda _: None)
    (await connect(address)).abort()


@pytest.mark.parametrize("place", ["file", "file/below", "missing/s", "x" * 200])
async def test_unix_socket_that_cannot_be_made(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("precious")
    with pytest.raises(ListenError, match="cannot listen on unix://"):
        await listen(Address.parse(f"unix://{tmp_path}/{place}"), lambda _: None)
    assert (tmp_path / "file").read_text() == "precious"


async def test_port_that_is_taken(acceptor: Acceptor) -> None:
    address = await acceptor.open("ws://127.0.0.1:0")
    with pytest.raises(ListenError, match="in use"):
        await listen(address, lambda _: None)


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]", "192.0.2.1", "example.org"])
async def test_listening_beyond_this_machine_needs_a_token(host: str) -> None:
    with pytest.raises(ListenError, match="without a token"):
        await listen(Address.parse(f"ws://{host}:0"), lambda _: None)


@pytest.mark.parametrize("url", ["wss://127.0.0.1:0", "stdio://"])
async def test_what_cannot_be_listened_on(url: str) -> None:
    with pytest.raises(ListenError, match="cannot listen"):
        await listen(Address.parse(url), lambda _: None)


@pytest.mark.parametrize("scheme", ["ws", "unix"])
async def test_token_is_asked_for(acceptor: Acceptor, tmp_path: Path, scheme: str) -> None:
    url = "ws://127.0.0.1:0" if scheme == "ws" else f"unix://{tmp_path}/s"
    address = await acceptor.open(url, token="right-one")
    for token in (None, "wrong-one"):
        with pytest.raises(ChannelClosed, match="401") as caught:
            await connect(address, token=token)
        assert "right-one" not in caught.value.reason
        assert "wrong-one" not in caught.value.reason
    assert acceptor.channels.empty()
    channel = await connect(address, token="right-one")
    channel.abort()
    (await acceptor.next()).abort()


@pytest.mark.parametrize(
    "url",
    ["ws://127.0.0.1:1", "unix:///nonexistent/s", "stdio://", f"ws://{'a' * 100}.invalid:1", "ws://127.0.0.1:1/x"],
)
async def test_connecting_to_nothing_says_so(url: str) -> None:
    with pytest.raises(ChannelClosed, match="cannot connect"):
        await connect(Address.parse(url))


async def test_server_that_says_nothing_is_given_up(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(f"{tmp_path}/s")
        silent.listen()
        with pytest.raises(ChannelClosed, match="no answer within"):
            await connect(Address.parse(f"unix://{tmp_path}/s"), deadline_s=0.05)


async def test_giving_up_between_connection_and_answer_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a busy machine, where the time is up before asyncio has handed over the connection that it made."""
    loop = asyncio.get_running_loop()
    create = loop.create_unix_connection
    complaints: list[dict[str, Any]] = []

    async def create_slowly(*given: Any) -> None:
        transport, _ = await create(*given)
        try:
            await asyncio.Event().wait()
        finally:
            transport.abort()

    monkeypatch.setattr(loop, "create_unix_connection", create_slowly)
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(f"{tmp_path}/s")
        silent.listen()
        with pytest.raises(ChannelClosed, match="no answer within"):
            await connect(Address.parse(f"unix://{tmp_path}/s"), deadline_s=0.05)
    with monkeypatch.context() as patch:
        patch.setattr(loop, "call_exception_handler", complaints.append)
        await asyncio.sleep(0)  # the connection is lost
        gc.collect()
    assert complaints == []


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET /readyz HTTP/1.1\r\n\r\n", b"200"),
        (b"GET / HTTP/1.1\r\nOrigin: http://evil.example\r\n\r\n", b"403"),
        (b"GET /nothing HTTP/1.1\r\n\r\n", b"404"),
        (b"no colon\r\nno colon\r\n\r\n", b"400"),
        (b"x" * 20_000, b"400"),
    ],
)
async def test_plain_requests_are_answered_and_closed(acceptor: Acceptor, request_bytes: bytes, status: bytes) -> None:
    address = await acceptor.open("ws://127.0.0.1:0", token="secret")
    reader, writer = await asyncio.open_connection(address.host, address.port)
    writer.write(request_bytes)
    async with asyncio.timeout(DEADLINE_S):
        answer = await reader.read()
    writer.close()
    assert answer.split(b" ")[1] == status
    assert acceptor.channels.empty()


async def test_a_listener_that_drains_serves_whom_it_has_and_refuses_the_rest(
    acceptor: Acceptor, caplog: pytest.LogCaptureFixture
) -> None:
    address = await acceptor.open("ws://127.0.0.1:0", token="secret")
    here, there = await connect(address, token="secret"), await acceptor.next()
    assert acceptor.listener is not None
    acceptor.listener.drain()
    with pytest.raises(ChannelClosed, match=r"503.*shutting down"):
        await connect(address, token="secret")
    assert not caplog.records
    with pytest.raises(ChannelClosed, match="401"):
        await connect(address, token="wrong")
    assert [record.args["reason"] for record in caplog.records if isinstance(record.args, Mapping)] == ["wrong token"]
    received = Recorder()
    there.attach(received)
    here.send(b"still here")
    assert await received.count(1) == [b"still here"]
    here.abort()


@pytest.mark.parametrize("name", ["file", "/dev/null"])
async def test_stdio_must_be_pipes(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    reader, writer = os.open(tmp_path / name, os.O_RDONLY), os.open(tmp_path / name, os.O_WRONLY)
    with pytest.raises(ChannelClosed, match="must be pipes"):
        await stdio_channel(reader, writer, "file")
    for fd in (reader, writer):
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(fd)
