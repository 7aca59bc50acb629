"""Threads on another machine: an exec-server as a child, what stands between it and the app-server, and what a test
plants around a workspace to see whether somebody has touched it."""

from __future__ import annotations

import asyncio
import json
import os
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal, TypeAlias

from system.agent.scene import Json, Scene
from treadle.config import EnvironmentConfig
from treadle.testing import ToolCall
from treadle.transport import Address, Channel, connect
from treadle.transport.listen import listen

FAR = "far"
CONFINED: Json = {"type": "workspaceWrite", "excludeSlashTmp": True, "excludeTmpdirEnvVar": True}
Moment: TypeAlias = Literal["before", "underway", "after"]


async def far_thread(stage: Scene, url: str, cwd: Path, **params: Any) -> str:
    """A thread that works in a folder behind an exec-server."""
    stage.server.environments.add(EnvironmentConfig(id=FAR, url=url))
    return await stage.start(environments=[{"environmentId": FAR, "cwd": str(cwd)}], **params)


async def call(stage: Scene, thread: str, *calls: ToolCall, **params: Any) -> list[str]:
    """A turn of these calls; what the model was told of each."""
    stage.model.enqueue_calls(*calls)
    stage.model.enqueue_assistant_message("done")
    turn = await stage.run(thread, **{"approvalPolicy": "never", "sandboxPolicy": CONFINED, **params})
    assert turn["status"] == "completed", turn
    outputs = list(stage.model.requests()[-1].tool_outputs.values())
    return outputs[-len(calls) :]


def snapshot(folder: Path) -> dict[str, tuple[object, ...]]:
    """Any change of a file, its name or what is known about it moves its ctime or that of its directory."""
    found: dict[str, tuple[object, ...]] = {}
    for path in (folder, *folder.rglob("*")):
        status = path.lstat()
        text = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        found[str(path.relative_to(folder))] = status.st_ino, status.st_ctime_ns, status.st_mode, text
    return found


class Road:
    """Passes on the messages of an exec-server's client, and cuts the connection at one of them."""

    def __init__(self, target: str) -> None:
        self._target = Address.parse(target)
        self._ends: set[Channel] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.seen: Counter[str] = Counter()
        self.plan: tuple[str, int, Moment] | None = None
        """At the request of this method with this number: cut before it goes on, right after, or in place of its
        answer."""
        self.cuts = 0
        self.first: dict[tuple[str, int], Callable[[], object]] = {}
        """What is done before the request of a method with a number goes on."""

    def cut_at(self, method: str, number: int, moment: Moment) -> None:
        self.seen.clear()
        self.plan = method, number, moment

    def accept(self, near: Channel) -> None:
        task = asyncio.get_running_loop().create_task(self._join(near))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _join(self, near: Channel) -> None:
        far = await connect(self._target)
        self._ends |= {near, far}
        _Lane(self, near, far)

    def cut(self) -> None:
        self.cuts += 1
        self.plan = None
        for end in tuple(self._ends):
            end.abort()
        self._ends.clear()


class _Lane:
    """One connection through the road."""

    def __init__(self, road: Road, near: Channel, far: Channel) -> None:
        self._road = road
        self._dropped: object = None
        near.attach(_End(lambda frame: self._out(frame, far), far))
        far.attach(_End(lambda frame: self._back(frame, near), near))

    def _out(self, frame: bytes, far: Channel) -> None:
        message = json.loads(frame)
        method = message.get("method")
        self._road.seen[method] += 1
        self._road.first.pop((method, self._road.seen[method]), lambda: None)()
        plan = self._road.plan
        if plan is None or (method, self._road.seen[method]) != plan[:2]:
            far.send(frame)
            return
        if plan[2] == "after":
            self._dropped = message["id"]
            far.send(frame)
        elif plan[2] == "before":
            self._road.cut()
        else:
            far.send(frame)
            asyncio.get_running_loop().call_soon(self._road.cut)

    def _back(self, frame: bytes, near: Channel) -> None:
        if self._dropped is not None and json.loads(frame).get("id") == self._dropped:
            self._road.cut()
        else:
            near.send(frame)


class _End:
    def __init__(self, receive: Callable[[bytes], None], other: Channel) -> None:
        self.frame_received = receive
        self._other = other

    def channel_closed(self, reason: str) -> None:
        self._other.abort()

    def channel_writable(self) -> None: ...


@asynccontextmanager
async def listening(folder: Path, accept: Callable[[Channel], None]) -> AsyncIterator[str]:
    """A listener in this process; its URL."""
    folder.mkdir(exist_ok=True)
    listener = await listen(Address.parse(f"unix://{folder / 's'}"), accept, text_only=True)
    try:
        yield listener.url
    finally:
        await listener.close()


async def until(true: Callable[[], Any], deadline_s: float = 30.0) -> None:
    async with asyncio.timeout(deadline_s):
        while not true():
            await asyncio.sleep(0.01)


def executor_environment(folder: Path, **more: str) -> dict[str, str]:
    """A home of its own, whatever the tests' is."""
    (folder / "user").mkdir(exist_ok=True)
    return {"HOME": str(folder / "user"), "PATH": os.environ["PATH"], **more}
