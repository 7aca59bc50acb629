from __future__ import annotations

from pathlib import Path

import pytest

from treadle.agent.thread_goal import account, clear_goal, set_goal, wants_turn
from treadle.errors import RpcError
from unit.agent.bare_thread import bare_thread

pytestmark = pytest.mark.anyio


async def test_a_goal_is_made_changed_and_cleared(tmp_path: Path) -> None:
    async with bare_thread(tmp_path) as (thread, _):
        with pytest.raises(RpcError, match="no goal exists"):
            set_goal(thread, status="paused")
        with pytest.raises(RpcError, match="must not be empty"):
            set_goal(thread, objective=" \n")
        assert not wants_turn(thread)
        goal = set_goal(thread, objective="paint", token_budget=100)
        assert (goal.status, goal.token_budget, goal.tokens_used) == ("active", 100, 0)
        assert wants_turn(thread)
        assert set_goal(thread, status="paused").objective == "paint"
        assert not wants_turn(thread)
        assert clear_goal(thread)
        assert not clear_goal(thread)


async def test_a_new_objective_begins_a_new_account(tmp_path: Path) -> None:
    async with bare_thread(tmp_path) as (thread, _):
        set_goal(thread, objective="paint")
        account(thread, "t1", 50, 2)
        assert set_goal(thread, objective="paint").tokens_used == 50
        assert set_goal(thread, objective="varnish").tokens_used == 0
        await thread.journal.flush()


async def test_a_budget_that_is_used_up_stops_it(tmp_path: Path) -> None:
    async with bare_thread(tmp_path) as (thread, ears):
        set_goal(thread, objective="paint", token_budget=100)
        account(thread, "t1", 99, 0)
        assert wants_turn(thread)
        account(thread, "t2", 1, 3)
        await thread.journal.flush()
        assert not wants_turn(thread)
        told = [event["params"]["goal"] for event in ears.told]
        assert [(goal["status"], goal["tokensUsed"]) for goal in told] == [("active", 99), ("budgetLimited", 100)]
        assert told[-1]["timeUsedSeconds"] == 3


async def test_an_idle_goal_costs_nothing_to_nobody(tmp_path: Path) -> None:
    async with bare_thread(tmp_path) as (thread, ears):
        account(thread, "t1", 5, 0)
        set_goal(thread, objective="paint", status="paused")
        account(thread, "t1", 0, 0)
        await thread.journal.flush()
        assert ears.told == []
        account(thread, "t1", 7, 0)
        assert thread.state.goal is not None
        assert thread.state.goal.tokens_used == 7
        await thread.journal.flush()
