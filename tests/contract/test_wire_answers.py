"""Every provider understands what its server says, however it is carried, and says what it is asked to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from contract.wire_plays import DIALECTS, Answer, Call, heard, used
from contract.wire_stage import REQUEST, SECRET, Stage, check_whole, compressed, outcome, stage_for, wire_bytes
from model_server import Reply, chunked, close_delimited
from treadle.llm import BUILT_IN, KNOWN, FunctionCallItem, ItemDone, ModelRequest

pytestmark = pytest.mark.anyio
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
SCHEMA = {
    "type": "object",
    "properties": {"colour": {"type": "string"}},
    "required": ["colour"],
    "additionalProperties": False,
}
TOOL = {"type": "function", "name": "look", "description": "Look.", "strict": False, "parameters": SCHEMA}

ANSWERS = {
    "text": Answer("hello, wörld 🌍"),
    "long-text": Answer("line\n" * 200),
    "reasoning": Answer("so it is", thought="let me think\n\nand again"),
    "one-tool": Answer(calls=(Call("call_1", "look", '{"colour":"red"}'),)),
    "text-and-tool": Answer("I look.", calls=(Call("call_1", "look", '{"colour":"red"}'),)),
    "three-tools": Answer(calls=tuple(Call(f"call_{n}", "look", f'{{"colour":"{n}"}}') for n in range(3))),
    "everything": Answer("I look.", "hm", tuple(Call(f"call_{n}", "look", '{"colour":"é"}') for n in range(3))),
}


@pytest.fixture(params=KNOWN)
async def stage(request: pytest.FixtureRequest) -> AsyncIterator[Stage]:
    async with stage_for(request.param) as stage:
        yield stage


async def test_every_built_in_wire_api_takes_part() -> None:
    assert {dialect.wire_api for dialect in DIALECTS} == set(BUILT_IN)
    assert {known.table.get("wire_api", "responses") for known in KNOWN.values()} == set(BUILT_IN)


@pytest.mark.parametrize("name", ANSWERS)
async def test_what_was_said_is_what_is_heard(name: str, stage: Stage) -> None:
    said = ANSWERS[name]
    found = await stage.ask(chunked(stage.dialect.frames(said)))
    assert found.error is None
    assert heard(found.events) == said
    check_whole(found.events)
    assert used(found.events) == stage.dialect.usage


CARRIED: dict[str, Callable[[list[bytes]], Reply]] = {
    "HTTP/1.0": close_delimited,
    "gzip": compressed,
    "slow-drip": lambda frames: Reply([bytes([byte]) for byte in wire_bytes(frames)]),
    "at-once": lambda frames: Reply([wire_bytes(frames)]),
    "with-comments": lambda frames: chunked([part for frame in frames for part in (b": keep-alive\n\n", frame)]),
    "CRLF": lambda frames: chunked([frame.replace(b"\n", b"\r\n") for frame in frames]),
}


@pytest.mark.parametrize("way", CARRIED)
async def test_it_does_not_matter_how_it_is_carried(way: str, stage: Stage) -> None:
    said = ANSWERS["everything"]
    found = await stage.ask(CARRIED[way](stage.dialect.frames(said)))
    assert found.error is None
    assert heard(found.events) == said
    check_whole(found.events)
    assert len(stage.server.asked) == 1


async def test_deltas_come_while_the_server_writes(stage: Stage) -> None:
    """All but the last frames have been sent; the text must have come by then."""
    frames = stage.dialect.frames(Answer("hello"))
    stage.server.play(replace(chunked([*frames[:-3], b"".join(frames[-3:])], ended=False), last_when_told=True))
    async with stage.model() as model, model.stream(REQUEST) as stream:
        while not hasattr(await anext(stream), "delta"):
            pass
        stage.server.told.set()
        assert [event async for event in stream]


async def test_a_connection_is_used_again(stage: Stage) -> None:
    stage.server.play(*(chunked(stage.dialect.frames(Answer(word))) for word in ("one", "two", "three")))
    async with stage.model() as model:
        said = []
        for _ in range(3):
            said.append(heard((await outcome(model)).events).text)
            await asyncio.sleep(0)
    assert said == ["one", "two", "three"]
    assert stage.server.connections == 1


async def test_events_that_nobody_knows_are_passed_on(stage: Stage) -> None:
    frames = stage.dialect.frames(Answer("hello"))
    strange = b'event: new.thing\ndata: {"type":"new.thing","object":"new.thing"}\n\n'
    found = await stage.ask(chunked([frames[0], strange, *frames[1:]]))
    assert found.error is None
    assert heard(found.events) == Answer("hello")


# --- what is asked ---------------------------------------------------------------------------------------------------


async def test_the_model_and_the_words_are_asked_for(stage: Stage) -> None:
    await stage.ask(chunked(stage.dialect.frames(Answer("hello"))))
    assert stage.body["model"] == "m"
    assert stage.body["stream"] is True
    said = str(stage.body)
    assert "Be brief." in said
    assert "'hi'" in said
    assert SECRET not in said
    assert any(SECRET in value for value in stage.server.asked[-1].headers.values())


async def test_the_schema_of_the_answer_is_asked_for(stage: Stage) -> None:
    request = _request(output_schema=SCHEMA)
    await stage.ask(chunked(stage.dialect.frames(Answer('{"colour":"red"}'))), request=request)
    assert stage.dialect.schema(stage.body) == SCHEMA


async def test_images_are_sent(stage: Stage) -> None:
    image = {"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL}"}
    content = [{"type": "input_text", "text": "what is it?"}, image]
    request = _request(input=[{"type": "message", "role": "user", "content": content}])
    await stage.ask(chunked(stage.dialect.frames(Answer("a dot"))), request=request)
    assert stage.dialect.images(stage.body) == [PIXEL]


async def test_images_in_the_result_of_a_tool_are_sent(stage: Stage) -> None:
    image = {"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL}"}
    history = [
        *REQUEST.input,
        {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "call_1", "output": [image]},
    ]
    await stage.ask(chunked(stage.dialect.frames(Answer("a dot"))), request=_request(input=history, tools=[TOOL]))
    assert stage.dialect.images(stage.body) == [PIXEL]


async def test_what_was_said_goes_back_with_the_results(stage: Stage) -> None:
    """The second request of a turn carries the answer to the first one, and what the tools gave."""
    said = ANSWERS["everything"]
    stage.server.play(*(chunked(stage.dialect.frames(answer)) for answer in (said, Answer("done"))))
    async with stage.model() as model:
        first = await outcome(model, _request(tools=[TOOL]))
        items = [event.item for event in first.events if isinstance(event, ItemDone)]
        results = [
            {"type": "function_call_output", "call_id": item.call_id, "output": f"result of {item.call_id}"}
            for item in items
            if isinstance(item, FunctionCallItem)
        ]
        history = [*REQUEST.input, *(item.raw for item in items), *results]
        second = await outcome(model, _request(input=history, tools=[TOOL]))
    assert heard(second.events) == Answer("done")
    sent = str(stage.body)
    for call in said.calls:
        assert sent.count(f"'{call.call_id}'") == 2, "the call and its result have one id"
        assert f"result of {call.call_id}" in sent
    assert said.text in sent


def _request(**changes: Any) -> ModelRequest:
    return msgspec.structs.replace(REQUEST, **changes)
