"""Every exception that Treadle raises on purpose, and the table of JSON-RPC codes.

    TreadleError
    ├── ArgumentError      a call was given something that it cannot use (`parameter`)
    │   ├── ArgumentTypeError     of another type; also a `TypeError`
    │   └── ArgumentValueError    of the right type; also a `ValueError`
    ├── ChannelClosed      a transport ended; `reason` says why
    ├── MalformedMessage   a frame that is no JSON-RPC message
    ├── RpcError           the other side answered a request with an error (`code`, `message`, `data`)
    ├── ExecError          the execution layer refused or failed (`code`, `message`)
    │   ├── OutcomeUnknown a connection was lost before the answer: it was done, or it was not
    │   ├── ExecDenied     a client of an exec-server, or its sandbox, has no right to it
    │   ├── ExecTimeout    a command, or an answer, took too long; also a `TimeoutError` (`output`)
    │   └── SandboxRefused    a command cannot be confined as it was asked for, so it was not run
    ├── ModelError         a model gave no response, or not to its end (`treadle.llm`)
    ├── ToolInputError     a model called a tool wrongly (`treadle.tools`)
    ├── PatchError         a patch that a model wrote cannot be applied (`treadle.tools.patch`)
    ├── ConfigError        the settings cannot be used (`treadle.config`)
    └── StoreError         threads cannot be read or written (`treadle.store`)

A package may have narrower ones beside the code that raises them (`ListenError`, `AddressError`, …).

Callers look at fields, never at texts.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any, Final

INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
OVERLOADED: Final = -32001
# With it: SDKs look for this word before they retry.
OVERLOAD_DATA: Final = {"codexErrorInfo": "server_overloaded"}
# Member of the data of an error about the configuration: what is wrong, one by one.
CONFIG_PROBLEMS: Final = "configProblems"
# Of our exec-server, with `SandboxRefused`: its code is that of other refusals too.
SANDBOX_DATA: Final = {"kind": "sandboxRefused"}
NOT_FOUND: Final = -32004
SESSION_ATTACHED: Final = -32010


class TreadleError(Exception):
    """Base of all errors of this package. They can be copied and pickled, whatever their constructors take."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (type(self), self.args, self.__dict__)


def _again(kind: type[TreadleError], args: tuple[Any, ...], members: dict[str, Any]) -> TreadleError:
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(members)
    return error


class ArgumentError(TreadleError):
    """A call was given something that it cannot use: `parameter` names it, the message says what to pass."""

    def __init__(self, parameter: str, message: str) -> None:
        super().__init__(message)
        self.parameter = parameter


class ArgumentTypeError(ArgumentError, TypeError):
    """What was passed is of another type."""


class ArgumentValueError(ArgumentError, ValueError):
    """What was passed is of the right type, and still cannot be used."""


class ChannelClosed(TreadleError):
    """A transport ended, or could not be opened."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class MalformedMessage(TreadleError):
    """A frame could not be read as a JSON-RPC message."""


class RpcError(TreadleError):
    """A request was answered with an error."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data

    def __str__(self) -> str:
        return f"{self.message} (code {self.code})"


class ExecError(TreadleError):
    """A process or a file could not be used as it was asked for.

    `code` is the JSON-RPC code that the exec-server protocol uses for it, also when no server is involved. `errno` is
    the operating system's number, when a program could not be started on this machine.
    """

    def __init__(self, message: str, code: int = INTERNAL_ERROR, *, errno: int | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.errno: int | None = errno


class ExecDenied(ExecError):
    """The rights of a client, or the sandbox that it asked for, do not allow it."""

    def __init__(self, message: str, code: int = INVALID_REQUEST) -> None:
        super().__init__(message, code)


class SandboxRefused(ExecError):
    """A command cannot be confined as it was asked for, so nothing was run."""


class OutcomeUnknown(ExecError):
    """The connection was lost before the answer: the request was carried out, or it was not."""


class ExecTimeout(ExecError, TimeoutError):
    """A command did not end in time and was stopped; `output` is what it had written. Or a server did not answer."""

    def __init__(self, message: str, output: bytes = b"") -> None:
        super().__init__(message)
        self.output = output


def needs_linux(what: str) -> str | None:
    """Why something cannot be done on this system, and what to do instead; None on Linux."""
    if sys.platform.startswith("linux"):
        return None
    return (
        f"{what} needs Linux, and this is {sys.platform}: use a server on a Linux machine, as with "
        "CodexConfig(url='wss://HOST:PORT'), or do this in a Linux container"
    )


def load_name(module: str, name: str) -> object:
    """A public name, from the module that has it. Where only the system is to blame that it cannot be loaded, the error
    says so."""
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError):
        if (missing := needs_linux(f"{'.'.join(module.split('.')[:2])}.{name}")) is None:
            raise
        raise ImportError(missing) from None
