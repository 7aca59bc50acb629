"""`ClientCommand`: one command that a client runs outside of any thread.

It owns the command from its start to its end: the environment, the time limit, the cap on what is told of its output,
input, size, and its end when the client leaves. What a client calls it, and how it is told of it, is the business of
the methods; starting and confining it is that of `treadle.execution`.
"""

from __future__ import annotations

import asyncio
import binascii
import logging
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar, Final, Protocol

from msgspec import Struct, structs

from treadle.agent.ids import new_id
from treadle.errors import INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, ExecError, RpcError
from treadle.execution.process import EventStream, Process
from treadle.execution.process_values import ExecParams, Exited, Failed, Output, OutputStream, ProcessEvent, WriteStatus
from treadle.protocol.exec import EnvPolicy, Sandbox, without
from treadle.server.app import AppServer
from treadle.server.client_base import Client

logger: logging.Logger = logging.getLogger(__name__)

# What a request that names no limits gets; the numbers that clients of Codex know.
DEFAULT_TIMEOUT_S: Final = 10.0
DEFAULT_CAP: Final = 1 << 20
# What is held of each stream at most, also without a cap: a client that wants more has it streamed.
MAX_HELD: Final = 64 << 20
TIMED_OUT: Final = 124
# After its exit, what a child that it left behind may still write into its pipes.
DRAIN_S: Final = 2.0
END_DEADLINE_S: Final = 5.0
DEFAULT_SIZE: Final = (24, 80)
MAX_SIZE: Final = 0xFFFF


class TerminalSize(Protocol):
    @property
    def rows(self) -> int: ...
    @property
    def cols(self) -> int: ...


class Wanted(Struct, frozen=True, kw_only=True):
    """What to run, and what of it to tell. In `env`, None takes a variable away; no `cap` and no `timeout_s` are no
    limits."""

    argv: tuple[str, ...]
    cwd: str
    env: Mapping[str, str | None]
    tty: bool
    size: tuple[int, int] | None
    takes_input: bool
    streams: bool
    cap: int | None
    timeout_s: float | None

    def __repr__(self) -> str:
        return without(self, "env")


class Ended(Struct, frozen=True, kw_only=True):
    """`drained` is whether all output came before its deadline."""

    exit_code: int
    stdout: str = ""
    stderr: str = ""
    stdout_capped: bool = False
    stderr_capped: bool = False
    drained: bool = True


