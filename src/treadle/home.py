"""Where the home is: the one rule that servers and clients share. `config.home` says whether it can be used."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

VARIABLES: Final = ("TREADLE_HOME", "CODEX_HOME")


def home_place(environ: Mapping[str, str]) -> tuple[str, str] | None:
    """`$TREADLE_HOME`, else `$CODEX_HOME`, else `~/.treadle`, and who says so; None for a user without a home."""
    for variable in VARIABLES:
        if environ.get(variable):
            text = _expanded(environ[variable], environ)
            return None if text is None else (text, f"the environment variable {variable}")
    user = _user_home(environ)
    return None if user is None else (os.path.join(user, ".treadle"), "the home directory of the user")


def _expanded(text: str, environ: Mapping[str, str]) -> str | None:
    if text == "~" or text.startswith("~/"):
        user = _user_home(environ)
        return None if user is None else os.path.join(user, text[2:])
    return text


def _user_home(environ: Mapping[str, str]) -> str | None:
    home = environ.get("HOME") or os.path.expanduser("~")
    return home if os.path.isabs(home) else None
