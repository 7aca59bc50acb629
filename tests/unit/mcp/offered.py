"""Tools as servers offer them, for tests of what is made of them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec
from hypothesis import strategies as st
from msgspec import Raw, Struct

DATA: Final = Path(__file__).parents[2] / "data" / "mcp"


class Offered(Struct, frozen=True):
    """What is said of a tool, as `ToolInfo` has it."""

    name: str
    description: str | None = None
    input_schema: Raw = Raw(b'{"type":"object"}')


class _OnTheWire(Struct, frozen=True, rename="camel"):
    name: str
    description: str | None = None
    input_schema: Raw = Raw(b"{}")


def offered(listed: bytes) -> list[Offered]:
    """The tools of a `tools/list`."""
    read = msgspec.json.decode(listed, type=list[_OnTheWire])
    return [Offered(tool.name, tool.description, tool.input_schema) for tool in read]


json_values: Final[st.SearchStrategy[object]] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-9, 9)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=20,
)
