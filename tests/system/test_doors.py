"""Who comes in at a server that listens on this machine, and who does not. Both servers, as programs."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import resource
import signal
import socket
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import ClientConnection, connect

from kit.app_client import joined
from kit.app_program import listening_server
from kit.exec_program import running
from kit.processes import DEADLINE_S
from treadle import AsyncCodex, Codex, CodexConfig, Environment, TransportClosedError, TreadleError
from treadle.execution.sandbox.host import HOST, Unusable
from treadle.testing import AppServerHarness
from treadle.transport import Address

Kind: TypeAlias = Literal["app-server", "exec-server"]
KINDS: tuple[Kind, ...] = ("app-server", "exec-server")
MOMENT_S = 2.5  # less than the deadline of a handshake


@dataclass(frozen=True)
class Door:
    """A server that runs: what it printed, its home, and what it says on standard error."""

    kind: Kind
    url: str
    home: Path
    pid: int
    said: Callable[[], str]
    stop: Callable[[signal.Signals], int]

    @property
    def address(self) -> Address:
        return Address.parse(self.url)

    @property
    def bare(self) -> str:
        return f"ws://{self.address.authority}"

    @property
    def secret(self) -> str:
        return self.address.path[1:]

    @property
    def file(self) -> Path:
        return self.home / "listeners" / f"127.0.0.1-{self.address.port}.json"


@contextmanager
def opened(kind: Kind, folder: Path, *arguments: str) -> Iterator[Door]:
    arguments = arguments if "--listen" in arguments else ("--listen", "ws://127.0.0.1:0", *arguments)
    if kind == "exec-server":
        with running(folder, *arguments) as server:
            line = server.read_line()
            yield Door(kind, server.url, folder / "home", server.process.pid, lambda: line + server.stderr, server.stop)
        return
    with AppServerHarness(folder) as harness, listening_server(harness, *arguments) as program:
        yield Door(kind, program.url, harness.home, program.pid, lambda: program.stderr, program.stop)


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    chosen: Kind = request.param
    return chosen


@pytest.fixture(scope="module", params=KINDS)
def door(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    """One of each for the tests that do them no harm."""
    with opened(request.param, tmp_path_factory.mktemp("door")) as door:
        yield door
        assert "Traceback" not in door.said()
        assert door.secret not in door.said()


def enter(url: str, token: str | None = None) -> AbstractContextManager[ClientConnection]:
    """A foreign client."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    return connect(url, additional_headers=headers, proxy=None, open_timeout=DEADLINE_S)


def refusal(url: str, token: str | None = None) -> tuple[int, str]:
    with pytest.raises(InvalidStatus) as caught, enter(url, token):
        pass
    return caught.value.response.status_code, (caught.value.response.body or b"").decode()


async def use(door: Door, url: str, token: str | None = None, **env: str) -> None:
    """Our own clients, all that there are for the server."""
    if door.kind == "exec-server":
        async with await Environment.connect(url, token=token, recovery_s=0) as environment:
            assert (await environment.run(["true"])).exit_code == 0
        return
    config = CodexConfig(url=url, token=token, env=env or None)
    async with AsyncCodex(config) as codex:
        assert codex.metadata.userAgent
    with Codex(config) as blocking:
        assert blocking.metadata.userAgent


# --- the secret ---


def test_the_url_that_is_printed_is_enough(door: Door) -> None:
    assert re.fullmatch(r"ws://127\.0\.0\.1:[0-9]+/[0-9a-f]{64}", door.url)
    with enter(door.url) as client:
        client.ping().wait(DEADLINE_S)


def test_the_secret_is_a_bearer_token(door: Door) -> None:
    with enter(door.bare, door.secret) as client:
        client.ping().wait(DEADLINE_S)


@pytest.mark.parametrize("token", [None, "wrong", "", "0" * 64])
@pytest.mark.parametrize("path", ["", "/", "/wrong", f"/{'0' * 64}"])
def test_nobody_comes_in_without(door: Door, path: str, token: str | None) -> None:
    status, text = refusal(door.bare + path, token)
    assert status == 401
    assert "Authorization: Bearer" in text
    assert "ws://HOST:PORT/TOKEN" in text
    assert door.secret not in text


@pytest.mark.parametrize("path", ["/readyz", "/healthz"])
def test_health_is_told_to_everyone(door: Door, path: str) -> None:
    web = http.client.HTTPConnection(door.address.host, door.address.port, timeout=DEADLINE_S)
    web.request("GET", path)
    assert web.getresponse().status == (404 if (door.kind, path) == ("exec-server", "/healthz") else 200)
    web.close()


