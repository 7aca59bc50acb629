"""Schemas of Python types, strict and plain, and reading values as those types."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, make_dataclass
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from itertools import count
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypedDict

import jsonschema
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta

from treadle.client import NotJson, ShapeError, convert, is_wrapped, object_schema, read, strict_schema


class Colour(Enum):
    RED = "red"
    GREEN = "green"


@dataclass
class Item:
    """Something on sale."""

    name: str
    price: Annotated[float, Meta(description="in euros", ge=0)] = 0.0


@dataclass
class Order:
    items: list[Item]
    main: Annotated[Item, Meta(description="the important one")]
    at: datetime | None = None
    colour: Colour = Colour.RED


@dataclass
class Node:
    label: str
    children: list[Node] = field(default_factory=list)
    best: Annotated[Node, Meta(description="the favourite")] | None = None


class Cat(msgspec.Struct, tag="cat"):
    lives: int


class Dog(msgspec.Struct, tag="dog"):
    tricks: list[str]


class Point(NamedTuple):
    x: int
    label: str = "here"


class Address(TypedDict, total=False):
    street: str


class Lookalike:
    """As a model of pydantic looks from outside."""

    def __init__(self, town: str) -> None:
        self.town = town

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Lookalike) and other.town == self.town

    __hash__ = None  # type: ignore[assignment]

    @classmethod
    def model_json_schema(cls) -> dict[str, Any]:
        return {
            "title": "Lookalike",
            "type": "object",
            "properties": {"town": {"$ref": "#/$defs/Item"}},
            "required": ["town"],
            "$defs": {"Item": {"type": "string", "title": "Town"}},
        }

    @classmethod
    def model_validate_json(cls, data: str | bytes) -> Lookalike:
        town = json.loads(data).get("town")
        if not isinstance(town, str):
            raise LookalikeError
        return cls(town)


class LookalikeError(ValueError):
    def errors(self) -> list[dict[str, Any]]:
        return [{"loc": ("town", 0), "msg": "Input should be a valid string"}]


@dataclass
class Visit:
    where: Lookalike
    bought: Item


def _closed(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


STRICT_ITEM = _closed(
    {"name": {"type": "string"}, "price": {"type": "number", "description": "in euros", "minimum": 0}}
)


# --- schemas ---------------------------------------------------------------------------------------------------------


def test_a_strict_schema_is_closed_and_requires_everything() -> None:
    item = {**STRICT_ITEM, "description": "Something on sale."}
    assert strict_schema(Order) == _closed(
        {
            "items": {"type": "array", "items": item},
            "main": {**STRICT_ITEM, "description": "the important one"},
            "at": {"anyOf": [{"type": "string", "format": "date-time"}, {"type": "null"}]},
            "colour": {"type": "string", "enum": ["green", "red"]},
        }
    )


def test_a_plain_schema_leaves_optional_what_has_a_default() -> None:
    schema = object_schema({"item": Item}, [])["properties"]["item"]
    assert schema["required"] == ["name"]
    assert schema["properties"]["price"]["default"] == 0.0
    assert "additionalProperties" not in schema


def test_recursive_types_keep_their_definitions_and_an_object_at_the_root() -> None:
    schema = strict_schema(Node)
    node = _closed(
        {
            "label": {"type": "string"},
            "children": {"type": "array", "items": {"$ref": "#/$defs/Node"}},
            "best": {
                "anyOf": [
                    {"anyOf": [{"$ref": "#/$defs/Node"}], "description": "the favourite"},
                    {"type": "null"},
                ]
            },
        }
    )
    assert schema == {**node, "$defs": {"Node": node}}
    jsonschema.Draft202012Validator.check_schema(schema)


@pytest.mark.parametrize(
    ("type_", "inner"),
    [
        (int, {"type": "integer"}),
        (list[int], {"type": "array", "items": {"type": "integer"}}),
        (set[str], {"type": "array", "items": {"type": "string"}}),
        (Literal["a", 1], {"enum": [1, "a"], "type": ["integer", "string"]}),
        (Colour, {"enum": ["green", "red"], "type": "string"}),
        (date, {"type": "string", "format": "date"}),
        (time, {"type": "string", "format": "time"}),
        (Decimal, {"type": "string", "description": "As decimal."}),
        (bytes, {"type": "string", "description": "As base64."}),
        (int | None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
        (Path, {"type": "string"}),
        (
            tuple[datetime, datetime],
            {"type": "array", "items": {"type": "string", "format": "date-time"}, "minItems": 2, "maxItems": 2},
        ),
        (
            Point,
            {
                "type": "array",
                "items": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
                "minItems": 2,
                "maxItems": 2,
                "description": "In this order: x, label.",
            },
        ),
        (
            Cat | Dog,
            {
                "anyOf": [
                    _closed({"type": {"enum": ["cat"], "type": "string"}, "lives": {"type": "integer"}}),
                    _closed(
                        {
                            "type": {"enum": ["dog"], "type": "string"},
                            "tricks": {"type": "array", "items": {"type": "string"}},
                        }
                    ),
                ]
            },
        ),
    ],
)
def test_what_is_no_object_is_wrapped(type_: Any, inner: dict[str, Any]) -> None:
    assert is_wrapped(type_)
    assert strict_schema(type_) == _closed({"value": inner})


def test_a_typed_dict_is_an_object() -> None:
    assert not is_wrapped(Address)
    assert strict_schema(Address) == _closed({"street": {"type": "string"}})


@pytest.mark.parametrize(
    ("type_", "said"),
    [
        (make_dataclass("Report", [("prices", dict[str, int])]), "`Report.prices` can be a dict with any keys"),
        (dict, "use a dataclass, or a list of objects that have a key and a value"),
        (make_dataclass("Report", [("all", list[Any])]), r"`Report.all` can be a list of anything.*list\[str\]"),
        (list[dict[str, str]], r"`list\[\]` can be a dict"),
        (object, "can be any value"),
        (complex, "no JSON schema for `complex`"),
        (make_dataclass("Report", [("x", "Nowhere")]), "Nowhere.*at module level"),
    ],
)
def test_what_cannot_be_strict_is_refused_with_advice(type_: Any, said: str) -> None:
    with pytest.raises(TypeError, match=said):
        strict_schema(type_)


def test_members_called_like_keywords_of_schemas_stay() -> None:
    names = ["title", "default", "properties", "anyOf", "description", "items"]
    schema = strict_schema(make_dataclass("Odd", [(name, int) for name in names]))
    assert schema == _closed({name: {"type": "integer"} for name in names})


def test_the_definitions_of_a_model_do_not_meet_those_of_others() -> None:
    schema = strict_schema(Visit)
    assert schema == _closed(
        {
            "where": _closed({"town": {"type": "string"}}),
            "bought": {**STRICT_ITEM, "description": "Something on sale."},
        }
    )


def test_words_of_pydantic_that_model_servers_do_not_know() -> None:
    class Model(Lookalike):
        @classmethod
        def model_json_schema(cls) -> dict[str, Any]:
            options = [{"const": "a", "type": "string"}, {"type": "integer"}]
            members = {
                "either": {"oneOf": options, "discriminator": {"propertyName": "kind"}},
                "alias": {"allOf": [{"type": "string"}], "description": "so", "default": "x"},
            }
            return {"type": "object", "properties": members, "required": [], "additionalProperties": True}

    assert strict_schema(Model) == _closed(
        {
            "either": {"anyOf": [{"const": "a", "type": "string"}, {"type": "integer"}]},
            "alias": {"type": "string", "description": "so"},
        }
    )


def test_an_object_of_members() -> None:
    assert object_schema({"a": int, "b": Any}, ["a"]) == {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {}},
        "required": ["a"],
        "additionalProperties": False,
    }
    assert "Node" in object_schema({"node": Node}, [])["$defs"]


def test_classes_that_cannot_be_told_apart_are_refused() -> None:
    twins = [make_dataclass("Twin", [("x", int)]) for _ in range(2)]
    with pytest.raises(TypeError, match=r"two classes have the name of .*Twin"):
        object_schema({"a": twins[0], "b": twins[1]}, [])


# --- reading ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "type_", "value"),
    [
        ('{"name": "x"}', Item, Item("x")),
        ('{"value": [1, 2]}', list[int], [1, 2]),
        ("[1, 2]", list[int], [1, 2]),
        ('{"value": [3, "there"]}', Point, Point(3, "there")),
        ('{"value": "red"}', Colour, Colour.RED),
        ('{"value": {"type": "dog", "tricks": []}}', Cat | Dog, Dog([])),
        ('{"street": "s", "more": 1}', Address, {"street": "s"}),
        ('{"town": "t"}', Lookalike, Lookalike("t")),
        ('{"value": [{"town": "t"}]}', list[Lookalike], [Lookalike("t")]),
        ('{"value": "/a"}', Path, Path("/a")),
        ('{"1": 2}', dict[int, int], {1: 2}),
    ],
)
def test_reading(text: str, type_: Any, value: object) -> None:
    assert read(text, type_) == value


@pytest.mark.parametrize(
    ("text", "type_", "place", "problem"),
    [
        ('{"name": 1}', Item, "$.name", "expected `str`, got `int`"),
        ('{"name": "x", "price": -1}', Item, "$.price", "expected `float` >= 0.0"),
        ("{}", Item, "$", "object missing required field `name`"),
        ('{"value": [1, "2"]}', list[int], "$.value[1]", "expected `int`, got `str`"),
        ("[true]", list[int], "$[0]", "expected `int`, got `bool`"),
        ("{}", list[int], "$", "object missing required field `value`"),
        ('{"value": [{"town": 1}]}', list[Lookalike], "$.value[0].town[0]", "input should be a valid string"),
        ('{"value": 1}', Path, "$.value", "expected `str`, got `int`"),
        ('{"a": 1}', dict[int, int], "$", "expected `int`, got `str`"),
    ],
)
def test_what_does_not_fit_is_named_with_its_place(text: str, type_: Any, place: str, problem: str) -> None:
    with pytest.raises(ShapeError) as caught:
        read(text, type_)
    assert (caught.value.place, caught.value.problem) == (place, problem)


@pytest.mark.parametrize("text", ["", "no", '{"name": 1', "\ud800", "[" * 100_000, '{"name": "x"} and more'])
def test_what_is_no_json(text: str) -> None:
    with pytest.raises(NotJson):
        read(text, Item)


def test_plain_values_are_converted() -> None:
    given = {"items": [{"name": "x", "price": 1}], "main": {"name": "y"}, "at": "2024-05-06T07:08:09Z"}
    order = convert(given, Order)
    assert isinstance(order, Order)
    assert order.items == [Item("x", 1.0)]
    assert order.at is not None
    assert order.at.year == 2024
    assert convert({"where": {"town": "t"}, "bought": {"name": "b"}}, Visit) == Visit(Lookalike("t"), Item("b"))
    anything = object()
    assert convert(anything, object) is anything


# --- any type --------------------------------------------------------------------------------------------------------

_LEAVES = st.sampled_from(
    [
        (int, st.integers(-(2**53), 2**53)),
        (float, st.floats(-1e9, 1e9)),
        (bool, st.booleans()),
        (str, st.text(max_size=5)),
        (Colour, st.sampled_from(list(Colour))),
        (Literal["a", "b"], st.sampled_from(["a", "b"])),
        (date, st.dates()),
        (Item, st.builds(Item, st.text(max_size=5), st.floats(0, 1e9))),
    ]
)


_NUMBERS = count()


def _larger(kinds: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    def record(members: list[Any]) -> Any:
        # msgspec tells classes apart by their names.
        cls = make_dataclass(f"Record{next(_NUMBERS)}", [(f"m{at}", type_) for at, (type_, _) in enumerate(members)])
        return cls, st.tuples(*(values for _, values in members)).map(lambda given: cls(*given))

    return st.one_of(
        kinds.map(lambda kind: (list.__class_getitem__(kind[0]), st.lists(kind[1], max_size=3))),
        kinds.map(lambda kind: (kind[0] | None, st.none() | kind[1])),
        st.lists(kinds, max_size=3).map(record),
        st.tuples(kinds, kinds).map(
            lambda pair: (tuple.__class_getitem__((pair[0][0], pair[1][0])), st.tuples(pair[0][1], pair[1][1]))
        ),
    )


@given(st.recursive(_LEAVES, _larger, max_leaves=5), st.data())
def test_any_value_of_any_type_fits_its_strict_schema_and_comes_back(kind: Any, data: st.DataObject) -> None:
    type_, values = kind
    value = data.draw(values)
    schema = strict_schema(type_)
    sent = msgspec.to_builtins({"value": value} if is_wrapped(type_) else value)
    validator = jsonschema.Draft202012Validator(schema)
    validator.check_schema(schema)
    # As JSON has it: a tuple is a list.
    validator.validate(json.loads(json.dumps(sent)))
    assert read(json.dumps(sent), type_) == value
    _assert_strict(schema)


def _assert_strict(schema: dict[str, Any]) -> None:
    if "properties" in schema:
        assert schema["additionalProperties"] is False
        assert schema["required"] == list(schema["properties"])
    assert not schema.keys() & {"default", "title", "prefixItems", "oneOf", "uniqueItems"}
    inside = [*schema.get("properties", {}).values(), *schema.get("anyOf", ()), *schema.get("$defs", {}).values()]
    for inner in [*inside, *([schema["items"]] if "items" in schema else [])]:
        _assert_strict(inner)
