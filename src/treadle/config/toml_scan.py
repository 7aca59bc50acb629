"""Where things are in the text of a TOML file.

It owns the spans of headers and values, and parsing a text with the position of its first error. The text passed to
`scan` has already been parsed by `tomllib`, so it only has to find where things end, not to validate them.
"""

from __future__ import annotations

import re
import tomllib
from typing import Any, Final

from msgspec import Struct

from treadle.config.overrides import KeyPath, unquoted

_BLANK: Final = re.compile(r"(?:[ \t\r\n]+|#[^\n]*)*")
_KEY: Final = re.compile(r"""[ \t]*(?:("(?:[^"\\\n]|\\.)*")|'([^'\n]*)'|([A-Za-z0-9_-]+))[ \t]*""")
_REST: Final = re.compile(r"[^\n]*\n?")
_STRING: Final = re.compile(
    r'"""(?:[^\\"]|\\[\s\S]|"(?!""))*"{3,5}'
    r"|'''(?:[^']|'(?!''))*'{3,5}"
    r'|"(?:[^"\\\n]|\\.)*"'
    r"|'[^'\n]*'"
)
_PLAIN: Final = re.compile(r"[^\n#,\]}]*")
_IN_BRACKETS: Final = re.compile(r"[^\[\]{}\"'#]*")
_PLACE: Final = re.compile(r"\(at line (\d+), column (\d+)\)$")


class Statement(Struct, frozen=True, kw_only=True):
    """A header, or a key with its value. `start` and `end` are whole lines, with the line break.

    `path` is the full one; for a key, `table` is that of the header above it. `in_list`: it is in `[[…]]`, so its path
    stands for several values. `value` is the span of the value, empty for a header.
    """

    path: KeyPath
    table: KeyPath
    start: int
    end: int
    key_at: int
    value: tuple[int, int] | None = None
    in_list: bool = False

    @property
    def is_header(self) -> bool:
        return self.value is None


class TomlError(ValueError):
    """A text is not valid TOML: `problem`, at `line` and `column` from 1."""

    def __init__(self, problem: str, line: int, column: int) -> None:
        super().__init__(problem)
        self.problem = problem
        self.line = line
        self.column = column


def parse(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        problem = str(error)
        found = _PLACE.search(problem)
        line, column = (int(found[1]), int(found[2])) if found else _end(text)
        raise TomlError(re.sub(r" \(at [^()]*\)$", "", problem), line, column) from None
    except RecursionError:
        raise TomlError("its values are nested too deeply", 1, 1) from None


def _end(text: str) -> tuple[int, int]:
    return text.count("\n") + 1, len(text) - (text.rfind("\n") + 1) + 1


def scan(text: str) -> list[Statement]:
    """All headers and keys in their order."""
    statements: list[Statement] = []
    table: KeyPath = ()
    lists: set[KeyPath] = set()
    at = _skip(_BLANK, text, 0)
    while at < len(text):
        start = text.rfind("\n", 0, at) + 1
        if text[at] == "[":
            brackets = 2 if text.startswith("[[", at) else 1
            table, behind = _key(text, at + brackets)
            if brackets == 2:
                lists.add(table)
            statement = Statement(
                path=table,
                table=table,
                start=start,
                end=_skip(_REST, text, behind),
                key_at=at,
                in_list=_in(lists, table),
            )
        else:
            key, behind = _key(text, at)
            first = _skip(re.compile(r"[ \t]*=[ \t]*"), text, behind)
            last = _value_end(text, first)
            statement = Statement(
                path=(*table, *key),
                table=table,
                start=start,
                end=_skip(_REST, text, last),
                key_at=at,
                value=(first, last),
                in_list=_in(lists, table),
            )
        statements.append(statement)
        at = _skip(_BLANK, text, statement.end)
    return statements


def locate(text: str, path: KeyPath) -> tuple[int, int] | None:
    """Line and column of a key, or of the nearest key or header around it."""
    best: Statement | None = None
    for statement in scan(text):
        inside = path[: len(statement.path)] == statement.path and not statement.in_list
        if inside and (best is None or len(statement.path) > len(best.path)):
            best = statement
    if best is None:
        return None
    return text.count("\n", 0, best.key_at) + 1, best.key_at - (text.rfind("\n", 0, best.key_at) + 1) + 1


def _in(lists: set[KeyPath], path: KeyPath) -> bool:
    return any(path[: len(listed)] == listed for listed in lists)


def _skip(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    return found.end() if found else at


def _key(text: str, at: int) -> tuple[KeyPath, int]:
    parts: list[str] = []
    while found := _KEY.match(text, at):
        basic, literal, bare = found.groups()
        parts.append(unquoted(basic) if basic is not None else literal if literal is not None else bare)
        at = found.end()
        if not text.startswith(".", at):
            break
        at += 1
    return tuple(parts), at


def _value_end(text: str, at: int) -> int:
    if found := _STRING.match(text, at):
        return found.end()
    if text[at] not in "[{":
        plain = _PLAIN.match(text, at)
        assert plain is not None
        return at + len(plain.group().rstrip())
    depth = 0
    while True:
        at = _skip(_IN_BRACKETS, text, at)
        if text[at] == "#":
            at = text.index("\n", at)
        elif text[at] in "\"'":
            at = _skip(_STRING, text, at)
        else:
            depth += 1 if text[at] in "[{" else -1
            at += 1
            if depth == 0:
                return at
