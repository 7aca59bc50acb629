"""`HostStage`: a home, a workspace and a mock model for an `AppServerRuntime`, on our server or on the real codex.

Every test gives it the provider, the key and the address as a user would; the file of settings has the rest. What a
runtime does is read by `Turn`.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from treadle.client import CodexConfig
from treadle.host import (
    AppServerRuntime,
    Ask,
    Choice,
    Delta,
    ItemCompleted,
    Opened,
    Opening,
    RuntimeEvent,
    TurnEnded,
    UsageReported,
)
from treadle.testing import MockModel

Way: TypeAlias = Literal["child", "in process"] | Path
KEY: Final = "sk-host-0123456789abcdef"
WAIT_S: Final = 60.0
Asker: TypeAlias = Callable[[Ask], Awaitable[Choice]]

_SETTINGS: Final = {"model": "gpt-5.5", "check_for_update_on_startup": False}
_PROVIDER: Final = {"request_max_retries": 0, "stream_max_retries": 0}


async def deny(_: Ask) -> Choice:
    return "deny"


class HostStage:
    """`way` is `child` for our server as a program, `in process`, or the program of the real codex."""

    def __init__(self, folder: Path, way: Way) -> None:
        self.way = way
        self.home = folder / "home"
        self.workspace = folder / "workspace"
        self.home.mkdir()
        self.workspace.mkdir()
        self.model = MockModel()
        self.runtimes: list[AppServerRuntime] = []
        self.configure()

    def configure(self, **provider: int) -> None:
        """Other settings of the provider, before there is a server."""
        name = "treadle_openai" if isinstance(self.way, Path) else "openai"
        lines = [f"{key} = {json.dumps(value)}" for key, value in _SETTINGS.items()]
        lines += [f"[model_providers.{name}]", 'name = "mock"']
        lines += [f"{key} = {value}" for key, value in {**_PROVIDER, **provider}.items()]
        (self.home / "config.toml").write_text("\n".join([*lines, "[analytics]", "enabled = false", ""]))

    @property
    def env(self) -> dict[str, str]:
        return {"HOME": str(self.home), "CODEX_HOME": str(self.home), "TREADLE_HOME": str(self.home)}

    def config(self) -> CodexConfig | None:
        """None for the usual one: then the home is to be in the environment (the fixture does that)."""
        if self.way == "child":
            return None
        program = str(self.way) if isinstance(self.way, Path) else None
        return CodexConfig(codex_bin=program, env=self.env, cwd=str(self.workspace))

    def runtime(self, **choices: Any) -> AppServerRuntime:
        given = {"provider": "openai", "api_key": KEY, "base_url": self.model.base_url, **choices}
        made = AppServerRuntime(self.config(), **given)
        self.runtimes.append(made)
        return made

    async def opened(
        self, *, ask: Asker = deny, runtime: AppServerRuntime | None = None, **opening: Any
    ) -> tuple[AppServerRuntime, Opened]:
        made = runtime or self.runtime()
        given = {"cwd": self.workspace, "sandbox": "danger-full-access", **opening}
        async with asyncio.timeout(WAIT_S):
            return made, await made.open(Opening(**given), ask)

    async def close(self) -> None:
        for runtime in self.runtimes:
            await runtime.close()
        self.model.close()


class Turn:
    """Reads the events of the turn that runs."""

    def __init__(self, runtime: AppServerRuntime) -> None:
        self._runtime = runtime
        self.events: list[RuntimeEvent] = []

    async def until(self, fits: Callable[[Any], bool]) -> Any:
        """Read up to the first event that fits; it must come before the end."""
        async with asyncio.timeout(WAIT_S):
            while True:
                event = await self._runtime.next_event()
                self.events.append(event)
                if fits(event):
                    return event
                assert not isinstance(event, TurnEnded), f"the turn ended with {event}"

    async def end(self) -> TurnEnded:
        found: TurnEnded = await self.until(lambda event: isinstance(event, TurnEnded))
        return found

    @property
    def items(self) -> list[Any]:
        return [event.item for event in self.events if isinstance(event, ItemCompleted)]

    @property
    def usage(self) -> Any:
        return [event.total for event in self.events if isinstance(event, UsageReported)][-1]

    def text(self, kind: str = "text") -> str:
        return "".join(event.text for event in self.events if isinstance(event, Delta) and event.kind == kind)


async def run(runtime: AppServerRuntime, text: Any, **options: Any) -> Turn:
    """A whole turn."""
    turn = await begin(runtime, text, **options)
    await turn.end()
    return turn


async def begin(runtime: AppServerRuntime, text: Any, **options: Any) -> Turn:
    async with asyncio.timeout(WAIT_S):
        await runtime.start_turn(text, options)
    return Turn(runtime)


def pid_of(runtime: AppServerRuntime) -> int:
    """Of the server that it has started."""
    connection: Any = runtime._client._connection
    pid: int = connection.pid
    return pid


def alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False


def stop(pid: int) -> None:
    """Send SIGSTOP, and wait until it has got to every thread: those that run on meanwhile would still answer."""
    os.kill(pid, signal.SIGSTOP)
    end = time.monotonic() + WAIT_S
    while any(_state(task) != "T" for task in Path(f"/proc/{pid}/task").iterdir()):
        assert time.monotonic() < end, "it does not stop"
        time.sleep(0.01)


def _state(task: Path) -> str:
    return (task / "stat").read_text().rpartition(")")[2].split()[0]


def descendants(pid: int) -> set[int]:
    """Of a process, by the table of processes."""
    parents = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                parents[int(name)] = int(Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[1])
            except (FileNotFoundError, ProcessLookupError):
                continue
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {pid}
