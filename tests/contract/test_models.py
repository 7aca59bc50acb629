"""What every model does: one suite over every provider that has a name, and the offline model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, suppress
from typing import Any

import pytest

from contract.wire_plays import DIALECTS, Answer
from contract.wire_stage import check_whole
from model_server import DEADLINE, ModelServer, chunked, model_server, sse, text_events
from treadle.llm import (
    KNOWN,
    Completed,
    Created,
    ItemDone,
    Model,
    ModelError,
    ModelEvent,
    ModelRequest,
    ModelStream,
    OfflineModel,
    ProviderModel,
    TextDelta,
    UnknownEvent,
    read_provider,
)

pytestmark = pytest.mark.anyio
REQUEST = ModelRequest(model="m", input=[{"type": "message", "role": "user", "content": "hi"}])


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    async with asyncio.timeout(DEADLINE), model_server() as running:
        yield running


def _responses(server: ModelServer) -> Model:
    return ProviderModel(read_provider("mock", {"base_url": server.base_url, "request_max_retries": 0}))


def _provided(name: str, server: ModelServer) -> Model:
    """The provider of this name, with all its own settings but for where it is; the server speaks as it does."""
    table = {**KNOWN[name].table, "base_url": server.base_url, "request_max_retries": 0}
    config = read_provider(name, table)
    (dialect,) = (dialect for dialect in DIALECTS if dialect.wire_api == config.wire_api)
    server.play(*(chunked(dialect.frames(Answer("hello"))) for _ in range(20)))
    keys = {} if config.env_key is None else {config.env_key: "a-key-for-the-test"}
    return ProviderModel(config, login_key=lambda: "a-key-for-the-test", environ=keys)


@pytest.fixture(params=[*KNOWN, "offline"])
async def model(request: pytest.FixtureRequest, server: ModelServer) -> AsyncIterator[Model]:
    name: str = request.param
    made = OfflineModel() if name == "offline" else _provided(name, server)
    yield made
    await made.close()


async def collect(model: Model) -> list[ModelEvent]:
    async with model.stream(REQUEST) as stream:
        return [event async for event in stream]


async def test_events_are_well_ordered(model: Model) -> None:
    events = await collect(model)
    check_whole(events)
    assert not any(isinstance(event, UnknownEvent) for event in events)
    first, last = events[0], events[-1]
    assert isinstance(first, Created)
    assert isinstance(last, Completed)
    assert last.response_id == first.response_id
    assert last.usage is not None


async def test_deltas_add_up_to_the_item(model: Model) -> None:
    events = await collect(model)
    texts: dict[str, str] = {}
    for event in events:
        if isinstance(event, TextDelta):
            texts[event.item_id] = texts.get(event.item_id, "") + event.delta
    done: dict[str, Any] = {event.item.id: event.item for event in events if isinstance(event, ItemDone)}
    assert texts
    assert {item_id: done[item_id].text for item_id in texts} == texts


async def test_a_stream_ends_for_good(model: Model) -> None:
    stream = model.stream(REQUEST)
    assert [event async for event in stream]
    assert [event async for event in stream] == []
    await stream.aclose()


async def test_several_streams_at_once(model: Model) -> None:
    results = await asyncio.gather(*(collect(model) for _ in range(10)))
    assert all(isinstance(events[-1], Completed) for events in results)


async def test_whoever_stops_early_gets_no_more(model: Model) -> None:
    stream = model.stream(REQUEST)
    async with aclosing(stream):
        assert isinstance(await anext(stream), Created)
    assert [event async for event in stream] == []
    assert isinstance((await collect(model))[-1], Completed), "the model goes on"


async def test_a_stream_closed_before_it_began(model: Model, server: ModelServer) -> None:
    stream = model.stream(REQUEST)
    await stream.aclose()
    await stream.aclose()
    assert [event async for event in stream] == []
    assert server.asked == []


async def test_nothing_is_asked_before_the_first_event_is(model: Model, server: ModelServer) -> None:
    model.stream(REQUEST)
    await asyncio.sleep(0)
    assert server.connections == 0


async def test_close_is_idempotent_and_final(model: Model) -> None:
    stream = model.stream(REQUEST)
    await anext(stream)
    await model.close()
    await model.close()
    with pytest.raises(ModelError, match="closed"):
        await collect(model)
    rest: list[ModelEvent] = []
    with suppress(ModelError):
        await _read_into(stream, rest)
    assert rest == []
    await stream.aclose()


async def _read_into(stream: ModelStream, events: list[ModelEvent]) -> None:
    async for event in stream:
        events.append(event)  # noqa: PERF401 - a comprehension would lose them at an error


async def test_close_without_a_request(model: Model) -> None:
    await model.close()
    await model.close()


async def _read_until_cancelled(stream: ModelStream, started: asyncio.Event) -> None:
    async with stream:
        async for _ in stream:
            started.set()
            await asyncio.sleep(0)
    await asyncio.Event().wait()


async def test_cancellation_ends_a_stream(model: Model) -> None:
    stream, started = model.stream(REQUEST), asyncio.Event()
    task = asyncio.create_task(_read_until_cancelled(stream, started))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [event async for event in stream] == []
    assert isinstance((await collect(model))[-1], Completed)


# --- only where there is a connection to release ---------------------------------------------------------------------


@pytest.fixture
async def hanging(server: ModelServer) -> AsyncIterator[ModelStream]:
    """A stream whose server has sent three events and then waits for the client to go."""
    server.play(chunked(sse(*text_events("hello"))[:3], ended=False, then="hang"))
    model = _responses(server)
    stream = model.stream(REQUEST)
    yield stream
    await model.close()


async def test_stopping_early_releases_the_connection(hanging: ModelStream, server: ModelServer) -> None:
    async with hanging:
        await anext(hanging)
    await server.gone.wait()


async def test_cancellation_releases_the_connection(hanging: ModelStream, server: ModelServer) -> None:
    async def read() -> list[ModelEvent]:
        return [event async for event in hanging]

    task = asyncio.create_task(read())
    await server.hanging.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await server.gone.wait()


async def test_closing_the_model_wakes_a_reader(server: ModelServer) -> None:
    server.play(chunked(sse(*text_events("hello"))[:3], ended=False, then="hang"))
    model = _responses(server)
    stream, seen, third = model.stream(REQUEST), 0, asyncio.Event()

    async def read() -> None:
        nonlocal seen
        async for _ in stream:
            seen += 1
            if seen == 3:
                third.set()

    task = asyncio.create_task(read())
    await third.wait()
    await asyncio.sleep(0)
    await model.close()
    await asyncio.wait([task])
    error = task.exception()
    assert error is None or isinstance(error, ModelError)
    await server.gone.wait()
