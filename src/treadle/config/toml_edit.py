"""The text of a TOML file: values as text, where things are in it, and edits that leave everything else as it is, byte
for byte, including comments and order.

Pure. `tomllib` reads. Every edit is verified by parsing the new text. Where an edit in place would not mean what it
should (a table that is written in pieces, say), that one top-level key is rewritten.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime, time
from typing import Any, Final

from msgspec import Struct

from treadle.config.layers import KeyPath, join_key, lookup, unquoted

# --- values as text ---

_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")
_ESCAPED: Final = re.compile(r'["\\\x00-\x1f\x7f]')
_SHORT: Final = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}
_MAX_DEPTH: Final = 64  # nobody writes that by hand, and a reader may give up soon after


def key_text(part: str) -> str:
    """A part of a key, in quotes where it needs them."""
    return part if _BARE.fullmatch(part) else string_text(part)


def string_text(text: str) -> str:
    """A text in double quotes. Raises `ValueError` for half a character, which no file can hold."""
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

    def ordered(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: ordered(value[key]) for key in sorted(value)}
        return [ordered(member) for member in value] if isinstance(value, list | tuple) else value

    return value_text(ordered(left)) == value_text(ordered(right))


# --- where things are ---

_BLANK: Final = re.compile(r"(?:[ \t\r\n]+|#[^\n]*)*")
_KEY: Final = re.compile(r"""[ \t]*(?:("(?:[^"\\\n]|\\.)*")|'([^'\n]*)'|([A-Za-z0-9_-]+))[ \t]*""")
_EQUALS: Final = re.compile(r"[ \t]*=[ \t]*")
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
    """The values of a text. Raises `TomlError`."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        problem = str(error)
        found = _PLACE.search(problem)
        # Without a place it is the end of the text.
        end = (text.count("\n") + 1, len(text) - (text.rfind("\n") + 1) + 1)
        line, column = (int(found[1]), int(found[2])) if found else end
        raise TomlError(re.sub(r" \(at [^()]*\)$", "", problem), line, column) from None
    except RecursionError:
        raise TomlError("its values are nested too deeply", 1, 1) from None


def scan(text: str) -> list[Statement]:
    """All headers and keys in their order. The text has been parsed by `tomllib`, so it is only to be found where
    things end; nothing is validated."""
    statements: list[Statement] = []
    table: KeyPath = ()
    lists: set[KeyPath] = set()
    at = _skip(_BLANK, text, 0)
    while at < len(text):
        value: tuple[int, int] | None = None
        if text[at] == "[":
            brackets = 2 if text.startswith("[[", at) else 1
            table, last = _key(text, at + brackets)
            path = table
            if brackets == 2:
                lists.add(table)
        else:
            key, behind = _key(text, at)
            first = _skip(_EQUALS, text, behind)
            last = _value_end(text, first)
            path, value = (*table, *key), (first, last)
        statement = Statement(
            path=path,
            table=table,
            start=text.rfind("\n", 0, at) + 1,
            end=_skip(_REST, text, last),
            key_at=at,
            value=value,
            in_list=any(table[: len(listed)] == listed for listed in lists),
        )
        statements.append(statement)
        at = _skip(_BLANK, text, statement.end)
    return statements


def locate(text: str, path: KeyPath) -> tuple[int, int] | None:
    """The line and column of a key, or of the first key or header in it, or of the nearest one around it."""
    best: Statement | None = None
    most = 0
    for statement in scan(text):
        shared = min(len(path), len(statement.path))
        if shared > most and path[:shared] == statement.path[:shared] and not statement.in_list:
            best, most = statement, shared
    if best is None:
        return None
    return text.count("\n", 0, best.key_at) + 1, best.key_at - (text.rfind("\n", 0, best.key_at) + 1) + 1


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


# --- edits ---


def set_value(text: str, path: KeyPath, value: Any) -> str:
    """The text with `value` at `path`. Raises `ValueError` for what cannot be written, `TomlError` for a bad text."""
    before = parse(text)
    wanted = _with(before, path, value)
    value_text(value)  # what TOML cannot say is refused before anything is cut out
    try:
        edited = _put(text, before, path, value)
    except TomlError:
        edited = text  # a step in between went wrong; what it says now is checked like any other
    return _ending_like(text, _checked(text, edited, wanted, path[0]))


def remove_value(text: str, path: KeyPath) -> str:
    """The text without `path`; the same text when it is not there. A table that gets empty may go too."""
    before = parse(text)
    if lookup(before, path) is None:
        return text
    wanted = _without(before, path)
    edited = _cut(text, before, path)
    if not _says(edited, _pruned(wanted, path)):
        edited = _checked(text, edited, wanted, path[0])
    return _ending_like(text, edited)


def remove_empty(text: str, path: KeyPath, *, keep: KeyPath) -> str:
    """The text without those tables above `path` that are empty, except `keep`."""
    for end in range(len(path) - 1, 0, -1):
        table = path[:end]
        if table != keep and lookup(parse(text), table) == {}:
            text = remove_value(text, table)
    return text


# --- what the file should say ---


def _with(table: Mapping[str, Any], path: KeyPath, value: Any) -> dict[str, Any]:
    key, *rest = path
    if not rest:
        return {**table, key: value}
    below = table.get(key, {})
    if not isinstance(below, Mapping):
        raise ValueError(f"`{key_text(key)}` is no table, so nothing can be set in it; set it as a whole")
    return {**table, key: _with(below, tuple(rest), value)}


def _without(table: Mapping[str, Any], path: KeyPath) -> dict[str, Any]:
    key, *rest = path
    if not rest:
        return {name: value for name, value in table.items() if name != key}
    return {**table, key: _without(table[key], tuple(rest))}


def _pruned(table: dict[str, Any], path: KeyPath) -> dict[str, Any]:
    """The table without those tables on the way to `path` that have become empty."""
    key, *rest = path
    if not rest or key not in table:
        return table
    below = _pruned(table[key], tuple(rest))
    return {**table, key: below} if below else _without(table, (key,))


def _says(text: str, wanted: Mapping[str, Any]) -> bool:
    try:
        return same(parse(text), wanted)
    except TomlError:
        return False


def _checked(text: str, edited: str, wanted: dict[str, Any], top: str) -> str:
    """The edited text if it says what it should; else `text` with the key `top` rewritten as a whole."""
    if _says(edited, wanted):
        return edited
    rewritten = _drop(text, [s for s in scan(text) if s.path[:1] == (top,)])
    if top in wanted:
        rewritten = _add(rewritten, (top,), wanted[top])
    if not _says(rewritten, wanted):
        raise ValueError(f"the edit of `{join_key((top,))}` does not fit into the file; edit the file by hand")
    return rewritten


# --- edits on the spot ---


def _put(text: str, before: Mapping[str, Any], path: KeyPath, value: Any) -> str:
    holder = _holder(scan(text), path)
    if holder is not None:
        rest = path[len(holder.path) :]
        return _replace(text, holder, _with(lookup(before, holder.path), rest, value) if rest else value)
    old = lookup(before, path)
    if not isinstance(old, Mapping) or not isinstance(value, Mapping):
        return _add(_cut(text, before, path) if old is not None else text, path, value)
    # A table: only what differs is edited, so that the comments of the rest stay.
    for key in old.keys() - value.keys():
        text = _cut(text, parse(text), (*path, key))
    for key, member in value.items():
        if key not in old or not same(old[key], member):
            text = _put(text, parse(text), (*path, key), member)
    return text


def _cut(text: str, before: Mapping[str, Any], path: KeyPath) -> str:
    statements = scan(text)
    holder = _holder(statements, path)
    if holder is not None and holder.path != path:
        rest = _without({holder.path[0]: lookup(before, holder.path)}, (holder.path[0], *path[len(holder.path) :]))
        return _replace(text, holder, rest[holder.path[0]])
    return _drop(text, [statement for statement in statements if statement.path[: len(path)] == path])


def _holder(statements: list[Statement], path: KeyPath) -> Statement | None:
    """The key that holds `path` in its value: the key itself, or an inline table above it."""
    return next(
        (s for s in statements if not s.is_header and not s.in_list and path[: len(s.path)] == s.path),
        None,
    )


def _replace(text: str, statement: Statement, value: Any) -> str:
    assert statement.value is not None
    start, end = statement.value
    return text[:start] + value_text(value) + text[end:]


def _drop(text: str, statements: list[Statement]) -> str:
    for statement in reversed(statements):
        text = text[: statement.start] + text[statement.end :]
    return text


# --- new keys ---


def _add(text: str, path: KeyPath, value: Any) -> str:
    statements = scan(text)
    if isinstance(value, Mapping):
        return _append(text, "\n".join(section_lines(path, value)))
    parent, line = path[:-1], f"{key_text(path[-1])} = {value_text(value)}"
    sibling = _last(statements, lambda s: not s.is_header and not s.in_list and s.table == parent)
    header = _last(statements, lambda s: s.is_header and not s.in_list and s.path == parent)
    if above := sibling or header:
        return _insert(text, above.end, line)
    if not parent and not statements:
        return _append(text, line)
    if not parent:  # the first key outside of all tables: before the first header and the comment that belongs to it
        at = statements[0].start
        while at and text[text.rfind("\n", 0, at - 1) + 1 :].startswith("#"):
            at = text.rfind("\n", 0, at - 1) + 1
        return _insert(text, at, line + "\n")
    # `a.b = 1` made the table `a`: it may not get a header any more.
    dotted = _last(
        statements,
        lambda s: (
            not s.is_header
            and not s.in_list
            and len(s.table) < len(parent) < len(s.path)
            and s.path[: len(parent)] == parent
        ),
    )
    if dotted is not None:
        key = ".".join(map(key_text, path[len(dotted.table) :]))
        return _insert(text, dotted.end, f"{key} = {value_text(value)}")
    return _append(text, f"[{'.'.join(map(key_text, parent))}]\n{line}")


def _last(statements: list[Statement], fits: Callable[[Statement], bool]) -> Statement | None:
    return next((statement for statement in reversed(statements) if fits(statement)), None)


def _append(text: str, lines: str) -> str:
    gap = "\n" if text.strip() and not text.endswith("\n\n") else ""
    return _insert(text, len(text), gap + lines)


def _insert(text: str, at: int, lines: str) -> str:
    head = text[:at]
    if head and not head.endswith("\n"):
        head += "\n"
    return f"{head}{lines}\n{text[at:]}"


def _ending_like(text: str, edited: str) -> str:
    """The edited text with the line ends of `text`, if all of them are those of Windows."""
    if not text.count("\n") or text.count("\n") != text.count("\r\n"):
        return edited
    return re.sub(r"(?<!\r)\n", "\r\n", edited)
