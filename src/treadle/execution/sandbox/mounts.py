"""The mount table that a confined command must find around itself, and the check that it does.

bubblewrap mounts by path. Between our look at a path and its mount, a process that may write the directory above can
put a link there, and the mount would be somewhere else, or of something else. The kernel's own table says afterwards
what was mounted where, in names that no link can bend; so a few lines of shell compare it, inside the sandbox, before
the command starts. `checked_argv` has the lines that are expected and the script. Mounts nothing.

A mount also needs something to be mounted on. So a name that must not come into being below a writable directory while
a command runs, and is missing, is held by an empty directory of ours (`Placeholders`), which the sandbox then covers.
It is a directory because an empty `.git` directory says nothing to git, which goes on looking further up. Only the name
of a JSON file is held by an empty file: a program that reads one would stumble over a directory. Several commands and
several servers may hold the same name: each has a shared lock on the directory, and the one that can have it alone at
the end removes it. An odd time of change marks it as ours, so one that a killed server left behind is taken over by the
next; as soon as somebody puts something into it, the time is another and it is theirs.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from treadle.errors import ExecError
from treadle.execution.sandbox.policy import PathRule, Policy, refused

Kind = Literal["read", "write", "hidden", "masked"]
NameState = Literal["held", "theirs", "impossible"]

# Mounted anew by bubblewrap with numbers that nobody can foretell, so they are known by not being those of the host.
_TABLE: Final = "/proc/self/mountinfo"
_OWN: Final = ("/dev", "/dev/pts", "/proc")
_OWN_DEVICES: Final = tuple(f"/dev/{name}" for name in ("full", "null", "random", "tty", "urandom", "zero"))

_MARK_NS: Final = 987_654_320 * 10**9  # whole and even, since some file systems count in steps of two seconds
_ROUNDS: Final = 50  # another server may remove it between our looking and our locking, again and again
_PAUSE_S: Final = 0.002
_MAKING: Final = threading.Lock()  # between a placeholder's making and its mark it looks like anybody's directory

# $1: lines that must be there. $2: what may be writable, "*" for all. $3: what of `_OWN` is the host's.
# `read -r` keeps the table's own escapes (\040), which the lines from here have too.
SCRIPT: Final = r"""
n='
' have=$n bad=
while IFS=' ' read -r _ _ dev root at how rest; do
  type=${rest#*- } mode=${how%%,*}
  type=${type%% *}
  have="$have$mode $dev $root $at$n$mode $type $at$n"
  [ "$mode" = ro ] || [ "$2" = '*' ] || [ "$type $at" = 'devpts /dev/console' ] && continue
  case $at in /dev|/dev/pts|/proc) case "$3" in *"$n$dev $root $at$n"*) ;; *) continue;; esac;; esac
  case "$2" in *"$n$dev $root $at$n"*) ;; *) bad=$at;; esac
