"""A listener under attack: connections that say nothing, too many connections, no descriptors, the wrong user."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import resource
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path

import pytest

from channel_pair import DEADLINE_S, Acceptor
from treadle.errors import ChannelClosed
from treadle.logs import REFUSALS_PER_MINUTE, AuditLog, audit
from treadle.transport import MAX_HEAD, Address, Channel, Peer, connect, peer_of, sockets
from treadle.transport import listen as listening

pytestmark = pytest.mark.anyio
SCHEMES = ("websocket", "unix")
# "Kept out for a moment": less than the deadline of a handshake.
MOMENT_S = 2.5


@pytest.fixture
async def acceptor() -> AsyncIterator[Acceptor]:
    acceptor = Acceptor()
    yield acceptor
    await acceptor.close()


async def _opened(acceptor: Acceptor, scheme: str, folder: Path) -> Address:
    return await acceptor.open("ws://127.0.0.1:0" if scheme == "websocket" else f"unix://{folder}/s")


def _dial(address: Address) -> socket.socket:
    """A connection that has said nothing."""
    opened = socket.socket(socket.AF_UNIX if address.scheme == "unix" else socket.AF_INET)
    opened.settimeout(DEADLINE_S)
    opened.connect(address.path if address.scheme == "unix" else (address.host, address.port))
    return opened


async def _answer(connection: socket.socket) -> bytes:
    """All that comes until the end; what is lost with a reset counts as nothing."""
    connection.setblocking(False)
    loop = asyncio.get_running_loop()
    data = b""
    with contextlib.suppress(ConnectionResetError):
        async with asyncio.timeout(DEADLINE_S):
            while piece := await loop.sock_recv(connection, 4096):
                data += piece
    return data


@pytest.fixture
def more_files() -> Iterator[None]:
    """Both ends of the attack are in this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard if hard < 8192 and hard != resource.RLIM_INFINITY else 8192, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.usefixtures("more_files")
async def test_connections_that_say_nothing_keep_nobody_out(acceptor: Acceptor, tmp_path: Path, scheme: str) -> None:
    address = await _opened(acceptor, scheme, tmp_path)
    silent: list[socket.socket] = []
    try:
        for _ in range(8):
            # The system holds a thousand of them for a server that is busy: not from here, where both are one loop.
            silent += [await asyncio.to_thread(_dial, address) for _ in range(250)]
            began = time.monotonic()
            (await connect(address)).abort()
            assert time.monotonic() - began < MOMENT_S
            (await acceptor.next()).abort()
            assert acceptor.listener is not None
            assert len(acceptor.listener.handshakes) <= acceptor.listener.max_connections // 2
    finally:
        for connection in silent:
            connection.close()


