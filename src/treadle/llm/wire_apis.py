"""Finds a wire API by its name and loads it.

An entry point in the group `treadle.wire_apis` has the API's name and refers to a `WireApi`.
"""

from __future__ import annotations

from importlib import import_module

from treadle.errors import TreadleError
from treadle.llm.wire_api import WireApi
from treadle.llm.wire_api_names import BUILT_IN, offered, wire_api_names


class UnknownWireApi(TreadleError):
    """There is no such wire API, or it cannot be loaded."""


def find_wire_api(name: str) -> WireApi:
    """The wire API of this name. Raises `UnknownWireApi`.

    Args:
        name: Such as `responses`.
    """
    if name in BUILT_IN:
        found: WireApi = import_module(BUILT_IN[name]).WIRE_API
        return found
    points = offered().get(name, [])
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
