"""`commands_in`: the commands of a shell script, when it is so plain that one can be sure of what the shell will do.

Plain is: words, quoted or not, joined by `&&`, `||`, `;` and `|`. Everything that a shell would expand, substitute,
redirect, group or run in the background makes the whole script not plain, and the answer is None. Unquoted patterns
(`*.py`) are let through, and marked: for showing they are harmless, for deciding they are not.
"""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct

_BLANK: Final = " \t"
_GLOB: Final = re.compile(r"[*?\[\]]")
# What stands for itself outside of quotes. `~` is a home directory at the start of a word and after `:` or `=`, but not
# in `HEAD~1`. Beyond ASCII only what can be seen: some locale may take the rest for blanks.
_BARE: Final = re.compile(r"(?:[A-Za-z0-9_./:,@%+=*?\[\]-]|(?<=[A-Za-z0-9])~|[^\x00-\x7f])+")
_CONTROL: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
# What does not mean itself inside double quotes; a backslash at the end has escaped the quote. `!` does in interactive
# shells.
_EXPANDED: Final = re.compile(r"[$`!]|\\\\|\\\Z")
_OPERATORS: Final = ("&&", "||", ";", "|")


class Word(Struct, frozen=True):
    text: str
    bare: bool
    """No part of it was quoted."""
    glob: bool
    """It has an unquoted pattern character, so that the shell may put other words in its place."""


class Command(Struct, frozen=True):
    """One command of a script, `text` as it was written; `operator` is what stands before it ("" for the first)."""

    operator: str
    words: tuple[Word, ...]
    text: str

    @property
    def argv(self) -> tuple[str, ...]:
        return tuple(word.text for word in self.words)

    @property
    def has_glob(self) -> bool:
        return any(word.glob for word in self.words)


class _NotPlainError(Exception):
    """The script has something in it that is not read here."""


def commands_in(script: str) -> tuple[Command, ...] | None:
    """The commands of a plain script in order, or None when it is not plain (or empty)."""
    try:
        return _Reader(script).commands()
    except _NotPlainError:
        return None


class _Reader:
    def __init__(self, script: str) -> None:
        self._script = script
        self._at = 0

    def commands(self) -> tuple[Command, ...]:
        found: list[Command] = []
        operator = ""
        while True:
            found.append(self._command(operator))
            if self._at == len(self._script):
                return tuple(found)
            operator = self._operator()
            self._skip_blanks()
            if self._at == len(self._script) and operator == ";":  # a last `;` ends the command before it
                return tuple(found)

    def _command(self, operator: str) -> Command:
        self._skip_blanks()
        start = self._at
        words: list[Word] = []
        end = start
        while self._at < len(self._script) and self._script[self._at] not in "&|;":
            words.append(self._word())
            end = self._at
            self._skip_blanks()
        if not words:
            raise _NotPlainError
        return Command(operator, tuple(words), self._script[start:end])

    def _operator(self) -> str:
        for operator in _OPERATORS:
            if self._script.startswith(operator, self._at):
                self._at += len(operator)
                # `;;`, `|&`, `&&&` and the like mean something else, or nothing.
                if self._script[self._at : self._at + 1] in ("&", "|", ";"):
                    raise _NotPlainError
                return operator
        raise _NotPlainError

    def _skip_blanks(self) -> None:
        while self._at < len(self._script) and self._script[self._at] in _BLANK:
            self._at += 1

    def _word(self) -> Word:
        parts: list[str] = []
        bare, glob = True, False
        while self._at < len(self._script):
            char = self._script[self._at]
            if char in _BLANK or char in "&|;":
                break
            if char in "'\"":
                bare = False
                parts.append(self._quoted(char))
            else:
                parts.append(self._bare())
                glob = glob or _GLOB.search(parts[-1]) is not None
        return Word("".join(parts), bare, glob)

    def _bare(self) -> str:
        found = _BARE.match(self._script, self._at)
        if found is None or not found.group().isprintable():
            raise _NotPlainError
        self._at = found.end()
        return found.group()

    def _quoted(self, quote: str) -> str:
        end = self._script.find(quote, self._at + 1)
        text = self._script[self._at + 1 : end]
        if end < 0 or _CONTROL.search(text) or (quote == '"' and _EXPANDED.search(text)):
            raise _NotPlainError
        self._at = end + 1
        return text
