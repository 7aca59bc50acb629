"""The exec-servers under test as child processes: how each is started, found and ended.

Whatever happens in between, nothing that a server started outlives its `running` block.
"""

from __future__ import annotations

import asyncio
import os
import select
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from bench import family
from treadle.errors import TreadleError

START_SECONDS: Final = 60.0
STOP_SECONDS: Final = 20.0
_POLL_SECONDS: Final = 0.01
_SLOWING: Final = ("PYTHON", "RUST_", "MALLOC_")
_PYTHON_KEPT: Final = ("PYTHONHOME", "PYTHONPATH")
_ADDRESS: Final = ("--listen", "ws://127.0.0.1:0")


class BenchError(Exception):
    """A measurement could not be made; the text says why."""


@dataclass(frozen=True, slots=True)
class Server:
    """A program that speaks the exec-server protocol and prints its URL first."""

    name: str
    version: str
    command: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Running:
    server: Server
    url: str
    pid: int
    launched_at: float
    """`time.perf_counter()` just before the program was started."""


def ours() -> Server:
    from treadle import __version__

    return Server("ours", f"treadle {__version__}", (sys.executable, "-m", "treadle", "exec-server", *_ADDRESS))


def real() -> Server:
    """The real one, installed first if need be; raises what `scripts.install_peers.ensure` raises."""
    from scripts.install_peers import PEERS, ensure

    program = ensure(PEERS["codex"])
    shown = subprocess.run([str(program), "--version"], capture_output=True, text=True, check=True, timeout=60)
    return Server("real", shown.stdout.strip(), (str(program), "exec-server", *_ADDRESS))


@asynccontextmanager
async def running(server: Server) -> AsyncIterator[Running]:
    """Start a server with an empty home of its own; end it and all its descendants."""
    with TemporaryDirectory(prefix="treadle-bench-") as home:
        log = Path(home) / "stderr"
        with log.open("wb") as errors:
            launched_at = time.perf_counter()
            child = _launch(server.command, home, errors.fileno())
        try:
            yield Running(server, _announced_url(child), child.pid, launched_at)
        except (BenchError, TreadleError, TimeoutError, ExceptionGroup) as error:
            said = log.read_text(errors="replace")[-2000:] or "nothing"
            state = "still runs" if child.poll() is None else f"ended with {child.returncode}"
            raise BenchError(
                f"{server.version} could not be measured: {error!r}; it {state}, and said: {said}"
            ) from error
        finally:
            await _stop(child)


def _launch(command: Sequence[str], home: str, errors: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=errors,
        cwd=home,
        env=_environment(home),
        bufsize=0,
        start_new_session=True,
    )


def _environment(home: str) -> dict[str, str]:
    """Ours without the settings that make a program slower than users have it, such as `PYTHONDONTWRITEBYTECODE`."""
    kept = {name: value for name, value in os.environ.items() if name in _PYTHON_KEPT or not name.startswith(_SLOWING)}
    return kept | dict.fromkeys(("HOME", "CODEX_HOME", "TREADLE_HOME"), home)


def _announced_url(child: subprocess.Popen[bytes]) -> str:
    """The first line of the output. Read without the event loop: the start is being measured and nothing else runs."""
    assert child.stdout is not None
    line = b""
    deadline = time.monotonic() + START_SECONDS
    while b"\n" not in line:
        readable, _, _ = select.select([child.stdout], [], [], max(0.0, deadline - time.monotonic()))
        data = child.stdout.read(4096) if readable else b""
        if not data:
            raise BenchError(f"{child.args!r} announced no URL: it ended, or took over {START_SECONDS:g} s")
        line += data
    return line.decode().partition("\n")[0].strip()  # what follows for people may come in the same read


async def _stop(child: subprocess.Popen[bytes]) -> None:
    everyone = family.members(child.pid)
    child.terminate()
    try:
        await _wait_gone(child, everyone)
    finally:
        # Reached with survivors only when the wait gave up or was cancelled.
        family.kill(everyone)
        child.kill()
        child.wait()
        assert child.stdout is not None
        child.stdout.close()


async def _wait_gone(child: subprocess.Popen[bytes], everyone: list[family.Member]) -> None:
    deadline = time.monotonic() + STOP_SECONDS
    while child.poll() is None or family.alive(everyone):
        if time.monotonic() > deadline:
            print(f"bench: {child.args!r} left processes behind; they are killed", file=sys.stderr)
            return
        await asyncio.sleep(_POLL_SECONDS)
