"""Compaction: by hand and by itself, when it fails, and what the model and the user have afterwards."""

from __future__ import annotations

from pathlib import Path

import pytest

from system.agent.order import check_thread
from system.agent.scene import Scene, gate, scene, shell
from treadle.config import COMPACT_PROMPT, SUMMARY_PREFIX
from treadle.testing import RecordedRequest, Usage

pytestmark = [pytest.mark.anyio, pytest.mark.every_wire]


async def _compact(stage: Scene, thread: str) -> str:
    """The status of the turn that compacts."""
    turns = len(stage.client.told("turn/completed"))
    await stage.client.request("thread/compact/start", {"threadId": thread})
    await stage.client.wait_for("turn/completed", lambda _: len(stage.client.told("turn/completed")) > turns)
    status: str = stage.client.told("turn/completed")[-1]["params"]["turn"]["status"]
    return status


def _said(request: RecordedRequest) -> list[tuple[str, str]]:
    """What the model is given of the conversation, without what stands before it."""
    told: list[tuple[str, str]] = []
    for item in request.input:
        if item.get("role") in ("user", "assistant"):
            told += [(item["role"], part["text"]) for part in item["content"]]
        elif item["type"] != "message":
            told.append((item["type"], str(item["call_id"])))
    return told


async def _talk(stage: Scene, thread: str, *texts: str) -> list[str]:
    turns = []
    for text in texts:
        stage.model.enqueue_assistant_message(f"answer to {text}")
        turns.append(await stage.begin(thread, text))
        await stage.end(turns[-1])
    return turns


