"""The owner's side of the warden: asyncio, no threads."""

from __future__ import annotations

import array
import asyncio
import contextlib
import marshal
import os
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from treadle.errors import ExecError, TreadleError
from treadle.execution.warden import warden_program

_FOLDER = os.path.dirname(os.path.abspath(__file__))
_BOOT = "import sys; sys.path.insert(0, sys.argv.pop(1)); import warden_program; warden_program.main()"

# What the helper may take for an answer beyond the time that ending a family may take.
PATIENCE_S = 10.0

# A tag is [30 random bits of the warden][11 bits of the group][22 bits of the process]: 63 bits, so that it is never
# taken for "unlimited". Two wardens with the same number would end each other's commands, hence most of the bits.
_RANDOM_BITS = 30
_GROUP_BITS = 11
_PROCESS_BITS = 22


class SpawnRefused(TreadleError):
    """The operating system refused: `errno`, and whether the `cwd` or the `program` was the reason."""

    def __init__(self, errno: int, what: str) -> None:
        super().__init__(os.strerror(errno))
        self.errno = errno
        self.what = what


class WardenLost(TreadleError):
    """The warden died; what it had started has been killed."""


class Command(NamedTuple):
    """What to execute, as the operating system takes it."""

    argv: list[bytes]
    arg0: bytes | None
    cwd: bytes
    env: dict[bytes, bytes]


class Child:
    """A started command, as the warden's owner sees it."""

    __slots__ = ("_warden", "number", "on_exit", "pid", "tag")

    def __init__(self, warden: Warden, number: int, tag: int, on_exit: Callable[[int | None], None]) -> None:
        self._warden = warden
        self.number: int = number
        self.tag: int = tag
        self.pid: int = 0
        self.on_exit: Callable[[int | None], None] = on_exit

    def signal(self, number: signal.Signals) -> None:
        """To the process group, while the leader lives."""
        self._warden._send(("signal", self.number, int(number)))

    def end(self, grace_s: float) -> None:
        """TERM now, KILL after `grace_s`, for the command and all its descendants."""
        self._warden._send(("end", 0, self.tag, self.tag, float(grace_s)))


class Warden:
    """One warden process. Started at the first use; groups tell whose commands are whose."""

    def __init__(self) -> None:
        self._random = _random_number()
        self._process: subprocess.Popen[bytes] | None = None
        self._sock: socket.socket | None = None
        self._buffer = bytearray()
        self._outgoing: deque[tuple[bytes, Sequence[int]]] = deque()
        self._number = 0
        self._last_group = 0
        self._groups: set[int] = set()
        self._spawning: dict[int, tuple[asyncio.Future[int], Child]] = {}
        self._children: dict[int, Child] = {}
        self._endings: dict[int, asyncio.Future[None]] = {}

    def start(self) -> None:
        """Make the process now rather than at the first command."""
        if self._sock is not None:
            return
        if not sys.platform.startswith("linux"):
            raise ExecError(
                "commands can be run on Linux only: connect to an exec-server on a Linux machine with "
                "Environment.connect('ws://HOST:PORT')"
            )
        if not sys.executable or getattr(sys, "frozen", False):
            # A program frozen into one file is its own "Python": it would start itself.
            raise ExecError("commands need a Python interpreter to run their helper, and this program has none")
        ours, theirs = socket.socketpair()
        with theirs:
            first, last = self._range()
            command = [sys.executable, "-I", "-S", "-c", _BOOT, _FOLDER, str(theirs.fileno()), str(first), str(last)]
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
        """Nothing of the group runs any more."""
        self._groups.discard(group)

    async def spawn(
        self,
        command: Command,
        *,
        group: int,
        fds: Sequence[int],
        terminal: bytes | None,
        on_exit: Callable[[int | None], None],
    ) -> Child:
        """Start a command. `fds` are its stdin, stdout and stderr, or keep its terminal open until it has opened it by
        name; they belong to the warden from here on.

        `on_exit` is called once with the exit code, or with None when the warden is lost.
        """
        try:
            self.start()
        except BaseException:
            _close_all(fds)
            raise
        self._number += 1
        number = self._number
        first, _ = self._range(group)
        child = Child(self, number, first + number % (1 << _PROCESS_BITS), on_exit)
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._spawning[number] = (answer, child)
        words = (command.argv, command.arg0, command.cwd, command.env)
        self._send(("spawn", number, child.tag, len(fds), *words, terminal), fds)
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
        """End everything, and the warden."""
        if self._sock is None:
            return
        with contextlib.suppress(WardenLost):
            await self._end(*self._range(), grace_s)
        self._disconnect()
        process, self._process = self._process, None
        if process is not None:
            try:
                await asyncio.get_running_loop().run_in_executor(None, process.wait)
            except RuntimeError:  # the interpreter is about to end and gives no more threads; the warden ends now, too
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
            async with asyncio.timeout(grace_s + warden_program.KILL_PATIENCE_S + PATIENCE_S):
                await done
        except TimeoutError:
            # It hangs (somebody may have stopped it): it is killed, and its duty is done here.
            if self._process is not None:
                self._process.kill()
            self._lost()
            raise WardenLost("the helper process that runs commands did not answer and was killed") from None
        finally:
            self._endings.pop(token, None)

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
                child.on_exit(values[0])
        elif kind == "ended":
            done = self._endings.get(number)
            if done is not None and not done.done():
                done.set_result(None)
        else:
            self._answer_spawn(kind, number, *values)

    def _answer_spawn(self, kind: str, number: int, *values: object) -> None:
        answer, child = self._spawning.get(number, (None, None))
        if answer is None or child is None or answer.done():
            return
        if kind == "spawned":
            # Registered here and not by the waiting task: the exit may be in the same packet.
            self._children[number] = child
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

    def _lost(self) -> None:
        """The warden was killed: do its last duty here, then tell everyone. The next command starts a new one."""
        self._disconnect()
        process, self._process = self._process, None
        loop = asyncio.get_running_loop()
        loop.run_in_executor(None, _clean_up, process, *self._range())
        error = WardenLost("the helper process that runs commands was killed")
        for answer, _ in self._spawning.values():
            if not answer.done():
                answer.set_exception(error)
        for done in self._endings.values():
            if not done.done():
                done.set_exception(error)
        children, self._children = self._children, {}
        self._random = _random_number()
        for child in children.values():
            child.on_exit(None)


def _random_number() -> int:
    return int.from_bytes(os.urandom(4), "big") >> (32 - _RANDOM_BITS)


def _close_all(fds: Sequence[int]) -> None:
    for fd in fds:
        os.close(fd)


def _clean_up(process: subprocess.Popen[bytes] | None, first: int, last: int) -> None:
    ending = warden_program.Ending(0, first, last, 0)
    while not ending.step(warden_program.scan(), {}):
        time.sleep(warden_program.ENDING_TICK_S)
    if process is not None:
        process.wait()
