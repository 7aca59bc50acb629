"""Confinement by Landlock and seccomp, for machines where bubblewrap is missing or not allowed to work.

Owns the translation of a policy into grants, and the command line of the launcher that applies them. Landlock only
grants. What shall be unreadable inside of a readable directory is left out of the grants: everything around it is
granted one by one, and the directories above it can be listed, so its names can be seen but nothing in it. A policy
that takes something away below a writable path is refused here. Landlock also does not watch changes of modes and
times. Where something may be written they stay possible for all files that the user owns, since a filter sees no paths;
so the modes of what is hidden are put back (`HiddenModes`).

Of the devices there are the harmless ones, as in bubblewrap's own /dev, and the terminal that the command runs on.
Other terminals, disks and the shared memory in /dev/shm are neither written nor read.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Final

from treadle.execution.sandbox.command import HANDED, ConfinedCommand
from treadle.execution.sandbox.policy import Access, PathRule, Policy, contains, refused
from treadle.execution.sandbox.seccomp import filter_program
from treadle.own_python import isolated_python

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


def landlock_argv(policy: Policy, command: ConfinedCommand, *, version: int, launcher: str = LAUNCHER) -> list[str]:
    """The command line that runs the command under the policy."""
    for path in (_interpreter(), os.path.realpath(os.__file__)):
        # The launcher runs before it is confined: what it runs on must not be the work of an earlier command.
        if policy.access(path) == "write" and policy.access("/") != "write":
            raise refused(
                f"{path!a} is part of the Python that sets up the sandbox, and the command could change it; "
                "use a Python outside of what commands may write, or install bubblewrap (with user namespaces "
                "allowed)"
            )
    files = _FIRST | sum(right for since, right in _LATER if version >= since)
    network = 0 if policy.network or version < _NETWORK_SINCE else _TCP
    scopes = _SCOPE_SIGNALS | _SCOPE_ABSTRACT_SOCKETS if version >= _SCOPE_SINCE else 0
    options = ["--landlock", f"{files},{network},{scopes}"]
    for rule in _grants(policy):
        # What is not to be read below it. To read everything is not to read the devices: reading a terminal takes what
        # is typed there, and a disk has all files. A policy that lets everything be written has asked for them, too.
        holes: list[str] = []
        if rule.access == "read":
            holes = [other.path for other in policy.rules if other.access == "none" and contains(rule.path, other.path)]
            holes += ["/dev"] if rule.path == "/" else []
        if holes:
            options += ["--grant", f"{_LIST},{rule.path}"]
            options += [option for path in _around(rule.path, holes) for option in ("--offer", f"{_READ},{path}")]
        else:
            rights = _READ if rule.access == "read" else files & ~_MAKE_DEVICE
            options += ["--grant", f"{rights},{rule.path}"]
    # By their real names: /dev/ptmx may be a link.
    devices = sorted({os.path.realpath(path) for path in _DEVICES if os.path.exists(path)})
    options += [option for path in devices for option in ("--grant", f"{files & ~_MAKE_DEVICE},{path}")]
    if command.tty:
        options += ["--grant-terminal", str(files)]
    program = filter_program(
        network=policy.network,
        truncate=version >= _TRUNCATE_SINCE,
        namespaces=False,
        changes=may_change(policy),
    )
    options += ["--filter", program.hex(), "--environment", str(HANDED)]
    if command.arg0 is not None:
        options += ["--arg0", command.arg0]
    # The launcher runs in this interpreter but without its site-packages.
    python = isolated_python("-S", "-B", "-X", "utf8", program=_interpreter())
    return [*python, launcher, *options, "--", *command.argv]


def may_change(policy: Policy) -> bool:
    """Whether modes and times can be changed: where nothing may be written, nobody needs that."""
    return any(rule.access == "write" for rule in policy.rules)


def environment_file(env: Mapping[str, str]) -> bytes:
    """What the launcher finds in the file that it is handed."""
    return b"".join(os.fsencode(f"{name}={value}\0") for name, value in env.items())


def _interpreter() -> str:
    """The Python that runs the launcher. That of a virtual environment only when the one behind it cannot be used: it
    often lies among the files that a command may write.
    """
    for found in (getattr(sys, "_base_executable", None), sys.executable):
        path = os.path.realpath(found) if found else ""
        if os.path.isfile(path) and os.access(path, os.X_OK) and os.path.isfile(LAUNCHER):
            return path
    raise refused(
        "the launcher needs a Python executable and this package as plain files; install treadle unpacked "
        "or install bubblewrap"
    )


def _grants(policy: Policy) -> list[PathRule]:
    """The rules that give something; refuses a policy with one that takes away below a grant."""
    grants: list[PathRule] = []
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


class HiddenModes:
    """The modes of what policies hide: they can be changed by a command that cannot read it, so that others can.

    Shared by all commands that run at a time: none may take the work of another for how it was.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running = 0
        self._seen: dict[str, tuple[int, int]] = {}

    def watch(self, policy: Policy) -> None:
        """Record the modes of the hidden directories and of what is directly in them, until `release`."""
        hidden = [rule.path for rule in policy.rules if rule.access == "none"]
        with self._lock:
            if not self._running:
                self._seen.clear()
            self._running += 1
            for path in hidden:
                for name in (path, *_names(path)[:_MAX_AROUND]):
                    status = _status(name)
                    if status is not None:
                        self._seen.setdefault(name, status)

    def release(self) -> None:
        self.repair()
        with self._lock:
            self._running -= 1

    def repair(self) -> list[str]:
        """Put back what differs; its names."""
        changed: list[str] = []
        with self._lock:
            for path, (number, mode) in self._seen.items():  # a directory comes before what is in it
                found = _status(path)
                if found is not None and found[0] == number and found[1] != mode:
                    with contextlib.suppress(OSError):
                        os.chmod(path, mode)
                        changed.append(path)
        return changed


MODES: Final = HiddenModes()


def _status(path: str) -> tuple[int, int] | None:
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status.st_ino, stat.S_IMODE(status.st_mode)
