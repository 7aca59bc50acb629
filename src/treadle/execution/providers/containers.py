"""`docker` and `podman`: a container, by their command-line programs.

    [environments.clean]
    provider = "podman"
    options = { image = "python:3.12", folder = "/home/me/project" }

With an `image` the container is ours: made when it is first needed, found again by its label, removed by `stop`. With
`container` it is one that runs already, and what is stopped is only what was started in it.

What is needed in it is Treadle. It is used where it is installed there. Else this one is copied in, which needs the
same version of Python, processor and C library; and where these differ, `pip` installs it there, which needs a network.
"""

from __future__ import annotations

import asyncio
import io
import os
import re
import sysconfig
import tarfile
from collections.abc import Mapping
from typing import Any, Final, Literal

from msgspec import Struct

from treadle._version import __version__
from treadle.errors import ExecError
from treadle.execution.environment_provider import EnvironmentProvider, OpenedMachine
from treadle.execution.providers import (
    ProgramEnd,
    find_program,
    forget_name,
    machine_name,
    read_options,
    run_program,
    version_problem,
)
from treadle.own_python import BOOT, own_packages

LABEL: Final = "treadle.environment"
# What may not be taken for an option.
_WORD: Final = re.compile(r"[A-Za-z0-9][\w./:@-]*")
# The first process of a container: it ends when it is told to, and reaps what others have left.
_IDLE: Final = "trap 'exit 0' TERM INT; while :; do sleep 3600 & wait $!; done"
_INSIDE: Final = f"/opt/treadle-{__version__}"
_KIND_OF_PYTHON: Final = "import sysconfig; print(sysconfig.get_config_var('SOABI'))"
ASK_S: Final = 60.0
# An image that has to be fetched; a large folder; packages from a network.
CHANGE_S: Final = 1800.0


class ContainerOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One of `image` and `container`."""

    image: str | None = None
    container: str | None = None
    folder: str | None = None
    """A folder of this machine that the commands work on."""
    workspace: Literal["volume", "copy"] = "volume"
    """How it gets there: as it is here, or copied once, so that nothing here changes."""
    workdir: str | None = None
    """Where it is there; without it, where it is here."""
    run_args: tuple[str, ...] = ()
    """More options for `docker run`, such as `["--network", "none"]`."""
    command: str = "treadle"
    """What `treadle` is called there, where it is installed."""
    python: str = "python3"
    """The Python there that runs a Treadle that is copied in."""
    keep: bool = False
    """Whether the container is only stopped, and not removed, when the environment is."""


class ContainerProvider:
    """`name` is the program, and `package` what has it in Debian."""

    def __init__(self, name: str, package: str) -> None:
        self.name = name
        self._package = package

    async def open(self, environment_id: str, options: Mapping[str, Any], state: str) -> OpenedMachine:
        given = self._options(options)
        name = machine_name(environment_id, state)
        assert name is not None
        container = given.container
        if container is None:
            container = await self._own(name) or await self._made(given, name)
            await self._ask("start", container)
        elif (await self._ask("inspect", "--format", "{{.State.Running}}", container)).printed.strip() != "true":
            raise ExecError(f"the container {container} does not run: {self.name} start {container}")
        treadle = await self._treadle(given, container)
        way = (*self._program(), "exec", "-i", container, *treadle, "exec-server", "--attach", name)
        return OpenedMachine(through=way, workdir=None if given.folder is None else given.workdir or given.folder)

    async def stop(self, environment_id: str, options: Mapping[str, Any], state: str) -> bool:
        given = self._options(options)
        name = machine_name(environment_id, state, make=False)
        if name is None:
            return False
        if given.container is not None:
            treadle = await self._treadle(given, given.container)
            done = await self._ask("exec", given.container, *treadle, "exec-server", "--stop", name)
            stopped = not done.printed.startswith("no ")
        else:
            own = await self._own(name)
            stopped = own is not None
            if own is not None and given.keep:
                await self._ask("stop", own)
                return True  # and found again by its name
            if own is not None:
                await self._ask("rm", "--force", "--volumes", own)
        forget_name(state)
        return stopped

    def _options(self, options: Mapping[str, Any]) -> ContainerOptions:
        given = read_options(ContainerOptions, options, self.name)
        problem = None
        if (given.image is None) == (given.container is None):
            problem = "it needs one of `image` and `container`"
        elif not _WORD.fullmatch(given.image or given.container or ""):
            problem = "that is no name of an image or a container"
        elif given.container is not None and (given.folder or given.run_args or given.keep):
            problem = "`folder`, `run_args` and `keep` are for a container that is made of an `image`"
        elif any(path is not None and not re.fullmatch(r"/[^:,]*", path) for path in (given.folder, given.workdir)):
            problem = "`folder` and `workdir` must be absolute paths without `:` and `,`"
        elif given.workdir is not None and given.folder is None:
            problem = "`workdir` is where a `folder` is; to work elsewhere give the environment a `workdir`"
        if problem is not None:
            raise ExecError(f"`options` cannot be used with provider `{self.name}`: {problem}")
        return given

    # --- the container ---

    async def _own(self, name: str) -> str | None:
        found = (await self._ask("ps", "--all", "--quiet", "--filter", f"label={LABEL}={name}")).printed.split()
        return found[0] if found else None

    async def _made(self, given: ContainerOptions, name: str) -> str:
        """Make and start one, with the folder in it."""
        words = ["run", "--detach", "--label", f"{LABEL}={name}", "--entrypoint", "sh", *given.run_args]
        there = given.workdir or given.folder
        if given.folder is not None:
            if not await asyncio.to_thread(os.path.isdir, given.folder):
                raise ExecError(f"the `folder` {given.folder} is not there")
            if given.workspace == "volume":
                words += ["--volume", f"{given.folder}:{there}"]
        made = await self._ask(*words, given.image or "", "-c", _IDLE, timeout=CHANGE_S)
        container = made.printed.split()[-1]
        if given.folder is not None and given.workspace == "copy":
            await self._ask("exec", container, "mkdir", "-p", there or "")
            await self._ask("cp", f"{given.folder}/.", f"{container}:{there}", timeout=CHANGE_S)
        return container

    # --- Treadle in it ---

    async def _treadle(self, given: ContainerOptions, container: str) -> tuple[str, ...]:
        """The words that run Treadle there. Raises `ExecError`, which says what the image lacks."""
        installed = (given.command,)
        copied = (given.python, "-I", "-c", BOOT, _INSIDE)
        for words in (installed, copied):
            done = await self._run("exec", container, *words, "--version")
            if done.exit_code == 0 and version_problem(done.printed) is None:
                return words
        kind = await self._run("exec", container, given.python, "-I", "-c", _KIND_OF_PYTHON)
        if kind.exit_code != 0:
            why = f"it has no `{given.command}` and no `{given.python}` ({kind.said})"
            raise ExecError(f"the container {container} cannot be used: {why}; {_needs()}")
        if kind.printed.strip() == sysconfig.get_config_var("SOABI"):
            await self._ask("cp", "-", f"{container}:/", input=_packed(), timeout=CHANGE_S)
        else:
            wanted = ("--quiet", "--target", _INSIDE, f"treadle=={__version__}")
            install = (given.python, "-I", "-m", "pip", "install", *wanted)
            done = await self._run("exec", container, *install, timeout=CHANGE_S)
            if done.exit_code != 0:
                why = f"its Python is {kind.printed.strip()}, and pip cannot install Treadle there ({done.said})"
                raise ExecError(f"the container {container} cannot be used: {why}; {_needs()}")
        done = await self._run("exec", container, *copied, "--version")
        problem = done.said or "it does not say why" if done.exit_code else version_problem(done.printed)
        if problem is not None:
            raise ExecError(f"Treadle does not run in the container {container}: {problem}; {_needs()}")
        return copied

    # --- the program ---

    def _program(self) -> tuple[str, ...]:
        return (find_program(self.name, self._package),)

    async def _run(self, *words: str, timeout: float = ASK_S, input: bytes = b"") -> ProgramEnd:
        return await run_program([*self._program(), *words], timeout=timeout, input=input)

    async def _ask(self, *words: str, timeout: float = ASK_S, input: bytes = b"") -> ProgramEnd:
        """Raises `ExecError` when it fails."""
        done = await self._run(*words, timeout=timeout, input=input)
        if done.exit_code != 0:
            raise ExecError(f"`{self.name} {words[0]}` has failed: {done.said or f'exit code {done.exit_code}'}")
        return done


PROVIDERS: Final[Mapping[str, EnvironmentProvider]] = {
    "docker": ContainerProvider("docker", "docker.io"),
    "podman": ContainerProvider("podman", "podman"),
}


def _needs() -> str:
    python = ".".join(sysconfig.get_config_var("SOABI").split("-")[1:2])
    python = f"{python[0]}.{python[1:]}"
    return (
        f"an image needs Treadle (`pip install treadle=={__version__}`), or Python {python} with the C library and the "
        "processor of this machine, or Python 3.11 or newer with pip and a network"
    )


def _packed() -> bytes:
    """Treadle and what it needs, as an archive for the root of a container."""
    packed = io.BytesIO()

    def plain(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        if "__pycache__" in member.name or not (member.isdir() or member.isreg()):
            return None
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644  # for whoever commands run as
        return member

    with tarfile.open(fileobj=packed, mode="w") as archive:
        for path in own_packages():
            archive.add(path, f"{_INSIDE[1:]}/{os.path.basename(path)}", filter=plain)
    # Podman stops to read at the end mark, and calls what fills up the last record a failure.
    return packed.getvalue()[: archive.offset]
