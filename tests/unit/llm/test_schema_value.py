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


FLAT = (
    st.integers(0, 20).map(lambda least: {"type": "string", "minLength": least, "maxLength": least + 3})
    | st.integers(-20, 20).map(lambda low: {"type": "integer", "minimum": low})
    | st.sampled_from(
        [
            {"type": "number"},
            {"type": "boolean"},
            {"type": "null"},
            {"const": [1, {"x": None}]},
            {"enum": ["x", "y"]},
            {"type": ["null", "string"]},
            {"type": "string", "format": "date-time"},
            {"$ref": "#/$defs/node"},
            {},
        ]
    )
)
# A list that goes on for as long as one likes.
DEFINITIONS = {
    "node": {
        "type": "object",
        "properties": {
            "value": {"$ref": "#/$defs/count"},
            "next": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/node"}]},
        },
        "required": ["value", "next"],
        "additionalProperties": False,
    },
    "count": {"type": "integer", "minimum": 2},
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
def test_it_fits(schema: Json, words: str) -> None:
    whole = {"$defs": DEFINITIONS, **schema}
    value = schema_value(whole, words)
    fits(whole, value)
    json.dumps(value)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "integer"}}}, {"a": "words", "b": 0}),
        ({"type": "array", "items": {"type": "boolean"}, "minItems": 2}, [False, False]),
        ({"anyOf": [{"type": "number", "minimum": 5}, {"type": "null"}]}, 5),
        ({"properties": {"a": {"const": 1}}, "required": ["a", "b"]}, {"a": 1, "b": None}),
        ("?", None),
        ({"$ref": "https://example.com/elsewhere"}, None),
        ({"$ref": "#"}, None),
        (True, None),
    ],
)
def test_a_value_of_a_form(schema: Any, value: object) -> None:
    assert schema_value(schema, "words") == value


def test_a_schema_without_an_end_gets_a_value_all_the_same() -> None:
    endless = {"type": "object", "properties": {"x": {"$ref": "#"}}, "required": ["x"]}
    assert json.dumps(schema_value(endless, ""))
    many: Json = {"type": "array", "minItems": 10**9, "items": {"type": "string", "minLength": 10**9}}
    for _ in range(6):
        many = {**many, "items": many}
    assert len(json.dumps(schema_value(many, ""))) < 2_000_000
    doubling = {"type": "object", "properties": {"x": {"$ref": "#"}, "y": {"$ref": "#"}}, "required": ["x", "y"]}
    assert len(json.dumps(schema_value(doubling, ""))) < 1_000_000
