"""From chunks of the Chat Completions API to model events: what servers write, and the order that is promised."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chat_wire import DONE, USAGE, attempt, call, chunk, frames, read, text_frames
from treadle.http import SseEvent
from treadle.llm import (
    MAX_ANSWER,
    BaseOutputItem,
    Completed,
    Created,
    CustomToolCallItem,
    FunctionCallItem,
    ItemDone,
    ItemStarted,
    MessageItem,
    ModelError,
    ModelEvent,
    ModelRequest,
    OutputItem,
    ReasoningDelta,
    ReasoningItem,
    TextDelta,
    TokenUsage,
    ToolInputDelta,
    UnknownEvent,
)
from treadle.llm.chat import ChatTranslator

Json = dict[str, Any]
TOOLS: list[Json] = [
    {"type": "function", "name": "run", "parameters": {"type": "object"}},
    {
        "type": "custom",
        "name": "apply_patch",
        "format": {"type": "grammar", "syntax": "lark", "definition": "start: x"},
    },
    {"type": "namespace", "name": "space", "tools": [{"type": "function", "name": "dig"}]},
]
WITH_TOOLS = ModelRequest(model="m", input=[], tools=TOOLS)


def items(events: list[ModelEvent]) -> list[OutputItem]:
    return [event.item for event in events if isinstance(event, ItemDone)]


def calls(*chunks: Json, done: bool = True, request: ModelRequest = WITH_TOOLS) -> list[tuple[str, str]]:
    """Name and arguments of each."""
    made = items(read(frames(*chunks, done=done), request=request))
    return [(item.name, item.arguments) for item in made if isinstance(item, FunctionCallItem)]


def texts(*chunks: Json) -> list[tuple[str, str]]:
    """What was said and thought."""
    found: list[tuple[str, str]] = []
    for item in items(read(frames(*chunks))):
        match item:
            case MessageItem():
                found.append(("text", item.text))
            case ReasoningItem():
                found.append(("thought", "".join(item.content)))
    return found


def check_order(events: list[ModelEvent]) -> None:
    open_ids: dict[str, str] = {}
    for event in events:
        match event:
            case ItemStarted(item):
                assert item.id not in open_ids
                open_ids[item.id] = ""
            case ItemDone(item):
                assert open_ids.pop(item.id) == content_of(item)
            case TextDelta() | ReasoningDelta() | ToolInputDelta():
                open_ids[event.item_id] += event.delta
            case Created() | UnknownEvent() | Completed():
                pass
    assert not open_ids
    assert [event for event in events if isinstance(event, Completed)] == events[-1:]


def content_of(item: BaseOutputItem) -> str:
    match item:
        case MessageItem():
            return item.text
        case ReasoningItem():
            return "".join(item.content)
        case FunctionCallItem():
            return item.arguments
        case CustomToolCallItem():
            return item.input
    raise AssertionError(item)


def test_a_whole_text_response() -> None:
    events = read(text_frames("ab"))
    assert [type(event) for event in events] == [Created, ItemStarted, TextDelta, TextDelta, ItemDone, Completed]
    assert events[0] == Created("chatcmpl-1")
    usage = TokenUsage(
        input_tokens=11, cached_input_tokens=3, output_tokens=7, reasoning_output_tokens=2, total_tokens=18
    )
    assert events[-1] == Completed("chatcmpl-1", usage)
    (item,) = items(events)
    assert isinstance(item, MessageItem)
    assert json.loads(bytes(item.raw)) == {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "ab"}],
    }
    check_order(events)


@pytest.mark.parametrize(
    "thinking",
    [
        {"reasoning_content": "hm"},
        {"reasoning": "hm"},
        {"reasoning": "hm", "reasoning_details": [{"type": "reasoning.text", "text": "hm"}]},
        {"reasoning_details": [{"type": "reasoning.summary", "summary": "hm"}]},
        {"reasoning_content": "hm", "reasoning": "hm"},
        {"content": "<think>hm</think>"},
        {"content": "\n<thinking>\nhm</thinking>\n\n"},
        {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]},
    ],
)
def test_thoughts_have_many_names(thinking: Json) -> None:
    chunks = [chunk(thinking), chunk({"content": "\n\nyes"}), chunk({}, "stop")]
    assert texts(*chunks) == [("thought", "hm"), ("text", "yes")]
    check_order(read(frames(*chunks)))


def test_the_item_of_a_thought_is_neutral() -> None:
    (item,) = items(read(frames(chunk({"reasoning_content": "hm"}, "stop"))))
    assert json.loads(bytes(item.raw)) == {
        "type": "reasoning",
        "summary": [],
        "content": [{"type": "reasoning_text", "text": "hm"}],
    }


@given(st.lists(st.integers(0, 60), max_size=8))
def test_a_think_tag_may_be_cut_anywhere(places: list[int]) -> None:
    text = " \n<think>\n a < b </thin> c</think>\n\nso <think>x</think>"
    cuts = sorted({0, len(text), *(place for place in places if place < len(text))})
    pieces = [chunk({"content": text[start:end]}) for start, end in pairwise(cuts)]
    assert texts(*pieces, chunk({}, "stop")) == [("thought", " a < b </thin> c"), ("text", "so <think>x</think>")]


@pytest.mark.parametrize("text", ["<thin", "<b>bold</b>", "  <", "say <think>", "<THINK>x</THINK>"])
def test_what_only_looks_like_a_tag_is_text(text: str) -> None:
    assert texts(*(chunk({"content": letter}) for letter in text), chunk({}, "stop")) == [("text", text)]


def test_a_thought_that_is_never_closed() -> None:
    assert texts(chunk({"content": "<think>hm</thi"}, "stop")) == [("thought", "hm</thi")]


def test_blank_content_around_a_call_is_no_message() -> None:
    events = read(
        frames(
            chunk({"reasoning_content": "hm"}), chunk({"content": "\n\n"}), chunk(call(name="run")), chunk({}, "stop")
        )
    )
    assert [type(item) for item in items(events)] == [ReasoningItem, FunctionCallItem]
    check_order(events)


def test_a_refusal_is_what_the_model_says() -> None:
    assert texts(chunk({"refusal": "No"}), chunk({"refusal": "pe"}), chunk({}, "stop")) == [("text", "Nope")]


# --- calls ------------------------------------------------------------------------------------------------------------

RUN = ("run", '{"a":1}')


@pytest.mark.parametrize(
    ("pieces", "made"),
    [
        pytest.param(
            [call(0, id="a", name="run", arguments=""), call(0, arguments='{"a"'), call(0, arguments=":1}")],
            [RUN],
            id="in pieces",
        ),
        pytest.param([call(0, name="run", arguments='{"a"'), call(0, arguments=":1}")], [RUN], id="index without id"),
        pytest.param([call(0, id="a", name="run", arguments={"a": 1})], [RUN], id="arguments as object"),
        pytest.param(
            [
                call(0, id="a", name="run"),
                call(1, id="b", name="run"),
                call(1, arguments="{}"),
                call(0, arguments="[]"),
            ],
            [("run", "[]"), ("run", "{}")],
            id="in parallel, mixed",
        ),
        pytest.param(
            [call(None, id="a", name="run", arguments='{"a"'), call(None, arguments=":1}"), call(None, name="run")],
            [RUN, ("run", "{}")],
            id="without index",
        ),
        pytest.param(
            [call(None, id="a", name="run"), call(None, id="b", name="run"), call(None, id="a", arguments="[]")],
            [("run", "[]"), ("run", "{}")],
            id="without index, by id",
        ),
        pytest.param(
            [call(0, id="a", name="run", arguments='{"a":1}'), call(0, id="b", name="run", arguments='{"a":1}')],
            [RUN, RUN],
            id="same index, new id",
        ),
        pytest.param(
            [call(0, name="run", arguments='{"a":1}'), call(0, name="run", arguments='{"a":1}')],
            [RUN, RUN],
            id="same index, no ids",
        ),
        pytest.param(
            [call(0, id="a", name="run", arguments='{"a"'), call(0, id="a", name="run", arguments=":1}")],
            [RUN],
            id="id and name in every piece",
        ),
        pytest.param(
            [call(0, id="a", name="run", arguments='{"a"'), call(0, id="b", arguments=":1}")], [RUN], id="a new id each"
        ),
        pytest.param([call(0, arguments='{"a":1}'), call(0, id="a", name="run")], [RUN], id="the name comes late"),
        pytest.param([call(0, id="", name="run")], [("run", "{}")], id="no arguments"),
        pytest.param([call(0, id="a", name="unheard_of")], [("unheard_of", "{}")], id="a tool that is not there"),
    ],
)
def test_calls_come_in_many_ways(pieces: list[Json], made: list[tuple[str, str]]) -> None:
    chunks = [*map(chunk, pieces), chunk({}, "tool_calls")]
    assert calls(*chunks) == made
    events = read(frames(*chunks), request=WITH_TOOLS)
    check_order(events)
    ids = [item.call_id for item in items(events) if isinstance(item, FunctionCallItem)]
    assert all(ids)
    assert len(set(ids)) == len(ids)


def test_several_calls_in_one_chunk() -> None:
    both = {"tool_calls": [*call(0, id="a", name="run")["tool_calls"], *call(1, id="b", name="run")["tool_calls"]]}
    assert calls(chunk(both), chunk({}, "tool_calls")) == [("run", "{}"), ("run", "{}")]


def test_text_beside_calls() -> None:
    events = read(
        frames(
            chunk({"content": "I run it."}),
            chunk({"content": "", **call(0, id="a", name="run", arguments="{}")}),
            chunk({"content": "And now?"}, "stop"),
        )
    )
    assert [type(item) for item in items(events)] == [MessageItem, MessageItem, FunctionCallItem]
    check_order(events)


def test_a_custom_tool_comes_back_as_one() -> None:
    events = read(
        frames(
            chunk(call(0, id="a", name="apply_patch", arguments='{"input": "*** Be')),
            chunk(call(0, arguments='gin\\n"}')),
            chunk({}, "tool_calls"),
        ),
        request=WITH_TOOLS,
    )
    (item,) = items(events)
    assert isinstance(item, CustomToolCallItem)
    assert item.input == "*** Begin\n"
    raw = {"type": "custom_tool_call", "call_id": "a", "name": "apply_patch", "input": "*** Begin\n"}
    assert json.loads(bytes(item.raw)) == raw
    check_order(events)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [('"x"', "x"), ('{"patch": "x"}', "x"), ("*** Begin", "*** Begin"), ('{"a": 1}', '{"a": 1}'), ("[1]", "[1]")],
)
def test_free_text_that_a_model_wrapped_in_its_own_way(arguments: str, text: str) -> None:
    chunks = [chunk(call(0, id="a", name="apply_patch", arguments=arguments)), chunk({}, "tool_calls")]
    (item,) = items(read(frames(*chunks), request=WITH_TOOLS))
    assert isinstance(item, CustomToolCallItem)
    assert item.input == text


def test_a_namespace_comes_back() -> None:
    chunks = [chunk(call(0, id="a", name="space__dig", arguments="{}")), chunk({}, "tool_calls")]
    (item,) = items(read(frames(*chunks), request=WITH_TOOLS))
    assert isinstance(item, FunctionCallItem)
    assert (item.namespace, item.name) == ("space", "dig")


def test_an_id_that_the_history_has_already_is_replaced() -> None:
    request = ModelRequest(model="m", input=[{"type": "function_call", "call_id": "call_0", "name": "run"}])
    chunks = [chunk(call(0, id="call_0", name="run")), chunk({}, "tool_calls")]
    (item,) = items(read(frames(*chunks), request=request))
    assert isinstance(item, FunctionCallItem)
    assert item.call_id.startswith("call_")
    assert item.call_id != "call_0"


def test_a_call_without_a_name_is_a_broken_response() -> None:
    with pytest.raises(ModelError, match="without the name") as caught:
        read(frames(chunk(call(0, id="a", arguments="{}")), chunk({}, "tool_calls")))
    assert caught.value.retryable


def test_endless_calls_are_not_kept() -> None:
    many = {"tool_calls": [{"index": index, "function": {"name": "run"}} for index in range(1025)]}
    with pytest.raises(ModelError, match="more than 1024 tool calls"):
        read(frames(chunk(many)))


def test_an_endless_answer_is_not_kept() -> None:
    translator = ChatTranslator(WITH_TOOLS)
    event = SseEvent("", json.dumps(chunk({"content": "x" * (1 << 20)})))
    for _ in range(MAX_ANSWER // (1 << 20)):
        translator.receive(event)
    with pytest.raises(ModelError, match="longer than") as caught:
        translator.receive(event)
    assert not caught.value.retryable


# --- the end ----------------------------------------------------------------------------------------------------------


def test_without_done_a_finish_reason_is_enough() -> None:
    events = read(frames(chunk({"content": "hi"}, "stop"), done=False))
    assert isinstance(events[-1], Completed)
    check_order(events)


@pytest.mark.parametrize("finish", [None, ""])
def test_without_a_finish_reason_done_is_enough(finish: str | None) -> None:
    chunks = [chunk({"content": "hi"}, finish), chunk(call(0, id="a", name="run", arguments="{}"), finish)]
    events = read(frames(*chunks))
    assert [type(item) for item in items(events)] == [MessageItem, FunctionCallItem]
    assert isinstance(events[-1], Completed)


@pytest.mark.parametrize(
    "chunks",
    [
        [],
        [chunk({"content": "hi"})],
        [chunk(call(0, id="a", name="run", arguments="{}"))],
        [chunk({}, "stop"), chunk(call(0, id="a", name="run", arguments='{"a"'))],
    ],
)
def test_without_either_it_was_cut(chunks: list[Json]) -> None:
    seen, error = attempt(frames(*chunks, done=False))
    assert error is not None
    assert "stream disconnected before completion" in error.message
    assert error.retryable
    assert not [item for item in seen if isinstance(item, ItemDone)]


def test_done_before_anything_was_said_is_no_answer() -> None:
    with pytest.raises(ModelError, match="before it said anything") as caught:
        read(DONE)
    assert caught.value.retryable


def test_nothing_after_done_is_read() -> None:
    assert isinstance(read(text_frames() + frames(chunk({"content": "more"})))[-1], Completed)


@pytest.mark.parametrize(("reason", "told"), [("length", "max_output_tokens"), ("content_filter", "content_filter")])
@pytest.mark.parametrize("done", [True, False])
def test_an_answer_that_was_stopped(reason: str, told: str, done: bool) -> None:
    chunks = [chunk({"content": "hi"}), chunk(call(0, id="a", name="run", arguments="{}")), chunk({}, reason)]
    seen, error = attempt(frames(*chunks, done=done))
    assert error is not None
    assert error.message == f"Incomplete response returned, reason: {told}"
    assert not error.retryable
    assert [type(item) for item in items(seen)] == [MessageItem]


def test_a_server_that_gives_up() -> None:
    with pytest.raises(ModelError, match="gave up: abort") as caught:
        read(frames(chunk({"content": "hi"}), chunk({}, "abort")))
    assert caught.value.retryable


def test_empty_choices_and_strange_chunks_do_no_harm() -> None:
    events = read(
        frames(
            {"id": "", "choices": [], "prompt_filter_results": [{}]},
            {"id": "x", "choices": None},
            chunk({"content": "hi"}),
            {"id": "x", "choices": [{"index": 1, "delta": {"content": "another answer"}}]},
            {"id": "x", "choices": 7},
            {"type": "ping"},
            chunk({"content": "!"}, "stop"),
        )
        + b": keep-alive\n\n"
    )
    check_order(events)
    assert [content_of(item) for item in items(events)] == ["hi!"]
    assert events[-1] == Completed("chatcmpl-1", None)


@pytest.mark.parametrize(
    "chunks",
    [
        [chunk({"content": "a"}, "stop"), chunk(usage=USAGE)],
        [chunk({"content": "a"}, usage={"prompt_tokens": 1}), chunk({}, "stop", usage=USAGE), chunk(usage=None)],
        [chunk({"content": "a"}, "stop", x_groq={"usage": USAGE})],
        [chunk({"content": "a"}, "stop"), {"usage": USAGE}],
        [{"choices": [{"delta": {"content": "a"}, "finish_reason": "stop", "usage": USAGE}]}],
    ],
)
def test_usage_may_be_anywhere(chunks: list[Json]) -> None:
    completed = read(frames(*chunks))[-1]
    assert isinstance(completed, Completed)
    assert completed.usage is not None
    assert (completed.usage.input_tokens, completed.usage.cached_input_tokens) == (11, 3)


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"prompt_tokens": 5, "completion_tokens": 2}, TokenUsage(input_tokens=5, output_tokens=2, total_tokens=7)),
        (
            {"prompt_tokens": 5, "completion_tokens": None, "prompt_cache_hit_tokens": 4},
            TokenUsage(input_tokens=5, cached_input_tokens=4, total_tokens=5),
        ),
        ({"prompt_tokens": 5.0, "completion_tokens": "2"}, TokenUsage(input_tokens=5, output_tokens=2, total_tokens=7)),
        ({"prompt_tokens": "many"}, None),
    ],
)
def test_usage_of_many_kinds(usage: Json, expected: TokenUsage | None) -> None:
    completed = read(frames(chunk({"content": "a"}, "stop", usage=usage)))[-1]
    assert completed == Completed("chatcmpl-1", expected)


# --- errors in the stream, and no stream at all -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "message", "kind", "retryable"),
    [
        (frames({"error": {"message": "worker died", "code": 502}}), "worker died", "server_failed", True),
        (frames({"error": "worker died"}), "worker died", "server_failed", True),
        (
            frames(chunk({"content": ""}, "error", error={"message": "worker died"})),
            "worker died",
            "server_failed",
            True,
        ),
        (frames({"object": "error", "message": "bad thing", "code": 400}), "bad thing", "refused", False),
        (b"event: error\ndata: worker died\n\n", "worker died", "server_failed", True),
        (b'event: error\ndata: {"message": "worker died"}\n\n', "worker died", "server_failed", True),
        (frames({"error": {"code": "context_length_exceeded"}}), "context window", "context_too_long", False),
        (frames({"error": {"message": "prompt is too long"}}), "context window", "context_too_long", False),
        (b'{"error": {"message": "worker died"}}', "worker died", "server_failed", True),
        (b'\n {\n "detail": "worker died"\n}', "worker died", "server_failed", True),
        (b'{"error": {"message": "no such key", "code": 401}}', "no such key", "unauthorized", False),
        (frames({"error": {"message": "not you", "code": "403"}}), "not you", "forbidden", False),
        (frames({"error": {"message": "slower", "code": 429}}), "slower", "rate_limited", True),
        (frames({"error": {"message": "full", "code": 529}}), "full", "overloaded", True),
        (b"<html>hello</html>", "stream disconnected", "cut", True),
    ],
)
def test_an_error_with_status_200(body: bytes, message: str, kind: str, retryable: bool) -> None:
    with pytest.raises(ModelError, match=message) as caught:
        read(body)
    assert (caught.value.kind, caught.value.retryable) == (kind, retryable)


def test_an_answer_all_at_once() -> None:
    message = {"role": "assistant", "content": "hi", **call(0, id="a", name="run", arguments="{}")}
    whole = {"id": "x", "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}], "usage": USAGE}
    events = read(json.dumps(whole, indent=1).encode())
    assert [type(item) for item in items(events)] == [MessageItem, FunctionCallItem]
    assert isinstance(events[-1], Completed)
    check_order(events)


# --- properties -------------------------------------------------------------------------------------------------------

DELTAS = st.one_of(
    st.builds(lambda text: {"content": text}, st.text(max_size=5) | st.sampled_from(["<think>", "</think>", "\n"])),
    st.builds(lambda text: {"reasoning_content": text}, st.text(max_size=5)),
    st.builds(
        call,
        st.none() | st.integers(0, 2),
        id=st.none() | st.sampled_from(["a", "b"]),
        name=st.none() | st.sampled_from(["run", "apply_patch", "space__dig"]),
        arguments=st.none() | st.sampled_from(['{"input":', '"x"}', "{}"]),
    ),
)
STREAMS = st.builds(
    lambda deltas, reason, done: frames(*map(chunk, deltas), chunk({}, reason), chunk(usage=USAGE), done=done),
    st.lists(DELTAS, max_size=8),
    st.sampled_from([None, "stop", "tool_calls", "length"]),
    st.booleans(),
)


def outcome(*pieces: bytes) -> tuple[list[Any], str | None]:
    """Events with their ids numbered, as they are made up anew each time; and the error."""
    numbers: dict[str, str] = {}
    told: list[Any] = []

    def number(name: str) -> str:
        return numbers.setdefault(name, f"#{len(numbers)}")

    events, error = attempt(*pieces, request=WITH_TOOLS)
    for event in events:
        match event:
            case ItemStarted(item) | ItemDone(item):
                told.append((type(event), type(item), number(item.id), content_of(item)))
            case TextDelta() | ReasoningDelta() | ToolInputDelta():
                told.append((type(event), number(event.item_id), event.delta))
            case _:
                told.append(event)
    return told, None if error is None else f"{error.message} {error.retryable}"


@given(STREAMS, st.lists(st.integers(0, 2000), max_size=10))
def test_any_cut_of_the_bytes_gives_the_same_events(stream: bytes, places: list[int]) -> None:
    cuts = sorted({0, len(stream), *(place for place in places if place < len(stream))})
    pieces = [stream[start:end] for start, end in pairwise(cuts)]
    assert outcome(*pieces) == outcome(stream)


@given(STREAMS)
def test_any_stream_is_in_order(stream: bytes) -> None:
    events, error = attempt(stream, request=WITH_TOOLS)
    if error is None:
        check_order(events)


def test_no_truncation_makes_half_a_call() -> None:
    stream = frames(
        chunk({"reasoning_content": "hm"}),
        chunk({"content": "I run it."}),
        chunk(call(0, id="a", name="run", arguments='{"cmd": "rm')),
        chunk(call(0, arguments=' -r x"}')),
        chunk({}, "tool_calls"),
        chunk(usage=USAGE),
    )
    finished = stream.index(b"\n\n", stream.index(b'"finish_reason": "tool_calls"')) + 2
    for end in range(len(stream)):
        seen, error = attempt(stream[:end])
        assert (error is None) == (end >= finished)
        assert error is None or error.retryable
        made = [item for item in items(seen) if isinstance(item, FunctionCallItem)]
        assert [item.arguments for item in made] == (['{"cmd": "rm -r x"}'] if end >= finished else [])
