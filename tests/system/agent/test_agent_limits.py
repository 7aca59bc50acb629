"""Turns at the limits of a provider: they wait, say so, can be interrupted, and none fails for another."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path

import pytest

from system.agent.order import check_thread
from system.agent.scene import Json, Scene, scene
from treadle import AsyncCodex
from treadle.client import Problem, TextRestarted
from treadle.llm import ProviderModel, rate_limiter
from treadle.testing import AppServerHarness, MockModel, RecordedRequest, Reply, error_reply

pytestmark = pytest.mark.anyio
DEFAULT = {"request_max_retries": 4}  # the harness has none


class Crowded:
    """A model that answers five at a time, and refuses more. It thinks for a moment."""

    def __init__(self, at_a_time: int = 5, headers: dict[str, str] | None = None) -> None:
        self._at_a_time = at_a_time
        self._headers = headers or {}
        self._lock = threading.Lock()
        self._running = 0
        self.refused = 0
        self.answered: list[str] = []

    def __call__(self, request: RecordedRequest) -> Reply | str:
        with self._lock:
            if self._running >= self._at_a_time:
                self.refused += 1
                return error_reply(429, {"error": {"message": "too many at a time"}}, self._headers)
            self._running += 1
            self.answered.append(request.headers["thread-id"])
        time.sleep(0.01)
        with self._lock:
            self._running -= 1
        return "done"


def _waits(stage: Scene) -> list[Json]:
    notices = [told["params"] for told in stage.client.told("error")]
    return [notice for notice in notices if notice["error"]["message"].startswith("Waiting for provider")]


def _model(stage: Scene) -> ProviderModel:
    [model] = stage.server.models._models.values()
    assert isinstance(model, ProviderModel)
    return model


async def _run_all(stage: Scene, number: int) -> list[Json]:
    threads = [await stage.start() for _ in range(number)]
    turns = await asyncio.gather(*(stage.begin(thread) for thread in threads))
    return [await stage.end(turn) for turn in turns]


@pytest.mark.parametrize("headers", [{}, {"retry-after-ms": "100"}], ids=["no header", "retry-after"])
async def test_a_hundred_threads_do_not_fail_each_other(tmp_path: Path, headers: dict[str, str]) -> None:
    crowded = Crowded(headers=headers)
    with MockModel(on_empty=crowded) as model:
        async with scene(tmp_path, model=model, provider=DEFAULT) as stage:
            turns = await _run_all(stage, 100)
            assert {turn["status"] for turn in turns} == {"completed"}
            while _model(stage).is_busy:  # the end of a body may come after the last event
                await asyncio.sleep(0.001)
    assert sorted(crowded.answered) == sorted(set(crowded.answered))
    assert 0 < crowded.refused < 300  # the first hundred at once, then a few that were tried


async def test_with_the_limit_in_the_settings_nothing_is_refused(tmp_path: Path) -> None:
    crowded = Crowded()
    with MockModel(on_empty=crowded) as model:
        async with scene(tmp_path, model=model, provider={"max_concurrent_requests": 5}) as stage:
            turns = await _run_all(stage, 100)
            assert {turn["status"] for turn in turns} == {"completed"}
    assert (len(crowded.answered), crowded.refused) == (100, 0)


async def _told(stage: Scene, turn: str) -> Json:
    params: Json = (await stage.client.wait_for("error", lambda params: params["turnId"] == turn))["params"]
    return params


async def _held(stage: Scene) -> tuple[str, threading.Event]:
    """A turn that holds the only place until the event is set."""
    gate = threading.Event()
    stage.model.enqueue_assistant_message("first", gate=gate, gate_after=1)
    turn = await stage.begin(await stage.start())
    await stage.model.arrived(1)
    return turn, gate


async def test_a_turn_that_waits_says_so_once_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate_limiter, "TELL_AFTER_S", 0.05)
    async with scene(tmp_path, provider={"max_concurrent_requests": 1}) as stage:
        first, gate = await _held(stage)
        stage.model.enqueue_assistant_message("second")
        thread = await stage.start()
        second = await stage.begin(thread)
        notice = await _told(stage, second)
        assert notice["willRetry"] is True
        assert notice["error"]["codexErrorInfo"] == "rateLimitExceeded"
        assert "max_concurrent_requests = 1" in notice["error"]["message"]
        # Others come and go; that is no news for the one that waits.
        for _ in range(3):
            other = await stage.start()
            turn = await stage.begin(other)
            await _told(stage, turn)
            await stage.interrupt(other, turn)
            assert (await stage.end(turn))["status"] == "interrupted"
        gate.set()
        assert (await stage.end(first))["status"] == "completed"
        assert (await stage.end(second))["status"] == "completed"
        assert [wait["turnId"] for wait in _waits(stage)].count(second) == 1
        await check_thread(stage, thread)


async def test_a_turn_that_waits_can_be_interrupted(tmp_path: Path) -> None:
    async with scene(tmp_path, provider={"max_concurrent_requests": 1}) as stage:
        first, gate = await _held(stage)
        thread = await stage.start()
        second = await stage.begin(thread)
        while _model(stage).queue_stats().waiting != 1:
            await asyncio.sleep(0.001)
        await stage.interrupt(thread, second)
        assert (await stage.end(second))["status"] == "interrupted"
        assert _model(stage).queue_stats().waiting == 0
        gate.set()
        assert (await stage.end(first))["status"] == "completed"
        assert len(stage.model.requests()) == 1
        stage.model.enqueue_assistant_message("again")
        assert (await stage.run(thread))["status"] == "completed"


async def test_a_refusal_is_told_as_a_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate_limiter, "TELL_AFTER_S", 0.0)
    async with scene(tmp_path, provider=DEFAULT) as stage:
        stage.model.enqueue_error(429, {"error": {"message": "slow down"}}, {"Retry-After": "0.2"})
        stage.model.enqueue_assistant_message("a")
        assert (await stage.run(await stage.start()))["status"] == "completed"
        [wait] = _waits(stage)
        assert "HTTP 429" in wait["error"]["message"]
        assert len(stage.client.told("error")) == 1


async def test_the_stream_of_the_sdk_has_the_wait(tmp_path: Path) -> None:
    with AppServerHarness(tmp_path, provider=DEFAULT) as harness:
        harness.model.enqueue_error(429, {"error": {"message": "slow down"}}, {"Retry-After": "0.8"})
        harness.model.enqueue_assistant_message("Now.")
        async with AsyncCodex(harness.codex_config()) as codex:
            thread = await codex.thread_start()
            events = [event async for event in thread.events("hi")]
    [problem] = [event for event in events if isinstance(event, Problem)]
    assert problem.will_retry
    assert problem.message.startswith("Waiting for provider `mock_provider`: ")
    assert not [event for event in events if isinstance(event, TextRestarted)]
