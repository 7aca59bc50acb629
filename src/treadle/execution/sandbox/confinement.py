"""Which mechanism confines a command, and how to start the command under it.

`policy` says what is allowed, `bubblewrap` and `landlock` know how to enforce it, and this module chooses. There is no
path from here to an unconfined command: what cannot be enforced raises. `Host` is what this machine offers, found out
once, by trial runs. The module loads all of the mechanisms, so callers that may never confine anything import it late.
"""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final, Literal

from treadle.errors import INVALID_PARAMS, ExecError
from treadle.execution.sandbox.bubblewrap import Installation, bubblewrap_argv, entry_program
from treadle.execution.sandbox.command import ConfinedCommand, handing, open_sealed
from treadle.execution.sandbox.landlock import (
    LAUNCHER,
    MODES,
    environment_file,
    interface_version,
    landlock_argv,
    may_change,
)
from treadle.execution.sandbox.mounts import Placeholders
from treadle.execution.sandbox.policy import PathRule, Policy, refused
from treadle.execution.sandbox.seccomp import filter_program
from treadle.protocol.exec import SandboxType

Mechanism = Literal["bubblewrap", "landlock"]

_DENIALS: Final = (b"read-only file system", b"permission denied", b"operation not permitted")
_KILLED_BY_FILTER: Final = 128 + 31  # SIGSYS
_DEADLINE: Final = 10.0  # a trial run takes some 10 ms; a machine under heavy load gets a thousand times that
_SYSTEM_BWRAP: Final = "/usr/bin/bwrap"
_TRIAL_ENVIRONMENT: Final = {"PATH": "/usr/bin:/bin"}


@dataclass(frozen=True, slots=True)
class Confined:
    """What to start instead of the command: without `arg0` and with no environment, since the command gets its own
    inside. The process must inherit the descriptor `handed` as number `HANDED`: it has the environment.

    `leaves_descendants`: what the command left in the background outlives it, unless it is ended from here.
    `release` is to be called when the command and all of that has ended, or could not be started. `repair` puts right
    what the sandbox could not prevent, and answers with the paths.
    """

    argv: tuple[str, ...]
    handed: int
    leaves_descendants: bool
    release: Callable[[], None]
    repair: Callable[[], list[str]] = list
    sandbox_type: SandboxType = "linuxSeccomp"


def confine(
    policy: Policy,
    *,
    argv: Sequence[str],
    arg0: str | None,
    cwd: str,
    env: Mapping[str, str],
    tty: bool,
    mechanism: Mechanism | None = None,
) -> Confined:
    """How to run `argv` under the policy, by `mechanism`, else by that of TREADLE_SANDBOX, else by the best there is.

    The first call tries out what this machine can do and may take a second; call it from a thread. The process must
    be started in `cwd`, as the leader of its own session, from a thread that lives as long as it.
    """
    if not argv:
        raise ExecError("argv must not be empty", INVALID_PARAMS)
    directory = os.path.realpath(cwd)
    if policy.access(directory) == "none":
        raise refused(f"the working directory {directory!a} is not readable under the policy")
    for name in env:
        if not name or "=" in name:
            raise ExecError(
                f"environment variable {name[:200]!r}: a name must not be empty or have a =", INVALID_PARAMS
            )
    command = ConfinedCommand(tuple(argv), arg0, directory, tty, env)
    chosen = mechanism
    if chosen is None:
        match os.environ.get("TREADLE_SANDBOX", ""):
            case "":
                chosen = "bubblewrap" if isinstance(HOST.bubblewrap(), Installation) else "landlock"
            case "bubblewrap":
                chosen = "bubblewrap"
            case "landlock":
                chosen = "landlock"
            case other:
                raise refused(f"TREADLE_SANDBOX is {other!a}; it can be bubblewrap, landlock or empty")
    if chosen == "bubblewrap":
        found = HOST.bubblewrap()
        if isinstance(found, Unusable):
            raise refused(f"{found.reason}; install bubblewrap and allow unprivileged user namespaces")
        with ExitStack() as cleanup:
            placeholders = Placeholders()
            cleanup.callback(placeholders.release)
            held = placeholders.hold(policy)
            line = bubblewrap_argv(held, command, found=found)
            handed = _handed(entry_program(held, command, landlock=HOST.landlock()), cleanup)
            return Confined(tuple(line), handed, leaves_descendants=False, release=cleanup.pop_all().close)
    version = HOST.landlock()
    if version < 1:
        raise refused(
            "this machine has no way to confine a process: install bubblewrap (and allow unprivileged user "
            "namespaces), or use a kernel with Landlock switched on"
        )
    line = landlock_argv(policy, command, version=version, launcher=HOST.launcher())
    cleanup = ExitStack()
    handed = _handed(environment_file(command.env), cleanup)
    if not may_change(policy):
        return Confined(tuple(line), handed, leaves_descendants=True, release=cleanup.close)
    MODES.watch(policy)
    cleanup.callback(MODES.release)
    return Confined(tuple(line), handed, leaves_descendants=True, release=cleanup.close, repair=MODES.repair)


def looks_denied(exit_code: int, tail: bytes) -> bool:
    """Whether a confined command seems to have failed because of its confinement: a guess from its last output."""
    if exit_code == 0:
        return False
    text = tail.lower()
    return exit_code == _KILLED_BY_FILTER or any(words in text for words in _DENIALS)


def _handed(content: bytes, cleanup: ExitStack) -> int:
    descriptor = open_sealed("treadle-command", content)
    cleanup.callback(os.close, descriptor)
    return descriptor


@dataclass(frozen=True, slots=True)
class Unusable:
    reason: str


class Host:
    """What this machine can confine processes with. Each answer is found once, under a lock, so that two threads do not
    try out the same thing."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bubblewrap: tuple[int, Installation | Unusable] | None = None
        self._landlock: int | None = None
        self._launcher: tuple[int, str] | None = None

    def bubblewrap(self) -> Installation | Unusable:
        """bubblewrap, if it works here. Found once per process: the open filters are named by the process that opened
        them."""
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
                    descriptor = open_sealed("treadle-launcher", file.read())
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
    nothing = ConfinedCommand(("true",), None, "/", False, _TRIAL_ENVIRONMENT)
    policy = Policy((PathRule("/", "read"),), False)
    programs.append(entry_program(policy, nothing, landlock=interface_version()))
    descriptors = [open_sealed("treadle-filter", program) for program in programs]
    without, with_network, _ = (f"/proc/{os.getpid()}/fd/{descriptor}" for descriptor in descriptors)
    found = Installation(path, without, with_network)
    problem = _trial(handing(bubblewrap_argv(policy, nothing, found=found), descriptors[-1]))
    os.close(descriptors.pop())
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
