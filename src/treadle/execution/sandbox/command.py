"""The command that shall be confined, and its environment on the way through the programs that confine it.

Owns the split of the environment into what a shell, bubblewrap or Python can hand on untouched and what must be put
back at the end.

Variables that steer the dynamic linker or a shell must not reach those programs at all: they run before the
confinement is in place, and `LD_LIBRARY_PATH` often names a directory that confined programs can write to.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from treadle.errors import INVALID_PARAMS, ExecError

# These are set or changed on the way even when they were not given.
_TOUCHED: Final = frozenset({"PWD", "OLDPWD", "SHLVL", "_", "LC_CTYPE"})
_STEERING: Final = frozenset(
    {
        *("CDPATH", "ENV", "IFS", "LINENO", "OPTIND", "PPID", "PS1", "PS2", "PS4", "SHELLOPTS"),
        *("GCONV_PATH", "LOCPATH", "NLSPATH"),
    }
)
_STEERING_PREFIXES: Final = ("BASH", "GLIBC_", "LD_", "MALLOC_", "PYTHON")
_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")  # a shell drops variables with other names


@dataclass(frozen=True, slots=True)
class SplitEnvironment:
    """`outer` goes along; at the end `unset` is taken away and `restore` is added."""

    outer: dict[str, str]
    unset: tuple[str, ...]
    restore: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Command:
    """`arg0` is None when the command sees its own name; `cwd` is canonical."""

    argv: tuple[str, ...]
    arg0: str | None
    cwd: str
    tty: bool
    split: SplitEnvironment


def split_environment(env: Mapping[str, str]) -> SplitEnvironment:
    outer: dict[str, str] = {}
    restore: list[tuple[str, str]] = []
    for name, value in env.items():
        if not name or "=" in name:
            raise ExecError(
                f"environment variable {name[:200]!r}: a name must not be empty or have a =", INVALID_PARAMS
            )
        if _is_held(name):
            restore.append((name, value))
        else:
            outer[name] = value
    return SplitEnvironment(outer, tuple(sorted(_TOUCHED - env.keys())), tuple(restore))


def _is_held(name: str) -> bool:
    return (
        name in _TOUCHED or name in _STEERING or name.startswith(_STEERING_PREFIXES) or _PLAIN.fullmatch(name) is None
    )
