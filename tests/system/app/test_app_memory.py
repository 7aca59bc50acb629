"""What the server lets go when a turn is over: at once, and not when the garbage collector comes by.

The collector counts objects and not bytes: a few hundred turns that wait for it may hold hundreds of megabytes.
"""

from __future__ import annotations

import asyncio
import gc
import platform
import threading
import weakref
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from kit.app_client import connected
from kit.app_program import Program
from treadle.agent import Turn
from treadle.testing import AppServerHarness, HarnessClient
from treadle.tools import CommandSession

pytestmark = pytest.mark.anyio


class Watch:
    """The turns and commands there were."""

    def __init__(self) -> None:
        self.seen: list[weakref.ref[Any]] = []

    @property
    def left(self) -> list[Any]:
        return [found for each in self.seen if (found := each()) is not None]

    async def nothing_left(self) -> None:
        try:
            async with asyncio.timeout(10):
                while self.left:
                    await asyncio.sleep(0.001)
        except TimeoutError:
            held = [[type(holder) for holder in gc.get_referrers(each)] for each in self.left]
            pytest.fail(f"{self.left} are held by {held}")


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Watch]:
    watch = Watch()
    start, read = Turn.start, CommandSession.read

    def started(turn: Turn) -> None:
        watch.seen.append(weakref.ref(turn))
        start(turn)

    async def followed(session: CommandSession) -> None:
        watch.seen.append(weakref.ref(session))
        await read(session)

    monkeypatch.setattr(Turn, "start", started)
    monkeypatch.setattr(CommandSession, "read", followed)
    gc.disable()
    yield watch
    gc.enable()


async def begun(client: HarnessClient, **params: Any) -> tuple[str, str]:
    """A thread and its turn."""
    thread = (await client.request("thread/start", params))["thread"]["id"]
    given = {"threadId": thread, "input": [{"type": "text", "text": "hi"}]}
    return thread, (await client.request("turn/start", given))["turn"]["id"]


async def test_a_turn_with_a_command(harness: AppServerHarness, watch: Watch) -> None:
    harness.model.enqueue_function_call("exec_command", {"cmd": "echo hi", "login": False})
    harness.model.enqueue_assistant_message("Done.")
    async with harness.connect() as client:
        _, turn = await begun(client)
        assert (await client.turn_end(turn))["turn"]["status"] == "completed"
        assert len(watch.seen) == 2
        await watch.nothing_left()


async def test_a_command_that_outlives_its_turn(harness: AppServerHarness, watch: Watch) -> None:
    (fifo := harness.workspace / "fifo").unlink(missing_ok=True)
    call = {"cmd": f"mkfifo {fifo}; echo hi; cat {fifo}", "login": False, "yield_time_ms": 250}
    harness.model.enqueue_function_call("exec_command", call)
    harness.model.enqueue_assistant_message("It goes on.")
    async with harness.connect() as client:
        _, turn = await begun(client)
        assert (await client.turn_end(turn))["turn"]["status"] == "completed"
        assert len(watch.seen) == 2
        assert any(isinstance(each, CommandSession) and each.running for each in watch.left)
        await asyncio.to_thread(fifo.write_text, "the end\n")
        await watch.nothing_left()


async def test_a_command_of_the_user(harness: AppServerHarness, watch: Watch) -> None:
    async with harness.connect() as client:
        thread = (await client.request("thread/start", {}))["thread"]["id"]
        await client.request("thread/shellCommand", {"threadId": thread, "command": "echo hi"})
        await client.wait_for("turn/completed")
        assert len(watch.seen) == 2
        await watch.nothing_left()


async def test_a_turn_that_is_interrupted(harness: AppServerHarness, watch: Watch) -> None:
    gate = threading.Event()
    harness.model.enqueue_assistant_message("Held.", gate=gate)
    async with harness.connect() as client:
        thread, turn = await begun(client)
        await harness.model.arrived(1)
        await client.request("turn/interrupt", {"threadId": thread, "turnId": turn})
        assert (await client.turn_end(turn))["turn"]["status"] == "interrupted"
        gate.set()
        await watch.nothing_left()


async def test_a_turn_that_fails(harness: AppServerHarness, watch: Watch) -> None:
    harness.model.enqueue_error(400, "no such thing")
    async with harness.connect() as client:
        _, turn = await begun(client)
        assert (await client.turn_end(turn))["turn"]["status"] == "failed"
        await watch.nothing_left()


@pytest.mark.parametrize("ends", ["completed", "failed"])
async def test_a_review(harness: AppServerHarness, watch: Watch, ends: str) -> None:
    harness.model.enqueue_function_call("exec_command", {"cmd": "echo hi", "login": False})
    if ends == "completed":
        harness.model.enqueue_assistant_message("Fine.")
    else:
        harness.model.enqueue_error(400, "no such thing")
    async with harness.connect() as client:
        thread = (await client.request("thread/start", {}))["thread"]["id"]
        given = {"threadId": thread, "target": {"type": "uncommittedChanges"}}
        turn = (await client.request("review/start", given))["turn"]["id"]
        assert (await client.turn_end(turn))["turn"]["status"] == ends
        assert len(watch.seen) == 2
        await watch.nothing_left()


async def test_clients_of_models_are_bounded(harness: AppServerHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every thread may bring a provider of its own. Those that are in use stay."""
    monkeypatch.setattr("treadle.server.model_clients.MAX_MODELS", 2)
    gate = threading.Event()
    async with harness.server() as server, harness.connect(server=server) as client:
        harness.model.enqueue_assistant_message("Held.", gate=gate)
        _, held = await begun(client, config={"model_providers.mock_provider.stream_idle_timeout_ms": 59_999})
        await harness.model.arrived(1)
        for number in range(5):
            harness.model.enqueue_assistant_message("Hello.")
            own = {"model_providers.mock_provider.stream_idle_timeout_ms": 60_000 + number % 4}
            _, turn = await begun(client, config=own)
            assert (await client.turn_end(turn))["turn"]["status"] == "completed"
            assert len(server.models._models) <= 2
        gate.set()
        assert (await client.turn_end(held))["turn"]["status"] == "completed"


HEAP = 64 << 20  # what glibc reserves for a heap that is not the first, at a multiple of its size


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have other heaps")
def test_the_threads_of_a_server_for_several_share_one_heap(shared_server: Program) -> None:
    with connected(shared_server.url) as client:
        client.request("thread/start", {})  # by then there are threads, and they have worked
    maps = Path(f"/proc/{shared_server.pid}/maps").read_text().splitlines()
    areas = [([int(end, 16) for end in line.split()[0].split("-")], line.split()[1]) for line in maps]
    reserved = [
        start
        for ((start, middle), rights), ((begins, end), rest) in pairwise(areas)
        if (rights, rest) == ("rw-p", "---p") and middle == begins and start % HEAP == 0 and end - start == HEAP
    ]
    assert reserved == []
