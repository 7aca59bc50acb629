"""Confinement by bubblewrap: a private view of the file system, and no network unless it is granted.

Owns the command line and the steps of the entry program. Looks at the file system (what exists, what is a directory)
but starts nothing.

The command line is `sh -c … bwrap … -- sh -c … entry`. The first shell opens the system-call filter and makes
bubblewrap ignore the signals that are meant for the command: they go to the whole process group, and bubblewrap would
die of them and take the command with it. The second one checks what is mounted (`mounts`). The entry program
(`EntryProgram`) takes the last steps: signals have their default action again, links that must stay are held, what may
be written is limited by Landlock too, and it becomes the command, with the command's environment.

Why Landlock as well: on a mount that is read-only, a FIFO can still be written, and a program that reads it outside may
obey.

The command has its own pid namespace, which ends with it: nothing that it left in the background lives on. The leader
of its process group is outside and reads as 0; bash copes with that, dash as an interactive shell ends with status 2.
"""

from __future__ import annotations

import os
import signal
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from treadle.execution.sandbox.command import HANDED, RESULT, SHELL, ConfinedCommand, EntryProgram
from treadle.execution.sandbox.mounts import Kind, checked_argv
from treadle.execution.sandbox.policy import Access, PathRule, Policy, contains, refused

ENV: Final = "/usr/bin/env"

