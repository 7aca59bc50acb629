"""Confinement by Landlock and seccomp, for machines where bubblewrap is missing or not allowed to work.

Owns the translation of a policy into grants, and the command line of the launcher that applies them. Landlock only
grants. What shall be unreadable inside of a readable directory is left out of the grants: everything around it is
granted one by one, and the directories above it can be listed, so its names can be seen but nothing in it. A policy
that takes something away below a writable path is refused here. Landlock also does not watch changes of modes, owners
and times, which stay possible for files that the user owns.

Of the devices there are the harmless ones, as in bubblewrap's own /dev, and the terminal that the command runs on.
Other terminals, disks and the shared memory in /dev/shm are neither written nor read.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Final

from treadle.execution.sandbox.command import Command
from treadle.execution.sandbox.policy import Access, Policy, Rule, contains, refused
from treadle.execution.sandbox.seccomp import filter_program

LAUNCHER: Final = os.path.join(os.path.dirname(os.path.abspath(__file__)), "launcher.py")

_CREATE_RULESET: Final = 444
_VERSION_FLAG: Final = 1

# Rights in files, by the version of the kernel's interface that brought them.
_LIST: Final = 1 << 3
_READ: Final = 1 << 0 | 1 << 2 | _LIST  # execute, read a file, list a directory
_MAKE_DEVICE: Final = 1 << 6 | 1 << 11  # never granted: bubblewrap takes it away too
_FIRST: Final = (1 << 13) - 1
_LATER: Final = ((2, 1 << 13), (3, 1 << 14), (5, 1 << 15))  # move between directories, truncate, device control
_TRUNCATE_SINCE: Final = 3
_NETWORK_SINCE: Final = 4
_SCOPE_SINCE: Final = 6
_TCP: Final = 0b11  # bind, connect
_SCOPE_ABSTRACT_SOCKETS: Final = 1 << 0
_SCOPE_SIGNALS: Final = 1 << 1

# What bubblewrap's own /dev has and programs take for granted.
_DEVICES: Final = ("/dev/full", "/dev/null", "/dev/random", "/dev/tty", "/dev/urandom", "/dev/zero")
_MAX_AROUND: Final = 8192  # names beside a hidden directory: far above real ones, far below the limit of arguments


def interface_version() -> int:
    """The version of Landlock in this kernel; 0 when there is none or it is switched off."""
    import ctypes  # loaded at the first use: it takes 4 ms

    libc = ctypes.CDLL(None, use_errno=True)
    version = libc.syscall(ctypes.c_long(_CREATE_RULESET), None, ctypes.c_size_t(0), ctypes.c_uint(_VERSION_FLAG))
    return max(0, int(version))


def landlock_argv(policy: Policy, command: Command, *, version: int, launcher: str = LAUNCHER) -> list[str]:
    """The command line that runs the command under the policy."""
    _refuse_writable_python(policy)
    files = _FIRST | sum(right for since, right in _LATER if version >= since)
    network = 0 if policy.network or version < _NETWORK_SINCE else _TCP
    scopes = _SCOPE_SIGNALS | _SCOPE_ABSTRACT_SOCKETS if version >= _SCOPE_SINCE else 0
    options = ["--landlock", f"{files},{network},{scopes}"]
    for rule in _grants(policy):
        holes = _holes(policy, rule)
        if holes:
            options += ["--grant", f"{_LIST},{rule.path}"]
            options += [option for path in _around(rule.path, holes) for option in ("--offer", f"{_READ},{path}")]
        else:
            options += ["--grant", f"{_rights(rule, files)},{rule.path}"]
    options += [option for path in _devices() for option in ("--grant", f"{files & ~_MAKE_DEVICE},{path}")]
    if command.tty:
        options += ["--grant-terminal", str(files)]
    program = filter_program(network=policy.network, truncate=version >= _TRUNCATE_SINCE, namespaces=False)
    return launcher_argv(command, [*options, "--filter", program.hex()], launcher)


def launcher_argv(command: Command, options: Sequence[str], launcher: str = LAUNCHER) -> list[str]:
    """The command line of the launcher, which runs in this interpreter but without its site-packages."""
    restore = [option for name, value in command.split.restore for option in ("--restore", f"{name}={value}")]
    unset = [option for name in command.split.unset for option in ("--unset", name)]
    first = [] if command.arg0 is None else ["--arg0", command.arg0]
    flags = ("-I", "-S", "-B", "-X", "utf8")
    return [interpreter(), *flags, launcher, *options, *unset, *restore, *first, "--", *command.argv]


def interpreter() -> str:
    """That of a virtual environment only when the one behind it cannot be used: it often lies among the files that a
    command may write.
    """
    for found in (getattr(sys, "_base_executable", None), sys.executable):
        path = os.path.realpath(found) if found else ""
        if os.path.isfile(path) and os.access(path, os.X_OK) and os.path.isfile(LAUNCHER):
            return path
    raise refused(
        "the launcher needs a Python executable and this package as plain files; install treadle unpacked "
        "or install bubblewrap"
    )


def _refuse_writable_python(policy: Policy) -> None:
    """The launcher runs before it is confined: what it runs on must not be the work of an earlier command."""
    for path in (interpreter(), os.path.realpath(os.__file__)):
        if policy.access(path) == "write" and policy.access("/") != "write":
            raise refused(
                f"{path!a} is part of the Python that sets up the sandbox, and the command could change it; "
                "use a Python outside of what commands may write, or install bubblewrap (with user namespaces "
                "allowed)"
            )


def _grants(policy: Policy) -> list[Rule]:
    """The rules that give something; refuses a policy with one that takes away below a grant."""
    grants: list[Rule] = []
    for rule in policy.rules:
        parent: Access = "none"
        if rule.path != "/":
            parent = policy.access(os.path.dirname(rule.path))
        if parent == "write" and rule.access != "write":
            raise refused(
                f"Landlock cannot keep {rule.path!a} at {rule.access} below a path with write access; install "
                "bubblewrap (with user namespaces allowed) on the server, or have it outside of what may be written"
            )
        if rule.access not in (parent, "none") and os.path.exists(rule.path):
            grants.append(rule)
    return grants


def _holes(policy: Policy, rule: Rule) -> list[str]:
    """What is not to be read below a rule that grants reading. To read everything is not to read the devices: reading
    a terminal takes what is typed there, and a disk has all files. Whoever may write everywhere asked for them, too.
    """
    if rule.access != "read":
        return []
    hidden = [other.path for other in policy.rules if other.access == "none" and contains(rule.path, other.path)]
    return [*hidden, "/dev"] if rule.path == "/" else hidden


def _around(directory: str, holes: Sequence[str]) -> list[str]:
    """Everything in the directory but the holes, as few paths as possible."""
    paths: list[str] = []
    ahead = [directory]
    while ahead:
        for name in _names(ahead.pop()):
            if name in holes:
                continue
            if any(contains(name, hole) for hole in holes):
                ahead.append(name)
            else:
                paths.append(name)
        if len(paths) > _MAX_AROUND:
            raise refused(
                f"Landlock would need more than {_MAX_AROUND} grants around {holes[0]!a}; install bubblewrap (with "
                "user namespaces allowed) on the server"
            )
    return paths


def _names(directory: str) -> list[str]:
    """Links are left out: what counts is what they lead to. So is a directory that cannot be listed, with all in it."""
    try:
        with os.scandir(directory) as entries:
            return sorted(entry.path for entry in entries if not entry.is_symlink())
    except OSError:
        return []


def _rights(rule: Rule, files: int) -> int:
    return _READ if rule.access == "read" else files & ~_MAKE_DEVICE


def _devices() -> list[str]:
    """By their real names: /dev/ptmx may be a link."""
    return sorted({os.path.realpath(path) for path in _DEVICES if os.path.exists(path)})
