"""A thread that changes its provider when something lies in the middle of it: three calls at once, an image that a tool
gave, a summary, a turn that was interrupted, a server that was killed. Every request keeps the rules of its API."""

from __future__ import annotations

import base64
from itertools import permutations
from pathlib import Path
from typing import Final

import pytest

from kit.app_program import stdio_server
from system.agent.journey import WIRES, at, journey, on
from system.agent.scene import shell, user_texts
from treadle.config import SUMMARY_PREFIX
from treadle.testing import AppServerHarness, HarnessClient, RecordedRequest, ToolCall
from wire_rules import check_request, wire_of

pytestmark = [pytest.mark.anyio, pytest.mark.responses_wire]  # each names its APIs itself

PIXEL: Final = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
WAYS: Final = [*permutations("abc", 2), ("a", "d"), ("c", "e")]
change = pytest.mark.parametrize(("before", "after"), WAYS, ids="".join)


def _checked(harness: AppServerHarness, *providers: str) -> list[RecordedRequest]:
    """All requests, which went to these providers."""
    requests = harness.model.requests()
    assert [wire_of(request) for request in requests] == [WIRES[provider] for provider in providers]
    for request in requests:
        check_request(request)
    return requests


async def _ask(harness: AppServerHarness, thread: str | None, provider: str, text: str) -> str:
    async with on(harness, thread, provider) as (client, thread_id):
        await _turn(client, thread_id, text)
    return thread_id


async def _turn(client: HarnessClient, thread: str, text: str) -> None:
    done = await client.run_turn(thread, text)
    assert done["turn"]["status"] == "completed", done


@change
async def test_three_calls_at_once_and_an_image_of_a_tool(tmp_path: Path, before: str, after: str) -> None:
    with journey(tmp_path) as harness:
        (harness.workspace / "dot.png").write_bytes(base64.b64decode(PIXEL))
        harness.model.enqueue_calls(
            ToolCall("exec_command", shell("echo first"), "one"),
            ToolCall("view_image", {"path": "dot.png"}, "two"),
            ToolCall("exec_command", shell("echo third"), "three"),
            reasoning="a thought",
        )
        for _ in range(3):
            harness.model.enqueue_assistant_message("ok", reasoning="another thought")
        thread = await _ask(harness, None, before, "question 0")
        await _ask(harness, thread, after, "question 1")
        await _ask(harness, thread, before, "question 2")
        *_, there, back = _checked(harness, before, before, after, before)
        for request in (there, back):
            assert set(request.tool_outputs) == {"one", "two", "three"}
            assert "first" in request.tool_outputs["one"]
            assert "third" in request.tool_outputs["three"]
            assert request.body.count(PIXEL.encode()) == 1
        assert b"thought" not in there.body
        assert (b"sealed-1" in back.body) == (WIRES[before] != "chat"), "who had the thought gets it back"


@change
async def test_a_summary(tmp_path: Path, before: str, after: str) -> None:
    """Made by the one, read by the other; what it stands for is gone, thoughts too."""
    with journey(tmp_path) as harness:
        harness.model.enqueue_calls(ToolCall("exec_command", shell("echo output"), "one"), reasoning="a thought")
        for text in ("answer 0", "the summary", "answer 1", "answer 2"):
            harness.model.enqueue_assistant_message(text)
        async with on(harness, None, before) as (client, thread):
            await _turn(client, thread, "question 0")
            await client.request("thread/compact/start", {"threadId": thread})
            await client.wait_for("turn/completed", lambda _: len(client.told("turn/completed")) == 2)
        await _ask(harness, thread, after, "question 1")
        await _ask(harness, thread, before, "question 2")
        *_, there, back = _checked(harness, before, before, before, after, before)
        for request in (there, back):
            assert user_texts(request)[0] == "question 0"
            assert request.input_texts("assistant")[0] == "the summary", "in the role of who wrote it"
            assert "\n".join(request.input_texts("developer")).count(SUMMARY_PREFIX) == 1
            assert request.tool_outputs == {}
            assert b"sealed-" not in request.body
        assert back.input_texts("assistant") == ["the summary", "answer 1"]


@change
async def test_a_turn_that_was_interrupted(tmp_path: Path, before: str, after: str) -> None:
    """While one command runs: the other provider hears that it has no result."""
    with journey(tmp_path) as harness:
        harness.model.enqueue_calls(
            ToolCall("exec_command", shell("echo done"), "one"),
            ToolCall("exec_command", shell("echo begun; exec sleep 3600"), "two"),
            text="I wait.",
        )
        harness.model.enqueue_assistant_message("answer 1")
        async with on(harness, None, before) as (client, thread):
            given = {"threadId": thread, "input": [{"type": "text", "text": "question 0"}]}
            turn = (await client.request("turn/start", given))["turn"]["id"]
            await client.wait_for("item/commandExecution/outputDelta", lambda params: "begun" in params["delta"])
            await client.request("turn/interrupt", {"threadId": thread, "turnId": turn})
            assert (await client.turn_end(turn))["turn"]["status"] == "interrupted"
        await _ask(harness, thread, after, "question 1")
        _, there = _checked(harness, before, after)
        assert there.input_texts("assistant") == ["I wait."]
        assert len(there.tool_outputs) == 2
        assert "aborted" in list(there.tool_outputs.values())[1]
        assert [text for text in there.input_texts("user") if text.startswith("question")] == [
            "question 0",
            "question 1",
        ]


@change
async def test_a_server_that_was_killed(tmp_path: Path, before: str, after: str) -> None:
    """While it asked whether a command may run: the call is kept, and nobody ever wrote a result for it."""
    with journey(tmp_path, approval_policy="untrusted") as harness:
        harness.model.enqueue_calls(ToolCall("exec_command", shell("touch made"), "one"), text="May I?")
        with stdio_server(harness) as program:
            program.client.initialize()
            thread = program.client.call("thread/start", at(before))["thread"]["id"]
            program.client.begin(thread, "question 0")
            program.client.wait_for("item/commandExecution/requestApproval")
            program.kill()
        harness.model.enqueue_assistant_message("answer 1")
        await _ask(harness, thread, after, "question 1")
        _, there = _checked(harness, before, after)
        assert there.input_texts("assistant") == ["May I?"]
        assert set(there.tool_outputs) == {"one"}
        assert not (harness.workspace / "made").exists()
