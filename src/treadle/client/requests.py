"""Requests of both sides: what the clients do with a request before sending it, and with its answer; and `Handlers`,
which answer the requests of a server. Pure.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import msgspec
from msgspec import Raw, Struct

from treadle.arguments import path, text_problem, wait_of, wrong_type
from treadle.client.sdk_errors import CodexError, RequestTimeout
from treadle.errors import ArgumentTypeError, ArgumentValueError
from treadle.protocol.app.base import decode
from treadle.protocol.app.turns import TurnStartResponse

if TYPE_CHECKING:
    from treadle.client.server_requests import ApprovalHandler, UserInputHandler
    from treadle.client.tools import Tool

T = TypeVar("T")

MAX_THREADS: Final = 65_536
"""Threads whose tools are remembered."""
MAX_HANDLERS: Final = 64
"""Handlers that run at a time."""
MAX_HANDLER_THREADS: Final = 256
"""The same with those that run on although their request was withdrawn: a thread cannot be ended."""

# These run something for the caller, which may legitimately take any time.
_OPEN_ENDED: Final = frozenset({"command/exec", "mcpServer/tool/call"})


def request_timeout(method: str, given: float | None, usual: float | None) -> float | None:
    """How long to wait for an answer: `given`, else the default; either may be infinite. None means no limit."""
    return wait_of(given if given is not None else None if method in _OPEN_ENDED else usual)


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
        raise wrong_type("params", "a struct of treadle.types or a dict", params)
    return dump(by_alias=True, exclude_none=True, mode="json")


def wire_object(params: Any) -> dict[str, Any] | None:
    """Params as a plain object, with wire names."""
    given = wire_params(params)
    plain: dict[str, Any] | None = as_json(msgspec.to_builtins, given) if isinstance(given, Struct) else given
    return plain


def as_json(convert: Callable[..., T], params: object) -> T:
    """What a conversion of msgspec makes of params. Raises `ArgumentError` for what has no JSON."""
    try:
        return convert(params, enc_hook=_path_text)
    except ArgumentTypeError:
        raise
    except UnicodeEncodeError as error:
        raise ArgumentValueError("params", f"a text in the params {text_problem(error.object)}") from None
    except (TypeError, ValueError, OverflowError, RecursionError) as error:  # such as a circle
        raise ArgumentValueError("params", f"the params have no JSON: {error}") from None


def _path_text(value: object) -> str:
    """A path may stand wherever the protocol has the text of one."""
    if isinstance(value, os.PathLike):
        return path("params", value)
    raise ArgumentTypeError("params", f"the params have an object of {type(value).__name__} in them: JSON has none")


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
    except TypeError as error:
        raise ArgumentTypeError("response_model", f"an answer cannot be read as response_model: {error}") from None


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


# --- requests of the server ---

RawHandler: TypeAlias = "Callable[[str, dict[str, Any] | None], dict[str, Any]]"


class Handlers:
    """What answers requests of the server; `server_requests`, loaded with the first of them, calls it.

    `raw` is the low-level handler of the official client and takes precedence over all others; tools are keyed by
    thread.
    """

    def __init__(self, raw: RawHandler | None = None) -> None:
        self.raw = raw
        self.approval: ApprovalHandler | None = None
        self.user_input: UserInputHandler | None = None
        self.tools: dict[str, Mapping[str, Tool]] = {}

    def add_tools(self, thread_id: str, tools: Mapping[str, Tool]) -> None:
        """Use these tools for calls of the thread from now on. Of very many threads the oldest are forgotten."""
        self.tools.pop(thread_id, None)
        self.tools[thread_id] = tools
        if len(self.tools) > MAX_THREADS:
            del self.tools[next(iter(self.tools))]
