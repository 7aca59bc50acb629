"""`StdioTransport`: an MCP server that is a process of an execution environment, spoken to in lines of JSON.

It owns the process: its start, the framing of what it writes, its log, and its end with all its descendants. The
execution layer sees to it that none of them outlives this program; on another machine, that none outlives its session
there. A lost connection is the business of that layer, too: what is taken up again is not noticed here.
"""

from __future__ import annotations

import asyncio
import os
import resource
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from treadle.errors import ExecError
from treadle.execution.environment import Environment
from treadle.execution.process import Process
from treadle.execution.process_values import (
    Evicted,
    ExecParams,
    Exited,
    Failed,
    Output,
    OutputStream,
    WriteStatus,
)
from treadle.mcp.mcp_messages import McpError
from treadle.mcp.mcp_session import MAX_FRAME, McpSession, McpTransport
from treadle.protocol.exec import EnvPolicy
from treadle.transport.stdio import LineFramer

# After its input has ended a server may finish what it does; then it is terminated, and then it is killed.
END_S: Final = 2.0
TERMINATE_S: Final = 1.0
# For all of its end, with what the helper that ends processes may take.
CLOSE_S: Final = 10.0
MAX_LOG_LINE: Final = 4096
PIPES: Final = 3
# What this process must still be able to open: clients, commands and the store need it more than another server.
RESERVED_FILES: Final = 64


class StdioTransport(McpTransport):
    """One process. `log_line` gets what it writes to its standard error, line by line."""

    _starting = 0  # of all, which have not opened their pipes yet

    def __init__(
        self,
        environment: Environment,
        argv: tuple[str, ...],
        *,
        cwd: str,
        env: dict[str, str],
        env_policy: EnvPolicy | None = None,
        name: str,
        log_line: Callable[[str], None],
    ) -> None:
        self._environment = environment
        self._params = ExecParams(
            process_id=f"mcp-{name[:40]}-{uuid.uuid4()}",
            argv=argv,
            cwd=cwd,
            env=env,
            env_policy=env_policy,
            pipe_stdin=True,
        )
        self._log_line = log_line
        self._process: Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._framer = LineFramer(max_line=MAX_FRAME)
        self._errors = LineFramer(max_line=MAX_LOG_LINE)

    async def open(self, session: McpSession) -> None:
        # A child needs descriptors of ours, and this process may be able to open only a few more.
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        used = len(os.listdir("/proc/self/fd")) + PIPES * StdioTransport._starting
        if limit != resource.RLIM_INFINITY and used + PIPES + RESERVED_FILES > limit:
            advice = "raise the limit (ulimit -n), or have threads share their servers (share = true)"
            raise McpError("start", f"{used} files are open, and this process may have {limit}: {advice}")
        StdioTransport._starting += 1
        try:
            self._process = await self._environment.start(self._params)
        except ExecError as error:
            raise McpError("start", error.message) from None
        except OSError as error:
            raise McpError("start", error.strerror or "it cannot be started") from None
        finally:
            StdioTransport._starting -= 1
        self._reading = asyncio.get_running_loop().create_task(self._read(self._process, session))

    async def send(self, frame: bytes, request_id: int | None = None) -> None:
        assert self._process is not None
        try:
            written = await self._process.write(frame + b"\n")
        except ExecError:
            return  # it has just ended: `transport_closed` tells why
        if written.status is not WriteStatus.ACCEPTED and not self._process.exited:
            raise McpError("closed", "the server has closed its standard input")

    async def close(self) -> None:
        process, reading = self._process, self._reading
        if process is None or reading is None:
            return
        try:
            async with asyncio.timeout(CLOSE_S):
                if not process.exited:
                    with suppress(ExecError):  # an executor of Codex cannot do that
                        await process.close_stdin()
                        await asyncio.wait([reading], timeout=END_S)
                await process.terminate(TERMINATE_S)
                await process.wait()
        except (TimeoutError, ExecError) as error:
            self._log_line(f"it may still run: {error or 'it did not end in time'}")
        finally:
            reading.cancel()
        await asyncio.wait([reading])

    async def _read(self, process: Process, session: McpSession) -> None:
        reason = "the server was lost"
        try:
            async for event in process.events():
                if isinstance(event, Output):
                    process.log.discard(event.seq)  # a megabyte for each server that nobody will look at again
                match event:
                    case Output(stream=OutputStream.STDERR):
                        for line in self._errors.receive(event.chunk):
                            self._log_line(line.decode("utf-8", "replace"))
                        if self._errors.ended:  # a line without an end
                            self._errors = LineFramer(max_line=MAX_LOG_LINE)
                    case Output():
                        for frame in self._framer.receive(event.chunk):
                            session.frame_received(frame)
                        if self._framer.ended:
                            reason = f"{self._framer.end_reason}; the server was stopped"
                            await process.terminate(TERMINATE_S)
                            return
                        # One that never stops writing has its turn, and then all others have theirs.
                        await asyncio.sleep(0)
                    case Exited():
                        reason = f"the server ended (exit code {event.exit_code})"
                        await process.terminate(TERMINATE_S)  # what it has started
                        return
                    case Failed():
                        reason = f"the server was lost: {event.message}"
                    case Evicted():
                        reason = "output of the server was lost"
                        await process.terminate(TERMINATE_S)
                        return
        finally:
            session.transport_closed(reason)
