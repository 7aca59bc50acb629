"""The program around the server: addresses, HTTP, tokens, stdio, signals and exit codes."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from websockets.exceptions import InvalidStatus

from kit.exec_client import ExecClient, connected, start_params
from kit.exec_program import running, server_environment
from kit.processes import DEADLINE_S, processes_left
from kit.server_process import ServerProcess
from kit.transports import Pipes, http_to
from kit.warm_python import run_python

READY = {"status": "ready"}


def refused(folder: Path, *arguments: str, stdin: str = "", code: int = 1) -> str:
    """Run the server with arguments that it must refuse: that exit code, nothing on stdout; what it says. Its standard
    input is a file."""
    words = ["-m", "treadle", "exec-server", *arguments]
    done = run_python(words, cwd=folder, env=server_environment(), stdin=stdin)
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


def test_settings_are_not_ignored(tmp_path: Path) -> None:
    first, why, do = refused(tmp_path, "-c", "my_api_key=abc", "--listen", "stdio://", code=2).splitlines()
    assert first == "treadle exec-server: -c my_api_key=… means nothing to an exec-server"
    assert why.startswith("  why: it has no settings")
    assert "treadle exec-server --help" in do


@pytest.mark.parametrize("given", ["-1", "nan", "inf", "a day", "2592001"])
def test_a_time_that_is_none(tmp_path: Path, given: str) -> None:
    assert "is no number of seconds" in refused(tmp_path, "--detached-s", given, code=2)


# --- addresses ---


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("http://127.0.0.1:0", "not an address"),
        ("wss://127.0.0.1:0", "cannot listen"),
        ("127.0.0.1:0", "not an address"),
        ("ws://", "HOST:PORT"),
        ("ws://127.0.0.1:99999", "HOST:PORT"),
        ("ws://127.0.0.1:x", "HOST:PORT"),
        ("ws://127.0.0.1:²", "HOST:PORT"),
        ("ws://user:secret@127.0.0.1:0", "token"),
        ("ws://203.0.113.1:0", "token"),
        ("unix://relative.sock", "absolute path"),
        ("unix:///no/such/folder/s.sock", "No such file"),
        ("unix:///dev/null/s.sock", "Not a directory"),
    ],
)
def test_addresses_that_cannot_be_listened_on(tmp_path: Path, url: str, says: str) -> None:
    text = refused(tmp_path, "--listen", url)
    assert says in text
    assert "secret" not in text


def test_a_port_that_is_taken(server: ServerProcess, tmp_path: Path) -> None:
    assert "address already in use" in refused(tmp_path, "--listen", server.url).lower()


def test_the_first_line_is_the_url(server: ServerProcess, client: ExecClient) -> None:
    assert re.fullmatch(r"ws://127\.0\.0\.1:[0-9]+/[0-9a-f]{64}", server.url)
    assert client.call("environment/status") == READY


def test_a_second_server_prefers_its_own_port(server: ServerProcess, tmp_path: Path) -> None:
    with running(tmp_path, "--listen", "ws://127.0.0.1:0") as second, connected(second.url) as client:
        assert second.url != server.url
        assert client.handshake().call("environment/status") == READY


def test_unix_socket(tmp_path: Path, marker: str) -> None:
    path = tmp_path / "exec.sock"
    with running(tmp_path, "--listen", f"unix://{path}") as server:
        assert server.url == f"unix://{path}"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        with connected(server.url) as client:
            client.handshake()
            assert client.run("p", ["echo", "hi"], tmp_path) == (0, b"hi\n")
            client.start("left", ["sleep", marker], tmp_path)
        assert "another server" in refused(tmp_path, "--listen", server.url)
        assert server.stop() == 0
    assert not path.exists()
    assert processes_left(marker) == []


def test_a_stale_unix_socket_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "exec.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    with running(tmp_path, "--listen", f"unix://{path}") as server, connected(server.url) as client:
        assert client.handshake().call("environment/status") == READY


def test_a_server_without_folders_still_serves(tmp_path: Path) -> None:
    """Its working directory is removed while it runs, and the user has no home."""
    folder = tmp_path / "gone"
    folder.mkdir()
    with running(folder, env={"HOME": "nowhere", "TREADLE_HOME": ""}) as server:
        (folder / "server.stderr").unlink()
        folder.rmdir()
        with connected(server.url) as client:
            client.handshake()
            assert "cwd" not in client.info
            assert "userHomeDir" not in client.info
            assert client.run("p", ["pwd"], tmp_path) == (0, f"{tmp_path}\n".encode())
        assert server.stop() == 0


# --- HTTP ---


@pytest.fixture
def web(server: ServerProcess) -> Iterator[http.client.HTTPConnection]:
    with http_to(server.url) as connection:
        yield connection


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        ("GET", "/readyz", {}, 200),
        ("HEAD", "/readyz", {}, 200),
        ("GET", "/readyz?x=1", {}, 200),
        ("POST", "/readyz", {}, 405),
        ("GET", "/readyz", {"Origin": "http://evil.example"}, 403),
        ("GET", "/", {"Origin": "null"}, 403),
        ("GET", "/healthz", {}, 404),
        ("GET", "/nothing", {}, 404),
        ("GET", "/", {}, 400),
        ("POST", "/", {}, 400),
    ],
)
def test_http(web: http.client.HTTPConnection, method: str, path: str, headers: dict[str, str], status: int) -> None:
    web.request(method, path, headers=headers)
    answer = web.getresponse()
    body = answer.read()
    assert answer.status == status
    assert (body == b"") == (status == 200), "a refusal says why, health says nothing"


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [("/", {"Origin": "http://localhost"}, 403), ("/other", {}, 404), ("/readyz/", {}, 404)],
)
def test_upgrades_that_are_refused(server: ServerProcess, path: str, headers: dict[str, str], status: int) -> None:
    with pytest.raises(InvalidStatus) as caught, connected(server.url + path, headers=headers):
        pass
    assert caught.value.response.status_code == status


def test_a_query_is_allowed(server: ServerProcess) -> None:
    with connected(f"{server.url}/?any=thing") as client:
        assert client.handshake().call("environment/status") == READY


@pytest.mark.parametrize("data", [b"\x16\x03\x01\x02\x00", b"GET\r\n\r\n", b"x" * 20_000, b"\r\n\r\n"])
def test_what_is_not_http_is_turned_away(server: ServerProcess, web: http.client.HTTPConnection, data: bytes) -> None:
    web.connect()
    with socket.create_connection((web.host, web.port), DEADLINE_S) as raw:
        raw.sendall(data)
        raw.shutdown(socket.SHUT_WR)
        answer = raw.recv(65536)
    assert answer == b"" or answer.startswith(b"HTTP/1.1 400 ")
    with connected(server.url) as client:
        assert client.handshake().call("environment/status") == READY


# --- tokens ---


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text("s3cret-token-of-us\n")
    path.chmod(0o600)
    return path


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0"])
def test_token(tmp_path: Path, token_file: Path, address: str) -> None:
    with running(tmp_path, "--listen", f"ws://{address}:0", "--token-file", str(token_file)) as server:
        assert server.url.startswith(f"ws://{address}:")
        url = server.url.replace("0.0.0.0", "127.0.0.1")
        wrong = (
            "Bearer wrong",
            "Bearer s3cret-token-of-us-and-more",
            "Bearer ",
            "Basic s3cret-token-of-us",
            "s3cret-token-of-us",
        )
        for authorization in (None, *wrong):
            headers = {} if authorization is None else {"Authorization": authorization}
            with pytest.raises(InvalidStatus) as caught, connected(url, headers=headers):
                pass
            assert caught.value.response.status_code == 401
            assert b"s3cret" not in (caught.value.response.body or b"")
        with connected(url, headers={"Authorization": "Bearer s3cret-token-of-us"}) as client:
            assert client.handshake().call("environment/status") == READY
        port = int(server.url.rpartition(":")[2])
        health = http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE_S)
        health.request("GET", "/readyz")
        assert health.getresponse().status == 200
        health.close()
        assert "s3cret" not in server.stderr


@pytest.mark.parametrize("url", ["ws://0.0.0.0:0", "ws://[::]:0"])
def test_off_loopback_a_token_is_required(tmp_path: Path, url: str) -> None:
    text = refused(tmp_path, "--listen", url)
    assert "--token-file" in text


def test_a_short_token_is_for_loopback_alone(tmp_path: Path, token_file: Path) -> None:
    token_file.write_text("fifteen-letters")
    text = refused(tmp_path, "--listen", "ws://0.0.0.0:0", "--token-file", str(token_file))
    assert "with a token of less than 16 characters" in text
    assert "umask 077; openssl rand -hex 32 > FILE" in text
    assert "fifteen" not in text
    with running(tmp_path, "--token-file", str(token_file)) as server:
        assert server.url


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o610])
def test_a_token_file_that_others_can_use_is_refused(tmp_path: Path, token_file: Path, mode: int) -> None:
    token_file.chmod(mode)
    text = refused(tmp_path, "--token-file", str(token_file))
    assert f"its mode is {mode:04o}: other users can read or change it" in text
    assert f"chmod 600 {token_file}" in text
    assert "s3cret" not in text


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_token_file_of_another_user_is_refused(tmp_path: Path, token_file: Path) -> None:
    os.chown(token_file, 65534, -1)
    assert "belongs to another user (id 65534)" in refused(tmp_path, "--token-file", str(token_file))


@pytest.mark.parametrize("content", [None, b"", b" \n", b"two words", b"\xff\xfe", "ünicode".encode(), b"a\nb"])
def test_token_files_that_hold_no_token(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "token"
    if content is not None:
        path.write_bytes(content)
    text = refused(tmp_path, "--token-file", str(path))
    assert str(path) in text
    assert "two words" not in text


# --- the end ---


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_server_and_everything_it_ran(tmp_path: Path, marker: str, number: signal.Signals) -> None:
    with running(tmp_path) as server, connected(server.url) as client:
        client.handshake()
        client.start("plain", ["sleep", marker], tmp_path)
        client.start("tty", ["sleep", marker], tmp_path, tty=True)
        daemon = f"(trap '' TERM HUP INT; setsid sleep {marker} &); sleep {marker}"
        client.start("daemon", ["/bin/sh", "-c", daemon], tmp_path)
        client.run("orphan", ["/bin/sh", "-c", f"setsid sleep {marker} >/dev/null 2>&1 &"], tmp_path)
        with connected(server.url) as detached:
            detached.handshake().start("detached", ["sleep", marker], tmp_path)
        reading = client.request("process/read", {"processId": "plain", "waitMs": 600_000})
        assert client.call("environment/status") == READY
        assert reading
        assert server.stop(number) == 0
        assert processes_left(marker) == []
        assert client.is_dropped()
        assert server.stderr == ""


def test_a_signal_lets_commands_go_on_while_the_server_drains(tmp_path: Path) -> None:
    go = tmp_path / "go"
    wait = f"while [ ! -e {go} ]; do sleep 0.02; done; echo done"
    with running(tmp_path, "--drain-s", "600") as server, connected(server.url) as client:
        client.handshake().start("p", ["/bin/sh", "-c", wait], tmp_path)
        with connected(server.url) as away:
            session = away.handshake().session_id
            away.start("p", ["/bin/sh", "-c", wait], tmp_path)
        server.send_signal()
        with http_to(server.url) as web:
            while True:
                web.request("GET", "/readyz")
                answer = web.getresponse()
                answer.read()
                if answer.status == 503:
                    break
        code, text = client.failure("process/start", start_params("q", ["true"], tmp_path))
        assert (code, "takes no new commands" in text) == (-32600, True)
        with connected(server.url) as second:
            code, text = second.failure("initialize", {"clientName": "x"})
            assert (code, "takes no new sessions" in text) == (-32600, True)
        go.touch()
        client.story("p")
        assert client.output("p") == b"done\n"
        # The other client has not read what its command wrote: the server waits for it.
        with connected(server.url) as back:
            resume = {"clientName": "x", "resumeSessionId": session}
            while "error" in back.reply_to(back.request("initialize", resume)):
                pass
            back.send({"method": "initialized"})
            chunks = back.call("process/read", {"processId": "p", "waitMs": 60_000})["chunks"]
            assert [chunk["chunk"] for chunk in chunks] == ["ZG9uZQo="]
        assert client.is_dropped()
        server.stop()


def test_a_drain_ends_in_time_and_by_a_second_signal(tmp_path: Path, marker: str) -> None:
    with running(tmp_path, "--drain-s", "0.2") as server, connected(server.url) as client:
        client.handshake().start("p", ["sleep", marker], tmp_path)
        assert server.stop() == 0
    (tmp_path / "second").mkdir()
    with running(tmp_path / "second", "--drain-s", "600") as server, connected(server.url) as client:
        client.handshake().start("p", ["sleep", marker], tmp_path)
        server.send_signal()
        while "result" in client.reply_to(client.request("process/start", start_params("q", ["true"], tmp_path))):
            client.call("process/terminate", {"processId": "q"})
        assert server.stop() == 1
    assert processes_left(marker) == []


def test_a_killed_server_leaves_nothing(tmp_path: Path, marker: str) -> None:
    with running(tmp_path) as server, connected(server.url) as client:
        client.handshake()
        client.start("plain", ["sleep", marker], tmp_path)
        client.start("tty", ["sleep", marker], tmp_path, tty=True)
        client.run("orphan", ["/bin/sh", "-c", f"setsid sleep {marker} >/dev/null 2>&1 &"], tmp_path)
        assert server.stop(signal.SIGKILL) == -signal.SIGKILL
        assert processes_left(marker) == []


def test_exit_on_stdin_close(tmp_path: Path, marker: str) -> None:
    with running(tmp_path, "--exit-on-stdin-close", stdin=subprocess.PIPE) as server, connected(server.url) as client:
        client.handshake().start("p", ["sleep", marker], tmp_path)
        stdin = server.process.stdin
        assert stdin is not None
        stdin.write(b"this is not the end\n")
        stdin.flush()
        assert client.call("environment/status") == READY
        stdin.close()
        assert server.process.wait(DEADLINE_S) == 0
        assert processes_left(marker) == []


@pytest.mark.parametrize("kind", ["device", "file"])
def test_exit_on_stdin_close_when_there_is_no_stdin(tmp_path: Path, kind: str) -> None:
    source = tmp_path / "input"
    source.write_bytes(b"")
    fd = os.open(os.devnull if kind == "device" else source, os.O_RDONLY)
    try:
        with running(tmp_path, "--exit-on-stdin-close", stdin=fd, announced=False) as server:
            assert server.process.wait(DEADLINE_S) == 0, server.stderr
            assert server.stderr == ""
    finally:
        os.close(fd)


# --- stdio ---


class Stdio(ExecClient):
    """A server that speaks on its standard input and output."""

    def __init__(self, server: ServerProcess) -> None:
        assert server.process.stdin is not None
        assert server.process.stdout is not None
        super().__init__(Pipes(server.process.stdin, server.process.stdout))
        self.server = server
        self._stdin = server.process.stdin

    def write_bytes(self, data: bytes) -> None:
        self._stdin.write(data)
        self._stdin.flush()

    def end(self) -> int:
        self._stdin.close()
        return self.server.process.wait(DEADLINE_S)


@pytest.fixture(params=["stdio", "stdio://"])
def stdio(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Stdio]:
    arguments = ("--listen", request.param)
    with running(tmp_path, *arguments, stdin=subprocess.PIPE, announced=False) as server:
        yield Stdio(server)


def test_stdio(stdio: Stdio, tmp_path: Path, marker: str) -> None:
    stdio.send({"id": 1, "method": "initialize", "params": {"clientName": "stdio"}})
    assert "sessionId" in stdio.receive()["result"], "the first line is an answer: no URL is announced"
    stdio.write_bytes(b'{"method": "initialized"}\r\n')
    stdio.write_bytes(b"garbage\n")
    assert stdio.receive()["id"] == -1
    stdio.write_bytes(b"\n   \n\r\n\t\n")
    sleep = ["/bin/sh", "-c", f"(setsid sleep {marker} &); sleep {marker}"]
    stdio.send({"id": 2, "method": "process/start", "params": start_params("a", sleep, tmp_path)})
    assert stdio.receive() == {"id": 2, "result": {"processId": "a", "sandboxType": "none"}}
    stdio.send({"id": 3, "method": "process/start", "params": start_params("b", ["echo", "hi"], tmp_path)})
    assert [stdio.receive().get("method") for _ in range(4)] == [
        None,
        "process/output",
        "process/exited",
        "process/closed",
    ]
    assert stdio.end() == 0
    assert processes_left(marker) == []
    assert stdio.server.stderr == ""


def test_stdio_takes_a_message_in_pieces(stdio: Stdio) -> None:
    text = json.dumps({"id": 1, "method": "initialize", "params": {"clientName": "é" * 100_000}}, ensure_ascii=False)
    for at in range(0, len(text), 7919):
        stdio.write_bytes(text[at : at + 7919].encode())
    stdio.write_bytes(b"\n")
    assert stdio.receive()["id"] == 1
    assert stdio.end() == 0


def test_stdio_ends_after_a_stray_message(stdio: Stdio) -> None:
    stdio.send({"method": "foo/bar"})
    assert stdio.server.process.wait(DEADLINE_S) == 0


def test_stdio_ends_by_signal(stdio: Stdio, tmp_path: Path, marker: str) -> None:
    stdio.send({"id": 1, "method": "initialize", "params": {"clientName": "stdio"}})
    stdio.receive()
    stdio.send({"method": "initialized"})
    stdio.send({"id": 2, "method": "process/start", "params": start_params("a", ["sleep", marker], tmp_path)})
    stdio.receive()
    assert stdio.server.stop() == 0
    assert processes_left(marker) == []


def test_stdio_needs_pipes(tmp_path: Path) -> None:
    assert "pipes" in refused(tmp_path, "--listen", "stdio://", stdin="{}\n")
