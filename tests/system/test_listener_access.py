"""Who comes in at a server that listens on this machine, and who does not. Both servers, as programs."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import http.client
import json
import os
import re
import resource
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
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
from kit.ports import free_port
from kit.processes import DEADLINE_S
from treadle import AsyncCodex, Codex, CodexConfig, Environment, TransportClosedError, TreadleError
from treadle.execution import HOST, Unusable
from treadle.logs import REFUSALS_PER_MINUTE
from treadle.testing import AppServerHarness
from treadle.transport import MAX_CONNECTIONS, Address

Kind: TypeAlias = Literal["app-server", "exec-server"]
KINDS: tuple[Kind, ...] = ("app-server", "exec-server")
MOMENT_S = 2.5  # less than the deadline of a handshake


@dataclass(frozen=True)
class Listener:
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
def opened(kind: Kind, folder: Path, *arguments: str) -> Iterator[Listener]:
    arguments = arguments if "--listen" in arguments else ("--listen", "ws://127.0.0.1:0", *arguments)
    if kind == "exec-server":
        with running(folder, *arguments) as server:
            line = server.read_line()
            yield Listener(
                kind, server.url, folder / "home", server.process.pid, lambda: line + server.stderr, server.stop
            )
        return
    with AppServerHarness(folder) as harness, listening_server(harness, *arguments) as program:
        yield Listener(kind, program.url, harness.home, program.pid, lambda: program.stderr, program.stop)


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    chosen: Kind = request.param
    return chosen


@pytest.fixture(scope="module", params=KINDS)
def listener(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Listener]:
    """One of each for the tests that do them no harm."""
    with opened(request.param, tmp_path_factory.mktemp("listener")) as listener:
        yield listener
        assert "Traceback" not in listener.said()
        assert listener.secret not in listener.said()


def enter(url: str, token: str | None = None) -> AbstractContextManager[ClientConnection]:
    """A foreign client."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    return connect(url, additional_headers=headers, proxy=None, open_timeout=DEADLINE_S)


def refusal(url: str, token: str | None = None) -> tuple[int, str]:
    with pytest.raises(InvalidStatus) as caught, enter(url, token):
        pass
    return caught.value.response.status_code, (caught.value.response.body or b"").decode()


async def use(listener: Listener, url: str, token: str | None = None, **env: str) -> None:
    """Our own clients, all that there are for the server."""
    if listener.kind == "exec-server":
        async with await Environment.connect(url, token=token, recovery_s=0) as environment:
            assert (await environment.run(["true"])).exit_code == 0
        return
    config = CodexConfig(url=url, token=token, env=env or None)
    async with AsyncCodex(config) as codex:
        assert codex.metadata.userAgent
    with Codex(config) as blocking:
        assert blocking.metadata.userAgent


async def refusals(kind: Kind, url: str) -> list[str]:
    """What our clients say of a server that they cannot use."""
    said = []
    with pytest.raises(TreadleError) as caught:
        await use(Listener(kind, url, Path(), 0, str, int), url)
    said.append(str(caught.value))
    if kind == "app-server":
        with pytest.raises(TransportClosedError) as blocking:
            await asyncio.to_thread(Codex, CodexConfig(url=url))
        said.append(str(blocking.value))
    return said


# --- the secret ---


def test_the_url_that_is_printed_is_enough(listener: Listener) -> None:
    assert re.fullmatch(r"ws://127\.0\.0\.1:[0-9]+/[0-9a-f]{64}", listener.url)
    with enter(listener.url) as client:
        client.ping().wait(DEADLINE_S)


def test_the_secret_is_a_bearer_token(listener: Listener) -> None:
    with enter(listener.bare, listener.secret) as client:
        client.ping().wait(DEADLINE_S)


@pytest.mark.parametrize("token", [None, "wrong", "", "0" * 64])
@pytest.mark.parametrize("path", ["", "/", "/wrong", f"/{'0' * 64}"])
def test_nobody_comes_in_without(listener: Listener, path: str, token: str | None) -> None:
    status, text = refusal(listener.bare + path, token)
    assert status == 401
    assert "Authorization: Bearer" in text
    assert "ws://HOST:PORT/TOKEN" in text
    assert listener.secret not in text


