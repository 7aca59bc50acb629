"""MCP over HTTP at the listener of `treadle app-server`."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

import pytest

from kit.app_program import Program, listening_server
from kit.mcp_http import Session
from kit.processes import DEADLINE_S, processes_left, wait_for_process
from treadle import Codex, CodexConfig
from treadle.testing import AppServerHarness


@pytest.fixture
def program(harness: AppServerHarness) -> Iterator[Program]:
    with listening_server(harness) as program:
        yield program


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    """One server for all that are refused: it has to survive them."""
    with AppServerHarness(tmp_path_factory.mktemp("mcp")) as harness, listening_server(harness) as program:
        yield program
        program.check_well()


ASKING = {"approval-policy": "untrusted"}
ELICITATION: Mapping[str, Any] = {"elicitation": {}}


def test_a_session_runs_turns_and_ends(harness: AppServerHarness, program: Program) -> None:
    harness.model.enqueue_assistant_message("Hello.")
    session = Session(program.url)
    stream = session.call("codex", prompt="hi")
    result = stream.result()
    assert result["structuredContent"]["content"] == "Hello."
    methods = [message.get("method") for message in stream.messages]
    assert {"notifications/progress", "notifications/message"} < set(methods)
    with Codex(CodexConfig(url=program.url)) as codex:
        assert [thread.id for thread in codex.thread_list().data] == [result["structuredContent"]["threadId"]]
    assert session.http("DELETE").status == 204
    assert session.ask("ping", {}).status == 404


@pytest.mark.parametrize(
    ("method", "headers", "status"),
    [
        ("POST", {"Authorization": ""}, 401),
        ("POST", {"Authorization": "Bearer wrong"}, 401),
        ("DELETE", {"Authorization": "Bearer wrong"}, 401),
        ("POST", {"Origin": "http://127.0.0.1"}, 403),
        ("PUT", {}, 405),
        ("GET", {"Mcp_Session_Id": ""}, 400),
        ("GET", {"Mcp_Session_Id": "unknown"}, 404),
        ("GET", {"Last_Event_Id": "1.x"}, 400),
        ("GET", {"Last_Event_Id": "99.0"}, 400),
        ("POST", {"Mcp_Session_Id": "unknown"}, 404),
        ("POST", {"Mcp_Session_Id": ""}, 400),
        ("POST", {"Mcp_Protocol_Version": "1999-01-01"}, 400),
        ("POST", {"Content_Length": "x"}, 411),
        ("POST", {"Transfer_Encoding": "chunked", "Content_Length": "2"}, 411),
        ("POST", {"Content_Length": "99999999999"}, 413),
    ],
)
def test_who_is_refused(shared: Program, method: str, headers: dict[str, str], status: int) -> None:
    session = Session(shared.url)
    body = b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}'
    assert session.http(method, body, **headers).status == status
    assert session.ask("ping", {}).result() == {}


@pytest.mark.parametrize("body", [b"{broken", b"[]", b"[" * 1000, b"{}"])
def test_what_is_no_message(shared: Program, body: bytes) -> None:
    session = Session(shared.url)
    assert session.http("POST", body).status == 400
    assert session.ask("ping", {}).result() == {}


def test_a_token_is_needed_before_a_body_is_read(program: Program) -> None:
    url = urlsplit(program.url)
    with socket.create_connection((url.hostname, url.port), timeout=DEADLINE_S) as connection:
        connection.sendall(b"POST /mcp HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 401 ")


def test_an_approval_is_asked_on_the_stream_of_its_call(harness: AppServerHarness, program: Program) -> None:
    harness.model.enqueue_function_call("exec_command", {"cmd": "touch made"})
    harness.model.enqueue_assistant_message("done")
    session = Session(program.url, ELICITATION)
    stream = session.call("codex", prompt="hi", **ASKING)
    asked = stream.wait("elicitation/create")
    assert session.post({"id": asked["id"], "result": {"action": "accept"}}).status == 202
    assert stream.result()["structuredContent"]["content"] == "done"
    assert (harness.workspace / "made").exists()


def test_a_deleted_session_interrupts_its_turns(harness: AppServerHarness, program: Program, marker: str) -> None:
    harness.model.enqueue_function_call("exec_command", {"cmd": f"sleep {marker}"})
    session = Session(program.url)
    stream = session.call("codex", prompt="hi")
    wait_for_process(marker)
    assert session.http("DELETE").status == 204
    assert not processes_left(marker)
    assert "result" not in stream.text()


def test_the_session_that_was_idle_longest_makes_room(program: Program) -> None:
    first, second = Session(program.url), Session(program.url)
    assert first.ask("ping", {}).status == 200
    for _ in range(63):
        Session(program.url)
    assert second.ask("ping", {}).status == 404
    assert first.ask("ping", {}).status == 200


def test_the_server_ends_with_sessions_open(program: Program) -> None:
    Session(program.url)
    program.process.send_signal(signal.SIGTERM)
    assert program.process.wait(DEADLINE_S) == 0
