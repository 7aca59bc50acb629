"""What can be wrong with a configuration: `ConfigError` stops, `ConfigWarning` does not.

Owns their shape and how a value that was found is described. No text here ever repeats a value that may be secret.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from treadle.errors import TreadleError

WriteErrorCode: TypeAlias = Literal["configVersionConflict", "configValidationError"]


class ConfigError(TreadleError):
    """The configuration cannot be used.

    `path` is the file, None when the value came from elsewhere (`source` says from where). `line` and `column` count
    from 1. `problem` says what was found and what is allowed.
    """

    def __init__(
        self,
        problem: str,
        *,
        path: str | None = None,
        key: str | None = None,
        line: int | None = None,
        column: int | None = None,
        source: str | None = None,
    ) -> None:
        super().__init__(": ".join(part for part in (_place(path, line, column) or source, key, problem) if part))
        self.problem = problem
        self.path = path
        self.key = key
        self.line = line
        self.column = column
        self.source = source


class ConfigWriteError(ConfigError):
    """An edit of the file was refused; the file is as it was. `code` is what the protocol calls the reason."""

    def __init__(self, problem: str, code: WriteErrorCode, *, path: str | None = None, key: str | None = None) -> None:
        super().__init__(problem, path=path, key=key)
        self.code = code


class ConfigWarning(Struct, frozen=True, kw_only=True):
    """Something in the configuration has no effect; the rest is in use."""

    message: str
    path: str | None = None
    key: str | None = None
    line: int | None = None
    column: int | None = None


def kind_of(value: object) -> str:
    """What a value is, without the value."""
    if isinstance(value, bool):
        return "true" if value else "false"
    kinds = (
        (str, "a text"),
        (int, "a whole number"),
        (float, "a number"),
        (dict, "a table"),
        ((list, tuple), "a list"),
    )
    return next((name for kind, name in kinds if isinstance(value, kind)), "nothing" if value is None else "a date")


def _place(path: str | None, line: int | None, column: int | None) -> str:
    return ":".join(str(part) for part in (path, line, column if line else None) if part is not None and path)
