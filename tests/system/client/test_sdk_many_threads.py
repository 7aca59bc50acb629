"""Many at once on one client: threads of Python, tasks, handlers and tools that use the client themselves."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from system.client.faces import DEADLINE_S, Face, nothing_left_over
from treadle.client import ApprovalRequest, AsyncCodex, AsyncThread, Codex, CodexConfig, Thread
from treadle.testing import AppServerHarness, MockModel
from treadle.types import TurnStatus

THREADS = 16
TURNS = 25


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[AppServerHarness]:
    """The model says what it was told last."""
    with MockModel(on_empty=lambda request: f"echo {request.last_user_text}") as model:
        yield AppServerHarness(tmp_path, model=model)


@pytest.fixture(params=["in this process", "a program"])
def config(request: pytest.FixtureRequest, harness: AppServerHarness) -> CodexConfig:
    return config_of(harness, program=request.param == "a program")


def config_of(harness: AppServerHarness, *, program: bool) -> CodexConfig:
    env = {"CODEX_HOME": str(harness.home), "TREADLE_HOME": str(harness.home)}
    command = tuple(harness.command()) if program else None
    return CodexConfig(launch_args_override=command, env=env, cwd=str(harness.workspace))


def words_of(thread: Any) -> list[str]:
    """What the agent has said in a thread that was read with its turns."""
    items = [item.root for turn in thread.turns for item in turn.items]
    return [item.text for item in items if item.type == "agentMessage"]


def test_sixteen_threads_share_one_client(harness: AppServerHarness) -> None:
    """Each has its own conversation; others list and read meanwhile."""
    config = config_of(harness, program=True)
    talking = threading.Event()

    def talk(codex: Codex, name: str) -> Thread:
        thread = codex.thread_start()
        for number in range(TURNS):
            result = thread.run(f"{name} {number}")
            assert result.final_response == f"echo {name} {number}"
            assert result.status is TurnStatus.completed
        return thread

    def look(codex: Codex) -> int:
        rounds = 0
        while talking.is_set():
            for found in codex.thread_list(limit=50).data:
                assert Thread(codex._client, found.id).read().thread.id == found.id
            rounds += 1
        return rounds

    with nothing_left_over(), Codex(config) as codex, ThreadPoolExecutor(THREADS + 3) as pool:
        talking.set()
        try:
            looking = [pool.submit(look, codex) for _ in range(3)]
            talks = [pool.submit(talk, codex, f"talk {number}") for number in range(THREADS)]
            threads = [done.result(5 * DEADLINE_S) for done in talks]
        finally:
            talking.clear()
        assert all(done.result(DEADLINE_S) > 0 for done in looking)
        for number, thread in enumerate(threads):
            told = words_of(thread.read(include_turns=True).thread)
            assert told == [f"echo talk {number} {turn}" for turn in range(TURNS)]


def test_threads_share_a_client_in_this_process(harness: AppServerHarness) -> None:
    def talk(codex: Codex, name: str) -> None:
        thread = codex.thread_start(ephemeral=True)
        for number in range(5):
            assert thread.run(f"{name} {number}").final_response == f"echo {name} {number}"

    with nothing_left_over(), Codex(config_of(harness, program=False)) as codex, ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(talk, codex, f"talk {number}") for number in range(8)]:
            done.result(5 * DEADLINE_S)


@pytest.mark.anyio
async def test_a_hundred_runs_at_once(config: CodexConfig) -> None:
    async def talk(codex: AsyncCodex, name: str) -> None:
        thread = await codex.thread_start(ephemeral=True)
        result = await thread.run(name)
        assert result.final_response == f"echo {name}"

    before = asyncio.all_tasks()
    async with AsyncCodex(config) as codex, asyncio.timeout(5 * DEADLINE_S):
        await asyncio.gather(*(talk(codex, f"talk {number}") for number in range(100)))
    assert asyncio.all_tasks() == before


def test_a_handler_may_use_the_client(face: Face, tmp_path: Path) -> None:
    """A tool and an approval handler read the very thread that waits for them."""
    seen: list[str] = []

    def approve(request: ApprovalRequest) -> bool:
        read = Thread(codex._client, request.thread_id).read().thread
        seen.append(f"approval {read.id}")
        return True

    async def approve_async(request: ApprovalRequest) -> bool:
        read = (await AsyncThread(codex, request.thread_id).read()).thread
        seen.append(f"approval {read.id}")
        return True

    def look() -> str:
        """Look at the thread."""
        seen.append(f"tool {thread.read().thread.id}")
        return "looked"

    async def look_async() -> str:
        """Look at the thread."""
        seen.append(f"tool {(await thread.read()).thread.id}")
        return "looked"

    asynchronous = face.name == "async"
    with MockModel() as model:
        harness = AppServerHarness(tmp_path, model=model, settings={"sandbox_mode": "workspace-write"})
        model.enqueue_function_call("look_async" if asynchronous else "look", {}, call_id="c1")
        escalated = {"cmd": "true", "sandbox_permissions": "require_escalated", "justification": "it must"}
        model.enqueue_function_call("exec_command", escalated, call_id="c2")
        model.enqueue_assistant_message("done")
        codex = face.open(config_of(harness, program=True), approval_handler=approve_async if asynchronous else approve)
        thread = face.do(lambda: codex.thread_start(tools=[look_async if asynchronous else look]))
        assert face.do(lambda: thread.run("go")).final_response == "done"
        assert seen == [f"tool {thread.id}", f"approval {thread.id}"]
        face.close(codex)


def test_the_next_turn_of_a_real_server_works_after_a_cancelled_one(face: Face, harness: AppServerHarness) -> None:
    """Interrupted at any moment of its start: the next turn is never taken for a part of it."""
    codex = face.open(config_of(harness, program=True))
    thread = face.do(codex.thread_start)
    for number in range(10):
        late = face.go(lambda: thread.run("late", timeout=0.0005)).exception(DEADLINE_S)
        assert late is None or isinstance(late, TimeoutError)
        result = face.do(lambda n=number: thread.run(f"next {n}"))  # type: ignore[misc]
        assert result.status is TurnStatus.completed
        assert result.final_response == f"echo next {number}"
