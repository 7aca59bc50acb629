"""Listening with a certificate: who is let in, what is said of bad files, and certificates that are renewed."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import ssl
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from channel_pair import DEADLINE_S, Recorder
from kit.certificates import Certificate, make_issuer, sign
from treadle.errors import ChannelClosed
from treadle.logs import metrics
from treadle.transport import Address, Channel, Listener, NamedToken, TlsFiles, connect, tls
from treadle.transport.listen import ListenError, listen

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make_issuer(tmp_path_factory.mktemp("issuer"))


@pytest.fixture(scope="module")
def served(issuer: Certificate, tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return sign(issuer, tmp_path_factory.mktemp("served"))


class Server:
    def __init__(self, listener: Listener, channels: asyncio.Queue[Channel]) -> None:
        self.listener = listener
        self.channels = channels

    @property
    def address(self) -> Address:
        return Address.parse(self.listener.url)


@pytest.fixture
async def server(served: Certificate) -> AsyncIterator[Server]:
    channels: asyncio.Queue[Channel] = asyncio.Queue()
    files = TlsFiles(str(served.certificate), str(served.key))
    listener = await listen(Address.parse("wss://127.0.0.1:0"), channels.put_nowait, token="t" * 16, tls=files)
    yield Server(listener, channels)
    await listener.close()
    while not channels.empty():
        channel = channels.get_nowait()
        channel.abort()
        await channel.wait_closed()


async def test_frames_of_every_size_go_both_ways_and_the_end_is_polite(server: Server, issuer: Certificate) -> None:
    assert server.listener.url.startswith("wss://127.0.0.1:")
    client = await connect(server.address, token="t" * 16, ca_file=str(issuer.certificate))
    ours, theirs = Recorder(), Recorder()
    channel = await asyncio.wait_for(server.channels.get(), DEADLINE_S)
    channel.attach(theirs)
    client.attach(ours)
    frames = [b"{}", b'"' + b"x" * (1 << 20) + b'"', b'"' + b"y" * (20 << 20) + b'"', b"3"]
    for frame in frames:
        client.send(frame)
        channel.send(frame)
    async with asyncio.timeout(DEADLINE_S):
        while len(ours.frames) < 4 or len(theirs.frames) < 4:
            await asyncio.sleep(0.001)
    assert (ours.frames, theirs.frames) == (frames, frames)
    client.close()
    async with asyncio.timeout(DEADLINE_S):
        await channel.wait_closed()
        await client.wait_closed()
    assert channel.stats().bytes_in > 21 << 20


async def test_the_token_counts_beside_the_certificate(server: Server, issuer: Certificate) -> None:
    with pytest.raises(ChannelClosed, match="HTTP 401"):
        await connect(server.address, token="w" * 16, ca_file=str(issuer.certificate))


async def test_a_client_trusts_only_who_it_knows(server: Server, tmp_path: Path) -> None:
    other = make_issuer(tmp_path, "other")
    for ca_file in (None, str(other.certificate)):
        with pytest.raises(ChannelClosed) as caught:
            await connect(server.address, token="t" * 16, ca_file=ca_file)
        for words in ("its certificate is refused", "ca_file=", "SSL_CERT_FILE"):
            assert words in str(caught.value)
    for bad in (tmp_path / "none.pem", other.key):
        with pytest.raises(ChannelClosed, match=f"the CA file {bad} cannot be used"):
            await connect(server.address, token="t" * 16, ca_file=str(bad))


async def test_a_certificate_for_another_place_is_refused(issuer: Certificate, tmp_path: Path) -> None:
    elsewhere = sign(issuer, tmp_path, places="DNS:elsewhere.example")
    files = TlsFiles(str(elsewhere.certificate), str(elsewhere.key))
    listener = await listen(Address.parse("wss://127.0.0.1:0"), Channel.abort, token="t" * 16, tls=files)
    try:
        with pytest.raises(ChannelClosed, match="IP address mismatch"):
            await connect(Address.parse(listener.url), token="t" * 16, ca_file=str(issuer.certificate))
    finally:
        await listener.close()


async def test_who_does_not_speak_tls_is_turned_away_and_counted(
    server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    refused = metrics.Counter("refused_here_total", "In this test.", "status")
    monkeypatch.setattr("treadle.transport.listen.REFUSED", refused)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.address.port)
    writer.write(b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n")
    async with asyncio.timeout(DEADLINE_S):
        await reader.read()
    writer.close()
    assert "no TLS" in str([record.args for record in caplog.records])
    assert [*refused.lines()][-1].endswith('{status="tls"} 1')
    with pytest.raises(ChannelClosed, match=r"HTTP|ended"):
        await connect(Address("ws", "127.0.0.1", server.address.port), token="t" * 16)
    assert not server.listener.handshakes


async def test_silent_connections_are_ended_and_keep_nobody_out(
    server: Server, issuer: Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.listener.max_connections = 8  # four handshakes at a time
    silent = [await asyncio.open_connection("127.0.0.1", server.address.port) for _ in range(12)]
    client = await connect(server.address, token="t" * 16, ca_file=str(issuer.certificate))
    client.abort()
    (await server.channels.get()).abort()
    await server.listener.close()
    async with asyncio.timeout(DEADLINE_S):
        for reader, writer in silent:
            with contextlib.suppress(ConnectionError):  # as well
                assert await reader.read() == b""
            writer.close()


# --- certificates of clients ---


async def test_clients_show_a_certificate_whose_name_may_stand_for_a_token(
    served: Certificate, issuer: Certificate, tmp_path: Path
) -> None:
    clients, strangers = make_issuer(tmp_path, "clients"), make_issuer(tmp_path, "strangers")
    robot = sign(clients, tmp_path, "robot", "DNS:robot")
    person = sign(clients, tmp_path, "person", "DNS:person")
    stranger = sign(strangers, tmp_path, "stranger", "DNS:robot")
    digest = hashlib.sha256(b"t" * 16).hexdigest()
    named = (
        NamedToken(name="machine", certificate="robot"),
        NamedToken(name="human", digest=digest, certificate="person"),
        NamedToken(name="any", digest=hashlib.sha256(b"u" * 16).hexdigest()),
    )
    channels: asyncio.Queue[Channel] = asyncio.Queue()
    files = TlsFiles(str(served.certificate), str(served.key), str(clients.certificate))
    listener = await listen(Address.parse("wss://127.0.0.1:0"), channels.put_nowait, named=named, tls=files)

    async def came(shown: Certificate | None, token: str | None) -> str:
        cert, key = (None, None) if shown is None else map(str, shown)
        address, ca = Address.parse(listener.url), str(issuer.certificate)
        client = await connect(address, token=token, ca_file=ca, cert_file=cert, key_file=key)
        client.abort()
        channel = await asyncio.wait_for(channels.get(), DEADLINE_S)
        channel.abort()
        return channel.token_name

    try:
        assert await came(robot, None) == "machine"
        assert await came(person, "t" * 16) == "human"
        assert await came(robot, "u" * 16) == await came(person, "u" * 16) == "any"
        for known, wrong in ((person, None), (robot, "t" * 16), (robot, "w" * 16), (person, "w" * 16)):
            with pytest.raises(ChannelClosed, match="HTTP 401"):
                await came(known, wrong)
        for unknown in (None, stranger):
            for token in (None, "t" * 16, "u" * 16):
                with pytest.raises(ChannelClosed, match=r"wants a client certificate|during the handshake"):
                    await came(unknown, token)
        for cert, key in ((str(tmp_path / "none"), None), (str(robot.certificate), str(person.key))):
            with pytest.raises(ChannelClosed, match="and its key cannot be used"):
                await connect(Address.parse(listener.url), cert_file=cert, key_file=key)
    finally:
        await listener.close()


# --- the files ---


async def test_a_renewed_certificate_is_used_for_new_connections_and_a_bad_one_is_not(
    issuer: Certificate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tls, "LOOK_S", 0.0)
    first, second = sign(issuer, tmp_path, "first"), sign(issuer, tmp_path, "second")
    used = Certificate(tmp_path / "used.pem", tmp_path / "used.key")
    for source, target in zip(first, used, strict=True):
        target.symlink_to(source)  # as programs do that renew them
    files = TlsFiles(*map(str, used))
    listener = await listen(Address.parse("wss://127.0.0.1:0"), Channel.abort, token="t" * 16, tls=files)

    async def seen() -> str:
        context = ssl.create_default_context(cafile=str(issuer.certificate))
        _, writer = await asyncio.open_connection("127.0.0.1", Address.parse(listener.url).port, ssl=context)
        subject: tuple[tuple[tuple[str, str], ...], ...] = writer.get_extra_info("peercert")["subject"]
        writer.close()
        return subject[0][0][1]

    def swap(source: Path, target: Path) -> None:
        (tmp_path / "next").symlink_to(source)
        os.replace(tmp_path / "next", target)

    try:
        assert await seen() == "first"
        swap(second.certificate, used.certificate)  # the key is still to come
        assert await seen() == "first"
        assert "is not the key of the certificate" in caplog.text
        swap(second.key, used.key)
        assert await seen() == "second"
        assert "was renewed" in caplog.text
        used.key.unlink()
        assert await seen() == "second"
    finally:
        await listener.close()


async def test_files_that_cannot_be_used_are_named_with_the_reason(issuer: Certificate, tmp_path: Path) -> None:
    good, other = sign(issuer, tmp_path, "good"), sign(issuer, tmp_path, "other")
    text, locked, open_key = tmp_path / "text", tmp_path / "locked.key", tmp_path / "open.key"
    text.write_text("no certificate")
    text.chmod(0o600)
    subprocess.run(
        ["openssl", "ec", "-in", good.key, "-out", locked, "-aes256", "-passout", "pass:secret"],
        stdin=subprocess.DEVNULL,
        check=True,
        capture_output=True,
    )
    locked.chmod(0o600)
    open_key.write_bytes(good.key.read_bytes())
    for certificate, key, reason in (
        (tmp_path / "none", good.key, "none cannot be read: No such file"),
        (good.certificate, tmp_path / "none", "none cannot be read: No such file"),
        (text, good.key, "no certificate and key in PEM form"),
        (good.certificate, text, "no certificate and key in PEM form"),
        (good.certificate, other.key, "is not the key of the certificate"),
        (good.certificate, locked, "has a password"),
    ):
        with pytest.raises(ListenError, match=reason):
            TlsFiles(str(certificate), str(key))
    for mode, is_private in ((0o644, False), (0o660, False), (0o602, False), (0o640, True), (0o400, True)):
        open_key.chmod(mode)
        if is_private:
            TlsFiles(str(good.certificate), str(open_key))
        else:
            with pytest.raises(ListenError, match=f"has mode {mode:04o}: others can"):
                TlsFiles(str(good.certificate), str(open_key))


async def test_addresses_and_certificates_belong_together(served: Certificate, tmp_path: Path) -> None:
    files = TlsFiles(str(served.certificate), str(served.key))
    with pytest.raises(ListenError, match="which needs both"):
        await listen(Address.parse("wss://127.0.0.1:0"), Channel.abort)
    for url in ("ws://127.0.0.1:0", f"unix://{tmp_path}/s"):
        with pytest.raises(ListenError, match="which needs both"):
            await listen(Address.parse(url), Channel.abort, tls=files)
    with pytest.raises(ListenError, match="without a token"):
        await listen(Address.parse("wss://0.0.0.0:0"), Channel.abort, tls=files)
