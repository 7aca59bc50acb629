from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import Any
from unittest.mock import ANY

import pytest

from treadle.host import MAX_AT_ONCE, Ask, PersonApprover, shown
from treadle.testing import ManualClock

pytestmark = pytest.mark.anyio
ASK = Ask(kind="command", title="make clean")


class Desk:
    """An approver, its clock, and what it told."""

    def __init__(self, callback: Any, limit_s: float | None = 300.0) -> None:
        self.clock = ManualClock()
        self.told: list[str] = []
        self.approver = PersonApprover(
            callback,
            limit_s=limit_s,
            clock=self.clock,
            asked=self.asked,
        )

    def asked(self) -> Callable[[], None]:
        self.told.append("asked")
        return lambda: self.told.append("answered")


def plainly(answer: object) -> Callable[[Ask], object]:
    return lambda ask: answer


def awaited(answer: object) -> Callable[[Ask], object]:
    async def callback(ask: Ask) -> object:
        await asyncio.sleep(0)
        return answer

    return callback


def coroutine_of_a_lambda(answer: object) -> Callable[[Ask], object]:
    callback = awaited(answer)
    return lambda ask: callback(ask)


class Object:
    def __init__(self, answer: object) -> None:
        self.answer = answer

    async def __call__(self, ask: Ask) -> object:
        return self.answer


@pytest.mark.parametrize("kind", [plainly, awaited, coroutine_of_a_lambda, Object])
@pytest.mark.parametrize(
    ("answer", "choice"),
    [("once", "once"), ("session", "session"), ("deny", "deny"), (True, "once"), (False, "deny"), (None, "deny")],
)
async def test_every_kind_of_callback_and_answer(kind: Any, answer: object, choice: str) -> None:
    desk = Desk(kind(answer))
    assert await desk.approver.ask(ASK) == choice
    assert desk.told == ["asked", "answered"]
    await desk.clock.settle()
    assert desk.clock.due == []


@pytest.mark.parametrize("kind", [plainly, awaited])
@pytest.mark.parametrize("answer", ["always", "", "ONCE", 1, 0, ["once"], {"decision": "once"}, ANY])
async def test_nonsense_is_a_no(kind: Any, answer: object, caplog: pytest.LogCaptureFixture) -> None:
    assert await Desk(kind(answer)).approver.ask(ASK) == "deny"
    assert "declined" in caplog.text


async def test_without_a_callback_nobody_is_asked_and_it_is_a_no() -> None:
    desk = Desk(None)
    assert await desk.approver.ask(ASK) == "deny"
    assert desk.told == []


@pytest.mark.parametrize(
    "error", [ValueError("no sk-abcdefgh12345"), SystemExit(1), KeyboardInterrupt(), StopIteration(), BaseException()]
)
async def test_a_plain_callback_that_raises_is_a_no(error: BaseException, caplog: pytest.LogCaptureFixture) -> None:
    def callback(ask: Ask) -> bool:
        raise error

    assert await Desk(callback).approver.ask(ASK) == "deny"
    assert "declined" in caplog.text
    assert "sk-abcdefgh" not in caplog.text


@pytest.mark.parametrize("kind", [ValueError, SystemExit, KeyboardInterrupt, BaseException])
async def test_an_async_callback_that_raises_is_a_no(
    kind: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    async def callback(ask: Ask) -> bool:
        raise kind("no sk-abcdefgh12345")

    assert await Desk(callback).approver.ask(ASK) == "deny"
    assert "sk-abcdefgh" not in caplog.text


async def test_silence_is_a_no_and_the_callback_is_cancelled() -> None:
    ended = asyncio.Event()

    async def callback(ask: Ask) -> bool:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ended.set()
        return True

    desk, others = Desk(callback, limit_s=300.0), asyncio.all_tasks()
    asked = asyncio.create_task(desk.approver.ask(ASK))
    await desk.clock.advance(299.0)
    assert not asked.done()
    await desk.clock.advance(1.0)
    assert asked.result() == "deny"
    assert ended.is_set()
    assert asyncio.all_tasks() == others


async def test_a_callback_that_will_not_end_holds_nobody_up() -> None:
    release = asyncio.Event()

    async def callback(ask: Ask) -> bool:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        return True

    desk, others = Desk(callback), asyncio.all_tasks()
    asked = asyncio.create_task(desk.approver.ask(ASK))
    await desk.clock.advance(300.0)
    assert asked.result() == "deny"
    release.set()
    await desk.clock.settle()
    assert asyncio.all_tasks() == others


async def test_a_withdrawn_question_is_a_no_at_once() -> None:
    release = threading.Event()
    desk = Desk(lambda ask: release.wait(60))
    asked = asyncio.create_task(desk.approver.ask(ASK))
    await desk.clock.settle()
    assert desk.told == ["asked"]
    desk.approver.withdraw()
    await desk.clock.settle()
    assert asked.result() == "deny"
    assert desk.told == ["asked", "answered"]
    release.set()


async def test_a_runtime_that_takes_its_question_back_cancels_the_callback() -> None:
    began, ended = asyncio.Event(), asyncio.Event()

    async def callback(ask: Ask) -> bool:
        began.set()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ended.set()
        return True

    desk = Desk(callback)
    asked = asyncio.create_task(desk.approver.ask(ASK))
    await began.wait()
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    await asyncio.wait_for(ended.wait(), 30)
    assert desk.told == ["asked", "answered"]


async def test_without_a_limit_a_person_may_take_hours() -> None:
    answer = asyncio.get_running_loop().create_future()

    async def callback(ask: Ask) -> object:
        return await answer

    desk = Desk(callback, limit_s=None)
    asked = asyncio.create_task(desk.approver.ask(ASK))
    await desk.clock.advance(100_000.0)
    answer.set_result("session")
    assert await asked == "session"


async def test_only_so_many_are_asked_at_a_time_and_threads_that_hang_count() -> None:
    release, calls = threading.Event(), list[Ask]()

    def callback(ask: Ask) -> bool:
        calls.append(ask)
        return release.wait(60)

    desk = Desk(callback)
    hanging = [asyncio.create_task(desk.approver.ask(ASK)) for _ in range(MAX_AT_ONCE)]
    await desk.clock.settle()
    await desk.clock.advance(300.0)
    assert [task.result() for task in hanging] == ["deny"] * MAX_AT_ONCE
    assert await desk.approver.ask(ASK) == "deny"
    assert len(calls) == MAX_AT_ONCE
    release.set()
    answer = "deny"
    async with asyncio.timeout(30):
        while answer == "deny":
            answer = await desk.approver.ask(ASK)
    assert answer == "once"


async def test_what_is_shown_has_no_secrets(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv("SERVICE_TOKEN", "hunter2-hunter2")
    seen: list[Ask] = []
    secret = "curl -H 'x: hunter2-hunter2' -H 'Authorization: Bearer abcdefgh1234'"
    ask = Ask(
        kind="command",
        title=secret,
        description=secret,
        command=secret,
        paths=(secret,),
        detail={"command": [secret], "reason": secret, "number": 1},
    )

    def callback(ask: Ask) -> str:
        seen.append(ask)
        return "nonsense"

    desk = Desk(callback)
    caplog.set_level(logging.DEBUG)
    await desk.approver.ask(ask)
    for text in (repr(seen[0]), caplog.text):
        assert "hunter2" not in text
        assert "abcdefgh1234" not in text
    assert seen[0].detail["number"] == 1
    assert shown(ASK) == ASK
