"""`ProcessLimits`: what a command may use of the machine. `ControlGroups`: limits for all commands of a client
together, by control groups (cgroups v2) below our own.

    our group ─┬─ treadle-PID         this process: a group that hands on controllers has no processes of its own
               ├─ treadle-PID-NAME    the commands of a client: memory.max, pids.max, cpu.max
               └─ …

That takes a group that belongs to this user and has nobody else in it: a service of systemd with `Delegate=yes`, or a
container whose /sys/fs/cgroup can be written. Otherwise there are only the limits of single processes.
"""

from __future__ import annotations

import os
import re
import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from msgspec import Struct

from treadle.errors import TreadleError

MOUNT: Final = "/sys/fs/cgroup"
_NEEDED: Final = ("cpu", "memory", "pids")
_CPU_PERIOD_US: Final = 100_000


class ProcessLimits(Struct, frozen=True, kw_only=True):
    """`memory`, `pids` and `cpus` are for all commands of a client together where `cgroup` is the path of a control
    group for them. Without one, `memory` is the address space of each process, and the other two cannot be had."""

    memory: int | None = None
    pids: int | None = None
    cpus: float | None = None
    files: int | None = None
    file_bytes: int | None = None
    cpu_s: int | None = None
    cgroup: str | None = None

    def rlimits(self) -> list[tuple[int, int]]:
        """Pairs of a limit of `setrlimit` and its value, for every process."""
        values = {
            resource.RLIMIT_NOFILE: self.files,
            resource.RLIMIT_FSIZE: self.file_bytes,
            resource.RLIMIT_CPU: self.cpu_s,
            resource.RLIMIT_AS: self.memory if self.cgroup is None else None,
        }
        return [(number, value) for number, value in values.items() if value is not None]


class NoControlGroups(TreadleError):
    """There are none that this process may use; the message says why."""


class ControlGroups:
    """The groups of a server. Raises `NoControlGroups`."""

    def __init__(self, folder: str) -> None:
        """`folder` is that of our own group."""
        self._folder = folder
        self._made: list[str] = []
        self._handed_on: list[str] = []
        with self._refused():
            offered = _read(os.path.join(folder, "cgroup.controllers")).split()
        missing = [name for name in _NEEDED if name not in offered]
        if missing:
            raise NoControlGroups(f"the control group {folder} has no controller for {', '.join(missing)}")
        with self._refused():
            _write(os.path.join(self._make(""), "cgroup.procs"), "0")
            before = _read(os.path.join(folder, "cgroup.subtree_control")).split()
            wanting = [name for name in _NEEDED if name not in before]
            _write(os.path.join(folder, "cgroup.subtree_control"), " ".join(f"+{name}" for name in wanting))
            self._handed_on = wanting

    @classmethod
    def of_this_process(cls) -> ControlGroups:
        found = re.search(r"^0::(/.*)$", _read("/proc/self/cgroup"), re.MULTILINE)
        if found is None:
            raise NoControlGroups("this system has no control groups of version 2")
        return cls(os.path.join(MOUNT, found[1].lstrip("/")).rstrip("/"))

    def add(self, name: str, limits: ProcessLimits) -> str:
        """Make a group for commands; its path."""
        with self._refused():
            group = self._make(f"-{name}")
            if limits.memory is not None:
                _write(os.path.join(group, "memory.max"), str(limits.memory))
                with suppress(FileNotFoundError):  # a kernel without swap; else what is too much would go there
                    _write(os.path.join(group, "memory.swap.max"), "0")
            if limits.pids is not None:
                _write(os.path.join(group, "pids.max"), str(limits.pids))
            if limits.cpus is not None:
                _write(
                    os.path.join(group, "cpu.max"), f"{max(1000, int(limits.cpus * _CPU_PERIOD_US))} {_CPU_PERIOD_US}"
                )
        return group

    def close(self) -> None:
        """Go back to where we were, and remove the groups in which nothing runs any more."""
        with suppress(OSError):  # somebody else may use it by now
            if self._handed_on:
                _write(os.path.join(self._folder, "cgroup.subtree_control"), " ".join(f"-{x}" for x in self._handed_on))
            if self._made:
                _write(os.path.join(self._folder, "cgroup.procs"), "0")
        for group in self._made:
            with suppress(OSError):
                os.rmdir(group)

    def _make(self, suffix: str) -> str:
        group = os.path.join(self._folder, f"treadle-{os.getpid()}{suffix}")
        with suppress(OSError):  # that of a server that was killed, and had our number
            os.rmdir(group)
        os.mkdir(group)
        self._made.append(group)
        return group

    @contextmanager
    def _refused(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.close()
            raise NoControlGroups(f"control groups cannot be used in {self._folder}: {error.strerror}") from None


def _read(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()


def _write(path: str, text: str) -> None:
    """In one call and without creating anything: the files are those of the kernel."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)
