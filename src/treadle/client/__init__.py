"""The SDK: drive agent threads from Python, blocking or with asyncio.

    from treadle import Codex

    with Codex() as codex:
        print(codex.thread_start().run("What does this project do?").final_response)

A sans-I/O `router` interprets the messages of a server. Two thin clients do the waiting: `client` with a reader thread,
`async_client` on an event loop. `api` and `async_api` are what most programs use. The names below are imported on first
use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from treadle.internal_names import internal_name

if TYPE_CHECKING:
    from treadle.client.api import ChatgptLoginHandle, Codex, DeviceCodeLoginHandle, Thread, TurnHandle
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
    from treadle.client.lifecycle import async_retry_on_overload, retry_on_overload
    from treadle.client.notification import Notification, UnknownNotification
    from treadle.client.params import ApprovalMode, Sandbox
    from treadle.client.sdk_errors import (
        CodexError,
        CodexRpcError,
        ConfigurationError,
        ConfigurationWarning,
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
        TurnLimitReached,
        is_retryable_error,
    )
    from treadle.client.server_requests import (
        ApprovalDecision,
        ApprovalHandler,
        ApprovalRequest,
        UserInputHandler,
        UserInputRequest,
    )
    from treadle.client.tools import Tool, ToolCallError
    from treadle.client.turn_values import (
        ExternalMessage,
        ImageInput,
        Input,
        InputItem,
        LocalImageInput,
        MentionInput,
        RunInput,
        SkillInput,
        TextInput,
        TokensUsed,
        TurnResult,
    )
    from treadle.client.turn_values import TurnResult as RunResult

_HOMES = {
    "api": "ChatgptLoginHandle Codex DeviceCodeLoginHandle Thread TurnHandle",
    "server_requests": "ApprovalDecision ApprovalHandler ApprovalRequest UserInputHandler UserInputRequest",
    "async_api": "AsyncChatgptLoginHandle AsyncCodex AsyncDeviceCodeLoginHandle AsyncThread AsyncTurnHandle",
    "async_client": "AsyncAppServerClient",
    "client": "AppServerClient",
    "codex_config": "CodexConfig",
    "sdk_errors": "CodexError CodexRpcError ConfigurationError ConfigurationWarning EventsLost InternalRpcError "
    "InvalidParamsError InvalidRequestError JsonRpcError MethodNotFoundError MissingMetadata OutputError ParseError "
    "RequestTimeout RetryLimitExceededError ServerBusyError TransportClosedError TurnConflict TurnFailed "
    "TurnLimitReached is_retryable_error",
    "turn_values": "ExternalMessage ImageInput Input InputItem LocalImageInput MentionInput RunInput SkillInput "
    "TextInput TokensUsed TurnResult",
    "params": "ApprovalMode Sandbox",
    "notification": "Notification UnknownNotification",
    "lifecycle": "async_retry_on_overload retry_on_overload",
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
    "ConfigurationWarning",
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
    "TokensUsed",
    "Tool",
    "ToolCallError",
    "TransportClosedError",
    "TurnConflict",
    "TurnFailed",
    "TurnHandle",
    "TurnLimitReached",
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
        return internal_name(__name__, name)
    return getattr(import_module(home), _ALIASES.get(name, name))


def __dir__() -> list[str]:
    return sorted(__all__)


# fmt: off
# isort: off
if TYPE_CHECKING:  # for tests: see treadle.internal_names
    from treadle.client.async_connection import AsyncConnection, DirectChannel
    from treadle.client.async_shell import AsyncWaiter
    from treadle.client.calls import Calls
    from treadle.client.connection import Sink
    from treadle.client.lifecycle import InitializeResponse, ServerInfo, check_metadata, client_info
    from treadle.client.notification import make
    from treadle.client.own_thread import run_on_own_thread
    from treadle.client.params import checked, folder_of, paths, with_mcp_servers
    from treadle.client.provider_settings import KEY_VARIABLE
    from treadle.client.requests import read_result, request_timeout
    from treadle.client.router import Router, Stream, thread_of, turn_of
    from treadle.client.schemas import NotJson, OutputType, ShapeError, convert, is_wrapped, object_schema, read
    from treadle.client.schemas import strict_schema
    from treadle.client.sdk_errors import rpc_error
    from treadle.client.server_child import SHOWN_LINES, ServerChild, command_line
    from treadle.client.server_requests import command_request, elicitation_request, patch_request
    from treadle.client.server_requests import permissions_request
    from treadle.client.shell import Waiter
    from treadle.client.tools import MAX_TEXT_BYTES, read_docstring, tools_by_name
    from treadle.client.turn_events import CommandFinished, CommandOutput, CommandStarted, Done, Event, EventReader
    from treadle.client.turn_events import FileChange, Plan, PlanStep, Problem, Reasoning, Text, TextDelta
    from treadle.client.turn_events import TextRestarted, ToolCall, Usage
    from treadle.client.turn_values import Collector, final_response, tool_output, wire_input
