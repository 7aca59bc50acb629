"""A clock that is set back while things happen: nothing takes less than no time, and nothing ends before it began."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from system.agent.scene import Json, patch, scene, shell
from treadle.testing import ToolCall

pytestmark = pytest.mark.anyio

TOOL = {"type": "function", "name": "weather", "description": "", "inputSchema": {"type": "object"}}
STEP_NS = 10_000_000_000


@pytest.fixture
def falling_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten seconds earlier every time somebody looks."""
    now = time.time_ns()

    def time_ns() -> int:
        nonlocal now
        now -= STEP_NS
        return now

    monkeypatch.setattr("treadle.agent.event.time", SimpleNamespace(time_ns=time_ns))


def members(value: Any, *names: str) -> Iterator[Json]:
    """Every object with all of these, however deep."""
    if isinstance(value, dict):
        if all(value.get(name) is not None for name in names):
            yield value
        for inner in value.values():
            yield from members(inner, *names)
    elif isinstance(value, list):
        for inner in value:
            yield from members(inner, *names)


def check_times(told: Any) -> int:
    """How many durations there were."""
    durations = [each["durationMs"] for each in members(told, "durationMs")]
    assert all(0 <= duration < 60_000 for duration in durations), durations
    for first, last in (("startedAt", "completedAt"), ("startedAtMs", "completedAtMs"), ("createdAt", "updatedAt")):
        for each in members(told, first, last):
            assert each[first] <= each[last], each
    return len(durations)


async def test_a_clock_that_is_set_back(tmp_path: Path, falling_clock: None) -> None:
    async with scene(tmp_path) as stage:
        stage.model.enqueue_calls(
            ToolCall("exec_command", shell("echo out"), "c1"),
            ToolCall("apply_patch", patch("*** Add File: new.txt", "+text"), "c2", custom=True),
            ToolCall("weather", {"city": "Ulm"}, "c3"),
        )
        stage.model.enqueue_assistant_message("done", deltas=["do", "ne"])
        thread = await stage.start(dynamicTools=[TOOL])
        turn = await stage.begin(thread)
        ask = await stage.asked("item/tool/call")
        stage.client.reply(ask, {"contentItems": [{"type": "inputText", "text": "sunny"}], "success": True})
        assert (await stage.end(turn))["status"] == "completed"
        await stage.client.request("thread/shellCommand", {"threadId": thread, "command": "true"})
        await stage.client.wait_for("turn/completed", lambda params: params["turn"]["id"] != turn)
        await stage.client.request("thread/goal/set", {"threadId": thread, "objective": "o", "status": "paused"})
        assert check_times(stage.client.messages) >= 5  # two turns, two commands, a tool of the client
        read = await stage.client.request("thread/read", {"threadId": thread, "includeTurns": True})
        assert check_times(read) >= 5
        items = await stage.client.request("thread/items/list", {"threadId": thread})
        assert len(list(members(items, "startedAtMs", "completedAtMs"))) >= 5
        check_times(items)
