"""The home: the directory with `config.toml`, `auth.json` and what Treadle keeps.

Owns only where it is. It is made by whoever first writes into it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from treadle.config.problems import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

VARIABLES: Final = ("TREADLE_HOME", "CODEX_HOME")


def find_home(environ: Mapping[str, str]) -> Path:
    """`$TREADLE_HOME`, else `$CODEX_HOME`, else `~/.treadle`; absolute, and a directory if it exists."""
    from pathlib import Path

    return Path(home_name(environ))


def home_name(environ: Mapping[str, str]) -> str:
    """The same as text: a server that starts tells it before it loads anything for paths."""
    for variable in VARIABLES:
        if environ.get(variable):
            return _checked(_expanded(environ[variable], environ), f"the environment variable {variable}")
    return _checked(os.path.join(_user_home(environ), ".treadle"), "the home directory of the user")


def _expanded(text: str, environ: Mapping[str, str]) -> str:
    if text == "~" or text.startswith("~/"):
        return os.path.join(_user_home(environ), text[2:])
    return text


def _user_home(environ: Mapping[str, str]) -> str:
    if environ.get("HOME"):
        return environ["HOME"]
    home = os.path.expanduser("~")
    if home == "~":
        raise ConfigError("there is no home directory for this user; set TREADLE_HOME to a directory")
    return home


def _checked(path: str, source: str) -> str:
    try:
        absolute = os.path.abspath(path)
        mode = os.stat(absolute).st_mode
    except FileNotFoundError:
        if not os.path.islink(absolute):
            return absolute
        problem = "is a symbolic link to nothing"
    except (OSError, ValueError) as error:
        problem = f"cannot be used ({getattr(error, 'strerror', None) or error})"
    else:
        if stat.S_ISDIR(mode):
            return absolute
        problem = "is not a directory"
    raise ConfigError(f"`{path}` {problem}; set TREADLE_HOME to a directory", source=source)
