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
from pathlib import Path
from typing import Any, Final

import msgspec

from treadle._version import __version__
from treadle.config.home_files import PRIVATE, replace_file
from treadle.errors import ExecError
from treadle.execution import Environment
from treadle.home import home_place
from treadle.runners.engine import Engine, UnknownEngine, login_status
from treadle.runners.engine_registry import engine_names, find_engine
from treadle.runners.session_lock import RUNS, make_runs_folder

# Node.js on a busy machine: opencode takes a second when nothing else runs.
VERSION_S: Final = 20.0
_VERSION: Final = re.compile(r"\d+\.\d+(?:\.\d+)*(?:[-+][0-9A-Za-z.-]+)?")
MAX_ERROR: Final = 2000
_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,31}")


class LastError(msgspec.Struct, frozen=True):
    """The failure of an engine's last run.

    Args:
        error: Why, for people.
        at: When, in seconds since 1970.
    """

    error: str
    at: float


class LastErrors:
    """Why the last run of each engine failed: a small file per engine in the home, deleted by a run that goes well.

    It contains no secrets: the writer removes them first. Reading never fails; a home that cannot be written has none.

    Args:
        home: The home; else the usual one.
    """

    def __init__(self, home: str | os.PathLike[str] | None = None) -> None:
        place = home_place(os.environ) if home is None else (os.fspath(home), "")
        self._folder = None if place is None else Path(place[0]) / RUNS / "last_errors"

    def find(self, engine: str) -> LastError | None:
        """The failure of an engine's last run, if it failed.

        Args:
            engine: Its name.
        """
        path = self._path(engine)
        try:
            return None if path is None else msgspec.json.decode(path.read_bytes(), type=LastError)
        except (OSError, msgspec.MsgspecError):
            return None

    def keep(self, engine: str, error: LastError | None) -> bool:
        """Store how an engine's last run ended. False when the disk does not take it: the run does not fail for it.

        Args:
            engine: Its name.
            error: Why it failed; None when it did not.
        """
        path = self._path(engine)
        if path is None:
            return False
        try:
            if error is None:
                path.unlink(missing_ok=True)
            else:
                make_runs_folder(path.parents[2], path.parent.name)
                short = msgspec.structs.replace(error, error=error.error[:MAX_ERROR])
                replace_file(path, msgspec.json.encode(short), PRIVATE)
        except OSError:
            return False
        return True

    def _path(self, engine: str) -> Path | None:
        if self._folder is None or _NAME.fullmatch(engine) is None:
            return None
        return self._folder / f"{engine}.json"


class EngineStatus(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=False):
    """The state of an engine on this machine.

    Args:
        name: The engine.
        path: Its program; None when it is not installed.
        version: The version that the program prints.
        tested: The version that the runner was tried with, if there is one.
        outdated: Whether the version is older than that.
        login: Whether there is a login; None when that is unknown.
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
    """The state of engines, all looked at side by side.

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
    path, login = find_program(engine, os.environ), login_status(engine, os.environ)
    version = problem = None
    if machine is not None and path is not None:
        command = " ".join([engine.program, *engine.version_args])
        try:
            if name == "treadle":
                version = __version__
            else:
                done = await machine.run([path, *engine.version_args], env=ask_in, timeout=VERSION_S)
                version = read_version(done.text)
                problem = None if version else f"`{command}` printed no version (exit {done.exit_code})"
        except ExecError as error:
            problem = f"`{command}` failed: {error}"
    tested = read_version(engine.tested or "")
    return EngineStatus(
        name=name,
        path=path,
        version=version,
        tested=tested,
        outdated=version is not None and tested is not None and is_older(version, tested),
        login=login.ok,
        login_at=login.where,
        log_in=engine.log_in,
        install=engine.install,
        problem=problem,
        last_error=LastErrors().find(name),
    )


def read_version(text: str) -> str | None:
    """The first version number in what a program printed."""
    found = _VERSION.search(text)
    return None if found is None else found[0]


def is_older(version: str, tested: str) -> bool:
    """Whether a version comes before another one; by their numbers alone."""
    first, second = ([int(part) for part in re.split(r"[-+]", text)[0].split(".")] for text in (version, tested))
    return first < second
