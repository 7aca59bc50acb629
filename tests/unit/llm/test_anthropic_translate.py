"""From events of the Messages API to model events: what each becomes, the order that is promised, and any cut."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anthropic_rules import check_rules
from model_server import sse
from told_tools import tool_specs
from treadle.http import SseEvent, SseParser
from treadle.llm import (
    MAX_BLOCKS,
    AnthropicTranslator,
    Asking,
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
    OtherItem,
    OutputItem,
    ReasoningItem,
    ReasoningSummaryDelta,
    ReasoningSummaryPart,
    SearchedFor,
    TextDelta,
    TokenUsage,
    ToolInputDelta,
    UnknownEvent,
    WebSearchItem,
    read_item,
    read_provider,
)
from treadle.llm.anthropic import WIRE_API, translate
from treadle.llm.anthropic.body import encode_body
from treadle.testing import check_order

Json = dict[str, Any]
NAMESPACE = {"type": "namespace", "name": "ns", "tools": [{"type": "function", "name": "go"}]}
REQUEST = ModelRequest(
    model="claude-opus-4-6",
    input=[{"type": "message", "role": "user", "content": "hi"}],
    tools=[*tool_specs(freeform_patch=True), NAMESPACE],
)
USAGE = {"input_tokens": 10, "cache_creation_input_tokens": 5, "cache_read_input_tokens": 100, "output_tokens": 1}


def start(message_id: str = "msg_1") -> Json:
    return {"type": "message_start", "message": {"id": message_id, "content": [], "usage": USAGE}}


def begin(index: int, block: Json) -> Json:
    return {"type": "content_block_start", "index": index, "content_block": block}


def grow(index: int, kind: str, **members: Any) -> Json:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **members}}


def stop(index: int) -> Json:
    return {"type": "content_block_stop", "index": index}


def ended(reason: str | None = "end_turn", **more: Any) -> list[Json]:
    usage = {"output_tokens": 7, "output_tokens_details": {"thinking_tokens": 3}}
    return [
        {"type": "message_delta", "delta": {"stop_reason": reason, **more}, "usage": usage},
        {"type": "message_stop"},
    ]


def text(index: int, *pieces: str) -> list[Json]:
    return [
        begin(index, {"type": "text", "text": ""}),
        *(grow(index, "text_delta", text=piece) for piece in pieces),
        stop(index),
    ]


def thinking(index: int, *pieces: str) -> list[Json]:
    return [
        begin(index, {"type": "thinking", "thinking": "", "signature": ""}),
        *(grow(index, "thinking_delta", thinking=piece) for piece in pieces),
        grow(index, "signature_delta", signature="c2"),
        grow(index, "signature_delta", signature="ln"),
        stop(index),
    ]


def tool(index: int, name: str, *pieces: str, call_id: str = "toolu_1") -> list[Json]:
    return [
        begin(index, {"type": "tool_use", "id": call_id, "name": name, "input": {}}),
        *(grow(index, "input_json_delta", partial_json=piece) for piece in pieces),
        stop(index),
    ]


WHOLE = [
    start(),
    {"type": "ping"},
    *thinking(0, "let me ", "see"),
    begin(1, {"type": "redacted_thinking", "data": "xx"}),
    stop(1),
    *text(2, "I ", "run é"),
    *tool(3, "exec_command", "", '{"cmd": ', '"ls"}'),
    *tool(4, "apply_patch", '{"input": "*** Begin', '\\n"}', call_id="toolu_2"),
    *tool(5, "get_goal", "", call_id="toolu_3"),
    *ended("tool_use"),
]


def feed(*events: Json, translator: AnthropicTranslator | None = None) -> list[ModelEvent]:
    translator = translator or AnthropicTranslator(REQUEST)
    return [out for event in events for out in translator.receive(SseEvent(event["type"], json.dumps(event)))]


def done(events: list[ModelEvent]) -> list[OutputItem]:
    return [event.item for event in events if isinstance(event, ItemDone)]


def test_a_text() -> None:
    events = feed(start(), *text(0, "a", "b"), *ended())
    assert [type(event) for event in events] == [Created, ItemStarted, TextDelta, TextDelta, ItemDone, Completed]
    (item,) = done(events)
    assert isinstance(item, MessageItem)
    assert item.text == "ab"
    assert json.loads(bytes(item.raw)) == {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "ab"}],
    }


def test_usage_counts_what_was_cached_as_input() -> None:
    last = feed(start(), *ended())[-1]
    assert last == Completed(
        "msg_1",
        TokenUsage(
            input_tokens=115,
            cached_input_tokens=100,
            cache_write_input_tokens=5,
            output_tokens=7,
            reasoning_output_tokens=3,
            total_tokens=122,
        ),
    )
    bare = {"type": "message_start", "message": {"id": "m"}}
    assert feed(bare, {"type": "message_delta", "delta": {"stop_reason": "end_turn"}}, {"type": "message_stop"})[
        -1
    ] == Completed("m", None)


def test_a_whole_response() -> None:
    events = feed(*WHOLE)
    check_order(events)
    thought, redacted, message, command, patch, goal = done(events)
    assert isinstance(thought, ReasoningItem)
    assert thought.summary == ("let me see",)
    assert ReasoningSummaryPart(thought.id, 0) in events
    assert ReasoningSummaryDelta(thought.id, 0, "see") in events
    assert isinstance(redacted, ReasoningItem)
    assert isinstance(message, MessageItem)
    assert isinstance(command, FunctionCallItem)
    assert (command.call_id, command.name, command.arguments) == ("toolu_1", "exec_command", '{"cmd": "ls"}')
    assert [event.delta for event in events if isinstance(event, ToolInputDelta)] == ['{"cmd": ', '"ls"}']
    assert isinstance(patch, CustomToolCallItem)
    assert (patch.name, patch.input) == ("apply_patch", "*** Begin\n")
    assert isinstance(goal, FunctionCallItem)
    assert goal.arguments == "{}"


def test_items_are_read_again_from_the_history_as_they_were() -> None:
    for item in done(feed(*WHOLE)):
        assert read_item(item.raw, item.id) == item


def test_what_a_model_said_goes_back_as_it_was() -> None:
    items = [item.raw for item in done(feed(*WHOLE))]
    request = ModelRequest(model=REQUEST.model, input=[*REQUEST.input, *items], tools=REQUEST.tools)
    provider = read_provider("m", {"base_url": "http://127.0.0.1:1"})
    body = json.loads(encode_body(request, Asking(provider)))
    check_rules(body)
    assert body["messages"][1]["content"] == [
        {"type": "thinking", "thinking": "let me see", "signature": "c2ln"},
        {"type": "redacted_thinking", "data": "xx"},
        {"type": "text", "text": "I run é"},
        {"type": "tool_use", "id": "toolu_1", "name": "exec_command", "input": {"cmd": "ls"}},
        {"type": "tool_use", "id": "toolu_2", "name": "apply_patch", "input": {"input": "*** Begin\n"}},
        {"type": "tool_use", "id": "toolu_3", "name": "get_goal", "input": {}},
    ]


def test_a_call_is_done_as_soon_as_it_is_whole() -> None:
    events = feed(start(), *tool(0, "exec_command", '{"cmd": "ls"}'))
    assert isinstance(events[-1], ItemDone)


def test_input_at_once_and_a_namespace() -> None:
    block = {"type": "tool_use", "id": "t", "name": "ns__go", "input": {"a": 1}}
    (item,) = done(feed(start(), begin(0, block), stop(0)))
    assert isinstance(item, FunctionCallItem)
    assert (item.namespace, item.name, json.loads(item.arguments)) == ("ns", "go", {"a": 1})


@pytest.mark.parametrize("pieces", [(), ("",), ("{}",), ('{"cmd": "rm',)])
def test_a_call_that_may_not_be_whole_waits_for_the_reason_of_the_end(pieces: tuple[str, ...]) -> None:
    begun = feed(start(), *tool(0, "exec_command", *pieces))
    assert not done(begun)
    assert len(done(feed(start(), *tool(0, "exec_command", *pieces), *ended("tool_use")))) == 1
    translator = AnthropicTranslator(REQUEST)
    feed(start(), *tool(0, "exec_command", *pieces), translator=translator)
    with pytest.raises(ModelError, match="most tokens") as caught:
        feed(*ended("max_tokens"), translator=translator)
    assert not caught.value.retryable
    nothing = AnthropicTranslator(REQUEST)
    feed(start(), *tool(0, "exec_command", *pieces), translator=nothing)
    with pytest.raises(ModelError, match="inside of a call") as caught:
        feed({"type": "message_stop"}, translator=nothing)
    assert caught.value.retryable


def test_why_a_response_stopped() -> None:
    with pytest.raises(ModelError, match="context window") as caught:
        feed(start(), *ended("model_context_window_exceeded"))
    assert (caught.value.kind, caught.value.retryable) == ("context_too_long", False)
    with pytest.raises(ModelError, match="refused to answer: too dangerous") as caught:
        feed(start(), *ended("refusal", stop_details={"type": "refusal", "explanation": "too dangerous"}))
    assert not caught.value.retryable
    assert isinstance(feed(start(), *text(0, "a"), *ended("something new"))[-1], Completed)


def test_a_pause() -> None:
    last = feed(start(), *text(0, "wait"), *ended("pause_turn"))[-1]
    assert isinstance(last, Completed)
    assert last.paused
    empty = feed(start(), *ended("pause_turn"))[-1]
    assert isinstance(empty, Completed)
    assert not empty.paused  # it would be asked the same again, for ever


@pytest.mark.parametrize(
    ("kind", "expected", "retryable"),
    [
        ("overloaded_error", "overloaded", True),
        ("rate_limit_error", "rate_limited", True),
        ("api_error", "server_failed", True),
        ("odd_error", "server_failed", True),
        ("invalid_request_error", "refused", False),
        ("authentication_error", "unauthorized", False),
    ],
)
def test_an_error_in_the_stream(kind: str, expected: str, retryable: bool) -> None:
    with pytest.raises(ModelError, match="Words") as caught:
        feed(start(), {"type": "error", "error": {"type": kind, "message": "Words"}})
    assert (caught.value.kind, caught.value.retryable) == (expected, retryable)


def test_an_error_that_cannot_be_read_is_still_one() -> None:
    with pytest.raises(ModelError, match="boom"):
        AnthropicTranslator(REQUEST).receive(SseEvent("error", "boom"))


def test_a_text_without_a_word_is_no_item() -> None:
    assert [type(event) for event in feed(start(), *text(0), *text(1, ""), *ended())] == [Created, Completed]


def test_a_thought_that_is_not_shown_is_kept() -> None:
    (item,) = done(feed(start(), *thinking(0), *ended()))
    assert isinstance(item, ReasoningItem)
    assert item.summary == ()
    assert "c2ln" in bytes(item.raw).decode()


def test_blocks_of_other_kinds_are_kept_for_the_model() -> None:
    used = {"type": "server_tool_use", "id": "srv", "name": "web_search", "input": {}}
    found = {"type": "web_search_tool_result", "tool_use_id": "srv", "content": []}
    query = grow(0, "input_json_delta", partial_json='{"query": "x"}')
    items = done(feed(start(), begin(0, used), query, stop(0), begin(1, found), stop(1), *ended("pause_turn")))
    assert all(isinstance(item, OtherItem) for item in items)
    request = ModelRequest(model=REQUEST.model, input=[*REQUEST.input, *(item.raw for item in items)])
    body = json.loads(encode_body(request, Asking(read_provider("m", {"base_url": "http://127.0.0.1:1"}))))
    assert body["messages"][1]["content"] == [{**used, "input": {"query": "x"}}, found]
    assert len(body["messages"]) == 2


# --- searches of the server -------------------------------------------------------------------------------------------

SEARCHING = ModelRequest(
    model=REQUEST.model, input=REQUEST.input, tools=[{"type": "web_search", "external_web_access": True}]
)
CITED = {"type": "web_search_result_location", "url": "https://e.com", "title": "E", "encrypted_index": "x"}


def searched(index: int, query: str, use_id: str = "srv") -> list[Json]:
    used = {"type": "server_tool_use", "id": use_id, "name": "web_search", "input": {}}
    return [
        begin(index, used),
        grow(index, "input_json_delta", partial_json=json.dumps({"query": query})),
        stop(index),
    ]


def results(index: int, use_id: str = "srv") -> list[Json]:
    return [begin(index, {"type": "web_search_tool_result", "tool_use_id": use_id, "content": []}), stop(index)]


def hear(*events: Json) -> list[ModelEvent]:
    return feed(*events, translator=AnthropicTranslator(SEARCHING))


def test_a_search_is_shown_with_its_query_until_the_results_come() -> None:
    events = hear(start(), *searched(0, "looms"))
    (begun,) = [event.item for event in events if isinstance(event, ItemStarted)]
    assert isinstance(begun, WebSearchItem)
    assert begun.action == SearchedFor("search", query="looms")
    assert done(events) == []
    events = hear(start(), *searched(0, "looms"), *results(1), *text(2, "found"), *ended())
    check_order(events)
    search, found, said = done(events)
    assert isinstance(search, WebSearchItem)
    assert type(found) is OtherItem
    assert isinstance(said, MessageItem)


def test_an_answer_with_citations_is_one_message() -> None:
    cited = [
        begin(3, {"type": "text", "text": "", "citations": []}),
        grow(3, "citations_delta", citation=CITED),
        grow(3, "text_delta", text="in 1785"),
        stop(3),
    ]
    events = hear(
        start(), *searched(0, "q"), *results(1), *text(2, "It was ", "made "), *cited, *text(4, "."), *ended()
    )
    check_order(events)
    assert [event.delta for event in events if isinstance(event, TextDelta)] == ["It was ", "made ", "in 1785", "."]
    message, sources = done(events)[-2:]
    assert isinstance(message, MessageItem)
    assert message.text == "It was made in 1785."
    assert type(sources) is OtherItem
    place = {"type": "url_citation", "url": "https://e.com", "title": "E", "start_index": 12, "end_index": 19}
    assert json.loads(bytes(message.raw))["content"][0]["annotations"] == [place]
    assert len(done(events)) == 4
    said = {"type": "text", "text": "in 1785", "citations": [CITED]}
    before, after = {"type": "text", "text": "It was made "}, {"type": "text", "text": "."}
    assert answer_of([message, sources]) == [before, said, after]
    # Another model cannot read it, nor is it of another text.
    plain = [{"type": "text", "text": "It was made in 1785."}]
    assert answer_of([message, sources], model="claude-opus-5") == plain
    assert answer_of([sources, message]) == plain
    assert answer_of([sources]) == []


@given(st.lists(st.tuples(st.text(" a", max_size=3), st.booleans()), min_size=1, max_size=6))
def test_cited_blocks_are_all_of_the_text_and_none_is_blank(parts: list[tuple[str, bool]]) -> None:
    events = [start(), *searched(0, "q"), *results(1)]
    for index, (words, cited) in enumerate(parts, 2):
        piece = [grow(index, "citations_delta", citation=CITED)] if cited else []
        events += [begin(index, {"type": "text", "text": ""}), *piece]
        events += [grow(index, "text_delta", text=words), stop(index)]
    items = done(hear(*events, *ended()))
    text = "".join(words for words, _ in parts)
    blocks = answer_of(items[2:])
    assert "".join(block["text"] for block in blocks) == (text if text.strip() else "")
    assert all(block["text"].strip() for block in blocks)
    if text.strip():
        assert sum(len(block.get("citations", ())) for block in blocks) == sum(cited for _, cited in parts)


@pytest.mark.parametrize("tail", [[], [{"type": "message_stop"}]])
def test_what_was_said_before_the_tokens_ran_out_is_kept(tail: list[Json]) -> None:
    translator = AnthropicTranslator(SEARCHING)
    out_of_tokens = {"type": "message_delta", "delta": {"stop_reason": "max_tokens"}}
    events = feed(start(), *text(0, "so far"), out_of_tokens, translator=translator)
    (message,) = done(events)
    assert isinstance(message, MessageItem)
    assert message.text == "so far"
    with pytest.raises(ModelError, match="most tokens"):
        assert translator.end() if not tail else feed(*tail, translator=translator)


def test_a_server_that_never_says_why_it_stopped() -> None:
    events = hear(start(), *text(0, "all"), {"type": "message_stop"})
    assert [type(event) for event in events[-2:]] == [ItemDone, Completed]


def test_a_paused_search_is_gone_on_with() -> None:
    items = done(hear(start(), *searched(0, "q"), *ended("pause_turn")))
    assert [type(item) for item in items] == [WebSearchItem]
    assert blocks_of(items) == ["server_tool_use"]


def answer_of(items: list[OutputItem], *more: Json, model: str = REQUEST.model) -> list[Json]:
    """The first answer of a request with these items."""
    history = [*REQUEST.input, *(item.raw for item in items), *more]
    request = ModelRequest(model=model, input=history, tools=SEARCHING.tools)
    body = json.loads(encode_body(request, Asking(read_provider("m", {"base_url": "http://127.0.0.1:1"}))))
    answers: list[list[Json]] = [each["content"] for each in body["messages"] if each["role"] == "assistant"]
    return answers[0] if answers else []


def blocks_of(items: list[OutputItem], *more: Json) -> list[str]:
    """The kinds of blocks in it."""
    return [block["type"] for block in answer_of(items, *more)]


def test_a_search_without_a_result_is_not_sent_back() -> None:
    """The API refuses it, and the thread could never be gone on with."""
    events = hear(start(), *searched(0, "a", "s1"), *searched(1, "b", "s2"), *results(2, "s1"), *text(3, "x"), *ended())
    first, second, found, said = done(events)
    asked = {"type": "message", "role": "user", "content": "and now?"}
    assert blocks_of([first, second, found, said], asked) == ["server_tool_use", "web_search_tool_result", "text"]
    assert blocks_of([first], asked) == []
    assert blocks_of([found, said], asked) == ["text"]
    assert blocks_of([first, found], asked) == ["server_tool_use", "web_search_tool_result"]


@pytest.mark.parametrize(
    "event",
    [
        {"type": "something_new"},
        grow(9, "text_delta", text="nobody's"),
        grow(0, "thinking_delta", thinking="not of a text"),
        grow(0, "citations_delta", citation={}),
        stop(9),
        begin(0, {"type": "text", "text": ""}),
        start("msg_2"),
    ],
)
def test_what_does_not_fit_is_passed_on(event: Json) -> None:
    translator = AnthropicTranslator(REQUEST)
    feed(start(), begin(0, {"type": "text", "text": "a"}), translator=translator)
    assert feed(event, translator=translator) == [UnknownEvent(event["type"], json.dumps(event))]


def test_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ModelError, match="blocks"):
        feed(start(), *(begin(index, {"type": "text", "text": ""}) for index in range(MAX_BLOCKS + 1)))
    monkeypatch.setattr(translate, "MAX_CHARS", 10)
    with pytest.raises(ModelError, match="longer than 10") as caught:
        feed(start(), *text(0, "12345678901"))
    assert not caught.value.retryable


# --- any cut ---------------------------------------------------------------------------------------------------------

BYTES = b"".join(sse(*WHOLE))
EXPECTED = feed(*WHOLE)


def read(pieces: list[bytes]) -> tuple[list[ModelEvent], ModelError | None]:
    parser, translator = SseParser(), AnthropicTranslator(REQUEST)
    events: list[ModelEvent] = []
    try:
        for piece in pieces:
            for event in parser.receive(piece):
                events += translator.receive(event)
        events += translator.end()
    except ModelError as error:
        return events, error
    return events, None


@given(st.lists(st.integers(0, len(BYTES)), max_size=30))
def test_any_pieces_give_the_same_events(cuts: list[int]) -> None:
    places = [0, *sorted(cuts), len(BYTES)]
    pieces = [BYTES[a:b] for a, b in pairwise(places)]
    assert read(pieces) == (EXPECTED, None)


def test_every_truncation_is_an_error_and_leaves_no_half_call() -> None:
    whole = {item.id: item for item in done(EXPECTED)}
    for size in range(len(BYTES)):
        events, error = read([BYTES[:size]])
        assert error is not None, size
        assert error.retryable
        assert events == EXPECTED[: len(events)]
        assert all(whole[item.id] == item for item in done(events))


@given(st.lists(st.sampled_from(WHOLE), max_size=25))
def test_any_events_in_any_order_keep_the_promise(events: list[Json]) -> None:
    told: list[ModelEvent] = []
    translator = AnthropicTranslator(REQUEST)
    for event in events:
        try:
            told += feed(event, translator=translator)
        except ModelError:
            break
        if translator.completed:
            break
    check_order(told)


def test_responses_of_the_same_id_have_items_of_their_own() -> None:
    """Gateways give the same id again and again, or none."""
    start = {"type": "message_start", "message": {"id": "msg_1", "usage": {}}}
    block = {"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use", "id": "t", "name": "x"}}
    ids = []
    for _ in range(2):
        translator = WIRE_API.translator(REQUEST)
        translator.receive(SseEvent("message_start", json.dumps(start)))
        (begun,) = translator.receive(SseEvent("content_block_start", json.dumps(block)))
        assert isinstance(begun, ItemStarted)
        ids.append(begun.item.id)
    assert len(set(ids)) == 2
