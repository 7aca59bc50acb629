"""Where the home is: the one rule that servers and clients share. `treadle.config` checks whether it can be used."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

VARIABLES: Final = ("TREADLE_HOME", "CODEX_HOME")


def home_place(environ: Mapping[str, str]) -> tuple[str, str] | None:
    """`$TREADLE_HOME`, else `$CODEX_HOME`, else `~/.treadle`, and who says so; None for a user without a home."""
    home = environ.get("HOME") or os.path.expanduser("~")
    user = home if os.path.isabs(home) else None
    for variable in VARIABLES:
        text = environ.get(variable)
        if text and not (text == "~" or text.startswith("~/")):
            return text, f"the environment variable {variable}"
        if text:
            return None if user is None else (os.path.join(user, text[2:]), f"the environment variable {variable}")
    return None if user is None else (os.path.join(user, ".treadle"), "the home directory of the user")
