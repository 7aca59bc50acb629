"""Checks of arguments: one that cannot be used is an error that says what to type.

Each function takes the name of the parameter and its value, and gives the value as it is used from then on. None is
never passed: it is what a parameter is when nobody passed it. The caller knows which kind a parameter is.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final

from treadle.errors import ArgumentTypeError, ArgumentValueError

LONGEST_S: Final = 1e9
"""Thirty years: what is longer counts as no limit. The clocks of threads and of asyncio end somewhere beyond it."""


def text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise wrong_type(name, "a str", value)
    problem = text_problem(value)
    if problem is not None:
        raise ArgumentValueError(name, f"{name} {problem}: leave it out")
    return value


def text_problem(value: str) -> str | None:
    """Why a string can be neither sent nor stored; None when it can."""
    if "\0" in value:
        return f"has a NUL character at {value.index(chr(0))}"
    try:
        value.encode()
    except UnicodeEncodeError as error:
        return f"has half a character (a lone surrogate) at {error.start}"
    return None


def option_value(name: str, value: object) -> str:
    """A string that follows an option on another program's command line, and cannot be taken for one itself."""
    found = text(name, value)
    if not found or found.startswith("-"):
        problem = "is empty" if not found else "would be taken for an option"
        raise ArgumentValueError(name, f"{name} cannot be {found!r}: it {problem}; leave {name} out for the default")
    return found


def flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise wrong_type(name, "True or False", value)
    return value


def count(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise wrong_type(name, "a whole number", value)
    if value < 0:
        raise ArgumentValueError(name, f"{name} cannot be negative, as {value} is")
    return value


def seconds(name: str, value: object) -> float:
    """A time limit; `math.inf` is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        hint = ""
        with suppress(ValueError):  # a number in quotes
            hint = f": pass {name}={value}" if isinstance(value, str) and math.isfinite(float(value)) else ""
        raise wrong_type(name, "a number of seconds", value, hint)
    if not value >= 0:  # nor is NaN
        raise ArgumentValueError(name, f"{name} must be a number of seconds from 0 on, not {value}")
    return value if value <= LONGEST_S else math.inf


def limit(timeout: object) -> float | None:
    """The parameter `timeout`, which every call may have."""
    return None if timeout is None else seconds("timeout", timeout)


def wait_of(limit: float | None) -> float | None:
    """A time limit for a wait of threads, where only None is no limit."""
    return None if limit == math.inf else limit


def mapping(name: str, value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise wrong_type(name, "a dict", value)
    for key in value:
        if not isinstance(key, str):
            raise wrong_type(f"a key of {name}", "a str", key)
    return value


def variables(name: str, value: object) -> Mapping[str, str]:
    """An environment."""
    found = mapping(name, value)
    for key, member in found.items():
        if not isinstance(member, str):
            raise wrong_type(f"{name}[{key!r}]", "a str", member)
    return found


def texts(name: str, value: object) -> list[str]:
    """A list of strings, and not a string, which is one too."""
    return [text(f"{name}[{index}]", member) for index, member in enumerate(_listed(name, "strings", value))]


def words(name: str, value: object) -> list[str]:
    """A command line: strings or paths."""
    return [path(f"{name}[{index}]", member) for index, member in enumerate(_listed(name, "words", value))]


def path(name: str, value: object) -> str:
    """A path, as a string."""
    if isinstance(value, str | os.PathLike):
        found = os.fspath(value)
        if isinstance(found, str):
            return found
    raise wrong_type(name, "a str or a path (os.PathLike)", value)


def folder(name: str, value: object, base: str | os.PathLike[str] | None = None) -> str:
    """The path of a folder of this machine, which has to be there. A relative one is seen from `base`."""
    found = path(name, value)
    place = os.path.join(base or "", found) or "."
    if os.path.isdir(place):
        return found
    if os.path.exists(place):
        raise ArgumentValueError(name, f"{name} must be a folder, and {found!r} is a file")
    seen_from = "" if os.path.isabs(place) else f" (seen from {os.getcwd()!r})"
    raise ArgumentValueError(name, f"{name} does not exist: {found!r}{seen_from}; make the folder, or name another one")


def function(name: str, value: object, takes: str) -> Callable[..., Any]:
    if not callable(value):
        raise wrong_type(name, f"a function that takes {takes}", value)
    return value


def one_of(name: str, value: object, allowed: Iterable[str], hint: str = "") -> str:
    """A word of a list."""
    known = tuple(allowed)
    if not isinstance(value, str):
        raise wrong_type(name, f"one of {', '.join(map(repr, known))}", value)
    if value not in known:
        raise ArgumentValueError(name, f"{name} must be one of {', '.join(map(repr, known))}, not {value!r}{hint}")
    return value


def wrong_type(name: str, wanted: str, value: object, hint: str = "") -> ArgumentTypeError:
    return ArgumentTypeError(name, f"{name} must be {wanted}, not {_shown(value)}{hint}")


def _listed(name: str, of: str, value: object) -> list[Any]:
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise wrong_type(name, f"a list of {of}", value, f": pass {name}=[…]" if isinstance(value, str) else "")
    return list(value)


def _shown(value: object) -> str:
    """The type; the value only where it cannot be a secret that somebody put in the wrong place."""
    if value is None or isinstance(value, bool | float):
        return repr(value)
    if isinstance(value, type):
        return f"the class {value.__name__}"
    kind = type(value).__name__
    article = "an" if kind[0].lower() in "aeiou" else "a"
    return f"{article} {kind}"
