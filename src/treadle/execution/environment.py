"""`Environment`: where commands run. This machine or another one, the same interface and behaviour."""

from __future__ import annotations

import asyncio
import logging
import os
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from msgspec import structs

from treadle.arguments import limit, path, seconds, text, variables, words, wrong_type
from treadle.errors import INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, ExecError, ExecTimeout, needs_linux
from treadle.execution.process import Process
from treadle.execution.process_values import (
    CompletedRun,
    Data,
    Evicted,
    ExecParams,
    Output,
    OutputStream,
    ProcessInfo,
    as_bytes,
)
from treadle.execution.uris import path_from_uri
from treadle.protocol.exec import EnvironmentInfo, EnvPolicy, Sandbox
from treadle.transport import Address, AddressError, Channel
from treadle.transport.channel import LoopOwner, needs_loop

logger: logging.Logger = logging.getLogger(__name__)

if TYPE_CHECKING:
    from treadle.execution.files.files_interface import Files

RECOVERY_S = 25.0
# Generous: a large folder may have to be copied.
REQUEST_S = 300.0
# `run` returns at most this much output; more is read and dropped, and `truncated` says so.
MAX_RUN_OUTPUT = 64 << 20
# How long `run` may take to end a command whose time is up.
END_DEADLINE_S = 5.0

_INHERIT = EnvPolicy(inherit="all", ignore_default_excludes=True, exclude=(), set={}, include_only=())


class Backend(Protocol):
    """The side of an environment that runs things: this machine or an exec-server."""

    async def start(self, params: ExecParams) -> Process: ...

    async def processes(self) -> list[ProcessInfo]: ...


class ServerConnection(Protocol):
    """What carries an environment on another machine. `failure` says why it was lost for good."""

    @property
    def failure(self) -> str | None: ...

    @property
    def is_connected(self) -> bool: ...

    @property
    def session_id(self) -> str | None: ...

    async def check(self) -> None:
        """Ask whether somebody is there. Raises `ExecError`."""

    async def take_up(self, process_id: str) -> Process:
        """A process that runs in the session already. Raises `ExecError`."""


