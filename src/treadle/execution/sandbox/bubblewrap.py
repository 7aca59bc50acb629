"""Confinement by bubblewrap: a private view of the file system, and no network unless it is granted.

Owns the command line. Looks at the file system (what exists, what is a directory) but starts nothing.

The command line is `sh -c … bwrap … -- env … command`. The shell opens the system-call filter and makes bubblewrap deaf
to the signals that are meant for the command: they go to the whole process group, and bubblewrap would die of them
and take the command with it. `env` makes the command hear them again, and puts the environment right. Before that,
another shell checks what is mounted (`mounts`).

The command has its own pid namespace, which ends with it: nothing that it left in the background lives on. The leader
of its process group is outside and reads as 0; bash copes with that, dash as an interactive shell ends with status 2.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from treadle.execution.sandbox.command import Command
from treadle.execution.sandbox.landlock import LAUNCHER, interpreter, launcher_argv
from treadle.execution.sandbox.mounts import Kind, checked_argv
from treadle.execution.sandbox.policy import Access, Policy, contains, refused

SHELL: Final = "/bin/sh"
ENV: Final = "/usr/bin/env"

_FILTER_DESCRIPTOR: Final = "9"  # a single digit, since that is all that every shell can redirect
_SHIELDED: Final[tuple[int, ...]] = (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
_NAMESPACES: Final = ("--unshare-user", "--unshare-pid", "--unshare-ipc")
_OWN_DEVICES: Final = frozenset(
    f"/dev/{name}" for name in ("full", "null", "ptmx", "pts", "random", "tty", "urandom", "zero")
)

Mount = Literal["none", "read", "write"]


@dataclass(frozen=True, slots=True)
class Installation:
    """What was found on this machine. The paths name open system-call filters, for runs without and with network."""

    bwrap: str
    filter_path: str
    network_filter_path: str
    resets_signals: bool


def bubblewrap_argv(policy: Policy, command: Command, *, found: Installation) -> list[str]:
    """The command line that runs the command under the policy."""
    shielded = _shielded(command) if found.resets_signals else ()
    mounts = _mounts(policy)
    script = f"trap '' {' '.join(str(int(number)) for number in shielded)}; " if shielded else ""
    script += f'exec "$@" {_FILTER_DESCRIPTOR}<"$0"'
    filter_path = found.network_filter_path if policy.network else found.filter_path
    return [
        *(SHELL, "-c", script, filter_path, found.bwrap, *_NAMESPACES),
        *("--cap-drop", "ALL", "--die-with-parent", "--seccomp", _FILTER_DESCRIPTOR),
        *(() if policy.network else ("--unshare-net",)),
        *_view(policy, mounts),
        *("--chdir", command.cwd, "--"),
        *_check(policy, mounts),
        *_inner_argv(policy, command, shielded),
    ]


def _shielded(command: Command) -> tuple[int, ...]:
    # A terminal that goes away says so to its session leader only, which is bubblewrap: then all must end.
    return _SHIELDED if command.tty else (*_SHIELDED, signal.SIGHUP)


def _inner_argv(policy: Policy, command: Command, shielded: Sequence[int]) -> list[str]:
    name, split = command.argv[0], command.split
    if command.arg0 is not None or "=" in name or name == "-":  # what `env` cannot do or would take for its own
        _require_readable(policy, interpreter(), os.path.dirname(os.path.realpath(os.__file__)), LAUNCHER)
        options = ["--default-signals", ",".join(str(int(number)) for number in shielded)] if shielded else []
        return launcher_argv(command, options)
    _require_readable(policy, ENV)
    signals = [f"--default-signal={','.join(str(int(number)) for number in shielded)}"] if shielded else []
    unset = [option for name in split.unset for option in ("-u", name)]
    return [ENV, *signals, *unset, "--", *(f"{name}={value}" for name, value in split.restore), *command.argv]


def _require_readable(policy: Policy, *paths: str) -> None:
    for path in paths:
        if policy.access(os.path.realpath(path)) == "none":
            raise refused(f"{path!a} is needed to start the command but is not readable; grant read access to it")


def _check(policy: Policy, mounts: Mapping[str, Mount]) -> list[str]:
    """The first thing that runs inside: it ends there if something was swapped while the mounts were made."""
    _require_readable(policy, SHELL)
    kinds: dict[str, Kind] = {}
    for path, access in mounts.items():
        if access == "none":
            kinds[path] = "hidden" if os.path.isdir(path) else "masked"
        else:
            kinds[path] = access
    return checked_argv(SHELL, kinds, all_writable=policy.access("/") == "write")


def _view(policy: Policy, mounts: Mapping[str, Mount]) -> Iterator[str]:
    """The mounts, directories before what is in them."""
    root = policy.access("/")
    write = "--dev-bind" if root == "write" else "--bind"
    match root:
        case "write":
            yield from ("--dev-bind", "/", "/")
        case "read":
            yield from ("--ro-bind", "/", "/", "--dev", "/dev")
        case "none":
            yield from _top_links(policy)
            yield from ("--dev", "/dev")
    yield from ("--proc", "/proc")
    sealed = ["/"] if root == "none" else []
    if root != "write" and os.geteuid() == 0:
        sealed.append("/proc")  # root needs no capability to write the settings of the kernel in /proc/sys
    for path in sorted(mounts):
        match mounts[path]:
            case "read":
                yield from ("--ro-bind", path, path)
            case "write":
                yield from ("--dev-bind" if contains("/dev", path) else write, path, path)
            case "none" if os.path.isdir(path):
                open_below = any(contains(path, other) and other != path for other in mounts)
                yield from ("--perms", "0111" if open_below else "0000", "--tmpfs", path)
                sealed.append(path)
            case "none":
                yield from ("--ro-bind", "/dev/null", path)  # no devices work on such a mount: not even this one
    for path in sealed:
        yield from ("--remount-ro", path)


def _mounts(policy: Policy) -> dict[str, Mount]:
    """What differs from its surroundings, and the directories that must stay where they are.

    A root below another one is mounted too, though it changes nothing for what is in it: a mount point cannot be
    renamed or removed, so no command can put a link to another place under its name.
    """
    mounts: dict[str, Mount] = {}
    pinned: set[str] = set()
    for rule in policy.rules:
        if rule.path == "/" or _is_provided(rule.path, rule.access):
            continue
        parent = policy.access(os.path.dirname(rule.path))
        if rule.access == parent and rule.access != "write":
            continue
        if not os.path.exists(rule.path):
            _check_missing(rule.path, rule.access, parent)
            continue
        mounts[rule.path] = rule.access
        if parent == "write":
            pinned.update(_writable_parents(policy, rule.path))
    return {**dict.fromkeys(pinned, "write"), **mounts}


def _check_missing(path: str, access: Access, parent: Access) -> None:
    """What does not exist cannot be covered without leaving a stub in the user's files."""
    if parent == "write" and access != "write":
        raise refused(
            f"{path!a} shall have {access} access in a writable directory but does not exist, so it cannot be "
            'protected; create it, or send the entry with missing_path_behavior "skip"'
        )


def _writable_parents(policy: Policy, path: str) -> Iterator[str]:
    """The directories above a protected path that could be renamed to put something else in its place.

    A mount point cannot be renamed, so each is mounted on itself.
    """
    parent = os.path.dirname(path)
    while parent != "/" and policy.access(parent) == "write":
        yield parent
        parent = os.path.dirname(parent)


def _is_provided(path: str, access: Access) -> bool:
    """Whether bubblewrap's own /dev and /proc answer for the path."""
    if access == "none":
        return False
    return contains("/proc", path) or path in _OWN_DEVICES or (path == "/dev" and access == "read")


def _top_links(policy: Policy) -> Iterator[str]:
    """`/bin` and the like are links on most systems; the rules know only what they point to."""
    with os.scandir("/") as entries:
        links = sorted(entry.path for entry in entries if entry.is_symlink())
    for link in links:
        if policy.access(os.path.realpath(link)) != "none":
            yield from ("--symlink", os.readlink(link), link)
