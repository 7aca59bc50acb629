"""`LocalBackend`: the processes of one owner on this machine, by their ids."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
from collections import OrderedDict
from typing import TYPE_CHECKING

from msgspec import Struct

from treadle.errors import INVALID_REQUEST, ExecError
from treadle.execution.local_process import Bounds, LocalProcess
from treadle.execution.process import RETAINED_BYTES, TERMINATE_GRACE_S
from treadle.execution.process_values import ExecParams, ProcessInfo, argv_of
from treadle.execution.supervisor import Supervisor, SupervisorLost
from treadle.logs import audit

if TYPE_CHECKING:
    from treadle.execution.sandbox.remote_sandbox import SeenRoots

# A closed process is listed, and its id is taken, for this long, or until there are too many of them.
CLOSED_S = 30.0
MAX_CLOSED = 1024
MAX_CLOSED_BYTES = 64 << 20
MAX_PROCESSES = 4096
# How long the exits of processes that were killed may take to be reported.
CLOSE_PATIENCE_S = 2.0


class _Closed(Struct):
    info: ProcessInfo
    timer: asyncio.TimerHandle | None
    process: LocalProcess | None
    size: int


class LocalBackend:
    """The processes of one owner: an `Environment`, or a session of the exec-server.

    With `rereadable`, `get` finds closed processes too, and their output is retained for that. Without, a closed
    process can be read only by a holder of the object. With `bounds` no process gets more than these allow. `seen` are
    the folders that threads of a client on another machine were given.
    """

    def __init__(
        self,
        supervisor: Supervisor,
        *,
        retained_bytes: int = RETAINED_BYTES,
        rereadable: bool = False,
        bounds: Bounds | None = None,
        seen: SeenRoots | None = None,
    ) -> None:
        self._supervisor = supervisor
        self._bounds = bounds
        self._seen = seen
        self._group = supervisor.new_group()
        self._retained_bytes = retained_bytes
        self._processes: dict[str, LocalProcess] = {}
        self._starting: dict[str, asyncio.Task[object] | None] = {}
        self._rereadable = rereadable
        self._recently_closed: OrderedDict[str, _Closed] = OrderedDict()
        self._closed_bytes = 0
        self._held = False
        self._closed = False

    async def start(self, params: ExecParams) -> LocalProcess:
        """Start a process; the id is free again when this raises."""
        name = params.process_id
        if self._closed:
            raise ExecError("the environment is closed", INVALID_REQUEST)
        if name in self._processes or name in self._recently_closed or name in self._starting:
            raise ExecError(f"process {name} already exists", INVALID_REQUEST)
        if self.running >= MAX_PROCESSES:
            raise ExecError(f"{MAX_PROCESSES} processes are running: end some first", INVALID_REQUEST)
        if audit.log is not None:
            command = {"command": shlex.join(argv_of(params)), "cwd": os.fspath(params.cwd)}
            confined = params.sandbox is not None or (self._bounds is not None and self._bounds.confined)
            try:
                audit.log.record("command", {"process": name, **command, "sandbox": confined})
            except audit.AuditFailed as error:  # for whoever starts it, as when it cannot be started
                raise ExecError(str(error)) from None
        process = LocalProcess(params, self._process_closed, self._retained_bytes, self._bounds, self._seen)
        self._starting[name] = asyncio.current_task()
        try:
            await process._start(self._supervisor, self._group)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self._starting.get(name, task) is not None or task is None:
                raise
            task.uncancel()  # the cancellation was ours, by `cancel_start`
            raise ExecError(f"process {name} start was cancelled", INVALID_REQUEST) from None
        finally:
            del self._starting[name]
        if process.closed:
            self._add_closed(process)
        else:
            self._processes[name] = process
        return process

    def cancel_start(self, process_id: str) -> bool:
        """Cancel a start that is under way; it fails with `start was cancelled`."""
        task = self._starting.get(process_id)
        if task is None:
            return process_id in self._starting
        self._starting[process_id] = None
        task.cancel()
        return True

    def get(self, process_id: str) -> LocalProcess | None:
        closed = self._recently_closed.get(process_id)
        return self._processes.get(process_id) if closed is None else closed.process

    def open_processes(self) -> tuple[LocalProcess, ...]:
        return tuple(self._processes.values())

    def is_starting(self, process_id: str) -> bool:
        return process_id in self._starting

    @property
    def running(self) -> int:
        """How many processes run or are being started."""
        return len(self._processes) + len(self._starting)

    @property
    def has_closed(self) -> bool:
        """Whether closed processes can still be read."""
        return bool(self._recently_closed)

    def hold_closed(self, held: bool) -> None:
        """While `held`, closed processes are not forgotten after some time: who wants to read them is away."""
        self._held = held
        for name, closed in self._recently_closed.items():
            if closed.timer is not None:
                closed.timer.cancel()
            closed.timer = self._forget_later(name)

    async def processes(self) -> list[ProcessInfo]:
        return [closed.info for closed in self._recently_closed.values()] + list(map(_info, self._processes.values()))

    async def close(self, grace_s: float = TERMINATE_GRACE_S) -> None:
        """End everything that was ever started here, descendants and daemons included."""
        self._closed = True
        for name in tuple(self._starting):
            self.cancel_start(name)
        with contextlib.suppress(SupervisorLost):  # then everything has been killed already
            await self._supervisor.end_group(self._group, grace_s)
        open_processes = self.open_processes()
        try:
            async with asyncio.timeout(CLOSE_PATIENCE_S):
                for process in open_processes:
                    while not process.exited:
                        await process.log.wait(process.log.last_seq)
        except TimeoutError:
            pass
        for process in open_processes:
            process._abandon("the environment was closed")
        self.hold_closed(True)
        self._recently_closed.clear()
        self._processes.clear()
        self._supervisor.release_group(self._group)

    def _process_closed(self, process: LocalProcess) -> None:
        if self._processes.get(process.process_id) is process:
            del self._processes[process.process_id]
            self._add_closed(process)

    def _add_closed(self, process: LocalProcess) -> None:
        name = process.process_id
        size = process.log.stats().retained_bytes if self._rereadable else 0
        kept = process if self._rereadable else None
        self._recently_closed[name] = _Closed(_info(process), self._forget_later(name), kept, size)
        self._closed_bytes += size
        while len(self._recently_closed) > MAX_CLOSED or self._closed_bytes > MAX_CLOSED_BYTES:
            self._forget(next(iter(self._recently_closed)))

    def _forget_later(self, name: str) -> asyncio.TimerHandle | None:
        return None if self._held else asyncio.get_running_loop().call_later(CLOSED_S, self._forget, name)

    def _forget(self, name: str) -> None:
        closed = self._recently_closed.pop(name)
        if closed.timer is not None:
            closed.timer.cancel()
        self._closed_bytes -= closed.size


def _info(process: LocalProcess) -> ProcessInfo:
    return process.info(argv_of(process.params), process.params.tty)
