"""The processes of a server as /proc shows them: who descends from it, what they hold in memory, what CPU they used.

A server's *own* processes are those that run the server's executable (a helper of ours, a re-execution of the real
one). The commands that it runs for clients are its descendants too, but are not its own: a benchmark must only run
commands of another executable.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Member:
    """One process; `born` tells it from a later one with the same pid."""

    pid: int
    parent: int
    born: int
    cpu_s: float


@dataclass(frozen=True, slots=True)
class Memory:
    """In MB of 10^6 bytes. `pss` counts a page shared by n processes as 1/n of a page in each."""

    rss: float
    pss: float


def members(root: int) -> list[Member]:
    """The process and all its living descendants, parents first."""
    children: dict[int, list[Member]] = {}
    found: list[Member] = []
    for name in os.listdir("/proc"):
        member = _member(int(name)) if name.isdigit() else None
        if member is None:
            continue
        children.setdefault(member.parent, []).append(member)
        if member.pid == root:
            found.append(member)
    for member in found:
        found += children.get(member.pid, ())
    return found


def own(root: int) -> list[Member]:
    """Those of `members` that run the executable of the root."""
    executable = _executable(root)
    return [member for member in members(root) if _executable(member.pid) == executable]


def memory(root: int, *, everyone: bool = False) -> Memory:
    """What the server's own processes hold together, or all that descend from it."""
    rss = pss = 0
    for member in members(root) if everyone else own(root):
        try:
            resident = _kilobytes(f"/proc/{member.pid}/status", "VmRSS:")
            share = _kilobytes(f"/proc/{member.pid}/smaps_rollup", "Pss:")
        except (OSError, ValueError):
            if member.pid == root or alive([member]):
                raise
            continue  # a helper that has ended since it was listed
        rss += resident
        pss += share
    return Memory(rss * 1024 / 1e6, pss * 1024 / 1e6)


def cpu_seconds(root: int) -> float:
    """User and system time of the server's own living processes."""
    return sum(member.cpu_s for member in own(root))


def alive(candidates: list[Member]) -> list[Member]:
    """Those that still run; a zombie does not."""
    now = ((member, _member(member.pid)) for member in candidates)
    return [member for member, current in now if current is not None and current.born == member.born]


def kill(victims: list[Member]) -> None:
    for member in alive(victims):
        with suppress(ProcessLookupError):
            os.kill(member.pid, signal.SIGKILL)


def _member(pid: int) -> Member | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:  # it has ended since it was listed
        return None
    state, parent, user, system, born = fields[0], fields[1], fields[11], fields[12], fields[19]
    if state in (b"Z", b"X"):
        return None
    return Member(pid, int(parent), int(born), (int(user) + int(system)) / _TICKS_PER_S)


def _executable(pid: int) -> str | None:
    try:
        return os.readlink(f"/proc/{pid}/exe")
    except OSError:
        return None


def _kilobytes(path: str, label: str) -> int:
    with open(path) as file:
        for line in file:
            if line.startswith(label):
                return int(line.split()[1])
    raise ValueError(f"{path} has no {label}: this kernel cannot be measured")
