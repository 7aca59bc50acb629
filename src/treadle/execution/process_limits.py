"""What a command may use of the machine, as the owner of commands says it and as the operating system takes it."""

from __future__ import annotations

import resource

from msgspec import Struct


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
