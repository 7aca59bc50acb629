"""The body of a Chat Completions request: the neutral history under the rules of that API."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from chat_wire import check_body
from told_tools import tool_specs
from treadle.agent import ApplyPatchFreeform
from treadle.llm import NO_OUTPUT, NO_RESULT, NOTHING_SAID, Asking, ChatToolNames, ModelRequest, ProviderConfig
from treadle.llm.chat import failure as q
from treadle.llm.chat.body import encode_body

Json = dict[str, Any]
OPENAI = "https://api.openai.com/v1"
IMAGE = "data:image/png;base64,AAAA"
FUNCTION: Json = {"type": "function", "name": "run", "description": "Runs.", "strict": False, "parameters": {}}


def body(
    *items: Json, quirks: frozenset[str] = frozenset(), base_url: str = "http://localhost:1/v1", **request: Any
) -> Json:
    asked = ModelRequest(**{"model": "m", "input": items, **request})
    made: Json = json.loads(encode_body(asked, Asking(ProviderConfig(id="p", base_url=base_url), quirks)))
    check_body(made)
    return made


def messages(*items: Json, quirks: frozenset[str] = frozenset(), **request: Any) -> list[Json]:
    found: list[Json] = body(*items, quirks=quirks, **request)["messages"]
    return found


def user(*parts: str | Json) -> Json:
    content = [{"type": "input_text", "text": part} if isinstance(part, str) else part for part in parts]
    return {"type": "message", "role": "user", "content": content}


def developer(text: str) -> Json:
    return {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": text}]}


def said(text: str) -> Json:
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}


def called(call_id: str, name: str = "run", **more: Any) -> Json:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": "{}", **more}


def gave(call_id: str, output: Any = "ok") -> Json:
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def shape(found: list[Json]) -> list[Any]:
    """Roles; of an assistant with calls their ids, of a result its id."""
    return [
        [made["id"] for made in message["tool_calls"]]
        if "tool_calls" in message
        else message.get("tool_call_id", message["role"])
        for message in found
    ]


def test_a_small_request() -> None:
    assert body(user("hi"), instructions="Be kind.") == {
        "model": "m",
        "messages": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "hi"}],
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_what_only_openai_knows_is_for_openai_only() -> None:
    there = body(user("hi"), base_url=OPENAI, prompt_cache_key="k", max_output_tokens=9)
    assert (there["store"], there["prompt_cache_key"], there["max_completion_tokens"]) == (False, "k", 9)
    elsewhere = body(user("hi"), prompt_cache_key="k", max_output_tokens=9)
    assert elsewhere["max_tokens"] == 9
    assert not elsewhere.keys() & {"store", "prompt_cache_key", "max_completion_tokens"}


def test_one_answer_is_one_message() -> None:
    found = messages(
        user("do it"),
        {"type": "reasoning", "summary": [], "encrypted_content": "secret of another provider"},
        said("I do."),
        called("a"),
        called("b", "fetch"),
        gave("b", "B"),
        gave("a", "A"),
        said("Done."),
        user("thanks"),
    )
    assert shape(found) == ["user", ["a", "b"], "a", "b", "assistant", "user"]
    assert found[1]["content"] == "I do."
    assert [message["content"] for message in found[2:4]] == ["A", "B"]
    assert "secret" not in json.dumps(found)


def test_calls_one_after_the_other_stay_so() -> None:
    assert shape(messages(called("a"), gave("a"), called("b"), gave("b"))) == [["a"], "a", ["b"], "b"]


def test_a_result_comes_right_behind_its_call_whatever_was_between() -> None:
    found = messages(called("a"), user("hurry"), gave("a", "late"))
    assert shape(found) == [["a"], "a", "user"]
    assert found[1]["content"] == "late"


def test_a_call_without_a_result_gets_one() -> None:
    assert messages(called("a"), user("x"))[1]["content"] == NO_RESULT
    assert messages(called("a"), gave("a", ""))[1]["content"] == NO_OUTPUT


def test_a_result_without_a_call_is_words_of_the_user() -> None:
    found = messages(gave("gone", "42"), {"type": "function_call_output", "name": "watch", "output": "43"})
    assert [message["role"] for message in found] == ["user", "user"]
    assert found[0]["content"].endswith("42")
    assert "watch" in found[1]["content"]


def test_the_same_id_twice() -> None:
    found = messages(called("call_0"), gave("call_0", "1"), called("call_0"), gave("call_0", "2"))
    assert [message["content"] for message in found if message["role"] == "tool"] == ["1", "2"]


@pytest.mark.parametrize("call_id", ["x" * 65, "functions.run:0", "", "ä", "call|fc_1"])
def test_ids_of_other_providers_are_made_valid(call_id: str) -> None:
    assert messages(called(call_id), gave(call_id, "yes"))[1]["content"] == "yes"
    assert messages(called(call_id), gave(call_id)) == messages(called(call_id), gave(call_id)), "as before: for caches"


def test_ids_of_nine_letters() -> None:
    found = messages(called("call_1"), gave("call_1"), quirks=frozenset({q.NINE}))
    assert len(found[1]["tool_call_id"]) == 9
    assert found[1]["tool_call_id"].isalnum()


def test_images() -> None:
    image = {"type": "input_image", "image_url": IMAGE, "detail": "high"}
    found = messages(user("look", image, {"type": "input_image", "file_id": "f"}))
    assert found[0]["content"][:2] == [
        {"type": "text", "text": "look"},
        {"type": "image_url", "image_url": {"url": IMAGE, "detail": "high"}},
    ]
    assert "cannot be shown" in found[0]["content"][2]["text"]


def test_images_that_tools_gave_come_behind_all_results() -> None:
    image = {"type": "input_image", "image_url": IMAGE}
    found = messages(called("a"), called("b"), gave("a", [{"type": "input_text", "text": "t"}, image]), gave("b"))
    assert shape(found) == [["a", "b"], "a", "b", "user"]
    assert found[1]["content"].startswith("t\n")
    assert found[3]["content"][1] == {"type": "image_url", "image_url": {"url": IMAGE}}


def test_what_developers_said_first_is_one_system_message() -> None:
    found = messages(developer("one"), developer("two"), user("hi"), developer("three"), instructions="zero")
    assert [message["role"] for message in found] == ["system", "user", "system"]
    assert found[0]["content"] == "zero\n\none\n\ntwo"


@pytest.mark.parametrize(
    ("quirk", "roles"),
    [
        (q.AS_DEVELOPER, ["developer", "user", "developer", "user"]),
        (q.AS_USER, ["user", "user", "user", "user"]),
        (q.SYSTEM_FIRST, ["system", "user", "user", "user"]),
        (q.ALTERNATING, ["system", "user", "system", "user"]),
    ],
)
def test_roles_by_quirk(quirk: str, roles: list[str]) -> None:
    found = messages(user("hi"), developer("psst"), user("you"), instructions="zero", quirks=frozenset({quirk}))
    assert [message["role"] for message in found] == roles


def test_roles_that_alternate() -> None:
    image = {"type": "input_image", "image_url": IMAGE}
    found = messages(
        user("a"), user("b"), said("c"), user("d", image), developer("e"), quirks=frozenset({q.ALTERNATING, q.AS_USER})
    )
    assert [message["role"] for message in found] == ["user", "assistant", "user"]
    assert found[0]["content"] == "a\n\nb"
    assert [part["type"] for part in found[2]["content"]] == ["text", "image_url", "text"]


def thought(text: str) -> Json:
    return {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": text}]}


def test_thoughts_go_back_only_where_they_are_wanted() -> None:
    history = [user("x"), thought("hm"), called("a"), gave("a")]
    assert "reasoning_content" not in messages(*history)[1]
    assert messages(*history, quirks=frozenset({q.THOUGHTS_BACK}))[1]["reasoning_content"] == "hm"


def test_answers_that_become_one_keep_the_thoughts_of_both() -> None:
    """Nothing is left of the message between them, so they follow each other."""
    quirks = frozenset({q.ALTERNATING, q.THOUGHTS_BACK})
    history = [user("x"), thought("first"), said("a"), user(), thought("second"), said("b"), called("c"), gave("c")]
    _, answer, _ = messages(*history, quirks=quirks)
    assert (answer["content"], answer["reasoning_content"]) == ("a\n\nb", "first\nsecond")
    assert [made["id"] for made in answer["tool_calls"]] == ["c"]
    assert "reasoning_content" not in messages(said("a"), user(), said("b"), quirks=quirks)[-1]


def test_other_items_are_left_out_and_empty_ones_too() -> None:
    assert messages(
        {"type": "web_search_call", "id": "w"},
        {"type": "compaction", "encrypted_content": "x"},
        {"type": "message", "role": "user", "content": 7},
        {"type": "message", "role": "user", "content": []},
        said(""),
    ) == [{"role": "user", "content": NOTHING_SAID}]


def test_the_history_may_be_bytes() -> None:
    assert messages(Raw(json.dumps(user("hi")).encode())) == [{"role": "user", "content": "hi"}]  # type: ignore[arg-type]


def test_our_own_tools() -> None:
    made = body(user("hi"), tools=tool_specs(freeform_patch=True), parallel_tool_calls=False)
    assert made["parallel_tool_calls"] is False
    functions = {tool["function"]["name"]: tool["function"] for tool in made["tools"]}
    assert functions["exec_command"]["parameters"]["required"] == ["cmd"]
    assert "strict" not in functions["exec_command"]
    patch = functions["apply_patch"]
    assert patch["parameters"]["required"] == ["input"]
    assert "*** Begin Patch" in patch["description"]


def test_a_patch_goes_back_as_it_was_called() -> None:
    patch = {"type": "custom_tool_call", "call_id": "a", "name": "apply_patch", "input": "*** Begin\n"}
    found = messages(patch, {"type": "custom_tool_call_output", "call_id": "a", "output": "ok"})
    assert json.loads(found[0]["tool_calls"][0]["function"]["arguments"]) == {"input": "*** Begin\n"}
    assert found[1]["content"] == "ok"


def test_names_are_valid_and_lead_back() -> None:
    names = ChatToolNames(
        [
            {"type": "namespace", "name": "a", "tools": [{**FUNCTION, "name": "b"}, {**FUNCTION, "name": "c" * 70}]},
            {**FUNCTION, "name": "a__b"},
            {**FUNCTION, "name": "with space"},
            {**FUNCTION, "name": "with.space"},
            {"type": "web_search"},
            ApplyPatchFreeform.spec,
        ]
    )
    made = [tool.function.name for tool in names.functions]
    assert len(made) == len(set(made)) == 6
    for name in made:
        tool = names.tool(name)
        assert names.name_of(tool.namespace, tool.name) == name
    assert names.tool("a__b").namespace == "a"
    assert names.tool("apply_patch").is_custom


SCHEMA = {"type": "object", "properties": {"answer": {"type": "string"}}}


def test_a_schema_and_its_fallbacks() -> None:
    strict = body(user("hi"), output_schema=SCHEMA)
    assert strict["response_format"]["json_schema"]["schema"] == SCHEMA
    weaker = body(user("hi"), output_schema=SCHEMA, quirks=frozenset({q.JSON_OBJECT}))
    assert weaker["response_format"] == {"type": "json_object"}
    weakest = body(user("hi"), output_schema=SCHEMA, quirks=frozenset({q.JSON_OBJECT, q.NO_FORMAT}))
    assert "response_format" not in weakest
    for made in (weaker, weakest):
        assert json.dumps(SCHEMA, separators=(",", ":")) in made["messages"][0]["content"]


def test_what_is_left_out_by_quirk() -> None:
    all_of_them = frozenset({q.NO_STREAM_OPTIONS, q.NO_PARALLEL, q.NO_EFFORT, q.OTHER_LIMIT})
    request: Json = {
        "tools": [FUNCTION],
        "parallel_tool_calls": False,
        "reasoning_effort": "low",
        "max_output_tokens": 5,
    }
    known = {"stream_options", "parallel_tool_calls", "reasoning_effort"}
    made = body(user("hi"), **request)
    assert made.keys() >= known | {"max_tokens"}
    made = body(user("hi"), quirks=all_of_them, **request)
    assert not made.keys() & (known | {"max_tokens"})
    assert made["max_completion_tokens"] == 5


IDS = st.sampled_from(["a", "b", "", "x" * 70, "ü:1"])
OUTPUT = st.one_of(
    st.text(max_size=3),
    st.lists(st.sampled_from([{"type": "input_text", "text": "t"}, {"type": "input_image", "image_url": IMAGE}])),
)
ITEMS = st.one_of(
    st.builds(user, st.text(max_size=3)),
    st.builds(developer, st.text(max_size=3)),
    st.builds(said, st.text(max_size=3)),
    st.builds(called, IDS, st.sampled_from(["run", "a b", "z" * 80])),
    st.builds(gave, IDS, OUTPUT),
    st.builds(lambda call_id: {**called(call_id), "type": "custom_tool_call", "input": "x"}, IDS),
    st.builds(lambda call_id: {**gave(call_id), "type": "custom_tool_call_output"}, IDS),
    st.just({"type": "reasoning", "summary": [{"type": "summary_text", "text": "s"}]}),
    st.just({"type": "function_call_output", "name": "watch", "output": "o"}),
    st.dictionaries(st.sampled_from(["type", "role", "content", "call_id"]), st.integers() | st.text(max_size=3)),
)
QUIRKS = st.frozensets(
    st.sampled_from([q.AS_DEVELOPER, q.AS_USER, q.SYSTEM_FIRST, q.ALTERNATING, q.NINE, q.THOUGHTS_BACK, q.JSON_OBJECT])
)


@given(st.lists(ITEMS, max_size=12), QUIRKS, st.sampled_from([None, "", "Be kind."]))
def test_any_history_makes_a_body_that_follows_the_rules(
    history: list[Json], quirks: frozenset[str], instructions: str | None
) -> None:
    made = body(*history, quirks=quirks, instructions=instructions, tools=[FUNCTION], output_schema=SCHEMA)
    calls = sum(item.get("type") in ("function_call", "custom_tool_call") for item in history)
    assert sum(len(message.get("tool_calls", ())) for message in made["messages"]) == calls
