"""`EnvironmentProvider`: what starts the machine of an environment, finds it again, and stops it.

Built-in providers and those of other packages, which offer them as entry points in the group `treadle.environments`,
have this interface. What one gives is an `OpenedMachine`: how to reach an exec-server. Connecting, sessions and
commands are none of its business.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final, Protocol

from msgspec import Struct

from treadle.errors import ExecError
from treadle.own_python import plug_ins

GROUP: Final = "treadle.environments"
BUILT_IN: Final[Mapping[str, str]] = {
    "docker": "treadle.execution.providers.containers",
    "podman": "treadle.execution.providers.containers",
    "ssh": "treadle.execution.providers.ssh",
    "worktree": "treadle.execution.providers.worktree",
}


class OpenedMachine(Struct, frozen=True, kw_only=True):
    """Where the exec-server of a machine is: a `url`; or `through`, a command whose standard streams are a connection
    to a server that goes on without it; or a `command` that is the server. `workdir` is the directory to work in there,
    where one is known."""

    url: str | None = None
    through: tuple[str, ...] | None = None
    command: tuple[str, ...] | None = None
    token: str | None = None
    workdir: str | None = None


class EnvironmentProvider(Protocol):
    """`environment_id` names the machine, also after a restart of this program; `options` are those of its table, and
    `state` is a folder of its own below the home, made when it is needed."""

    name: str

    async def open(self, environment_id: str, options: Mapping[str, Any], state: str) -> OpenedMachine:
        """Start the machine, or find the one that was started before. Raises `ExecError`, which says what is missing
        and what to type."""
        ...

    async def stop(self, environment_id: str, options: Mapping[str, Any], state: str) -> bool:
        """Stop the machine and remove what was made for it; whether there was one."""
        ...


def find_provider(name: str) -> EnvironmentProvider:
    """The provider of this name. Raises `ExecError`."""
    if name in BUILT_IN:
        built_in: Mapping[str, EnvironmentProvider] = import_module(BUILT_IN[name]).PROVIDERS
        return built_in[name]
    points = plug_ins(GROUP).get(name, [])
    if len(points) != 1:
        there = ", ".join(sorted({*BUILT_IN, *plug_ins(GROUP)}))
        reason = "more than one package offers it" if points else f"there are {there}"
        raise ExecError(f"there is no provider of environments {name!r}: {reason}")
    try:
        provider: EnvironmentProvider = points[0].load()
    except Exception as error:
        raise ExecError(f"the provider of environments {name!r} cannot be loaded: {error!r}") from error
    return provider