def test_a_web_page_is_refused_with_the_secret_too(door: Door) -> None:
    headers = {"Origin": "http://127.0.0.1"}
    with pytest.raises(InvalidStatus) as caught, connect(door.url, additional_headers=headers, proxy=None):
        pass
    assert caught.value.response.status_code == 403


def test_only_the_owner_can_read_the_file_which_the_start_line_names(door: Door) -> None:
    assert stat.S_IMODE(door.file.stat().st_mode) == 0o600
    assert stat.S_IMODE(door.file.parent.stat().st_mode) == 0o700
    assert f"treadle {door.kind} listens on {door.bare}, with the token in {door.file}" in door.said()
    assert json.loads(door.file.read_text())["token"] == door.secret


def test_the_secret_is_in_no_list_of_processes(door: Door) -> None:
    for name in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            if name.isdigit():
                assert door.secret.encode() not in Path(f"/proc/{name}/cmdline").read_bytes()


# --- our clients ---


@pytest.mark.anyio
async def test_our_clients_find_it_without_asking(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TREADLE_HOME", str(door.home))
    await use(door, door.bare)
    await use(door, f"ws://localhost:{door.address.port}")


@pytest.mark.anyio
async def test_the_home_may_be_named_in_the_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TREADLE_HOME", str(tmp_path / "another"))
    with opened("app-server", tmp_path) as door:
        await use(door, door.bare, TREADLE_HOME=str(door.home))


@pytest.mark.anyio
async def test_a_client_with_another_home_is_told_what_to_do(
    door: Door, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TREADLE_HOME", str(tmp_path))
    with pytest.raises(TreadleError) as caught:
        await use(door, door.bare)
    told = [str(caught.value)]
    if door.kind == "app-server":
        with pytest.raises(TransportClosedError) as blocking:
            Codex(CodexConfig(url=door.bare))
        told.append(str(blocking.value))
    for text in told:
        for word in ("401", "URL that the server printed", "pass its token", "TREADLE_HOME", str(tmp_path)):
            assert word in text
        assert door.secret not in text
    await use(door, door.url)
    await use(door, door.bare, door.secret)


@pytest.mark.anyio
async def test_no_message_shows_the_secret_of_the_url(kind: Kind, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        port = nobody.getsockname()[1]
    url = f"ws://127.0.0.1:{port}/{'5ecret' * 8}"
    messages = []
    with pytest.raises(TreadleError) as caught:
        await use(Door(kind, url, tmp_path, 0, str, int), url)
    messages += [str(caught.value), repr(caught.value)]
    config = CodexConfig(url=url)
    with pytest.raises(TransportClosedError) as blocking:
        Codex(config)
    messages += [str(blocking.value), repr(config), repr(config.__getstate__())]
    for text in messages:
        assert "5ecret" not in text
    assert str(port) in messages[0]


# --- its beginning and end ---


@pytest.mark.anyio
async def test_without_a_token_only_when_it_is_said(
    kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TREADLE_HOME", str(tmp_path / "home"))
    with opened(kind, tmp_path, "--no-token") as door:
        assert door.url == door.bare
        assert "for everyone on this machine" in door.said()
        assert not door.file.exists()
        await use(door, door.bare)


def test_a_token_of_ones_own_is_not_printed(kind: Kind, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("my-own-token\n")
    with opened(kind, tmp_path, "--token-file", str(file)) as door:
        assert door.url == door.bare
        assert f"with the token in {file}" in door.said()
        assert "my-own-token" not in door.said()
        assert not door.file.exists()
        assert refusal(door.bare)[0] == 401
        for url, token in ((door.bare, "my-own-token"), (f"{door.bare}/my-own-token", None)):
            with enter(url, token) as client:
                client.ping().wait(DEADLINE_S)


def test_the_file_goes_with_the_server_and_one_that_was_left_is_replaced(kind: Kind, tmp_path: Path) -> None:
    with opened(kind, tmp_path) as killed:
        killed.stop(signal.SIGKILL)
        assert killed.file.exists()
    with opened(kind, tmp_path, "--listen", killed.bare) as door:
        assert door.secret != killed.secret
        assert os.listdir(door.file.parent) == [door.file.name]
        assert refusal(killed.url)[0] == 401
        with enter(door.url):
            pass
        assert door.stop(signal.SIGTERM) == 0
    assert os.listdir(door.file.parent) == []


def test_a_file_that_cannot_be_kept_is_told_and_the_url_still_works(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file, where the home should be")
    with opened("exec-server", tmp_path) as door:
        assert "its token is in the URL only: cannot keep the secret" in door.said()
        assert refusal(door.bare)[0] == 401
        with enter(door.url):
            pass


@pytest.mark.skipif(
    isinstance(HOST.bubblewrap(), Unusable) and HOST.landlock() < 1, reason="nothing here could confine a command"
)
def test_a_confined_command_with_network_does_not_come_in(tmp_path: Path) -> None:
    """Nor could it learn the way: the secret is in a home that it is kept from, which other tests show."""
    script = (
        "import http.client, sys\n"
        "web = http.client.HTTPConnection('127.0.0.1', int(sys.argv[1]), timeout=30)\n"
        "web.request('GET', '/', headers={'Connection': 'Upgrade', 'Upgrade': 'websocket',"
        " 'Sec-WebSocket-Version': '13', 'Sec-WebSocket-Key': 'AAAAAAAAAAAAAAAAAAAAAA=='})\n"
        "print(web.getresponse().status)\n"
    )
    with opened("app-server", tmp_path) as door, joined(door.url) as client:
        command = [sys.executable, "-c", script, str(door.address.port)]
        policy = {"type": "workspaceWrite", "networkAccess": True}
        params = {"command": command, "cwd": str(tmp_path / "workspace"), "sandboxPolicy": policy}
        answer = client.call("command/exec", params)
    assert (answer["exitCode"], answer["stdout"]) == (0, "401\n"), answer


# --- too many ---


@contextmanager
def many(address: Address, count: int, greeting: bytes = b"") -> Iterator[list[socket.socket]]:
    """Connections that say nothing, or only that."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 2 * count)) if hard > 0 else 2 * count, hard))
    with ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        sockets = []
        for _ in range(count):
            sockets.append(stack.enter_context(socket.create_connection((address.host, address.port), DEADLINE_S)))
            sockets[-1].sendall(greeting)
        yield sockets


def test_two_thousand_silent_connections_keep_nobody_out(door: Door) -> None:
    with many(door.address, 2000):
        for _ in range(5):
            began = time.monotonic()
            with enter(door.url) as client:
                client.ping().wait(DEADLINE_S)
            assert time.monotonic() - began < MOMENT_S
    with enter(door.url):
        pass


def upgrade(address: Address) -> bytes:
    return (
        f"GET {address.path} HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    ).encode()


def test_four_hundred_clients_may_come_at_once(kind: Kind, tmp_path: Path) -> None:
    """From one process, which connects them all before it says a word for the first."""
    with opened(kind, tmp_path) as door, many(door.address, 400) as clients:
        for client in clients:
            client.sendall(upgrade(door.address))
        assert {client.recv(12) for client in clients} == {b"HTTP/1.1 101"}


def entered_again(door: Door) -> ClientConnection:
    """Once the server has noticed that the crowd has gone."""
    end = time.monotonic() + DEADLINE_S
    while True:
        try:
            return connect(door.url, proxy=None, open_timeout=DEADLINE_S)
        except InvalidStatus as error:
            if error.response.status_code != 503 or time.monotonic() > end:
                raise


def test_without_descriptors_the_server_lives_on_and_says_so_once(kind: Kind, tmp_path: Path) -> None:
    with opened(kind, tmp_path) as door, enter(door.url) as before:
        before.ping().wait(DEADLINE_S)
        if kind == "app-server":
            with joined(door.url) as client:  # it loads what these need after its start, and then has files open
                client.call("thread/list")
                client.call("thread/loaded/list")
        few = len(os.listdir(f"/proc/{door.pid}/fd")) + 10
        _, hard = resource.prlimit(door.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(door.pid, resource.RLIMIT_NOFILE, (few, hard))
        with many(door.address, 40, upgrade(door.address)) as crowd:
            answers = {connection.recv(12) for connection in crowd[:20]}
            assert answers == {b"HTTP/1.1 101", b"HTTP/1.1 503"}
            assert before.ping().wait(DEADLINE_S), "who was there before is served on"
        with entered_again(door) as after:
            assert after.ping().wait(DEADLINE_S)
        said = door.said()
        assert said.count("connections have to wait") == 1, said
        assert "Traceback" not in said