@pytest.mark.parametrize("path", ["/readyz", "/healthz"])
def test_health_is_told_to_everyone(listener: Listener, path: str) -> None:
    web = http.client.HTTPConnection(listener.address.host, listener.address.port, timeout=DEADLINE_S)
    web.request("GET", path)
    assert web.getresponse().status == (404 if (listener.kind, path) == ("exec-server", "/healthz") else 200)
    web.close()


def test_a_web_page_is_refused_with_the_secret_too(listener: Listener) -> None:
    headers = {"Origin": "http://127.0.0.1"}
    with pytest.raises(InvalidStatus) as caught, connect(listener.url, additional_headers=headers, proxy=None):
        pass
    assert caught.value.response.status_code == 403


def test_only_the_owner_can_read_the_file_which_the_start_line_names(listener: Listener) -> None:
    assert stat.S_IMODE(listener.file.stat().st_mode) == 0o600
    assert stat.S_IMODE(listener.file.parent.stat().st_mode) == 0o700
    assert f"treadle {listener.kind} listens on {listener.bare}, with the token in {listener.file}" in listener.said()
    assert json.loads(listener.file.read_text())["token"] == listener.secret


def test_the_secret_is_in_no_list_of_processes(listener: Listener) -> None:
    for name in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            if name.isdigit():
                assert listener.secret.encode() not in Path(f"/proc/{name}/cmdline").read_bytes()


# --- our clients ---


