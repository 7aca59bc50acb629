"""Every way to run a process, as one parametrised `env` fixture, and how to look at what a process did."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from treadle.execution import Environment, ExecParams, Output, OutputStream, Process, ProcessEvent, Sandbox

BACKENDS = ("local", "websocket", "unix", "stdio")


class Servers:
    """One exec-server process per transport, started when first asked for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: dict[str, tuple[subprocess.Popen[bytes], str]] = {}

    def url(self, transport: str) -> str:
        if transport not in self._running:
            listen = "ws://127.0.0.1:0" if transport == "websocket" else f"unix://{self._folder}/exec.sock"
            command = [sys.executable, "-m", "treadle", "exec-server", "--listen", listen, "--exit-on-stdin-close"]
            env = {**os.environ, "TREADLE_HOME": str(self._folder / "home")}
            child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env)
            assert child.stdout is not None
            self._running[transport] = (child, child.stdout.readline().decode().strip())
        return self._running[transport][1]

    def close(self) -> None:
        for child, _ in self._running.values():
            child.terminate()
        for child, _ in self._running.values():
            assert child.wait(30) == 0
            for pipe in (child.stdin, child.stdout):
                assert pipe is not None
                pipe.close()


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    servers = Servers(tmp_path_factory.mktemp("sockets"))
    yield servers
    servers.close()


@pytest.fixture(params=BACKENDS)
async def env(request: pytest.FixtureRequest, servers: Servers) -> AsyncIterator[Environment]:
    kind: str = request.param
    if kind == "local":
        where: str | list[str] | None = None
    elif kind == "stdio":
        where = [sys.executable, "-m", "treadle", "exec-server", "--listen", "stdio://"]
    else:
        where = servers.url(kind)
    async with await Environment.connect(where) as env:
        yield env


class Starter:
    """`await start("shell script", tty=True)`, or a list of words."""

    def __init__(self, env: Environment, cwd: Path) -> None:
        self._env = env
        self._cwd = cwd
        self._count = 0

    async def __call__(
        self,
        command: str | list[str],
        *,
        name: str | None = None,
        env: dict[str, str] | None = None,
        cwd: Path | None = None,
        tty: bool = False,
        pipe_stdin: bool = False,
        arg0: str | None = None,
        sandbox: Sandbox | None = None,
    ) -> Process:
        self._count += 1
        params = ExecParams(
            process_id=name if name is not None else f"proc-{self._count}",
            argv=["/bin/sh", "-c", command] if isinstance(command, str) else command,
            cwd=self._cwd if cwd is None else cwd,
            env={"PATH": "/usr/local/bin:/usr/bin:/bin"} if env is None else env,
            tty=tty,
            pipe_stdin=pipe_stdin,
            arg0=arg0,
            sandbox=sandbox,
        )
        return await self._env.start(params)


@pytest.fixture
def start(env: Environment, tmp_path: Path) -> Starter:
    return Starter(env, tmp_path)


DEADLINE_S = 60.0


@pytest.fixture(autouse=True)
async def deadline() -> AsyncIterator[None]:
    async with asyncio.timeout(DEADLINE_S):
        yield


async def story(process: Process, after_seq: int = 0) -> list[ProcessEvent]:
    return [event async for event in process.events(after_seq)]


def output_of(events: list[ProcessEvent], stream: OutputStream | None = None) -> bytes:
    return b"".join(e.chunk for e in events if isinstance(e, Output) and stream in (None, e.stream))


async def wait_for_text(process: Process, text: bytes) -> bytes:
    """All output so far, once `text` is in it."""
    seen, after = b"", 0
    while text not in seen:
        answer = await process.read(after, wait_ms=60_000)
        assert answer.chunks or not answer.closed, f"ended without {text!r}: {seen!r}"
        seen += b"".join(chunk.chunk for chunk in answer.chunks)
        after = answer.next_seq - 1
    return seen


def alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in ("Z", "X")
    except (FileNotFoundError, ProcessLookupError):  # the latter when it ends between opening and reading
        return False


async def gone(pid: int) -> None:
    while alive(pid):
        await asyncio.sleep(0.01)
