"""The providers of environments that come with Treadle, and what they have in common: options, programs, names, and
what a Treadle on another machine has to be."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
from msgspec import Struct

from treadle._version import __version__
from treadle.errors import ExecError
from treadle.transport.through import last_words

OptionsT = TypeVar("OptionsT", bound=Struct)

SINCE: Final = (0, 1)
"""The first version whose exec-server can be attached to."""
_VERSION: Final = re.compile(r"\btreadle (\d+)\.(\d+)[\w.]*")
_NAME: Final = "name"


class ProgramEnd(NamedTuple):
    """How a program has ended. `said` is the end of its standard error, for people."""

    exit_code: int
    printed: str
    said: str


def read_options(kind: type[OptionsT], options: Mapping[str, Any], provider: str) -> OptionsT:
    """The options of a table as a provider has them. Raises `ExecError`; no value gets into it."""
    try:
        return msgspec.convert(options, kind)
    except msgspec.ValidationError as error:
        raise ExecError(f"`options` cannot be used with provider `{provider}`: {error}") from None


def find_program(name: str, package: str) -> str:
    """Where a program is. Raises `ExecError`, which says what to install."""
    found = shutil.which(name)
    if found is None:
        raise ExecError(f"the program `{name}` is not installed here: install {package} (`apt install {package}`)")
    return found


async def run_program(words: Sequence[str], *, timeout: float, input: bytes = b"") -> ProgramEnd:
    """Run a program of this machine to its end. Raises `ExecError` when it takes too long."""

    def run() -> ProgramEnd:
        try:
            done = subprocess.run(words, capture_output=True, timeout=timeout, start_new_session=True, input=input)
        except subprocess.TimeoutExpired:
            raise ExecError(f"{words[0]} has not ended within {timeout:g} s") from None
        except OSError as error:
            raise ExecError(f"{words[0]} cannot be started: {error.strerror or error}") from None
        return ProgramEnd(done.returncode, done.stdout.decode("utf-8", "replace"), last_words(done.stderr))

    return await asyncio.to_thread(run)


def machine_name(environment_id: str, state: str, *, make: bool = True) -> str | None:
    """What the machine of an environment is called where others may have one of the same id: the same after a restart,
    and with another home another one. None where none was made, and none is to be."""
    path = os.path.join(state, _NAME)
    try:
        with open(path, encoding="ascii") as file:
            return f"{environment_id[:40]}-{file.read(16).strip()}"
    except FileNotFoundError:
        if not make:
            return None
    except (OSError, UnicodeDecodeError) as error:
        raise ExecError(f"{path} cannot be read: {error}") from None
    aside = f"{path}.{uuid.uuid4()}"
    try:
        os.makedirs(state, mode=0o700, exist_ok=True)
        with open(aside, "x", encoding="ascii") as file:
            file.write(uuid.uuid4().hex[:12])
        try:
            os.link(aside, path)  # of two who make one at a time, both use the first
        except FileExistsError:
            pass
        finally:
            os.unlink(aside)
    except OSError as error:
        raise ExecError(f"{path} cannot be written: {error}") from None
    return machine_name(environment_id, state, make=False)


def forget_name(state: str) -> None:
    """There is no machine of that name any more."""
    try:
        os.unlink(os.path.join(state, _NAME))
        os.rmdir(state)
    except OSError:  # somebody else's files are there
        pass


def version_problem(printed: str) -> str | None:
    """Why a Treadle that prints this as its version cannot be used; None when it can."""
    found = _VERSION.search(printed)
    if found is None:
        return "what it prints as its version is not that of Treadle"
    major, minor = int(found[1]), int(found[2])
    if (major, minor) < SINCE:
        return f"it is {found[0]}, and its exec-server cannot be attached to before {'.'.join(map(str, SINCE))}"
    if major > int(__version__.partition(".")[0]):
        return f"it is {found[0]}, and this one is {__version__}: update this one"
    return None
