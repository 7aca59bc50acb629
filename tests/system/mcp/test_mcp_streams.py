"""Streams over HTTP that lose their connection, sessions that nobody uses, and clients that mean no good."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from msgspec import Raw

from kit.mcp_http import Session, Stream, sessions_here
from kit.processes import DEADLINE_S
from treadle.cli import mcp_sessions
from treadle.errors import RpcError
from treadle.mcp import McpCall, McpClientInfo

ELICITATION: Mapping[str, Any] = {"elicitation": {}}


class Tools:
    """`ask` asks the client; `work` is told when to report, and when to end; `many` reports very much."""

    info = McpClientInfo(name="tests", version="1")
    instructions = ""

    def __init__(self) -> None:
        self.report = threading.Event()
        self.end = threading.Event()
        self.cancelled = threading.Event()
        self.refused = threading.Event()

    def offered(self, *, can_ask: bool) -> Mapping[str, Mapping[str, Any]]:
        return {name: {"name": name, "inputSchema": {"type": "object"}} for name in ("ask", "work", "many")}

    async def call(self, name: str, arguments: Raw, call: McpCall) -> Mapping[str, Any]:
        try:
            if name == "ask":
                answer = await call.ask({"message": "?", "requestedSchema": {"type": "object", "properties": {}}})
                return {"content": [], "structuredContent": answer}
            if name == "many":
                for number in range(10_000):
                    call.report("info", {"number": number, "text": "x" * 1000}, None)
                return {"content": []}
            await asyncio.to_thread(self.report.wait, DEADLINE_S)
            call.report("info", {"said": "half"}, None)
            await asyncio.to_thread(self.end.wait, DEADLINE_S)
            return {"content": [], "structuredContent": {"said": "all"}}
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        except RpcError as error:
            self.refused.set()
            return {"content": [], "structuredContent": {"error": error.message}}


@pytest.fixture
def tools() -> Tools:
    return Tools()


@pytest.fixture
def url(tools: Tools) -> Iterator[str]:
    with sessions_here(tools) as url:
        yield url
        tools.report.set()
        tools.end.set()


def again(session: Session, event: str) -> Stream:
    return session.http("GET", Last_Event_Id=event)


def test_a_stream_is_taken_up_where_it_was(tools: Tools, url: str) -> None:
    session = Session(url, version="2025-11-25")
    stream = session.call("work")
    tools.report.set()
    stream.wait("notifications/message")
    seen = stream.event
    stream.hang_up()
    tools.end.set()
    later = again(session, seen)
    assert later.result()["structuredContent"] == {"said": "all"}
    assert len(later.messages) == 1
    whole = again(session, f"{seen.partition('.')[0]}.0")  # also after its end, and from the begin
    assert whole.wait("notifications/message")["params"]["data"] == {"said": "half"}
    assert whole.result()["structuredContent"] == {"said": "all"}


def test_a_client_may_come_back_before_the_old_connection_is_missed(tools: Tools, url: str) -> None:
    session = Session(url, version="2025-11-25")
    stream = session.call("work")
    line = b""
    while not line.startswith(b"id: "):  # which it has before anything is done
        line = stream.response.readline()
    later = again(session, line[4:].decode().strip())
    assert stream.text().startswith("retry: ")
    tools.report.set()
    tools.end.set()
    assert later.result()["structuredContent"] == {"said": "all"}


def test_a_question_waits_for_the_client(url: str) -> None:
    session = Session(url, ELICITATION, version="2025-11-25")
    stream = session.call("ask")
    line = b""
    while not line.startswith(b"id: "):
        line = stream.response.readline()
    stream.hang_up()
    later = again(session, line[4:].decode().strip())
    asked = later.wait("elicitation/create")
    assert session.post({"id": asked["id"], "result": {"action": "accept"}}).status == 202
    assert later.result()["structuredContent"] == {"action": "accept"}


def test_a_question_of_a_client_that_stays_away_has_no_answer(
    tools: Tools, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mcp_sessions, "AWAY_S", 0.0)
    session = Session(url, ELICITATION)
    stream = session.call("ask")
    stream.wait("elicitation/create")
    seen = stream.event
    stream.hang_up()
    assert tools.refused.wait(DEADLINE_S)
    assert "has closed the stream" in again(session, seen).result()["structuredContent"]["error"]


def test_what_belongs_to_no_call_has_a_stream_that_ends_with_the_session(url: str) -> None:
    session = Session(url)
    general = session.http("GET")
    assert (general.status, general.response.headers["Content-Type"]) == (200, "text/event-stream")
    assert session.http("GET").status == 409
    assert session.http("DELETE").status == 204
    assert general.text().strip(" :\n") == ""
    assert session.http("GET").status == 404


def test_old_events_make_room(url: str) -> None:
    session = Session(url)
    stream = session.call("many")
    stream.wait("notifications/message")
    first = stream.event
    stream.result()
    rest = again(session, first)
    assert "result" in (last := rest.result()) or last == {"content": []}
    kept = sum(len(str(message)) for message in rest.messages)
    assert len(rest.messages) < 2000
    assert kept < 2 * mcp_sessions.MAX_KEPT


def test_a_session_that_nobody_uses_ends(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    session, listening = Session(url), Session(url)
    general = listening.http("GET")
    monkeypatch.setattr(mcp_sessions, "IDLE_S", 0.0)
    session.ask("ping", {}).result()  # from now on
    while session.http("GET", Last_Event_Id="x").status != 404:
        pass
    assert general.status == 200
    monkeypatch.setattr(mcp_sessions, "IDLE_S", 60.0)
    assert listening.ask("ping", {}).result() == {}


def test_a_session_is_initialized_once(url: str) -> None:
    session = Session(url)
    params = {"protocolVersion": "2025-06-18", "capabilities": ELICITATION, "clientInfo": {"name": "x", "version": "1"}}
    stream = session.ask("initialize", params)
    assert "begin another one" in stream.text()
    asked = session.call("ask")
    assert asked.status == 200


def test_a_call_that_is_cancelled_twice_ends_once(tools: Tools, url: str) -> None:
    session = Session(url)
    stream = session.call("work")
    cancel = {"method": "notifications/cancelled", "params": {"requestId": 2}}
    assert [session.post(cancel).status, session.post(cancel).status] == [202, 202]
    assert "result" not in stream.text()
    assert tools.cancelled.wait(DEADLINE_S)
    assert session.ask("ping", {}).result() == {}


def test_answers_that_nobody_waits_for(url: str) -> None:
    session = Session(url)
    assert session.post({"id": 77, "result": {"action": "accept"}}).status == 202
    assert session.post({"id": "x", "error": {"code": 1, "message": "no"}}).status == 202
    assert session.ask("ping", {}).result() == {}