async def _drip(connection: socket.socket) -> None:
    connection.setblocking(False)
    while True:
        await asyncio.get_running_loop().sock_sendall(connection, b"x")
        await asyncio.sleep(0.02)


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_who_drips_has_no_more_time_than_who_is_silent(
    acceptor: Acceptor,
    tmp_path: Path,
    scheme: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(listening, "HANDSHAKE_DEADLINE_S", 0.3)
    address = await _opened(acceptor, scheme, tmp_path)
    with _dial(address) as silent, _dial(address) as dripping:
        began = time.monotonic()
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            await asyncio.wait_for(_drip(dripping), DEADLINE_S)
        assert time.monotonic() - began < DEADLINE_S / 2
        assert (await _answer(silent)).startswith(b"HTTP/1.1 408 ")
    reasons = [record.args["reason"] for record in caplog.records if isinstance(record.args, Mapping)]
    assert reasons == ["no request within 0.3 s"] * 2


async def test_what_waits_before_the_handshake_is_bounded(acceptor: Acceptor, tmp_path: Path) -> None:
    address = await _opened(acceptor, "websocket", tmp_path)
    with _dial(address) as talkative:
        talkative.sendall(b"x" * (MAX_HEAD + 1))
        assert (await _answer(talkative)).startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_one_connection_too_many_is_told(
    acceptor: Acceptor, tmp_path: Path, scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "MAX_CONNECTIONS", 3)
    address = await _opened(acceptor, scheme, tmp_path)
    clients = [await connect(address) for _ in range(3)]
    servers = [await acceptor.next() for _ in range(3)]
    with pytest.raises(ChannelClosed, match=r"503.*3 connections are open"):
        await connect(address)
    clients.pop().abort()
    await _closed(servers)
    clients.append(await connect(address))
    for channel in (*clients, *servers):
        channel.abort()


async def _closed(channels: list[Channel]) -> None:
    """Until one of them has ended, and its descriptor with it."""
    waits = [asyncio.ensure_future(channel.wait_closed()) for channel in channels]
    for channel in channels:
        channel.resume()
    done, rest = await asyncio.wait(waits, timeout=DEADLINE_S, return_when=asyncio.FIRST_COMPLETED)
    assert done
    for wait in rest:
        wait.cancel()


async def test_half_of_few_descriptors_stay_free(acceptor: Acceptor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (100, 100))
    await acceptor.open("ws://127.0.0.1:0")
    assert acceptor.listener is not None
    assert acceptor.listener.max_connections == 50


# --- no descriptors ---


@pytest.fixture
def shortage(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What accepting fails with, while there is something in the list."""
    failures: list[int] = []
    monkeypatch.setattr(listening, "RETRY_S", 0.01)
    accept = socket.socket.accept

    def failing(self: socket.socket) -> tuple[socket.socket, object]:
        if failures:
            number = failures.pop(0)
            raise OSError(number, os.strerror(number))
        return accept(self)

    monkeypatch.setattr(socket.socket, "accept", failing)
    return failures


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOBUFS])
async def test_a_shortage_is_waited_out_and_told_once(
    acceptor: Acceptor, shortage: list[int], caplog: pytest.LogCaptureFixture, number: int
) -> None:
    address = await acceptor.open("ws://127.0.0.1:0")
    shortage += [number] * 10
    with caplog.at_level(logging.DEBUG):
        (await connect(address)).abort()
    assert shortage == []
    told = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(told) == 1
    assert os.strerror(number) in told[0].getMessage()
    assert told[0].exc_info is None


async def test_a_connection_that_was_gone_before_it_was_taken_is_nothing(
    acceptor: Acceptor, shortage: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    address = await acceptor.open("ws://127.0.0.1:0")
    shortage += [errno.ECONNABORTED] * 3
    (await connect(address)).abort()
    assert not caplog.records


async def test_in_a_shortage_the_silent_make_room(
    acceptor: Acceptor, shortage: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "GRACE_S", 0)
    address = await _opened(acceptor, "websocket", tmp_path)
    with _dial(address) as silent:
        async with asyncio.timeout(DEADLINE_S):
            while not acceptor.listener or not acceptor.listener.handshakes:
                await asyncio.sleep(0.001)
        shortage.append(errno.EMFILE)
        (await connect(address)).abort()
        assert (await _answer(silent)).startswith(b"HTTP/1.1 503 ")


async def test_who_cannot_be_served_for_want_of_descriptors_is_told(acceptor: Acceptor, shortage: list[int]) -> None:
    address = await acceptor.open("ws://127.0.0.1:0")
    shortage.append(errno.EMFILE)  # once for the loop, so that the spare descriptor is enough
    with pytest.raises(ChannelClosed, match=r"503.*no file descriptors left"):
        await connect(address)
    (await connect(address)).abort()


# --- the log ---


async def test_refusals_are_logged_and_a_flood_of_them_is_counted(
    acceptor: Acceptor, caplog: pytest.LogCaptureFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "log", AuditLog(str(tmp_path / "audit"), required=True))
    address = await acceptor.open("ws://127.0.0.1:0", token="right")
    assert acceptor.listener is not None

    async def refused(times: int) -> list[Mapping[str, object]]:
        caplog.clear()
        for _ in range(times):
            with pytest.raises(ChannelClosed, match="wrong token"):
                await connect(address, token="wrong")
        assert {record.levelno for record in caplog.records} <= {logging.WARNING}
        return [record.args for record in caplog.records if isinstance(record.args, Mapping)]

    lines = await refused(50)
    assert len(lines) == REFUSALS_PER_MINUTE
    assert all(str(line["peer"]).startswith("127.0.0.1:") and line["reason"] == "wrong token" for line in lines)
    logged = acceptor.listener._refusals._logged
    logged.extend([moment - 60 for moment in logged])  # as if it was a minute ago
    assert [line["not_logged"] for line in await refused(2)] == [50 - REFUSALS_PER_MINUTE, None]


# --- the user of a unix socket ---


@pytest.mark.parametrize(("user", "welcome"), [("own", True), ("root", True), ("other", False)])
async def test_a_unix_socket_is_for_its_user_and_root(
    acceptor: Acceptor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, user: str, welcome: bool
) -> None:
    number = {"own": os.geteuid(), "root": 0, "other": os.geteuid() + 1}[user]
    monkeypatch.setattr(listening, "peer_of", lambda _: Peer("unix socket", number))
    address = await _opened(acceptor, "unix", tmp_path)
    if welcome:
        (await connect(address)).abort()
        return
    with _dial(address) as connection:
        answer = await _answer(connection)
    assert answer.startswith(b"HTTP/1.1 403 ")
    assert b"for the user that runs the server" in answer
    assert acceptor.channels.empty()


@pytest.mark.parametrize(("user", "fine"), [("own", True), ("root", True), ("other", False)])
async def test_a_client_of_a_unix_socket_sends_nothing_to_another_user(
    acceptor: Acceptor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, user: str, fine: bool
) -> None:
    address = await _opened(acceptor, "unix", tmp_path)
    number = {"own": os.geteuid(), "root": 0, "other": os.geteuid() + 1}[user]
    monkeypatch.setattr(sockets, "peer_of", lambda _: Peer("unix socket", number))
    if fine:
        (await connect(address)).abort()
        return
    with pytest.raises(ChannelClosed, match=f"{address.path}: the server there runs as user {number}, not as you"):
        await connect(address)
    assert acceptor.channels.empty()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
async def test_another_user_is_turned_away(acceptor: Acceptor) -> None:
    """Even where the modes would let him: they are for the file, and somebody may have changed them."""
    script = (
        "import os, socket, sys; os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); print(s.recv(4096).decode())"
    )
    # Not below the folder of the test run, which nobody else can enter.
    with tempfile.TemporaryDirectory(prefix="treadle-") as folder:
        os.chmod(folder, 0o755)
        address = await acceptor.open(f"unix://{folder}/s")
        os.chmod(address.path, 0o666)
        done = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-c", script, address.path],
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=True,
        )
        await acceptor.close()
    assert done.stdout.startswith("HTTP/1.1 403 ")


async def test_the_credentials_are_those_of_the_peer(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
        server.bind(f"{tmp_path}/s")
        server.listen()
        client.connect(f"{tmp_path}/s")
        with server.accept()[0] as connection:
            assert peer_of(connection) == Peer("unix socket", os.geteuid())


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_a_peer_over_the_network_is_its_address(host: str) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family) as server, socket.socket(family) as client:
        client.connect(server.getsockname()[:2])
        with server.accept()[0] as connection:
            assert peer_of(connection) == Peer(f"{host}:{client.getsockname()[1]}", None)


@pytest.mark.parametrize(
    ("mode", "fine"), [(0o700, True), (0o755, True), (0o1777, True), (0o777, False), (0o770, False)]
)
async def test_a_unix_socket_is_not_made_where_others_could_replace_it(
    acceptor: Acceptor, tmp_path: Path, mode: int, fine: bool
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    folder.chmod(mode)
    if fine:
        (await connect(await acceptor.open(f"unix://{folder}/s"))).abort()
        return
    with pytest.raises(listening.ListenError, match="can be written by others; use one of your own"):
        await acceptor.open(f"unix://{folder}/s")
    assert os.listdir(folder) == []
