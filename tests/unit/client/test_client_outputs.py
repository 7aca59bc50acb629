"""The final response as a Python value: every kind of type, fences, and what is said when it does not fit."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, NamedTuple, TypedDict

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.client import CodexError, OutputError, OutputType


@dataclass
class Line:
    what: str
    price: float


@dataclass
class Bill:
    items: list[Line]
    note: str | None = None


class Report(msgspec.Struct, frozen=True):
    title: str


class Options(TypedDict):
    deep: bool


class Pair(NamedTuple):
    left: int
    right: str


class Model:
    """As a model of pydantic looks from outside."""

    def __init__(self, town: str) -> None:
        self.town = town

    @classmethod
    def model_json_schema(cls) -> dict[str, Any]:
        return {"title": "Model", "type": "object", "properties": {"town": {"type": "string"}}, "required": ["town"]}

    @classmethod
    def model_validate_json(cls, data: str | bytes) -> Model:
        members = json.loads(data)
        if "town" not in members:
            raise ValueError("town is not there")
        return cls(members["town"])


def test_every_kind_of_type() -> None:
    bill: Bill = OutputType(Bill).read('{"items": [{"what": "tea", "price": 2}], "note": null}')
    assert bill == Bill([Line("tea", 2.0)])
    assert OutputType(Report).read('{"title": "t"}') == Report("t")
    assert OutputType(Options).read('{"deep": true}') == {"deep": True}
    assert OutputType(Pair).read('{"value": [1, "r"]}') == Pair(1, "r")
    assert OutputType(Model).read('{"town": "t"}').town == "t"
    numbers: list[int] = OutputType(list[int]).read('{"value": [1]}')
    assert numbers == [1]
    assert OutputType(int | None).read('{"value": null}') is None
    assert OutputType(str).read('{"value": "text"}') == "text"


def test_the_schema_is_what_model_servers_want() -> None:
    assert OutputType(Report).schema == {
        "type": "object",
        "properties": {"title": {"type": "string"}},
        "required": ["title"],
        "additionalProperties": False,
    }
    assert OutputType(list[int]).schema["properties"]["value"] == {"type": "array", "items": {"type": "integer"}}
    with pytest.raises(TypeError, match="dict with any keys"):
        OutputType(dict[str, int])


@pytest.mark.parametrize(
    "text",
    [
        '```json\n{"title": "t"}\n```',
        '\n  ```\n{\n  "title": "t"\n}\n  ```\n\n',
        '~~~\n{"title": "t"}\n~~~',
        '```json\r\n{"title": "t"}\r\n```\r\n',
        '```json\n{"title": "t"}```',
        'Here it is:\n\n```json\n{"title": "t"}\n```\nAnything else?',
    ],
)
def test_a_fence_around_it(text: str) -> None:
    assert OutputType(Report).read(text) == Report("t")


@given(st.text())
def test_any_text_comes_back_with_a_fence_and_without(title: str) -> None:
    text = json.dumps({"title": title}, ensure_ascii=True)
    assert OutputType(Report).read(text) == OutputType(Report).read(f"```json\n{text}\n```") == Report(title)


def test_a_text_with_fences_in_it_is_no_fence() -> None:
    title = "```py\nx\n```"
    assert OutputType(Report).read(json.dumps({"title": title})) == Report(title)


@pytest.mark.parametrize(
    ("type_", "text", "said"),
    [
        (Bill, None, r"no final response to read as Bill"),
        (Bill, "Sorry, I cannot.", r"no JSON, so no Bill: JSON is malformed.*'Sorry, I cannot.'"),
        (Bill, "", r"no JSON"),
        (
            Bill,
            '{"items": [{"what": "tea", "price": "2"}]}',
            r"no Bill: at \$\.items\[0\]\.price: expected `float`, got",
        ),
        (Bill, "{}", r"at \$: object missing required field `items`"),
        (Bill, '```json\n{"items": 1}\n```', r"at \$\.items: expected `array`, got `int`"),
        (Report, '```\n{"title": "a"}\n```\nor\n```\n{"title": "b"}\n```', "no JSON"),
        (list[int], '{"value": ["1"]}', r"no list\[int\]: at \$\.value\[0\]: expected `int`, got `str`"),
        (Model, "{}", r"no Model: at \$: town is not there"),
    ],
)
def test_what_does_not_fit(type_: Any, text: str | None, said: str) -> None:
    with pytest.raises(OutputError, match=said) as caught:
        OutputType(type_).read(text)
    assert caught.value.text == text
    assert isinstance(caught.value, CodexError)


def test_only_the_start_of_a_long_response_is_repeated() -> None:
    with pytest.raises(OutputError) as caught:
        OutputType(Bill).read("x" * 10_000)
    assert len(str(caught.value)) < 300
    assert caught.value.text == "x" * 10_000
