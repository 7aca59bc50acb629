"""Names and schemas of MCP tools as a model gets them, and which tool a call means."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from treadle.mcp import ToolNames, model_schema, namespace_spec, real_arguments
from unit.mcp.offered import DATA, json_values, offered, offered_tool

NAMES = ToolNames({"probe": ["echo", "odd.name-x/y z"], "other": ["echo"]})


# --- recorded ---------------------------------------------------------------------------------------------------------


def test_a_server_is_described_as_the_real_program_does() -> None:
    recorded = msgspec.json.decode((DATA / "tools.json").read_bytes(), type=dict[str, Raw])
    tools = offered(bytes(recorded["offered"]))
    names = ToolNames({"probe": [tool.name for tool in tools]})
    instructions = msgspec.json.decode(recorded["instructions"], type=str)
    assert json.loads(bytes(namespace_spec(names, "probe", instructions, tools))) == json.loads(bytes(recorded["sent"]))


def test_a_server_that_says_nothing_of_itself_has_a_description_all_the_same() -> None:
    names = ToolNames({"web": ["hello"]})
    spec = json.loads(bytes(namespace_spec(names, "web", None, [offered_tool("hello", "say hello")])))
    assert spec["description"] == "Tools in the mcp__web namespace."


@pytest.mark.parametrize("line", (DATA / "call_names.jsonl").read_text().splitlines())
def test_a_call_is_understood_however_its_name_is_joined(line: str) -> None:
    call = json.loads(line)
    # The bare name alone could be anybody's.
    expected = None if (call["namespace"], call["name"]) == (None, "echo") else ("probe", "echo")
    assert NAMES.find(call["namespace"], call["name"]) == expected


# --- names ------------------------------------------------------------------------------------------------------------


def test_letters_that_providers_refuse_are_replaced() -> None:
    assert NAMES.function("probe", "odd.name-x/y z") == "odd_name_x_y_z"
    assert NAMES.find("mcp__probe", "odd_name_x_y_z") == ("probe", "odd.name-x/y z")


@pytest.mark.parametrize(
    ("namespace", "name"),
    [(None, "exec_command"), (None, "mcp__nosuch__echo"), ("mcp__probe", "nosuch"), ("nosuch", "echo"), (None, "")],
)
def test_a_call_of_no_tool_is_nobodys(namespace: str | None, name: str) -> None:
    assert NAMES.find(namespace, name) is None


def test_of_two_names_that_would_be_the_same_the_valid_one_stays_as_it_is() -> None:
    names = ToolNames({"s": ["a.b", "a_b", "a-b"]})
    made = [names.function("s", tool) for tool in ("a.b", "a_b", "a-b")]
    assert made[1] == "a_b"
    assert len(set(made)) == 3
    assert all(re.fullmatch(r"a_b_[0-9a-f]{8}", name) for name in (made[0], made[2]))


def test_a_spelling_that_could_be_two_tools_is_taken_for_neither() -> None:
    names = ToolNames({"s": ["a_b", "a__b"]})
    assert names.find("mcp__s", "a_b") == ("s", "a_b")
    assert names.find("mcp__s", "a__b") == ("s", "a__b")
    assert names.find(None, "mcp__s.a_b") is None


def test_the_joined_names_of_two_servers_differ() -> None:
    names = ToolNames({"x": ["a__b"], "x__a": ["b"]})
    assert names.flat("x", "a__b") == "mcp__x__a__b"
    assert names.flat("x__a", "b") != "mcp__x__a__b"


servers = st.dictionaries(
    st.text(max_size=80) | st.from_regex(r"[a_b.]{1,4}", fullmatch=True),
    st.lists(st.text(max_size=90) | st.from_regex(r"[a_b.]{1,4}", fullmatch=True), max_size=6),
    max_size=5,
)


@given(servers)
def test_names_are_valid_unlike_and_lead_back(given_servers: dict[str, list[str]]) -> None:
    names = ToolNames(given_servers)
    flat: dict[str, tuple[str, str]] = {}
    for server, tools in given_servers.items():
        for tool in tools:
            namespace, function, joined = (
                names.namespace(server),
                names.function(server, tool),
                names.flat(server, tool),
            )
            assert re.fullmatch(r"mcp__[A-Za-z0-9_]{1,59}", joined)
            assert joined == f"{namespace}__{function}"
            assert flat.setdefault(joined, (server, tool)) == (server, tool)
            assert names.find(namespace, function) == names.find(None, joined) == (server, tool)


@given(servers)
def test_the_order_in_which_servers_and_tools_come_changes_no_name(given_servers: dict[str, list[str]]) -> None:
    there = ToolNames(given_servers)
    back = ToolNames({server: tools[::-1] for server, tools in reversed(given_servers.items())})
    for server, tools in given_servers.items():
        assert [there.flat(server, tool) for tool in tools] == [back.flat(server, tool) for tool in tools]


# --- schemas ----------------------------------------------------------------------------------------------------------

KEPT = {
    *("type", "description", "enum", "items", "properties", "required", "additionalProperties"),
    *("anyOf", "oneOf", "allOf", "$ref", "$defs", "definitions"),
}
WORDS = sorted(KEPT | {"const", "pattern", "minimum", "prefixItems", "$schema", "default", "not"})
TYPES = ["object", "array", "string", "number", "integer", "boolean", "null"]

schemas: st.SearchStrategy[object] = st.recursive(
    json_values | st.sampled_from(TYPES) | st.sampled_from(["#/$defs/a", "#/definitions/b", "#", "https://x/y"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(WORDS), inner, max_size=5)
        | st.dictionaries(st.sampled_from(["a", "b"]), inner, max_size=2)
    ),
    max_leaves=25,
)


def _check(schema: object, defined: set[str]) -> None:
    """That it is of the subset that every provider takes."""
    assert isinstance(schema, dict)
    assert set(schema) <= KEPT
    assert {"type", "$ref", "anyOf", "oneOf", "allOf"} & set(schema)
    kinds = schema.get("type", [])
    assert set(kinds if isinstance(kinds, list) else [kinds]) <= set(TYPES)
    assert isinstance(schema.get("description", ""), str)
    assert schema.get("enum", [0]) != []
    assert all(isinstance(name, str) for name in schema.get("required", []))
    if "array" in kinds:
        assert "items" in schema
    if "object" in kinds:
        assert "properties" in schema
    if "$ref" in schema:
        assert schema["$ref"] in defined
    inside: list[object] = [schema[key] for key in ("items",) if key in schema]
    if not isinstance(schema.get("additionalProperties", True), bool):
        inside.append(schema["additionalProperties"])
    for key in ("anyOf", "oneOf", "allOf"):
        inside += schema.get(key, [])
    for key in ("properties", "$defs", "definitions"):
        inside += schema.get(key, {}).values()
    for each in inside:
        _check(each, defined)


@given(schemas)
def test_any_schema_becomes_one_that_every_provider_takes(schema: object) -> None:
    made = model_schema(Raw(json.dumps(schema).encode()))
    assert made["type"] == "object"
    assert not {"anyOf", "oneOf", "allOf", "enum", "$ref", "items"} & set(made)
    defined = {f"#/{group}/{name}" for group in ("$defs", "definitions") for name in made.get(group, {})}
    _check(made, defined)
    assert model_schema(Raw(json.dumps(made).encode())) == made


@pytest.mark.parametrize("given_schema", [b"", b"nonsense", b"[]", b"null", b'"text"', b"\xff", b"[" * 5000])
def test_what_is_no_schema_takes_no_arguments(given_schema: bytes) -> None:
    assert model_schema(given_schema) == {"type": "object", "properties": {}}


def _made(schema: dict[str, Any]) -> dict[str, Any]:
    return model_schema(json.dumps(schema).encode())


def test_alternatives_at_the_top_become_properties() -> None:
    made = _made({"type": "object", "oneOf": [{"properties": {"a": {"type": "string"}}}, {"properties": {"b": True}}]})
    assert made == {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}}


def test_a_reference_at_the_top_is_resolved() -> None:
    definition = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    made = _made({"$ref": "#/definitions/Args", "definitions": {"Args": definition}})
    assert made == {**definition, "definitions": {"Args": definition}}


def test_a_reference_to_nothing_is_left_out() -> None:
    assert _made({"properties": {"a": {"$ref": "https://example.com/x"}}})["properties"] == {"a": {"type": "string"}}


def test_a_tuple_is_a_list_of_its_alternatives() -> None:
    made = _made({"properties": {"a": {"type": "array", "items": [{"type": "integer"}, {"type": "string"}]}}})
    assert made["properties"]["a"]["items"] == {"anyOf": [{"type": "integer"}, {"type": "string"}]}


def test_the_type_of_a_constant_is_that_of_its_value() -> None:
    assert _made({"properties": {"a": {"const": 5}}})["properties"]["a"] == {"type": "integer", "enum": [5]}


def test_arguments_whose_names_a_provider_refuses_have_others_for_the_model() -> None:
    schema = {
        "properties": {"$filter": {}, "_filter": {}, "a b": {}, "x" * 70: {}, "": {}, "plain.and-good": {}},
        "required": ["$filter", "plain.and-good"],
    }
    raw = json.dumps(schema).encode()
    made = model_schema(raw)
    assert all(re.fullmatch(r"[a-zA-Z0-9_.-]{1,64}", name) for name in made["properties"])
    assert len(made["properties"]) == 6
    assert {"_filter", "a_b", "plain.and-good"} <= set(made["properties"])
    assert set(made["required"]) <= set(made["properties"])
    written = {name: number for number, name in enumerate(made["properties"])}
    assert list(real_arguments(raw, written)) == list(schema["properties"])
    assert list(real_arguments(raw, written).values()) == list(range(6))


def test_a_schema_that_is_too_large_loses_its_descriptions_and_then_itself() -> None:
    chatty = {f"p{i}": {"type": "string", "description": "x" * 500} for i in range(100)}
    assert _made({"properties": chatty})["properties"] == {name: {"type": "string"} for name in chatty}
    assert _made({"properties": {f"p{i}": {} for i in range(5000)}}) == {"type": "object", "properties": {}}


def test_a_schema_that_is_too_deep_ends_somewhere() -> None:
    schema: dict[str, Any] = {}
    for _ in range(60):
        schema = {"type": "object", "properties": {"a": schema}}
    made = _made(schema)
    _check(made, set())
    assert 20 < json.dumps(made).count("properties") < 40


def test_a_description_cannot_fill_a_request() -> None:
    spec = json.loads(bytes(namespace_spec(NAMES, "other", "x" * 50_000, [offered_tool("echo", "y" * 50_000)])))
    assert len(spec["description"]) == len(spec["tools"][0]["description"]) == 10_000


def test_a_schema_without_measure_costs_no_time() -> None:
    properties = {f"p{number}": {"type": "string"} for number in range(100_000)}
    schema = Raw(json.dumps({"type": "object", "properties": properties}).encode())
    began = time.process_time()
    assert model_schema(schema) == {"type": "object", "properties": {}}
    assert real_arguments(schema, {"unknown": 1}) == {"unknown": 1}
    assert time.process_time() - began < 0.2, "where reading it takes seconds"
