"""Running hooks that are functions: a quick one is waited for on the spot, a slow one is not."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from treadle.hooks import Hook, HookResult, PreModelRequest, run_hook
from treadle.hooks import hook_runner as runner

pytestmark = pytest.mark.anyio
GIVEN = PreModelRequest(session_id="s", cwd="/", turn_id="t", model="m")


async def _nowhere() -> Any:
    raise AssertionError


async def _call(function: Any) -> tuple[Any, bool]:
    """The outcome, and whether the loop has gone on meanwhile."""
    went_on: list[bool] = []
    hook = Hook(event="PreModelRequest", key="python:f", path="f", source="sessionFlags", function=function)
    asyncio.get_running_loop().call_soon(went_on.append, True)
    return await run_hook(hook, GIVEN, _nowhere), bool(went_on)


async def test_the_loop_waits_for_a_quick_function(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "PAUSE_S", 30.0)
    outcome, went_on = await _call(lambda _: HookResult(message="seen"))
    assert outcome.result.message == "seen"
    assert not went_on


async def test_the_loop_does_not_wait_for_one_that_was_slow_until_it_is_quick_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    go = threading.Event()
    asyncio.get_running_loop().call_later(0.05, go.set)
    assert (await _call(lambda _: go.wait(30) and None))[0].error is None  # the loop can open the gate
    monkeypatch.setattr(runner, "PAUSE_S", 30.0)
    assert (await _call(lambda _: None))[1]  # it was slow the last time
    assert not (await _call(lambda _: None))[1]
