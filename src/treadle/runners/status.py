"""`EngineStatus`: the state of an engine on this machine: its program, version, login, last failure.

It looks at files and the environment, and runs the program to ask for its version. It uses no network and starts no
run.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from treadle._version import __version__
from treadle.errors import ExecError
from treadle.execution import Environment
from treadle.runners.engine import Engine
from treadle.runners.engine_registry import UnknownEngine, engine_names, find_engine
from treadle.runners.last_errors import LastError, LastErrors
from treadle.runners.logins import HOW_TO_LOG_IN, find_login

TESTED: Final[Mapping[str, str]] = {
    "codex": "0.163.0",
    "claude": "2.1.197",
    "opencode": "1.18.33",
    "pi": "0.73.1",
}
"""The versions that the runners were tried with; older ones may print what we do not know."""
# Node.js on a busy machine: opencode takes a second when nothing else runs.
VERSION_S: Final = 20.0
_VERSION: Final = re.compile(r"\d+\.\d+(?:\.\d+)*(?:[-+][0-9A-Za-z.-]+)?")


class EngineStatus(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=False):
    """What is known about an engine here.

    Args:
        name: The engine.
        path: Its program; None when it is not installed.
        version: What the program says its version is.
        tested: The version that the runner was tried with, if there is one.
        outdated: Whether the version is older than that.
        login: Whether there is a login; None when nobody knows.
        login_at: The file or variable that has the login, or what is missing.
        log_in: What a person types to log in.
        install: What a person types to get it.
        problem: Why it cannot be used, when it is more than not being installed.
        last_error: Why its last run by `treadle run` failed, if it did.
    """

    name: str
    path: str | None = None
    version: str | None = None
    tested: str | None = None
    outdated: bool = False
    login: bool | None = None
    login_at: str = ""
    log_in: str | None = None
    install: str | None = None
    problem: str | None = None
    last_error: LastError | None = None

    @property
    def installed(self) -> bool:
        """Whether there is a program to run."""
        return self.path is not None


async def engine_statuses(
    names: Iterable[str] | None = None, *, ask_version: bool = True, ask_in: Mapping[str, str] | None = None
) -> list[EngineStatus]:
    """What is known about engines, all looked at side by side.

    Args:
        names: Which; all without it.
        ask_version: Whether programs are asked for their version, which takes most of the time.
        ask_in: The environment in which programs are asked for their version; this program's own without it.
    """
    env = dict(os.environ if ask_in is None else ask_in)
    async with await Environment.connect(None) as machine, asyncio.TaskGroup() as group:
        looks = [
            group.create_task(_look(machine if ask_version else None, name, env))
            for name in (engine_names() if names is None else names)
        ]
    return [look.result() for look in looks]


def find_program(engine: Engine[Any], environ: Mapping[str, str]) -> str | None:
    """Where the engine's program is. Our own is always there."""
    if engine.name == "treadle":
        return os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    return shutil.which(engine.program, path=environ.get("PATH", os.defpath))


async def _look(machine: Environment | None, name: str, ask_in: Mapping[str, str]) -> EngineStatus:
    try:
        engine = find_engine(name)
    except UnknownEngine as error:
        return EngineStatus(name=name, problem=str(error))
    path = find_program(engine, os.environ)
    login = find_login(name, os.environ)
    version, problem = (None, None) if machine is None else await _version(machine, engine, path, ask_in)
    tested = TESTED.get(name)
    return EngineStatus(
        name=name,
        path=path,
        version=version,
        tested=tested,
        outdated=version is not None and tested is not None and is_older(version, tested),
        login=login.ok,
        login_at=login.where,
        log_in=HOW_TO_LOG_IN.get(name),
        install=engine.install,
        problem=problem,
        last_error=LastErrors().find(name),
    )


async def _version(
    machine: Environment, engine: Engine[Any], path: str | None, env: Mapping[str, str]
) -> tuple[str | None, str | None]:
    """The version, or why it could not be had."""
    if path is None:
        return None, None
    if engine.name == "treadle":
        return __version__, None
    command = " ".join([engine.program, *engine.version_args])
    try:
        done = await machine.run([path, *engine.version_args], env=env, timeout=VERSION_S)
    except ExecError as error:
        return None, f"`{command}` failed: {error}"
    version = read_version(done.text)
    if version is None:
        return None, f"`{command}` told no version (exit {done.exit_code})"
    return version, None


def read_version(text: str) -> str | None:
    """The first version number in what a program printed."""
    found = _VERSION.search(text)
    return None if found is None else found[0]


def is_older(version: str, tested: str) -> bool:
    """Whether a version comes before another one; by their numbers alone."""
    return _numbers(version) < _numbers(tested)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.split(r"[-+]", version)[0].split("."))
