"""Python, git, the home and the settings."""

from __future__ import annotations

import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from treadle.cli.checkup.check import Check
from treadle.config import ConfigError, find_home, load_config

OLDEST: Final = (3, 11)
# With less, the next long conversation may not fit; with the lesser, the next turn.
_LITTLE: Final = 1 << 30
_TOO_LITTLE: Final = 64 << 20
# They hold keys.
_PRIVATE: Final = ("auth.json", "keys.json", "config.toml", "threads.db")
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


def check_python() -> Check:
    version = sys.version.split()[0]
    if sys.version_info < OLDEST:
        wanted = ".".join(map(str, OLDEST))
        return Check(f"Python {version} is older than {wanted}", "failed", f"install Python {wanted} or newer")
    return Check(f"Python {version} at {sys.executable}")


def check_git() -> Check:
    path = shutil.which("git")
    if path is None:
        return Check("git is not installed: projects have no branches", "warning", "sudo apt install git")
    return Check(f"git at {path}")


def check_home() -> Iterator[Check]:
    """Whether it can be written, is closed to others, and has room."""
    try:
        home = find_home(os.environ)
    except ConfigError as error:
        yield Check(str(error), "failed", "export TREADLE_HOME=~/.treadle")
        return
    if not home.exists():
        made_in = next(parent for parent in home.parents if parent.exists())
        if os.access(made_in, os.W_OK):
            yield Check(f"home {home}: made when it is first needed")
        else:
            yield _unwritable(f"home {home} cannot be made")
        yield from _room(made_in)
        return
    try:
        with tempfile.TemporaryFile(dir=home):
            yield Check(f"home {home} can be written")
    except OSError as error:
        yield _unwritable(f"home {home} cannot be written: {error.strerror}")
    yield from _readable_by_others(home)
    yield from _room(home)


def _unwritable(what: str) -> Check:
    return Check(what, "failed", "set TREADLE_HOME to a folder of yours: export TREADLE_HOME=~/.treadle")


def _readable_by_others(home: Path) -> Iterator[Check]:
    """Others get at the files of a home only if they get into it."""
    if not home.stat().st_mode & _OTHERS:
        return
    found = [path for name in _PRIVATE if (path := home / name).exists() and path.stat().st_mode & _OTHERS]
    if found:
        names = ", ".join(path.name for path in found)
        mend = f"chmod 700 {home}; chmod 600 " + " ".join(map(str, found))
        yield Check(f"other users of this machine can read {names} in {home}", "warning", mend)


def _room(folder: Path) -> Iterator[Check]:
    try:
        free = shutil.disk_usage(folder).free
    except OSError:
        return  # whether it can be used at all was said before
    shown = f"{free / (1 << 30):.1f} GB" if free >= _LITTLE else f"{free >> 20} MB"
    if free < _TOO_LITTLE:
        yield Check(f"the disk of the home is full: {shown} left", "failed", f"make room: du -sh {folder}/*")
    elif free < _LITTLE:
        yield Check(f"the disk of the home is nearly full: {shown} left", "warning", f"make room: du -sh {folder}/*")
    else:
        yield Check(f"{shown} free for threads")


def check_settings(overrides: Sequence[str]) -> Check:
    try:
        loaded = load_config(find_home(os.environ), overrides=overrides)
    except ConfigError as error:
        problems = [str(problem) for problem in error.problems]
        return Check("the settings cannot be used", "failed", "correct them, then: treadle config check", problems)
    warnings = [str(warning) for warning in loaded.warnings]
    if warnings:
        return Check("the settings can be read, with warnings", "warning", "treadle config check", warnings)
    return Check("the settings can be read")
