"""`LocalProcess`: a command of this machine, its pipes or terminal read into its event log.

    _start ─▶ reading ◀─▶ paused (the log is full)          supervisor: the command has exited
                 │                                             │
                 │  end of each stream                         ▼
                 │                       _on_exit: read what is in the pipes, then number the exit
                 └──────────────┬──────────────────────────────┘
                                ▼
                 both: `Closed` is the last event

Output comes before the exit that follows it, also where a reader is slow: the pipes are emptied before the exit is
numbered. A child of the command may hold the pipes open after it: then output goes on behind the exit.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import signal
import struct
import termios
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from treadle.arguments import LONGEST_S, one_of, seconds
from treadle.errors import INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, ExecError
from treadle.execution.machine import child_environment
from treadle.execution.process import TERMINATE_GRACE_S, Process, logger
from treadle.execution.process_values import (
    Data,
    ExecParams,
    Output,
    OutputStream,
    WriteResult,
    WriteStatus,
    argv_of,
    as_bytes,
)
from treadle.execution.supervisor import SpawnCommand, SpawnedChild, SpawnRefused, Supervisor, SupervisorLost
from treadle.protocol.exec import Sandbox, SandboxType, SignalName

if TYPE_CHECKING:
    from treadle.execution.process_limits import ProcessLimits
    from treadle.execution.sandbox.confinement import Confined
    from treadle.execution.sandbox.policy import Policy
    from treadle.execution.sandbox.remote_sandbox import SeenRoots

# What a pipe holds by default on Linux: one read empties it.
READ_SIZE = 64 << 10
_SIGNALS: Mapping[SignalName, signal.Signals] = {
    "interrupt": signal.SIGINT,
    "terminate": signal.SIGTERM,
    "kill": signal.SIGKILL,
    "hangup": signal.SIGHUP,
    "quit": signal.SIGQUIT,
    "usr1": signal.SIGUSR1,
    "usr2": signal.SIGUSR2,
    "stop": signal.SIGSTOP,
    "continue": signal.SIGCONT,
}
# After an exit, what the terminal still holds is read, but not for ever: a background job may go on writing.
MAX_DRAIN = 256 << 10
# What `looks_denied` is given of the output.
DENIED_TAIL = 4096
# Beyond what the pipe itself holds. A writer waits while more than this is queued.
MAX_QUEUED = 64 << 10
# Write ids that are remembered, so that a write repeated after a reconnect is not written twice.
MAX_WRITE_IDS = 4096


class Bounds(Protocol):
    """What commands of an owner are held to, whatever they ask for."""

    limits: ProcessLimits | None
    confined: bool
    """Whether there is a policy."""

    def command_policy(self) -> Policy | None: ...


class LocalProcess(Process):
    """A command of this machine."""

    def __init__(
        self,
        params: ExecParams,
        on_closed: Callable[[LocalProcess], None],
        retained_bytes: int,
        bounds: Bounds | None = None,
        seen: SeenRoots | None = None,
    ) -> None:
        super().__init__(params.process_id, retained_bytes=retained_bytes)
        self.params = params
        self._bounds = bounds
        self._seen = seen
        self.sandbox_type: SandboxType = "none"
        self._loop = asyncio.get_running_loop()
        self._on_closed = on_closed
        self._child: SpawnedChild | None = None
        self._streams: dict[int, OutputStream] = {}
        self._stdin: Stdin | None = None
        self._terminal = -1
        self._reading = False
        self._confined: Confined | None = None
        self.log.on_progress = self._on_progress

    @property
    def pid(self) -> int:
        """The process id on this machine; 0 when it has ended and all of its output was read."""
        return self._child.pid if self._child is not None and not self.log.closed else 0

    # --- starting ---

    async def _start(self, supervisor: Supervisor, group: int) -> None:
        params = self.params
        argv, arg0 = argv_of(params), params.arg0
        env = child_environment(params.env, params.env_policy, os.environ)
        cwd = os.fspath(params.cwd)
        if not argv:
            raise ExecError("argv must not be empty", INVALID_PARAMS)
        if not argv[0]:
            raise ExecError("argv[0], the program to run, is empty", INTERNAL_ERROR)
        for what, words in (("argv", argv), ("arg0", (arg0 or "",)), ("cwd", (cwd,)), ("env", (*env, *env.values()))):
            if any("\0" in word for word in words):
                raise ExecError(f"{what} contains a NUL byte, which no program can be given", INTERNAL_ERROR)
        for name in env:
            if not name or "=" in name:
                raise ExecError(f"{name!r} is no name for an environment variable", INTERNAL_ERROR)
        is_free = params.sandbox is None and (self._bounds is None or not self._bounds.confined)
        confined = None if is_free else await self._confine(params.sandbox, argv, env)
        try:
            if confined is not None:
                argv, arg0, env = confined.argv, None, {}
            try:
                command = SpawnCommand(
                    argv=[os.fsencode(word) for word in argv],
                    arg0=None if arg0 is None else os.fsencode(arg0),
                    cwd=os.fsencode(cwd),
                    env={os.fsencode(key): os.fsencode(value) for key, value in env.items()},
                )
            except UnicodeEncodeError as problem:
                text = f"argv, cwd or env has a character that cannot be encoded: {problem}"
                raise ExecError(text, INTERNAL_ERROR) from None
            limits = None if self._bounds is None else self._bounds.limits
            handed = () if confined is None else (confined.handed,)
            fds, terminal = self._open_terminal(handed) if params.tty else (self._open_pipes(handed), None)
            self._child = await supervisor.spawn(
                command, group=group, fds=fds, terminal=terminal, on_exit=self._on_exit, limits=limits
            )
        except BaseException as error:
            self._release()
            if isinstance(error, SpawnRefused):
                subject = cwd if error.what == "cwd" else argv[0]
                text = f"{error} (os error {error.errno}): {error.what} {subject!r}"
                raise ExecError(text, INTERNAL_ERROR, errno=error.errno) from None
            if isinstance(error, SupervisorLost):
                raise ExecError(str(error), INTERNAL_ERROR) from None
            raise
        self._log_start(argv_of(params), self._child.pid)
        self._end_descendants()  # its exit may have been reported together with its start
        self._resume()

    async def _confine(self, sandbox: Sandbox | None, argv: tuple[str, ...], env: dict[str, str]) -> Confined | None:
        """The command line to run instead, under the sandbox; None when it confines nothing."""
        # Loaded at the first confined command: many servers never confine anything.
        from treadle.execution.sandbox.confinement import confine
        from treadle.execution.sandbox.policy import both, policy_from_wire

        if (
            sandbox is not None and sandbox.protect_orders is True
        ):  # from another machine, which has left all looking around to this one
            from treadle.execution.sandbox.remote_sandbox import enforced_policy

            policy = await asyncio.to_thread(enforced_policy, sandbox, self._seen)
        else:
            policy = policy_from_wire(sandbox)
        if self._bounds is not None and policy is not None:
            # Of many rules it takes long, and others wait for this loop.
            policy = await asyncio.to_thread(both, policy, self._bounds.command_policy())
        elif self._bounds is not None:
            policy = self._bounds.command_policy()
        if policy is None:
            return None
        arg0, cwd, tty = self.params.arg0, os.fspath(self.params.cwd), self.params.tty
        # In a thread: the first time it tries out what the machine can do.
        confining = asyncio.ensure_future(
            asyncio.to_thread(confine, policy, argv=argv, arg0=arg0, cwd=cwd, env=env, tty=tty)
        )
        try:
            confined = await asyncio.shield(confining)
        except asyncio.CancelledError:
            confining.add_done_callback(_release_late)
            raise
        self._confined = confined
        self.sandbox_type = confined.sandbox_type
        return confined

    def _open_pipes(self, handed: Sequence[int]) -> list[int]:
        opened: list[int] = []
        try:
            opened += map(os.dup, handed)
            copies = tuple(opened)
            if self.params.pipe_stdin:
                child_in, our_in = os.pipe()
                opened += (child_in, our_in)
            else:
                child_in = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
                opened.append(child_in)
            our_out, child_out = os.pipe()
            opened += (our_out, child_out)
            our_err, child_err = os.pipe()
        except OSError as error:
            for fd in opened:
                os.close(fd)
            raise _os_error(error) from None
        if self.params.pipe_stdin:
            os.set_blocking(our_in, False)
            self._stdin = Stdin(our_in, owns_fd=True)
        self._streams = {our_out: OutputStream.STDOUT, our_err: OutputStream.STDERR}
        for fd in self._streams:
            os.set_blocking(fd, False)
        return [child_in, child_out, child_err, *copies]

    def _open_terminal(self, handed: Sequence[int]) -> tuple[list[int], bytes]:
        copies: list[int] = []
        try:
            copies += map(os.dup, handed)
            ours, theirs = os.openpty()
        except OSError as error:
            for fd in copies:
                os.close(fd)
            raise _os_error(error) from None
        self._terminal = ours
        self._set_size(*self.params.size)
        os.set_blocking(ours, False)
        self._streams = {ours: OutputStream.PTY}
        self._stdin = Stdin(ours, owns_fd=False)
        # The child opens the terminal by name; the descriptor keeps it from hanging up before that.
        return [theirs, *copies], os.ttyname(theirs).encode()

    # --- reading ---

    def _on_progress(self) -> None:
        if not self._reading and self.log.has_room:
            self._resume()

    def _resume(self) -> None:
        if self._reading or self._child is None:
            return
        self._reading = True
        for fd in self._streams:
            self._loop.add_reader(fd, self._readable, fd)

    def _pause(self) -> None:
        if self._reading:
            self._reading = False
            for fd in self._streams:
                self._loop.remove_reader(fd)

    def _readable(self, fd: int) -> None:
        self._take(fd, READ_SIZE)
        if not self.log.closed and self.log.full:
            self._pause()

    def _take(self, fd: int, size: int) -> int:
        """Read into the log; the number of bytes, 0 when there is nothing now or nothing more."""
        try:
            chunk = os.read(fd, size)
            if fd == self._terminal and chunk:
                chunk = _with_more(fd, chunk, size)
        except BlockingIOError:
            return 0
        except OSError as error:
            if error.errno != errno.EIO:  # what a terminal says while nobody has it open
                raise
            if not self.exited:
                # Closing our side now would hang up on the process, in the middle of its last steps. At its exit
                # reading goes on.
                self._loop.remove_reader(fd)
                return 0
            chunk = b""
        if chunk:
            self._add_output(self._streams[fd], chunk)
            return len(chunk)
        # The end of the stream.
        if self._reading:
            self._loop.remove_reader(fd)
        del self._streams[fd]
        if fd == self._terminal:
            self._terminal = -1
            if self._stdin is not None:
                self._stdin.end()
        os.close(fd)
        self._close_if_done()
        return 0

    def _on_exit(self, code: int | None) -> None:
        self._log_start(argv_of(self.params))  # a quick one has ended before its start was reported
        if self._stdin is not None and self._terminal < 0:
            self._stdin.end()
        if code is None:  # the helper that ran it was killed, and with it the process; nobody knows its code
            code = -1
        # Whatever was written before the exit is in the pipes now, and is numbered before it.
        for fd in tuple(self._streams):
            if fd == self._terminal:
                left = MAX_DRAIN
            else:
                left = int.from_bytes(fcntl.ioctl(fd, termios.FIONREAD, b"\0\0\0\0"), "little")
            while left > 0 and (taken := self._take(fd, min(left, READ_SIZE))):
                left -= taken
        denied = False
        if self._confined is not None:
            from treadle.execution.sandbox.confinement import looks_denied  # has been loaded to confine it

            changed = self._confined.repair()
            if changed:
                text = f"treadle sandbox: the command changed the mode of {', '.join(changed)}: it was put back"
                logger.warning("%s", text)
                stream = OutputStream.PTY if self.params.tty else OutputStream.STDERR
                self._add_output(stream, os.fsencode(f"{text}\n"))
            chunks = [item.event.chunk for item in self.log.retained() if isinstance(item.event, Output)]
            denied = looks_denied(code, b"".join(chunks)[-DENIED_TAIL:])
        if self._stdin is not None:
            self._stdin.end()
        self._add_exit(code, denied)
        self._end_descendants()
        if self._reading and self._terminal >= 0:
            self._loop.add_reader(self._terminal, self._readable, self._terminal)
        self._close_if_done()

    def _end_descendants(self) -> None:
        """A confined command ends as a whole: where no pid namespace does it, what it left behind is killed."""
        if self._confined is None or not self.exited:
            return
        if not self._confined.leaves_descendants:
            self._confined.release()
        elif self._child is not None:
            self._child.end(0.0, self._confined.release)

    def _close_if_done(self) -> None:
        if not self._streams and self._ending is not None and not self.log.closed:
            self._add_close()
            self._on_closed(self)

    def _release(self) -> None:
        if self._confined is not None:
            self._confined.release()
        self._pause()
        for fd in self._streams:
            os.close(fd)
        self._streams = {}
        self._terminal = -1
        if self._stdin is not None:
            self._stdin.end()

    def _abandon(self, reason: str) -> None:
        """Stop reading, whatever is still open."""
        if self._stdin is not None:
            self._stdin.end()
        self._release()
        if not self.log.closed:
            self._fail(reason)
            self._on_closed(self)

    # --- verbs ---

    async def write(self, data: Data, write_id: str | None = None) -> WriteResult:
        sent = as_bytes(data, "data")
        self._check_loop()
        if self._stdin is None:
            return WriteResult(WriteStatus.STDIN_CLOSED)
        return WriteResult(await self._stdin.write(sent, write_id))

    async def close_stdin(self) -> None:
        if self._stdin is None:
            return
        if self.params.tty:
            await self._stdin.write(b"\x04")
        else:
            await self._stdin.close()

    async def signal(self, name: SignalName) -> None:
        one_of("name", name, _SIGNALS)
        if self._child is not None and not self.exited:
            self._child.signal(_SIGNALS[name])

    async def terminate(self, grace_s: float = TERMINATE_GRACE_S) -> bool:
        grace_s = min(seconds("grace_s", grace_s), LONGEST_S)
        if self._child is None:
            return False
        running = not self.exited  # else there may be descendants, also such as have closed its output
        self._child.end(grace_s)
        return running

    async def resize(self, rows: int, cols: int) -> None:
        if not self.params.tty:
            raise ExecError(f"process {self.process_id} has no terminal: start it with tty", INVALID_REQUEST)
        if self._terminal >= 0:
            self._set_size(rows, cols)

    def _set_size(self, rows: int, cols: int) -> None:
        fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))


def _with_more(terminal: int, chunk: bytes, size: int) -> bytes:
    """The chunk and what else the terminal has right now. It gives 4 KiB at a time, however much waits, and an event
    of its own for each costs several times what the read does."""
    pieces = [chunk]
    left = size - len(chunk)
    while left > 0:
        try:
            piece = os.read(terminal, left)
        except OSError:  # nothing now, or nobody has it open: the next read shows which
            break
        if not piece:
            break
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)


def _release_late(confining: asyncio.Future[Confined]) -> None:
    """Release a confinement that was set up after its caller was cancelled: the thread has gone on."""
    if not confining.cancelled() and confining.exception() is None:
        confining.result().release()


def _os_error(error: OSError) -> ExecError:
    return ExecError(f"{error.strerror} (os error {error.errno})", INTERNAL_ERROR)


class Stdin:
    """The writing end of a process's stdin: ordered, bounded, and blocked by nobody but its own child.

    It closes the file descriptor at the end when it `owns_fd`; a terminal is also read from.
    """

    def __init__(self, fd: int, *, owns_fd: bool) -> None:
        self._fd = fd
        self._owns_fd = owns_fd
        self._loop = asyncio.get_running_loop()
        self._lock = asyncio.Lock()
        self._queue: deque[memoryview] = deque()
        self._queued = 0
        self._space = asyncio.Event()
        self._watching = False
        self._ids: OrderedDict[str, None] = OrderedDict()
        self._no_more = False  # close_stdin() was called, or the child closed its end
        self._ended = False  # the process is gone

    async def write(self, data: bytes, write_id: str | None = None) -> WriteStatus:
        async with self._lock:
            if write_id is not None and write_id in self._ids:
                return WriteStatus.ACCEPTED
            while self._queued > MAX_QUEUED and not self._no_more and not self._ended:
                self._space.clear()
                await self._space.wait()
            if self._ended:
                raise ExecError("failed to write to process stdin: the process has ended", INTERNAL_ERROR)
            if self._no_more:
                return WriteStatus.STDIN_CLOSED
            if write_id is not None:
                self._ids[write_id] = None
                if len(self._ids) > MAX_WRITE_IDS:
                    self._ids.popitem(last=False)
            if data:
                self._queue.append(memoryview(data))
                self._queued += len(data)
                if len(self._queue) == 1:
                    self._flush()
            return WriteStatus.ACCEPTED

    async def close(self) -> None:
        """End of input, behind what was accepted."""
        async with self._lock:
            self._no_more = True
            if not self._queue:
                self._release()

    def end(self) -> None:
        """Drop what is queued, because the process is gone; writers fail."""
        self._ended = True
        self._queue.clear()
        self._queued = 0
        self._space.set()
        self._release()

    def _flush(self) -> None:
        while self._queue:
            chunk = self._queue[0]
            try:
                written = os.write(self._fd, chunk)
            except BlockingIOError:
                self._watch(True)
                return
            except OSError:  # the child closed its stdin: what it will not read is dropped
                self._no_more = True
                self._queue.clear()
                self._queued = 0
                break
            self._queued -= written
            if written == len(chunk):
                self._queue.popleft()
            else:
                self._queue[0] = chunk[written:]
        self._watch(False)
        self._space.set()
        if self._no_more:
            self._release()

    def _watch(self, on: bool) -> None:
        if on == self._watching:
            return
        self._watching = on
        if on:
            self._loop.add_writer(self._fd, self._writable)
        else:
            self._loop.remove_writer(self._fd)

    def _writable(self) -> None:
        self._flush()
        if self._queued <= MAX_QUEUED:
            self._space.set()

    def _release(self) -> None:
        self._watch(False)
        if self._owns_fd and self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
