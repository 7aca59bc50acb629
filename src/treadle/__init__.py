"""Treadle runs coding agents, and the commands they need, from Python.

The names below are the public API. They are loaded when first used, so that `import treadle` stays cheap: those of the
SDK (`treadle.client`), the server to embed, and the place where commands run (`treadle.execution`).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from treadle._version import __version__

if TYPE_CHECKING:
    from treadle.client import (
        ApprovalDecision,
        ApprovalMode,
        ApprovalRequest,
        AppServerConfig,
        AsyncChatgptLoginHandle,
        AsyncCodex,
        AsyncDeviceCodeLoginHandle,
        AsyncThread,
        AsyncTurnHandle,
        ChatgptLoginHandle,
        Codex,
        CodexConfig,
        CodexError,
        CodexRpcError,
        ConfigurationError,
        ConfigurationWarning,
        DeviceCodeLoginHandle,
        EventsLost,
        ExternalMessage,
        ImageInput,
        Input,
        InputItem,
        InternalRpcError,
        InvalidParamsError,
        InvalidRequestError,
        JsonRpcError,
        LocalImageInput,
        MentionInput,
        MethodNotFoundError,
        MissingMetadata,
        Notification,
        OutputError,
        ParseError,
        RequestTimeout,
        RetryLimitExceededError,
        RunInput,
        RunResult,
        Sandbox,
        ServerBusyError,
        SkillInput,
        TextInput,
        Thread,
        TokensUsed,
        Tool,
        ToolCallError,
        TransportClosedError,
        TurnConflict,
        TurnFailed,
        TurnHandle,
        TurnLimitReached,
        TurnResult,
        UserInputRequest,
        async_retry_on_overload,
        is_retryable_error,
        retry_on_overload,
    )
    from treadle.errors import (
        ArgumentError,
        ArgumentTypeError,
        ArgumentValueError,
        ExecError,
        ExecTimeout,
        TreadleError,
    )
    from treadle.execution import Environment, ExecParams
    from treadle.server import AppServer

_HOME = {
    "AppServer": "treadle.server",
    "ArgumentError": "treadle.errors",
    "ArgumentTypeError": "treadle.errors",
    "ArgumentValueError": "treadle.errors",
    "Environment": "treadle.execution",
    "ExecError": "treadle.errors",
    "ExecParams": "treadle.execution",
    "ExecTimeout": "treadle.errors",
    "TreadleError": "treadle.errors",
}

__all__ = [
    "AppServer",
    "AppServerConfig",
    "ApprovalDecision",
    "ApprovalMode",
    "ApprovalRequest",
    "ArgumentError",
    "ArgumentTypeError",
    "ArgumentValueError",
    "AsyncChatgptLoginHandle",
    "AsyncCodex",
    "AsyncDeviceCodeLoginHandle",
    "AsyncThread",
    "AsyncTurnHandle",
    "ChatgptLoginHandle",
    "Codex",
    "CodexConfig",
    "CodexError",
    "CodexRpcError",
    "ConfigurationError",
    "ConfigurationWarning",
    "DeviceCodeLoginHandle",
    "Environment",
    "EventsLost",
    "ExecError",
    "ExecParams",
    "ExecTimeout",
    "ExternalMessage",
    "ImageInput",
    "Input",
    "InputItem",
    "InternalRpcError",
    "InvalidParamsError",
    "InvalidRequestError",
    "JsonRpcError",
    "LocalImageInput",
    "MentionInput",
    "MethodNotFoundError",
    "MissingMetadata",
    "Notification",
    "OutputError",
    "ParseError",
    "RequestTimeout",
    "RetryLimitExceededError",
    "RunInput",
    "RunResult",
    "Sandbox",
    "ServerBusyError",
    "SkillInput",
    "TextInput",
    "Thread",
    "TokensUsed",
    "Tool",
    "ToolCallError",
    "TransportClosedError",
    "TreadleError",
    "TurnConflict",
    "TurnFailed",
    "TurnHandle",
    "TurnLimitReached",
    "TurnResult",
    "UserInputRequest",
    "__version__",
    "async_retry_on_overload",
    "is_retryable_error",
    "retry_on_overload",
]


def __getattr__(name: str) -> object:
    if name in __all__:
        return getattr(import_module(_HOME.get(name, "treadle.client")), name)
    raise AttributeError(f"module 'treadle' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
