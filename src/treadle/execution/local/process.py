"""`LocalProcess`: a command of this machine, its pipes or terminal read into its event log."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import struct
import termios
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from treadle.arguments import one_of
from treadle.errors import INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, ExecError
from treadle.execution.data import Data, as_bytes
from treadle.execution.env_policy import child_environment
from treadle.execution.process import TERMINATE_GRACE_S, Process
from treadle.execution.process_values import (
    SIGNALS,
    ExecParams,
    Output,
    OutputStream,
    WriteResult,
    WriteStatus,
    argv_of,
)
from treadle.execution.stdin import Stdin
from treadle.execution.supervisor import Child, Command, SpawnRefused, Supervisor, SupervisorLost
from treadle.protocol.exec import Sandbox, SandboxType, SignalName

if TYPE_CHECKING:
    from treadle.execution.sandbox.confinement import Confined

# What a pipe holds by default on Linux: one read empties it.
READ_SIZE = 64 << 10
# After an exit, what the terminal still holds is read, but not for ever: a background job may go on writing.
MAX_DRAIN = 256 << 10
# What `looks_denied` is shown of the output.
DENIED_TAIL = 4096


class LocalProcess(Process):
    """A command of this machine."""

    def __init__(self, params: ExecParams, on_closed: Callable[[LocalProcess], None], retained_bytes: int) -> None:
        super().__init__(params.process_id, retained_bytes=retained_bytes)
        self.params = params
        self.sandbox_type: SandboxType = "none"
        self._loop = asyncio.get_running_loop()
        self._on_closed = on_closed
        self._child: Child | None = None
        self._streams: dict[int, OutputStream] = {}
        self._stdin: Stdin | None = None
        self._terminal = -1
        self._reading = False
        self._leaves_descendants = False
        self._unconfine: Callable[[], None] = _nothing
        self.log.on_progress = self._on_progress

    @property
    def pid(self) -> int:
        """Its number on this machine; 0 when it has ended and all of its output was read."""
        return self._child.pid if self._child is not None else 0

    # --- starting ---

    async def _start(self, supervisor: Supervisor, group: int) -> None:
        params = self.params
        argv, arg0 = argv_of(params), params.arg0
        env = child_environment(params.env, params.env_policy, os.environ)
        cwd = os.fspath(params.cwd)
        _check(argv, arg0, cwd, env)
        if params.sandbox is not None:
            argv, arg0, env = await self._confine(params.sandbox, argv, env)
        try:
            command = _encoded(argv, arg0, cwd, env)
            fds, terminal = self._open_terminal() if params.tty else (self._open_pipes(params.pipe_stdin), None)
            self._child = await supervisor.spawn(
                command, group=group, fds=fds, terminal=terminal, on_exit=self._on_exit
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
        self._end_descendants()  # its exit may have been told together with its start
        self._resume()

    async def _confine(
        self, sandbox: Sandbox, argv: tuple[str, ...], env: dict[str, str]
    ) -> tuple[tuple[str, ...], str | None, dict[str, str]]:
        """What to run instead, under the sandbox."""
        # Loaded at the first confined command: many servers never confine anything.
        from treadle.execution.sandbox.confinement import confine
        from treadle.execution.sandbox.policy import policy_from_wire

        arg0 = self.params.arg0
        policy = policy_from_wire(sandbox)
        if policy is None:
            return argv, arg0, env
        cwd, tty = os.fspath(self.params.cwd), self.params.tty
        # In a thread: the first time it tries out what the machine can do.
        confining = asyncio.ensure_future(
            asyncio.to_thread(confine, policy, argv=argv, arg0=arg0, cwd=cwd, env=env, tty=tty)
        )
        try:
            confined = await asyncio.shield(confining)
        except asyncio.CancelledError:
            confining.add_done_callback(_release_late)
            raise
        self._unconfine = confined.release
        self.sandbox_type = confined.sandbox_type
        self._leaves_descendants = confined.leaves_descendants
        return confined.argv, confined.arg0, dict(confined.env)

    def _open_pipes(self, pipe_stdin: bool) -> list[int]:
        opened: list[int] = []
        try:
            if pipe_stdin:
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
        if pipe_stdin:
            os.set_blocking(our_in, False)
            self._stdin = Stdin(our_in, owns_fd=True)
        self._streams = {our_out: OutputStream.STDOUT, our_err: OutputStream.STDERR}
        for fd in self._streams:
            os.set_blocking(fd, False)
        return [child_in, child_out, child_err]

    def _open_terminal(self) -> tuple[list[int], bytes]:
        try:
            ours, theirs = os.openpty()
        except OSError as error:
            raise _os_error(error) from None
        self._terminal = ours
        self._set_size(*self.params.size)
        os.set_blocking(ours, False)
        self._streams = {ours: OutputStream.PTY}
        self._stdin = Stdin(ours, owns_fd=False)
        # The child opens the terminal by name; the descriptor keeps it from hanging up before that.
        return [theirs], os.ttyname(theirs).encode()

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
        self._end_stream(fd)
        return 0

    def _end_stream(self, fd: int) -> None:
        if self._reading:
            self._loop.remove_reader(fd)
        del self._streams[fd]
        if fd == self._terminal:
            self._terminal = -1
            if self._stdin is not None:
                self._stdin.end()
        os.close(fd)
        self._close_if_done()

    def _on_exit(self, code: int | None) -> None:
        self._unconfine()
        if self._stdin is not None and self._terminal < 0:
            self._stdin.end()
        if code is None:  # the helper that ran it was killed, and with it the process; nobody knows its code
            code = -1
        # Whatever was written before the exit is in the pipes now, and is numbered before it.
        for fd in tuple(self._streams):
            self._drain(fd)
        if self._stdin is not None:
            self._stdin.end()
        self._add_exit(code, self.sandbox_type != "none" and self._looks_denied(code))
        self._end_descendants()
        if self._reading and self._terminal >= 0:
            self._loop.add_reader(self._terminal, self._readable, self._terminal)
        self._close_if_done()

    def _end_descendants(self) -> None:
        """A confined command ends as a whole: where no pid namespace does it, what it left behind is killed."""
        if self._leaves_descendants and self.exited and self._child is not None:
            self._child.end(0.0)

    def _drain(self, fd: int) -> None:
        if fd == self._terminal:
            left = MAX_DRAIN
        else:
            left = int.from_bytes(fcntl.ioctl(fd, termios.FIONREAD, b"\0\0\0\0"), "little")
        while left > 0:
            taken = self._take(fd, min(left, READ_SIZE))
            if not taken:
                return
            left -= taken

    def _looks_denied(self, code: int) -> bool:
        from treadle.execution.sandbox.confinement import looks_denied  # has been loaded to confine it

        chunks = [item.event.chunk for item in self.log.retained() if isinstance(item.event, Output)]
        return looks_denied(code, b"".join(chunks)[-DENIED_TAIL:])

    def _close_if_done(self) -> None:
        if not self._streams and self._ending is not None and not self.log.closed:
            self._add_close()
            self._child = None
            self._on_closed(self)

    def _release(self) -> None:
        self._unconfine()
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
        one_of("name", name, SIGNALS)
        if self._child is not None and not self.exited:
            self._child.signal(SIGNALS[name])

    async def terminate(self, grace_s: float = TERMINATE_GRACE_S) -> bool:
        if self.log.closed or self._child is None:
            return False
        running = not self.exited
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
        except OSError:  # nothing now, or nobody has it open: the next read will tell
            break
        if not piece:
            break
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)


def _nothing() -> None:
    """Nothing to release."""


def _release_late(confining: asyncio.Future[Confined]) -> None:
    """Nobody waits for the answer any more, but the thread that found it has gone on."""
    if not confining.cancelled() and confining.exception() is None:
        confining.result().release()


def _encoded(argv: Sequence[str], arg0: str | None, cwd: str, env: dict[str, str]) -> Command:
    try:
        return Command(
            argv=[os.fsencode(word) for word in argv],
            arg0=None if arg0 is None else os.fsencode(arg0),
            cwd=os.fsencode(cwd),
            env={os.fsencode(name): os.fsencode(value) for name, value in env.items()},
        )
    except UnicodeEncodeError as error:
        raise ExecError(f"argv, cwd or env has a character that cannot be encoded: {error}", INTERNAL_ERROR) from None


def _check(argv: Sequence[str], arg0: str | None, cwd: str, env: dict[str, str]) -> None:
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


def _os_error(error: OSError) -> ExecError:
    return ExecError(f"{error.strerror} (os error {error.errno})", INTERNAL_ERROR)
