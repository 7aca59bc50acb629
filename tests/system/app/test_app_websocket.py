"""The program for several clients: HTTP, tokens, frames, unix sockets."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import re
import secrets
import socket
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from kit.app_client import AppClient, connected, joined
from kit.app_program import Program, listening_server, refused
from kit.processes import DEADLINE_S
from kit.transports import Socket, http_to
from treadle.testing import AppServerHarness
from treadle.transport import Address

# --- HTTP ---


@pytest.fixture
def web(shared_server: Program) -> Iterator[http.client.HTTPConnection]:
    with http_to(shared_server.url) as connection:
        yield connection


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        ("GET", "/readyz", {}, 200),
        ("GET", "/healthz", {}, 200),
        ("HEAD", "/healthz", {}, 200),
        ("GET", "/readyz", {"Origin": "http://evil.example"}, 403),
        ("GET", "/healthz", {"Origin": "null"}, 403),
        ("GET", "/", {"Origin": "http://evil.example"}, 403),
        ("GET", "/", {}, 400),
        ("GET", "/nothing", {}, 400),
        ("POST", "/", {}, 400),
    ],
)
def test_http(web: http.client.HTTPConnection, method: str, path: str, headers: dict[str, str], status: int) -> None:
    web.request(method, path, headers=headers)
    assert web.getresponse().status == status


def test_the_url_is_printed(shared_server: Program) -> None:
    assert re.fullmatch(r"ws://127\.0\.0\.1:[0-9]+/[0-9a-f]{64}", shared_server.url)
    address = Address.parse(shared_server.url)
    assert f"listens on ws://{address.authority}, with the token in " in shared_server.stderr
    assert address.path[1:] not in shared_server.stderr


def test_a_page_in_a_browser_is_refused(shared_server: Program) -> None:
    with (
        pytest.raises(InvalidStatus) as refusal,
        connected(shared_server.url, headers={"Origin": "http://127.0.0.1"}),
    ):
        pass
    assert refusal.value.response.status_code == 403


@pytest.mark.parametrize("path", ["/", "/ws", "/any/path?x=1"])
def test_any_path_may_be_upgraded(shared_server: Program, path: str) -> None:
    with joined(shared_server.url + path) as client:
        assert client.call("thread/loaded/list")["nextCursor"] is None


def test_a_port_that_is_taken(shared_server: Program, harness: AppServerHarness) -> None:
    assert "address already in use" in refused(harness, "--listen", shared_server.url).lower()


# --- tokens ---


@pytest.fixture(scope="module")
def token() -> str:
    return secrets.token_hex(32)


@pytest.fixture(scope="module")
def guarded(shared_harness: AppServerHarness, token: str) -> Iterator[Program]:
    """A server on all addresses, which is only possible with a token."""
    file = shared_harness.home / "token"
    file.write_text(f"{token}\n")
    file.chmod(0o600)
    arguments = ("--listen", "ws://0.0.0.0:0", "--ws-token-file", str(file))
    with listening_server(shared_harness, *arguments, log="guarded") as program:
        program.url = program.url.replace("0.0.0.0", "127.0.0.1")
        yield program
        assert program.stop() == 0


def test_the_right_token(guarded: Program, token: str) -> None:
    with connected(guarded.url, headers={"Authorization": f"Bearer {token}"}) as client:
        client.initialize()
        assert client.call("thread/loaded/list")["data"] == []


@pytest.mark.parametrize("given", [None, "Bearer", "Bearer wrong", "Basic {token}", "{token}", "Bearer {token}x"])
def test_no_right_token(guarded: Program, token: str, given: str | None) -> None:
    headers = {} if given is None else {"Authorization": given.format(token=token)}
    with pytest.raises(InvalidStatus) as refusal, connected(guarded.url, headers=headers):
        pass
    assert refusal.value.response.status_code == 401
    assert token not in guarded.stderr


def test_off_loopback_a_token_is_required(harness: AppServerHarness) -> None:
    text = refused(harness, "--listen", "ws://0.0.0.0:0")
    assert "token" in text
    assert "--token-file" in text


@pytest.mark.parametrize("content", ["", "two words", "umlaut-ä"])
def test_a_token_file_that_holds_none(harness: AppServerHarness, tmp_path: Path, content: str) -> None:
    file = tmp_path / "token"
    file.write_text(content)
    assert str(file) in refused(harness, "--listen", "ws://0.0.0.0:0", "--token-file", str(file))


# --- frames ---


@pytest.fixture
def client(shared_server: Program) -> Iterator[AppClient]:
    with joined(shared_server.url) as client:
        yield client


def test_binary_frames_are_ignored(client: AppClient) -> None:
    assert isinstance(client.transport, Socket)
    request = {"id": "binary", "method": "thread/loaded/list", "params": {}}
    client.expect("binary", "thread/loaded/list")
    client.transport.connection.send(json.dumps(request).encode())
    client.call("thread/loaded/list")
    assert not client.has_reply("binary")


def test_pings_are_answered(client: AppClient) -> None:
    assert isinstance(client.transport, Socket)
    assert client.transport.connection.ping(b"are you there").wait(DEADLINE_S)


def test_one_message_in_many_frames(client: AppClient) -> None:
    assert isinstance(client.transport, Socket)
    request = json.dumps({"id": "pieces", "method": "thread/loaded/list", "params": {}})
    client.expect("pieces", "thread/loaded/list")
    client.transport.connection.send(iter(request))
    assert client.reply_to("pieces")["result"]["data"] is not None


def test_a_huge_message_is_taken_and_one_beyond_the_limit_ends_only_its_connection(shared_server: Program) -> None:
    request = {"id": "huge", "method": "thread/loaded/list", "params": {"ignored": ""}}
    head, tail = json.dumps(request)[:-3], '"}}'
    piece = "x" * (8 << 20)
    with joined(shared_server.url) as client, joined(shared_server.url) as other:
        assert isinstance(client.transport, Socket)
        client.expect("huge", "thread/loaded/list")
        client.transport.connection.send([head, *[piece] * 5, tail])
        assert "result" in client.reply_to("huge")
        with contextlib.suppress(ConnectionClosed):  # it may be cut before the last piece
            client.transport.connection.send([head, *[piece] * 9, tail])
        client.read_to_end()
        assert "data" in other.call("thread/loaded/list")


# --- unix sockets ---


def test_a_unix_socket(harness: AppServerHarness, tmp_path: Path) -> None:
    path = tmp_path / "app.sock"
    harness.model.enqueue_assistant_message("Hello.")
    with listening_server(harness, "--listen", f"unix://{path}") as program:
        assert program.url == f"unix://{path}"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        with joined(program.url) as client:
            assert client.run(client.start_thread())["status"] == "completed"
        assert "another server" in refused(harness, "--listen", program.url)
        assert program.stop() == 0
    assert not path.exists()


def test_a_stale_unix_socket_is_replaced(harness: AppServerHarness, tmp_path: Path) -> None:
    path = tmp_path / "app.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    with listening_server(harness, "--listen", f"unix://{path}") as program, joined(program.url) as client:
        assert client.call("thread/loaded/list")["data"] == []


def test_what_is_no_socket_is_left_alone(harness: AppServerHarness, tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("mine")
    assert str(path) in refused(harness, "--listen", f"unix://{path}")
    assert path.read_text() == "mine"


def test_the_usual_unix_socket() -> None:
    # Names of sockets are short, and those of test folders are not.
    with tempfile.TemporaryDirectory(prefix="tr") as short, AppServerHarness(short) as harness:
        folder = harness.home / "app-server-control"
        with listening_server(harness, "--listen", "unix://") as program:
            assert program.url == f"unix://{folder}/app-server-control.sock"
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700
            with joined(program.url) as client:
                assert client.call("thread/loaded/list")["data"] == []
            assert "another server" in refused(harness, "--listen", "unix://")
            assert program.stop() == 0


def test_a_unix_socket_with_a_name_that_is_too_long(harness: AppServerHarness, tmp_path: Path) -> None:
    assert "too long" in refused(harness, "--listen", f"unix://{tmp_path}/{'x' * 120}.sock")


def test_the_hash_of_the_token_is_not_taken_for_it(guarded: Program, token: str) -> None:
    digest = hashlib.sha256(token.encode()).hexdigest()
    with (
        pytest.raises(InvalidStatus) as refusal,
        connected(guarded.url, headers={"Authorization": f"Bearer {digest}"}),
    ):
        pass
    assert refusal.value.response.status_code == 401
