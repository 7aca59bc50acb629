"""One thread goes through providers of all three wire APIs and back: nothing that was said is lost, every request keeps
the rules of the API that it is for, and a thought goes back only to who had it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

import pytest

from system.agent.journey import WIRES, at, journey, on
from system.agent.scene import DEADLINE, patch, shell
from treadle.errors import RpcError
from treadle.llm import KNOWN
from treadle.testing import AppServerHarness, RecordedRequest, ToolCall
from wire_rules import check_request, wire_of

pytestmark = [pytest.mark.anyio, pytest.mark.responses_wire]  # each names its APIs itself

PIXEL: Final = "data:image/png;base64,AAAA"
# As long as the Responses API has them, and with letters that others do not take.
CALL_ID: Final = "call.{}|" + "x" * 50


def _enqueue(harness: AppServerHarness, provider: str, leg: int) -> None:
    """A thought, words, a command and a patch; then a thought and an answer."""
    call_id = CALL_ID if WIRES[provider] == "responses" else "call_{}"
    harness.model.enqueue_calls(
        ToolCall("exec_command", shell(f"echo output {leg}"), call_id.format(f"{leg}a")),
        ToolCall(
            "apply_patch", patch(f"*** Add File: {leg}.txt", f"+patch {leg}"), call_id.format(f"{leg}b"), custom=True
        ),
        text=f"words {leg}",
        reasoning=f"thought {leg}",
    )
    harness.model.enqueue_assistant_message(f"answer {leg}", reasoning=f"conclusion {leg}")


async def _leg(harness: AppServerHarness, thread: str | None, provider: str, leg: int) -> str:
    _enqueue(harness, provider, leg)
    async with on(harness, thread, provider) as (client, thread_id):
        given = [{"type": "text", "text": f"question {leg}"}, {"type": "image", "url": PIXEL}]
        turn = (await client.request("turn/start", {"threadId": thread_id, "input": given}))["turn"]
        done = await client.turn_end(turn["id"])
        assert done["turn"]["status"] == "completed", done
    assert (harness.workspace / f"{leg}.txt").read_text() == f"patch {leg}\n"
    return thread_id


def _sealed(leg: int) -> tuple[bytes, bytes]:
    """The proofs of the thoughts of a leg, as the mock model numbers them."""
    return b'"sealed-%d"' % (2 * leg + 1), b'"sealed-%d"' % (2 * leg + 2)


def _check_meaning(request: RecordedRequest, legs: int) -> None:
    """The last request of a leg has all that was said and done before, in order."""
    questions = [text for text in request.input_texts("user") if text.startswith("question")]
    assert questions == [f"question {leg}" for leg in range(legs)]
    said = [text for text in request.input_texts("assistant") if not text.startswith(("thought", "conclusion"))]
    expected = [text for leg in range(legs) for text in (f"words {leg}", f"answer {leg}")]
    assert said == expected[:-1]
    outputs = list(request.tool_outputs.values())
    assert len(outputs) == 2 * legs
    for leg in range(legs):
        assert f"output {leg}" in outputs[2 * leg]
        assert f"{leg}.txt" in outputs[2 * leg + 1]
    assert str(request.input).count(PIXEL) == legs


@pytest.mark.parametrize("way", ["abca", "acba", "bcab", "adad", "cecb", "abdcea"])
async def test_a_thread_keeps_its_meaning_whoever_answers(tmp_path: Path, way: str) -> None:
    with journey(tmp_path) as harness:
        thread = None
        for leg, provider in enumerate(way):
            thread = await _leg(harness, thread, provider, leg)
            for request in harness.model.requests()[2 * leg :]:
                assert wire_of(request) == WIRES[provider]
                check_request(request)
                _check_thoughts(request, way[: leg + 1])
            _check_meaning(harness.model.requests()[-1], leg + 1)


def _check_thoughts(request: RecordedRequest, way: str) -> None:
    for leg, provider in enumerate(way[:-1]):
        for sealed in _sealed(leg):
            mine = provider == way[-1] and WIRES[provider] != "chat"  # where thoughts have no seal
            assert (sealed in request.body) == mine, f"{sealed!r} of {provider} in a request to {way[-1]}"
        if provider != way[-1]:
            assert b"thought %d" % leg not in request.body


async def test_a_fork_may_go_to_another_provider(tmp_path: Path) -> None:
    with journey(tmp_path) as harness:
        thread = await _leg(harness, None, "a", 0)
        _enqueue(harness, "c", 1)
        async with asyncio.timeout(DEADLINE), harness.connect() as client:
            fork = (await client.request("thread/fork", {**at("c"), "threadId": thread}))["thread"]["id"]
            assert (await client.run_turn(fork, "question 1"))["turn"]["status"] == "completed"
        for request in harness.model.requests()[2:]:
            check_request(request)
            assert not any(sealed in request.body for sealed in _sealed(0))


async def test_a_server_behind_another_url_is_another_provider(tmp_path: Path) -> None:
    """The same name in config.toml, but not the server that has encrypted the thoughts."""
    with journey(tmp_path) as harness:
        thread = await _leg(harness, None, "a", 0)
        config = harness.home / "config.toml"
        config.write_text(config.read_text().replace("/v1", ""))
        await _leg(harness, thread, "a", 1)
        assert not any(sealed in harness.model.requests()[-1].body for sealed in _sealed(0))
        assert all(sealed in harness.model.requests()[-1].body for sealed in _sealed(1)[:1])


# --- how it is asked for ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["thread/resume", "thread/fork"])
async def test_another_provider_brings_its_own_model(tmp_path: Path, method: str) -> None:
    """That of the old one is not known there."""
    with journey(tmp_path) as harness:
        config = harness.home / "config.toml"
        config.write_text(config.read_text().replace('model = "mock-model"\n', "", 1))
        thread = await _leg(harness, None, "a", 0)
        async with asyncio.timeout(DEADLINE), harness.connect() as client:
            given = {"threadId": thread, "modelProvider": "anthropic"}
            answer = await client.request(method, given)
            assert (answer["modelProvider"], answer["model"]) == ("anthropic", KNOWN["anthropic"].model)
            assert answer["thread"]["modelProvider"] == "anthropic"


@pytest.mark.parametrize("method", ["thread/resume", "thread/fork"])
async def test_a_provider_that_is_not_there_is_refused(tmp_path: Path, method: str) -> None:
    with journey(tmp_path) as harness:
        thread = await _leg(harness, None, "a", 0)
        async with asyncio.timeout(DEADLINE), harness.connect() as client:
            with pytest.raises(RpcError, match=r"model provider `nope` not found"):
                await client.request(method, {"threadId": thread, "modelProvider": "nope"})
            with pytest.raises(RpcError, match=r"model provider `nope` not found"):
                await client.request("thread/start", {"modelProvider": "nope"})
            answer = await client.request("thread/resume", {"threadId": thread})
            assert (answer["modelProvider"], answer["model"]) == ("a", "model-of-responses")


async def test_a_thread_in_memory_goes_to_another_provider(tmp_path: Path) -> None:
    """By thread/resume: a turn has no word for it. The history that is in memory goes with it, without the thoughts."""
    with journey(tmp_path) as harness:
        _enqueue(harness, "a", 0)
        _enqueue(harness, "c", 1)
        async with on(harness, None, "a") as (client, thread):
            assert (await client.run_turn(thread, "question 0"))["turn"]["status"] == "completed"
            answer = await client.request("thread/resume", {**at("c"), "threadId": thread})
            assert (answer["modelProvider"], answer["model"]) == ("c", "model-of-anthropic")
            assert (await client.run_turn(thread, "question 1"))["turn"]["status"] == "completed"
        assert list(map(wire_of, harness.model.requests())) == ["responses"] * 2 + ["anthropic"] * 2
        for request in harness.model.requests()[2:]:
            check_request(request)
            assert not any(sealed in request.body for sealed in _sealed(0))