_FILTER_DESCRIPTOR: Final = "9"  # a single digit, since that is all that every shell can redirect
_SHIELDED: Final[tuple[int, ...]] = (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
_DEFAULT_ACTION: Final = bytes(32)  # `struct sigaction` of zeros
_AT_FDCWD: Final = -100
_RULESET_DESCRIPTOR, _PATH_DESCRIPTOR = 20, 21  # any that are free
_RULE_PATH_BENEATH: Final = 1
_CLONE_OF_LINK: Final = 0x1 | 0x100  # OPEN_TREE_CLONE, AT_SYMLINK_NOFOLLOW
_MOVE_FROM_DESCRIPTOR: Final = 0x4  # MOVE_MOUNT_F_EMPTY_PATH
_CLONE_NEWNS: Final = 0x20000
_PR_CAPBSET_DROP, _PR_CAP_AMBIENT, _CLEAR_ALL = 24, 47, 4
_CAP_SETPCAP, _CAP_SYS_ADMIN = 8, 21
_CAPABILITY_VERSION_3: Final = 0x20080522
_WRITE_FILE, _MOVE = 1 << 1, 1 << 13  # rights of Landlock: write a file, move it to another directory
_MOVES_SINCE: Final = 2  # the first version of Landlock lets nobody move files between directories
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


def bubblewrap_argv(policy: Policy, command: ConfinedCommand, *, found: Installation) -> list[str]:
    """The command line that runs the command under the policy."""
    mounts, links = _mounts(policy), _links(policy)
    script = f"trap '' {' '.join(str(int(number)) for number in _shielded(command))}; "
    script += f'exec "$@" {_FILTER_DESCRIPTOR}<"$0"'
    filter_path = found.network_filter_path if policy.network else found.filter_path
    view = list(_view(policy, mounts))
    # The first thing that runs inside is a check: it ends there if something was swapped while the mounts were made.
    if policy.access(os.path.realpath(SHELL)) == "none":
        raise refused(f"{SHELL!a} is needed to start the command but is not readable; grant read access to it")
    kinds: dict[str, Kind] = {}
    for path, access in mounts.items():
        if access == "none":
            kinds[path] = "hidden" if os.path.isdir(path) else "masked"
        else:
            kinds[path] = access
    return [
        *(SHELL, "-c", script, filter_path, found.bwrap, *_NAMESPACES),
        *("--cap-drop", "ALL", "--die-with-parent", "--seccomp", _FILTER_DESCRIPTOR),
        *(("--cap-add", "CAP_SYS_ADMIN", "--cap-add", "CAP_SETPCAP") if links else ()),
        *(() if policy.network else ("--unshare-net",)),
        *view,
        *("--chdir", command.cwd, "--"),
        *checked_argv(SHELL, kinds, all_writable=policy.access("/") == "write"),
        f"/proc/self/fd/{HANDED}",
    ]


def _shielded(command: ConfinedCommand) -> tuple[int, ...]:
    # A terminal that goes away says so to its session leader only, which is bubblewrap: then all must end.
    return _SHIELDED if command.tty else (*_SHIELDED, signal.SIGHUP)


def entry_program(policy: Policy, command: ConfinedCommand, *, landlock: int) -> bytes:
    """The program that runs last inside, for a kernel with this version of Landlock."""
    program = EntryProgram()
    links = _links(policy)
    if links:  # for ordinary users, bubblewrap's own belongs to a user namespace that they have left
        program.call("unshare", _CLONE_NEWNS, failure="a mount namespace could not be made")
    # Mount each link on itself, since a mount point can be neither renamed nor removed. bubblewrap would follow it.
    for link in links:
        failure, name = f"{link} cannot be protected", os.fsencode(link) + b"\0"
        program.call("open_tree", _AT_FDCWD, name, _CLONE_OF_LINK | os.O_CLOEXEC, failure=failure)
        program.call("move_mount", RESULT, b"\0", _AT_FDCWD, name, _MOVE_FROM_DESCRIPTOR, failure=failure)
    if links:  # the powers to do so were for this program alone
        failure = "giving up powers failed"
        for power in (_CAP_SYS_ADMIN, _CAP_SETPCAP):
            program.call("prctl", _PR_CAPBSET_DROP, power, 0, 0, failure=failure)
        program.call("prctl", _PR_CAP_AMBIENT, _CLEAR_ALL, 0, 0, 0, failure=failure)
        program.call("capset", struct.pack("<II", _CAPABILITY_VERSION_3, 0), bytes(24), failure=failure)
    for number in _shielded(command):
        program.call("rt_sigaction", int(number), _DEFAULT_ACTION, 0, 8, failure="resetting signals failed")
    if landlock >= _MOVES_SINCE and policy.access("/") != "write":
        # Restrict writing, by Landlock, to what is mounted for writing, and to bubblewrap's own /dev and /proc.
        failure = "restricting it by Landlock failed"
        handled = struct.pack("<Q", _WRITE_FILE | _MOVE)
        program.call("landlock_create_ruleset", handled, len(handled), 0, failure=failure)
        program.call("dup3", RESULT, _RULESET_DESCRIPTOR, os.O_CLOEXEC, failure=failure)
        writable = [rule.path for rule in policy.rules if rule.access == "write" and os.path.exists(rule.path)]
        terminal = ["/proc/self/fd/0"] if command.tty else []  # has no name in there
        for place in ("/", "/dev", "/proc", *writable, *terminal):
            rights = _MOVE if place == "/" else _WRITE_FILE
            program.call(
                *("openat", _AT_FDCWD, os.fsencode(place) + b"\0", os.O_PATH | os.O_CLOEXEC),
                failure=f"{place} cannot be opened",
            )
            program.call("dup3", RESULT, _PATH_DESCRIPTOR, os.O_CLOEXEC, failure=failure)
            rule = struct.pack("<Qi", rights, _PATH_DESCRIPTOR)
            program.call("landlock_add_rule", _RULESET_DESCRIPTOR, _RULE_PATH_BENEATH, rule, 0, failure=failure)
        program.call("landlock_restrict_self", _RULESET_DESCRIPTOR, 0, failure=failure)
    program.call("close", HANDED, failure="closing this program failed")
    called = command.argv[0]
    seen = command.arg0 if command.arg0 is not None else called
    path = called if "/" in called else _on_path(command)
    if path is not None:
        program.execute(path, (seen, *command.argv[1:]), command.env)
    if command.arg0 is None and "=" not in called and called != "-":
        # `env` says why not, looks for the program again from in here, and runs scripts that do not name their shell.
        program.execute(ENV, (ENV, "--", *command.argv), command.env)
    missing = path is None or not os.path.exists(os.path.join(command.cwd, path))
    program.stop(
        127 if missing else 126, f"{called}: {'No such file or directory' if missing else 'cannot be executed'}"
    )
    return program.file()


def _on_path(command: ConfinedCommand) -> str | None:
    """Where the command is found, as the C library looks for it."""
    for folder in command.env.get("PATH", os.defpath).split(":"):
        path = os.path.join(command.cwd, folder, command.argv[0])
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    return None


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
            # `/bin` and the like are links on most systems; the rules know only what they point to.
            with os.scandir("/") as entries:
                links = sorted(entry.path for entry in entries if entry.is_symlink())
            for link in (link for link in links if policy.access(os.path.realpath(link)) != "none"):
                yield from ("--symlink", os.readlink(link), link)
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
        if not _is_held(rule):
            if not os.path.exists(rule.path):
                if parent == "write" and rule.access != "write":
                    # What does not exist cannot be covered without leaving a stub in the user's files.
                    raise refused(
                        f"{rule.path!a} shall have {rule.access} access in a writable directory but does not exist, so "
                        'it cannot be protected; create it, or send the entry with missing_path_behavior "skip"'
                    )
                continue
            mounts[rule.path] = rule.access
        # The directories above it could be renamed to put something else in its place, so each is mounted on itself.
        above = os.path.dirname(rule.path) if parent == "write" else "/"
        while above != "/" and policy.access(above) == "write":
            pinned.add(above)
            above = os.path.dirname(above)
    return {**dict.fromkeys(pinned, "write"), **mounts}


def _links(policy: Policy) -> list[str]:
    """The links that the command could replace otherwise."""
    return [
        rule.path for rule in policy.rules if _is_held(rule) and policy.access(os.path.dirname(rule.path)) == "write"
    ]


def _is_held(rule: PathRule) -> bool:
    return rule.access == "read" and os.path.islink(rule.path)


def _is_provided(path: str, access: Access) -> bool:
    """Whether bubblewrap's own /dev and /proc answer for the path."""
    if access == "none":
        return False
    return contains("/proc", path) or path in _OWN_DEVICES or (path == "/dev" and access == "read")
