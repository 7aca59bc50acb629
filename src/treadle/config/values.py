"""Parsing a plain table into the settings of `file_settings`.

It owns the words for what a type allows. It knows no file and no layer: a problem is identified by its key path.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any, Final, Literal, TypeVar, get_args, get_origin

import msgspec
from msgspec import Struct

from treadle.config.file_settings import Count, Features, Settings, Size, Text, ToolSwitch
from treadle.config.known_keys import IGNORED, IGNORED_IN_TABLE, SILENT
from treadle.config.overrides import KeyPath
from treadle.config.problems import kind_of
from treadle.protocol.app.settings import GranularAskForApproval

T = TypeVar("T", bound=Struct)


class InvalidValue(ValueError):
    """A value of a known key is not allowed."""

    def __init__(self, path: KeyPath, problem: str) -> None:
        super().__init__(problem)
        self.path = path
        self.problem = problem


ELSEWHERE: Final = frozenset({"model_providers", "models", "permissions", "profiles"})
# What an ignored key may say: it asks for nothing that is not so. We offer no model a web search.
_NOTHING: Final[tuple[object, ...]] = ({}, [], "disabled")
# The policy that Codex had before `on-request`, and that it reads no more.
_RETIRED: Final = {("approval_policy", "on-failure"): "on-request"}

_ALLOWED: Final[dict[Any, str]] = {
    str: "a text",
    bool: "true or false",
    tuple[str, ...]: "a list of texts",
    dict[str, str]: "a table of texts",
    dict[str, ToolSwitch | bool]: "a table of tools, each with `enabled = true` or `enabled = false`",
    Text: "a text that is not empty",
    Count: "a whole number from 1",
    Size: "a whole number from 0",
    GranularAskForApproval: "a table `granular` with `sandbox_approval`, `rules` and `mcp_elicitations`",
}


class ParsedValues(Struct):
    """What a table says: `values` for the keys that have an effect, and problems with the others by their paths."""

    values: dict[str, Any] = {}
    invalid: list[InvalidValue] = []
    unknown: list[KeyPath] = []
    ignored: list[KeyPath] = []
    retired: list[tuple[KeyPath, str, str]] = []


def read_values(table: Mapping[str, Any]) -> ParsedValues:
    """The settings in a table. What is not allowed is in `invalid`, all of it, and has no value."""
    reading = ParsedValues()
    for key, value in table.items():
        if key in _types(Settings):
            with _collected(reading):
                reading.values[key] = _read((key,), value, reading)
        elif key in IGNORED:
            if not _asks_for_nothing(key, value):
                reading.ignored.append((key,))
        elif key not in SILENT | ELSEWHERE:
            reading.unknown.append((key,))
    return reading


def _asks_for_nothing(key: str, value: Any) -> bool:
    """Nothing is in it, or only that folders are trusted: every one is here, and clients write it by themselves."""
    if key == "projects" and isinstance(value, Mapping):
        return all(project == {"trust_level": "trusted"} for project in value.values())
    return value in _NOTHING


@contextmanager
def _collected(reading: ParsedValues) -> Iterator[None]:
    try:
        yield
    except InvalidValue as error:
        reading.invalid.append(error)


def _read(path: KeyPath, value: Any, reading: ParsedValues) -> Any:
    wanted = _types(Settings)[path[0]]
    if isinstance(wanted, type) and issubclass(wanted, Struct):
        return _read_struct(wanted, path, value, reading)
    replacement = _RETIRED.get((path[0], value)) if isinstance(value, str) else None
    if replacement is not None:
        reading.retired.append((path, value, replacement))
        return replacement
    return _convert(path, value, wanted)


def _read_struct(wanted: type[T], path: KeyPath, table: Any, reading: ParsedValues) -> T:
    if not isinstance(table, Mapping):
        raise InvalidValue(path, f"found {kind_of(table)}, allowed is a table")
    types = _types(wanted)
    known: dict[str, Any] = {}
    for key, value in table.items():
        if key in types:
            with _collected(reading):
                known[key] = _convert((*path, key), value, types[key])
        elif wanted is Features or key in IGNORED_IN_TABLE.get(path[0], ()):
            reading.ignored.append((*path, key))
        else:
            reading.unknown.append((*path, key))
    return wanted(**known)


def _convert(path: KeyPath, value: Any, wanted: Any) -> Any:
    try:
        return msgspec.convert(value, wanted)
    except msgspec.ValidationError:
        raise InvalidValue(path, f"found {_found(value, wanted)}, allowed is {allowed(wanted)}") from None


def _found(value: Any, wanted: Any) -> str:
    """The value itself only where the key takes one of a few words: such a key holds no secret."""
    if isinstance(value, str) and _words(wanted) and len(value) <= 40:
        return f"`{value}`"
    return "an empty text" if value == "" else str(value) if type(value) is int else kind_of(value)


def allowed(wanted: Any) -> str:
    """What a type allows, in words."""
    if wanted in _ALLOWED:
        return _ALLOWED[wanted]
    words = _words(wanted)
    others = [allowed(member) for member in get_args(wanted) if _is_other(member)]
    return " or ".join((["one of " + ", ".join(f"`{word}`" for word in words)] if words else []) + others)


def _is_other(member: Any) -> bool:
    return get_origin(member) is not Literal and member is not type(None) and not isinstance(member, str)


def _words(wanted: Any) -> tuple[str, ...]:
    if get_origin(wanted) is Literal:
        return get_args(wanted)
    return next((get_args(member) for member in get_args(wanted) if get_origin(member) is Literal), ())


@cache
def _types(struct: type[Struct]) -> dict[str, Any]:
    return {field.name: field.type for field in msgspec.structs.fields(struct)}
