"""What turns and threads may use: at a limit a turn ends and says which, on every wire API, with sub-agents counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kit.agents_model import AgentsModel, do, spawn, wait
from system.agent.scene import Json, Scene, scene
from treadle.errors import RpcError
from treadle.testing import ToolCall, Usage

pytestmark = [pytest.mark.anyio, pytest.mark.every_wire]
TEN = Usage(input_tokens=9, output_tokens=1)


def _calls(stage: Scene, number: int) -> None:
    """Responses of ten tokens that call a tool."""
    for each in range(number):
        stage.model.enqueue_calls(ToolCall("update_plan", {"plan": []}, f"c{each}"), usage=TEN)


def _answer(stage: Scene) -> None:
    stage.model.enqueue_assistant_message("done", usage=TEN)


def _limit(turn: Json) -> tuple[Any, ...]:
    assert turn["status"] == "failed"
    assert turn["error"]["codexErrorInfo"] == "sessionBudgetExceeded"
    limit = turn["error"]["limit"]
    return limit["kind"], limit["limit"], limit["used"]


async def test_a_turn_ends_at_its_tokens_and_the_thread_goes_on(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        thread = await stage.start()
        _calls(stage, 2)
        turn = await stage.run(thread, maxTurnTokens=20)
        assert _limit(turn) == ("turnTokens", 20, 20)
        assert turn["error"]["limit"]["threadId"] == thread
        text = "it has used 20 tokens, and may use 20 tokens (maxTurnTokens, or budget.turn_tokens)"
        assert text in turn["error"]["message"]
        assert (await stage.read(thread))[-1]["error"] == turn["error"]  # also for those who read it later
        _answer(stage)
        assert (await stage.run(thread))["status"] == "completed"  # the next has its own
        usage = [told["params"]["tokenUsage"] for told in stage.client.told("thread/tokenUsage/updated")]
        spent = [(each["turn"]["totalTokens"], each["total"]["totalTokens"]) for each in usage]
        assert spent == [(10, 10), (20, 20), (10, 30)]


async def test_a_turn_that_has_its_answer_completes_beyond_its_limit(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        _calls(stage, 1)
        _answer(stage)
        assert (await stage.run(await stage.start(), maxTurnTokens=11))["status"] == "completed"


async def test_a_thread_at_its_limit_asks_no_model_until_it_gets_a_higher_one(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        thread = await stage.start(maxThreadTokens=10)
        _answer(stage)
        assert (await stage.run(thread))["status"] == "completed"
        assert _limit(await stage.run(thread, "and now")) == ("threadTokens", 10, 10)
        await stage.client.request("thread/settings/update", {"threadId": thread, "maxThreadTokens": 11})
        _answer(stage)
        assert (await stage.run(thread))["status"] == "completed"
        assert "and now" in "".join(stage.model.requests()[-1].input_texts("user"))  # what was said is not lost
        assert _limit(await stage.run(thread))[0] == "threadTokens"
        await stage.client.request("thread/resume", {"threadId": thread, "maxThreadTokens": None})
        _answer(stage)
        assert (await stage.run(thread))["status"] == "completed"


@pytest.mark.parametrize("limit", [{"maxThreadTokens": 0}, {"maxThreadTokens": 2**60}, {"maxThreadCostUsd": 0}])
async def test_a_limit_that_no_file_could_have_is_refused(tmp_path: Path, limit: Json) -> None:
    async with scene(tmp_path) as stage:
        thread = await stage.start()
        for method, params in (("thread/start", {}), ("thread/settings/update", {"threadId": thread})):
            with pytest.raises(RpcError, match=next(iter(limit))):
                await stage.client.request(method, {**params, **limit})
        _answer(stage)
        assert (await stage.run(thread))["status"] == "completed"


async def test_a_goal_ends_at_the_limit_of_its_thread(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        thread = await stage.start(maxThreadTokens=10)
        _answer(stage)
        await stage.client.request("thread/goal/set", {"threadId": thread, "objective": "paint", "status": "active"})
        told = await stage.client.wait_for(
            "thread/goal/updated", lambda params: params["goal"]["status"] not in ("active", "blocked")
        )
        assert told["params"]["goal"]["status"] == "budgetLimited"


async def test_costs_are_limited_where_there_is_a_price(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        turn = await stage.run(await stage.start(model="nobody-knows-it"), maxTurnCostUsd=5.0)
        assert _limit(turn) == ("turnCostUsd", 5.0, None)
        assert "price_input" in turn["error"]["message"]
        price = {"models.mine": {"price_input": 1e6, "price_output": 1e6}}
        thread = await stage.start(model="mine", maxThreadCostUsd=25.0, config=price)
        _calls(stage, 3)
        assert _limit(await stage.run(thread, maxTurnCostUsd=15.0)) == ("turnCostUsd", 15.0, 20.0)
        assert _limit(await stage.run(thread)) == ("threadCostUsd", 25.0, 30.0)


async def test_the_configuration_sets_limits_and_a_turn_its_own(tmp_path: Path) -> None:
    async with scene(tmp_path, extra_toml="[budget]\nturn_tokens = 10\nturn_iterations = 1\n") as stage:
        thread = await stage.start()
        _calls(stage, 1)
        assert _limit(await stage.run(thread)) == ("turnTokens", 10, 10)
        _calls(stage, 2)
        assert (await stage.run(thread, maxTurnTokens=1000))["status"] == "completed"
        [warning] = stage.client.told("warning")
        assert warning["params"]["limit"] == {"kind": "turnIterations", "limit": 1, "used": 1, "threadId": thread}
        assert "its limit of tool calls (1 rounds, maxIterations)" in warning["params"]["message"]


async def test_sub_agents_count_and_end_with_those_that_they_work_for(tmp_path: Path) -> None:
    with AgentsModel(usage=TEN) as model:
        async with scene(tmp_path, model=model) as stage:
            thread = await stage.start()
            child = spawn({"call": "update_plan", "args": {"plan": []}}, "never said")
            kind, limit, used = _limit(await stage.run(thread, do(child, wait("$1"), "e"), maxTurnTokens=20))
            assert (kind, limit) == ("turnTokens", 20)
            assert used in (20, 30)  # the first response of the child, and perhaps the second of the thread
            told = await stage.client.wait_for("turn/completed", lambda params: params["threadId"] != thread)
            ended = told["params"]["turn"]
            if ended["status"] != "interrupted":  # by the end of the other turn
                assert _limit(ended)[:2] == (kind, limit)
                assert ended["error"]["limit"]["threadId"] == thread
                assert ended["error"]["message"].startswith(f"This thread works for {thread}. The turn is at its limit")
            assert "never said" not in [item["text"] for item in stage.completed("agentMessage")]
