"""McpSession and McpServer on a transport in memory: time, cancellation, and what a server sends that is not right."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from treadle.config import McpServerConfig
from treadle.mcp import (
    MAX_ASKED,
    Allowance,
    CallToolResult,
    ElicitParams,
    ElicitResult,
    McpCallError,
    McpClientInfo,
    McpError,
    McpProgress,
    McpServer,
    McpSession,
    McpStatus,
    McpTransport,
    Root,
    SamplingParams,
    SamplingResult,
    mcp_server,
    mcp_session,
    read_tool,
)
from treadle.rpc import MAX_VALUES

pytestmark = pytest.mark.anyio
DEADLINE_S = 60.0
CLIENT = McpClientInfo(name="tests", version="1")
INITIALIZED = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "fake"}}
Json = dict[str, Any]


class Fake(McpTransport):
    """A server in memory: what it does with a request is `on`, by method; it is silent about what is not there."""

    def __init__(self) -> None:
        self.sent: list[Json] = []
        self.abandoned: list[int] = []
        self.closed = False
        self.on: dict[str, Callable[[Json], object]] = {
            "initialize": lambda _: INITIALIZED,
            "tools/list": lambda _: {"tools": [{"name": "t", "inputSchema": {"type": "object"}}]},
        }
        self.arrived = asyncio.Event()
        self._receiver: McpSession | None = None

    @property
    def to(self) -> McpSession:
        assert self._receiver is not None
        return self._receiver

    async def open(self, session: McpSession) -> None:
        self._receiver = session

    async def send(self, frame: bytes, request_id: int | None = None) -> None:
        message = json.loads(frame)
        self.sent.append(message)
        self.arrived.set()
        answer = self.on.get(message.get("method", ""))
        if answer is not None:
            self.say({"id": message["id"], "result": answer(message)})

    def say(self, message: Json) -> None:
        self.raw(json.dumps({"jsonrpc": "2.0", **message}).encode())

    def raw(self, frame: bytes) -> None:
        self.to.frame_received(frame)

    def negotiated(self, version: str) -> None:
        pass

    def abandon(self, request_id: int) -> None:
        self.abandoned.append(request_id)

    async def close(self) -> None:
        self.closed = True

    async def until(self, method: str, count: int = 1) -> list[Json]:
        """The messages of a method, when there are so many."""
        async with asyncio.timeout(DEADLINE_S):
            while len(found := [each for each in self.sent if each.get("method") == method]) < count:
                self.arrived.clear()
                await self.arrived.wait()
        return found


class Owner:
    def __init__(self) -> None:
        self.answered = asyncio.Event()
        self.asked = 0
        self.logged: list[object] = []

    async def elicit(self, params: ElicitParams) -> ElicitResult:
        self.asked += 1
        await self.answered.wait()
        return ElicitResult(action="decline")

    async def sample(self, params: SamplingParams) -> SamplingResult:
        raise NotImplementedError

    def roots(self) -> list[Root]:
        raise ZeroDivisionError

    def log(self, level: str, logger: str | None, data: object) -> None:
        self.logged.append(data)


async def opened(fake: Fake, owner: Owner | None = None, endings: list[str] | None = None) -> McpSession:
    session = McpSession(
        fake,
        owner or Owner(),
        CLIENT,
        name="fake",
        on_closed=(list[str]() if endings is None else endings).append,
    )
    await session.open()
    return session


async def call(session: McpSession, **options: Any) -> CallToolResult:
    return await session.request("tools/call", {"name": "t"}, CallToolResult, **options)


# --- answers ---------------------------------------------------------------------------------------------------------


async def test_answers_that_nobody_waits_for_are_overlooked() -> None:
    fake = Fake()
    session = await opened(fake)
    asking = asyncio.ensure_future(call(session))
    [request] = await fake.until("tools/call")
    others: list[object] = [request["id"] + 1, request["id"] - 1, str(request["id"]), -1, 2**70, None, [], 1.5, True]
    for wrong in others:
        fake.raw(json.dumps({"jsonrpc": "2.0", "id": wrong, "result": {"content": ["wrong"]}}).encode())
    fake.say({"id": request["id"], "result": {"content": ["right"]}})
    fake.say({"id": request["id"], "result": {"content": ["twice"]}})
    assert (await asking).content == ("right",)
    await session.close()


async def test_a_late_answer_is_not_that_of_the_next_request() -> None:
    fake = Fake()
    session = await opened(fake)
    with pytest.raises(McpError, match=r"timed out awaiting tools/call after 0\.01s"):
        await call(session, timeout=0.01)
    late = fake.sent[-1]["id"]
    [cancelled] = await fake.until("notifications/cancelled")
    assert cancelled["params"] == {"requestId": late, "reason": "timed out"}
    assert fake.abandoned == [late]
    asking = asyncio.ensure_future(call(session))
    _, request = await fake.until("tools/call", 2)
    fake.say({"id": late, "result": {"content": ["late"]}})
    fake.say({"id": request["id"], "result": {"content": ["mine"]}})
    assert (await asking).content == ("mine",)
    await session.close()


async def test_initialize_is_never_cancelled() -> None:
    fake = Fake()
    del fake.on["initialize"]
    session = McpSession(fake, Owner(), CLIENT, name="x", on_closed=lambda _: None)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await session.open()
    await session.close()
    assert [message["method"] for message in fake.sent] == ["initialize"]


async def test_all_who_wait_hear_of_the_end_once() -> None:
    fake, endings = Fake(), list[str]()
    session = await opened(fake, endings=endings)
    asking = [asyncio.ensure_future(call(session)) for _ in range(3)]
    await fake.until("tools/call", 3)
    fake.to.transport_closed("it broke")
    fake.to.transport_closed("twice")
    for each in await asyncio.gather(*asking, return_exceptions=True):
        assert isinstance(each, McpError)
        assert (each.kind, each.message) == ("closed", "it broke")
    with pytest.raises(McpError, match="it broke"):
        await call(session)
    assert endings == ["it broke"]
    await session.close()


@pytest.mark.parametrize(
    ("result", "problem"),
    [
        (b"[]", "is not what MCP says"),
        (b'{"content": 5}', "is not what MCP says"),
        (b'{"content": [' + b",".join([b"1"] * (MAX_VALUES + 1)) + b"]}", "more than 262144 JSON values"),
        (b'{"content": [' + b"[" * 5000 + b"]" * 5000 + b"]}", "nested too deep"),
    ],
)
async def test_an_answer_that_cannot_be_read_fails_its_request_at_once(result: bytes, problem: str) -> None:
    fake = Fake()
    session = await opened(fake)
    asking = asyncio.ensure_future(call(session))
    [request] = await fake.until("tools/call")
    fake.raw(b'{"jsonrpc":"2.0","result":%s,"id":%d}' % (result, request["id"]))
    with pytest.raises(McpError, match=problem) as failed:
        async with asyncio.timeout(DEADLINE_S):
            await asking
    assert failed.value.kind == "protocol"
    await session.close()


async def test_text_that_is_no_unicode_is_repaired() -> None:
    fake = Fake()
    session = await opened(fake)
    asking = asyncio.ensure_future(call(session))
    [request] = await fake.until("tools/call")
    fake.raw(b'{"jsonrpc":"2.0","id":%d,"result":{"content":["a\\ud800b\xffc"]}}' % request["id"])
    assert (await asking).content == ("a?b\ufffdc",)
    await session.close()


async def test_an_answer_that_is_too_late_is_overlooked_whatever_it_says() -> None:
    fake = Fake()
    session = await opened(fake)
    fake.raw(b'{"jsonrpc":"2.0","id":77,"result":{"content":["C:\\\\udemy"]}}')  # looks like half a character
    fake.raw(b'{"jsonrpc":"2.0","id":77,"no":"C:\\\\udemy"}')
    asking = asyncio.ensure_future(call(session))
    [request] = await fake.until("tools/call")
    fake.say({"id": request["id"], "result": {"content": ["here"]}})
    assert (await asking).content == ("here",)
    await session.close()


async def test_a_server_shows_the_user_no_file() -> None:
    fake, owner = Fake(), Owner()
    session = await opened(fake, owner)
    for url in ("file:///etc/passwd", "javascript:alert(1)", "", "http://"):
        params = {"message": "Look", "mode": "url", "url": url, "elicitationId": "1"}
        fake.say({"id": f"ask {url}", "method": "elicitation/create", "params": params})
    async with asyncio.timeout(DEADLINE_S):
        while len(answers := [each for each in fake.sent if "error" in each]) < 4:
            fake.arrived.clear()
            await fake.arrived.wait()
    assert {answer["error"]["code"] for answer in answers} == {-32602}
    assert owner.asked == 0
    await session.close()


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.binary(max_size=60) | st.sampled_from((b"{}", b"[1]", b'{"method":5}', b'{"id":1}', b"null", b'"\\ud800"'))
    )
)
def test_garbage_harms_nothing(frames: list[bytes]) -> None:
    async def run() -> None:
        fake = Fake()
        session = await opened(fake)
        for frame in frames:
            fake.raw(frame)
        asking = asyncio.ensure_future(call(session))
        [request] = await fake.until("tools/call")
        fake.say({"id": request["id"], "result": {}})
        assert (await asking).content == ()
        await session.close()

    asyncio.run(run())


async def test_garbage_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    fake = Fake()
    session = await opened(fake)
    with caplog.at_level(logging.DEBUG):
        for _ in range(1000):
            fake.raw(b"no message " * 1000)
    assert len(caplog.records) == 10
    assert all(len(str(record.args)) < 1000 for record in caplog.records)
    await session.close()


# --- what a server asks for and says ---------------------------------------------------------------------------------


async def test_requests_of_a_server_are_bounded() -> None:
    fake, owner = Fake(), Owner()
    session = await opened(fake, owner)
    for number in range(10_000):
        fake.say({"id": number, "method": "elicitation/create", "params": {"message": "?"}})
    for _ in range(10):
        await asyncio.sleep(0)
    assert owner.asked == MAX_ASKED
    refused = [each for each in fake.sent if each.get("error", {}).get("code") == -32001]
    assert 0 < len(refused) < 10 * MAX_ASKED
    owner.answered.set()
    async with asyncio.timeout(DEADLINE_S):
        while len([each for each in fake.sent if "result" in each]) < MAX_ASKED:
            await asyncio.sleep(0)
    await session.close()


@pytest.mark.parametrize(
    ("method", "params", "code"),
    [
        ("initialize", {"protocolVersion": "2025-11-25"}, -32601),
        ("nobody/knows", {}, -32601),
        ("sampling/createMessage", {"messages": [], "maxTokens": 1}, -32601),
        ("elicitation/create", {"message": 5}, -32602),
        ("elicitation/create", {"message": "x", "mode": "other"}, -32602),
        ("roots/list", {}, -32603),
    ],
)
async def test_what_cannot_be_answered_is_an_error(method: str, params: Json, code: int) -> None:
    fake = Fake()
    session = await opened(fake)
    fake.say({"id": "a", "method": method, "params": params})
    async with asyncio.timeout(DEADLINE_S):
        while "error" not in fake.sent[-1]:
            await asyncio.sleep(0)
    assert (fake.sent[-1]["id"], fake.sent[-1]["error"]["code"]) == ("a", code)
    fake.say({"id": "b", "method": "ping"})
    async with asyncio.timeout(DEADLINE_S):
        while "result" not in fake.sent[-1]:
            await asyncio.sleep(0)
    assert fake.sent[-1] == {"jsonrpc": "2.0", "id": "b", "result": {}}
    await session.close()


async def test_a_question_that_is_taken_back_is_not_waited_for() -> None:
    fake, owner = Fake(), Owner()
    session = await opened(fake, owner)
    fake.say({"id": "a", "method": "elicitation/create", "params": {"message": "?"}})
    await asyncio.sleep(0)
    fake.say({"method": "notifications/cancelled", "params": {"requestId": "a"}})
    for _ in range(5):
        await asyncio.sleep(0)
    owner.answered.set()
    fake.say({"id": "b", "method": "elicitation/create", "params": {"message": "?"}})
    async with asyncio.timeout(DEADLINE_S):
        while "result" not in fake.sent[-1]:
            await asyncio.sleep(0)
    assert [each["id"] for each in fake.sent if "result" in each] == ["b"]
    await session.close()


async def test_notifications_are_bounded_and_those_of_no_request_are_overlooked() -> None:
    fake, owner = Fake(), Owner()
    session = await opened(fake, owner)
    steps: list[McpProgress] = []
    asking = asyncio.ensure_future(call(session, on_progress=steps.append))
    [request] = await fake.until("tools/call")
    token = request["params"]["_meta"]["progressToken"]
    others: list[object] = [token + 1, str(token), None, [1], {}, "x" * 1000]
    for wrong in others:
        fake.say({"method": "notifications/progress", "params": {"progressToken": wrong, "progress": 1}})
    assert steps == []
    for number in range(10_000):
        fake.say({"method": "notifications/progress", "params": {"progressToken": token, "progress": number}})
        fake.say({"method": "notifications/message", "params": {"level": "info", "data": number}})
        fake.say({"method": "notifications/x"})
        if len(steps) == 0 and number > 1000:
            break
    assert 0 < len(steps) < 2000
    assert 0 < len(owner.logged) < 2000
    fake.say({"id": request["id"], "result": {}})
    await asking
    await session.close()


# --- time ------------------------------------------------------------------------------------------------------------


async def test_the_time_stands_still_while_the_user_is_asked() -> None:
    fake, owner = Fake(), Owner()
    session = await opened(fake, owner)
    asking = asyncio.ensure_future(call(session, timeout=0.2))
    await fake.until("tools/call")
    fake.say({"id": "a", "method": "elicitation/create", "params": {"message": "?"}})
    # One that is made meanwhile has its whole time too.
    late = asyncio.ensure_future(call(session, timeout=0.2))
    await asyncio.wait([asking, late], timeout=0.5)
    assert not asking.done()
    assert not late.done()
    owner.answered.set()
    for each in (asking, late):
        with pytest.raises(McpError, match="timed out"):
            async with asyncio.timeout(DEADLINE_S):
                await each
    await session.close()


async def test_an_allowance_is_a_burst_and_then_so_many_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now)
    allowance = Allowance(3, 2)
    assert [allowance.take() for _ in range(5)] == [True, True, True, False, False]
    now = 0.5
    assert [allowance.take() for _ in range(2)] == [True, False]
    now = 100.0
    assert [allowance.take() for _ in range(4)] == [True, True, True, False]
    monkeypatch.undo()


# --- McpServer -------------------------------------------------------------------------------------------------------


class Staged(McpServer):
    """On servers in memory, one for each start."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **config: Any) -> None:
        self.fakes: list[Fake] = []
        self.prepare: Callable[[Fake], None] = lambda _: None
        self.statuses: list[McpStatus] = []

        async def no_environment() -> Any:
            raise AssertionError

        super().__init__(
            McpServerConfig(name="fake", command="fake", **config),
            environment=no_environment,
            environ={},
            cwd="/",
            handler=Owner(),
            client=CLIENT,
            on_status=self.statuses.append,
        )

        async def transport() -> Fake:
            fake = Fake()
            self.prepare(fake)
            self.fakes.append(fake)
            return fake

        monkeypatch.setattr(self, "_transport", transport)


