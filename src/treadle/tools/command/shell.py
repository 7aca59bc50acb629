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