@pytest.mark.anyio
async def test_our_clients_find_it_without_asking(listener: Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TREADLE_HOME", str(listener.home))
    await use(listener, listener.bare)
    await use(listener, f"ws://localhost:{listener.address.port}")


@pytest.mark.anyio
async def test_the_home_may_be_named_in_the_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TREADLE_HOME", str(tmp_path / "another"))
    with opened("app-server", tmp_path) as listener:
        await use(listener, listener.bare, TREADLE_HOME=str(listener.home))


@pytest.mark.anyio
async def test_a_client_with_another_home_is_told_what_to_do(
    listener: Listener, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TREADLE_HOME", str(tmp_path))
    for text in await refusals(listener.kind, listener.bare):
        for word in ("401", "URL that the server printed", "pass its token", "TREADLE_HOME", str(tmp_path)):
            assert word in text
        assert listener.secret not in text
    await use(listener, listener.url)
    await use(listener, listener.bare, listener.secret)


@pytest.mark.anyio
async def test_no_message_shows_the_secret_of_the_url(kind: Kind, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        port = nobody.getsockname()[1]
    url = f"ws://127.0.0.1:{port}/{'5ecret' * 8}"
    messages = []
    with pytest.raises(TreadleError) as caught:
        await use(Listener(kind, url, tmp_path, 0, str, int), url)
    messages += [str(caught.value), repr(caught.value)]
    config = CodexConfig(url=url)
    with pytest.raises(TransportClosedError) as blocking:
        Codex(config)
    messages += [str(blocking.value), repr(config), repr(config.__getstate__())]
    for text in messages:
        assert "5ecret" not in text
    assert str(port) in messages[0]


@pytest.mark.anyio
async def test_who_takes_the_port_of_a_killed_server_is_not_sent_its_secret(
    kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    with opened(kind, tmp_path, "--listen", f"ws://127.0.0.1:{port}") as killed:
        killed.stop(signal.SIGKILL)
    assert json.loads(killed.file.read_text())["token"] == killed.secret
    heard = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    monkeypatch.setenv("TREADLE_HOME", str(killed.home))
    # A helper that it was starting has its sockets until it is another program.
    async with asyncio.timeout(DEADLINE_S):
        while (server := await _listening(serve, killed.address)) is None:
            await asyncio.sleep(0.01)
    async with server:
        said = await refusals(kind, killed.bare)
    assert len(heard) == len(said)
    for request, text in zip(heard, said, strict=True):
        assert killed.secret.encode() not in request
        assert f"the one in {killed.file} is of a server that has ended" in text


async def _listening(
    serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]], address: Address
) -> asyncio.Server | None:
    """None while somebody else has the port."""
    try:
        return await asyncio.start_server(serve, address.host, address.port)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        return None


STRANGER = """
import os, socket, sys
os.setgroups([]); os.setgid(65534); os.setuid(65534)
server = socket.socket(socket.AF_UNIX)
server.bind(sys.argv[1])
server.listen()
print(flush=True)
for _ in range(int(sys.argv[2])):
    print(server.accept()[0].recv(4096), flush=True)
"""


@pytest.mark.anyio
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
async def test_nothing_is_sent_to_a_unix_socket_of_another_user(kind: Kind) -> None:
    clients = 2 if kind == "app-server" else 1
    # Not below the folder of the test run, which nobody else can enter.
    with tempfile.TemporaryDirectory(prefix="treadle-") as folder:
        os.chmod(folder, 0o777)
        command = [sys.executable, "-c", STRANGER, f"{folder}/s", str(clients)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as stranger:
            assert stranger.stdout is not None
            stranger.stdout.readline()
            said = await refusals(kind, f"unix://{folder}/s")
            heard, _ = stranger.communicate(timeout=DEADLINE_S)
    assert heard.split() == ["b''"] * clients
    assert len(said) == clients
    for text in said:
        assert f"{folder}/s: the server there runs as user 65534, not as you (user 0) or root" in text


@pytest.mark.parametrize("scheme", ["ws", "unix"])
def test_who_is_refused_is_logged(kind: Kind, scheme: str, tmp_path: Path) -> None:
    listen = "ws://127.0.0.1:0" if scheme == "ws" else f"unix://{tmp_path}/s"
    with opened(kind, tmp_path, "--listen", listen) as listener:
        peer = "unix socket"
        with socket.socket(socket.AF_INET if scheme == "ws" else socket.AF_UNIX) as client:
            client.settimeout(DEADLINE_S)
            client.connect((listener.address.host, listener.address.port) if scheme == "ws" else listener.address.path)
            if scheme == "ws":
                host, port = client.getsockname()
                peer = f"{host}:{port}"
            client.sendall(b"GET /5ecret HTTP/1.1\r\nOrigin: x\r\n\r\n")
            assert client.recv(12) == b"HTTP/1.1 403"
        listener.stop(signal.SIGTERM)
        [line] = [line for line in listener.said().splitlines() if "a client was refused" in line]
        assert "WARNING" in line
        assert peer in line
        assert "requests from web pages are refused" in line
        assert "5ecret" not in listener.said()


# --- its beginning and end ---


@pytest.mark.anyio
async def test_without_a_token_only_when_it_is_said(
    kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TREADLE_HOME", str(tmp_path / "home"))
    with opened(kind, tmp_path, "--no-token") as listener:
        assert listener.url == listener.bare
        assert "for everyone on this machine" in listener.said()
        assert not listener.file.exists()
        await use(listener, listener.bare)


def test_a_token_of_ones_own_is_not_printed(kind: Kind, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("my-own-token\n")
    file.chmod(0o600)
    with opened(kind, tmp_path, "--token-file", str(file)) as listener:
        assert listener.url == listener.bare
        assert f"with the token in {file}" in listener.said()
        assert "my-own-token" not in listener.said()
        assert not listener.file.exists()
        assert refusal(listener.bare)[0] == 401
        for url, token in ((listener.bare, "my-own-token"), (f"{listener.bare}/my-own-token", None)):
            with enter(url, token) as client:
                client.ping().wait(DEADLINE_S)


def test_the_file_goes_with_the_server_and_one_that_was_left_is_replaced(kind: Kind, tmp_path: Path) -> None:
    with opened(kind, tmp_path) as killed:
        killed.stop(signal.SIGKILL)
        assert killed.file.exists()
    with opened(kind, tmp_path, "--listen", killed.bare) as listener:
        assert listener.secret != killed.secret
        assert os.listdir(listener.file.parent) == [listener.file.name]
        assert refusal(killed.url)[0] == 401
        with enter(listener.url):
            pass
        assert listener.stop(signal.SIGTERM) == 0
    assert os.listdir(listener.file.parent) == []


def test_a_file_that_cannot_be_kept_is_told_and_the_url_still_works(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file, where the home should be")
    with opened("exec-server", tmp_path) as listener:
        assert "its token is in the URL only: cannot store the secret" in listener.said()
        assert refusal(listener.bare)[0] == 401
        with enter(listener.url):
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
    with opened("app-server", tmp_path) as listener, joined(listener.url) as client:
        command = [sys.executable, "-c", script, str(listener.address.port)]
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


def test_two_thousand_silent_connections_keep_nobody_out(listener: Listener) -> None:
    with many(listener.address, 2000):
        for _ in range(5):
            began = time.monotonic()
            with enter(listener.url) as client:
                client.ping().wait(DEADLINE_S)
            assert time.monotonic() - began < MOMENT_S
    with enter(listener.url):
        pass


def upgrade(address: Address) -> bytes:
    return (
        f"GET {address.path} HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    ).encode()


def test_four_hundred_clients_may_come_at_once(kind: Kind, tmp_path: Path) -> None:
    """From one process, which connects them all before it says a word for the first."""
    with opened(kind, tmp_path) as listener, many(listener.address, 400) as clients:
        for client in clients:
            client.sendall(upgrade(listener.address))
        assert {client.recv(12) for client in clients} == {b"HTTP/1.1 101"}


@pytest.mark.skipif(resource.getrlimit(resource.RLIMIT_NOFILE)[1] < 12_000, reason="too few descriptors for this end")
def test_ten_thousand_clients_at_once(kind: Kind, tmp_path: Path) -> None:
    """As many as may be are served, everyone else is told; who was there before is served on."""
    with opened(kind, tmp_path) as listener, enter(listener.url) as before:
        size = memory(listener.pid)
        with many(listener.address, 10_000, upgrade(listener.address)) as crowd:
            answers = Counter(client.recv(12) for client in crowd)
            assert before.ping().wait(DEADLINE_S)
            grown = memory(listener.pid) - size
        assert answers == {b"HTTP/1.1 101": MAX_CONNECTIONS - 1, b"HTTP/1.1 503": 10_001 - MAX_CONNECTIONS}
        assert grown < 40 << 20
        with entered_again(listener) as after:
            assert after.ping().wait(DEADLINE_S)
            assert before.ping().wait(DEADLINE_S)
        assert "Traceback" not in listener.said()
        assert listener.said().count("a client was refused") <= REFUSALS_PER_MINUTE * 3


def memory(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def entered_again(listener: Listener) -> ClientConnection:
    """Once the server has noticed that the crowd has gone."""
    end = time.monotonic() + DEADLINE_S
    while True:
        try:
            return connect(listener.url, proxy=None, open_timeout=DEADLINE_S)
        except InvalidStatus as error:
            if error.response.status_code != 503 or time.monotonic() > end:
                raise


def test_without_descriptors_the_server_lives_on_and_says_so_once(kind: Kind, tmp_path: Path) -> None:
    with opened(kind, tmp_path) as listener, enter(listener.url) as before:
        before.ping().wait(DEADLINE_S)
        if kind == "app-server":
            with joined(listener.url) as client:  # it loads what these need after its start, and then has files open
                client.call("thread/list")
                client.call("thread/loaded/list")
        few = len(os.listdir(f"/proc/{listener.pid}/fd")) + 10
        _, hard = resource.prlimit(listener.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(listener.pid, resource.RLIMIT_NOFILE, (few, hard))
        with many(listener.address, 40, upgrade(listener.address)) as crowd:
            answers = {connection.recv(12) for connection in crowd[:20]}
            assert answers == {b"HTTP/1.1 101", b"HTTP/1.1 503"}
            assert before.ping().wait(DEADLINE_S), "who was there before is served on"
        with entered_again(listener) as after:
            assert after.ping().wait(DEADLINE_S)
        said = listener.said()
        assert said.count("connections have to wait") == 1, said
        assert "Traceback" not in said
