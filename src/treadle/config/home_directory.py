"""The home: the directory with `config.toml`, `auth.json` and everything that Treadle keeps.

It only checks whether the directory is usable (`treadle.home` knows where it is). The first writer creates it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from typing import TYPE_CHECKING

from treadle.config.problems import ConfigError
from treadle.home import home_place

if TYPE_CHECKING:
    from pathlib import Path


def find_home(environ: Mapping[str, str]) -> Path:
    """`$TREADLE_HOME`, else `$CODEX_HOME`, else `~/.treadle`; absolute, and a directory if it exists."""
    from pathlib import Path  # 4 ms, which the answer to `initialize` does not wait for

    return Path(home_name(environ))


def home_name(environ: Mapping[str, str]) -> str:
    """The same as text: a server that starts tells it before it loads anything for paths."""
    place = home_place(environ)
    if place is None:
        raise ConfigError("there is no home directory for this user; set TREADLE_HOME to a directory")
    return _checked(*place)


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
