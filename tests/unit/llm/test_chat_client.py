"""Chat Completions over real sockets: what the one client does with servers of this kind."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from chat_wire import chunk, frames, text_frames
from model_server import DEADLINE, ModelServer, Reply, chunked, close_delimited, model_server, status
from treadle.llm import (
    Completed,
    ItemDone,
    MessageItem,
    ModelError,
    ModelEvent,
    ModelRequest,
    ProviderModel,
    read_provider,
)
from treadle.llm import provider_model as client

pytestmark = pytest.mark.anyio
REQUEST = ModelRequest(model="m", input=[{"type": "message", "role": "user", "content": "hi"}], reasoning_effort="low")


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    async with asyncio.timeout(DEADLINE), model_server() as running:
        yield running


@pytest.fixture
async def model(server: ModelServer) -> AsyncIterator[ProviderModel]:
    table: dict[str, Any] = {"base_url": server.base_url, "wire_api": "chat", "request_max_retries": 0}
    made = ProviderModel(read_provider("mock", table))
    yield made
    await made.close()


async def collect(model: ProviderModel, request: ModelRequest = REQUEST) -> list[ModelEvent]:
    async with model.stream(request) as stream:
        return [event async for event in stream]


def text_of(events: list[ModelEvent]) -> str:
    assert isinstance(events[-1], Completed)
    return "".join(
        event.item.text for event in events if isinstance(event, ItemDone) and isinstance(event.item, MessageItem)
    )


def refusal(words: str) -> Reply:
    return status(400, json.dumps({"error": {"message": words}}))


HELLO = chunked([text_frames("hello")])


async def test_an_answer_and_the_connection_is_used_again(server: ModelServer, model: ProviderModel) -> None:
    server.play(HELLO, HELLO)
    assert [text_of(await collect(model)) for _ in range(2)] == ["hello", "hello"]
    assert [asked.path for asked in server.asked] == ["/v1/chat/completions"] * 2
    assert server.connections == 1


async def test_what_a_server_does_not_understand_is_left_out_from_then_on(
    server: ModelServer, model: ProviderModel
) -> None:
    server.play(refusal("stream_options is unknown"), refusal("reasoning_effort is unknown"), HELLO, HELLO)
    assert text_of(await collect(model)) == "hello"
    assert text_of(await collect(model)) == "hello"
    keys = [asked.body.keys() & {"stream_options", "reasoning_effort"} for asked in server.asked]
    assert keys == [{"stream_options", "reasoning_effort"}, {"reasoning_effort"}, set(), set()]


async def test_another_model_of_the_provider_may_understand_it(server: ModelServer, model: ProviderModel) -> None:
    server.play(refusal("reasoning_effort is unknown"), HELLO, HELLO)
    await collect(model)
    await collect(model, ModelRequest(model="other", input=REQUEST.input, reasoning_effort="low"))
    assert ["reasoning_effort" in asked.body for asked in server.asked] == [True, False, True]


async def test_two_requests_that_are_refused_at_once_both_find_the_other_way(
    server: ModelServer, model: ProviderModel
) -> None:
    refused = refusal("stream_options is unknown")
    head, body = refused.pieces[0].split(b"\r\n\r\n")
    late = Reply([head + b"\r\n\r\n", body], last_when_told=True)
    server.play(late, late, HELLO, HELLO)
    both = [asyncio.create_task(collect(model)) for _ in range(2)]
    while len(server.asked) < 2:
        await asyncio.sleep(0)
    server.told.set()
    assert [text_of(await each) for each in both] == ["hello", "hello"]
    assert len(server.asked) == 4


async def test_another_way_that_does_not_help_is_forgotten(server: ModelServer, model: ProviderModel) -> None:
    server.play(refusal("stream_options no"), refusal("stream_options no"), HELLO)
    with pytest.raises(ModelError, match="stream_options no"):
        await collect(model)
    assert len(server.asked) == 2
    await collect(model)
    assert "stream_options" in server.asked[2].body, "what did not help is not remembered"


async def test_an_error_as_a_body_with_status_200(server: ModelServer, model: ProviderModel) -> None:
    server.play(status(200, json.dumps({"error": {"message": "worker died"}}, indent=1)))
    with pytest.raises(ModelError, match="worker died"):
        await collect(model)


async def test_a_refusal_inside_of_a_response_teaches_the_same(server: ModelServer, model: ProviderModel) -> None:
    in_a_stream = chunked([frames({"error": {"message": "stream_options is unknown", "code": 400}})])
    as_a_body = status(200, json.dumps({"error": {"message": "reasoning_effort is unknown"}}))
    server.play(in_a_stream, as_a_body, HELLO, HELLO)
    assert [text_of(await collect(model)) for _ in range(2)] == ["hello", "hello"]
    keys = [asked.body.keys() & {"stream_options", "reasoning_effort"} for asked in server.asked]
    assert keys == [{"stream_options", "reasoning_effort"}, {"reasoning_effort"}, set(), set()]
    assert not model.is_busy


async def test_what_did_not_help_inside_of_a_response_is_forgotten(server: ModelServer, model: ProviderModel) -> None:
    refused = chunked([frames({"error": {"message": "stream_options no"}})])
    server.play(refused, refused, HELLO)
    with pytest.raises(ModelError, match="stream_options no") as caught:
        await collect(model)
    assert caught.value.answer is None
    await collect(model)
    assert ["stream_options" in asked.body for asked in server.asked] == [True, False, True]


async def test_an_answer_that_has_begun_is_not_asked_for_otherwise(server: ModelServer, model: ProviderModel) -> None:
    begun = frames(chunk({"content": "hel"}), {"error": {"message": "stream_options is unknown"}})
    server.play(chunked([begun]), HELLO)
    with pytest.raises(ModelError, match="stream_options"):
        await collect(model)
    assert len(server.asked) == 1


LAST_WORDS = [
    [chunk({}, "stop")],
    [chunk({}, "stop"), {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}}],
]


@pytest.mark.parametrize("last", LAST_WORDS, ids=["no usage", "usage"])
async def test_a_server_that_never_says_that_it_is_done(
    server: ModelServer, model: ProviderModel, monkeypatch: pytest.MonkeyPatch, last: list[Any]
) -> None:
    monkeypatch.setattr(client, "LAST_WORDS_S", 0.1)
    server.play(chunked([frames(chunk({"content": "hello"}), *last, done=False)], ended=False, then="hang"))
    events = await collect(model)
    assert text_of(events) == "hello"
    assert isinstance(events[-1], Completed)
    assert (events[-1].usage is not None) is (len(last) == 2)


async def test_before_the_finish_reason_a_silence_is_none_of_that(
    server: ModelServer, model: ProviderModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call that begins after one takes it back."""
    monkeypatch.setattr(client, "LAST_WORDS_S", 0.05)
    call = {"index": 0, "id": "c", "function": {"name": "f", "arguments": "{"}}
    pieces = [frames(chunk({}, "stop"), chunk({"tool_calls": [call]}), done=False)]
    server.play(chunked(pieces, ended=False, then="hang"))
    task = asyncio.create_task(collect(model))
    await asyncio.wait([task], timeout=0.3)
    assert not task.done()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_connection_that_breaks_after_the_finish_reason_did_no_harm(
    server: ModelServer, model: ProviderModel
) -> None:
    whole = frames(chunk({"content": "hello"}), chunk({}, "stop"), done=False)
    server.play(chunked([whole], then="close", ended=False))
    assert text_of(await collect(model)) == "hello"


async def test_a_connection_that_breaks_before_it(server: ModelServer, model: ProviderModel) -> None:
    server.play(chunked([frames(chunk({"content": "hel"}), done=False)], then="close", ended=False))
    with pytest.raises(ModelError, match="disconnected before completion") as caught:
        await collect(model)
    assert caught.value.retryable


async def test_a_body_that_ends_with_its_connection(server: ModelServer, model: ProviderModel) -> None:
    server.play(close_delimited([frames(chunk({"content": "hello"}, "stop"), done=False)]))
    assert text_of(await collect(model)) == "hello"
