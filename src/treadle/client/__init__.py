"""The SDK: drive agent threads from Python, blocking or with asyncio.

    from treadle import Codex

    with Codex() as codex:
        print(codex.thread_start().run("What does this project do?").final_response)

A sans-I/O `router` interprets what a server says. Two thin clients do the waiting: `client` with a reader thread,
`async_client` on an event loop. `api` and `async_api` are what most programs use. The names below are imported on first
use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from treadle.client.api import ChatgptLoginHandle, Codex, DeviceCodeLoginHandle, Thread, TurnHandle
    from treadle.client.approval_requests import (
        ApprovalDecision,
        ApprovalHandler,
        ApprovalRequest,
        UserInputHandler,
        UserInputRequest,
    )
    from treadle.client.async_api import (
        AsyncChatgptLoginHandle,
        AsyncCodex,
        AsyncDeviceCodeLoginHandle,
        AsyncThread,
        AsyncTurnHandle,
    )
    from treadle.client.async_client import AsyncAppServerClient
    from treadle.client.client import AppServerClient
    from treadle.client.codex_config import CodexConfig
    from treadle.client.codex_config import CodexConfig as AppServerConfig
    from treadle.client.modes import ApprovalMode, Sandbox
    from treadle.client.notification import Notification, UnknownNotification
    from treadle.client.result import TurnResult
    from treadle.client.result import TurnResult as RunResult
    from treadle.client.retry import async_retry_on_overload, retry_on_overload
    from treadle.client.sdk_errors import (
        CodexError,
        CodexRpcError,
        ConfigurationError,
        EventsLost,
        InternalRpcError,
        InvalidParamsError,
        InvalidRequestError,
        JsonRpcError,
        MethodNotFoundError,
        MissingMetadata,
        OutputError,
        ParseError,
        RequestTimeout,
        RetryLimitExceededError,
        ServerBusyError,
        TransportClosedError,
        TurnConflict,
        TurnFailed,
        is_retryable_error,
    )
    from treadle.client.tools import Tool, ToolCallError
    from treadle.client.turn_input import (
        ExternalMessage,
        ImageInput,
        Input,
        InputItem,
        LocalImageInput,
        MentionInput,
        RunInput,
        SkillInput,
        TextInput,
    )

_HOMES = {
    "api": "ChatgptLoginHandle Codex DeviceCodeLoginHandle Thread TurnHandle",
    "approval_requests": "ApprovalDecision ApprovalHandler ApprovalRequest UserInputHandler UserInputRequest",
    "async_api": "AsyncChatgptLoginHandle AsyncCodex AsyncDeviceCodeLoginHandle AsyncThread AsyncTurnHandle",
    "async_client": "AsyncAppServerClient",
    "client": "AppServerClient",
    "codex_config": "CodexConfig",
    "sdk_errors": "CodexError CodexRpcError ConfigurationError EventsLost InternalRpcError InvalidParamsError "
    "InvalidRequestError JsonRpcError MethodNotFoundError MissingMetadata OutputError ParseError RequestTimeout "
    "RetryLimitExceededError ServerBusyError TransportClosedError TurnConflict TurnFailed is_retryable_error",
    "turn_input": "ExternalMessage ImageInput Input InputItem LocalImageInput MentionInput RunInput SkillInput "
    "TextInput",
    "modes": "ApprovalMode Sandbox",
    "notification": "Notification UnknownNotification",
    "result": "TurnResult",
    "retry": "async_retry_on_overload retry_on_overload",
    "tools": "Tool ToolCallError",
}
_HOME = {name: f"treadle.client.{home}" for home, names in _HOMES.items() for name in names.split()}
# Names that the official SDK had before.
_ALIASES = {"AppServerConfig": "CodexConfig", "RunResult": "TurnResult"}

__all__ = [
    "AppServerClient",
    "AppServerConfig",
    "ApprovalDecision",
    "ApprovalHandler",
    "ApprovalMode",
    "ApprovalRequest",
    "AsyncAppServerClient",
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
    "DeviceCodeLoginHandle",
    "EventsLost",
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
    "Tool",
    "ToolCallError",
    "TransportClosedError",
    "TurnConflict",
    "TurnFailed",
    "TurnHandle",
    "TurnResult",
    "UnknownNotification",
    "UserInputHandler",
    "UserInputRequest",
    "async_retry_on_overload",
    "is_retryable_error",
    "retry_on_overload",
]


def __getattr__(name: str) -> object:
    home = _HOME.get(_ALIASES.get(name, name))
    if home is None:
        raise AttributeError(f"module 'treadle.client' has no attribute {name!r}")
    return getattr(import_module(home), _ALIASES.get(name, name))


def __dir__() -> list[str]:
    return sorted(__all__)
