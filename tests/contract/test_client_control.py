"""Turns that are not left alone: steered, interrupted, given up; and limits of time."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import Any

import pytest

from contract import client_stage
from contract.client_stage import Reading, Stage, everywhere, items_of, only, text_of
from treadle import ExternalMessage, InvalidRequestError, RequestTimeout, TurnConflict
from treadle.types import TurnStatus

pytestmark = pytest.mark.anyio
stage = client_stage.stage


async def _begun(stage: Stage, codex: Any, gate: threading.Event) -> tuple[Any, Any, Reading]:
    """A thread, its turn and its stream; the model has said `one ` and waits at the gate."""
    stage.model.enqueue_assistant_message("one two", deltas=["one ", "two"], gate=gate, gate_after=3)
    thread = await stage.call(codex.thread_start)
    turn = await stage.call(thread.turn, "begin")
    reading = stage.read(turn.stream())
    await reading.until("item/agentMessage/delta")
    return thread, turn, reading


async def test_steering_adds_to_the_turn(stage: Stage) -> None:
    gate = threading.Event()
    async with stage.codex() as codex:
        _, turn, reading = await _begun(stage, codex, gate)
        stage.model.enqueue_assistant_message("and this")
        assert (await stage.call(turn.steer, "more")).turn_id == turn.id
        gate.set()
        seen = await reading.rest()
    assert [item.type for item in items_of(seen)] == ["userMessage", "agentMessage", "userMessage", "agentMessage"]
    assert seen[-1].payload.turn.status is TurnStatus.completed
    assert stage.model.requests()[-1].last_user_text == "more"


async def test_an_external_message_joins_the_turn_that_runs(stage: Stage) -> None:
    gate = threading.Event()
    async with stage.codex() as codex:
        thread, turn, reading = await _begun(stage, codex, gate)
        stage.model.enqueue_assistant_message("I have seen it")
        joined = await stage.call(thread.turn, ExternalMessage("mailbox", "You have mail."))
        assert joined.id == turn.id
        with pytest.raises(TurnConflict, match="already has active turn"):
            await stage.call(thread.turn, "the user's word")
        gate.set()
        seen = await reading.rest()
        stage.model.enqueue_assistant_message("free again")
        assert (await stage.call(thread.run, "next")).final_response == "free again"
    assert [item.type for item in items_of(seen)][-1] == "agentMessage"
    assert "You have mail." in stage.model.requests()[1].body.decode()


@everywhere
async def test_interrupting_ends_the_turn(stage: Stage) -> None:
    gate = threading.Event()
    async with stage.codex() as codex:
        thread, turn, reading = await _begun(stage, codex, gate)
        await stage.call(turn.interrupt)
        seen = await reading.rest()
        gate.set()
        stage.model.enqueue_assistant_message("back")
        assert (await stage.call(thread.run, "go on")).final_response == "back"
    assert seen[-1].payload.turn.status is TurnStatus.interrupted


async def test_running_a_turn_that_is_interrupted_returns(stage: Stage) -> None:
    gate = threading.Event()
    async with stage.codex() as codex:
        _, turn, reading = await _begun(stage, codex, gate)
        await reading.close()
        result, _ = await asyncio.gather(stage.call(turn.run), stage.call(turn.interrupt))
        gate.set()
    assert (result.status, result.final_response) == (TurnStatus.interrupted, None)


@only("in process")
async def test_what_is_over_cannot_be_steered(stage: Stage) -> None:
    stage.model.enqueue_assistant_message("over")
    async with stage.codex() as codex:
        thread = await stage.call(codex.thread_start)
        turn = await stage.call(thread.turn, "go")
        await stage.call(turn.run)
        with pytest.raises(InvalidRequestError, match="no active turn"):
            await stage.call(turn.steer, "too late")


@everywhere
async def test_a_run_that_takes_too_long_is_interrupted(stage: Stage) -> None:
    gate = threading.Event()
    stage.model.enqueue_assistant_message("too late", gate=gate)
    async with stage.codex() as codex:
        thread = await stage.call(codex.thread_start)
        turn = await stage.call(thread.turn, "slow")
        await stage.model.arrived(1)
        with pytest.raises(RequestTimeout, match="was interrupted") as caught:
            await stage.call(turn.run, timeout=0)
        assert isinstance(caught.value, TimeoutError)
        stage.model.enqueue_assistant_message("quick")
        assert (await stage.call(thread.run, "again", timeout=60)).final_response == "quick"
        turns = (await stage.call(thread.read, include_turns=True)).thread.turns
        gate.set()
    assert [turn.status for turn in turns] == [TurnStatus.interrupted, TurnStatus.completed]


async def test_a_stream_that_takes_too_long_is_interrupted(stage: Stage) -> None:
    gate = threading.Event()
    stage.model.enqueue_assistant_message("too late", gate=gate)
    async with stage.codex() as codex:
        thread = await stage.call(codex.thread_start)
        turn = await stage.call(thread.turn, "slow")
        await stage.model.arrived(1)
        with pytest.raises(RequestTimeout, match="was interrupted"):
            await stage.read(turn.stream(timeout=0)).rest()
        result = await stage.call(turn.run)  # whoever still wants the end may have it
        gate.set()
    assert result.status is TurnStatus.interrupted


async def test_a_turn_whose_start_timed_out_is_ended(stage: Stage) -> None:
    """The server has started it, and nobody waits for it any more: the next turn must not become a part of it."""
    stage.answer = lambda request: f"answer to {request.last_user_text}"
    async with stage.codex() as codex:
        thread = await stage.call(codex.thread_start)
        with suppress(RequestTimeout):
            turn = await stage.call(thread.turn, "lost", timeout=0)
            await stage.call(turn.run)  # it can be answered at once, if seldom
        result = await stage.call(thread.run, "next")
    assert (result.status, result.final_response) == (TurnStatus.completed, "answer to next")


async def test_a_cancelled_run_is_interrupted(stage: Stage) -> None:
    """Only asyncio can cancel: a blocking call is stopped by Ctrl-C or by its `timeout`."""
    gate = threading.Event()
    stage.model.enqueue_assistant_message("never", gate=gate)
    async with stage.codex() as codex:
        thread = await stage.call(codex.thread_start)
        if stage.face == "async":
            running = asyncio.create_task(thread.run("go"))
            await stage.model.arrived(1)
            while codex._client._router.readers == 0:  # the answer to the start may come later than that
                await asyncio.sleep(0)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
        else:
            turn = await stage.call(thread.turn, "go")
            await stage.model.arrived(1)
            stream = turn.stream()
            await asyncio.to_thread(next, stream)
            with pytest.raises(KeyboardInterrupt):
                stream.throw(KeyboardInterrupt)
        stage.model.enqueue_assistant_message("next")
        assert (await stage.call(thread.run, "again")).final_response == "next"
        turns = (await stage.call(thread.read, include_turns=True)).thread.turns
        gate.set()
    assert [turn.status for turn in turns] == [TurnStatus.interrupted, TurnStatus.completed]


@pytest.mark.parametrize("steps", [1, 4])
@only(*client_stage.WAYS, faces=("async",))
async def test_a_run_that_is_cancelled_at_any_moment_leaves_the_thread_usable(stage: Stage, steps: int) -> None:
    stage.answer = lambda request: f"answer to {request.last_user_text}"
    async with stage.codex() as codex:
        thread = await stage.call(codex.thread_start)
        running = asyncio.create_task(thread.run("lost"))
        for _ in range(steps):
            await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        result = await stage.call(thread.run, "next")
    assert (result.status, result.final_response) == (TurnStatus.completed, "answer to next")


async def test_leaving_a_stream_leaves_the_turn_alone(stage: Stage) -> None:
    gate = threading.Event()
    async with stage.codex() as codex:
        _, turn, reading = await _begun(stage, codex, gate)
        await reading.close()
        gate.set()
        result = await stage.call(turn.run)
    assert (result.status, result.final_response) == (TurnStatus.completed, "one two")
    assert text_of(reading.seen) == "one "
