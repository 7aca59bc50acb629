"""A shell of another machine in this terminal: bytes both ways, its size, and its end."""

from __future__ import annotations

import asyncio
import os
import signal
import termios
import tty
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from treadle.cli.in_process import open_client, server_of
from treadle.execution.process import Process
from treadle.execution.process_values import ExecParams, Output
from treadle.execution.uris import path_from_uri
from treadle.protocol.exec import INHERIT_ALL

BLOCK: Final = 1 << 12


async def run_shell(name: str, directory: str | None, overrides: tuple[str, ...]) -> int:
    """Run the shell of an environment until it ends; gives its exit code. Raises `ExecError`."""
    async with open_client("treadle_environments", overrides) as client:
        environment = await server_of(client).environment(name)
        info = environment.info
        params = ExecParams(
            process_id=f"shell-{uuid.uuid4()}",
            argv=[info.shell.path, "-l"],
            cwd=directory or (path_from_uri(info.cwd) if info.cwd is not None else "/"),
            env={"TERM": os.environ.get("TERM", "dumb")},
            env_policy=INHERIT_ALL,
            tty=True,
        )
        process = await environment.start(params)
        with _raw_terminal():
            await _show(process, resizes=info.capabilities.process_resize)
        if process.failure is not None:
            raise SystemExit(f"\ntreadle environments shell: {process.failure}")
        return process.exit_code or 0


@contextmanager
def _raw_terminal() -> Iterator[None]:
    """What is typed goes to the shell there as it is: Ctrl-C, too."""
    before = termios.tcgetattr(0)
    try:
        tty.setraw(0)
        yield
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)


async def _show(process: Process, *, resizes: bool) -> None:
    loop = asyncio.get_running_loop()
    typed: asyncio.Queue[bytes | None] = asyncio.Queue()
    resized = asyncio.Event()
    resized.set()

    def read() -> None:
        try:
            data = os.read(0, BLOCK)
        except OSError:  # the terminal is gone
            data = b""
        if not data or typed.qsize() > BLOCK:  # somebody types faster than it can ever be read
            loop.remove_reader(0)
        typed.put_nowait(data or None)

    async def write() -> None:
        while (data := await typed.get()) is not None:
            await process.write(data)
        await process.terminate()

    async def resize() -> None:
        while True:
            await resized.wait()
            resized.clear()
            columns, rows = os.get_terminal_size(1)
            if rows and columns:  # else the terminal does not know it either
                await process.resize(rows, columns)

    async def show() -> None:
        async for event in process.events():
            if isinstance(event, Output):
                left = memoryview(event.chunk)
                while left:
                    left = left[os.write(1, left) :]

    loop.add_reader(0, read)
    loop.add_signal_handler(signal.SIGWINCH, resized.set)
    tasks = [loop.create_task(write()), *([loop.create_task(resize())] if resizes else [])]
    shown = loop.create_task(show())
    try:
        # A write or a resize that fails says the same as the end of the events, or less.
        await shown
    finally:
        loop.remove_reader(0)
        loop.remove_signal_handler(signal.SIGWINCH)
        for task in (*tasks, shown):
            task.cancel()
        await asyncio.gather(*tasks, shown, return_exceptions=True)