class ClientCommand(ABC):
    """`start`, then `follow`. The task that does so is cancelled when the client leaves."""

    noun: ClassVar[str]
    """What messages call it."""

    def __init__(self, server: AppServer, client: Client, wanted: Wanted) -> None:
        self.begun: asyncio.Event = asyncio.Event()
        self._client = client
        self._server = server
        self._wanted = wanted
        self._task = asyncio.current_task()
        self._process: Process | None = None  # when it has begun, unless it could not be started
        self._input_ended = False
        most = sys.maxsize if wanted.streams else MAX_HELD
        cap = most if wanted.cap is None else min(wanted.cap, most)
        self._room: dict[OutputStream, int | None] = {OutputStream.STDOUT: cap, OutputStream.STDERR: cap}
        """How much of a stream may still be told; None when the cap was reached, and that was told."""
        self._held = {OutputStream.STDOUT: bytearray(), OutputStream.STDERR: bytearray()}
        self._exited = False
        self._ended = False

    @abstractmethod
    async def sandbox(self, cwd: str) -> Sandbox | None: ...

    @abstractmethod
    def tell(self, stream: OutputStream, chunk: bytes, cap_reached: bool) -> None:
        """The client has output streamed."""

    @abstractmethod
    def not_active(self) -> RpcError: ...

    def cancel(self) -> None:
        """The client has left."""
        if self._task is not None:
            self._task.cancel()

    # --- its life ---

    async def start(self) -> None:
        wanted, server = self._wanted, self._server
        policy, env = self._environment(wanted.env)
        try:
            environment = await server.environment()
            self._process = await environment.start(
                ExecParams(
                    process_id=f"{self.noun}-{new_id()}",
                    argv=wanted.argv,
                    cwd=wanted.cwd,
                    env=env,
                    env_policy=policy,
                    tty=wanted.tty,
                    size=wanted.size or DEFAULT_SIZE,
                    pipe_stdin=wanted.takes_input and not wanted.tty,
                    sandbox=await self.sandbox(wanted.cwd),
                )
            )
        except ExecError as error:
            raise RpcError(INTERNAL_ERROR, f"failed to spawn {self.noun}: {error.message}") from None
        finally:
            self.begun.set()

    def _environment(self, changes: Mapping[str, str | None]) -> tuple[EnvPolicy, dict[str, str]]:
        given = self._server.config.env_policy()
        removed = tuple(name for name, value in changes.items() if value is None)
        policy = structs.replace(
            given,
            exclude=(*given.exclude, *removed),
            set={name: value for name, value in given.set.items() if name not in removed},
        )
        env = {"TERM": "xterm"} if self._wanted.tty and "TERM" not in removed else {}
        return policy, env | {name: value for name, value in changes.items() if value is not None}

    async def follow(self) -> Ended:
        """Until it has ended, with whatever it left behind."""
        process = self._process
        assert process is not None
        events = process.events()
        try:
            if self._wanted.size is not None:  # an exec-server has not heard of it yet
                await process.resize(*self._wanted.size)
            in_time = await self._read_to_exit(process, events)
            drained = await self._drain(events)
        finally:
            events.close()
            if not process.closed:
                await end_process(process)
        return Ended(
            exit_code=_exit_code(process) if in_time else TIMED_OUT,
            stdout=self._held[OutputStream.STDOUT].decode("utf-8", "replace"),
            stderr=self._held[OutputStream.STDERR].decode("utf-8", "replace"),
            stdout_capped=self._room[OutputStream.STDOUT] is None,
            stderr_capped=self._room[OutputStream.STDERR] is None,
            drained=drained,
        )

    async def _read_to_exit(self, process: Process, events: EventStream) -> bool:
        """False when the time was up, and then it has been killed."""
        try:
            async with asyncio.timeout(self._wanted.timeout_s):
                while not self._exited:
                    await self._read(events)
        except TimeoutError:
            await process.terminate(0)
            return False
        return True

    async def _drain(self, events: EventStream) -> bool:
        """What a terminal held is read before the exit is told; what comes after it is a background job's."""
        try:
            async with asyncio.timeout(DRAIN_S):
                while not (self._ended or (self._wanted.tty and self._exited)):
                    await self._read(events)
        except TimeoutError:
            return False
        return True

    async def _read(self, events: EventStream) -> None:
        """Nothing is taken before there is room for it, so nothing is lost when the time is up."""
        while self._wanted.streams and self._client.congested:
            await self._server.relief()
        event = await anext(events, None)
        if event is None:
            self._exited = self._ended = True
        else:
            self._take(event)

    def _take(self, event: ProcessEvent) -> None:
        if isinstance(event, Failed):
            raise RpcError(INTERNAL_ERROR, f"the {self.noun} was lost: {event.message}")
        if isinstance(event, Exited):
            self._exited = True
        if not isinstance(event, Output):
            return
        stream = OutputStream.STDERR if event.stream is OutputStream.STDERR else OutputStream.STDOUT
        room = self._room[stream]
        if room is None:
            return
        chunk = event.chunk[:room]
        self._room[stream] = room - len(chunk) or None
        if self._wanted.streams:
            self.tell(stream, chunk, self._room[stream] is None)
        else:
            self._held[stream] += chunk

    # --- what its client asks of it ---

    async def _started(self) -> Process:
        await self.begun.wait()
        if self._process is None:
            raise self.not_active()
        return self._process

    async def write(self, delta_base64: str | None, *, close: bool) -> None:
        data = _decoded(delta_base64 or "")
        if not self._wanted.takes_input:
            raise RpcError(INVALID_REQUEST, f"stdin streaming is not enabled for this {self.noun}")
        if self._input_ended:
            raise RpcError(INVALID_REQUEST, "stdin is already closed")
        self._input_ended = close
        process = await self._started()
        try:
            if data and (await process.write(data)).status is WriteStatus.STDIN_CLOSED:
                raise RpcError(INVALID_REQUEST, "stdin is already closed")
            if close:
                await process.close_stdin()
        except ExecError:
            raise self.not_active() from None

    async def resize(self, rows: int, cols: int) -> None:
        process = await self._started()
        try:
            await process.resize(rows, cols)
        except ExecError as error:
            raise RpcError(INVALID_REQUEST, f"failed to resize PTY: {error.message}") from None

    async def kill(self) -> None:
        """At once and without mercy, as clients expect it; its exit is told in the usual way."""
        process = await self._started()
        await process.terminate(0)


def check_size(size: TerminalSize, what: str) -> tuple[int, int]:
    """Lines and columns."""
    if min(size.rows, size.cols) <= 0:
        raise RpcError(INVALID_PARAMS, f"{what} size rows and cols must be greater than 0")
    if max(size.rows, size.cols) > MAX_SIZE:
        raise RpcError(INVALID_PARAMS, f"{what} size rows and cols must be at most {MAX_SIZE}")
    return size.rows, size.cols


def check_input(delta_base64: str | None, close: bool, method: str) -> None:
    if delta_base64 is None and not close:
        raise RpcError(INVALID_PARAMS, f"{method} requires deltaBase64 or closeStdin")
    _decoded(delta_base64 or "")


def _decoded(text: str) -> bytes:
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except ValueError as error:
        raise RpcError(INVALID_PARAMS, f"invalid deltaBase64: {error}") from None


def quoted(text: str) -> str:
    return f'"{text[:200]}"'


def _exit_code(process: Process) -> int:
    return -1 if process.exit_code is None else process.exit_code


async def end_process(process: Process) -> None:
    """Whatever it left behind goes too. Not for ever: the one who runs it may not answer."""
    try:
        async with asyncio.timeout(END_DEADLINE_S):
            await process.terminate()
    except (TimeoutError, ExecError) as error:
        logger.warning("%s may still run: %s", process.process_id, error or "no answer")
