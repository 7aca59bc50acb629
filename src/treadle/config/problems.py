"""What can be wrong with a configuration: a `ConfigError` is fatal, a `ConfigWarning` is not.

It owns their format, and how a wrong value is described. No text here ever repeats a value that may be secret.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from msgspec import Struct

from treadle.errors import TreadleError

WriteErrorCode: TypeAlias = Literal["configVersionConflict", "configValidationError"]


class ConfigProblem(Struct, frozen=True, kw_only=True):
    """One problem: `problem` says what was found and what is allowed.

    `path` is the file; None if the value came from elsewhere (`source` says where). `line` and `column` count from 1.
    """

    problem: str
    path: str | None = None
    key: str | None = None
    line: int | None = None
    column: int | None = None
    source: str | None = None

    def __str__(self) -> str:
        place = _place(self.path, self.line, self.column) or self.source
        return ": ".join(part for part in (place, self.key, self.problem) if part)


class ConfigError(TreadleError):
    """The configuration is unusable. `problems` lists everything that is wrong; the other fields are those of the
    first.
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
        self._take((ConfigProblem(problem=problem, path=path, key=key, line=line, column=column, source=source),))

    def _take(self, problems: tuple[ConfigProblem, ...]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems
        first = problems[0]
        self.problem: str = first.problem
        self.path: str | None = first.path
        self.key: str | None = first.key
        self.line: int | None = first.line
        self.column: int | None = first.column
        self.source: str | None = first.source

    def blames(self, source: str) -> bool:
        """Whether something from there is wrong."""
        return any(problem.source == source for problem in self.problems)

    @classmethod
    def of(cls, errors: Sequence[ConfigError]) -> ConfigError:
        """Several as one, in their order."""
        error = cls(errors[0].problem)
        error._take(tuple(problem for each in errors for problem in each.problems))
        return error


class ModelUnusable(ConfigError):
    """The configuration is valid, but the model it asks for cannot be used; the message says what to set."""


class ConfigWriteError(ConfigError):
    """An edit of the file was refused; the file is unchanged. `code` is the protocol's name for the reason."""

    def __init__(self, problem: str, code: WriteErrorCode, *, path: str | None = None, key: str | None = None) -> None:
        super().__init__(problem, path=path, key=key)
        self.code = code


class ConfigWarning(Struct, frozen=True, kw_only=True):
    """Something in the configuration has no effect; the rest is in use. `unknown` is the same as an error, for a key
    that nobody knows; `invalid`, for a table of an MCP server that cannot be used."""

    message: str
    path: str | None = None
    key: str | None = None
    line: int | None = None
    column: int | None = None
    unknown: ConfigProblem | None = None
    invalid: ConfigProblem | None = None

    def __str__(self) -> str:
        place = _place(self.path, self.line, self.column)
        return f"{place}: {self.message}" if place else self.message


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