done </proc/self/mountinfo
IFS=$n
set -f
for line in $1; do case "$have" in *"$n$line$n"*) ;; *) bad=${line##* };; esac; done
set +f
unset IFS
if [ -n "$bad" ]; then
  printf 'treadle sandbox: the command was not run: %s was replaced while the sandbox was being set up\n' "$bad" >&2
  exit 125
fi
shift 3
exec "$@"
"""


@dataclass(frozen=True, slots=True)
class MountEntry:
    """A line of the table: `device` and `root` say what is mounted, `point` says where."""

    number: int
    device: str
    root: str
    point: str

    @property
    def line(self) -> str:
        return f"{self.device} {_escaped(self.root)} {_escaped(self.point)}"


class MountTable:
    """The mounts of this process."""

    def __init__(self, text: str) -> None:
        self._mounts: dict[int, MountEntry] = {}
        for line in text.splitlines():
            number, _, device, root, point, *_ = line.split(" ")
            self._mounts[int(number)] = MountEntry(int(number), device, _plain(root), _plain(point))
        # A mount can be covered by a later one; then it is not what one finds at its place.
        self._covered: list[MountEntry] = []
        for mount in self._mounts.values():
            try:
                is_visible = _mount_number(mount.point) == mount.number
            except ExecError:
                is_visible = False
            if not is_visible:
                self._covered.append(mount)

    @classmethod
    def read(cls) -> MountTable:
        try:
            with open(_TABLE, encoding="utf-8", errors="surrogateescape", newline="\n") as file:
                return cls(file.read())
        except FileNotFoundError:
            raise refused("it needs /proc, which is not mounted here: mount -t proc proc /proc") from None

    def bound(self, path: str, at: str | None = None) -> str:
        """The line of a bind of `path` at `at`, else at itself. Refuses a path that is no longer canonical."""
        mount = self._mounts.get(_mount_number(path))
        if mount is None:
            raise refused(f"{path!a} is on a mount that is not in the table of this process")
        below = path[len(mount.point.rstrip("/")) :]
        root = (mount.root.rstrip("/") + below) or "/"
        return MountEntry(0, mount.device, root, at or path).line

    def leftovers(self, writable: Iterable[str]) -> list[str]:
        """What else is writable in a copy of this table: mounts below writable paths, and those nobody can reach."""
        roots = tuple(path.rstrip("/") + "/" for path in writable)
        return [
            mount.line for mount in self._mounts.values() if mount.point.startswith(roots) or mount in self._covered
        ]

    def own(self) -> list[str]:
        """What of the host is where bubblewrap mounts its own."""
        return [mount.line for mount in self._mounts.values() if mount.point in _OWN and mount not in self._covered]


def checked_argv(shell: str, mounts: Mapping[str, Kind], *, all_writable: bool) -> list[str]:
    """What to put before a command so that it runs only when everything is mounted where it should be."""
    table = MountTable.read()
    required: list[str] = []
    writable: list[str] = []
    for path, kind in mounts.items():
        match kind:
            case "hidden":
                required.append(f"ro tmpfs {_escaped(path)}")
            case "masked":
                required.append(f"ro {table.bound(os.devnull, path)}")
            case "read":
                required.append(f"ro {table.bound(path)}")
            case "write":
                line = table.bound(path)
                required.append(f"rw {line}")
                writable.append(line)
    writable += table.leftovers(path for path, kind in mounts.items() if kind == "write")
    for device in _OWN_DEVICES:
        try:
            is_device = stat.S_ISCHR(os.lstat(device).st_mode)
        except OSError:
            continue
        if is_device:
            writable.append(table.bound(device))
    allowed = "*" if all_writable else _block(writable)
    return [shell, "-c", SCRIPT, shell, "\n".join(required), allowed, _block(table.own())]


def _mount_number(path: str) -> int:
    """The number of the mount that the path is on. The path is opened without following links, so the answer is about
    this very name."""
    try:
        descriptor = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise refused(f"{path!a} cannot be opened: {error.strerror}") from None
    try:
        if os.readlink(f"/proc/self/fd/{descriptor}") != path or stat.S_ISLNK(os.fstat(descriptor).st_mode):
            raise refused(f"{path!a} was replaced while the sandbox was being set up")
        # Without buffers and decoding, which would take most of the time: there are some forty of these per command.
        with open(f"/proc/self/fdinfo/{descriptor}", "rb", buffering=0) as file:
            return int(file.read(4096).partition(b"mnt_id:")[2].split(None, 1)[0])
    finally:
        os.close(descriptor)


def _block(lines: Iterable[str]) -> str:
    """The lines as one text, for a search of whole lines."""
    return "".join(f"\n{line}" for line in lines) + "\n"


def _escaped(path: str) -> str:
    return path.replace("\\", r"\134").replace(" ", r"\040").replace("\t", r"\011").replace("\n", r"\012")


def _plain(text: str) -> str:
    for code, character in ((r"\040", " "), (r"\011", "\t"), (r"\012", "\n"), (r"\134", "\\")):
        text = text.replace(code, character)
    return text


class Placeholders:
    """The names that one command holds. `release` may be called more than once."""

    def __init__(self) -> None:
        self._held: list[tuple[str, int]] = []

    def hold(self, policy: Policy) -> Policy:
        """Hold what the policy takes away below a writable path but is not there; the policy with what is held."""
        rules = {rule.path: rule for rule in policy.rules}
        for rule in policy.rules:
            if rule.access == "write" or policy.access(os.path.dirname(rule.path)) != "write":
                continue
            # The first name on the way to the path that does not exist, or else the path itself.
            name = there = rule.path
            while not os.path.lexists(there):
                name, there = there, os.path.dirname(there)
            state = self._hold(name)
            if state == "impossible" or name != rule.path:
                del rules[rule.path]
            if state == "held" and name != rule.path:
                rules[name] = PathRule(name, "read")
        return Policy(tuple(rules[path] for path in sorted(rules)), policy.network)

    def release(self) -> None:
        while self._held:
            path, descriptor = self._held.pop()
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _is_ours(descriptor) and _is_at(path, descriptor):
                    (os.unlink if _is_file(path) else os.rmdir)(path)
            except OSError:
                pass  # others hold it, or it is in use by now: then it is not for us to remove
            finally:
                os.close(descriptor)

    def _hold(self, path: str) -> NameState:
        for _ in range(_ROUNDS):
            with _MAKING:
                try:
                    _make(path)
                    kind = os.O_NONBLOCK if _is_file(path) else os.O_DIRECTORY
                    descriptor = os.open(path, os.O_RDONLY | kind | os.O_NOFOLLOW | os.O_CLOEXEC)
                except FileNotFoundError:
                    continue
                except OSError as error:
                    if error.errno in (errno.ENOTDIR, errno.ELOOP):
                        return "theirs"  # something is there that is no directory
                    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
                        # What is impossible here is so for the command too: it can do less than we can.
                        return "theirs" if os.path.lexists(path) else "impossible"
                    raise refused(f"{path!a} cannot be kept from being made: {error.strerror}") from None
            if not _is_ours(descriptor):
                os.close(descriptor)
                return "theirs"
            try:  # a server that has the lock alone is about to remove the name
                fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
                is_shared = True
            except BlockingIOError:
                is_shared = False
            if is_shared and _is_at(path, descriptor):
                self._held.append((path, descriptor))
                return "held"
            os.close(descriptor)
            time.sleep(_PAUSE_S)
        # A command that can read the directory can lock it as well: then it stays, which is what we want of it now.
        return "theirs"


def _make(path: str) -> None:
    try:
        if _is_file(path):
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))
        else:
            os.mkdir(path)
    except FileExistsError:
        return
    os.utime(path, ns=(_MARK_NS, _MARK_NS))


def _is_file(path: str) -> bool:
    return path.endswith((".json", ".jsonc"))


def _is_ours(descriptor: int) -> bool:
    status = os.fstat(descriptor)
    return status.st_mtime_ns == _MARK_NS and (stat.S_ISDIR(status.st_mode) or status.st_size == 0)


def _is_at(path: str, descriptor: int) -> bool:
    try:
        found, held = os.lstat(path), os.fstat(descriptor)
    except OSError:
        return False
    return (found.st_dev, found.st_ino) == (held.st_dev, held.st_ino)
