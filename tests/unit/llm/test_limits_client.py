"""A client at a provider's limits, over real sockets: who waits, who is told, who gives up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from model_server import DEADLINE, ModelServer, Reply, chunked, model_server, sse, status, text_events
from treadle.llm import (
    Completed,
    LimiterStats,
    ModelError,
    ModelEvent,
    ModelRequest,
    ProviderConfigError,
    ProviderModel,
    Waiting,
    rate_limiter,
    read_provider,
)

pytestmark = pytest.mark.anyio
TEXT = chunked(sse(*text_events("ok")))
HANGS = chunked(sse(*text_events("ok"))[:2], ended=False, then="hang")


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    async with asyncio.timeout(DEADLINE), model_server() as running:
        yield running


def model_at(server: ModelServer, **table: Any) -> ProviderModel:
    return ProviderModel(read_provider("mock", {"base_url": server.base_url, **table}), environ={})


def request(key: str = "a", **members: Any) -> ModelRequest:
    return ModelRequest(model=key, input=[], fair_key=key, **members)


async def collect(model: ProviderModel, asked: ModelRequest) -> list[ModelEvent]:
    async with model.stream(asked) as stream:
        return [event async for event in stream]


async def waiting(model: ProviderModel, number: int) -> None:
    while model.queue_stats().waiting != number:
        await asyncio.sleep(0.001)


class Holder:
    """A response that has begun and goes on until `let_go`."""

    def __init__(self, model: ProviderModel) -> None:
        self._stream = model.stream(request("holder"))

    async def begin(self) -> Holder:
        await anext(self._stream)
        return self

    async def let_go(self) -> None:
        await self._stream.aclose()


# --- refusals ---------------------------------------------------------------------------------------------------------


async def test_a_refusal_is_waited_for_and_asked_again(server: ModelServer) -> None:
    server.play(status(429, "", "Retry-After: 0.2"), status(429, "", "retry-after-ms: 20"), TEXT)
    model = model_at(server)
    began = asyncio.get_running_loop().time()
    assert isinstance((await collect(model, request()))[-1], Completed)
    assert asyncio.get_running_loop().time() - began >= 0.22
    assert len(server.asked) == 3
    await model.close()


async def test_a_server_that_refuses_all_is_not_asked_for_ever(server: ModelServer) -> None:
    server.play(*[status(429, "", "retry-after-ms: 1")] * 3)
    model = model_at(server, request_max_retries=2)
    with pytest.raises(ModelError) as caught:
        await collect(model, request())
    assert (caught.value.http_status, caught.value.retryable) == (429, True)
    assert len(server.asked) == 3
    assert not model.is_busy
    await model.close()


async def test_a_refusal_of_one_holds_up_all(server: ModelServer) -> None:
    server.play(status(429, "", "Retry-After: 0.3"), TEXT, TEXT)
    model = model_at(server)
    first = asyncio.ensure_future(collect(model, request("a")))
    await waiting(model, 1)
    second = asyncio.ensure_future(collect(model, request("b")))
    await waiting(model, 2)
    assert len(server.asked) == 1
    await asyncio.gather(first, second)
    assert [asked.body["model"] for asked in server.asked] == ["a", "a", "b"]
    await model.close()


@pytest.mark.parametrize("code", [503, 529])
async def test_a_busy_server_that_says_how_long_holds_up_all(server: ModelServer, code: int) -> None:
    server.play(status(code, "", "Retry-After: 0.7"), TEXT, TEXT)
    model = model_at(server)
    told: list[Waiting] = []
    first = asyncio.ensure_future(collect(model, request("a", on_wait=told.append)))
    await waiting(model, 1)
    second = asyncio.ensure_future(collect(model, request("b")))
    await waiting(model, 2)
    await asyncio.gather(first, second)
    assert [asked.body["model"] for asked in server.asked] == ["a", "a", "b"]
    assert f"HTTP {code}" in told[0].why
    await model.close()


@pytest.mark.parametrize(
    "reply", [status(503, ""), status(529, "", "Retry-After: 3600"), status(500, "", "Retry-After: 9")]
)
async def test_another_failure_is_the_matter_of_one_request(server: ModelServer, reply: Reply) -> None:
    server.play(reply, TEXT)
    model = model_at(server, request_max_retries=0)
    with pytest.raises(ModelError):
        await collect(model, request("a"))
    assert isinstance((await collect(model, request("b")))[-1], Completed)
    await model.close()


async def test_one_that_is_retried_is_sent_once(server: ModelServer) -> None:
    server.play(status(529, ""), status(529, ""), TEXT)
    model = model_at(server, request_max_retries=4)
    with pytest.raises(ModelError) as caught:
        await collect(model, request(retried=True))
    assert caught.value.retryable
    assert len(server.asked) == 1
    await model.close()


@pytest.mark.parametrize(
    "reply", [status(429, '{"error": {"code": "insufficient_quota"}}'), status(429, "", "Retry-After: 3600")]
)
async def test_a_quota_or_a_long_wait_closes_nothing(server: ModelServer, reply: Reply) -> None:
    server.play(reply, TEXT)
    model = model_at(server)
    with pytest.raises(ModelError) as caught:
        await collect(model, request())
    assert not caught.value.retryable
    await collect(model, request())
    await model.close()


# --- limits -----------------------------------------------------------------------------------------------------------


async def test_who_waits_is_told_once_and_goes_on(server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate_limiter, "TELL_AFTER_S", 0.0)
    server.play(HANGS, status(429, "", "Retry-After: 0.05"), TEXT)
    model = model_at(server, max_concurrent_requests=1)
    holder = await Holder(model).begin()
    told: asyncio.Queue[Waiting] = asyncio.Queue()
    second = asyncio.ensure_future(collect(model, request(on_wait=told.put_nowait)))
    notice = await told.get()
    assert model.queue_stats() == LimiterStats(running=1, waiting=1, at_a_time=1, refusals=0)
    await holder.let_go()
    assert isinstance((await second)[-1], Completed)
    assert told.empty()
    assert (notice.provider, notice.waiting) == ("mock", 1)
    assert "max_concurrent_requests = 1" in notice.why
    await model.close()


async def test_a_wait_that_nobody_feels_is_not_told(server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate_limiter, "TELL_AFTER_S", 3600.0)
    server.play(HANGS, TEXT)
    model = model_at(server, max_concurrent_requests=1)
    holder = await Holder(model).begin()
    told: list[Waiting] = []
    second = asyncio.ensure_future(collect(model, request(on_wait=told.append)))
    await waiting(model, 1)
    await holder.let_go()
    await second
    assert told == []
    await model.close()


async def test_one_that_is_cancelled_leaves_the_line(server: ModelServer) -> None:
    server.play(HANGS, TEXT)
    model = model_at(server, max_concurrent_requests=1)
    holder = await Holder(model).begin()
    second = asyncio.ensure_future(collect(model, request("b")))
    await waiting(model, 1)
    third = asyncio.ensure_future(collect(model, request("c")))
    await waiting(model, 2)
    second.cancel()
    await waiting(model, 1)
    await holder.let_go()
    await third
    assert [asked.body["model"] for asked in server.asked] == ["holder", "c"]
    await model.close()


async def test_one_that_is_cancelled_when_its_turn_has_come_passes_it_on(server: ModelServer) -> None:
    server.play(HANGS, TEXT)
    model = model_at(server, max_concurrent_requests=1)
    holder = await Holder(model).begin()
    second = asyncio.ensure_future(collect(model, request("b")))
    third = asyncio.ensure_future(collect(model, request("c")))
    await waiting(model, 2)
    await holder.let_go()  # the place is given to the second, which does not run before it is cancelled
    second.cancel()
    await third
    assert [asked.body["model"] for asked in server.asked] == ["holder", "c"]
    assert (await asyncio.gather(second, return_exceptions=True))[0].__class__ is asyncio.CancelledError
    await model.close()


async def test_closing_ends_those_that_wait(server: ModelServer) -> None:
    server.play(HANGS)
    model = model_at(server, max_concurrent_requests=1)
    await Holder(model).begin()
    second = asyncio.ensure_future(collect(model, request()))
    await waiting(model, 1)
    assert model.is_busy
    await model.close()
    with pytest.raises(ModelError, match="closed"):
        await second
    with pytest.raises(ModelError, match="closed"):
        await collect(model, request())


async def test_waiting_is_no_silence_of_the_server(server: ModelServer) -> None:
    server.play(status(429, "", "Retry-After: 0.4"), TEXT)
    model = model_at(server, stream_idle_timeout_ms=200)
    assert isinstance((await collect(model, request()))[-1], Completed)
    await model.close()


async def test_too_many_that_wait_are_an_error(server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate_limiter, "MAX_WAITING", 1)
    server.play(HANGS)
    model = model_at(server, max_concurrent_requests=1)
    await Holder(model).begin()
    second = asyncio.ensure_future(collect(model, request()))
    await waiting(model, 1)
    with pytest.raises(ModelError, match="wait for provider `mock` already") as caught:
        await collect(model, request())
    assert (caught.value.kind, caught.value.retryable) == ("overloaded", False)
    second.cancel()
    await model.close()


async def test_what_a_server_says_is_left_is_kept_to(server: ModelServer) -> None:
    headers = (
        b"x-ratelimit-limit-requests: 1\r\nx-ratelimit-remaining-requests: 0\r\nx-ratelimit-reset-requests: 300ms\r\n"
    )
    head, *rest = TEXT.pieces
    server.play(Reply([head.replace(b"\r\n\r\n", b"\r\n" + headers + b"\r\n"), *rest]), TEXT)
    model = model_at(server)
    await collect(model, request())
    second = asyncio.ensure_future(collect(model, request()))
    await waiting(model, 1)
    await second
    assert len(server.asked) == 2
    await model.close()


async def test_an_estimate_of_tokens_gives_way_to_what_was_used(server: ModelServer) -> None:
    server.play(TEXT, TEXT)  # each uses 15 tokens
    model = model_at(server, tokens_per_minute=300)
    large = request(instructions="x" * 800)  # estimated as more than 200
    await collect(model, large)
    async with asyncio.timeout(30):  # two estimates would be a minute
        await collect(model, large)
    third = asyncio.ensure_future(collect(model, request(instructions="x" * 1100)))
    await waiting(model, 1)
    third.cancel()
    await model.close()


# --- settings ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["max_concurrent_requests", "requests_per_minute", "tokens_per_minute"])
@pytest.mark.parametrize("value", [0, -1, "5", 1.5, True])
def test_a_limit_is_a_whole_number(key: str, value: object) -> None:
    with pytest.raises(ProviderConfigError, match=f"{key}: allowed is a whole number from 1 to"):
        read_provider("x", {"base_url": "http://h/v1", key: value})