class Environment:
    """Starts processes and works with files. Made by `connect`; closing it ends what it started.

    Args:
        backend: What starts the processes.
        files: What works with the files; the attribute `files`.
        info: What the place says of itself; the attribute `info`.
        close: What is called, and awaited if it gives something to await, to end it.
        place: Where it is, for people.
        connection: What carries it, for another machine.
    """

    def __init__(
        self,
        backend: Backend,
        files: Files,
        info: EnvironmentInfo,
        close: Callable[[], object],
        place: str = "this machine",
        connection: ServerConnection | None = None,
    ) -> None:
        self._backend = backend
        self._close = close
        self._place = place
        self._connection = connection
        self._owner = LoopOwner("this environment")
        self.files = files
        self.info = info

    @classmethod
    async def connect(
        cls,
        url: str | Sequence[str | os.PathLike[str]] | None = None,
        *,
        through: Sequence[str | os.PathLike[str]] | None = None,
        token: str | None = None,
        ca_file: str | os.PathLike[str] | None = None,
        cert_file: str | os.PathLike[str] | None = None,
        key_file: str | os.PathLike[str] | None = None,
        recovery_s: float = RECOVERY_S,
        detach_s: float | None = None,
        request_timeout: float | None = REQUEST_S,
        on_connection: Callable[[bool], object] | None = None,
        session_id: str | None = None,
    ) -> Environment:
        """An environment on this machine (None), or on an exec-server.

        Args:
            url: `ws://HOST:PORT`, `wss://HOST`, `unix:///PATH`, or a command line that speaks the protocol on its
                standard input and output, such as `["ssh", "HOST", "treadle", "exec-server", "--listen", "stdio://"]`.
            through: In place of `url`, a command line whose standard input and output are a connection to a server that
                goes on without it, such as `["ssh", "HOST", "treadle", "exec-server", "--attach", "NAME"]`. It is run
                again when the connection is lost.
            token: What the server asks for as a bearer token; that of a server of the same user on this machine is
                found in the home.
            ca_file: A PEM file with the issuers of certificates to trust for `wss://`, in place of those of the system.
            cert_file: A PEM file with the certificate to show, where the server asks for one.
            key_file: Its key, if it is not in the same file.
            recovery_s: When the connection is lost it is taken up again for up to so many seconds (0, or a command
                line: never) without losing or doubling a byte. After that every open process fails.
            detach_s: Seconds that the server is asked to wait for this client after a loss, before it ends its
                commands; else, and with a server of Codex, 30.
            request_timeout: Seconds that an answer may take, else `ExecTimeout` is raised; None has no limit. Writing
                to a process that does not read has none.
            on_connection: Called with False when the connection is lost, and with True when it is there again.
            session_id: A session to go on in, whose program has ended; else a new one.
        """
        problem = needs_loop("an environment")
        if problem is not None:
            raise ExecError(problem)
        if token is not None:
            text("token", token)
        ca_file = None if ca_file is None else path("ca_file", ca_file)
        cert_file = None if cert_file is None else path("cert_file", cert_file)
        key_file = None if key_file is None else path("key_file", key_file)
        recovery_s = seconds("recovery_s", recovery_s)
        if detach_s is not None:
            detach_s = seconds("detach_s", detach_s)
        if request_timeout is not None:
            request_timeout = seconds("request_timeout", request_timeout)
        if through is not None:
            if url is not None:
                raise ExecError("pass `url` or `through`, not both", INVALID_PARAMS)
            from treadle.transport.through import opener

            way = words("through", through)
            return await connect_over(
                opener(way),
                way[0] if way else "nothing",
                recovery_s=recovery_s,
                detach_s=detach_s,
                request_timeout=request_timeout,
                on_connection=on_connection,
                session_id=session_id,
            )
        if url is None:
            if (problem := needs_linux("running commands")) is not None:
                raise ExecError(problem)
            return _local(cls)
        if isinstance(url, os.PathLike):
            raise wrong_type(
                "url", "a URL or a command line", url, ": for a socket pass 'unix:///PATH', for a program [PATH]"
            )
        if not isinstance(url, str):
            command = words("url", url)

            async def start() -> Channel:
                from treadle.transport.stdio import spawn

                return await spawn(command)

            # Never taken up again: a new program would not know the old one's session.
            place = command[0] if command else "nothing"
            return await connect_over(
                start, place, recovery_s=0.0, request_timeout=request_timeout, on_connection=on_connection
            )
        try:
            address = Address.parse(url)
        except AddressError as error:
            raise ExecError(str(error), INVALID_PARAMS) from None

        async def connect() -> Channel:
            from treadle.transport.sockets import connect

            return await connect(address, token=token, ca_file=ca_file, cert_file=cert_file, key_file=key_file)

        return await connect_over(
            connect,
            str(address),
            recovery_s=recovery_s,
            detach_s=detach_s,
            request_timeout=request_timeout,
            on_connection=on_connection,
            session_id=session_id,
        )

    def __repr__(self) -> str:
        return f"<Environment on {self._place}>"

    async def __aenter__(self) -> Environment:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def failure(self) -> str | None:
        """Why nothing can be run here any more: the exec-server was lost for good. None while it can."""
        return None if self._connection is None else self._connection.failure

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection at this moment; one that was lost may come back."""
        return self._connection is None or self._connection.is_connected

    @property
    def session_id(self) -> str | None:
        """The session on an exec-server, in which another program can go on; a secret. None on this machine."""
        return None if self._connection is None else self._connection.session_id

    async def take_up(self, process_id: str) -> Process:
        """A process that an earlier program has started in this session, from the beginning of what is retained of its
        output. Raises `ExecError`.

        Args:
            process_id: What it was called.
        """
        if self._connection is None:
            raise ExecError("a process of this machine ends with the program that has started it", INVALID_REQUEST)
        return await self._connection.take_up(process_id)

    async def check(self) -> None:
        """Ask it whether it is there. Raises `ExecError`."""
        if self._connection is not None:
            await self._connection.check()

    async def close(self) -> None:
        """End all processes and their descendants, then the connection."""
        if self._owner.forked:  # then they belong to somebody else, who may be using them
            return
        self._check_loop()
        closing = self._close()
        if asyncio.iscoroutine(closing):
            await closing

    def _check_loop(self) -> None:
        problem = self._owner.problem()
        if problem is not None:
            raise ExecError(problem)

    async def start(self, params: ExecParams) -> Process:
        """Start a process. Raises `ExecError` when it cannot be; nothing runs then.

        Args:
            params: What to start, and how.
        """
        self._check_loop()
        if not isinstance(params, ExecParams):
            raise wrong_type("params", "an ExecParams", params)
        if isinstance(params.argv, str):
            raise ExecError(
                "argv is a list of words, not one string: for a shell, ['/bin/sh', '-c', '…']", INVALID_PARAMS
            )
        if not params.argv:
            raise ExecError("argv must not be empty", INVALID_PARAMS)
        text("process_id", params.process_id)
        path("cwd", params.cwd)
        variables("env", params.env)
        params = structs.replace(params, argv=words("argv", params.argv))
        if not os.path.isabs(params.cwd):
            raise ExecError(f"cwd must be an absolute path, not {os.fspath(params.cwd)!r}", INVALID_PARAMS)
        return await self._backend.start(params)

    async def processes(self) -> list[ProcessInfo]:
        """The processes of this environment, those closed a moment ago included."""
        self._check_loop()
        return await self._backend.processes()

    async def run(
        self,
        argv: Sequence[str | os.PathLike[str]],
        *,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        input: Data | None = None,
        timeout: float | None = None,
        sandbox: Sandbox | None = None,
    ) -> CompletedRun:
        """Run a command to its end and collect its output. A non-zero exit is a result, not an exception.

        Args:
            argv: The program and its arguments. For a shell: `["/bin/sh", "-c", "…"]`.
            cwd: Its working directory, as an absolute path; else the executor's own.
            env: Its whole environment; else the executor's.
            input: What it reads on its standard input, bytes or text, which is sent as UTF-8; nothing without it.
            timeout: Seconds; then the command and its descendants are told to end, and `ExecTimeout` is raised.
            sandbox: What it may do with files and the network; without it, anything.
        """
        timeout = limit(timeout)
        data = None if input is None else as_bytes(input, "input")
        if cwd is None:
            if self.info.cwd is None:
                raise ExecError("the exec-server does not tell its working directory: pass cwd", INVALID_PARAMS)
            cwd = path_from_uri(self.info.cwd)
        params = ExecParams(
            process_id=f"run-{uuid.uuid4()}",
            argv=argv,
            cwd=cwd,
            env={} if env is None else env,
            env_policy=_INHERIT if env is None else None,
            pipe_stdin=data is not None,
            sandbox=sandbox,
        )
        process = await self.start(params)
        collected = _Collected()
        try:
            async with asyncio.timeout(timeout), asyncio.TaskGroup() as group:
                if data is not None:
                    group.create_task(_feed(process, data))
                await collected.read(process)
        except TimeoutError:
            raise ExecTimeout(f"{argv[0]} did not end within {timeout:g} s", collected.output) from None
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None
        finally:
            if not process.closed:
                try:
                    # Not for ever: when the connection is being recovered this would wait for that.
                    async with asyncio.timeout(END_DEADLINE_S):
                        await process.terminate()
                except (TimeoutError, ExecError) as error:
                    logger.warning("%s may still run: %s", process.process_id, error or "no answer")
        if process.failure is not None:
            raise ExecError(process.failure)
        return collected.result(process.exit_code)


class _Collected:
    def __init__(self) -> None:
        self._chunks: list[Output] = []
        self._size = 0
        self._truncated = False

    async def read(self, process: Process) -> None:
        async for event in process.events():
            if isinstance(event, Evicted):
                self._truncated = True
            if not isinstance(event, Output):
                continue
            if self._size + len(event.chunk) > MAX_RUN_OUTPUT:
                self._truncated = True
                continue
            self._size += len(event.chunk)
            self._chunks.append(event)

    @property
    def output(self) -> bytes:
        return b"".join(chunk.chunk for chunk in self._chunks)

    def _stream(self, stream: OutputStream) -> bytes:
        return b"".join(chunk.chunk for chunk in self._chunks if chunk.stream is stream)

    def result(self, exit_code: int | None) -> CompletedRun:
        stdout, stderr = self._stream(OutputStream.STDOUT), self._stream(OutputStream.STDERR)
        return CompletedRun(-1 if exit_code is None else exit_code, self.output, stdout, stderr, self._truncated)


async def _feed(process: Process, data: bytes) -> None:
    try:
        await process.write(data)
        await process.close_stdin()
    except ExecError as error:
        # A command may end without reading all of its input, and the failed write may be reported before the exit.
        if not process.exited and error.code != INTERNAL_ERROR:
            raise


def _local(cls: type[Environment]) -> Environment:
    # Loaded when it is known where commands run: only one of the two back ends is needed.
    from treadle.execution.files.local_files import LocalFiles
    from treadle.execution.local_backend import LocalBackend
    from treadle.execution.machine import machine_info
    from treadle.execution.supervisor import Supervisor

    supervisor = Supervisor()
    supervisor.start()
    backend = LocalBackend(supervisor)

    async def close() -> None:
        await backend.close()
        await supervisor.close()

    return cls(backend, LocalFiles(), machine_info(), close)


async def connect_over(
    open_channel: Callable[[], Awaitable[Channel]],
    place: str,
    *,
    recovery_s: float = RECOVERY_S,
    detach_s: float | None = None,
    request_timeout: float | None = REQUEST_S,
    on_connection: Callable[[bool], object] | None = None,
    session_id: str | None = None,
) -> Environment:
    """An environment on an exec-server that is reached as `open_channel` says, again after a loss."""
    # See `_local`.
    from treadle.execution.files.remote_files import RemoteFiles
    from treadle.execution.remote_backend import RemoteBackend
    from treadle.own_python import pin_imports

    pin_imports()  # the server may be on this machine, and run what writes where this process looks for modules
    backend = RemoteBackend(
        open_channel,
        recovery_s=recovery_s,
        detach_s=detach_s,
        request_timeout=request_timeout,
        on_connection=on_connection,
        session_id=session_id,
    )
    await backend.open()
    assert backend.info is not None
    return Environment(backend, RemoteFiles(backend.call_method), backend.info, backend.close, place, backend)
