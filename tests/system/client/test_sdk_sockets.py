"""Servers behind a socket: not there, not willing, not ours, silent, or gone in the middle of it all."""

from __future__ import annotations

import base64
import hashlib
import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from kit.app_program import listening_server
from system.client.faces import DEADLINE_S, Face
from treadle.client import CodexConfig, TransportClosedError
from treadle.testing import AppServerHarness

TOKEN = "a-token-that-nobody-may-see"


class Peer:
    """The server's end of one WebSocket connection, by hand."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.socket.settimeout(DEADLINE_S)
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += self._bytes(1)
        key = next(
            line.split(b":")[1].strip() for line in head.split(b"\r\n") if line.lower().startswith(b"sec-websocket-key")
        )
        accept = base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
        self.socket.sendall(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n"
        )

    def _bytes(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            piece = self.socket.recv(min(count - len(data), 1 << 20))
            if not piece:
                raise ConnectionError
            data += piece
        return bytes(data)

    def read(self) -> Any:
        """The next message; pings are passed over, unanswered."""
        message = b""
        while True:
            first, second = self._bytes(2)
            length = second & 0x7F
            if length == 126:
                (length,) = struct.unpack(">H", self._bytes(2))
            elif length == 127:
                (length,) = struct.unpack(">Q", self._bytes(8))
            mask = (self._bytes(4) * (length // 4 + 1))[:length]
            data = int.from_bytes(self._bytes(length)) ^ int.from_bytes(mask)
            if first & 0x0F > 2:
                continue
            message += data.to_bytes(length)
            if first & 0x80:
                return json.loads(message)

    def send(self, message: Any) -> None:
        data = json.dumps(message).encode()
        head = b"\x81" + (bytes([len(data)]) if len(data) < 126 else b"\x7f" + struct.pack(">Q", len(data)))
        self.socket.sendall(head + data)

    def shake_hands(self) -> None:
        self.send({"id": self.read()["id"], "result": {"userAgent": "fake/1.0"}})
        assert self.read()["method"] == "initialized"


@contextmanager
def served(story: Callable[[Peer], None]) -> Iterator[CodexConfig]:
    """A server that does with its only client what the story says."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        failures: list[BaseException] = []

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                try:
                    peer = Peer(connection)
                    peer.shake_hands()
                    story(peer)
                except BaseException as error:
                    failures.append(error)

        server = threading.Thread(target=serve, name="test server", daemon=True)
        server.start()
        yield CodexConfig(url=f"ws://127.0.0.1:{listener.getsockname()[1]}", token=TOKEN)
        server.join(DEADLINE_S)
        assert failures == []


def open_error(face: Face, config: CodexConfig) -> BaseException | None:
    return face.go(lambda: face._open(config, {})).exception(DEADLINE_S)


def until_it_ends(peer: Peer) -> None:
    with suppress(ConnectionError):
        while True:
            peer.read()


# --- no connection ---


@pytest.mark.parametrize(
    "url", ["nonsense", "http://127.0.0.1:1", "stdio://", "ws://", "unix://relative", "ws://host.invalid:1", "ws://a b"]
)
def test_a_wrong_address_is_named(face: Face, url: str) -> None:
    error = open_error(face, CodexConfig(url=url, token=TOKEN))
    assert isinstance(error, TransportClosedError)
    assert url in str(error)
    assert TOKEN not in str(error)


def test_a_refused_connection_is_reported(face: Face, tmp_path: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    for url in (f"ws://127.0.0.1:{port}", f"unix://{tmp_path}/nobody"):
        error = open_error(face, CodexConfig(url=url, token=TOKEN))
        assert isinstance(error, TransportClosedError)
        assert url in str(error)
        assert TOKEN not in repr(error)


@pytest.mark.parametrize("given", [TOKEN, None])
def test_a_wrong_token_is_refused_and_not_shown(face: Face, given: str | None, tmp_path: Any) -> None:
    secret = tmp_path / "token"
    secret.write_text("the-right-token-of-the-server")
    secret.chmod(0o600)
    options = ("--listen", "ws://127.0.0.1:0", "--token-file", str(secret))
    with AppServerHarness(tmp_path) as harness, listening_server(harness, *options) as program:
        error = open_error(face, CodexConfig(url=program.url, token=given))
        assert isinstance(error, TransportClosedError)
        assert "401" in str(error)
        for text in (str(error), repr(error), repr(error.__context__), repr(error.__cause__)):
            assert TOKEN not in text
        codex = face.open(CodexConfig(url=program.url, token="the-right-token-of-the-server"))
        assert TOKEN not in repr(codex)
        face.close(codex)


def test_a_server_that_hangs_up_in_the_handshake_is_reported(face: Face) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        opening = face.go(
            lambda: face._open(CodexConfig(url=f"ws://127.0.0.1:{listener.getsockname()[1]}", token=TOKEN), {})
        )
        listener.settimeout(DEADLINE_S)
        connection, _ = listener.accept()
        connection.close()
        error = opening.exception(DEADLINE_S)
    assert isinstance(error, TransportClosedError)
    assert TOKEN not in str(error)


# --- it was there ---


@pytest.mark.parametrize("how", ["politely", "abruptly", "in the middle of a frame"])
def test_a_connection_that_ends_is_told_to_all_who_wait(face: Face, how: str) -> None:
    def story(peer: Peer) -> None:
        for _ in range(4):
            assert peer.read()["method"] == "thread/read"
        if how == "politely":
            peer.socket.sendall(b"\x88\x02\x03\xe9")
            until_it_ends(peer)
        elif how == "in the middle of a frame":
            peer.socket.sendall(b'\x81\x7d{"me')

    with served(story) as config:
        codex = face.open(config)
        waiting = [face.go(face.thread(codex, f"thread {number}").read) for number in range(4)]
        for future in waiting:
            error = future.exception(DEADLINE_S)
            assert isinstance(error, TransportClosedError)
            assert error.exit_code is None
        assert isinstance(face.go(face.thread(codex).read).exception(DEADLINE_S), TransportClosedError)
        face.close(codex)
        face.close(codex)


def test_a_server_that_falls_silent_is_given_up(face: Face, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its machine may have lost power: the connection looks open for ever."""
    monkeypatch.setattr("treadle.client.connection.SILENCE_S", 0.5)
    monkeypatch.setattr("treadle.transport.stream.KEEPALIVE_S", 0.5)
    monkeypatch.setattr("treadle.transport.stream.DEAD_AFTER_S", 1.5)
    with served(until_it_ends) as config:
        codex = face.open(config)
        error = face.go(face.thread(codex).read).exception(DEADLINE_S)
        assert isinstance(error, TransportClosedError)
        assert "no sign of life" in str(error)
        face.close(codex)


def test_a_large_request_and_a_talkative_server_do_not_block_each_other(
    face: Face, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that has much to tell reads on when that was taken: who sends must not keep the reader from reading."""
    monkeypatch.setattr("treadle.client.connection.WRITE_S", DEADLINE_S / 2)

    def story(peer: Peer) -> None:
        assert peer.read()["method"] == "test/begin"
        for _ in range(256):
            peer.send({"method": "test/told", "params": {"text": "x" * (1 << 16)}})
        peer.send({"id": peer.read()["id"], "result": {}})
        until_it_ends(peer)

    with served(story) as config:
        codex = face.open(config)
        face.notify(codex, "test/begin")
        face.do(lambda: face.request(codex, "test/large", text="x" * (16 << 20)))
        face.close(codex)