async def test_a_server_that_hangs_costs_its_start_once(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Staged(monkeypatch, startup_timeout_sec=0.05)
    server.prepare = lambda fake: fake.on.__delitem__("tools/list")
    with pytest.raises(McpError) as failed:
        await server.ready()
    assert str(failed.value) == (
        "MCP client for `fake` failed to start: MCP startup failed: timed out awaiting tools/list after 0.05s"
    )
    assert failed.value.kind == "timeout"
    assert server.fakes[0].closed
    for _ in range(3):
        with pytest.raises(McpError, match="timed out awaiting tools/list"):
            await server.ready()
    assert len(server.fakes) == 1
    # It is tried again when ten times the time of that has passed, here when the owner says so.
    await server.stop()
    server.prepare = lambda _: None
    await server.ready()
    assert (server.state, [tool.name for tool in server.tools]) == ("connected", ["t"])
    await server.close()


async def test_tools_that_cannot_be_called_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Staged(monkeypatch)
    good: list[Json] = [
        {"name": "plain"},
        {"name": "odd", "title": 5, "description": ["x"], "annotations": {"readOnlyHint": "yes"}, "inputSchema": {}},
        {"name": "twice", "description": "first", "inputSchema": {}},
        {"name": "twice", "description": "second", "inputSchema": {}},
    ]
    nameless: list[object] = [{"name": 5}, {}, {"name": ""}, 7]
    bad = [*nameless, {"name": "x", "inputSchema": [1]}, {"name": "y", "inputSchema": 1}]
    server.prepare = lambda fake: fake.on.update({"tools/list": lambda _: {"tools": [*bad, *good]}})
    await server.ready()
    assert [(tool.name, tool.description) for tool in server.tools] == [
        ("plain", None),
        ("odd", None),
        ("twice", "first"),
    ]
    assert server.tools[1].annotations is None
    await server.close()


@pytest.mark.parametrize(
    ("pages", "problem"),
    [
        (lambda asked: {"tools": [], "nextCursor": f"{asked}"}, "more than 256 pages"),
        (lambda asked: {"tools": [{"name": f"t{n}"} for n in range(5000)]}, "more than 4096 entries"),
        (lambda asked: {"tools": [{"name": "x", "description": "x" * (9 << 20)}]}, "or 8 MiB"),
    ],
)
async def test_a_list_of_tools_without_an_end_is_no_start(
    monkeypatch: pytest.MonkeyPatch, pages: Callable[[int], Json], problem: str
) -> None:
    server = Staged(monkeypatch)
    server.prepare = lambda fake: fake.on.update({"tools/list": lambda request: pages(request["id"])})
    with pytest.raises(McpError, match=problem):
        await server.ready()
    assert server.fakes[0].closed


async def test_a_list_that_breaks_off_has_what_came_before(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Staged(monkeypatch)
    asked: list[Json] = []

    def page(request: Json) -> object:
        asked.append(request["params"])
        number = len(asked)
        return {"prompts": [{"name": f"p{number}"}], "nextCursor": f"{number}"} if number < 3 else "broken"

    capable = {**INITIALIZED, "capabilities": {"tools": {}, "prompts": {}}}
    server.prepare = lambda fake: fake.on.update({"initialize": lambda _: capable, "prompts/list": page})
    assert [json.loads(bytes(raw))["name"] for raw in await server.list_all("prompts")] == ["p1", "p2"]
    assert asked == [{}, {"cursor": "1"}, {"cursor": "2"}]
    assert await server.list_all("resources") == []  # it has said that there are none: it is not asked
    await server.close()


async def test_the_second_and_third_start_of_a_minute_come_later(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    real = asyncio.sleep

    async def sleep(delay: float) -> None:
        if delay:
            waited.append(delay)
        await real(0)

    monkeypatch.setattr("treadle.mcp.mcp_server.asyncio.sleep", sleep)
    server = Staged(monkeypatch)
    for _ in range(3):
        await server.ready()
        server.fakes[-1].to.transport_closed("it broke")
        assert server.state == "failed"
    assert [round(each) for each in waited] == [round(each) for each in mcp_server.PAUSES_S]
    with pytest.raises(McpError, match=r"3 times in a minute and ended each time \(it broke\)"):
        await server.ready()
    assert len(server.fakes) == 3
    assert [status.status for status in server.statuses] == ["starting", "ready"] * 3
    await server.close()


async def test_secrets_of_the_settings_are_in_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Staged(monkeypatch, env={"API_KEY": "very-secret-1", "PLAIN": "not-secret-1"})

    def fail(_: Json) -> object:
        server.fakes[-1].say(
            {"id": server.fakes[-1].sent[-1]["id"], "error": {"code": 1, "message": "very-secret-1 not-secret-1"}}
        )
        return {}

    server.prepare = lambda fake: fake.on.update({"tools/call": fail})
    with pytest.raises(McpCallError) as failed:
        await server.call_tool("t", {})
    assert "very-secret-1" not in str(failed.value)
    assert "[redacted] not-secret-1" in str(failed.value)
    server.fakes[-1].to.transport_closed("exit very-secret-1")
    assert server.error == "exit [redacted]"
    assert "very-secret-1" not in repr(server.config)
    await server.close()


def test_a_tool_keeps_all_that_was_said_of_it() -> None:
    raw = b'{"name":"a","inputSchema":{"type":"object"},"annotations":{"destructiveHint":false},"_meta":{"x":[1]}}'
    tool = read_tool(Raw(raw))
    assert bytes(tool.raw) == raw
    assert bytes(tool.input_schema) == b'{"type":"object"}'
    assert tool.annotations is not None
    assert (tool.annotations.destructive_hint, tool.annotations.read_only_hint) == (False, None)


def test_what_a_frame_may_be_is_bounded() -> None:
    assert mcp_session.is_bounded(b'{"a":[1,2,3]}')
    assert not mcp_session.is_bounded(b"[" * 1000)
    assert not mcp_session.is_bounded(b"[" + b"[]," * MAX_VALUES + b"1]")
