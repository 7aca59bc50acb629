"""The Responses API over real sockets: bodies of every framing, failures, retries, connections."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest

from model_server import (
    DEADLINE,
    ModelServer,
    Reply,
    chunked,
    close_delimited,
    completed,
    model_server,
    sse,
    status,
    text_events,
)
from treadle.http import PoolStats
from treadle.llm import (
    Completed,
    Created,
    ErrorKind,
    FunctionCallItem,
    ItemDone,
    ItemStarted,
    MessageItem,
    ModelError,
    ModelEvent,
    ModelRequest,
    ProviderConfigError,
    ProviderModel,
    ProviderStream,
    TextDelta,
    read_provider,
)

pytestmark = pytest.mark.anyio
SECRET = "s3cret-value"
REQUEST = ModelRequest(model="m", input=[{"type": "message", "role": "user", "content": "hi"}])


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    async with asyncio.timeout(DEADLINE), model_server() as running:
        yield running


class Pauses(list[float]):
    """Stands for sleep: remembers, and does not."""

    async def __call__(self, seconds: float) -> None:
        self.append(seconds)


def model_at(server: ModelServer, pauses: Pauses | None = None, **table: Any) -> ProviderModel:
    config = read_provider("mock", {"base_url": server.base_url, "request_max_retries": 0, **table})
    return ProviderModel(config, environ={"KEY": SECRET}, pause=pauses if pauses is not None else Pauses())


async def collect(model: ProviderModel, request: ModelRequest = REQUEST) -> list[ModelEvent]:
    async with model.stream(request) as stream:
        return [event async for event in stream]


async def failure(model: ProviderModel) -> tuple[list[ModelEvent], ModelError]:
    """What came before the error, and the error."""
    events: list[ModelEvent] = []
    async with model.stream(REQUEST) as stream:
        with pytest.raises(ModelError) as caught:
            await _append_all(stream, events)
        with pytest.raises(StopAsyncIteration):
            await anext(stream)
    return events, caught.value


async def _append_all(stream: ProviderStream, events: list[ModelEvent]) -> None:
    async for event in stream:
        events.append(event)  # noqa: PERF401 - a comprehension would lose them all at the error


def texts(events: list[ModelEvent]) -> str:
    return "".join(event.delta for event in events if isinstance(event, TextDelta))


WHOLE = b"".join(sse(*text_events("hello")))


@pytest.mark.parametrize(
    "reply",
    [
        chunked(sse(*text_events("hello"))),
        chunked([WHOLE[n : n + 7] for n in range(0, len(WHOLE), 7)]),
        close_delimited(sse(*text_events("hello"))),
        close_delimited([WHOLE]),
        Reply([b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(WHOLE), WHOLE]),
        Reply([b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n", WHOLE], "hang"),
    ],
    ids=["chunked", "chunks cut anywhere", "1.0", "1.0 in one piece", "length", "never closed"],
)
async def test_every_framing(server: ModelServer, reply: Reply) -> None:
    server.play(reply)
    model = model_at(server)
    events = await collect(model)
    assert texts(events) == "hello"
    assert isinstance(events[-1], Completed)
    await model.close()


async def test_the_request_that_is_sent(server: ModelServer) -> None:
    server.play(chunked(sse(completed())))
    model = model_at(server, env_key="KEY", http_headers={"X-A": "1"}, query_params={"v": "2"})
    request = ModelRequest(model="m", input=REQUEST.input, headers={"Session-Id": "s", "Accept": "no"})
    await collect(model, request)
    (asked,) = server.asked
    assert asked.path == "/v1/responses?v=2"
    assert asked.body["model"] == "m"
    assert asked.body["input"] == [{"type": "message", "role": "user", "content": "hi"}]
    sent = {name: value for name, value in asked.headers.items() if name not in ("host", "content-length")}
    assert sent == {
        "accept": "text/event-stream",
        "content-type": "application/json",
        "authorization": f"Bearer {SECRET}",
        "session-id": "s",
        "x-a": "1",
    }
    await model.close()


async def test_connections_are_kept_alive(server: ModelServer) -> None:
    server.play(*(chunked(sse(*text_events())) for _ in range(3)))
    model = model_at(server)
    for _ in range(3):
        await collect(model)
        await asyncio.gather(*model._endings)
    assert [asked.connection for asked in server.asked] == [1, 1, 1]
    await model.close()


RECORDED_400 = '{"error": {"message": "Bad thing", "type": "invalid_request_error", "code": "invalid_request"}}'


@pytest.mark.parametrize(
    ("code", "body", "kind", "message"),
    [
        (400, RECORDED_400, "refused", RECORDED_400),
        (
            401,
            '{"error": {"message": "no auth"}}',
            "unauthorized",
            "unexpected status 401 Unauthorized: no auth, url: {url}/responses",
        ),
        (
            429,
            '{"error": {"message": "slow"}}',
            "rate_limited",
            "exceeded retry limit, last status: 429 Too Many Requests: slow",
        ),
        (500, '{"error": {"message": "boom"}}', "server_failed", None),
        (
            503,
            '{"error": {"message": "overloaded"}}',
            "server_failed",
            "unexpected status 503 Service Unavailable: overloaded, url: {url}/responses",
        ),
    ],
)
async def test_statuses_as_recorded(
    server: ModelServer, code: int, body: str, kind: ErrorKind, message: str | None
) -> None:
    server.play(status(code, body))
    model = model_at(server)
    events, error = await failure(model)
    assert events == []
    assert error.kind == kind
    assert message is None or error.message == message.replace("{url}", server.base_url)
    assert len(server.asked) == 1
    await model.close()


async def test_silent_retries_of_a_failing_server(server: ModelServer) -> None:
    server.play(
        status(500, ""), status(502, "", "Retry-After: 3"), Reply([], "close"), chunked(sse(*text_events("ok")))
    )
    pauses = Pauses()
    model = model_at(server, pauses, request_max_retries=3)
    assert texts(await collect(model)) == "ok"
    assert len(server.asked) == 4
    first, asked_for, third = pauses
    assert 0.1 < first < 0.3
    assert 3.0 <= asked_for <= 3.3
    assert 0.7 < third < 0.9
    await model.close()


async def test_retries_end(server: ModelServer) -> None:
    server.play(*(status(500, "") for _ in range(3)))
    pauses = Pauses()
    model = model_at(server, pauses, request_max_retries=2)
    _, error = await failure(model)
    assert (error.kind, error.retryable) == ("server_failed", True)
    assert (len(server.asked), len(pauses)) == (3, 2)
    await model.close()


@pytest.mark.parametrize("reply", [status(400, ""), status(503, "", "Retry-After: 9999")])
async def test_what_is_not_sent_again(server: ModelServer, reply: Reply) -> None:
    server.play(reply)
    pauses = Pauses()
    model = model_at(server, pauses, request_max_retries=4)
    _, error = await failure(model)
    assert (len(server.asked), pauses) == (1, [])
    assert error.retry_after_s == (9999 if error.http_status == 503 else None)
    await model.close()


async def test_no_server_at_all() -> None:
    async with model_server() as gone:
        pass
    pauses = Pauses()
    model = model_at(gone, pauses, request_max_retries=2)
    _, error = await failure(model)
    assert (error.kind, error.retryable) == ("absent", True)
    assert f"{gone.base_url}/responses" in error.message
    assert len(pauses) == 2
    await model.close()


@pytest.mark.parametrize(
    "reply",
    [
        chunked(sse(*text_events("ab"))[:3], ended=False, then="close"),
        chunked(sse(*text_events("ab"))[:3]),
        chunked([*sse(*text_events("ab"))[:3], b"data: {"]),
        close_delimited(sse(*text_events("ab"))[:3]),
    ],
    ids=["no last chunk", "ended early", "in an event", "1.0"],
)
async def test_a_cut_stream_delivers_what_came_and_can_be_asked_for_again(server: ModelServer, reply: Reply) -> None:
    server.play(reply)
    model = model_at(server, request_max_retries=4)
    events, error = await failure(model)
    assert [type(event) for event in events] == [Created, ItemStarted, TextDelta]
    assert error.message == "stream disconnected before completion: stream closed before response.completed"
    assert (error.kind, error.retryable) == ("cut", True)
    assert len(server.asked) == 1
    await model.close()


async def test_events_before_a_failure_come_before_it(server: ModelServer) -> None:
    failed = {"type": "response.failed", "response": {"error": {"code": "server_error", "message": "boom"}}}
    server.play(close_delimited([b"".join(sse(*text_events("ab")[:3], failed))]))
    model = model_at(server)
    events, error = await failure(model)
    assert [type(event) for event in events] == [Created, ItemStarted, TextDelta]
    assert error.message == "stream disconnected before completion: boom"
    await model.close()


@pytest.mark.parametrize("pieces", [[], sse(*text_events("ab"))[:3]])
async def test_a_stream_that_falls_silent(server: ModelServer, pieces: list[bytes]) -> None:
    server.play(chunked(pieces, ended=False, then="hang"))
    model = model_at(server, stream_idle_timeout_ms=100)
    _, error = await failure(model)
    assert error.message == "stream disconnected before completion: no data from the model server for 100 ms"
    assert error.retryable
    await server.gone.wait()
    await model.close()


async def test_a_server_that_never_answers_is_not_silently_asked_again(server: ModelServer) -> None:
    server.play(Reply([], "hang"))
    model = model_at(server, stream_idle_timeout_ms=100, request_max_retries=4)
    _, error = await failure(model)
    assert "no answer from the model server for 100 ms" in error.message
    assert error.retryable
    assert len(server.asked) == 1
    await model.close()


async def test_no_secret_comes_back_in_an_error(server: ModelServer) -> None:
    said = f'{{"error": {{"code": "x", "message": "bad key {SECRET}"}}}}'
    in_stream = {"type": "response.failed", "response": {"error": {"message": f"bad key {SECRET}"}}}
    server.play(status(400, said), status(403, said), chunked(sse(in_stream)))
    model = model_at(server, env_key="KEY")
    for _ in range(3):
        _, error = await failure(model)
        assert "bad key [redacted]" in error.message
        assert SECRET not in repr(error) + str(error) + repr(error.args)
    await model.close()


async def test_a_missing_key_fails_before_anything_is_sent(server: ModelServer) -> None:
    model = model_at(server, env_key="OTHER")
    _, error = await failure(model)
    assert error.kind == "unauthorized"
    assert server.connections == 0
    await model.close()


async def test_a_huge_event_is_refused(server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("treadle.http.sse.MAX_EVENT", 1000)
    server.play(chunked([*sse(*text_events("ab"))[:3], b"data: " + b"x" * 2000], then="hang", ended=False))
    model = model_at(server)
    events, error = await failure(model)
    assert len(events) == 3
    assert "larger than 1000 bytes" in error.message
    assert not error.retryable
    await server.gone.wait()
    await model.close()


async def test_a_huge_event_is_refused_when_it_comes(server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("treadle.http.sse.MAX_EVENT", 1000)
    too_large = chunked([*sse(*text_events("ab"))[:3], b"data: " + b"x" * 2000], ended=False)
    server.play(Reply(too_large.pieces, "hang", last_when_told=True))
    model = model_at(server)
    async with model.stream(REQUEST) as stream:
        for _ in range(3):
            await anext(stream)
        server.told.set()
        with pytest.raises(ModelError) as caught:
            await anext(stream)
    error = caught.value
    assert "larger than 1000 bytes" in error.message
    assert not error.retryable
    await server.gone.wait()
    await model.close()


async def test_many_at_once(server: ModelServer) -> None:
    server.play(*(chunked(sse(*text_events("hello"))) for _ in range(150)))
    model = model_at(server)
    results = await asyncio.gather(*(collect(model) for _ in range(150)))
    assert [texts(events) for events in results] == ["hello"] * 150
    await model.close()


async def test_the_final_item_is_the_servers(server: ModelServer) -> None:
    server.play(chunked(sse(*text_events("hello"))))
    model = model_at(server)
    (done,) = [event.item for event in await collect(model) if isinstance(event, ItemDone)]
    assert isinstance(done, MessageItem)
    assert (done.id, done.text) == ("msg_1", "hello")
    await model.close()


def test_nothing_heavy_is_loaded_before_the_first_request() -> None:
    code = (
        "import sys, treadle.llm, treadle.llm.provider_model, treadle.llm.offline\n"
        "from treadle.llm import read_provider\n"
        "treadle.llm.provider_model.ProviderModel(read_provider('x', {'base_url': 'http://h/v1'}))\n"
        "print(sorted({'httpx2', 'ssl', 'random', 'hashlib', 'email', 'http.client'} & set(sys.modules)))"
    )
    before = "import sys, asyncio, msgspec\n" + code.splitlines()[-1]
    loaded, already = (
        subprocess.run(
            [sys.executable, "-c", text], capture_output=True, text=True, check=True, timeout=DEADLINE
        ).stdout
        for text in (code, before)
    )
    assert loaded == already
    assert "httpx2" not in loaded


async def test_a_connection_is_used_again_only_after_a_whole_response(server: ModelServer) -> None:
    cut_short = chunked(sse(*text_events("ab"))[:3], ended=False, then="hang")
    server.play(cut_short, chunked(sse(*text_events())), chunked(sse(*text_events())))
    model = model_at(server)
    async with model.stream(REQUEST) as stream:
        await anext(stream)
        assert model.stats() == PoolStats(busy=1, idle=0)
    assert model.stats() == PoolStats(busy=0, idle=0)
    await server.gone.wait()
    for _ in range(2):
        await collect(model)
        await asyncio.gather(*model._endings)
        assert model.stats() == PoolStats(busy=0, idle=1)
    assert [asked.connection for asked in server.asked] == [1, 2, 2]
    await model.close()


async def test_warming_up_sends_nothing(server: ModelServer) -> None:
    model = model_at(server)
    await model.warm_up()
    assert server.connections == 0
    await model.close()


async def test_a_request_that_waits_for_its_answer_can_be_cancelled(server: ModelServer) -> None:
    server.play(Reply([], "hang"))
    model = model_at(server, request_max_retries=4)
    task = asyncio.create_task(collect(model))
    await server.hanging.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await server.gone.wait()
    assert len(server.asked) == 1
    await model.close()


async def test_closing_the_model_ends_a_request_that_waits_for_its_answer(server: ModelServer) -> None:
    server.play(Reply([], "hang"))
    model = model_at(server, request_max_retries=4)
    task = asyncio.create_task(collect(model))
    await server.hanging.wait()
    await model.close()
    with pytest.raises(ModelError):
        await task
    await server.gone.wait()
    assert len(server.asked) == 1


async def test_nothing_comes_after_the_end(server: ModelServer) -> None:
    server.play(chunked([b"".join(sse(*text_events("ab"), *text_events("cd", "msg_2")))]))
    model = model_at(server)
    events = await collect(model)
    assert texts(events) == "ab"
    assert isinstance(events[-1], Completed)
    await model.close()


async def test_failures_leave_no_connection_in_use(server: ModelServer) -> None:
    server.play(status(400, "no"), Reply([], "close"), chunked([], ended=False, then="close"))
    model = model_at(server)
    for _ in range(3):
        await failure(model)
        assert model.stats().busy == 0
    await model.close()


async def test_another_wire_api_is_refused(server: ModelServer) -> None:
    with pytest.raises(ProviderConfigError, match="wire_api: found `smoke`, allowed is one of `responses`, `chat`"):
        model_at(server, wire_api="smoke")


async def test_a_server_that_refuses_namespaces_is_offered_functions_from_then_on(server: ModelServer) -> None:
    go = {"type": "function", "name": "go", "parameters": {"type": "object"}}
    request = ModelRequest(
        model="m",
        input=REQUEST.input,
        tools=[{"type": "namespace", "name": "mcp__s", "description": "", "tools": [go]}],
    )
    call = {"type": "function_call", "id": "fc_1", "call_id": "c", "name": "mcp__s__go", "arguments": "{}"}
    answer = chunked(sse({"type": "response.output_item.done", "item": call}, completed()))
    server.play(status(400, "Input tag 'namespace' found using 'type' does not match"), answer, answer)
    model = model_at(server)
    for _ in range(2):
        events = await collect(model, request)
        (item,) = [event.item for event in events if isinstance(event, ItemDone)]
        assert isinstance(item, FunctionCallItem)
        assert (item.namespace, item.name) == ("mcp__s", "go")
    assert [asked.body["tools"][0]["name"] for asked in server.asked] == ["mcp__s", "mcp__s__go", "mcp__s__go"]
    await model.close()
