"""MCP over HTTP at the listener of `treadle app-server`."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import threading
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

import pytest

from kit.app_program import Program, listening_server
from kit.processes import DEADLINE_S, processes_left, wait_for_process
from treadle import Codex, CodexConfig
from treadle.testing import AppServerHarness


class Stream:
    """The answer to a request: its head, and messages as they come."""

    def __init__(self, connection: http.client.HTTPConnection) -> None:
        self.connection = connection
        self.response = connection.getresponse()
        self.status = self.response.status
        self.messages: list[Any] = []

    def text(self) -> str:
        return self.response.read().decode()

    def _next(self) -> Any:
        while line := self.response.readline():
            if line.startswith(b"data: "):
                return json.loads(line[6:])
        raise AssertionError(f"the stream has ended; it had {self.messages}")

    def wait(self, method: str) -> Any:
        while True:
            self.messages.append(self._next())
            if self.messages[-1].get("method") == method:
                return self.messages[-1]

    def result(self) -> Any:
        while True:
            self.messages.append(self._next())
            if "method" not in self.messages[-1]:
                assert self.response.read() == b"\n"  # nothing comes after the answer
                return self.messages[-1]["result"]


class Session:
    def __init__(self, program: Program, capabilities: Mapping[str, Any] | None = None) -> None:
        self.url = urlsplit(program.url)
        self.id: str | None = None
        self._number = 0
        params = {
            "protocolVersion": "2025-06-18",
            "capabilities": {} if capabilities is None else capabilities,
            "clientInfo": {"name": "tests", "version": "1"},
        }
        opened = self.ask("initialize", params)
        assert opened.status == 200, opened.text()
        assert opened.result()["serverInfo"]["name"] == "treadle"
        self.id = opened.response.headers["Mcp-Session-Id"]
        assert self.post({"method": "notifications/initialized"}).status == 202

    def http(self, method: str, body: bytes | None = None, **headers: str) -> Stream:
        connection = http.client.HTTPConnection(self.url.hostname or "", self.url.port, timeout=DEADLINE_S)
        session = {} if self.id is None else {"Mcp-Session-Id": self.id}
        given = {"Authorization": f"Bearer {self.url.path[1:]}", **session}
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, "/mcp", body, {**given, **named})
        return Stream(connection)

    def post(self, message: Mapping[str, Any], **headers: str) -> Stream:
        return self.http("POST", json.dumps({"jsonrpc": "2.0", **message}).encode(), **headers)

    def ask(self, method: str, params: Mapping[str, Any], **headers: str) -> Stream:
        self._number += 1
        return self.post({"id": self._number, "method": method, "params": params}, **headers)

    def call(self, tool: str, **arguments: Any) -> Stream:
        params = {"name": tool, "arguments": arguments, "_meta": {"progressToken": "t"}}
        return self.ask("tools/call", params)


@pytest.fixture
def program(harness: AppServerHarness) -> Iterator[Program]:
    with listening_server(harness) as program:
        yield program


ASKING = {"approval-policy": "untrusted"}
ELICITATION: Mapping[str, Any] = {"elicitation": {}}


def test_a_session_runs_turns_and_ends(harness: AppServerHarness, program: Program) -> None:
    harness.model.enqueue_assistant_message("Hello.")
    session = Session(program)
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
        ("GET", {}, 405),
        ("POST", {"Mcp_Session_Id": "unknown"}, 404),
        ("POST", {"Mcp_Session_Id": ""}, 400),
        ("POST", {"Mcp_Protocol_Version": "1999-01-01"}, 400),
        ("POST", {"Content_Length": "x"}, 411),
        ("POST", {"Transfer_Encoding": "chunked", "Content_Length": "2"}, 411),
        ("POST", {"Content_Length": "99999999999"}, 413),
    ],
)
def test_who_is_refused(program: Program, method: str, headers: dict[str, str], status: int) -> None:
    session = Session(program)
    body = b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}'
    assert session.http(method, body, **headers).status == status
    assert session.ask("ping", {}).result() == {}


@pytest.mark.parametrize("body", [b"{broken", b"[]", b"[" * 1000, b"{}"])
def test_what_is_no_message(program: Program, body: bytes) -> None:
    session = Session(program)
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
    session = Session(program, ELICITATION)
    stream = session.call("codex", prompt="hi", **ASKING)
    asked = stream.wait("elicitation/create")
    assert session.post({"id": asked["id"], "result": {"action": "accept"}}).status == 202
    assert stream.result()["structuredContent"]["content"] == "done"
    assert (harness.workspace / "made").exists()


def test_another_client_answers_an_approval(harness: AppServerHarness, program: Program) -> None:
    harness.model.enqueue_function_call("exec_command", {"cmd": "touch made"})
    harness.model.enqueue_assistant_message("done")
    stream = Session(program, ELICITATION).call("codex", prompt="hi", **ASKING)
    stream.wait("elicitation/create")
    other = Session(program)
    (thread,) = other.call("treadle_threads").result()["structuredContent"]["threads"]
    (approval,) = thread["approvals"]
    other.call("treadle_approve", approvalId=approval["approvalId"], decision="accept").result()
    assert stream.result()["structuredContent"]["content"] == "done"
    assert (harness.workspace / "made").exists()


def test_a_turn_goes_on_without_its_client_and_what_it_asks_is_declined(
    harness: AppServerHarness, program: Program
) -> None:
    gate = threading.Event()
    harness.model.enqueue_function_call("exec_command", {"cmd": "touch made"}, gate=gate)
    harness.model.enqueue_assistant_message("done")
    session = Session(program, ELICITATION)
    stream = session.call("codex", prompt="hi", **ASKING)
    started = stream.wait("notifications/message")["params"]["data"]
    stream.response.close()
    stream.connection.close()
    with Codex(CodexConfig(url=program.url)) as codex:
        thread = codex.thread_resume(started["threadId"])
        session.ask("ping", {}).result()
        gate.set()
        while (turn := thread.read(include_turns=True).thread.turns[0]).status == "inProgress":
            pass
        assert turn.status == "completed"
    assert not (harness.workspace / "made").exists()


def test_a_deleted_session_interrupts_its_turns(harness: AppServerHarness, program: Program, marker: str) -> None:
    harness.model.enqueue_function_call("exec_command", {"cmd": f"sleep {marker}"})
    session = Session(program)
    stream = session.call("codex", prompt="hi")
    wait_for_process(marker)
    assert session.http("DELETE").status == 204
    assert not processes_left(marker)
    assert "result" not in stream.text()


def test_the_session_that_was_idle_longest_makes_room(program: Program) -> None:
    first, second = Session(program), Session(program)
    assert first.ask("ping", {}).status == 200
    for _ in range(63):
        Session(program)
    assert second.ask("ping", {}).status == 404
    assert first.ask("ping", {}).status == 200


def test_the_server_ends_with_sessions_open(program: Program) -> None:
    Session(program)
    program.process.send_signal(signal.SIGTERM)
    assert program.process.wait(DEADLINE_S) == 0
