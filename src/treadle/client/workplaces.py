"""`environment=` of the SDK: where a thread works, and the directories there. Pure."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, TypeAlias

from treadle.arguments import path, text, wrong_type
from treadle.errors import ArgumentValueError
from treadle.protocol.app.settings import TurnEnvironmentParams

Environments: TypeAlias = str | Sequence[tuple[str, str | os.PathLike[str]]]
"""The id of an environment, or several with the directories there, of which the first is the thread's."""


def workplaces_of(environment: Environments, cwd: str | os.PathLike[str] | None) -> list[tuple[str, str | None]]:
    """The ids and the directories. None for a directory is that of the environment, which has to be asked for. Raises
    `ArgumentError`."""
    if isinstance(environment, str):
        directory = None if cwd is None else _absolute("cwd", cwd)
        return [(text("environment", environment), directory)]
    if not isinstance(environment, Sequence):
        raise wrong_type("environment", "the id of an environment, or a list of (id, cwd)", environment)
    places: list[tuple[str, str | None]] = []
    for number, place in enumerate(environment):
        name = f"environment[{number}]"
        if isinstance(place, str) or not isinstance(place, Sequence) or len(place) != 2:
            raise wrong_type(name, "a pair of an id and a directory there", place)
        places.append((text(name, place[0]), _absolute(name, place[1])))
    return places


def _absolute(name: str, directory: str | os.PathLike[str]) -> str:
    found = path(name, directory)
    if not os.path.isabs(found):
        raise ArgumentValueError(name, f"{name} is on another machine, and must be an absolute path: {found!r}")
    return found


def directory_of(environment_id: str, info: Any, below: str = "") -> str:
    """The directory of an environment, as `environment/info` tells it, or one that is seen from it. Raises
    `ArgumentError`."""
    from treadle.execution.uris import path_from_uri  # only for other machines

    if os.path.isabs(below):
        return below
    if info.cwd is None:
        problem = f"the environment {environment_id!r} does not tell its directory: pass cwd"
        raise ArgumentValueError("cwd", problem)
    cwd = path_from_uri(info.cwd)
    return os.path.join(cwd, below) if below else cwd


def as_sent(places: Sequence[tuple[str, str]]) -> tuple[TurnEnvironmentParams, ...]:
    return tuple(TurnEnvironmentParams(environment_id=place, cwd=directory) for place, directory in places)
