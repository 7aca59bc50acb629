"""The part `hooks` of `python -m bench hands`: a hook by command over the bare process, a function in process, and a
turn that has none. Everything runs in this process, in a home of its own, with a mock model."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping
from tempfile import TemporaryDirectory
from typing import Any, Final

from treadle.execution import Environment
from treadle.hooks.hook_events import PreModelRequest
from treadle.hooks.hook_runner import run_hook
from treadle.hooks.hook_settings import Hook
from treadle.server import AppServer
from treadle.testing import AppServerHarness, HarnessClient, MockModel
from treadle.tools.command.command_shell import shell_argv

PROCESSES: Final = 100
CALLS: Final = 2000


def measure() -> Mapping[str, float]:
    return asyncio.run(_measure())


async def median_ms(times: int, work: Callable[[], Awaitable[object]]) -> float:
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        await work()
        taken.append(time.perf_counter() - began)
    return statistics.median(taken) * 1000


async def _measure() -> Mapping[str, float]:
    command = "cat > /dev/null"
    given = PreModelRequest(session_id="s", cwd="/", turn_id="t", model="m")
    of_command = Hook(event="PreModelRequest", key="k", path="p", source="user", trust="trusted", command=command)

    async def bare() -> None:
        process = await asyncio.create_subprocess_exec(
            *shell_argv(command), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        await process.communicate(b"{}")

    async with await Environment.connect() as environment:

        async def here() -> Environment:
            return environment

        async def hooked() -> None:
            await run_hook(of_command, given, here)

        await hooked()
        alone, both = [], []
        for _ in range(PROCESSES):  # in turns, because a machine is not equally busy all the time
            alone.append(await median_ms(1, bare))
            both.append(await median_ms(1, hooked))
    process = statistics.median(alone)
    over = statistics.median(after - before for before, after in zip(alone, both, strict=True))
    return {"a command and its pipes, alone": process, "a hook by command, over that": over, **await _in_thread()}


async def _in_thread() -> Mapping[str, float]:
    async def asynchronous(_: object) -> None:
        return None

    def plain(_: object) -> None:
        return None

    rows: dict[str, float] = {}
    given: Mapping[str, dict[str, Any]] = {
        "looking for hooks before a turn, where there are none": {},
        "an async function, called and published": {"PreModelRequest": asynchronous},
        "a plain function in a thread of its own, called and published": {"PreModelRequest": plain},
    }
    for title, functions in given.items():
        with TemporaryDirectory() as folder, MockModel(on_empty="wait") as model:
            harness = AppServerHarness(folder, model=model)
            async with (
                AppServer(home=harness.home, cwd=str(harness.workspace), hooks=functions) as server,
                harness.connect(server=server) as client,
            ):
                rows[title] = await _event_ms(server, client, looks=not functions)
    return rows


async def _event_ms(server: AppServer, client: HarnessClient, *, looks: bool) -> float:
    """While the model is asked, in a turn that waits for it."""
    thread_id = (await client.request("thread/start", {}))["thread"]["id"]
    said = [{"type": "text", "text": "hello"}]
    turn_id = (await client.request("turn/start", {"threadId": thread_id, "input": said}))["turn"]["id"]
    await client.wait_for("item/completed")
    thread = server.threads.find(thread_id)._thread
    turn, hooks = thread.turn, thread.hooks
    assert turn is not None

    async def event() -> None:
        if looks:
            await thread.look_for_hooks(turn, server.config)
        elif hooks is not None:
            await hooks.before_request(turn)

    await asyncio.sleep(1.5)  # what has changed just now is read again each time
    await event()
    taken = await median_ms(CALLS, event)
    await client.request("turn/interrupt", {"threadId": thread_id, "turnId": turn_id})
    await client.turn_end(turn_id)
    return taken
