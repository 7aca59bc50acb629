"""Front matter: the YAML between the first two lines of `---` of a `SKILL.md`, and that of `agents/openai.yaml`. Pure.

It is the part of YAML that people write there: tables, lists, texts plain, quoted, folded and literal, `[a, b]` and
`{a: b}`. All values are texts. Plain text may contain what YAML would not take there (`: `, a leading `*` or `@`),
because many such files exist. What was begun and never closed is an error of its line. Time and depth are bounded by
the length of the text, whatever it contains.
"""

from __future__ import annotations

import re
from typing import Final, NoReturn, TypeAlias

from treadle.errors import TreadleError

Value: TypeAlias = "str | list[Value] | dict[str, Value]"

DELIMITER: Final = "---"
MISSING: Final = "missing YAML frontmatter delimited by ---"
# Of tables and lists in each other: nobody writes more, and each level is a call.
MAX_DEPTH: Final = 16

_KEY: Final = re.compile(r"""(?:"([^"]*)"\s*|'([^']*)'\s*|([^\s:#"'\[\]{},][^:]*)):(?:\s+(.*)|$)""", re.DOTALL)
_BLOCK: Final = re.compile(r"([|>])[-+0-9]{0,2}\s*(?:#.*)?")
_ITEM: Final = re.compile(r"-(?:\s+(.*)|$)", re.DOTALL)
_COMMENT: Final = re.compile(r"(?:^|\s)#.*")
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "f": "\f", "v": "\v", "e": "\x1b", "a": "\a", "b": "\b"}
_NOTHING: Final = frozenset({"~", "null", "Null", "NULL"})


class YamlError(TreadleError, ValueError):
    """A text that is not the YAML that is read here."""


def split_document(text: str) -> tuple[list[str], str]:
    """The lines of the front matter, and what stands below it. Raises `YamlError`."""
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").split("\n")
    if lines[0].rstrip() == DELIMITER:
        for end, line in enumerate(lines[1:], 1):
            if line.rstrip() == DELIMITER:
                return lines[1:end], "\n".join(lines[end + 1 :])
    raise YamlError(MISSING)


def front_matter(text: str) -> dict[str, Value]:
    """The table at the beginning of a `SKILL.md`. Raises `YamlError`."""
    return _Reader(split_document(text)[0], 2).table()


def read_yaml(text: str, first: int = 1) -> dict[str, Value]:
    """A table that is a whole text; `first` is the number of its first line. Raises `YamlError`."""
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").split("\n")
    if lines[0].rstrip() == DELIMITER:
        del lines[0]
        first += 1
    return _Reader(lines, first).table()


class _Reader:
    """A cursor in the lines. Every method leaves it behind what it has read."""

    def __init__(self, lines: list[str], first: int) -> None:
        self._lines = lines
        self._first = first
        self._at = 0

    def table(self) -> dict[str, Value]:
        indent = self._next()
        if indent is None:
            return {}
        found = self._table(indent, 0)
        if self._next() is not None:
            self._fail("is indented less than the first one")
        return found

    def _fail(self, problem: str, at: int | None = None) -> NoReturn:
        raise YamlError(f"invalid YAML: line {self._first + (self._at if at is None else at)} {problem}")

    def _next(self) -> int | None:
        """The indentation of the next line that says something."""
        while self._at < len(self._lines):
            line = self._lines[self._at]
            text = line.lstrip(" ")
            if text.startswith("\t") and text.strip():
                self._fail("is indented with a tab; take spaces")
            if text.strip() and not text.startswith("#"):
                return len(line) - len(text)
            self._at += 1
        return None

    def _table(self, indent: int, depth: int) -> dict[str, Value]:
        if depth > MAX_DEPTH:
            self._fail("is nested too deeply")
        found: dict[str, Value] = {}
        while (here := self._next()) is not None and here >= indent:
            line = self._lines[self._at][indent:].rstrip()
            match = None if here > indent or _ITEM.fullmatch(line) else _KEY.fullmatch(line)
            if match is None:
                self._fail("is not `key: value`")
            key = next(name for name in match.groups()[:3] if name is not None).rstrip()
            if key in found:
                self._fail(f"has `{key[:100]}` for the second time")
            self._at += 1
            found[key] = self._value(match[4] or "", indent, depth)
        return found

    def _list(self, indent: int, depth: int) -> list[Value]:
        if depth > MAX_DEPTH:
            self._fail("is nested too deeply")
        found: list[Value] = []
        while self._next() == indent:
            line = self._lines[self._at][indent:].rstrip()
            match = _ITEM.fullmatch(line)
            if match is None:
                break
            rest = match[1] or ""
            if rest and not rest.startswith("#") and _KEY.fullmatch(rest):
                # A table whose first line stands behind the dash: read as if it stood below it.
                inner = indent + len(line) - len(rest)
                self._lines[self._at] = " " * inner + rest
                found.append(self._table(inner, depth + 1))
            else:
                self._at += 1
                found.append(self._value(rest, indent, depth))
        return found

    def _value(self, rest: str, indent: int, depth: int) -> Value:
        """What stands behind a key or a dash, and on the lines below that belong to it: those further in."""
        rest = rest.lstrip()
        if not rest or rest.startswith("#"):
            here = self._next()
            if here is not None and here >= indent:
                is_item = _ITEM.fullmatch(self._lines[self._at][here:].rstrip()) is not None
                if is_item and (here > indent or self._is_in_table(indent)):
                    return self._list(here, depth + 1)
                if here > indent:
                    return self._table(here, depth + 1)
            return ""
        if match := _BLOCK.fullmatch(rest):
            return self._block_text(match[1], indent)
        if rest[0] in "\"'":
            return self._quoted(rest, indent)
        if rest[0] in "[{":
            return self._flow(rest, indent)
        lines = [rest, *self._further_in(indent)]
        text = " ".join(part for line in lines if (part := _COMMENT.sub("", line).strip()))
        return "" if text in _NOTHING else text

    def _is_in_table(self, indent: int) -> bool:
        """Whether the line before is `key:`: its list may stand as far out as itself, that of a dash may not."""
        return _ITEM.fullmatch(self._lines[self._at - 1][indent:].rstrip()) is None

    def _further_in(self, indent: int) -> list[str]:
        start = self._at
        while self._at < len(self._lines):
            line = self._lines[self._at]
            if line.strip() and len(line) - len(line.lstrip(" ")) <= indent:
                break
            self._at += 1
        return self._lines[start : self._at]

    def _block_text(self, kind: str, indent: int) -> str:
        lines = self._further_in(indent)
        margin = min((len(line) - len(line.lstrip(" ")) for line in lines if line.strip()), default=0)
        text = "\n".join(line[margin:].rstrip() for line in lines).strip("\n")
        return text if kind == "|" else re.sub(r"(?<!\n)\n(?!\n)", " ", text)

    def _quoted(self, rest: str, indent: int) -> str:
        start, quote = self._at - 1, rest[0]
        text = " ".join(filter(None, map(str.strip, [rest, *self._further_in(indent)])))
        end = _end_of_quote(text, 1, quote)
        if end is None:
            self._fail(f"opens a text with {quote} that is never closed", start)
        if _COMMENT.sub("", text[end + 1 :]).strip():
            self._fail("has text behind the closing quote; put the whole text into quotes", start)
        return _unquoted(text[1:end], quote)

    def _flow(self, rest: str, indent: int) -> Value:
        """A list or a table in brackets, which may go on over several lines."""
        start, lines = self._at - 1, [rest, *self._further_in(indent)]
        if self._at < len(self._lines) and self._lines[self._at].lstrip()[:1] in ("]", "}"):
            lines.append(self._lines[self._at])  # as far out as the key
            self._at += 1
        # Between quotes a `#` begins no comment.
        flow = _Flow(" ".join(line if {'"', "'"} & set(line) else _COMMENT.sub("", line) for line in lines))
        try:
            return flow.whole()
        except ValueError as error:
            self._fail(str(error), start)


