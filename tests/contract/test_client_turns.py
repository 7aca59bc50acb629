"""Turns through the SDK, over every way to reach a server and in both faces: run, stream, fail, collide."""

from __future__ import annotations

import asyncio
import math
import pickle
import threading
from typing import Any

import pytest

from contract import client_stage
from contract.client_stage import Stage, everywhere, items_of, methods_of, only, text_of
from treadle import CodexError, TurnConflict, TurnFailed
from treadle.testing import Usage
from treadle.types import TurnStatus

pytestmark = pytest.mark.anyio
stage = client_stage.stage


@everywhere
async def test_run_gives_what_the_agent_did(stage: Stage) -> None:
    stage.model.enqueue_assistant_message("Hello to you.", usage=Usage(input_tokens=7, output_tokens=3))
    async with stage.codex() as codex:
        thread = await stage.call(codex.thread_start)
        result = await stage.call(thread.run, "hello")
        (turn,) = (await stage.call(thread.read, include_turns=True)).thread.turns
    assert (result.final_response, result.status, result.error) == ("Hello to you.", TurnStatus.completed, None)
    assert isinstance(result.status, TurnStatus)
    assert [item.root.type for item in result.items] == ["agentMessage"]
    assert (result.usage.total.input_tokens, result.usage.total.output_tokens) == (7, 3)
    assert result.started_at <= result.completed_at
    assert result.duration_ms >= 0
    assert result.id == turn.id
    assert [item.type for item in turn.items] == ["userMessage", "agentMessage"]
    request = stage.model.single_request()
    assert (request.json["model"], request.json["stream"]) == ("mock-model", True)
    assert request.input_texts("user") == ["hello"]


@only("in process")
async def test_run_sends_one_text_item(stage: Stage) -> None:
    stage.model.enqueue_assistant_message("ok")
    async with stage.codex() as codex:
        thread = await stage.call(codex.thread_start)
        seen = await stage.read((await stage.call(thread.turn, "hello")).stream()).rest()
    said = next(item for item in items_of(seen) if item.type == "userMessage")
    assert [part.model_dump(by_alias=True, exclude_none=True) for part in said.content] == [
        {"type": "text", "text": "hello", "text_elements": []}
    ]


@everywhere
async def test_a_stream_has_all_of_its_turn_in_order(stage: Stage) -> None:
    stage.model.enqueue_assistant_message("one two three", deltas=["one ", "two ", "three"])
    async with stage.codex() as codex:
        thread = await stage.call(codex.thread_start)
        turn = await stage.call(thread.turn, "count")
        seen = await stage.read(turn.stream()).rest()
    methods = methods_of(seen)
    assert methods[0] == "turn/started"
    assert methods[-1] == "turn/completed"
    assert methods.count("turn/completed") == 1
    assert [event.payload.delta for event in seen if event.method == "item/agentMessage/delta"] == [
        "one ",
        "two ",
        "three",
    ]
    assert [item.type for item in items_of(seen)] == ["userMessage", "agentMessage"]
    assert seen[-1].payload.turn.status is TurnStatus.completed
    assert {getattr(event.payload, "turn_id", turn.id) for event in seen} == {turn.id}


async def test_a_turn_that_ended_long_ago_is_read_whole(stage: Stage) -> None:
    """However fast the server is: the turn is over before anybody reads its stream."""
    stage.model.enqueue_assistant_message("gone by")
    stage.model.enqueue_assistant_message("next")
    async with stage.codex() as codex:
        thread = await stage.call(codex.thread_start)
        other = await stage.call(codex.thread_start)
        turn = await stage.call(thread.turn, "be quick")
        # No stream is open, so the notifications of everything can be read; those of the turn stay with the turn.
        while (await stage.call(codex._client.next_notification)).method != "turn/completed":
            pass
        await stage.call(other.run, "meanwhile")
        seen = await stage.read(turn.stream()).rest()
    assert (methods_of(seen)[0], methods_of(seen)[-1], text_of(seen)) == ("turn/started", "turn/completed", "gone by")


