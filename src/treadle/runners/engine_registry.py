"""Which engines there are: ours, and those that other packages offer as entry points.

An entry point in the group `treadle.engines` has the engine's name and refers to an `Engine`. Built-in engines take the
same path; one that cannot be loaded is reported, and breaks nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from treadle.own_python import plug_ins
from treadle.runners.engine import Engine, UnknownEngine
from treadle.runners.native import TreadleRunner
from treadle.runners.runner import Runner

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP: Final = "treadle.engines"
BUILT_IN: Final[Mapping[str, str]] = {
    "codex": "treadle.runners.codex",
    "claude": "treadle.runners.claude",
    "opencode": "treadle.runners.opencode",
    "pi": "treadle.runners.pi",
    "treadle": "treadle.runners.native",
}
_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,31}")


def engine_names() -> list[str]:
    """All engines, ours first."""
    return [*BUILT_IN, *sorted(name for name in _offered() if name not in BUILT_IN)]


def find_engine(name: str) -> Engine[Any]:
    """The engine of this name. Raises `UnknownEngine`.

    Args:
        name: Such as `codex`.
    """
    if name in BUILT_IN:
        built_in: Engine[Any] = import_module(BUILT_IN[name]).ENGINE
        return built_in
    points = _offered().get(name, [])
    if not points:
        raise UnknownEngine(name, f"there is no engine {name!r}; there are {', '.join(engine_names())}")
    if len(points) > 1:
        packages = ", ".join(sorted(_package(point) for point in points))
        raise UnknownEngine(name, f"the engine {name!r} is offered by more than one package: {packages}")
    [point] = points
    try:
        engine = point.load()
    except Exception as error:
        raise UnknownEngine(name, f"the engine {name!r} of {_package(point)} cannot be loaded: {error!r}") from error
    if not isinstance(engine, Engine) or engine.name != name:
        raise UnknownEngine(name, f"{point.value} of {_package(point)} is not the Engine {name!r}")
    return engine


def make_runner(name: str, command: str | None = None, **choices: Any) -> Runner:
    """A runner for the engine of this name. Raises `UnknownEngine`.

    Args:
        name: Such as `codex`.
        command: The program; the engine's own without it.
        choices: What `Runner` takes.
    """
    if name == "treadle" and command is None:
        return TreadleRunner(**choices)
    return Runner(find_engine(name), command, **choices)


def _offered() -> dict[str, list[EntryPoint]]:
    return {name: points for name, points in plug_ins(GROUP).items() if _NAME.fullmatch(name)}


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else point.value
