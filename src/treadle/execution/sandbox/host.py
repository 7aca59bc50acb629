"""What this machine offers to confine processes with, found out once.

Owns the trial runs and the memory of their outcome. Does not know policies beyond the one that it tries out.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from treadle.errors import ExecError
from treadle.execution.sandbox.bubblewrap import ENV, Installation, bubblewrap_argv
from treadle.execution.sandbox.command import Command, split_environment
from treadle.execution.sandbox.landlock import LAUNCHER, interface_version
from treadle.execution.sandbox.policy import Policy, Rule
from treadle.execution.sandbox.seccomp import filter_program

_DEADLINE: Final = 10.0  # a trial run takes some 10 ms; a machine under heavy load gets a thousand times that
_SYSTEM_BWRAP: Final = "/usr/bin/bwrap"
_TRIAL_ENVIRONMENT: Final = {"PATH": "/usr/bin:/bin"}


@dataclass(frozen=True, slots=True)
class Unusable:
    reason: str


class Host:
    """The answers, remembered. The lock keeps two threads from trying out the same thing."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bubblewrap: tuple[int, Installation | Unusable] | None = None
        self._landlock: int | None = None
        self._launcher: tuple[int, str] | None = None

    def bubblewrap(self) -> Installation | Unusable:
        """Remembered per process: the open filters are found by the id of the process that opened them."""
        with self._lock:
            if self._bubblewrap is None or self._bubblewrap[0] != os.getpid():
                answer, final = _try_bubblewrap()
                if not final:
                    return answer
                self._bubblewrap = (os.getpid(), answer)
            return self._bubblewrap[1]

    def landlock(self) -> int:
        """The version of the interface; 0 when it cannot be used."""
        with self._lock:
            if self._landlock is None:
                self._landlock = interface_version()
            return self._landlock

    def launcher(self) -> str:
        """The program that confines by Landlock, as it was when it was first needed.

        A copy, since Treadle may be installed below a path that confined commands write, as in a project's own virtual
        environment, and the launcher runs before it is confined.
        """
        with self._lock:
            if self._launcher is None or self._launcher[0] != os.getpid():
                with open(LAUNCHER, "rb") as file:
                    descriptor = _open_sealed("treadle-launcher", file.read())
                self._launcher = (os.getpid(), f"/proc/{os.getpid()}/fd/{descriptor}")
            return self._launcher[1]


HOST: Final = Host()


def _try_bubblewrap() -> tuple[Installation | Unusable, bool]:
    """The answer, and whether it is worth remembering."""
    import shutil  # loaded at the first look for bwrap: it takes 5 ms

    path = _SYSTEM_BWRAP if os.access(_SYSTEM_BWRAP, os.X_OK) else shutil.which("bwrap")
    if path is None or not os.path.isabs(path):
        return Unusable("bwrap was not found in /usr/bin or on the PATH of the server"), True
    try:
        programs = [filter_program(network=network, truncate=True, namespaces=True) for network in (False, True)]
    except ExecError as error:
        return Unusable(error.message), True
    resets = _trial([ENV, "--default-signal=2", "true"]) == ""
    descriptors = [_open_sealed("treadle-filter", program) for program in programs]
    without, with_network = (f"/proc/{os.getpid()}/fd/{descriptor}" for descriptor in descriptors)
    found = Installation(path, without, with_network, resets)
    nothing = Command(("true",), None, "/", False, split_environment(_TRIAL_ENVIRONMENT))
    problem = _trial(bubblewrap_argv(Policy((Rule("/", "read"),), network=False), nothing, found=found))
    if problem == "":
        return found, True
    for descriptor in descriptors:
        os.close(descriptor)
    return Unusable(f"{path} does not work here: {problem or 'no answer in time'}"), problem is not None


def _trial(command: Sequence[str]) -> str | None:
    """Run a command that should do nothing: "" when it did, else what it complained about; None when it hung."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            cwd="/",
            env=_TRIAL_ENVIRONMENT,
            start_new_session=True,
            timeout=_DEADLINE,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None
    except OSError as error:
        return str(error)
    if done.returncode == 0:
        return ""
    return done.stderr.decode(errors="replace").strip()[-300:] or f"exit code {done.returncode}"


def _open_sealed(name: str, content: bytes) -> int:
    """A file in memory that nobody changes: what is started opens it again through /proc."""
    descriptor = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.write(descriptor, content)
    seals = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
    return descriptor
