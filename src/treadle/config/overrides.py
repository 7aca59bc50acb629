"""Settings overlaid on others: `-c key=value` on the command line, and the `config` object of a thread.

It owns dotted keys, parsing values, and merging. It knows no setting by name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

import msgspec

from treadle.config.problems import ConfigError
from treadle.rpc.nesting import MAX_DEPTH, TOO_DEEP, is_too_deep

Table: TypeAlias = dict[str, Any]
KeyPath: TypeAlias = tuple[str, ...]

_PART: Final = re.compile(
    r"""[ \t]*(?:(?P<basic>"(?:[^"\\\n]|\\.)*")|'(?P<literal>[^'\n]*)'|(?P<bare>[^."'\n]+))[ \t]*"""
)
_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")


def split_key(text: str) -> KeyPath:
    """The parts of a dotted key; a part in quotes may have dots in it. Raises `ValueError`."""
    parts: list[str] = []
    at = 0
    while found := _PART.match(text, at):
        parts.append(_part(found))
        at = found.end() + 1
        if len(parts) > MAX_DEPTH:
            raise ValueError(f"it has more than {MAX_DEPTH} parts")
        if at > len(text):
            return tuple(parts)
        if text[at - 1] != ".":
            break
    raise ValueError('it is no dotted key like `a.b` or `a."b.c"`')


def _part(found: re.Match[str]) -> str:
    if found["literal"] is not None:
        return found["literal"]
    if found["basic"] is not None:
        return unquoted(found["basic"])
    bare = found["bare"].strip()
    if not bare:
        raise ValueError("a part of the key is empty")
    return bare


def unquoted(quoted: str) -> str:
    """The text of a TOML string in double quotes. Raises `ValueError`."""
    if "\\" not in quoted:
        return quoted[1:-1]
    import tomllib  # a start without settings parses no TOML

    text = tomllib.loads(f"x = {quoted}")["x"]
    assert isinstance(text, str)
    return text


def join_key(path: Iterable[str]) -> str:
    """How a key path is written; the inverse of `split_key`."""
    from treadle.config.toml_text import key_text  # loaded when a message or an edit names a key

    return ".".join(part if _BARE.fullmatch(part) else key_text(part) for part in path)


def parse_overrides(texts: Iterable[str]) -> tuple[Table, list[ConfigError]]:
    """All `key=value` of a command line as one table, in which later ones win; and what cannot be read of them."""
    merged: Table = {}
    errors: list[ConfigError] = []
    for text in texts:
        try:
            merged = merge(merged, parse_override(text))
        except ConfigError as error:
            errors.append(error)
    return merged, errors


def parse_override(text: str) -> Table:
    """One `key=value`: the value is TOML, and when it is none, the text itself."""
    key, equals, value = _split_at_equals(text)
    if not equals:
        raise ConfigError(f"`{key}` has no value; write -c key=value", source="-c")
    try:
        path = split_key(key)
    except ValueError as error:
        raise ConfigError(f"{error}; write -c key=value", key=key.strip() or None, source="-c") from None
    try:
        return nest(path, parse_value(value))
    except ValueError as error:
        raise ConfigError(f"the value is {error}", key=key.strip(), source="-c") from None


def _split_at_equals(text: str) -> tuple[str, str, str]:
    """As `str.partition`, but a `=` in a quoted part of the key is part of it."""
    found = re.match(r"""(?:"(?:[^"\\\n]|\\.)*"|'[^'\n]*'|[^="'])*=""", text)
    if found is None:
        return text.partition("=")
    return found.group()[:-1], "=", text[found.end() :]


def parse_value(text: str) -> Any:
    """Raises `ValueError` for what is too deep."""
    import tomllib  # a start without settings parses no TOML

    text = text.strip()
    try:
        table = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    except RecursionError:
        raise ValueError(TOO_DEEP) from None
    if is_too_deep(msgspec.json.encode(table)):
        raise ValueError(TOO_DEEP)
    # A text with line breaks could bring keys of its own.
    return table["value"] if table.keys() == {"value"} else text


def expand(overrides: Mapping[str, Any]) -> Table:
    """The `config` object of a thread as nested tables.

    Keys of the object itself may be dotted; below it a dot is only a character (paths and header names have them). A
    null leaves the setting as it is.
    """
    merged: Table = {}
    for key, value in overrides.items():
        try:
            path = split_key(key)
        except ValueError as error:
            raise ConfigError(f"{error}", key=key, source="the configuration of the thread") from None
        if value is not None:
            merged = merge(merged, nest(path, without_nulls(value)))
    return merged


def without_nulls(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: without_nulls(member) for key, member in value.items() if member is not None}
    return value


def nest(path: KeyPath, value: Any) -> Table:
    for part in reversed(path):
        value = {part: value}
    assert isinstance(value, dict)
    return value


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> Table:
    """`over` laid on `base`: tables are merged, anything else is replaced. Neither is changed."""
    merged = dict(base)
    for key, value in over.items():
        below = merged.get(key)
        if isinstance(below, Mapping) and isinstance(value, Mapping):
            value = merge(below, value)
        merged[key] = value
    return merged


def lookup(table: Mapping[str, Any], path: KeyPath) -> Any:
    """The value at a key path, None when there is none."""
    value: Any = table
    for part in path:
        if not isinstance(value, Mapping) or part not in value:
            return None
        value = value[part]
    return value
