"""`AppServerRuntime` over the wire: our server in process and, for what a process of its own may change, as a child.

`interop/host` runs the same on the real codex.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from host_stage import KEY, WAIT_S, HostStage, Turn, begin, descendants, pid_of, run
from treadle.client import Tool
from treadle.host import (
    Ask,
    Choice,
    Compacted,
    ItemCompleted,
    ItemStarted,
    Notice,
    ResumeFailed,
    RuntimeFault,
    TurnEnded,
    project,
)
from treadle.testing import Usage

pytestmark = pytest.mark.anyio

ESCALATED = {"cmd": "touch made", "sandbox_permissions": "require_escalated", "justification": "because"}
PATCH = "*** Begin Patch\n*** Add File: new.txt\n+hello\n*** End Patch\n"


@pytest.fixture
async def stage(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[HostStage]:
    made = HostStage(tmp_path, getattr(request, "param", "in process"))
    for name, value in made.env.items():
        monkeypatch.setenv(name, value)
    yield made
    await made.close()


both_ways = pytest.mark.parametrize("stage", ["child", "in process"], indirect=True)


class Person:
    """Decides, and remembers what it was asked."""

    def __init__(self, choice: Choice | None) -> None:
        self.choice = choice
        self.asked: list[Ask] = []
        self.is_asked = asyncio.Event()
        self.withdrawn = asyncio.Event()

    async def __call__(self, ask: Ask) -> Choice:
        self.asked.append(ask)
        self.is_asked.set()
        if self.choice is not None:
            return self.choice
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.withdrawn.set()
            raise
        raise AssertionError("nobody decides")


def _outputs(stage: HostStage, call_id: str) -> str:
    return stage.model.requests()[-1].tool_outputs[call_id]


@both_ways
async def test_a_turn_with_the_key_the_thought_and_the_usage(stage: HostStage) -> None:
    usage = Usage(input_tokens=100, cached_input_tokens=60, output_tokens=10, reasoning_output_tokens=4)
    stage.model.enqueue_assistant_message("Hello.", reasoning="Greet.", deltas=["Hel", "lo."], usage=usage)
    runtime, opened = await stage.opened(instructions="You are Ada.")
    turn = await run(runtime, "hi")
    assert turn.events[-1] == TurnEnded("completed")
    assert (turn.text(), turn.text("reasoning")) == ("Hello.", "Greet.")
    projected = project(turn.items, submitted="hi")
    assert projected.messages == [{"role": "assistant", "content": "Hello.", "reasoning": "Greet."}]
    assert projected.final_text == "Hello."
    total = turn.usage
    assert (total.input_tokens, total.cached_input_tokens, total.output_tokens) == (100, 60, 10)
    assert (total.uncached_input_tokens, total.total_tokens, total.context_tokens) == (40, 110, 110)
    (request,) = stage.model.requests()
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert "You are Ada." in request.body.decode()
    assert opened.thread_id


async def test_two_model_calls_are_both_counted(stage: HostStage) -> None:
    usage = Usage(input_tokens=100, cached_input_tokens=50, output_tokens=10)
    runtime, _ = await stage.opened()
    stage.model.enqueue_assistant_message("first", usage=usage)
    before = (await run(runtime, "one")).usage
    stage.model.enqueue_function_call("exec_command", {"cmd": "echo hi"}, call_id="c1", usage=usage)
    stage.model.enqueue_assistant_message("second", usage=usage)
    turn = await run(runtime, "two")
    spent = turn.usage.since(before)
    assert (spent.input_tokens, spent.cached_input_tokens, spent.output_tokens) == (200, 100, 20)
    assert (spent.uncached_input_tokens, spent.total_tokens) == (100, 220)


@both_ways
async def test_a_command_is_two_messages_and_the_echo_is_none(stage: HostStage) -> None:
    stage.model.enqueue_function_call("exec_command", {"cmd": "echo hi; exit 3"}, call_id="c1")
    stage.model.enqueue_assistant_message("it failed")
    runtime, _ = await stage.opened()
    parts = [{"type": "text", "text": "do"}, {"type": "text", "text": "it"}]
    turn = await run(runtime, parts)
    projected = project(turn.items, submitted=parts)
    assert [message["role"] for message in projected.messages] == ["assistant", "tool", "assistant"]
    call, result, _ = projected.messages
    assert call["tool_calls"][0]["id"] == result["tool_call_id"] == "exec_c1"
    assert result["content"] == "[exit 3]\nhi\n"
    assert (projected.tool_iterations, projected.final_text) == (1, "it failed")


async def test_images_reach_the_model(stage: HostStage) -> None:
    pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    stage.model.enqueue_assistant_message("a dot")
    runtime, _ = await stage.opened()
    url = f"data:image/png;base64,{pixel}"
    parts: list[Any] = [{"type": "text", "text": "what is it?"}, {"type": "image_url", "image_url": {"url": url}}]
    turn = await run(runtime, parts)
    assert '"input_image"' in stage.model.requests()[0].body.decode().replace(" ", "")
    assert project(turn.items, submitted=parts).messages == [{"role": "assistant", "content": "a dot"}]


async def test_host_tools_run_here_and_in_time(stage: HostStage) -> None:
    here = threading.Event()

    async def remember(text: str) -> str:
        """Keep something."""
        here.set()
        return f"kept {text}"

    async def sleepy() -> str:
        """Never answers."""
        await asyncio.Event().wait()
        return ""

    stage.model.enqueue_function_call("remember", {"text": "tea"}, call_id="c1")
    stage.model.enqueue_function_call("sleepy", {}, call_id="c2")
    stage.model.enqueue_assistant_message("done")
    runtime, _ = await stage.opened(runtime=stage.runtime(tool_timeout=0.2), tools=(Tool(remember), Tool(sleepy)))
    turn = await run(runtime, "remember tea")
    assert here.is_set()
    assert _outputs(stage, "c1") == "kept tea"
    assert "`sleepy` did not answer within 0.2 s" in _outputs(stage, "c2")
    results = [message["content"] for message in project(turn.items).messages if message["role"] == "tool"]
    assert results == ["kept tea", "[error] `sleepy` did not answer within 0.2 s"]


@pytest.mark.parametrize(("choice", "done"), [("once", True), ("session", True), ("deny", False)])
async def test_a_command_is_asked_for(stage: HostStage, choice: Choice, done: bool) -> None:
    stage.model.enqueue_function_call("exec_command", ESCALATED, call_id="c1")
    stage.model.enqueue_assistant_message("so be it")
    person = Person(choice)
    runtime, opened = await stage.opened(ask=person, sandbox="read-only")
    turn = await run(runtime, "make it")
    (ask,) = person.asked
    assert (ask.kind, ask.title, ask.command, ask.cwd) == ("command", "touch made", "touch made", str(stage.workspace))
    assert (ask.thread_id, "because" in ask.description) == (opened.thread_id, True)
    assert (stage.workspace / "made").exists() == done
    result = next(message for message in project(turn.items).messages if message["role"] == "tool")
    assert ("declined" in result["content"]) != done


async def test_a_patch_is_asked_for_with_what_it_changes(stage: HostStage) -> None:
    stage.model.enqueue_custom_call("apply_patch", PATCH, call_id="c1")
    stage.model.enqueue_assistant_message("so be it")
    person = Person("deny")
    runtime, _ = await stage.opened(ask=person, sandbox="read-only")
    turn = await run(runtime, "make it")
    (ask,) = person.asked
    assert (ask.kind, len(ask.paths)) == ("patch", 1)
    assert ask.title.startswith("apply_patch: 1 added: ")
    assert ask.title.endswith("new.txt")
    assert not (stage.workspace / "new.txt").exists()
    result = next(message for message in project(turn.items).messages if message["role"] == "tool")
    assert result["content"].startswith("[declined]")


@both_ways
async def test_an_interrupt_withdraws_the_question(stage: HostStage) -> None:
    stage.model.enqueue_function_call("exec_command", ESCALATED, call_id="c1")
    person = Person(None)
    runtime, _ = await stage.opened(ask=person, sandbox="read-only")
    turn = await begin(runtime, "make it")
    reading = asyncio.create_task(turn.end())
    async with asyncio.timeout(WAIT_S):
        await person.is_asked.wait()
        await runtime.interrupt()
        assert (await reading).status == "interrupted"
        await person.withdrawn.wait()
    stage.model.enqueue_assistant_message("fine")
    assert (await run(runtime, "again")).text() == "fine"


@both_ways
async def test_an_interrupt_in_the_middle_of_a_command(stage: HostStage) -> None:
    stage.model.enqueue_function_call(
        "exec_command", {"cmd": "echo begun; sleep 600", "yield_time_ms": 60000}, call_id="c1"
    )
    runtime, _ = await stage.opened()
    turn = await begin(runtime, "wait")
    await turn.until(lambda event: isinstance(event, ItemStarted) and event.item.type == "commandExecution")
    await runtime.interrupt()
    assert (await turn.end()).status == "interrupted"
    await runtime.interrupt()  # nothing runs, and that is fine
    stage.model.enqueue_assistant_message("fine")
    assert (await run(runtime, "again")).text() == "fine"


async def test_the_end_of_a_turn_that_was_given_up_does_not_end_the_next(stage: HostStage) -> None:
    gate = threading.Event()
    stage.model.enqueue_assistant_message("too late", gate=gate)
    runtime, _ = await stage.opened()
    given_up = await begin(runtime, "one")
    await given_up.until(lambda event: isinstance(event, ItemCompleted))
    await stage.model.arrived(1)
    await runtime.interrupt()  # its end is never read here
    stage.model.enqueue_assistant_message("second")
    turn = await run(runtime, "two")
    gate.set()
    assert (turn.text(), turn.events[-1]) == ("second", TurnEnded("completed"))


async def test_steering(stage: HostStage) -> None:
    gate = threading.Event()
    stage.model.enqueue_assistant_message("first", gate=gate, gate_after=1)
    stage.model.enqueue_assistant_message("second")
    runtime, _ = await stage.opened()
    assert await runtime.steer("nothing runs") is False
    turn = await begin(runtime, "one")
    await turn.until(lambda event: isinstance(event, ItemCompleted))
    await stage.model.arrived(1)
    assert await runtime.steer("and this") is True
    gate.set()
    await turn.end()
    # The real codex begins anew when the model had said nothing yet, so there may be a first answer or not.
    assert project(turn.items, submitted="one").messages[-2:] == [
        {"role": "user", "content": "and this"},
        {"role": "assistant", "content": "second"},
    ]
    assert await runtime.steer("it has ended") is False


async def test_compacting_is_a_turn_of_its_own(stage: HostStage) -> None:
    runtime, _ = await stage.opened()
    stage.model.enqueue_assistant_message("first")
    await run(runtime, "one")
    stage.model.enqueue_assistant_message("a summary")
    async with asyncio.timeout(WAIT_S):
        assert await runtime.compact() is True
    turn = Turn(runtime)
    assert (await turn.end()).status == "completed"
    assert Compacted() in turn.events
    stage.model.enqueue_assistant_message("third")
    assert (await run(runtime, "three")).text() == "third"


@both_ways
async def test_a_thread_is_resumed_by_another_server(stage: HostStage) -> None:
    usage = Usage(input_tokens=100, output_tokens=10)
    runtime, opened = await stage.opened()
    stage.model.enqueue_assistant_message("first", usage=usage)
    await run(runtime, "one")
    await runtime.close()
    again, resumed = await stage.opened(resume=opened.thread_id, history=({"role": "user", "content": "SEED"},))
    assert resumed.thread_id == opened.thread_id
    assert resumed.usage is not None
    assert resumed.usage.total_tokens == 110
    stage.model.enqueue_assistant_message("second", usage=usage)
    turn = await run(again, "two")
    assert turn.usage.since(resumed.usage).total_tokens == 110
    sent = stage.model.requests()[-1].body.decode()
    assert "one" in stage.model.requests()[-1].input_texts("user")
    assert "SEED" not in sent


async def test_a_thread_that_is_gone_is_begun_anew_on_the_same_server(stage: HostStage) -> None:
    runtime = stage.runtime()
    with pytest.raises(ResumeFailed) as failed:
        await stage.opened(runtime=runtime, resume="00000000-0000-7000-8000-000000000000")
    assert failed.value.fault.kind == "refused"
    assert not failed.value.fault.retire
    client = runtime._client._connection
    history = ({"role": "user", "content": "tea?"}, {"role": "assistant", "content": "Yes, tea."})
    await stage.opened(runtime=runtime, history=history)
    assert runtime._client._connection is client
    stage.model.enqueue_assistant_message("hello")
    await run(runtime, "hi")
    sent = stage.model.requests()[-1].body.decode()
    assert "Yes, tea." in sent
    assert "already happened" in sent


FAILURES: list[tuple[int, dict[str, Any], str, bool]] = [
    (401, {"error": {"message": "Incorrect API key provided: " + KEY, "code": "invalid_api_key"}}, "auth", True),
    (500, {"error": {"message": "broken"}}, "overloaded", False),
]


@pytest.mark.parametrize(("status", "body", "kind", "retire"), FAILURES, ids=[str(it[0]) for it in FAILURES])
async def test_a_provider_that_refuses(
    stage: HostStage, status: int, body: dict[str, Any], kind: str, retire: bool
) -> None:
    runtime, _ = await stage.opened()
    stage.model.enqueue_error(status, body)
    turn = await begin(runtime, "hi")
    ended = await turn.end()
    assert ended.status == "failed"
    assert ended.fault is not None
    assert (ended.fault.kind, ended.fault.retire) == (kind, retire)
    assert KEY not in str(ended.fault)
    stage.model.enqueue_assistant_message("fine")
    assert (await run(runtime, "again")).text() == "fine"


async def test_a_turn_that_is_run_again_is_told_to_the_model_once(stage: HostStage) -> None:
    runtime, _ = await stage.opened()
    stage.model.enqueue_assistant_message("one")
    await run(runtime, "first")
    for _ in range(2):
        stage.model.enqueue_error(500, {"error": {"message": "broken"}})
        assert (await (await begin(runtime, "second")).end()).status == "failed"
    stage.model.enqueue_assistant_message("two")
    await run(runtime, "second")
    stage.model.enqueue_assistant_message("three")
    await run(runtime, "second")  # this one is said anew: the one before was answered
    texts = [text for text in stage.model.requests()[-1].input_texts("user") if text in ("first", "second")]
    assert texts == ["first", "second", "second"]


async def test_a_resumed_thread_knows_what_was_there_before_it(stage: HostStage) -> None:
    history = ({"role": "user", "content": "the quokka"}, {"role": "assistant", "content": "is in the shed"})
    runtime, opened = await stage.opened(history=history)
    stage.model.enqueue_assistant_message("yes")
    await run(runtime, "is it?")
    await runtime.close()
    later = (*history, {"role": "user", "content": "is it?"}, {"role": "assistant", "content": "yes"})
    again, _ = await stage.opened(
        runtime=stage.runtime(), resume=opened.thread_id, history=later, before_thread=2, instructions="Be brief."
    )
    stage.model.enqueue_assistant_message("really")
    await run(again, "really?")
    told = stage.model.requests()[-1].body.decode()
    assert [told.count(words) for words in ("the quokka", "is in the shed", "is it?")] == [1, 1, 1]


@pytest.mark.parametrize(
    ("code", "kind"), [("context_length_exceeded", "context_window"), ("insufficient_quota", "usage_limit")]
)
async def test_a_response_that_fails(stage: HostStage, code: str, kind: str) -> None:
    failed = {"id": "r1", "object": "response", "status": "failed", "error": {"code": code, "message": "it is over"}}
    stage.model.enqueue_sse([{"type": "response.failed", "response": failed}])
    runtime, _ = await stage.opened()
    ended = await (await begin(runtime, "hi")).end()
    assert ended.fault is not None
    assert (ended.status, ended.fault.kind, ended.fault.retire) == ("failed", kind, False)


async def test_another_attempt_is_told(stage: HostStage) -> None:
    stage.configure(stream_max_retries=2)
    runtime, _ = await stage.opened()
    stage.model.enqueue_assistant_message("lost", cut_after=3)
    stage.model.enqueue_assistant_message("found")
    turn = await run(runtime, "hi")
    told = [event for event in turn.events if isinstance(event, Notice)]
    assert told
    assert told[0].fault is not None
    assert told[0].fault.retryable
    assert project(turn.items).final_text == "found"


async def test_a_probe_is_answered_at_any_time(stage: HostStage) -> None:
    gate = threading.Event()
    stage.model.enqueue_assistant_message("late", gate=gate)
    runtime, _ = await stage.opened()
    await runtime.probe()
    turn = await begin(runtime, "hi")
    await runtime.probe()
    gate.set()
    assert (await turn.end()).status == "completed"
    await runtime.probe()


@both_ways
async def test_the_key_is_on_no_command_line_and_in_no_words(stage: HostStage) -> None:
    runtime, _ = await stage.opened()
    stage.model.enqueue_function_call("exec_command", {"cmd": "env"}, call_id="c1")
    stage.model.enqueue_assistant_message("done")
    turn = await run(runtime, "show it")
    assert KEY not in str(turn.items)
    assert KEY not in repr(runtime._config)
    if stage.way != "in process":
        server = pid_of(runtime)
        for pid in (server, *descendants(server)):
            assert KEY.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes()


async def test_nothing_can_be_read_without_a_turn(stage: HostStage) -> None:
    runtime, _ = await stage.opened()
    with pytest.raises(RuntimeFault, match="No turn"):
        await runtime.next_event()
