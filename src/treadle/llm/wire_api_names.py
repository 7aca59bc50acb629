"""The names of the wire APIs: ours, and those that other packages offer as entry points."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP: Final = "treadle.wire_apis"
BUILT_IN: Final = {
    "responses": "treadle.llm.responses",
    "chat": "treadle.llm.chat",
    "anthropic": "treadle.llm.anthropic",
}


def wire_api_names() -> list[str]:
    """All there are, ours first."""
    return [*BUILT_IN, *sorted({name for name in offered() if name not in BUILT_IN})]


def is_wire_api(name: str) -> bool:
    """Whether there is one of this name. Only where it is not ours, other packages are looked at.

    Args:
        name: Such as `responses`.
    """
    return name in BUILT_IN or name in offered()


def offered() -> dict[str, list[EntryPoint]]:
    """The entry points of other packages, by name."""
    from importlib.metadata import entry_points  # only for names that are not built in: 20 ms

    found: dict[str, list[EntryPoint]] = {}
    for point in entry_points(group=GROUP):
        found.setdefault(point.name, []).append(point)
    return found
