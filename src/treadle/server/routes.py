"""From the name of a method to the function that handles it, and what requests are refused with before they get there.

Modules of handlers are loaded when one of their methods is first called.
"""

from __future__ import annotations

import re
from importlib import import_module
from inspect import iscoroutinefunction
from typing import Any, Final

import msgspec

from treadle.errors import INVALID_REQUEST, RpcError
from treadle.protocol.app.methods import RECORDS
from treadle.rpc.message import TOO_DEEP

METHOD_NAMES: Final = tuple(name for name, record in RECORDS.items() if record.handler is not None)
EXPERIMENTAL_NOTIFICATIONS: Final = frozenset({"thread/settings/updated"})


class MethodRoute:
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


class _Routes(dict[str, MethodRoute]):
    """The routes of the methods that were called; the others are made by `routes[method]`."""

    def __missing__(self, method: str) -> MethodRoute:
        record = RECORDS.get(method)
        if record is None or record.handler is None:
            raise KeyError(method)
        route = self[method] = MethodRoute(method, record.handler)
        return route


ROUTES: Final = _Routes()


# --- what is refused, in the words that clients know ------------------------------------------------------------------


_MISSING: Final = re.compile(r"Object missing required field `([^`]+)`( - at .*)?")
_WORD: Final = re.compile(r"Invalid (?:enum )?value (.+?)( - at .*)?")
# Members of params that need the capability, as the refusal names them.
_EXPERIMENTAL_MEMBERS: Final = (
    ("dynamic_tools", "dynamicTools"),
    ("collaboration_mode", "collaborationMode"),
    ("environments", "environments"),
    ("permissions", "permissions"),
    ("runtime_workspace_roots", "runtimeWorkspaceRoots"),
    ("permission_profile", "permissionProfile"),
)
_UUID: Final = re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}|[0-9a-fA-F]{32}")
_SHOWN: Final = 200


def unknown_method(method: str) -> RpcError:
    known = ", ".join(f"`{name}`" for name in METHOD_NAMES)
    return RpcError(INVALID_REQUEST, f"Invalid request: unknown variant `{method[:_SHOWN]}`, expected one of {known}")


def bad_params(error: msgspec.ValidationError) -> RpcError:
    text = str(error)
    if found := _MISSING.fullmatch(text):
        text = f"missing field `{found[1]}`{found[2] or ''}"
    elif found := _WORD.fullmatch(text):
        text = f"unknown variant `{found[1].strip(chr(39))}`{found[2] or ''}"
    return RpcError(INVALID_REQUEST, f"Invalid request: {text}")


def too_deep() -> RpcError:
    return RpcError(INVALID_REQUEST, f"Invalid request: params are {TOO_DEEP}")


NUL: Final = b"\\u0000"
"""How JSON writes the character; the same letters behind a backslash are none."""


def refuse_nul(method: str, given: bytes) -> None:
    """Raises for a text with a NUL character in params: no path, program or environment can have one. Injected items
    are what others wrote, and only models read them."""
    if method != "thread/inject_items":
        place = _find_nul(msgspec.json.decode(given), "params")
        if place is not None:
            raise RpcError(INVALID_REQUEST, f"Invalid request: `{place}` has a NUL character: leave it out")


def _find_nul(value: Any, place: str) -> str | None:
    if isinstance(value, str):
        return place if "\0" in value else None
    if isinstance(value, dict):
        if any("\0" in name for name in value):
            return f"a name in {place}"
        found = (_find_nul(member, f"{place}.{name}") for name, member in value.items())
    elif isinstance(value, list):
        found = (_find_nul(member, f"{place}[{index}]") for index, member in enumerate(value))
    else:
        return None
    return next((each for each in found if each is not None), None)


def refuse_experimental(route: MethodRoute, params: Any) -> None:
    """Raises for what the client has to ask for at `initialize`."""
    if route.experimental:
        raise _needs_capability(route.method)
    for member, shown in _EXPERIMENTAL_MEMBERS:
        if getattr(params, member, None) is not None:
            raise _needs_capability(f"{route.method}.{shown}")
    # Anything but a word is the granular policy.
    if not isinstance(getattr(params, "approval_policy", None), str | None):
        raise _needs_capability("askForApproval.granular")


def _needs_capability(what: str) -> RpcError:
    return RpcError(INVALID_REQUEST, f"{what} requires experimentalApi capability")


def check_thread_id(thread_id: str, noun: str = "thread") -> str:
    """The id in its usual form. Raises for what is no UUID."""
    if _UUID.fullmatch(thread_id) is None:
        shown = thread_id[:_SHOWN]
        raise RpcError(INVALID_REQUEST, f"invalid {noun} id: expected a UUID, found `{shown}`")
    return thread_id.lower()
