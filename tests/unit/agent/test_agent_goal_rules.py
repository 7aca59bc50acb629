from __future__ import annotations

from pathlib import Path

import pytest

from treadle.errors import RpcError
from unit.agent.bare_thread import bare_thread

pytestmark = pytest.mark.anyio


async def test_a_goal_is_made_changed_and_cleared(tmp_path: Path) -> None:
    async with bare_thread(tmp_path) as (thread, _):
        with pytest.raises(RpcError, match="no goal exists"):
            thread.goal.set(status="paused")
        with pytest.raises(RpcError, match="must not be empty"):
            thread.goal.set(objective=" \n")
        assert not thread.goal.wants_turn
        goal = thread.goal.set(objective="paint", token_budget=100)
        assert (goal.status, goal.token_budget, goal.tokens_used) == ("active", 100, 0)
        assert thread.goal.wants_turn
        assert thread.goal.set(status="paused").objective == "paint"
        assert not thread.goal.wants_turn
        assert thread.goal.clear()
        assert not thread.goal.clear()


async def test_a_new_objective_begins_a_new_account(tmp_path: Path) -> None:
    async with bare_thread(tmp_path) as (thread, _):
        thread.goal.set(objective="paint")
        thread.goal.account("t1", 50, 2)
        assert thread.goal.set(objective="paint").tokens_used == 50
        assert thread.goal.set(objective="varnish").tokens_used == 0
        await thread.journal.flush()


async def test_a_budget_that_is_used_up_stops_it(tmp_path: Path) -> None:
    async with bare_thread(tmp_path) as (thread, ears):
        thread.goal.set(objective="paint", token_budget=100)
        thread.goal.account("t1", 99, 0)
        assert thread.goal.wants_turn
        thread.goal.account("t2", 1, 3)
        await thread.journal.flush()
        assert not thread.goal.wants_turn
        told = [event["params"]["goal"] for event in ears.told]
        assert [(goal["status"], goal["tokensUsed"]) for goal in told] == [("active", 99), ("budgetLimited", 100)]
        assert told[-1]["timeUsedSeconds"] == 3


async def test_an_idle_goal_costs_nothing_to_nobody(tmp_path: Path) -> None:
    async with bare_thread(tmp_path) as (thread, ears):
        thread.goal.account("t1", 5, 0)
        thread.goal.set(objective="paint", status="paused")
        thread.goal.account("t1", 0, 0)
        await thread.journal.flush()
        assert ears.told == []
        thread.goal.account("t1", 7, 0)
        assert thread.state.goal is not None
        assert thread.state.goal.tokens_used == 7
        await thread.journal.flush()
