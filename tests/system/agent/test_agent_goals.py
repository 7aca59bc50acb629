"""Goals: the server goes on by itself until the model says it is done, or until that makes no sense any more."""

from __future__ import annotations

from pathlib import Path

import pytest

from system.agent.order import check_thread
from system.agent.scene import Json, Scene, gate, scene, user_texts
from treadle.agent import MAX_IDLE_GOAL_TURNS
from treadle.errors import RpcError
from treadle.testing import MockModel, Usage

pytestmark = pytest.mark.anyio  # what a wire API may change is tried on each, and the rest on one

COMPLETE = {"status": "complete"}


async def _set(stage: Scene, thread: str, **params: object) -> Json:
    answer = await stage.client.request("thread/goal/set", {"threadId": thread, **params})
    goal: Json = answer["goal"]
    return goal


async def _until(stage: Scene, status: str) -> Json:
    told = await stage.client.wait_for("thread/goal/updated", lambda params: params["goal"]["status"] == status)
    goal: Json = told["params"]["goal"]
    return goal


@pytest.mark.every_wire
async def test_turns_follow_until_the_goal_is_reached(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        plan = {"plan": [{"step": "a", "status": "completed"}]}
        stage.model.enqueue_function_call("update_plan", plan, usage=Usage(input_tokens=9, output_tokens=1))
        stage.model.enqueue_assistant_message("one step", usage=Usage(input_tokens=9, output_tokens=1))
        stage.model.enqueue_function_call("update_goal", COMPLETE, usage=Usage(input_tokens=9, output_tokens=1))
        stage.model.enqueue_assistant_message("all of it", usage=Usage(input_tokens=9, output_tokens=1))
        thread = await stage.start()
        goal = await _set(stage, thread, objective="paint the fence", status="active")
        assert goal["status"] == "active"
        await stage.client.wait_for("turn/completed", lambda _: len(stage.client.told("turn/completed")) == 2)
        assert len(stage.model.requests()) == 4
        for request in stage.model.requests()[:3]:
            [text] = user_texts(request)
            assert "\n<objective>\npaint the fence\n</objective>\n" in text
        read = await stage.client.request("thread/goal/get", {"threadId": thread})
        assert read["goal"]["status"] == "complete"
        assert read["goal"]["tokensUsed"] == 40
        await check_thread(stage, thread, asked_for=False)


async def test_an_interrupt_pauses_it_and_it_can_be_taken_up_again(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        stage.model.enqueue_assistant_message("never", gate=gate())
        thread = await stage.start()
        await _set(stage, thread, objective="paint", status="active")
        await stage.model.arrived(1)
        turn = (await stage.client.wait_for("turn/started"))["params"]["turn"]["id"]
        await stage.interrupt(thread, turn)
        await _until(stage, "paused")
        assert len(stage.client.told("turn/started")) == 1
        stage.model.enqueue_function_call("update_goal", COMPLETE)
        stage.model.enqueue_assistant_message("done")
        await _set(stage, thread, status="active")
        await _until(stage, "complete")
        await stage.client.wait_for("turn/completed", lambda _: len(stage.client.told("turn/completed")) == 2)
        await check_thread(stage, thread, asked_for=False)


async def test_talk_without_deeds_is_stopped(tmp_path: Path) -> None:
    with MockModel(on_empty=lambda request: "I will do it soon") as model:
        async with scene(tmp_path, model=model) as stage:
            thread = await stage.start()
            await _set(stage, thread, objective="paint", status="active")
            await _until(stage, "blocked")
            assert len(model.requests()) == MAX_IDLE_GOAL_TURNS
            assert len(stage.client.told("turn/completed")) == MAX_IDLE_GOAL_TURNS
            await check_thread(stage, thread, asked_for=False)


async def test_a_failure_blocks_it(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        stage.model.enqueue_error(400, "no")
        thread = await stage.start()
        await _set(stage, thread, objective="paint", status="active")
        await _until(stage, "blocked")
        assert len(stage.model.requests()) == 1


async def test_a_budget_ends_it(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        plan = {"plan": [{"step": "a", "status": "pending"}]}
        stage.model.enqueue_function_call("update_plan", plan, usage=Usage(input_tokens=50, output_tokens=1))
        stage.model.enqueue_assistant_message("on it", usage=Usage(input_tokens=60, output_tokens=1))
        thread = await stage.start()
        await _set(stage, thread, objective="paint", status="active", tokenBudget=100)
        goal = await _until(stage, "budgetLimited")
        assert goal["tokensUsed"] == 112
        assert len(stage.client.told("turn/started")) == 1
        await check_thread(stage, thread, asked_for=False)


@pytest.mark.every_wire
async def test_the_model_may_set_one_itself(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        stage.model.enqueue_function_call("create_goal", {"objective": "paint"}, call_id="c1")
        stage.model.enqueue_function_call("get_goal", {}, call_id="c2")
        stage.model.enqueue_assistant_message("begun")
        stage.model.enqueue_function_call("update_goal", COMPLETE, call_id="c3")
        stage.model.enqueue_assistant_message("done")
        thread = await stage.start()
        await stage.run(thread)
        await _until(stage, "complete")
        await stage.client.wait_for("turn/completed", lambda _: len(stage.client.told("turn/completed")) == 2)
        outputs = stage.model.requests()[-1].tool_outputs
        assert outputs["c1"] == "goal set"
        assert '"objective":"paint"' in outputs["c2"]
        assert outputs["c3"] == "goal is complete"
        await check_thread(stage, thread, asked_for=False)


async def test_no_goal_and_bad_goals(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        stage.model.enqueue_function_call("update_goal", COMPLETE, call_id="c1")
        stage.model.enqueue_assistant_message("a")
        thread = await stage.start()
        await stage.run(thread)
        assert stage.model.requests()[-1].tool_outputs["c1"] == "no goal is set"
        with pytest.raises(RpcError, match="must not be empty"):
            await _set(stage, thread, objective="  ")
        with pytest.raises(RpcError, match="no goal exists"):
            await _set(stage, thread, status="active")
        assert (await stage.client.request("thread/goal/get", {"threadId": thread}))["goal"] is None


async def test_clearing_it_ends_the_loop(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        opened = gate()
        stage.model.enqueue_assistant_message("one", gate=opened)
        thread = await stage.start()
        await _set(stage, thread, objective="paint", status="active")
        await stage.model.arrived(1)
        cleared = await stage.client.request("thread/goal/clear", {"threadId": thread})
        assert cleared == {"cleared": True}
        opened.set()
        await stage.client.wait_for("turn/completed")
        stage.model.enqueue_assistant_message("two")
        await stage.run(thread, "hello")
        assert len(stage.client.told("turn/started")) == 2
        assert stage.client.told("thread/goal/cleared")
        assert not any("<objective>" in text for text in user_texts(stage.model.requests()[-1]))
        await check_thread(stage, thread, asked_for=False)