async def test_by_hand(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        thread = await stage.start()
        stage.model.enqueue_function_call("exec_command", shell("true"), call_id="c1")
        await _talk(stage, thread, "one", "two")
        stage.model.enqueue_assistant_message("we counted", usage=Usage(input_tokens=50, output_tokens=5))
        assert await _compact(stage, thread) == "completed"
        asked = stage.model.requests()[-1]
        if stage.harness.wire_api == "responses":  # the others want to know the tools of a conversation with calls
            assert asked.json["tools"] == []
        assert asked.last_user_text == COMPACT_PROMPT
        assert [item["type"] for item in stage.completed("contextCompaction")] == ["contextCompaction"]
        await _talk(stage, thread, "three")
        after = stage.model.requests()[-1]
        assert _said(after) == [
            ("assistant", "we counted"),
            ("user", "one"),
            ("user", "two"),
            ("user", "three"),
        ]
        assert SUMMARY_PREFIX in "\n".join(after.input_texts("developer"))
        assert [turn["status"] for turn in await stage.read(thread)] == ["completed"] * 4
        assert len([item for item in await stage.items(thread) if item["type"] == "agentMessage"]) == 3
        await check_thread(stage, thread, asked_for=False)


async def test_the_usage_of_a_compaction_counts_and_the_context_is_small_again(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        thread = await stage.start()
        stage.model.enqueue_assistant_message("a", usage=Usage(input_tokens=90_000, output_tokens=10))
        await stage.run(thread)
        stage.model.enqueue_assistant_message("summary", usage=Usage(input_tokens=90_020, output_tokens=3))
        await _compact(stage, thread)
        last = stage.client.told("thread/tokenUsage/updated")[-1]["params"]["tokenUsage"]
        assert last["total"]["totalTokens"] == 90_010 + 90_023
        assert last["last"]["totalTokens"] < 1000


async def test_by_itself_before_the_window_is_full(tmp_path: Path) -> None:
    async with scene(tmp_path, settings={"model_auto_compact_token_limit": 500}) as stage:
        thread = await stage.start()
        stage.model.enqueue_assistant_message("long", usage=Usage(input_tokens=490, output_tokens=10))
        await stage.run(thread, "one")
        stage.model.enqueue_assistant_message("the summary")
        stage.model.enqueue_assistant_message("short", usage=Usage(input_tokens=20, output_tokens=1))
        turn = await stage.begin(thread, "two")
        assert (await stage.end(turn))["status"] == "completed"
        first, asked, after = stage.model.requests()
        assert _said(first) == [("user", "one")]
        assert asked.last_user_text == COMPACT_PROMPT
        assert _said(after) == [("assistant", "the summary"), ("user", "one"), ("user", "two")]
        (item,) = stage.completed("contextCompaction")
        assert item["id"]
        stage.model.enqueue_assistant_message("no compaction now")
        await stage.run(thread, "three")
        assert len(stage.model.requests()) == 4
        await check_thread(stage, thread)


async def test_by_itself_in_the_middle_of_a_turn(tmp_path: Path) -> None:
    async with scene(tmp_path, settings={"model_auto_compact_token_limit": 500}) as stage:
        thread = await stage.start()
        stage.model.enqueue_function_call(
            "exec_command", shell("echo x"), call_id="c1", usage=Usage(input_tokens=600, output_tokens=1)
        )
        stage.model.enqueue_assistant_message("I ran a command")
        stage.model.enqueue_assistant_message("done")
        assert (await stage.run(thread, "do it"))["status"] == "completed"
        asked, after = stage.model.requests()[1:]
        assert "c1" in asked.tool_outputs
        assert _said(after) == [("assistant", "I ran a command"), ("user", "do it")]
        await check_thread(stage, thread)


async def test_a_context_that_was_too_long_is_compacted_next_time(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        thread = await stage.start()
        failure = {"error": {"code": "context_length_exceeded", "message": "too long"}}
        stage.model.enqueue_error(400, failure)
        assert (await stage.run(thread, "one"))["error"]["codexErrorInfo"] == "contextWindowExceeded"
        stage.model.enqueue_assistant_message("summary")
        stage.model.enqueue_assistant_message("fine")
        assert (await stage.run(thread, "two"))["status"] == "completed"
        assert stage.model.requests()[1].last_user_text == COMPACT_PROMPT
        await check_thread(stage, thread)


async def test_a_failure_changes_nothing(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        thread = await stage.start()
        await _talk(stage, thread, "one")
        stage.model.enqueue_error(400, "no")
        assert await _compact(stage, thread) == "failed"
        assert stage.completed("contextCompaction") == []
        await _talk(stage, thread, "two")
        assert _said(stage.model.requests()[-1]) == [("user", "one"), ("assistant", "answer to one"), ("user", "two")]
        await check_thread(stage, thread, asked_for=False)


async def test_an_interrupt_changes_nothing(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        thread = await stage.start()
        (first,) = await _talk(stage, thread, "one")
        stage.model.enqueue_assistant_message("half", gate=gate())
        await stage.client.request("thread/compact/start", {"threadId": thread})
        await stage.model.arrived(2)
        started = await stage.client.wait_for("turn/started", lambda params: params["turn"]["id"] != first)
        turn = started["params"]["turn"]["id"]
        await stage.interrupt(thread, turn)
        assert (await stage.end(turn))["status"] == "interrupted"
        await _talk(stage, thread, "two")
        assert _said(stage.model.requests()[-1]) == [("user", "one"), ("assistant", "answer to one"), ("user", "two")]
        await check_thread(stage, thread, asked_for=False)


async def test_it_interrupts_a_turn_that_runs(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        thread = await stage.start()
        stage.model.enqueue_assistant_message("never", gate=gate())
        turn = await stage.begin(thread, "one")
        await stage.model.arrived(1)
        stage.model.enqueue_assistant_message("summary")
        await stage.client.request("thread/compact/start", {"threadId": thread})
        assert (await stage.end(turn))["status"] == "interrupted"
        await stage.client.wait_for("turn/completed", lambda params: params["turn"]["id"] != turn)
        assert len(stage.completed("contextCompaction")) == 1
        await check_thread(stage, thread, asked_for=False)


async def test_the_newest_message_survives_however_long_it_is(tmp_path: Path) -> None:
    async with scene(tmp_path, settings={"model_auto_compact_token_limit": 500}) as stage:
        thread = await stage.start()
        stage.model.enqueue_assistant_message("a", usage=Usage(input_tokens=600, output_tokens=1))
        assert (await stage.run(thread, "old " * 30_000))["status"] == "completed"
        assert stage.model.requests()[-1].input_texts("user") == ["old " * 30_000]
        stage.model.enqueue_assistant_message("summary")
        stage.model.enqueue_assistant_message("b")
        assert (await stage.run(thread, "new " * 30_000))["status"] == "completed"
        assert _said(stage.model.requests()[-1]) == [
            ("assistant", "summary"),
            ("user", "old " * 30_000),
            ("user", "new " * 30_000),
        ]


@pytest.mark.parametrize("how", ["revert", "rollback"])
async def test_turns_undone_across_a_compaction_bring_the_history_back(tmp_path: Path, how: str) -> None:
    async with scene(tmp_path) as stage:
        thread = await stage.start()
        turns = await _talk(stage, thread, "one", "two")
        stage.model.enqueue_assistant_message("summary")
        await _compact(stage, thread)
        await _talk(stage, thread, "three")
        if how == "revert":
            await stage.client.request("thread/revert", {"threadId": thread, "beforeTurnId": turns[1]})
        else:
            await stage.client.request("thread/rollback", {"threadId": thread, "numTurns": 3})
        await _talk(stage, thread, "four")
        assert _said(stage.model.requests()[-1]) == [("user", "one"), ("assistant", "answer to one"), ("user", "four")]
        assert len(await stage.read(thread)) == 2


async def test_turns_undone_after_a_compaction_keep_it(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        thread = await stage.start()
        await _talk(stage, thread, "one")
        stage.model.enqueue_assistant_message("summary")
        await _compact(stage, thread)
        (turn,) = await _talk(stage, thread, "two")
        await stage.client.request("thread/revert", {"threadId": thread, "beforeTurnId": turn})
        await _talk(stage, thread, "three")
        assert _said(stage.model.requests()[-1]) == [("assistant", "summary"), ("user", "one"), ("user", "three")]


async def test_a_fork_knows_what_its_source_knew(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        thread = await stage.start()
        (first,) = await _talk(stage, thread, "one")
        stage.model.enqueue_assistant_message("summary")
        await _compact(stage, thread)
        fork = (await stage.client.request("thread/fork", {"threadId": thread}))["thread"]["id"]
        await _talk(stage, fork, "in the fork")
        assert _said(stage.model.requests()[-1]) == [
            ("assistant", "summary"),
            ("user", "one"),
            ("user", "in the fork"),
        ]
        early = await stage.client.request("thread/fork", {"threadId": thread, "lastTurnId": first})
        await _talk(stage, early["thread"]["id"], "before it")
        assert _said(stage.model.requests()[-1]) == [
            ("user", "one"),
            ("assistant", "answer to one"),
            ("user", "before it"),
        ]


async def test_a_compacted_thread_is_loaded_again(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        thread = await stage.start()
        await _talk(stage, thread, "one")
        stage.model.enqueue_assistant_message("summary")
        await _compact(stage, thread)
        await stage.server.threads.unload(thread)
        await stage.client.request("thread/resume", {"threadId": thread})
        await _talk(stage, thread, "two")
        assert _said(stage.model.requests()[-1]) == [("assistant", "summary"), ("user", "one"), ("user", "two")]
