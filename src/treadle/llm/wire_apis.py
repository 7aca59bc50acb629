"""Which wire APIs there are: those of this package, and those that other packages offer as entry points.

An entry point of the group `treadle.wire_apis` has the API's name and leads to a `WireApi`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

from treadle.errors import TreadleError
from treadle.llm.wire_api import WireApi

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP: Final = "treadle.wire_apis"
BUILT_IN: Final = {
    "responses": "treadle.llm.responses",
    "chat": "treadle.llm.chat",
    "anthropic": "treadle.llm.anthropic",
}


class UnknownWireApi(TreadleError):
    """There is no such wire API, or it cannot be loaded."""


def wire_api_names() -> list[str]:
    """All there are, ours first."""
    return [*BUILT_IN, *sorted({name for name in _offered() if name not in BUILT_IN})]


def is_wire_api(name: str) -> bool:
    """Whether there is one of this name. Only where it is not ours, other packages are looked at.

    Args:
        name: Such as `responses`.
    """
    return name in BUILT_IN or name in _offered()


def find_wire_api(name: str) -> WireApi:
    """The wire API of this name. Raises `UnknownWireApi`.

    Args:
        name: Such as `responses`.
    """
    if name in BUILT_IN:
        found: WireApi = import_module(BUILT_IN[name]).WIRE_API
        return found
    points = _offered().get(name, [])
    if len(points) != 1:
        why = f"is offered by {len(points)} packages" if points else f"is not one of {', '.join(wire_api_names())}"
        raise UnknownWireApi(f"the wire API {name!r} {why}")
    try:
        loaded = points[0].load()
    except Exception as error:
        raise UnknownWireApi(f"the wire API {name!r} cannot be loaded: {error!r}") from error
    if not isinstance(loaded, WireApi) or loaded.name != name:
        raise UnknownWireApi(f"{points[0].value} is not the WireApi {name!r}")
    return loaded


def _offered() -> dict[str, list[EntryPoint]]:
    from importlib.metadata import entry_points

    found: dict[str, list[EntryPoint]] = {}
    for point in entry_points(group=GROUP):
        found.setdefault(point.name, []).append(point)
    return found
