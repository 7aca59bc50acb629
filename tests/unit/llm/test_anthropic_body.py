"""Bodies of requests to the Messages API: the neutral history, told by the rules of that API."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from anthropic_rules import check_rules
from told_tools import tool_specs
from treadle.llm import (
    AS_BUDGET,
    GO_ON,
    NO_CACHE,
    NO_THINKING,
    NO_THOUGHTS,
    OPENING,
    SCHEMA_AS_TEXT,
    UNANSWERED,
    Asking,
    HttpFailure,
    ModelRequest,
    OpaqueBlock,
    call_item_id,
    read_provider,
)
from treadle.llm.anthropic.body import encode_body
from treadle.llm.anthropic.failure import other_way
from treadle.llm.responses import encode_body as encode_responses

Json = dict[str, Any]
MODEL = "claude-opus-4-6"
PIXEL = "iVBORw0KGgo="
PROVIDER = read_provider("mock", {"base_url": "http://127.0.0.1:1/v1", "wire_api": "anthropic"})


def body(*items: Json, quirks: frozenset[str] = frozenset(), **members: Any) -> Json:
    raw = [Raw(json.dumps(item).encode()) for item in items]
    request = ModelRequest(**{"model": MODEL, "input": raw, **members})
    read: Json = json.loads(encode_body(request, Asking(PROVIDER, quirks)))
    check_rules(read)
    return read


def bare(value: Any) -> Any:
    """Without the marks for the cache."""
    if isinstance(value, list):
        return [bare(inner) for inner in value]
    if isinstance(value, dict):
        return {key: bare(inner) for key, inner in value.items() if key != "cache_control"}
    return value


def messages(*items: Json, **members: Any) -> list[tuple[str, Any]]:
    return [(message["role"], bare(message["content"])) for message in body(*items, **members)["messages"]]


def said(text: str, role: str = "user") -> Json:
    return {"type": "message", "role": role, "content": [{"type": "input_text", "text": text}]}


def answer(text: str) -> Json:
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}


def call(call_id: str, name: str = "f", arguments: str = "{}", **more: Any) -> Json:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments, **more}


def output(call_id: str, given: Any = "out") -> Json:
    return {"type": "function_call_output", "call_id": call_id, "output": given}


def thought(text: str = "hm", model: str = MODEL, signature: str = "sig") -> Json:
    opaque = OpaqueBlock(model=model, signature=signature).packed()
    return {"type": "reasoning", "summary": [{"type": "summary_text", "text": text}], "encrypted_content": opaque}


def text(words: str) -> Json:
    return {"type": "text", "text": words}


def use(call_id: str, name: str = "f", given: Any = None) -> Json:
    return {"type": "tool_use", "id": call_id, "name": name, "input": given or {}}


def result(call_id: str, content: Any = "out") -> Json:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content}


def missing(call_id: str) -> Json:
    return {**result(call_id, UNANSWERED), "is_error": True}


def test_the_least() -> None:
    assert body(said("hi"), model="any", reasoning_summary=None) == {
        "model": "any",
        "max_tokens": 16384,
        "stream": True,
        "messages": [{"role": "user", "content": [{**text("hi"), "cache_control": {"type": "ephemeral"}}]}],
    }


def test_orders_before_the_conversation_are_the_system_and_later_ones_are_reminders() -> None:
    made = body(said("a", "developer"), said("b", "system"), said("hi"), said("c", "developer"), instructions="first")
    assert [block["text"] for block in made["system"]] == ["first", "a", "b"]
    assert bare(made["messages"]) == [
        {"role": "user", "content": [text("hi"), text("<system-reminder>\nc\n</system-reminder>")]}
    ]


def test_a_summary_keeps_the_order_that_says_what_it_is() -> None:
    made = body(said("base", "developer"), said("a summary follows", "developer"), answer("sum"), said("hi"))
    assert [block["text"] for block in made["system"]] == ["base"]
    assert [message["role"] for message in made["messages"]] == ["user", "assistant", "user"]
    assert "a summary follows" in made["messages"][0]["content"][0]["text"]


def test_a_conversation_begins_and_ends_with_a_user() -> None:
    assert messages(answer("x")) == [("user", [text(OPENING)]), ("assistant", [text("x")]), ("user", [text(GO_ON)])]
    assert messages() == [("user", [text(OPENING)])]


def test_images() -> None:
    parts = [
        {"type": "input_image", "image_url": f"data:image/jpg;base64,{PIXEL}"},
        {"type": "input_image", "image_url": "https://example.org/a.png"},
        {"type": "input_image", "image_url": "http://example.org/a.png"},
        {"type": "input_image", "image_url": "data:image/tiff;base64,AAAA"},
        {"type": "input_image", "file_id": "file_1"},
    ]
    (_, blocks), *_ = messages({"type": "message", "role": "user", "content": parts})
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/jpeg", "data": PIXEL}}
    assert blocks[:2] == [image, {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}}]
    assert [block["type"] for block in blocks[2:]] == ["text", "text", "text"]
    given = messages(said("x"), call("a"), output("a", parts[:1]))[2][1]
    assert given == [result("a", [image])]


def test_results_are_together_and_first_and_in_the_next_message() -> None:
    asked = (said("x"), call("a"), call("b", arguments='{"n": [1]}'))
    assert messages(*asked, output("b", "2"), said("meanwhile"), output("a", "1")) == [
        ("user", [text("x")]),
        ("assistant", [use("a"), use("b", given={"n": [1]})]),
        ("user", [result("a", "1"), result("b", "2"), text("meanwhile")]),
    ]


def test_calls_of_one_response_stay_together_when_the_first_was_quick() -> None:
    first, second = call_item_id("function_call", "msg_1", 1), call_item_id("function_call", "msg_1", 2)
    one = (said("x"), call("a", id=first), output("a"), call("b", id=second), output("b"))
    assert messages(*one)[1:] == [("assistant", [use("a"), use("b")]), ("user", [result("a"), result("b")])]
    later = call_item_id("function_call", "msg_2", 1)
    two = (said("x"), call("a", id=first), output("a"), call("b", id=later), output("b"))
    assert [role for role, _ in messages(*two)] == ["user", "assistant", "user", "assistant", "user"]
    # a server whose responses all have the same id: what the user said is still where it was
    apart = messages(*one[:3], said("y"), *one[3:])
    assert apart[2] == ("user", [result("a"), text("y")])


def test_a_call_without_a_result_and_a_result_without_a_call() -> None:
    assert messages(said("x"), call("a"), said("y"))[2] == ("user", [missing("a"), text("y")])
    told = {"type": "function_call_output", "name": "alarm", "output": "ring"}
    assert messages(said("x"), output("gone", "lost"), told) == [
        ("user", [text("x"), text("Output of a tool:"), text("lost"), text("Output of alarm:"), text("ring")])
    ]


def test_a_result_belongs_to_the_call_before_it() -> None:
    made = messages(said("x"), output("a", "early"), call("a"), output("a", "late"))
    assert made[0] == ("user", [text("x"), text("Output of a tool:"), text("early")])
    assert made[2] == ("user", [result("a", "late")])


def test_ids_are_valid_and_different_and_stay_with_their_results() -> None:
    made = messages(said("x"), call("a b/ü"), output("a b/ü", "1"), call("a b/ü"), output("a b/ü", "2"), call(""))
    ids = [block["id"] for role, blocks in made if role == "assistant" for block in blocks]
    assert len(set(ids)) == 3
    assert made[2][1] == [result(ids[0], "1")]
    assert made[4][1] == [result(ids[1], "2")]


def test_what_a_model_wrote_wrong_is_still_an_object() -> None:
    made = messages(said("x"), call("a", arguments='{"n": '), call("b", arguments="[1]"), call("c", arguments=""))
    assert [block["input"] for block in made[1][1]] == [{"arguments": '{"n": '}, {"arguments": "[1]"}, {}]


def test_free_text_is_one_string() -> None:
    made = body(
        said("x"),
        {"type": "custom_tool_call", "call_id": "a", "name": "apply_patch", "input": "*** Begin"},
        {"type": "custom_tool_call_output", "call_id": "a", "output": "done"},
        tools=tool_specs(freeform_patch=True),
    )
    assert made["messages"][1]["content"] == [use("a", "apply_patch", {"input": "*** Begin"})]
    tool = next(tool for tool in made["tools"] if tool["name"] == "apply_patch")
    assert list(tool["input_schema"]["properties"]) == ["input"]
    assert "lark" in tool["description"]
    assert "Begin Patch" in tool["description"]


def test_namespaces_are_in_the_names() -> None:
    inner = {"type": "function", "name": "go", "parameters": {"properties": {}}}
    tools = [
        {"type": "namespace", "name": "a", "tools": [inner, {**inner, "name": "é" * 80}]},
        {"type": "function", "name": "a__go"},
        {"type": "web_search"},
    ]
    made = body(said("x"), call("1", "go", namespace="a"), call("2", "a__go"), tools=tools)
    names = [tool["name"] for tool in made["tools"]]
    assert len(names) == 3
    called = [block["name"] for block in made["messages"][1]["content"]]
    assert called == [names[0], names[2]]
    assert names[0] == "a__go"


def test_the_search_of_the_server() -> None:
    hosted = {
        "type": "web_search",
        "external_web_access": True,
        "filters": {"allowed_domains": ["e.com"]},
        "user_location": {"type": "approximate", "city": "Berlin"},
        "search_context_size": "high",
    }
    look = {"type": "function", "name": "look", "parameters": {}}
    assert body(said("x"), tools=[hosted], quirks=frozenset({NO_CACHE}))["tools"][-1] == {
        "type": "web_search_20250305",
        "name": "web_search",
        "allowed_domains": ["e.com"],
        "user_location": {"type": "approximate", "city": "Berlin"},
    }
    plain = body(said("x"), tools=[look, {"type": "web_search", "external_web_access": True}])["tools"]
    cached = {"cache_control": {"type": "ephemeral"}}  # which is allowed on any tool
    assert plain[1:] == [{"type": "web_search_20250305", "name": "web_search", **cached}]
    # There is no search of this API that fetches nothing; and no two tools of one name.
    assert "tools" not in body(said("x"), tools=[{"type": "web_search", "external_web_access": False}])
    assert len(body(said("x"), tools=[{**look, "name": "web_search"}, hosted])["tools"]) == 1


def test_thoughts_go_back_to_the_model_that_had_them() -> None:
    redacted = {
        "type": "reasoning",
        "summary": [],
        "encrypted_content": OpaqueBlock(model=MODEL, redacted="xx").packed(),
    }
    items = (said("x"), thought(), redacted, call("a"), output("a"))
    kept = {"type": "thinking", "thinking": "hm", "signature": "sig"}
    assert messages(*items)[1] == ("assistant", [kept, {"type": "redacted_thinking", "data": "xx"}, use("a")])
    assert messages(*items, model="claude-opus-4-7")[1] == ("assistant", [use("a")])
    assert messages(*items, quirks=frozenset({NO_THOUGHTS}))[1] == ("assistant", [use("a")])
    foreign = {"type": "reasoning", "summary": [], "encrypted_content": "gAAAA"}
    assert messages(said("x"), foreign, {**foreign, "encrypted_content": None}, answer("y"))[1] == (
        "assistant",
        [text("y")],
    )


def test_a_thought_that_led_to_nothing_is_left_out() -> None:
    assert messages(said("x"), thought(), said("y")) == [("user", [text("x"), text("y")])]
    assert messages(said("x"), answer("a"), thought(), said("y"))[1] == ("assistant", [text("a")])


def test_what_is_sealed_is_not_sent_to_another_api() -> None:
    quoted = said(f"look: {json.dumps(thought())}")
    items = [thought(), quoted, {"type": "anthropic_block", "encrypted_content": OpaqueBlock(model="m").packed()}]
    raws = [Raw(json.dumps(item, separators=(",", ":")).encode()) for item in items]
    for history in (items, raws):
        request = ModelRequest(model="gpt", input=history)
        assert json.loads(encode_responses(request, Asking(PROVIDER)))["input"] == [quoted]


def test_a_paused_answer_is_gone_on_with() -> None:
    block = {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {"query": "x"}}
    opaque = OpaqueBlock(model=MODEL, block=Raw(json.dumps(block).encode())).packed()
    made = messages(said("x"), answer("wait"), {"type": "anthropic_block", "encrypted_content": opaque})
    assert made[1:] == [("assistant", [text("wait"), block])]


# --- beside the conversation -----------------------------------------------------------------------------------------


def test_the_prefix_is_marked_where_the_request_before_ended() -> None:
    orders = (said("base", "developer"), said("today", "developer"))
    first = body(*orders, said("x"), tools=tool_specs())
    second = body(*orders, said("x"), call("a"), output("a"), tools=tool_specs())
    third = body(*orders, said("x"), call("a"), output("a"), call("b"), output("b"), tools=tool_specs())
    for made, marked in ((first, [0]), (second, [0, 2]), (third, [2, 4])):
        places = [i for i, message in enumerate(made["messages"]) if "cache_control" in message["content"][-1]]
        assert places == marked
        assert all("cache_control" in block for block in made["system"])
    # all that was marked before is there again, byte for byte
    assert bare(second["messages"])[:1] == bare(first["messages"])
    assert bare(third["messages"])[:3] == bare(second["messages"])
    alone = body(said("x"), tools=tool_specs())
    assert "cache_control" in alone["tools"][-1]
    assert "cache_control" not in json.dumps(body(said("x"), tools=tool_specs(), quirks=frozenset({NO_CACHE})))


@pytest.mark.parametrize(
    ("model", "effort", "thinking", "config"),
    [
        ("claude-opus-4-6", None, {"type": "adaptive", "display": "summarized"}, None),
        ("claude-opus-4-6", "minimal", {"type": "adaptive", "display": "summarized"}, {"effort": "low"}),
        ("claude-sonnet-4-6", "xhigh", {"type": "adaptive", "display": "summarized"}, {"effort": "max"}),
        ("anthropic/claude-opus-4.7", "xhigh", {"type": "adaptive", "display": "summarized"}, {"effort": "xhigh"}),
        ("claude-opus-5-5", "none", None, {"effort": "low"}),
        ("claude-mythos-preview", "high", {"type": "adaptive", "display": "summarized"}, {"effort": "high"}),
        ("claude-sonnet-4-5-20250929", "low", {"type": "enabled", "budget_tokens": 4096}, None),
        ("claude-sonnet-4-20250514", "xhigh", {"type": "enabled", "budget_tokens": 30000}, None),
        ("claude-3-7-sonnet-latest", None, None, None),
        ("claude-3-5-haiku-20241022", "high", None, None),
        ("qwen3", None, None, None),
        ("qwen3", "high", {"type": "adaptive"}, {"effort": "high"}),
    ],
)
def test_thinking(model: str, effort: str | None, thinking: Json | None, config: Json | None) -> None:
    made = body(said("x"), model=model, reasoning_effort=effort)
    assert (made.get("thinking"), made.get("output_config")) == (thinking, config)


def test_a_budget_is_not_given_in_the_middle_of_calls_that_no_thought_led_to() -> None:
    model = "claude-sonnet-4-5"
    told: Json = {"model": model, "reasoning_effort": "high"}
    assert "thinking" in body(said("x"), thought(model=model), call("a"), output("a"), **told)
    assert "thinking" not in body(said("x"), call("a"), output("a"), **told)
    assert "thinking" in body(said("x"), call("a"), output("a"), answer("done"), said("y"), **told)


def test_an_answer_may_be_limited() -> None:
    told: Json = {"model": "claude-sonnet-4-5", "reasoning_effort": "high"}
    assert body(said("x"), **told)["max_tokens"] == 64_000
    for model, most in [("claude-opus-4-6", 128_000), ("claude-new-9", 64_000), ("claude-3-5-haiku", 8_192)]:
        assert body(said("x"), model=model)["max_tokens"] == most
    short = body(said("x"), max_output_tokens=3_000, **told)
    assert (short["max_tokens"], short["thinking"]["budget_tokens"]) == (3_000, 1_976)
    assert "thinking" not in body(said("x"), max_output_tokens=2_000, **told)


def test_a_schema() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "object", "properties": {}}}}
    closed = {"type": "object", "properties": {}, "additionalProperties": False}
    made = body(said("x"), output_schema=schema)["output_config"]["format"]
    assert made == {
        "type": "json_schema",
        "schema": {"type": "object", "properties": {"n": closed}, "additionalProperties": False},
    }
    for told in ({"model": "claude-3-5-sonnet-latest"}, {"quirks": frozenset({SCHEMA_AS_TEXT})}):
        made = body(said("x"), output_schema=schema, **told)
        assert "output_config" not in made
        assert json.dumps(schema, separators=(",", ":")) in made["system"][-1]["text"]


def test_tools_may_be_called_one_at_a_time_or_not_any_more() -> None:
    one = body(said("x"), tools=tool_specs(), parallel_tool_calls=False)
    assert one["tool_choice"] == {"type": "auto", "disable_parallel_tool_use": True}
    assert "tool_choice" not in body(said("x"), tools=tool_specs())
    none = body(said("x"), call("a"), output("a"), said("sum it up"))
    assert none["tool_choice"] == {"type": "none"}
    assert [tool["name"] for tool in none["tools"]] == ["f"]


@pytest.mark.parametrize(
    ("said_by_server", "known", "learned"),
    [
        ("thinking: Input tag 'adaptive' found using 'type' does not match any of the expected tags", set(), AS_BUDGET),
        ("thinking: Extra inputs are not permitted", {AS_BUDGET}, NO_THINKING),
        ("messages.1.content.0: Invalid `signature` in `thinking` block", set(), NO_THOUGHTS),
        ("Expected `thinking` or `redacted_thinking`, but found `tool_use`.", set(), NO_THOUGHTS),
        ("output_config.format: unsupported schema", set(), SCHEMA_AS_TEXT),
        ("system.0.cache_control: Extra inputs are not permitted", set(), NO_CACHE),
    ],
)
def test_a_refusal_is_learned_from(said_by_server: str, known: set[str], learned: str) -> None:
    refused = {"type": "error", "error": {"type": "invalid_request_error", "message": said_by_server}}
    failure = HttpFailure(400, {}, json.dumps(refused).encode(), "url")
    assert other_way(failure, frozenset(known)) == frozenset(known | {learned})
    assert other_way(HttpFailure(500, {}, failure.body, "url"), frozenset()) is None


def test_a_refusal_for_another_reason_is_final() -> None:
    assert other_way(HttpFailure(400, {}, b"prompt is too long: 1 > 0", "url"), frozenset()) is None
    refused = b"tools.0.custom.input_schema: JSON schema is invalid"
    assert other_way(HttpFailure(400, {}, refused, "url"), frozenset()) is None


def test_what_is_learned_is_asked_for_in_another_way() -> None:
    told: Json = {"model": "qwen3", "reasoning_effort": "high"}
    budget = body(said("x"), quirks=frozenset({AS_BUDGET}), **told)
    assert budget["thinking"]["type"] == "enabled"
    assert "output_config" not in budget
    assert "thinking" not in body(said("x"), quirks=frozenset({AS_BUDGET, NO_THINKING}), **told)


# --- any history -----------------------------------------------------------------------------------------------------

IDS = st.sampled_from(["a", "b", "c", "", "call/1", "x" * 90, "ü"])
WORDS = st.sampled_from(["", " ", "\n", "hi", "a\n"])
PART = st.one_of(
    WORDS.map(lambda words: {"type": "input_text", "text": words}),
    st.sampled_from([f"data:image/png;base64,{PIXEL}", "https://h/x", "ftp://x", "", "data:image/png;base64,"]).map(
        lambda url: {"type": "input_image", "image_url": url}
    ),
    st.just({"type": "input_audio", "data": "x"}),
)
CONTENT = st.one_of(WORDS, st.lists(PART, max_size=3), st.none(), st.just({"odd": 1}))
NAMES = st.sampled_from(["f", "apply_patch", "", "ns/x", "y" * 70])
ITEM_IDS = st.none() | st.builds(
    call_item_id, st.just("function_call"), st.sampled_from(["m1", "m2"]), st.integers(0, 3)
)
ITEMS = st.one_of(
    st.builds(
        lambda role, content: {"type": "message", "role": role, "content": content},
        st.sampled_from(["user", "assistant", "developer", "system", "tool"]),
        CONTENT,
    ),
    st.builds(
        lambda i, n, a, ns, own: call(i, n, a, namespace=ns, id=own),
        IDS,
        NAMES,
        st.sampled_from(["{}", "", "{", "[]", '{"a": 1}', "null"]),
        st.none() | st.just("ns"),
        ITEM_IDS,
    ),
    st.builds(lambda i, n: {"type": "custom_tool_call", "call_id": i, "name": n, "input": "p"}, IDS, NAMES),
    st.builds(output, IDS, CONTENT),
    st.builds(lambda i: {"type": "custom_tool_call_output", "call_id": i, "output": "done"}, IDS),
    st.builds(thought, WORDS, st.sampled_from([MODEL, "claude-sonnet-4-5", "other"])),
    st.sampled_from(
        [
            {"type": "reasoning", "summary": [], "encrypted_content": "gAAA"},
            {"type": "reasoning", "summary": [], "encrypted_content": OpaqueBlock(model=MODEL, redacted="x").packed()},
            {"type": "web_search_call", "id": "ws"},
            {"type": "message", "role": 1},
            {},
        ]
    ),
)


@given(
    st.lists(ITEMS, max_size=14),
    st.sampled_from([MODEL, "claude-sonnet-4-5", "qwen3"]),
    st.sampled_from([None, "none", "high"]),
    st.booleans(),
)
def test_any_history_keeps_the_rules(items: list[Json], model: str, effort: str | None, with_tools: bool) -> None:
    body(*items, model=model, reasoning_effort=effort, tools=tool_specs(freeform_patch=True) if with_tools else ())


@given(st.lists(ITEMS, max_size=10), ITEMS)
def test_what_is_marked_for_the_cache_stays_as_the_history_grows(items: list[Json], more: Json) -> None:
    """Up to the last message that a user has ended, whatever comes later changes nothing."""
    before = bare(body(*items, said("go"), tools=tool_specs())["messages"])
    after = bare(body(*items, said("go"), answer("ok"), more, tools=tool_specs())["messages"])
    if not (str(more.get("type")).endswith("_output") or (more.get("id") or "").startswith("fc_")):
        assert after[: len(before)] == before
