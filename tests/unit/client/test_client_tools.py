"""Functions as tools: what the model is told, what it may send, and what it gets back."""

from __future__ import annotations

import asyncio
import functools
from base64 import b64decode
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from enum import Enum, StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta

from treadle.client import MAX_TEXT_BYTES, Tool, ToolCallError, tools_by_name
from treadle.protocol.app import (
    FunctionDynamicToolSpec,
    InputImageDynamicToolCallOutputContentItem,
    InputTextDynamicToolCallOutputContentItem,
)

if TYPE_CHECKING:
    from decimal import Decimal


@dataclass
class Place:
    """A place on Earth."""

    town: str
    country: str = "fr"


class Unit(Enum):
    C = "celsius"
    F = "fahrenheit"


def get_weather(place: Place, unit: Unit = Unit.C, days: int = 1) -> str:
    """The weather at a place.

    Up to ten days ahead.

    Args:
        place: Where. One of
            the places: known or not.
        unit (Unit, optional): Of the temperature.

    Returns:
        A sentence.
    """
    return f"{place.town} {unit.name} {days}"


WEATHER = Tool(get_weather)


def _texts(tool: Tool, value: object) -> list[str]:
    items = tool.content(value)
    assert all(isinstance(item, InputTextDynamicToolCallOutputContentItem) for item in items)
    return [item.text for item in items if isinstance(item, InputTextDynamicToolCallOutputContentItem)]


# --- what the model is told ------------------------------------------------------------------------------------------


def test_the_spec_of_a_function() -> None:
    assert WEATHER.spec() == FunctionDynamicToolSpec(
        name="get_weather",
        description="The weather at a place.\n\nUp to ten days ahead.",
        input_schema={
            "type": "object",
            "properties": {
                "place": {
                    "type": "object",
                    "description": "Where. One of the places: known or not.",
                    "properties": {"town": {"type": "string"}, "country": {"type": "string", "default": "fr"}},
                    "required": ["town"],
                },
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "description": "Of the temperature."},
                "days": {"type": "integer"},
            },
            "required": ["place"],
            "additionalProperties": False,
        },
    )
    assert repr(WEATHER) == "Tool('get_weather')"


def google(first: int, second: int) -> None:
    """What it does: all of it.

    Args:
        first: The first.

            It goes on.
        second: A dict: really.
        third: Of nobody.
    Raises:
        second: never
    """


def rest(first: int, second: int) -> None:
    """What it does: all of it.

    :param first: The first.
        It goes on.
    :type first: int
    :param int second: A dict: really.
    :returns: nothing
    """


def numpy(first: int, second: int) -> None:
    """What it does: all of it.

    Parameters
    ----------
    first : int
        The first.

        It goes on.
    second : int, optional
        A dict: really.

    Returns
    -------
    first
        No parameter.
    """


def annotated(
    first: Annotated[int, Meta(description="The first. It goes on.")],
    second: Annotated[int, Meta(description="A dict: really.")],
) -> None:
    """What it does: all of it.

    Args:
        first: What is said at the parameter counts.
    """


@pytest.mark.parametrize("function", [google, rest, numpy, annotated])
def test_descriptions_in_every_style(function: Callable[..., Any]) -> None:
    tool = Tool(function)
    assert tool.description == "What it does: all of it."
    properties = tool.input_schema["properties"]
    assert properties["first"]["description"] == "The first. It goes on."
    assert properties["second"]["description"] == "A dict: really."


def test_several_parameters_of_one_description() -> None:
    def scale(x: float, y: float) -> None:
        """Parameters
        ----------
        x, y : float
            Along the axis.
        """

    tool = Tool(scale)
    assert tool.description == ""
    assert [schema["description"] for schema in tool.input_schema["properties"].values()] == ["Along the axis."] * 2


