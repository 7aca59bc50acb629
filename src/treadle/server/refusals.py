"""What requests are refused with, in the words that clients know."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from treadle.errors import INVALID_REQUEST, RpcError
from treadle.rpc.nesting import TOO_DEEP
from treadle.server.routes import METHOD_NAMES, Route

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


def refuse_experimental(route: Route, params: Any) -> None:
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
