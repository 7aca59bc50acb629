"""The mount table that a confined command must find around itself, and the check that it does.

bubblewrap mounts by path. Between our look at a path and its mount, a process that may write the directory above can
put a link there, and the mount would be somewhere else, or of something else. The kernel's own table says afterwards
what was mounted where, in names that no link can bend; so a few lines of shell compare it, inside the sandbox, before
the command starts. Owns the lines that are expected and the script. Mounts nothing.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from treadle.errors import ExecError
from treadle.execution.sandbox.policy import refused

Kind = Literal["read", "write", "hidden", "masked"]

# Mounted anew by bubblewrap with numbers that nobody can foretell, so they are told by not being those of the host.
_OWN: Final = ("/dev", "/dev/pts", "/proc")
_OWN_DEVICES: Final = tuple(f"/dev/{name}" for name in ("full", "null", "random", "tty", "urandom", "zero"))

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
        self._covered = [mount for mount in self._mounts.values() if not _visible(mount)]

    @classmethod
    def read(cls) -> MountTable:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape", newline="\n") as file:
            return cls(file.read())

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
    writable += [table.bound(device) for device in _OWN_DEVICES if _is_device(device)]
    allowed = "*" if all_writable else _block(writable)
    return [shell, "-c", SCRIPT, shell, "\n".join(required), allowed, _block(table.own())]


def _mount_number(path: str) -> int:
    """Of the mount that the path is on. Opened without following links, so what is answered is about this very name."""
    try:
        descriptor = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise refused(f"{path!a} cannot be opened: {error.strerror}") from None
    try:
        if os.readlink(f"/proc/self/fd/{descriptor}") != path or stat.S_ISLNK(os.fstat(descriptor).st_mode):
            raise refused(f"{path!a} was replaced while the sandbox was being set up")
        with open(f"/proc/self/fdinfo/{descriptor}", encoding="ascii") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("mnt_id:"))
    finally:
        os.close(descriptor)


def _visible(mount: MountEntry) -> bool:
    """Whether the mount is what one finds at its place; it can be covered by a later one."""
    try:
        return _mount_number(mount.point) == mount.number
    except ExecError:
        return False


def _is_device(path: str) -> bool:
    try:
        return stat.S_ISCHR(os.lstat(path).st_mode)
    except OSError:
        return False


def _block(lines: Iterable[str]) -> str:
    """For a search of whole lines."""
    return "".join(f"\n{line}" for line in lines) + "\n"


def _escaped(path: str) -> str:
    return path.replace("\\", r"\134").replace(" ", r"\040").replace("\t", r"\011").replace("\n", r"\012")


def _plain(text: str) -> str:
    for code, character in ((r"\040", " "), (r"\011", "\t"), (r"\012", "\n"), (r"\134", "\\")):
        text = text.replace(code, character)
    return text