async def test_two_streams_interleave(stage: Stage) -> None:
    first, second = threading.Event(), threading.Event()
    stage.model.enqueue_assistant_message("a1 a2", deltas=["a1 ", "a2"], gate=first, gate_after=3)
    async with stage.codex() as codex:
        threads = [await stage.call(codex.thread_start) for _ in range(2)]
        one = stage.read((await stage.call(threads[0].turn, "one")).stream())
        assert (await one.until("item/agentMessage/delta")).payload.delta == "a1 "
        stage.model.enqueue_assistant_message("b1 b2", deltas=["b1 ", "b2"], gate=second, gate_after=3)
        two = stage.read((await stage.call(threads[1].turn, "two")).stream())
        assert (await two.until("item/agentMessage/delta")).payload.delta == "b1 "
        first.set()
        assert (await one.until("item/agentMessage/delta")).payload.delta == "a2"
        second.set()
        assert (await two.until("item/agentMessage/delta")).payload.delta == "b2"
        ends = [(await reading.rest())[-1] for reading in (two, one)]
    assert [end.payload.thread_id for end in ends] == [threads[1].id, threads[0].id]
    for reading, thread in ((one, threads[0]), (two, threads[1])):
        assert {event.payload.thread_id for event in reading.seen} == {thread.id}


@everywhere
async def test_runs_side_by_side(stage: Stage) -> None:
    """Sync: from several threads. Each turn gets the answer to its own question."""
    stage.answer = lambda request: f"answer to {request.last_user_text}"
    async with stage.codex() as codex:
        threads = [await stage.call(codex.thread_start) for _ in range(5)]

        async def talk(number: int) -> list[str]:
            return [
                (await stage.call(threads[number].run, f"{number}.{question}")).final_response for question in range(2)
            ]

        answers = await asyncio.gather(*(talk(number) for number in range(5)))
    assert answers == [[f"answer to {number}.{question}" for question in range(2)] for number in range(5)]


async def test_a_failed_turn_raises_what_the_server_says(stage: Stage) -> None:
    stage.model.enqueue_error(400, {"error": {"message": "no such luck", "type": "invalid_request_error"}})
    stage.model.enqueue_assistant_message("better now")
    async with stage.codex() as codex:
        thread = await stage.call(codex.thread_start)
        with pytest.raises(RuntimeError, match="no such luck") as caught:
            await stage.call(thread.run, "fail")
        assert isinstance(caught.value, TurnFailed)
        assert isinstance(caught.value, CodexError)
        assert caught.value.turn is not None
        assert caught.value.turn.status is TurnStatus.failed
        assert (await stage.call(thread.run, "again")).final_response == "better now"


@only("in process")
async def test_a_failed_turn_ends_its_stream_without_an_error(stage: Stage) -> None:
    stage.model.enqueue_error(400, {"error": {"message": "no such luck", "type": "invalid_request_error"}})
    async with stage.codex() as codex:
        thread = await stage.call(codex.thread_start)
        end = (await stage.read((await stage.call(thread.turn, "fail")).stream()).rest())[-1].payload.turn
    assert (end.status, "no such luck" in end.error.message) == (TurnStatus.failed, True)


@only("in process")
async def test_the_run_of_a_handle_gives_the_completed_turn(stage: Stage) -> None:
    stage.model.enqueue_assistant_message("done")
    async with stage.codex() as codex:
        thread = await stage.call(codex.thread_start)
        turn = await stage.call(thread.turn, "go")
        result = await stage.call(turn.run)
    assert (result.id, result.status, result.final_response) == (turn.id, TurnStatus.completed, "done")


async def test_a_thread_has_one_turn_at_a_time(stage: Stage) -> None:
    gate = threading.Event()
    stage.model.enqueue_assistant_message("first", gate=gate)
    stage.model.enqueue_assistant_message("second")
    async with stage.codex() as codex:
        thread = await stage.call(codex.thread_start)
        turn = await stage.call(thread.turn, "one")
        for attempt in (thread.turn, thread.run):
            with pytest.raises(RuntimeError, match=r"already has active turn.*steer") as caught:
                await stage.call(attempt, "two")
            assert isinstance(caught.value, TurnConflict)
            assert turn.id in str(caught.value)
        gate.set()
        assert (await stage.call(turn.run)).final_response == "first"
        assert (await stage.call(thread.run, "two")).final_response == "second"
    assert [request.last_user_text for request in stage.model.requests()] == ["one", "two"]


@only("in process")
async def test_a_turn_may_start_while_the_end_of_the_last_was_not_read(stage: Stage) -> None:
    stage.model.enqueue_assistant_message("first")
    stage.model.enqueue_assistant_message("second")
    async with stage.codex() as codex:
        thread = await stage.call(codex.thread_start)
        first = await stage.call(thread.turn, "one")
        while (await stage.call(codex._client.next_notification)).method != "turn/completed":
            pass
        second = await stage.call(thread.turn, "two")
        answers = [(await stage.call(turn.run)).final_response for turn in (second, first)]
    assert answers == ["second", "first"]


