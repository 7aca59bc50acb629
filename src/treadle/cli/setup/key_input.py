"""Where a key is typed: at a hidden prompt, or from standard input. Never on the command line, which all can read."""

from __future__ import annotations

import os
import sys
from typing import Final

import click

from treadle.cli.exit_codes import REFUSED
from treadle.cli.problem import Problem

# Keys have some hundred characters, tokens some thousand.
_MAX_BYTES: Final = 64 * 1024


def read_key(provider: str, *, from_stdin: bool) -> str:
    """The key as it was given; raises `Problem` when there is none."""
    if from_stdin or not sys.stdin.isatty():
        return _from_stdin(provider)
    key: str = click.prompt(f"Key for {provider} (it is not shown)", hide_input=True, err=True)
    return key


def _from_stdin(provider: str) -> str:
    pieces: list[bytes] = []
    while sum(map(len, pieces)) <= _MAX_BYTES and (piece := os.read(0, 1 << 16)):
        pieces.append(piece)
    data = b"".join(pieces)
    if len(data) > _MAX_BYTES:
        raise Problem(
            "standard input is no key",
            why=f"it has more than {_MAX_BYTES} bytes",
            do=f"treadle login {provider} < FILE_WITH_THE_KEY",
            code=REFUSED,
        )
    key = data.decode("utf-8", "replace").strip()
    if not key:
        raise Problem(
            f"there is no key for {provider}",
            why="standard input is empty",
            do=f"treadle login {provider} in a terminal, or: treadle login {provider} < FILE_WITH_THE_KEY",
            code=REFUSED,
        )
    return key