@given(st.text(alphabet=st.sampled_from("ab :-\n`(),Args:Parameters\n---- :param a:"), max_size=80))
def test_any_docstring_can_be_read(text: str) -> None:
    def function(a: int) -> None: ...

    function.__doc__ = text
    assert Tool(function).input_schema["required"] == ["a"]


def test_no_docstring_no_parameters() -> None:
    def ping() -> None: ...

    tool = Tool(ping)
    assert tool.description == ""
    assert tool.input_schema == {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
    assert tool.arguments(None) == tool.arguments({}) == {}


def test_name_and_description_can_be_given() -> None:
    tool = Tool(lambda x: x, name="same-again", description="The same again.")
    assert (tool.name, tool.description) == ("same-again", "The same again.")
    assert tool.input_schema["properties"] == {"x": {}}
    assert tool.call({"x": [1]}) == [1]


def test_what_only_a_type_checker_knows_may_be_returned() -> None:
    def price() -> Decimal: ...  # type: ignore[empty-body]

    assert Tool(price).name == "price"


def unresolved(price: Decimal) -> None: ...


def test_an_annotation_that_cannot_be_resolved() -> None:
    with pytest.raises(TypeError, match=r"`unresolved`.*'Decimal' is not defined.*at module level"):
        Tool(unresolved)


# --- what can be a tool ----------------------------------------------------------------------------------------------


class Thermometer:
    """Measures."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def measure(self, room: str) -> int:
        """How warm it is."""
        self.asked.append(room)
        return 20

    def __call__(self, room: Literal["hall", "attic"]) -> int:
        return self.measure(room)

    @staticmethod
    def kind(detail: int = 1) -> str:
        """Which it is."""
        return "mercury" * detail


def test_a_bound_method() -> None:
    thermometer = Thermometer()
    tool = Tool.of(thermometer.measure)
    assert (tool.name, tool.description, list(tool.input_schema["properties"])) == (
        "measure",
        "How warm it is.",
        ["room"],
    )
    assert tool.call({"room": "hall"}) == 20
    assert thermometer.asked == ["hall"]
    assert Tool.of(thermometer.kind).call({}) == "mercury"


def test_a_callable_object() -> None:
    tool = Tool.of(Thermometer())
    assert (tool.name, tool.description) == ("Thermometer", "Measures.")
    assert tool.input_schema["properties"] == {"room": {"type": "string", "enum": ["attic", "hall"]}}


def test_a_partial_hides_what_it_sets() -> None:
    bound = functools.partial(get_weather, unit=Unit.F)
    tool = Tool(bound, name="weather_f")
    assert tool.description.startswith("The weather at a place.")
    assert list(tool.input_schema["properties"]) == ["place", "days"]
    assert tool.call({"place": {"town": "x"}, "days": 2}) == "x F 2"
    with pytest.raises(ToolCallError, match="no parameter `unit`"):
        tool.call({"place": {"town": "x"}, "unit": "celsius"})
    with pytest.raises(ValueError, match=r"a partial has no name.*Tool\(f, name=\.\.\.\)"):
        Tool.of(bound)
    bound.__name__ = "weather_f"  # type: ignore[attr-defined]
    assert Tool.of(bound).name == "weather_f"
    first = functools.partial(get_weather, Place("y"))
    assert Tool(first, name="here").call({}) == "y C 1"


def test_a_wrapped_function_and_a_tool() -> None:
    @functools.wraps(get_weather)
    def logged(*args: Any, **kwargs: Any) -> str:
        return get_weather(*args, **kwargs)

    tool = Tool.of(logged)
    assert tool.spec() == WEATHER.spec()
    assert tool.call({"place": {"town": "x"}}) == "x C 1"
    assert Tool.of(tool) is tool


def test_an_asynchronous_function() -> None:
    async def double(x: int) -> int:
        return 2 * x

    assert asyncio.run(Tool(double).call({"x": 4})) == 8


def _variable(*values: int) -> None: ...
def _keywords(**values: int) -> None: ...
def _positional(value: int, /) -> None: ...
def _generator() -> Any:
    yield 1


async def _async_generator() -> AsyncIterator[int]:
    yield 1


def _impossible(value: complex) -> None: ...


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (_variable, r"takes \*values.*name its parameters"),
        (_keywords, r"takes \*\*values.*name its parameters"),
        (_positional, "`value` of the tool `_positional` is positional-only"),
        (_generator, "is a generator"),
        (_async_generator, "is a generator"),
        (_impossible, "`_impossible` has a parameter that cannot be described: .*`complex`"),
        (Thermometer, "cannot be a tool"),
        ("get_weather", "cannot be a tool"),
    ],
)
def test_what_the_model_cannot_call(function: Any, said: str) -> None:
    with pytest.raises(TypeError, match=said):
        Tool(function)


def test_positional_only_with_a_default_is_left_alone() -> None:
    def function(hidden: int = 3, /, seen: int = 4) -> int:
        return hidden + seen

    tool = Tool(function)
    assert list(tool.input_schema["properties"]) == ["seen"]
    assert tool.call({"seen": 1}) == 4


@pytest.mark.parametrize("name", ["", "a b", "ä", "x" * 65, "<lambda>", "a\n"])
def test_names_that_no_tool_can_have(name: str) -> None:
    with pytest.raises(ValueError, match=r"is no name for a tool.*Tool\(f, name=\.\.\.\)"):
        Tool(get_weather, name=name)


def test_tools_by_name() -> None:
    assert list(tools_by_name([get_weather, Tool(get_weather, name="again")])) == ["get_weather", "again"]
    with pytest.raises(ValueError, match="two tools are called `get_weather`"):
        tools_by_name([get_weather, WEATHER])


# --- what the model sends --------------------------------------------------------------------------------------------


def test_arguments_become_what_the_annotations_say() -> None:
    given = {"place": {"town": "Lyon"}, "unit": "fahrenheit"}
    assert WEATHER.arguments(given) == {"place": Place("Lyon"), "unit": Unit.F}
    assert WEATHER.call(given) == "Lyon F 1"


def _later(at: datetime, files: list[Path], note: str = None) -> Any:  # type: ignore[assignment]  # noqa: RUF013
    return at, files, note


def test_values_that_json_has_no_type_for() -> None:
    tool = Tool(_later)
    found = tool.call({"at": "2024-05-06T07:08:09Z", "files": ["/a"], "note": None})
    assert found == (datetime(2024, 5, 6, 7, 8, 9, tzinfo=timezone.utc), [Path("/a")], None)  # noqa: UP017
    assert tool.input_schema["properties"]["at"] == {"type": "string", "format": "date-time"}


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        ({}, r"the parameter `place` is missing: expected object \(Where\. One of the places: known or not\.\)"),
        ({"place": {}}, "`place`: object missing required field `town`"),
        ({"place": {"town": 1}}, r"`place\.town`: expected `str`, got `int`"),
        ({"place": {"town": "x"}, "days": "2"}, "`days`: expected `int`, got `str`"),
        ({"place": {"town": "x"}, "unit": "kelvin"}, "`unit`: invalid enum value 'kelvin'"),
        (
            {"place": {"town": "x"}, "when": 1},
            "there is no parameter `when`; the parameters are `place`, `unit`, `days`",
        ),
        ({"days": None}, "the parameter `place` is missing.*; `days`: expected `int`, got `null`"),
        ([1], "takes an object with its parameters, got list"),
        ("{}", "takes an object with its parameters, got str"),
    ],
)
def test_a_wrong_call_is_explained_to_the_model(sent: Any, said: str) -> None:
    with pytest.raises(ToolCallError, match=f"^`get_weather` .*{said}$"):
        WEATHER.call(sent)


# --- what the model gets back ----------------------------------------------------------------------------------------

IMAGES = [
    ("image/png", b"\x89PNG\r\n\x1a\n..."),
    ("image/jpeg", b"\xff\xd8\xff\xe0..."),
    ("image/gif", b"GIF89a..."),
    ("image/webp", b"RIFF\n\x00\x00\x00WEBP..."),
]
ITEM = InputTextDynamicToolCallOutputContentItem(text="item")


class Dumped:
    def model_dump_json(self) -> str:
        return '{"a":1}'


class Opaque:
    def __str__(self) -> str:
        return "opaque"


class Level(StrEnum):
    HIGH = "high"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("as it is", "as it is"),
        ("half \ud800", "half ?"),
        (Level.HIGH, "high"),
        (None, ""),
        (1.5, "1.5"),
        ({"a": [1, None], 2: True}, '{"a":[1,null],"2":true}'),
        (Place("x"), '{"town":"x","country":"fr"}'),
        (["a", "b"], '["a","b"]'),
        ([], "[]"),
        (["a", None], '["a",null]'),
        (Dumped(), '{"a":1}'),
        ([Dumped(), Path("/p")], '[{"a":1},"/p"]'),
        (Opaque(), "opaque"),
        (Path("/p"), "/p"),
        ({(1, 2): 3}, '{"(1, 2)":3}'),
        (b"no image", '"bm8gaW1hZ2U="'),
        (2**80, str(2**80)),
    ],
)
def test_values_as_text(value: object, text: str) -> None:
    assert _texts(WEATHER, value) == [text]


def test_a_value_inside_itself() -> None:
    endless: list[object] = []
    endless.append(endless)
    assert _texts(WEATHER, endless) == ["[[...]]"]


@pytest.mark.parametrize(("media_type", "data"), IMAGES)
def test_images(media_type: str, data: bytes) -> None:
    for given_as in (data, bytearray(data), memoryview(data)):
        (item,) = WEATHER.content(given_as)
        assert isinstance(item, InputImageDynamicToolCallOutputContentItem)
        head, _, body = item.image_url.partition(",")
        assert head == f"data:{media_type};base64"
        assert b64decode(body) == data


def test_content_items_and_lists_of_them() -> None:
    assert WEATHER.content(ITEM) == (ITEM,)
    text, item, image = WEATHER.content(["caption", ITEM, IMAGES[0][1]])
    assert text == InputTextDynamicToolCallOutputContentItem(text="caption")
    assert item is ITEM
    assert isinstance(image, InputImageDynamicToolCallOutputContentItem)


@given(st.integers(-2, 2), st.sampled_from(["x", "é", "€", "😀"]))
def test_a_long_text_is_cut_between_characters_and_says_so(more: int, letter: str) -> None:
    size = len(letter.encode())
    count = MAX_TEXT_BYTES // size + more
    (text,) = _texts(WEATHER, letter * count)
    if count * size <= MAX_TEXT_BYTES:
        assert text == letter * count
        return
    kept, _, note = text.partition("\n")
    assert set(kept) == {letter}
    assert MAX_TEXT_BYTES - size < len(kept.encode()) <= MAX_TEXT_BYTES
    assert note == f"[cut here: {count * size - len(kept.encode())} of {count * size} bytes are missing]"


def test_failures() -> None:
    def said(error: Exception) -> str:
        (item,) = WEATHER.failure(error)
        assert isinstance(item, InputTextDynamicToolCallOutputContentItem)
        return item.text

    assert said(ToolCallError("try again")) == "try again"
    assert said(ZeroDivisionError("division by zero")) == "ZeroDivisionError: division by zero"
    assert said(RuntimeError()) == "RuntimeError"
    assert len(said(ValueError("x" * 2 * MAX_TEXT_BYTES))) < MAX_TEXT_BYTES + 100


def test_a_spec_can_be_sent() -> None:
    sent = msgspec.json.decode(msgspec.json.encode(WEATHER.spec()))
    assert sent["type"] == "function"
    assert sent["inputSchema"] == WEATHER.input_schema
