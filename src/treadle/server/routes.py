"""From the record of a method to the function that handles it. Modules are loaded when one of their methods is first
called."""

from __future__ import annotations

from importlib import import_module
from inspect import iscoroutinefunction
from typing import Any, Final

from treadle.protocol.app.methods import RECORDS

METHOD_NAMES: Final = tuple(name for name, record in RECORDS.items() if record.handler is not None)
EXPERIMENTAL_NOTIFICATIONS: Final = frozenset({"thread/settings/updated"})


class Route:
    __slots__ = ("experimental", "handler", "is_async", "method", "params", "params_optional")

    def __init__(self, method: str, handler: str) -> None:
        record = RECORDS[method]
        module, _, name = handler.partition(".")
        self.method: str = method
        self.handler: Any = getattr(import_module(f"treadle.server.methods.{module}"), name)
        self.is_async: bool = iscoroutinefunction(self.handler)
        self.params: Any = record.params
        self.params_optional: bool = record.params_optional
        self.experimental: bool = record.experimental


class _Routes(dict[str, Route]):
    """Those of the methods that were called; the others are made by `routes[method]`."""

    def __missing__(self, method: str) -> Route:
        record = RECORDS.get(method)
        if record is None or record.handler is None:
            raise KeyError(method)
        route = self[method] = Route(method, record.handler)
        return route


ROUTES: Final = _Routes()
