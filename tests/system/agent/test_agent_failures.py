"""What becomes of a turn when the model fails: the table of errors, retries, and a thread that goes on."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest

from system.agent.order import check_thread
from system.agent.scene import Json, Scene, failed, gate, scene, shell
from treadle.agent.turn import sampling
from treadle.llm import ModelError, failure
from treadle.testing import Usage, item_events, message_events, message_item, stream

pytestmark = [pytest.mark.anyio, pytest.mark.every_wire]

CREATED: Json = {"type": "response.created", "response": {"id": "r"}}


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float | None]:
    """No waiting between attempts; what the provider asked for is noted."""
    asked: list[float | None] = []

    def pause_after(error: ModelError, attempt: int, limit: int, *, answered: bool) -> float | None:
        if failure.pause_after(error, attempt, limit, answered=answered) is None:
            return None
        asked.append(error.retry_after_s)
        return 0.0

    monkeypatch.setattr(sampling, "pause_after", pause_after)
    return asked


def _with(kind: str, status: int | None) -> Json:
    return {kind: {"httpStatusCode": status}}


# What the server says is told whichever API it speaks; over Responses in the sentence that Codex makes of it.
HTTP = [
    (400, {"message": "bad thing"}, "bad thing", "bad thing", "other"),
    (401, {"message": "key?"}, "key?, url:", "status 401 Unauthorized: key?", _with("httpConnectionFailed", 401)),
    (503, {"message": "x"}, "x, url:", "status 503 Service Unavailable: x", _with("httpConnectionFailed", 503)),
    (429, {"message": "slow"}, "slow", "429 Too Many Requests: slow", _with("responseTooManyFailedAttempts", 429)),
    (429, {"message": "pay", "code": "insufficient_quota"}, "no credit left", "quota", "usageLimitExceeded"),
    (429, {"message": "pay", "type": "usage_limit_reached"}, "", "usage limit", "usageLimitExceeded"),
    (500, {"message": "x"}, "HTTP 500", "high demand", "internalServerError"),
]


@pytest.mark.parametrize(("status", "error", "said", "as_codex", "info"), HTTP)
async def test_an_http_status_fails_the_turn(
    tmp_path: Path, status: int, error: Json, said: str, as_codex: str, info: Any
) -> None:
    async with scene(tmp_path) as stage:
        stage.model.enqueue_error(status, {"error": error})
        thread = await stage.start()
        await _check_failure(stage, thread, as_codex if stage.harness.wire_api == "responses" else said, info)


STREAMS = [
    (failed("server_error", "boom"), "stream disconnected before completion: ", "other"),
    (failed("context_length_exceeded", "x"), "context window", "contextWindowExceeded"),
    (failed("insufficient_quota", "x"), "", "usageLimitExceeded"),
    (None, "stream disconnected before completion: stream closed before ", "other"),
]


@pytest.mark.parametrize(("last", "message", "info"), STREAMS)
async def test_a_stream_that_breaks_off_fails_the_turn(tmp_path: Path, last: Any, message: str, info: Any) -> None:
    async with scene(tmp_path) as stage:
        item = message_item("msg_part", "half a", None)
        begun = [CREATED, *list(message_events(item, ["half a"]))[:-1]]
        stage.model.enqueue_sse([*begun, *([] if last is None else [last])])
        thread = await stage.start()
        await _check_failure(stage, thread, message, info)
        assert stage.client.told("item/agentMessage/delta"), "what came was shown"
        assert [item["text"] for item in stage.completed("agentMessage")] == ["better"]
        broken, _ = await stage.read(thread)
        assert [item["type"] for item in broken["items"]] == ["userMessage"]
        assert "half a" not in str(stage.model.requests()[-1].json)


@pytest.mark.parametrize("reason", ["max_output_tokens", "content_filter"])
async def test_an_answer_that_stops_too_early_fails_the_turn_and_is_kept(tmp_path: Path, reason: str) -> None:
    """The model has said it: it is shown, and it is in the next request."""
    async with scene(tmp_path, provider={"stream_max_retries": 3}) as stage:
        stopped = {"type": "response.incomplete", "response": {"incomplete_details": {"reason": reason}}}
        item = message_item("msg_part", "half a", None)
        stage.model.enqueue_sse([CREATED, *message_events(item, ["half a"]), stopped])
        thread = await stage.start()
        await _check_failure(stage, thread, "", "other")
        assert len(stage.model.requests()) == 2, "to ask for the same again gives the same again"
        assert stage.model.requests()[-1].input_texts("assistant") == ["half a"]


async def _check_failure(stage: Scene, thread: str, message: str, info: Any) -> None:
    """The turn fails with this error, in the order that the spec has, and the next turn works."""
    turn = await stage.run(thread, "hello")
    assert turn["status"] == "failed"
    assert message in turn["error"]["message"]
    assert turn["error"]["codexErrorInfo"] == info
    status, error, completed = stage.client.messages[-3:]
    assert status["params"]["status"] == {"type": "systemError"}
    assert error["params"]["willRetry"] is False
    assert error["params"]["error"] == completed["params"]["turn"]["error"] == turn["error"]
    for _ in range(2):  # a context that was too long is compacted first
        stage.model.enqueue_assistant_message("better")
    assert (await stage.run(thread, "again"))["status"] == "completed"
    assert stage.model.requests()[-1].input_texts("user") == ["hello", "again"]
    statuses = [told["params"]["status"]["type"] for told in stage.client.told("thread/status/changed")]
    assert statuses == ["active", "systemError", "active", "idle"]
    await check_thread(stage, thread)


async def test_a_cut_stream_is_asked_for_again(tmp_path: Path) -> None:
    async with scene(tmp_path, provider={"stream_max_retries": 2}) as stage:
        stage.model.enqueue_assistant_message(
            "one two", deltas=["one ", "two"], cut_after=3, usage=Usage(input_tokens=70)
        )
        stage.model.enqueue_assistant_message("one two", usage=Usage(input_tokens=7, output_tokens=1))
        thread = await stage.start()
        assert (await stage.run(thread))["status"] == "completed"
        (notice,) = stage.client.told("error")
        assert notice["params"]["willRetry"] is True
        assert notice["params"]["error"]["message"] == "Reconnecting... 1/2"
        assert "responseStreamDisconnected" in notice["params"]["error"]["codexErrorInfo"]
        assert "stream disconnected" in notice["params"]["error"]["additionalDetails"]
        assert [item["text"] for item in stage.completed("agentMessage")] == ["one two"]
        (usage,) = stage.client.told("thread/tokenUsage/updated")
        assert usage["params"]["tokenUsage"]["total"]["totalTokens"] == 8
        await check_thread(stage, thread)


async def test_retries_end(tmp_path: Path) -> None:
    async with scene(tmp_path, provider={"stream_max_retries": 2}) as stage:
        for _ in range(3):
            stage.model.enqueue_sse([CREATED])
        thread = await stage.start()
        turn = await stage.run(thread)
        assert turn["status"] == "failed"
        told = [(m["params"]["error"]["message"], m["params"]["willRetry"]) for m in stage.client.told("error")]
        assert told == [
            ("Reconnecting... 1/2", True),
            ("Reconnecting... 2/2", True),
            (turn["error"]["message"], False),
        ]
        assert len(stage.model.requests()) == 3
        await check_thread(stage, thread)


async def test_what_was_said_before_the_cut_is_kept(tmp_path: Path) -> None:
    """Items that were complete stay, calls are done once, and the next attempt knows of both."""
    async with scene(tmp_path, provider={"stream_max_retries": 1}) as stage:
        said = message_item("msg_a", "I look", None)
        call = {"type": "function_call", "id": "fc_a", "call_id": "c1", "name": "exec_command", "status": "completed"}
        call["arguments"] = '{"cmd": "echo x >> seen; echo found", "login": false}'
        whole = stream("r", [*message_events(said, ["I look"]), *item_events(call, 1)], [said, call], None)
        stage.model.enqueue_sse(whole[:-1])
        if not _calls_end_alone(stage):
            stage.model.enqueue_function_call("exec_command", call["arguments"], call_id="c1")
        stage.model.enqueue_assistant_message("done")
        thread = await stage.start()
        assert (await stage.run(thread))["status"] == "completed"
        last = stage.model.requests()[-1]
        assert last.input_texts("assistant") == ["I look"]
        assert "found" in last.tool_outputs["c1"]
        assert (stage.workspace / "seen").read_text() == "x\n"
        assert stage.model.pending == 0
        await check_thread(stage, thread)


def _calls_end_alone(stage: Scene) -> bool:
    """In Chat Completions nothing says that a call is whole but the end of the response."""
    return stage.harness.wire_api != "chat"


async def test_a_steer_between_attempts_is_in_the_next_request_at_the_latest(tmp_path: Path) -> None:
    async with scene(tmp_path, provider={"stream_max_retries": 1}) as stage:
        steered = gate()
        stage.model.enqueue_sse([CREATED])
        stage.model.enqueue_assistant_message("a", gate=steered)
        stage.model.enqueue_assistant_message("b")
        thread = await stage.start()
        turn = await stage.begin(thread, "one")
        await stage.steer(thread, turn, "two")
        steered.set()
        assert (await stage.end(turn))["status"] == "completed"
        assert stage.model.requests()[-1].input_texts("user") == ["one", "two"]
        await check_thread(stage, thread)


async def test_the_provider_says_how_long_to_wait(tmp_path: Path, pauses: list[float | None]) -> None:
    async with scene(tmp_path, provider={"stream_max_retries": 2}) as stage:
        stage.model.enqueue_error(502, {"error": {"message": "later"}}, {"Retry-After": "7"})
        stage.model.enqueue_sse([CREATED, failed("rate_limit_exceeded", "Please try again in 1.5s.")])
        stage.model.enqueue_assistant_message("a")
        thread = await stage.start()
        assert (await stage.run(thread))["status"] == "completed"
        in_words = None if stage.harness.wire_api == "anthropic" else 1.5  # whose servers have no such words
        assert pauses == [7.0, in_words]


@pytest.mark.every_wire
@pytest.mark.parametrize("status", [500, 529])
async def test_silent_retries_are_made_once_in_a_turn(
    tmp_path: Path, pauses: list[float | None], monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.setattr(failure, "FIRST_PAUSE_S", 0.001)
    async with scene(tmp_path, provider={"request_max_retries": 3, "stream_max_retries": 4}) as stage:
        for _ in range(20):
            stage.model.enqueue_error(status, {"error": {"message": "not now"}})
        assert (await stage.run(await stage.start()))["status"] == "failed"
        assert len(stage.model.requests()) == 1 + 3 + 4
        assert len(pauses) == 4


async def test_too_many_requests_are_sent_again_when_the_provider_says(
    tmp_path: Path, pauses: list[float | None]
) -> None:
    async with scene(tmp_path, provider={"stream_max_retries": 3}) as stage:
        stage.model.enqueue_error(429, {"error": {"message": "slow down"}})
        stage.model.enqueue_error(429, {"error": {"message": "slower"}}, {"retry-after-ms": "250"})
        stage.model.enqueue_error(429, {"error": {"message": "slowest"}}, {"Retry-After": "0.1"})
        stage.model.enqueue_assistant_message("a")
        thread = await stage.start()
        assert (await stage.run(thread))["status"] == "completed"
        assert pauses == [None, 0.25, 0.1]
        notices = [told["params"]["error"] for told in stage.client.told("error")]
        assert [notice["message"] for notice in notices] == [f"Reconnecting... {n}/3" for n in (1, 2, 3)]
        for notice, said in zip(notices, ("slow down", "slower", "slowest"), strict=True):
            assert "429" in notice["additionalDetails"]
            assert said in notice["additionalDetails"]


@pytest.mark.parametrize(
    ("body", "headers", "says", "info"),
    [
        ({"error": {"message": "x", "code": "insufficient_quota"}}, {}, "", "usageLimitExceeded"),
        ({"error": {"message": "x", "type": "usage_limit_reached"}}, {"Retry-After": "1"}, "", "usageLimitExceeded"),
        (
            {"error": {"message": "slow down"}},
            {"Retry-After": "3600"},
            "slow down (the server asks to wait 3600 s)",
            _with("responseTooManyFailedAttempts", 429),
        ),
    ],
)
async def test_a_quota_or_a_long_wait_is_told_at_once(
    tmp_path: Path, body: Json, headers: dict[str, str], says: str, info: Any
) -> None:
    async with scene(tmp_path, provider={"stream_max_retries": 3}) as stage:
        stage.model.enqueue_error(429, body, headers)
        thread = await stage.start()
        turn = await stage.run(thread)
        assert turn["status"] == "failed"
        assert says in turn["error"]["message"]
        assert turn["error"]["codexErrorInfo"] == info
        assert len(stage.model.requests()) == 1


async def test_a_server_that_is_not_there(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # not listening: refused
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        extra = f'[model_providers.gone]\nbase_url = "{url}"\n'  # with all the retries that there are by default
        async with scene(tmp_path, settings={"model_provider": "gone"}, extra_toml=extra) as stage:
            thread = await stage.start()
            turn = await stage.run(thread)
            assert turn["status"] == "failed"
            assert turn["error"]["codexErrorInfo"] == _with("httpConnectionFailed", None)
            assert "refuses connections: nothing listens there; start it" in turn["error"]["message"]
            assert url in turn["error"]["message"]
            assert len(stage.client.told("error")) == 1
            await check_thread(stage, thread)


async def test_an_interrupt_ends_the_retries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "pause_after", lambda *_, **__: 3600.0)
    async with scene(tmp_path, provider={"stream_max_retries": 5}) as stage:
        stage.model.enqueue_sse([CREATED])
        thread = await stage.start()
        turn = await stage.begin(thread)
        await stage.client.wait_for("error")
        await stage.interrupt(thread, turn)
        assert (await stage.end(turn))["status"] == "interrupted"
        assert len(stage.model.requests()) == 1
        await check_thread(stage, thread)


async def test_a_final_failure_ends_calls_that_run(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        stage.model.enqueue_function_call(
            "exec_command", shell("echo begun; exec sleep 3600"), call_id="c1", cut_after=3
        )
        stage.model.enqueue_assistant_message("better")
        thread = await stage.start()
        async with asyncio.timeout(30):
            assert (await stage.run(thread))["status"] == "failed"
        assert (await stage.run(thread, "again"))["status"] == "completed"
        if _calls_end_alone(stage):
            assert "aborted" in stage.model.requests()[-1].tool_outputs["c1"]
        else:
            assert stage.model.requests()[-1].tool_outputs == {}, "it was never called"
        assert len(stage.server.threads.find(thread)._thread.sessions) == 0
        await check_thread(stage, thread)


async def test_two_threads_fail_apart(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        good, bad = await stage.start(), await stage.start()
        stage.model.enqueue_error(400, "no")
        assert (await stage.run(bad))["status"] == "failed"
        stage.model.enqueue_assistant_message("fine")
        assert (await stage.run(good))["status"] == "completed"
        for thread in (good, bad):
            await check_thread(stage, thread)
