"""Starting, signalling and reaping commands in a helper process: the owner's side of it, on asyncio, without threads.

`supervisor_program` is the other side; it says why there is one, and has the messages between them.

    spawn ─▶ _spawning ──"spawned"──▶ _children ──"exited"──▶ on_exit(code)
                 └──"refused"──▶ SpawnRefused
    end_group, close ─▶ _endings ──"ended"──▶ the caller goes on
    the helper dies ─▶ _lost: what it had started is killed from here, then on_exit(None) for every child; the next
                       command starts a new helper, with a new random number, so that old tags mean nothing to it

The order in `_lost` matters: the killing begins before anybody hears of the loss, so that nobody takes a command for
ended that still runs for good.
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import marshal
import os
import signal
import socket
import subprocess
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from treadle.errors import ExecError, TreadleError
from treadle.execution import supervisor_program
from treadle.own_python import isolated_python

if TYPE_CHECKING:
    from treadle.execution.process_limits import ProcessLimits

_FOLDER = os.path.dirname(os.path.abspath(__file__))
_BOOT = "import sys; sys.path.append(sys.argv.pop(1)); import supervisor_program; supervisor_program.main()"

# What the helper may take for an answer beyond the time that ending a family may take.
PATIENCE_S = 10.0

# A tag is [30 random bits of the supervisor][11 bits of the group][22 bits of the process]: 63 bits, so it is never
# taken for "unlimited". Two supervisors with the same number would end each other's commands, hence most of the bits.
_RANDOM_BITS = 30
_GROUP_BITS = 11
_PROCESS_BITS = 22


class SpawnRefused(TreadleError):
    """The operating system refused: `errno`, and whether the `cwd`, the `program` or the `limits` were the reason."""

    def __init__(self, errno: int, what: str) -> None:
        super().__init__(os.strerror(errno))
        self.errno = errno
        self.what = what


class SupervisorLost(TreadleError):
    """The supervisor died; what it had started has been killed."""


class SpawnCommand(NamedTuple):
    """A command as the operating system takes it."""

    argv: list[bytes]
    arg0: bytes | None
    cwd: bytes
    env: dict[bytes, bytes]


class SpawnedChild:
    """A started command, as the supervisor's owner sees it."""

    __slots__ = ("_on_exit", "_supervisor", "number", "pid", "tag")

    def __init__(self, supervisor: Supervisor, number: int, tag: int, on_exit: Callable[[int | None], None]) -> None:
        self._supervisor = supervisor
        self.number: int = number
        self.tag: int = tag
        self.pid: int = 0
        self._on_exit: Callable[[int | None], None] | None = on_exit

    def exited(self, code: int | None) -> None:
        """Report the exit, once. Whoever is told of it may keep this, so that it is not kept in return: what a process
        has written would be freed by the garbage collector only."""
        on_exit, self._on_exit = self._on_exit, None
        if on_exit is not None:
            on_exit(code)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process group, while the leader lives."""
        self._supervisor._send(("signal", self.number, int(number)))

    def end(self, grace_s: float, then: Callable[[], None] | None = None) -> None:
        """TERM now, KILL after `grace_s`, for the command and its descendants. `then` is called when all are gone."""
        self._supervisor._end_child(self.tag, grace_s, then)


class Supervisor:
    """One helper process, started at the first use. Each owner of commands has a group in it."""

    def __init__(self) -> None:
        self._random = _random_number()
        self._process: subprocess.Popen[bytes] | None = None
        self._sock: socket.socket | None = None
        self._buffer = bytearray()
        self._outgoing: deque[tuple[bytes, Sequence[int]]] = deque()
        self._number = 0
        self._last_group = 0
        self._groups: set[int] = set()
        self._spawning: dict[int, tuple[asyncio.Future[int], SpawnedChild]] = {}
        self._children: dict[int, SpawnedChild] = {}
        self._endings: dict[int, asyncio.Future[None]] = {}
        self._after: dict[int, Callable[[], None]] = {}

    def start(self) -> None:
        """Make the process now rather than at the first command."""
        if self._sock is not None:
            return
        python = isolated_python("-S", "-c", _BOOT, _FOLDER)
        ours, theirs = socket.socketpair()
        with theirs:
            command = [*python, str(theirs.fileno()), *map(str, self._range())]
            try:
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,
                    cwd="/",
                )
            except OSError as error:
                ours.close()
                raise ExecError(f"the helper process that runs commands cannot be started: {error}") from None
        ours.setblocking(False)
        self._sock = ours
        asyncio.get_running_loop().add_reader(ours.fileno(), self._readable)

    def new_group(self) -> int:
        """A number for `spawn(group=…)` and `end_group`; `release_group` makes it free again."""
        if len(self._groups) >= 1 << _GROUP_BITS:
            raise ExecError(f"{1 << _GROUP_BITS} owners share this helper process: close some first")
        while True:
            self._last_group = (self._last_group + 1) % (1 << _GROUP_BITS)
            if self._last_group not in self._groups:
                self._groups.add(self._last_group)
                return self._last_group

    def release_group(self, group: int) -> None:
        """Make the group's number free: nothing of it runs any more."""
        self._groups.discard(group)

    async def spawn(
        self,
        command: SpawnCommand,
        *,
        group: int,
        fds: Sequence[int],
        terminal: bytes | None,
        on_exit: Callable[[int | None], None],
        limits: ProcessLimits | None = None,
    ) -> SpawnedChild:
        """Start a command. `fds` are its stdin, stdout and stderr, or the one that keeps its terminal open until it has
        opened it by name; one more is its descriptor 3. They belong to the supervisor from here on.

        `on_exit` is called once with the exit code, or with None when the supervisor is lost.
        """
        try:
            self.start()
        except BaseException:
            _close_all(fds)
            raise
        self._number += 1
        number = self._number
        first, _ = self._range(group)
        child = SpawnedChild(self, number, first + number % (1 << _PROCESS_BITS), on_exit)
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._spawning[number] = (answer, child)
        words = (command.argv, command.arg0, command.cwd, command.env)
        held = None
        if limits is not None:
            held = (limits.rlimits(), None if limits.cgroup is None else os.fsencode(limits.cgroup))
        self._send(("spawn", number, child.tag, len(fds), *words, terminal, held), fds)
        try:
            child.pid = await answer
        except asyncio.CancelledError:
            # It may have started already, or may yet: whatever carries the tag goes.
            self._send(("end", 0, child.tag, child.tag, 0.0))
            raise
        finally:
            self._spawning.pop(number, None)
        return child

    async def end_group(self, group: int, grace_s: float) -> None:
        """TERM, then KILL, for everything that the group ever started; returns when it is gone."""
        await self._end(*self._range(group), grace_s)

    async def close(self, grace_s: float = 0.0) -> None:
        """End everything, and the supervisor."""
        if self._sock is None:
            return
        with contextlib.suppress(SupervisorLost):
            await self._end(*self._range(), grace_s)
        self._disconnect()
        process, self._process = self._process, None
        if process is not None:
            try:
                await asyncio.get_running_loop().run_in_executor(None, process.wait)
            except RuntimeError:  # the interpreter is about to end and gives no more threads; the helper ends now, too
                process.wait()

    # --- inside ---

    def _range(self, group: int | None = None) -> tuple[int, int]:
        first = self._random << (_GROUP_BITS + _PROCESS_BITS)
        if group is None:
            return first + 1, first + (1 << (_GROUP_BITS + _PROCESS_BITS)) - 1
        first += group << _PROCESS_BITS
        return first, first + (1 << _PROCESS_BITS) - 1

    async def _end(self, first: int, last: int, grace_s: float) -> None:
        if self._sock is None:
            return
        self._number += 1
        token = self._number
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._endings[token] = done
        self._send(("end", token, first, last, float(grace_s)))
        try:
            async with asyncio.timeout(grace_s + supervisor_program.KILL_PATIENCE_S + PATIENCE_S):
                await done
        except TimeoutError:
            # It hangs (somebody may have stopped it): it is killed, and its duty is done here.
            if self._process is not None:
                self._process.kill()
            self._lost()
            raise SupervisorLost("the helper process that runs commands did not answer and was killed") from None
        finally:
            self._endings.pop(token, None)

    def _end_child(self, tag: int, grace_s: float, then: Callable[[], None] | None) -> None:
        if then is not None and self._sock is None:
            then()
            return
        token = 0
        if then is not None:
            self._number += 1
            token = self._number
            self._after[token] = then
        self._send(("end", token, tag, tag, float(grace_s)))

    def _send(self, message: tuple[object, ...], fds: Sequence[int] = ()) -> None:
        if self._sock is None:
            _close_all(fds)
            return
        payload = marshal.dumps(message)  # type: ignore[arg-type]  # tuples of str, int, float, bytes and containers
        self._outgoing.append((len(payload).to_bytes(4, "little") + payload, fds))
        if len(self._outgoing) == 1:
            self._flush()

    def _flush(self) -> None:
        assert self._sock is not None
        loop = asyncio.get_running_loop()
        while self._outgoing:
            data, fds = self._outgoing.popleft()
            try:
                rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
                sent = self._sock.sendmsg([data], rights)
            except BlockingIOError:
                self._outgoing.appendleft((data, fds))
                loop.add_writer(self._sock.fileno(), self._flush)
                return
            except OSError:
                self._outgoing.appendleft((data, fds))
                self._lost()
                return
            _close_all(fds)
            if sent < len(data):
                self._outgoing.appendleft((data[sent:], ()))
        loop.remove_writer(self._sock.fileno())

    def _readable(self) -> None:
        assert self._sock is not None
        try:
            data = self._sock.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._lost()
            return
        self._buffer += data
        while len(self._buffer) >= 4:
            end = 4 + int.from_bytes(self._buffer[:4], "little")
            if len(self._buffer) < end:
                return
            message = marshal.loads(bytes(self._buffer[4:end]))
            del self._buffer[:end]
            self._handle(*message)

    def _handle(self, kind: str, number: int, *values: object) -> None:
        if kind == "exited":
            child = self._children.pop(number, None)
            if child is not None:
                assert isinstance(values[0], int)
                child.exited(values[0])
            return
        if kind == "ended":
            if number in self._after:
                self._after.pop(number)()
            done = self._endings.get(number)
            if done is not None and not done.done():
                done.set_result(None)
            return
        answer, spawned = self._spawning.get(number, (None, None))
        if answer is None or spawned is None or answer.done():
            return
        if kind == "spawned":
            # Registered here and not by the waiting task: the exit may be in the same packet.
            self._children[number] = spawned
            assert isinstance(values[0], int)
            answer.set_result(values[0])
        else:
            errno, what = values
            assert isinstance(errno, int)
            answer.set_exception(SpawnRefused(errno, str(what)))

    def _disconnect(self) -> None:
        sock, self._sock = self._sock, None
        if sock is not None:
            loop = asyncio.get_running_loop()
            loop.remove_reader(sock.fileno())
            loop.remove_writer(sock.fileno())
            sock.close()
        for _, fds in self._outgoing:
            _close_all(fds)
        self._outgoing.clear()
        self._buffer.clear()
        while self._after:  # all has been killed, or is about to be
            self._after.popitem()[1]()

    def _lost(self) -> None:
        """Do the last duty of a helper that was killed, then report the loss to everyone who waits."""
        self._disconnect()
        process, self._process = self._process, None
        asyncio.get_running_loop().run_in_executor(None, _clean_up, process, *self._range())
        error = SupervisorLost("the helper process that runs commands was killed")
        for answer, _ in self._spawning.values():
            if not answer.done():
                answer.set_exception(error)
        for done in self._endings.values():
            if not done.done():
                done.set_exception(error)
        children, self._children = self._children, {}
        self._random = _random_number()
        for child in children.values():
            child.exited(None)


def _random_number() -> int:
    return int.from_bytes(os.urandom(4), "big") >> (32 - _RANDOM_BITS)


def _close_all(fds: Sequence[int]) -> None:
    for fd in fds:
        os.close(fd)


def _clean_up(process: subprocess.Popen[bytes] | None, first: int, last: int) -> None:
    """Kill everything with a tag in the range, and reap the helper. Blocking."""
    ending = supervisor_program.FamilyEnding(0, first, last, 0)
    while not ending.step(supervisor_program.scan(), {}):
        time.sleep(supervisor_program.ENDING_TICK_S)
    if process is not None:
        process.wait()
