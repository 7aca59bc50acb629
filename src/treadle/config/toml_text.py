"""Values to TOML text. Only for writing; `tomllib` reads."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from datetime import date, datetime, time
from typing import Any, Final

_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")
_ESCAPED: Final = re.compile(r'["\\\x00-\x1f\x7f]')
_SHORT: Final = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}
_MAX_DEPTH: Final = 64  # nobody writes that by hand, and a reader may give up soon after


def key_text(part: str) -> str:
    return part if _BARE.fullmatch(part) else string_text(part)


def string_text(text: str) -> str:
    """In double quotes. Raises `ValueError` for half a character, which no file can hold."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("the text has half a character in it") from None
    return '"' + _ESCAPED.sub(lambda found: _SHORT.get(found[0], f"\\u{ord(found[0]):04x}"), text) + '"'


def value_text(value: Any, depth: int = 0) -> str:
    """A value on one line. Raises `ValueError` for what TOML cannot say, such as null."""
    if depth > _MAX_DEPTH:
        raise ValueError(f"the value is nested deeper than {_MAX_DEPTH} levels")
    if isinstance(value, str):
        return string_text(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else ("nan" if math.isnan(value) else f"{value}")
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, list | tuple):
        return "[" + ", ".join(value_text(member, depth + 1) for member in value) + "]"
    if isinstance(value, Mapping):
        members = ", ".join(f"{key_text(key)} = {value_text(member, depth + 1)}" for key, member in value.items())
        return f"{{ {members} }}" if members else "{}"
    raise ValueError("a list in it has a null, which TOML cannot say" if value is None else "TOML cannot say it")


def section_lines(path: tuple[str, ...], table: Mapping[str, Any], depth: int = 0) -> Iterator[str]:
    """A table as `[path]` with its values, then its tables as sections of their own."""
    if depth > _MAX_DEPTH:
        raise ValueError(f"the value is nested deeper than {_MAX_DEPTH} levels")
    tables = {key: value for key, value in table.items() if isinstance(value, Mapping)}
    values = {key: value for key, value in table.items() if key not in tables}
    if values or not tables:
        yield f"[{'.'.join(map(key_text, path))}]"
    for key, value in values.items():
        yield f"{key_text(key)} = {value_text(value)}"
    for index, (key, value) in enumerate(tables.items()):
        if values or index:
            yield ""
        yield from section_lines((*path, key), value, depth + 1)


def same(left: Any, right: Any) -> bool:
    """Whether two values are the same in a file: 1 is not 1.0, true is not 1, the order of keys is nothing."""
    return value_text(_sorted(left)) == value_text(_sorted(right))


def _sorted(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(member) for member in value] if isinstance(value, list | tuple) else value
