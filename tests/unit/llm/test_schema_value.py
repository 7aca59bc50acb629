"""A value for a schema: judged by `jsonschema`, over schemas made of what answers are made of."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from treadle.llm import schema_value

Json = dict[str, Any]
NAMES = st.sampled_from(["a", "b", "c d", "e/f"])


def fits(schema: Any, value: Any) -> None:
    Draft202012Validator.check_schema(schema)
    errors = [error.message for error in Draft202012Validator(schema).iter_errors(value)]
    assert not errors, (json.dumps(schema), value, errors)


@st.composite
def texts(draw: st.DrawFn) -> Json:
    least = draw(st.integers(0, 20))
    schema: Json = {"type": "string", "minLength": least}
    return {**schema, "maxLength": least + draw(st.integers(0, 20))} if draw(st.booleans()) else schema


@st.composite
def numbers(draw: st.DrawFn) -> Json:
    whole, low = draw(st.booleans()), draw(st.integers(-20, 20))
    schema: Json = {"type": "integer" if whole else "number"}
    if draw(st.booleans()):
        schema[draw(st.sampled_from(["minimum", "exclusiveMinimum"]))] = low
    if draw(st.booleans()):
        schema[draw(st.sampled_from(["maximum", "exclusiveMaximum"]))] = low + draw(st.integers(7, 20))
    if draw(st.booleans()):
        schema["multipleOf"] = draw(st.sampled_from([1, 2, 3]))
    return schema


FLAT = (
    texts()
    | numbers()
    | st.sampled_from(
        [
            {"type": "boolean"},
            {"type": "null"},
            {"const": [1, {"x": None}]},
            {"enum": ["x", "y"]},
            {"type": ["null", "string"]},
            {"type": "string", "format": "date-time"},
            {"$ref": "#/$defs/node"},
            {"$ref": "#/$defs/word"},
            {},
            True,
        ]
    )
)
# A list that goes on for as long as one likes, and a word with a slash and a tilde in its name.
DEFINITIONS = {
    "node": {
        "type": "object",
        "properties": {
            "value": {"$ref": "#/$defs/a~1b~0c"},
            "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]},
        },
        "required": ["value", "next"],
        "additionalProperties": False,
    },
    "word": {"allOf": [{"type": "string"}, {"minLength": 3}, {"maxLength": 9}]},
    "a/b~c": {"type": "integer", "minimum": 2},
}


def _deeper(below: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return arrays(below) | objects(below) | st.builds(lambda one, two: {"anyOf": [one, two]}, below, below)


@st.composite
def arrays(draw: st.DrawFn, below: st.SearchStrategy[Any]) -> Json:
    return {"type": "array", "items": draw(below), "minItems": draw(st.integers(0, 3)), "maxItems": 3}


@st.composite
def objects(draw: st.DrawFn, below: st.SearchStrategy[Any]) -> Json:
    members = draw(st.dictionaries(NAMES, below, max_size=3))
    required = draw(st.lists(st.sampled_from(sorted(members)), unique=True)) if members else []
    closed = {"additionalProperties": False} if draw(st.booleans()) else {}
    return {"type": "object", "properties": members, "required": required, **closed}


@given(st.recursive(FLAT, _deeper, max_leaves=12), st.text(max_size=40))
def test_it_fits(schema: Any, words: str) -> None:
    whole = {"$defs": DEFINITIONS, **schema} if isinstance(schema, dict) else schema
    value = schema_value(whole, words)
    fits(whole, value)
    json.dumps(value)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "integer"}}}, {"a": "words", "b": 0}),
        ({"type": "array", "items": {"type": "boolean"}, "minItems": 2}, [False, False]),
        ({"anyOf": [{"type": "null"}, {"type": "number", "minimum": 5}]}, 5),
        ({"type": "object", "allOf": [{"properties": {"a": {"const": 1}}}, {"required": ["a"]}]}, {"a": 1}),
        ({"type": ["null", "string"]}, "words"),
        ("?", None),
        ({"$ref": "https://example.com/elsewhere"}, None),
        ({"$ref": "#"}, None),
    ],
)
def test_a_value_of_a_form(schema: Any, value: object) -> None:
    assert schema_value(schema, "words") == value


def test_words_are_cut_between_words() -> None:
    assert schema_value({"type": "string", "maxLength": 12}, "mend the leaking roof") == "mend the"
    assert schema_value({"type": "string", "maxLength": 4}, "mendtheroof") == "mend"


def test_a_schema_without_an_end_gets_a_value_all_the_same() -> None:
    endless = {"type": "object", "properties": {"x": {"$ref": "#"}}, "required": ["x"]}
    assert json.dumps(schema_value(endless, ""))
    assert json.dumps(schema_value({"type": "array", "minItems": 10**9, "items": {}}, ""))
    doubling = {"type": "object", "properties": {"x": {"$ref": "#"}, "y": {"$ref": "#"}}, "required": ["x", "y"]}
    assert len(json.dumps(schema_value(doubling, ""))) < 1_000_000
