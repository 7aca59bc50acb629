"""`LoginStatus`: whether an engine has a login, judged from its files and the environment.

Nothing is sent anywhere, so an expired login looks like a good one. Values are never stored or shown, only where they
are. Each engine says for itself where its login is (`Engine.login`); `look_for_login` does for most of them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

# A file with a login is small; what is longer is not read to its end.
_MAX_BYTES: Final = 1 << 20
PROVIDER_KEYS: Final = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "OPENROUTER_API_KEY", "GEMINI_API_KEY")
"""Variables in which programs that know many providers find a key."""


@dataclass(frozen=True, slots=True)
class LoginStatus:
    """What was found.

    Args:
        ok: Whether there is a login; None when that is unknown.
        where: The file or variable that has it, or what is missing.
    """

    ok: bool | None
    where: str = ""


def unknown_login(environ: Mapping[str, str]) -> LoginStatus:
    """The status of a login of which nothing is known."""
    return LoginStatus(None)


def look_for_login(
    environ: Mapping[str, str], *, variables: Sequence[str] = (), files: Sequence[str | os.PathLike[str]]
) -> LoginStatus:
    """The first variable that is set, else the first file that has something in it.

    Args:
        environ: The environment that the engine would run in.
        variables: Names of variables that have a key.
        files: Files that have a login; `~` is the home of that environment.
    """
    for name in variables:
        if environ.get(name, "").strip():
            return LoginStatus(True, name)
    home = home_of(environ)
    paths = [home / os.fspath(file)[2:] if os.fspath(file).startswith("~/") else Path(file) for file in files]
    shown = [f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path) for path in paths]
    for path, name in zip(paths, shown, strict=True):
        try:
            content = read_start(path)
        except OSError:
            continue
        # Who has logged out leaves an empty object.
        if content.strip().strip("{}[] \t\r\n"):
            return LoginStatus(True, name)
    return LoginStatus(False, f"no {shown[0]}")


def settings_folder(environ: Mapping[str, str], variable: str, usual: str) -> Path:
    """The folder that a variable names, else the usual one below the home of that environment."""
    given = environ.get(variable)
    return Path(given) if given else home_of(environ) / usual


def read_start(file: Path) -> str:
    """The text of a file with settings, as far as such files go. Raises `OSError`."""
    with file.open("rb") as stream:
        return stream.read(_MAX_BYTES).decode("utf-8", "replace")


def home_of(environ: Mapping[str, str]) -> Path:
    """The home of the user in an environment."""
    return Path(environ.get("HOME") or os.path.expanduser("~"))
