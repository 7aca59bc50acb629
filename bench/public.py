"""The public client, `treadle.execution.Environment`, as the benchmark drives it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from bench.client import CAT, STEP_SECONDS, Heard, check_exit
from bench.servers import BenchError
from treadle.execution import Environment, Evicted, ExecParams, Failed, Output, Process


class PublicClient:
    """`Environment` as a `Client`. Made by `public_session`."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._processes = 0

    async def run(self, argv: tuple[str, ...], *, tty: bool = False) -> Heard:
        process = await self._start(argv, tty=tty)
        heard = Heard()
        async for event in process.events():
            if isinstance(event, Output):
                heard.add(event.chunk)
            elif isinstance(event, Evicted | Failed):
                raise BenchError(f"{argv}: output was lost: {event}")
        check_exit(argv, process.exit_code)
        return heard

    async def start(self, argv: tuple[str, ...]) -> None:
        await self._start(argv)

    async def start_echo(self) -> Callable[[bytes], Awaitable[None]]:
        process = await self._start(CAT, pipe_stdin=True)
        events = process.events()

        async def echo(data: bytes) -> None:
            await process.write(data)
            left = len(data)
            while left > 0:
                event = await anext(events)
                if not isinstance(event, Output):
                    raise BenchError(f"cat ended: {event}")
                left -= len(event.chunk)

        return echo

    async def _start(self, argv: tuple[str, ...], *, pipe_stdin: bool = False, tty: bool = False) -> Process:
        self._processes += 1
        process_id = f"p{self._processes}"
        return await self._environment.start(
            ExecParams(process_id=process_id, argv=argv, cwd="/", env={}, tty=tty, pipe_stdin=pipe_stdin)
        )


@asynccontextmanager
async def public_session(url: str) -> AsyncIterator[PublicClient]:
    async with asyncio.timeout(STEP_SECONDS), await Environment.connect(url, recovery_s=0) as environment:
        yield PublicClient(environment)
