"""Which mechanism confines a command, and how to start the command under it.

`policy` says what is allowed, `bubblewrap` and `landlock` know how to enforce it, and this module chooses. There is no
path from here to an unconfined command: what cannot be enforced raises. It loads all of the mechanisms, so whoever may
never confine anything imports it late.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from treadle.errors import INVALID_PARAMS, ExecError
from treadle.execution.sandbox.bubblewrap import Installation, bubblewrap_argv
from treadle.execution.sandbox.command import Command, split_environment
from treadle.execution.sandbox.host import HOST, Unusable
from treadle.execution.sandbox.landlock import landlock_argv
from treadle.execution.sandbox.placeholders import Placeholders
from treadle.execution.sandbox.policy import Policy, refused
from treadle.protocol.exec import SandboxType

Mechanism = Literal["bubblewrap", "landlock"]

_DENIALS: Final = (b"read-only file system", b"permission denied", b"operation not permitted")
_KILLED_BY_FILTER: Final = 128 + 31  # SIGSYS


@dataclass(frozen=True, slots=True)
class Confined:
    """What to start instead of the command. `arg0` is always None: the command gets its own inside.

    `leaves_descendants`: what the command left in the background outlives it, unless it is ended from here.
    `release` is to be called when the command has ended, or could not be started.
    """

    argv: tuple[str, ...]
    arg0: str | None
    env: Mapping[str, str]
    leaves_descendants: bool
    sandbox_type: SandboxType = "linuxSeccomp"
    release: Callable[[], None] = field(default=lambda: None, compare=False)


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
    command = Command(tuple(argv), arg0, directory, tty, split_environment(env))
    chosen = mechanism or _configured() or _best()
    return _by_bubblewrap(policy, command) if chosen == "bubblewrap" else _by_landlock(policy, command)


def looks_denied(exit_code: int, tail: bytes) -> bool:
    """Whether a confined command seems to have failed because of its confinement: a guess from its last output."""
    if exit_code == 0:
        return False
    text = tail.lower()
    return exit_code == _KILLED_BY_FILTER or any(words in text for words in _DENIALS)


def _best() -> Mechanism:
    return "bubblewrap" if isinstance(HOST.bubblewrap(), Installation) else "landlock"


def _by_bubblewrap(policy: Policy, command: Command) -> Confined:
    found = HOST.bubblewrap()
    if isinstance(found, Unusable):
        raise refused(f"{found.reason}; install bubblewrap and allow unprivileged user namespaces")
    placeholders = Placeholders()
    try:
        line = bubblewrap_argv(placeholders.hold(policy), command, found=found)
    except BaseException:
        placeholders.release()
        raise
    return Confined(tuple(line), None, command.split.outer, leaves_descendants=False, release=placeholders.release)


def _by_landlock(policy: Policy, command: Command) -> Confined:
    version = HOST.landlock()
    if version < 1:
        raise refused(
            "this machine has no way to confine a process: install bubblewrap (and allow unprivileged user "
            "namespaces), or use a kernel with Landlock switched on"
        )
    line = landlock_argv(policy, command, version=version, launcher=HOST.launcher())
    return Confined(tuple(line), None, command.split.outer, leaves_descendants=True)


def _configured() -> Mechanism | None:
    match os.environ.get("TREADLE_SANDBOX", ""):
        case "":
            return None
        case "bubblewrap":
            return "bubblewrap"
        case "landlock":
            return "landlock"
        case other:
            raise refused(f"TREADLE_SANDBOX is {other!a}; it can be bubblewrap, landlock or empty")
