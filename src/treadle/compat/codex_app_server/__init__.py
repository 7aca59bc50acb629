"""The official SDK as it was under the name `codex_app_server`.

`TurnHandle.run` gives the bare turn, `Thread.run` a `RunResult`.

    from treadle.compat.codex_app_server import Codex

What is not named here is in the submodules that it had: `types`, `client`, `errors`, `models`, `generated.v2_all`.
"""

from __future__ import annotations

from treadle._version import __version__
from treadle.client.turn_input import ImageInput, Input, InputItem, LocalImageInput, MentionInput, SkillInput, TextInput
from treadle.compat.codex_app_server.api import AsyncCodex, AsyncThread, AsyncTurnHandle, Codex, Thread, TurnHandle
from treadle.compat.codex_app_server.client import AppServerConfig
from treadle.compat.codex_app_server.errors import (
    AppServerError,
    AppServerRpcError,
    InternalRpcError,
    InvalidParamsError,
    InvalidRequestError,
    JsonRpcError,
    MethodNotFoundError,
    ParseError,
    RetryLimitExceededError,
    ServerBusyError,
    TransportClosedError,
    is_retryable_error,
)
from treadle.compat.codex_app_server.retry import retry_on_overload
from treadle.compat.older import RunResult

__all__ = [  # noqa: RUF022 - in the order in which it had them
    "__version__",
    "AppServerConfig",
    "Codex",
    "AsyncCodex",
    "Thread",
    "AsyncThread",
    "TurnHandle",
    "AsyncTurnHandle",
    "RunResult",
    "Input",
    "InputItem",
    "TextInput",
    "ImageInput",
    "LocalImageInput",
    "SkillInput",
    "MentionInput",
    "retry_on_overload",
    "AppServerError",
    "TransportClosedError",
    "JsonRpcError",
    "AppServerRpcError",
    "ParseError",
    "InvalidRequestError",
    "MethodNotFoundError",
    "InvalidParamsError",
    "InternalRpcError",
    "ServerBusyError",
    "RetryLimitExceededError",
    "is_retryable_error",
]
