"""From events of the Responses API to model events: what each becomes, and the order that is promised."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_server import completed, text_events
from treadle.http import SseEvent
from treadle.llm import (
    MAX_OPEN,
    Completed,
    Created,
    CustomToolCallItem,
    FunctionCallItem,
    ItemDone,
    ItemStarted,
    MessageItem,
    ModelError,
    ModelEvent,
    OtherItem,
    ReasoningDelta,
    ReasoningItem,
    ReasoningSummaryDelta,
    ReasoningSummaryPart,
    ResponsesTranslator,
    TextDelta,
    TokenUsage,
    ToolInputDelta,
    UnknownEvent,
)
from treadle.testing import check_order

Json = dict[str, Any]


def feed(*events: Json, translator: ResponsesTranslator | None = None) -> list[ModelEvent]:
    translator = translator or ResponsesTranslator()
    return [out for event in events for out in translator.receive(SseEvent(str(event.get("type")), json.dumps(event)))]


def added(item: Json, **more: Any) -> Json:
    return {"type": "response.output_item.added", "item": item, **more}


def done(item: Json, **more: Any) -> Json:
    return {"type": "response.output_item.done", "item": item, **more}


def message(text: str = "", **more: Any) -> Json:
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}], **more}


def one_item(item: Json) -> ItemDone:
    event = feed(done(item))[-1]
    assert isinstance(event, ItemDone)
    return event


def test_a_whole_text_response() -> None:
    events = feed(*text_events("ab"))
    assert [type(event) for event in events] == [Created, ItemStarted, TextDelta, TextDelta, ItemDone, Completed]
    assert events[0] == Created("resp_1")
    assert events[2:4] == [TextDelta("msg_1", "a"), TextDelta("msg_1", "b")]
    assert events[-1] == Completed(
        "resp_1",
        TokenUsage(input_tokens=10, cached_input_tokens=2, output_tokens=5, reasoning_output_tokens=1, total_tokens=15),
    )


def test_a_server_that_sends_only_what_is_done() -> None:
    events = feed({"type": "response.created", "response": {}}, done(message("hi", id="m")), completed())
    assert [type(event) for event in events] == [Created, ItemStarted, ItemDone, Completed]


def test_items_are_read_and_kept() -> None:
    text = one_item(message("hi", id="m", phase="final_answer", new_member=1)).item
    assert isinstance(text, MessageItem)
    assert (text.id, text.text, text.phase, text.role) == ("m", "hi", "final_answer", "assistant")
    assert json.loads(bytes(text.raw))["new_member"] == 1
    call = one_item({"type": "function_call", "id": "f", "call_id": "c", "name": "n", "arguments": "{"}).item
    assert isinstance(call, FunctionCallItem)
    assert (call.call_id, call.name, call.namespace, call.arguments) == ("c", "n", None, "{")
    custom = one_item({"type": "custom_tool_call", "call_id": "c", "name": "n", "namespace": "s", "input": "x"}).item
    assert isinstance(custom, CustomToolCallItem)
    assert (custom.namespace, custom.input) == ("s", "x")
    thought = one_item(
        {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "s"}], "content": None}
    ).item
    assert isinstance(thought, ReasoningItem)
    assert (thought.summary, thought.content) == (("s",), ())
    search = one_item({"type": "web_search_call", "id": "w"}).item
    assert isinstance(search, OtherItem)
    assert search.type == "web_search_call"


def test_a_call_without_a_call_id_is_no_call() -> None:
    item = one_item({"type": "function_call", "name": "n"}).item
    assert isinstance(item, OtherItem)
    assert item.type == "function_call"


def test_deltas_of_every_kind() -> None:
    call = {"type": "function_call", "id": "f", "call_id": "c", "name": "n"}
    events = feed(
        added({"type": "reasoning", "id": "r"}),
        {"type": "response.reasoning_summary_part.added", "item_id": "r", "summary_index": 1},
        {"type": "response.reasoning_summary_text.delta", "item_id": "r", "summary_index": 1, "delta": "s"},
        {"type": "response.reasoning_text.delta", "item_id": "r", "content_index": 2, "delta": "t"},
        added(call),
        {"type": "response.function_call_arguments.delta", "item_id": "f", "delta": "{"},
    )
    assert events[1:4] == [
        ReasoningSummaryPart("r", 1),
        ReasoningSummaryDelta("r", 1, "s"),
        ReasoningDelta("r", 2, "t"),
    ]
    assert events[5] == ToolInputDelta("f", "{")


def test_a_delta_without_an_id_belongs_to_the_open_message() -> None:
    events = feed(
        added(message(id="m")),
        added({"type": "reasoning", "id": "r"}),
        {"type": "response.output_text.delta", "delta": "x"},
    )
    assert events[-1] == TextDelta("m", "x")


def test_a_delta_of_nothing_is_kept_as_unknown() -> None:
    delta = {"type": "response.output_text.delta", "item_id": "gone", "delta": "x"}
    closed = [added(message(id="gone")), done(message("x", id="gone"))]
    for before in ([], closed, [added(message(id="another"))], [added({"type": "reasoning", "id": "gone"})]):
        assert isinstance(feed(*before, delta)[-1], UnknownEvent)


def test_items_without_ids_keep_the_one_they_get() -> None:
    events = feed(added(message()), {"type": "response.output_text.delta", "delta": "x"}, done(message("x")))
    started, delta, finished = events
    assert isinstance(started, ItemStarted)
    assert started.item.id
    assert isinstance(delta, TextDelta)
    assert delta.item_id == started.item.id
    assert isinstance(finished, ItemDone)
    assert finished.item.id == started.item.id


def test_an_item_named_only_when_it_is_done_is_the_same_item() -> None:
    started, finished = feed(added(message(), output_index=0), done(message("x", id="m"), output_index=0))
    assert isinstance(started, ItemStarted)
    assert isinstance(finished, ItemDone)
    assert finished.item.id == started.item.id
    assert json.loads(bytes(finished.item.raw))["id"] == "m"


def test_another_item_that_is_done_leaves_an_open_one_open() -> None:
    events = feed(added(message(id="a")), done(message(id="b")), done(message(id="a")))
    assert [type(event) for event in events] == [ItemStarted, ItemStarted, ItemDone, ItemDone]
    assert [event.item.id for event in events if isinstance(event, ItemDone)] == ["b", "a"]


def test_an_item_announced_twice_starts_once() -> None:
    events = feed(added(message(id="m")), added(message(id="m")), done(message(id="m")))
    assert [type(event) for event in events] == [ItemStarted, UnknownEvent, ItemDone]


@pytest.mark.parametrize(
    "data",
    [
        *("", "{", "null", "[]", "7", "{}", '{"type": 1}', '{"type": "response.new"}', "[" * 100_000),
        '{"type": "response.output_text.delta", "delta": {}}',
        '{"type": "response.output_item.done"}',
        '{"type": "response.output_item.added", "item": {}}',
        '{"type": "response.created"}',
    ],
)
def test_what_is_not_understood_is_passed_on(data: str) -> None:
    (event,) = ResponsesTranslator().receive(SseEvent("name", data))
    assert isinstance(event, UnknownEvent)
    assert event.data == data


def test_the_done_mark_of_other_apis_is_no_event() -> None:
    assert ResponsesTranslator().receive(SseEvent("", "[DONE]")) == []


@pytest.mark.parametrize("response", [{}, {"id": None, "usage": None}, {"usage": {"input_tokens": "many"}}, 1])
def test_odd_usage_does_not_spoil_a_response(response: object) -> None:
    translator = ResponsesTranslator()
    assert feed({"type": "response.completed", "response": response}, translator=translator) == [Completed("")]
    translator.end()


def test_a_missing_total_is_the_sum() -> None:
    usage = {"input_tokens": 3, "output_tokens": 4, "input_tokens_details": None}
    (event,) = feed({"type": "response.completed", "response": {"id": "r", "usage": usage}})
    assert event == Completed("r", TokenUsage(input_tokens=3, output_tokens=4, total_tokens=7))


def test_a_cut_stream() -> None:
    with pytest.raises(ModelError) as caught:
        ResponsesTranslator().end()
    error = caught.value
    assert error.message == "stream disconnected before completion: stream closed before response.completed"
    assert (error.kind, error.retryable) == ("cut", True)


def test_a_server_that_only_starts_items_is_stopped() -> None:
    translator = ResponsesTranslator()
    feed(*(added(message(id=str(n))) for n in range(MAX_OPEN)), translator=translator)
    with pytest.raises(ModelError, match="more than"):
        feed(added(message(id="one more")), translator=translator)


IDS = st.sampled_from(["a", "b", "c", None])
TYPES = st.sampled_from(["message", "reasoning", "function_call", "custom_tool_call", "web_search_call"])
INDEX = st.none() | st.integers(0, 2)


def _item(kind: str, item_id: str | None) -> Json:
    return {"type": kind, "call_id": "c", "name": "n", **({} if item_id is None else {"id": item_id})}


ITEM_EVENTS = st.builds(
    lambda type_, kind, item_id, index: {"type": type_, "item": _item(kind, item_id), "output_index": index},
    st.sampled_from(["response.output_item.added", "response.output_item.done"]),
    TYPES,
    IDS,
    INDEX,
)
DELTA_EVENTS = st.builds(
    lambda type_, item_id: {"type": f"response.{type_}", "item_id": item_id, "delta": "x"},
    st.sampled_from(
        ["output_text.delta", "reasoning_text.delta", "reasoning_summary_part.added", "function_call_arguments.delta"]
    ),
    IDS,
)


@given(st.lists(ITEM_EVENTS | DELTA_EVENTS, max_size=40))
def test_whatever_comes_the_order_is_kept(script: list[Json]) -> None:
    events = feed(*script)
    check_order(events)
    finished = sum(isinstance(event, ItemDone) for event in events)
    assert finished == sum(event["type"] == "response.output_item.done" for event in script)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("mcp__s__go", ("mcp__s", "go")), ("mcp__s__nosuch", (None, "mcp__s__nosuch")), ("own__go", (None, "own__go"))],
)
def test_a_joined_name_is_taken_apart(name: str, expected: tuple[str | None, str]) -> None:
    tools: list[Json] = [
        {"type": "namespace", "name": "mcp__s", "tools": [{"type": "function", "name": "go"}]},
        {"type": "function", "name": "own__go"},
    ]
    call = {"type": "function_call", "id": "fc_1", "call_id": "c", "name": name, "arguments": "{}"}
    started, ended = feed(added({**call, "arguments": ""}), done(call), translator=ResponsesTranslator(tools))
    for event in (started, ended):
        assert isinstance(event, ItemStarted | ItemDone)
        assert isinstance(event.item, FunctionCallItem)
        assert (event.item.namespace, event.item.name) == expected
        raw = json.loads(bytes(event.item.raw))
        assert (raw.get("namespace"), raw["name"], raw["id"]) == (*expected, "fc_1")