async def test_the_notifications_of_all_are_refused_while_a_turn_is_read(stage: Stage) -> None:
    gate = threading.Event()
    stage.model.enqueue_assistant_message("one two", deltas=["one ", "two"], gate=gate, gate_after=3)
    async with stage.codex() as codex:
        thread = await stage.call(codex.thread_start)
        reading = stage.read((await stage.call(thread.turn, "go")).stream())
        await reading.until("item/agentMessage/delta")
        with pytest.raises(RuntimeError, match=r"next_notification\(\) is incompatible"):
            await stage.call(codex._client.next_notification)
        gate.set()
        await reading.rest()
        assert (await stage.call(codex._client.next_notification)).method == "thread/started"


async def test_a_turn_has_one_reader_who_may_come_back(stage: Stage) -> None:
    gate = threading.Event()
    stage.model.enqueue_assistant_message("one two", deltas=["one ", "two"], gate=gate, gate_after=3)
    async with stage.codex() as codex:
        thread = await stage.call(codex.thread_start)
        turn = await stage.call(thread.turn, "go")
        first = stage.read(turn.stream())
        await first.until("item/agentMessage/delta")
        with pytest.raises(TurnConflict, match="is being read already"):
            await stage.call(turn.run)
        await first.close()
        gate.set()
        later = await stage.read(turn.stream()).rest()
        with pytest.raises(TurnConflict, match="has ended"):
            await stage.call(turn.run)
    assert text_of(first.seen) + text_of(later) == "one two"


@everywhere
async def test_the_low_level_client_alone(stage: Stage) -> None:
    stage.model.enqueue_assistant_message("one two", deltas=["one ", "two"])
    client = stage.client()
    await stage.call(client.start)
    try:
        assert (await stage.call(client.initialize)).userAgent
        thread_id = (await stage.call(client.thread_start, {})).thread.id
        turn_id = (await stage.call(client.turn_start, thread_id, "go")).turn.id
        seen: list[Any] = []
        while not seen or seen[-1].method != "turn/completed":
            seen.append(await stage.call(client.next_turn_notification, thread_id, turn_id))
    finally:
        await stage.call(client.close)
    assert text_of(seen) == "one two"


async def test_no_limit_at_all(stage: Stage) -> None:
    for text in ("one", "two", "three"):
        stage.model.enqueue_assistant_message(text)
    async with stage.codex() as codex:
        codex._client.config.request_timeout = math.inf
        thread = await stage.call(codex.thread_start, timeout=math.inf)
        assert (await stage.call(thread.run, "1", timeout=math.inf)).final_response == "one"
        turn = await stage.call(thread.turn, "2", timeout=math.inf)
        assert (await stage.read(turn.stream(timeout=math.inf)).rest())[-1].method == "turn/completed"
        assert (await stage.read(thread.events("3", timeout=math.inf)).rest())[-1].result.final_response == "three"
        assert (await stage.call(thread.read, timeout=10**400)).thread.id == thread.id


@pytest.mark.every_wire
@only("in process")
async def test_why_a_provider_gave_no_answer(stage: Stage) -> None:
    stage.configure(provider={"request_max_retries": 0, "stream_max_retries": 0})
    async with stage.codex() as codex:
        thread = await stage.call(codex.thread_start)
        for status, kind, advice in (
            (401, "unauthorized", "treadle login mock"),
            (404, "not_found", "treadle models --provider mock"),
            (429, "rate_limited", "the same again in a minute"),
        ):
            headers = {"retry-after": "7"} if status == 429 else {}
            stage.model.enqueue_error(status, {"error": {"message": f"no such luck: {kind}"}}, headers)
            with pytest.raises(TurnFailed, match=f"no such luck: {kind}") as caught:
                await stage.call(thread.run, "go")
            error = caught.value
            assert (error.kind, error.status) == (kind, status)
            assert error.retry_after == (7 if status == 429 else None)
            assert error.advice is not None
            assert error.advice.startswith(advice)
            copy = pickle.loads(pickle.dumps(error))
            assert (copy.kind, copy.status, copy.advice) == (error.kind, error.status, error.advice)
