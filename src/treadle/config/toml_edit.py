"""Edits the text of a TOML file: everything else stays as it is, byte for byte, including comments and order.

Pure. Every edit is verified by parsing the new text. Where an edit in place would not mean what it should (a table that
is written in pieces, say), that one top-level key is rewritten.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from treadle.config.overrides import KeyPath, join_key, lookup
from treadle.config.toml_scan import Statement, TomlError, parse, scan
from treadle.config.toml_text import key_text, same, section_lines, value_text


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


# --- what the file should say ----------------------------------------------------------------------------------------


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
    """Without the tables on the way to `path` that have become empty."""
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
    if _says(edited, wanted):
        return edited
    rewritten = _drop(text, [s for s in scan(text) if s.path[:1] == (top,)])
    if top in wanted:
        rewritten = _add(rewritten, (top,), wanted[top])
    if not _says(rewritten, wanted):
        raise ValueError(f"the edit of `{join_key((top,))}` does not fit into the file; edit the file by hand")
    return rewritten


# --- edits on the spot -----------------------------------------------------------------------------------------------


def _put(text: str, before: Mapping[str, Any], path: KeyPath, value: Any) -> str:
    holder = _holder(scan(text), path)
    if holder is not None:
        return _replace(text, holder, _within(before, holder.path, path, value))
    old = lookup(before, path)
    if isinstance(old, Mapping) and isinstance(value, Mapping):
        return _put_table(text, old, path, value)
    return _add(_cut(text, before, path) if old is not None else text, path, value)


def _put_table(text: str, old: Mapping[str, Any], path: KeyPath, new: Mapping[str, Any]) -> str:
    """Only what differs is edited, so that the comments of the rest stay."""
    for key in old.keys() - new.keys():
        text = _cut(text, parse(text), (*path, key))
    for key, value in new.items():
        if key not in old or not same(old[key], value):
            text = _put(text, parse(text), (*path, key), value)
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


def _within(before: Mapping[str, Any], held: KeyPath, path: KeyPath, value: Any) -> Any:
    rest = path[len(held) :]
    return _with(lookup(before, held), rest, value) if rest else value


def _replace(text: str, statement: Statement, value: Any) -> str:
    assert statement.value is not None
    start, end = statement.value
    return text[:start] + value_text(value) + text[end:]


def _drop(text: str, statements: list[Statement]) -> str:
    for statement in reversed(statements):
        text = text[: statement.start] + text[statement.end :]
    return text


# --- new keys --------------------------------------------------------------------------------------------------------


def _add(text: str, path: KeyPath, value: Any) -> str:
    statements = scan(text)
    if isinstance(value, Mapping):
        return _append(text, "\n".join(section_lines(path, value)))
    parent, line = path[:-1], f"{key_text(path[-1])} = {value_text(value)}"
    sibling = _last(statements, lambda s: not s.is_header and not s.in_list and s.table == parent)
    header = _last(statements, lambda s: s.is_header and not s.in_list and s.path == parent)
    if above := sibling or header:
        return _insert(text, above.end, line)
    if not parent:
        return _add_first(text, statements, line)
    # `a.b = 1` made the table `a`: it may not get a header any more.
    dotted = _last(
        statements,
        lambda s: not s.is_header and not s.in_list and len(s.table) < len(parent) < len(s.path) and _below(s, parent),
    )
    if dotted is not None:
        key = ".".join(map(key_text, path[len(dotted.table) :]))
        return _insert(text, dotted.end, f"{key} = {value_text(value)}")
    return _append(text, f"[{'.'.join(map(key_text, parent))}]\n{line}")


def _below(statement: Statement, parent: KeyPath) -> bool:
    return statement.path[: len(parent)] == parent


def _last(statements: list[Statement], fits: Callable[[Statement], bool]) -> Statement | None:
    return next((statement for statement in reversed(statements) if fits(statement)), None)


def _add_first(text: str, statements: list[Statement], line: str) -> str:
    """The first key outside of all tables: before the first header and the comment that belongs to it."""
    if not statements:
        return _append(text, line)
    at = statements[0].start
    while at and text[text.rfind("\n", 0, at - 1) + 1 :].startswith("#"):
        at = text.rfind("\n", 0, at - 1) + 1
    return _insert(text, at, line + "\n")


def _append(text: str, lines: str) -> str:
    gap = "\n" if text.strip() and not text.endswith("\n\n") else ""
    return _insert(text, len(text), gap + lines)


def _insert(text: str, at: int, lines: str) -> str:
    head = text[:at]
    if head and not head.endswith("\n"):
        head += "\n"
    return f"{head}{lines}\n{text[at:]}"


def _ending_like(text: str, edited: str) -> str:
    """With the line ends of `text`, if all of them are those of Windows."""
    if not text.count("\n") or text.count("\n") != text.count("\r\n"):
        return edited
    return re.sub(r"(?<!\r)\n", "\r\n", edited)
