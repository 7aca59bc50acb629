"""What both clients do with a request before sending it, and with the answer. Pure."""

from __future__ import annotations

import math
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Raw, Struct

from treadle.client.sdk_errors import CodexError, RequestTimeout
from treadle.protocol.app.base import decode
from treadle.protocol.app.turns import TurnStartResponse

T = TypeVar("T")


# These run something for the caller, which may legitimately take any time.
_OPEN_ENDED: Final = frozenset({"command/exec", "mcpServer/tool/call"})


def request_timeout(method: str, given: float | None, usual: float | None) -> float | None:
    """How long to wait for an answer: `given` (may be infinite), else the default. None means no limit."""
    if given is None:
        return None if method in _OPEN_ENDED else usual
    return None if given == math.inf else given


def no_answer_in_time(method: str, limit: float) -> RequestTimeout:
    return RequestTimeout(
        f"{method} was not answered within {limit:g} s; timeout= gives a call longer, and "
        "CodexConfig(request_timeout=…) all of them"
    )


def wire_params(params: Any) -> Any:
    """Params as they are sent: a struct of the protocol, an object with `model_dump`, or plain values."""
    if params is None or isinstance(params, dict | Struct):
        return params
    dump = getattr(params, "model_dump", None)
    if dump is None:
        raise TypeError(f"params must be a struct of treadle.types or a dict, not {type(params).__name__}")
    return dump(by_alias=True, exclude_none=True, mode="json")


def wire_object(params: Any) -> dict[str, Any] | None:
    """Params as a plain object, with wire names."""
    given = wire_params(params)
    plain: dict[str, Any] | None = msgspec.to_builtins(given) if isinstance(given, Struct) else given
    return plain


def with_members(params: Any, **members: Any) -> dict[str, Any]:
    """The params as an object with these members added, by their wire names."""
    return {**(wire_object(params) or {}), **members}


def without_none(**members: Any) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}


def read_result(method: str, result: Raw, wanted: type[T]) -> T:
    """The result as `wanted`: a struct or union of the protocol, or a class with `model_validate`."""
    raw = bytes(result)
    if not raw.lstrip().startswith(b"{"):
        raise CodexError(f"the answer to {method} is no JSON object")
    try:
        if isinstance(wanted, type) and not issubclass(wanted, Struct):
            validate = getattr(wanted, "model_validate", None)
            if validate is not None:
                checked: T = validate(msgspec.json.decode(raw))
                return checked
        return decode(raw, wanted)
    except (msgspec.DecodeError, RecursionError) as error:
        raise CodexError(f"the answer to {method} is not understood: {error}") from None


def input_items(given: Any) -> list[Any]:
    """The input of a turn as the low-level calls accept it: a text, an item, or items."""
    if isinstance(given, str):
        return [{"type": "text", "text": given}]
    return list(given) if isinstance(given, list | tuple) else [given]


def thread_of_start(method: str, params: Any) -> str | None:
    """The thread on which a request starts a turn, if it does."""
    if method != "turn/start":
        return None
    thread_id: str | None = params.get("threadId") if isinstance(params, dict) else getattr(params, "thread_id", None)
    return thread_id


def started_turn(answer: Raw | None) -> str | None:
    """The id of the turn that was started, if one was."""
    try:
        return None if answer is None else read_result("turn/start", answer, TurnStartResponse).turn.id
    except CodexError:
        return None
