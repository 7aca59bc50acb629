"""The shell that commands run in: the words to start it with, and how a command is shown to people."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from functools import cache
from typing import Final

_BASH: Final = "/bin/bash"
_SH: Final = "/bin/sh"
_UNQUOTED: Final = re.compile(r"[A-Za-z0-9_+\-./:@\]]+", re.ASCII)
_IN_DOUBLE: Final = re.compile(r'(["$`\\])')
# The longest beginning that fits one kind of quotes: an interactive shell takes `!` and `^` for its history even
# inside double ones.
_SINGLE: Final = re.compile(r"[^']*")
_DOUBLE: Final = re.compile(r"[^!^]*")
# A word as `shown` writes it, or as another quotes it who means the same.
_WORD: Final = re.compile(r"""(?:'[^']*'|"(?:\\.|[^"\\])*"|\\.|[^\s'"\\])+""", re.DOTALL)
_PIECE: Final = re.compile(r"""'([^']*)'|"((?:\\.|[^"\\])*)"|\\(.)|([^\s'"\\]+)""", re.DOTALL)
_ESCAPED: Final = re.compile(r'\\(["$`\\])')
# Only where the system puts its own: a program elsewhere with the name of a shell is not to be hidden.
_SHELL: Final = re.compile(r"(?:/usr/bin/|/bin/|/usr/local/bin/|/opt/homebrew/bin/)?(?:bash|dash|fish|ksh|sh|zsh)")
_FLAGS: Final = frozenset({"-c", "-lc"})


def shell_argv(cmd: str, shell: str | None = None, login: bool = True) -> tuple[str, ...]:
    """The words that run `cmd` in a shell; without `shell` in this machine's bash, or sh where there is none.

    For another machine pass the shell that its environment tells (`Environment.info.shell.path`).
    """
    return (shell or default_shell(), "-lc" if login else "-c", cmd)


@cache
def default_shell() -> str:
    return _BASH if os.access(_BASH, os.X_OK) else _SH


def shown(argv: Iterable[str]) -> str:
    """A command as one line that a shell would read as the same words, quoted as Codex does.

    Single quotes, or double ones around text that has single quotes in it.
    """
    return " ".join(map(_quoted, argv))


def asked(line: str) -> str:
    """What a shell is asked to run, when a line that was `shown` is that and nothing else; else the line."""
    words: list[str] = []
    end = 0
    for found in _WORD.finditer(line):
        if len(words) == 3 or line[end : found.start()].strip():
            return line
        words.append(
            "".join(
                single or _ESCAPED.sub(r"\1", double) or escaped or plain
                for single, double, escaped, plain in _PIECE.findall(found.group())
            )
        )
        end = found.end()
    if len(words) != 3 or line[end:].strip() or words[1] not in _FLAGS or _SHELL.fullmatch(words[0]) is None:
        return line
    return words[2]


def _quoted(word: str) -> str:
    if not word:
        return "''"
    if _UNQUOTED.fullmatch(word):
        return word
    pieces: list[str] = []
    while word:
        single, double = _beginning(_SINGLE, word), _beginning(_DOUBLE, word)
        if len(single) >= len(double):
            pieces.append(f"'{single}'")
            word = word[len(single) :]
        else:
            pieces.append('"' + _IN_DOUBLE.sub(r"\\\1", double) + '"')
            word = word[len(double) :]
    return "".join(pieces)


def _beginning(pattern: re.Pattern[str], word: str) -> str:
    found = pattern.match(word)
    return found.group() if found is not None else ""
