"""`OutputType`: the Python type that the final response of a turn is parsed into.

It owns the schema that is sent with the turn, and parsing the answer. `schemas` knows the types.
"""

from __future__ import annotations

import re
from typing import Any, Final, Generic, TypeVar, cast, overload

from treadle.client.schemas import NotJson, ShapeError, json_schema, read
from treadle.client.sdk_errors import OutputError

T = TypeVar("T")

_FENCED: Final = re.compile(r"^[ \t]*(`{3,}|~{3,})[^\n`]*\n(.*?)\1[ \t]*\r?$", re.DOTALL | re.MULTILINE)
_SHOWN: Final = 80  # an error repeats at most this much of a response


class OutputType(Generic[T]):
    """A type for the final response: a dataclass, msgspec struct, TypedDict, NamedTuple or pydantic model, or plain.

    Raises `TypeError` for a type that model servers cannot be held to, such as `dict[str, int]`.
    """

    __slots__ = ("schema", "wanted")

    wanted: type[T]
    """The Python type."""
    schema: dict[str, Any]
    """Its JSON schema, for the `outputSchema` of a turn. What is no object is the member `value` of one."""

    @overload
    def __init__(self, type_: type[T]) -> None: ...
    @overload
    def __init__(self: OutputType[Any], type_: Any) -> None: ...
    def __init__(self, type_: Any) -> None:
        self.wanted = type_
        self.schema = json_schema(type_, strict=True)

    def __repr__(self) -> str:
        return f"OutputType({_name(self.wanted)})"

    def read(self, text: str | None) -> T:
        """The value in a final response, also if it is inside a Markdown fence. Raises `OutputError`."""
        name = _name(self.wanted)
        if text is None:
            raise OutputError(f"the turn has no final response to read as {name}; see how it ended", None)
        try:
            return cast(T, self._read(text))
        except NotJson as error:
            raise OutputError(
                f"the final response is no JSON, so no {name}: {error.problem}; it is {_start(text)}", text
            ) from None
        except ShapeError as error:
            raise OutputError(f"the final response is no {name}: at {error.place}: {error.problem}", text) from None

    def _read(self, text: str) -> object:
        try:
            return read(text, self.wanted)
        except NotJson:
            fenced = _FENCED.findall(text)
            if len(fenced) != 1:  # with several it would be a guess which one is meant
                raise
            return read(fenced[0][1], self.wanted)


def _name(type_: Any) -> str:
    return type_.__name__ if isinstance(type_, type) and not hasattr(type_, "__args__") else str(type_)


def _start(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "…")