class _Flow:
    """`[a, b]` and `{a: b}` on one line. Raises `ValueError`, whose text follows the number of the line."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def whole(self) -> Value:
        value = self._read(0)
        if _COMMENT.sub("", self._text[self._at :]).strip():
            raise ValueError("has text behind the closing bracket")
        return value

    def _blank(self) -> str:
        """The next character behind blanks; empty at the end."""
        while self._at < len(self._text) and self._text[self._at].isspace():
            self._at += 1
        return self._text[self._at : self._at + 1]

    def _read(self, depth: int) -> Value:
        if depth > MAX_DEPTH:
            raise ValueError("is nested too deeply")
        match self._blank():
            case "[":
                return self._items(depth)
            case "{":
                return self._members(depth)
            case '"' | "'" as quote:
                end = _end_of_quote(self._text, self._at + 1, quote)
                if end is None:
                    raise ValueError(f"opens a text with {quote} that is never closed")
                text, self._at = self._text[self._at + 1 : end], end + 1
                return _unquoted(text, quote)
        start = self._at
        while self._at < len(self._text) and self._text[self._at] not in ",[]{}":
            if self._text[self._at] == ":" and self._text[self._at + 1 : self._at + 2] in ("", " "):
                break
            self._at += 1
        text = self._text[start : self._at].strip()
        return "" if text in _NOTHING else text

    def _items(self, depth: int) -> list[Value]:
        found: list[Value] = []
        self._at += 1
        while self._blank() != "]":
            found.append(self._read(depth + 1))
            self._separator("]")
        self._at += 1
        return found

    def _members(self, depth: int) -> dict[str, Value]:
        found: dict[str, Value] = {}
        self._at += 1
        while self._blank() != "}":
            key = self._read(MAX_DEPTH)
            if not isinstance(key, str) or self._blank() != ":":
                raise ValueError("is not `{key: value}`")
            self._at += 1
            if key in found:
                raise ValueError(f"has `{key[:100]}` for the second time")
            found[key] = self._read(depth + 1)
            self._separator("}")
        self._at += 1
        return found

    def _separator(self, end: str) -> None:
        here = self._blank()
        if here == ",":
            self._at += 1
        elif not here:
            raise ValueError(f"opens `{'[' if end == ']' else '{'}` that is never closed")
        elif here != end:
            raise ValueError(f"lacks `,` or `{end}`")


def _end_of_quote(text: str, start: int, quote: str) -> int | None:
    """Where the closing quote is; an escaped or a doubled one closes nothing."""
    place = start
    while (place := text.find(quote, place)) >= 0:
        if quote == "'" and text[place + 1 : place + 2] == "'":
            place += 2
            continue
        before = place - 1
        while quote == '"' and before >= start and text[before] == "\\":
            before -= 1
        if (place - before) % 2:
            return place
        place += 1
    return None


def _unquoted(text: str, quote: str) -> str:
    if quote == "'":
        return text.replace("''", "'")

    def plain(match: re.Match[str]) -> str:
        if match[1]:
            return chr(int(match[1][1:], 16))
        return _ESCAPES.get(match[2], match[2])

    text = re.sub(r"\\(?:(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4})|(.))", plain, text)
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")  # halves that were escaped one by one
