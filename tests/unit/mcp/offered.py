"""Tools as servers offer them, for tests of what is made of them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec
from hypothesis import strategies as st
from msgspec import Raw

from treadle.mcp import ToolInfo, read_tool

DATA: Final = Path(__file__).parents[2] / "data" / "mcp"


def offered_tool(name: str, description: str | None = None) -> ToolInfo:
    return ToolInfo(name=name, description=description, input_schema=Raw(b'{"type":"object"}'))


def offered(listed: bytes) -> list[ToolInfo]:
    """The tools of a `tools/list`."""
    return [read_tool(raw) for raw in msgspec.json.decode(listed, type=list[Raw])]


json_values: Final[st.SearchStrategy[object]] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-9, 9)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=20,
)
