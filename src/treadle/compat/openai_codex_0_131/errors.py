"""The errors, under the names that they had in `openai_codex_0_131`."""

from treadle.client.sdk_errors import CodexError as AppServerError
from treadle.client.sdk_errors import CodexRpcError as AppServerRpcError
from treadle.client.sdk_errors import (
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

__all__ = [
    "AppServerError",
    "AppServerRpcError",
    "InternalRpcError",
    "InvalidParamsError",
    "InvalidRequestError",
    "JsonRpcError",
    "MethodNotFoundError",
    "ParseError",
    "RetryLimitExceededError",
    "ServerBusyError",
    "TransportClosedError",
    "is_retryable_error",
]
