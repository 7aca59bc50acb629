"""What the SDK raises. The names are those of the official SDK; `TurnFailed` and the ones below it are ours.

CodexError                      also a `TreadleError`
├── TransportClosedError        the server is gone, or was never there (`exit_code`, `stderr_tail`)
├── JsonRpcError                the server answered with an error (`code`, `message`, `data`); also an `RpcError`
│   └── CodexRpcError           with one of the codes that the protocol knows
│       ├── ParseError, InvalidRequestError, MethodNotFoundError, InvalidParamsError, InternalRpcError
│       │   └── ConfigurationError      an InvalidRequestError: the server's settings cannot be used (`problems`)
│       └── ServerBusyError     try again later: `retry_on_overload` does
│           └── RetryLimitExceededError
├── TurnFailed                  a turn ended with the status `failed` (`turn`, and why: `kind`, `status`, `retry_after`,
│                               `advice`); also a `RuntimeError`
│   └── TurnLimitReached        because of a limit in tokens or dollars (`limit`)
├── TurnConflict                the thread or the stream is in use; also a `RuntimeError`
├── MissingMetadata             what answered `initialize` is no app-server; also a `RuntimeError`
├── RequestTimeout              no answer, or no end of the turn, in time; also a `TimeoutError`
├── EventsLost                  a turn was not read for so long that its events had to be dropped
└── OutputError                 the final response is not of the `output_type` (`text`); also a `ValueError`
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from msgspec import UnsetType, ValidationError, convert

from treadle.errors import (
    CONFIG_PROBLEMS,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    OVERLOADED,
    RpcError,
    TreadleError,
)

if TYPE_CHECKING:
    from treadle.config import ConfigError, ConfigProblem
    from treadle.protocol.app.turns import Turn, TurnLimit

_PARSE_ERROR = -32700
_BUSY_WORD = "server_overloaded"


class CodexError(TreadleError):
    """Base of all errors of the SDK."""

    def fresh(self) -> Self:
        """A copy of the error for one more caller: an exception that is raised again and again grows."""
        kind, args = self.__reduce__()
        error: Self = kind(*args)
        return error


class TransportClosedError(CodexError):
    """The connection to the server has ended, or could not be made.

    `exit_code` is that of a server which was our child and has ended; `stderr_tail` the last lines that it wrote there,
    without secrets.
    """

    def __init__(self, message: str, *, exit_code: int | None = None, stderr_tail: str = "") -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.stderr_tail = stderr_tail


class JsonRpcError(CodexError, RpcError):
    """The server answered a request with an error."""

    def __str__(self) -> str:
        return f"JSON-RPC error {self.code}: {self.message}"


class CodexRpcError(JsonRpcError):
    """An error with a code that the protocol knows."""


class ParseError(CodexRpcError):
    """The server could not read what it was sent."""


class InvalidRequestError(CodexRpcError):
    """The server refuses the request, in this state or at all."""


class ConfigurationWarning(UserWarning):
    """A setting of the server has no effect; `Codex.warnings` lists all such settings."""


class ConfigurationError(InvalidRequestError):
    """The settings of the server cannot be used, so nothing was run: `problems` has all that is wrong with them."""

    @property
    def problems(self) -> tuple[ConfigProblem, ...]:
        """Each with `problem` (what was found and what is allowed), `key`, and `path` and `line`, or its `source`."""
        from treadle.config import ConfigProblem  # loaded with the settings

        try:
            return convert(self.data[CONFIG_PROBLEMS], tuple[ConfigProblem, ...])
        except ValidationError:  # of a server that is newer than we are
            return ()


class MethodNotFoundError(CodexRpcError):
    """The server does not know the method."""


class InvalidParamsError(CodexRpcError):
    """The server does not accept the parameters."""


class InternalRpcError(CodexRpcError):
    """The server failed at the request."""


class ServerBusyError(CodexRpcError):
    """The server has too much to do: the same request may succeed later."""


class RetryLimitExceededError(ServerBusyError):
    """The server itself has tried several times and given up."""


class TurnFailed(CodexError, RuntimeError):
    """A turn ended with the status `failed`; the message is the server's, `turn` has the rest.

    When the model gave no answer, `kind` says why in a word (`unauthorized`, `not_found`, `rate_limited`, `quota`, …),
    `status` is the HTTP status, `retry_after` how many seconds the provider asks to wait, and `advice` what to type, as
    `treadle exec` prints it. Each is None if that is not known.
    """

    kind: str | None = None
    status: int | None = None
    retry_after: float | None = None
    advice: str | None = None

    def __init__(self, message: str, turn: Turn | None = None) -> None:
        super().__init__(message)
        self.turn = turn
        if turn is None or turn.error is None:
            return
        from treadle.agent.model_failures import failure_of  # only for a turn that failed

        failure = failure_of(turn.error)
        if failure is not None:
            self.kind, self.status, self.advice = failure.kind, failure.status, failure.advice
            self.retry_after = failure.retry_after_s


class TurnLimitReached(TurnFailed):
    """A turn ended because it, or its thread, has used what it may: `limit` has which limit (`kind`: `turnTokens`,
    `turnCostUsd`, `threadTokens` or `threadCostUsd`), how much it is and how much was used.
    """

    limit: TurnLimit

    def __init__(self, message: str, turn: Turn | None = None) -> None:
        super().__init__(message, turn)
        if turn is not None and turn.error is not None and not isinstance(turn.error.limit, UnsetType):
            self.limit = turn.error.limit


class TurnConflict(CodexError, RuntimeError):
    """The thread has a turn already, or the stream has a reader already, or it has ended."""


class MissingMetadata(CodexError, RuntimeError):
    """The answer to `initialize` does not say who the server is, or there was none yet."""


class RequestTimeout(CodexError, TimeoutError):
    """What was waited for did not come in time."""


class EventsLost(CodexError):
    """A turn was not read for so long that its events had to be dropped. Its items can be had with `thread.read`."""


class OutputError(CodexError, ValueError):
    """The final response is not what `output_type` asks for; `text` is what it was."""

    def __init__(self, message: str, text: str | None) -> None:
        super().__init__(message)
        self.text = text


_BY_CODE: dict[int, type[CodexRpcError]] = {
    _PARSE_ERROR: ParseError,
    INVALID_REQUEST: InvalidRequestError,
    METHOD_NOT_FOUND: MethodNotFoundError,
    INVALID_PARAMS: InvalidParamsError,
    INTERNAL_ERROR: InternalRpcError,
}


def rpc_error(code: int, message: str, data: Any = None) -> JsonRpcError:
    """The narrowest class for an error of the server."""
    if code == INVALID_REQUEST and isinstance(data, dict) and CONFIG_PROBLEMS in data:
        return ConfigurationError(code, message, data)
    if code in _BY_CODE:
        return _BY_CODE[code](code, message, data)
    if not -32099 <= code <= -32000:
        return JsonRpcError(code, message, data)
    lowered = message.lower()
    if "retry limit" in lowered or "too many failed attempts" in lowered:
        return RetryLimitExceededError(code, message, data)
    if code == OVERLOADED or _says_busy(data):
        return ServerBusyError(code, message, data)
    return CodexRpcError(code, message, data)


def configuration_error(error: ConfigError) -> JsonRpcError:
    """What a server of ours would answer, for settings that are found wrong on this side."""
    from treadle.server.clients import wire_error  # only for a server in this process

    answer = wire_error(error, "initialize")
    return rpc_error(answer.code, answer.message, answer.data)


def is_retryable_error(exc: BaseException) -> bool:
    """Whether the same request may succeed a little later.

    Args:
        exc: What a call raised.
    """
    return isinstance(exc, ServerBusyError) or (isinstance(exc, JsonRpcError) and _says_busy(exc.data))


def _says_busy(data: object) -> bool:
    """Servers put the word into a member of the data, at various depths."""
    if isinstance(data, str):
        return data.lower() == _BUSY_WORD
    if isinstance(data, dict):
        return any(map(_says_busy, data.values()))
    return isinstance(data, list) and any(map(_says_busy, data))
