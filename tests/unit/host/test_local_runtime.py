"""`LocalRuntime` over the wire, on a mock model: tools, limits, retries, failures, and what the model knows after."""

from __future__ import annotations

import asyncio
import base64
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from treadle.client import Tool
from treadle.host import (
    Ask,
    Choice,
    Compacted,
    Delta,
    ItemCompleted,
    LocalRuntime,
    LocalWire,
    Notice,
    Opening,
    ResumeFailed,
    RuntimeEvent,
    RuntimeFault,
    TurnEnded,
    UsageReported,
    turn_fault,
)
from treadle.protocol.app import ModelFailure, TurnError
from treadle.testing import MockModel, ToolCall, Usage

pytestmark = pytest.mark.anyio

WIRES: tuple[LocalWire, ...] = ("responses", "chat_completions", "anthropic")
KEY = "sk-the-secret-of-the-test"
DEADLINE_S = 60.0


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TREADLE_HOME", str(tmp_path / "home"))


@pytest.fixture
def model() -> Iterator[MockModel]:
    with MockModel() as model:
        yield model


async def nobody(ask: Ask) -> Choice:
    raise AssertionError("there is nothing to ask for")


@asynccontextmanager
async def opened(
    model: MockModel,
    *tools: Callable[..., Any],
    wire: LocalWire = "responses",
    opening: Opening | None = None,
    **more: Any,
) -> AsyncIterator[LocalRuntime]:
    provider = "anthropic" if wire == "anthropic" else "openai"
    runtime = LocalRuntime(wire, **{"provider": provider, "api_key": KEY, "base_url": model.base_url, **more})
    async with asyncio.timeout(DEADLINE_S):
        await runtime.open(opening or Opening(tools=tuple(Tool.of(tool) for tool in tools)), nobody)
        try:
            yield runtime
        finally:
            await runtime.close()


async def rest(runtime: LocalRuntime) -> list[RuntimeEvent]:
    events: list[RuntimeEvent] = []
    while not events or not isinstance(events[-1], TurnEnded):
        events.append(await runtime.next_event())
    return events


async def turn(runtime: LocalRuntime, said: Any = "hi", **options: Any) -> list[RuntimeEvent]:
    await runtime.start_turn(said, options)
    return await rest(runtime)


def items(events: list[RuntimeEvent]) -> list[Any]:
    return [event.item for event in events if isinstance(event, ItemCompleted)]


def end(events: list[RuntimeEvent]) -> TurnEnded:
    assert isinstance(events[-1], TurnEnded)
    return events[-1]


def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


def breaks() -> str:
    raise ValueError("out of paper")


@pytest.mark.parametrize("wire", WIRES)
async def test_tools_are_called_and_the_model_gets_what_they_gave(model: MockModel, wire: LocalWire) -> None:
    calls = [ToolCall("add", {"a": 1, "b": 2}, "c1"), ToolCall("breaks", {}, "c2"), ToolCall("nowhere", {}, "c3")]
    model.enqueue_calls(*calls, ToolCall("add", {"a": "x"}, "c4"), text="let me see")
    model.enqueue_assistant_message("three")
    async with opened(model, add, breaks, wire=wire) as runtime:
        events = await turn(runtime)
    assert end(events).status == "completed"
    first, *tools, last = items(events)
    assert (first.text, last.text) == ("let me see", "three")
    assert {item.id: item.success for item in tools} == {"c1": True, "c2": False, "c4": False}
    outputs = model.requests()[1].tool_outputs
    assert outputs["c1"] == "3"
    assert outputs["c2"] == "ValueError: out of paper"
    assert outputs["c3"] == "unsupported call: nowhere"
    assert "the parameter `b` is missing" in outputs["c4"]


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, BaseException])
@pytest.mark.parametrize("is_async", [False, True])
async def test_a_tool_that_would_end_the_loop_has_failed(
    model: MockModel, kind: type[BaseException], is_async: bool
) -> None:
    def plain() -> str:
        raise kind("the end")

    async def later() -> str:
        raise kind("the end")

    tool = later if is_async else plain
    model.enqueue_calls(ToolCall(tool.__name__, {}, "c1"))
    model.enqueue_assistant_message("so be it")
    async with opened(model, tool) as runtime:
        events = await turn(runtime)
    assert end(events).status == "completed"
    assert "the end" in model.requests()[1].tool_outputs["c1"]


async def test_calls_of_one_response_run_side_by_side(model: MockModel) -> None:
    met = threading.Barrier(2, timeout=DEADLINE_S)

    def meet() -> str:
        return f"{met.wait() >= 0}"

    model.enqueue_calls(ToolCall("meet", {}, "a"), ToolCall("meet", {}, "b"))
    model.enqueue_assistant_message("done")
    async with opened(model, meet) as runtime:
        assert end(await turn(runtime)).status == "completed"
    assert model.requests()[1].tool_outputs == {"a": "True", "b": "True"}


async def test_each_call_has_a_limit(model: MockModel) -> None:
    async def late() -> str:
        await asyncio.Event().wait()
        return "never"

    model.enqueue_calls(ToolCall("late", {}, "a"), ToolCall("late", {}, "b"))
    model.enqueue_assistant_message("done")
    async with opened(model, late, tool_timeout=0.05) as runtime:
        assert end(await turn(runtime)).status == "completed"
    message = "`late` did not answer within 0.05 s"
    assert model.requests()[1].tool_outputs == {"a": message, "b": message}


@pytest.mark.parametrize("wire", WIRES)
async def test_after_the_last_round_of_calls_comes_an_answer(model: MockModel, wire: LocalWire) -> None:
    for number in range(2):
        model.enqueue_function_call("add", {"a": 1, "b": number}, call_id=f"c{number}")
    model.enqueue_assistant_message("that is all")
    async with opened(model, add, wire=wire, max_iterations=2) as runtime:
        events = await turn(runtime)
    assert items(events)[-1].text == "that is all"
    *_, last = model.requests()
    assert "used all the rounds of tool calls" in str(last.json)
    if wire != "anthropic":  # where a history with calls is refused without tools
        assert not last.json.get("tools")


async def test_calls_beyond_the_last_round_are_not_run(model: MockModel) -> None:
    ran = []

    def note() -> None:
        ran.append(1)

    for _ in range(2):
        model.enqueue_function_call("note", {})
    async with opened(model, note, max_iterations=1) as runtime:
        events = await turn(runtime)
        assert end(events).status == "completed"
        assert any(isinstance(event, Notice) and "limit of tool calls" in event.message for event in events)
        assert ran == [1]
        model.enqueue_assistant_message("fine")
        assert end(await turn(runtime)).status == "completed"
    first, second = model.requests()[-1].tool_outputs.values()
    assert (first, second) == ("", "not run: the limit of tool calls in this turn is reached")


async def test_what_is_said_in_the_middle_joins_the_next_request(model: MockModel) -> None:
    runtimes: list[LocalRuntime] = []

    async def wait() -> str:
        assert await runtimes[0].steer("and in French")
        return "waited"

    model.enqueue_function_call("wait", {})
    model.enqueue_assistant_message("oui")
    async with opened(model, wait) as runtime:
        runtimes.append(runtime)
        events = await turn(runtime, "say yes")
        assert [item.type for item in items(events)] == ["dynamicToolCall", "userMessage", "agentMessage"]
        assert model.requests()[1].last_user_text == "and in French"
        assert await runtime.steer("too late") is False


async def test_what_is_said_while_the_answer_comes_is_answered_too(model: MockModel) -> None:
    gate = threading.Event()
    model.enqueue_assistant_message("first", gate=gate, gate_after=3)
    model.enqueue_assistant_message("second")
    async with opened(model) as runtime:
        await runtime.start_turn("hi", {})
        while not isinstance(await runtime.next_event(), Delta):
            pass
        assert await runtime.steer("more")
        gate.set()
        assert [item.type for item in items(await rest(runtime))] == ["agentMessage", "userMessage", "agentMessage"]


@pytest.mark.parametrize("wire", WIRES)
async def test_an_interrupt_in_the_middle_of_a_tool_leaves_a_history_that_is_valid(
    model: MockModel, wire: LocalWire
) -> None:
    begun = asyncio.Event()
    ended = asyncio.Event()

    async def hang() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    model.enqueue_calls(ToolCall("add", {"a": 1, "b": 1}, "c1"), ToolCall("hang", {}, "c2"))
    async with opened(model, add, hang, wire=wire) as runtime:
        await runtime.start_turn("go", {})
        await begun.wait()
        await runtime.interrupt()
        events = await rest(runtime)
        assert end(events) == TurnEnded("interrupted")
        assert ended.is_set()
        assert {item.id: bool(item.success) for item in items(events)} == {"c1": True, "c2": False}
        model.enqueue_assistant_message("back")
        assert items(await turn(runtime, "again"))[-1].text == "back"
    outputs = model.requests()[-1].tool_outputs
    assert outputs["c1"] == "2"
    assert "aborted" in outputs["c2"]


async def test_a_tool_that_does_not_end_holds_up_nobody(model: MockModel) -> None:
    begun, let_go = asyncio.Event(), asyncio.Event()

    async def stubborn() -> None:
        begun.set()
        while not let_go.is_set():
            try:
                await let_go.wait()
            except asyncio.CancelledError:
                continue

    model.enqueue_function_call("stubborn", {})
    async with opened(model, stubborn) as runtime:
        await runtime.start_turn("go", {})
        await begun.wait()
        await runtime.interrupt()
        assert end(await rest(runtime)).status == "interrupted"
        let_go.set()


@pytest.mark.parametrize("wire", WIRES)
async def test_a_response_that_breaks_off_is_asked_for_again(model: MockModel, wire: LocalWire) -> None:
    model.enqueue_calls(ToolCall("add", {"a": 1, "b": 2}, "c1"), text="cut off", cut_after=4)
    model.enqueue_assistant_message("whole")
    called = []

    def add(a: int, b: int) -> None:
        called.append((a, b))

    async with opened(model, add, wire=wire) as runtime:
        events = await turn(runtime)
    # A message that was complete stays, as in every turn of the agent; a call that was not is not made.
    assert [item.text for item in items(events)][-1] == "whole"
    assert all(item.type == "agentMessage" for item in items(events))
    assert called == []
    (told,) = [event for event in events if isinstance(event, Notice)]
    assert "1/5" in told.message
    assert told.fault is not None
    assert told.fault.kind == "network"


@pytest.mark.parametrize(
    ("status", "body", "kind", "words"),
    [
        (401, {"error": {"message": f"bad key {KEY}"}}, "auth", "Pass another api_key"),
        (403, {}, "auth", "Pass another api_key"),
        (404, {"error": {"message": "no such model"}}, "model_not_found", "Choose a model that the provider has"),
        (429, {"error": {"code": "insufficient_quota"}}, "usage_limit", "plan and billing"),
        (
            429,
            {"error": {"type": "usage_limit_reached", "resets_in_seconds": 3600}},
            "usage_limit",
            "until it is reset",
        ),
        (503, {"error": {"code": "server_is_overloaded"}}, "overloaded", "another model"),
        (400, {"error": {"code": "context_length_exceeded"}}, "context_window", "Compact the thread"),
        (400, {"error": {"message": "what?"}}, "refused", "what?"),
    ],
)
async def test_failures_by_what_a_person_can_do(
    model: MockModel, status: int, body: dict[str, Any], kind: str, words: str
) -> None:
    model.enqueue_error(status, body)
    async with opened(model) as runtime:
        ended = end(await turn(runtime))
    assert ended.status == "failed"
    assert ended.fault is not None
    assert ended.fault.kind == kind
    assert words in str(ended.fault)
    assert KEY not in str(ended.fault)
    assert not ended.fault.retire
    assert (ended.fault.resets_at is not None) == ("resets_in_seconds" in str(body))


async def test_without_a_key_it_says_what_to_set() -> None:
    runtime = LocalRuntime(provider="openai")
    await runtime.open(Opening(), nobody)
    fault = end(await turn(runtime)).fault
    await runtime.close()
    assert fault is not None
    assert fault.kind == "auth"
    assert "OPENAI_API_KEY" in fault.message
    runtime = LocalRuntime("anthropic")
    await runtime.open(Opening(), nobody)
    fault = end(await turn(runtime)).fault
    await runtime.close()
    assert fault is not None
    assert "ANTHROPIC_API_KEY" in fault.message


async def test_a_key_of_the_environment_that_is_not_accepted(model: MockModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    model.enqueue_error(401, {})
    async with opened(model, wire="anthropic", api_key=None) as runtime:
        fault = end(await turn(runtime)).fault
    assert fault is not None
    assert "Set ANTHROPIC_API_KEY" in fault.advice
    assert model.requests()[0].headers["x-api-key"] == KEY


async def test_a_provider_of_the_configuration(model: MockModel, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home/config.toml").write_text(
        f'model = "mine-1"\nmodel_provider = "mine"\n[model_providers.mine]\nbase_url = "{model.base_url}"\n'
    )
    model.enqueue_assistant_message("hello")
    async with opened(model, provider=None, api_key=None, base_url=None, wire="chat_completions") as runtime:
        await turn(runtime)
    (request,) = model.requests()
    assert request.path.endswith("/chat/completions")
    assert request.json["model"] == "mine-1"
    other = LocalRuntime(provider="offline")
    assert (await other.open(Opening(), nobody)).model == "offline"
    await other.close()


async def test_a_provider_that_is_not_there() -> None:
    runtime = LocalRuntime(provider="nobody")
    with pytest.raises(RuntimeFault, match="there is no provider `nobody`") as caught:
        await runtime.open(Opening(), nobody)
    assert caught.value.fault.kind == "startup"


async def test_opening_sends_nothing_and_shows_no_secret(model: MockModel) -> None:
    async with opened(model) as runtime:
        assert KEY not in repr(runtime) + repr(vars(runtime))
    assert model.requests() == []


async def test_a_turn_writes_nothing_in_the_home(model: MockModel, tmp_path: Path) -> None:
    model.enqueue_function_call("add", {"a": 1, "b": 2})
    model.enqueue_assistant_message("three")
    async with opened(model, add) as runtime:
        assert end(await turn(runtime)).status == "completed"
    assert not (tmp_path / "home").exists()
    # Neither the server's own tools nor what it tells coding agents is there.
    asked = model.requests()[0].json
    assert [tool["name"] for tool in asked["tools"]] == ["add"]
    assert [part["role"] for part in asked["input"]] == ["user"]


async def test_a_limit_of_output_tokens_is_for_one_turn(model: MockModel) -> None:
    for _ in range(2):
        model.enqueue_assistant_message("ok")
    async with opened(model, wire="chat_completions") as runtime:
        await turn(runtime, max_output_tokens=77)
        await turn(runtime)
        with pytest.raises(RuntimeFault, match="no option `max_tokens`"):
            await runtime.start_turn("hi", {"max_tokens": 3})
    assert [77 in request.json.values() for request in model.requests()] == [True, False]


@pytest.mark.parametrize("wire", WIRES)
async def test_what_was_said_before_and_images(model: MockModel, wire: LocalWire, tmp_path: Path) -> None:
    picture = tmp_path / "dot.png"
    picture.write_bytes(b"\x89PNG\r\n\x1a\n" + b"0" * 16)
    call = {"id": "h1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1, "b": 2}'}}
    history = (
        {"role": "user", "content": "one and two?"},
        {"role": "assistant", "content": None, "tool_calls": [call, {**call, "id": "h2"}]},
        {"role": "tool", "tool_call_id": "h1", "content": "3"},
        {"role": "tool", "tool_call_id": "nobody asked", "content": "42"},
        {"role": "assistant", "content": "three"},
    )
    opening = Opening(history=history, instructions="be brief", tools=(Tool(add),))
    model.enqueue_assistant_message("a dot")
    async with opened(model, wire=wire, opening=opening) as runtime:
        await turn(runtime, [{"type": "text", "text": "what is this?"}, {"type": "local_image", "path": str(picture)}])
    (request,) = model.requests()
    assert request.tool_outputs["h1"] == "3"
    assert "aborted" in request.tool_outputs["h2"]
    assert "nobody asked" not in request.tool_outputs
    said = str(request.json)
    assert all(words in said for words in ("be brief", "one and two?", "three", "what is this?"))
    assert base64.b64encode(picture.read_bytes()).decode() in said


async def test_usage_is_the_total_of_the_thread_with_its_price(model: MockModel) -> None:
    for _ in range(2):
        model.enqueue_assistant_message(
            "ok", usage=Usage(input_tokens=1000, cached_input_tokens=400, output_tokens=100)
        )
    async with opened(model, opening=Opening(model="gpt-5.5")) as runtime:
        totals = [event.total for _ in range(2) for event in await turn(runtime) if isinstance(event, UsageReported)]
    assert [total.input_tokens for total in totals] == [1000, 2000]
    assert [total.total_tokens for total in totals] == [1100, 2200]
    assert [total.context_tokens for total in totals] == [1100, 1100]
    assert totals[0].cost_usd == pytest.approx((600 * 5 + 400 * 0.5 + 100 * 30) / 1e6)
    assert totals[1].since(totals[0]).cost_usd == pytest.approx(totals[0].cost_usd)


@pytest.mark.parametrize("wire", WIRES)
async def test_compaction_leaves_a_summary_and_what_the_user_said(model: MockModel, wire: LocalWire) -> None:
    for text in ("the answer is 42", "SUMMARY OF IT ALL", "go on"):
        model.enqueue_assistant_message(text)
    async with opened(model, wire=wire) as runtime:
        await turn(runtime, "what is the answer?")
        assert await runtime.compact()
        events = await rest(runtime)
        assert [type(event) for event in events if isinstance(event, UsageReported | Compacted | TurnEnded)] == [
            UsageReported,
            UsageReported,
            Compacted,
            TurnEnded,
        ]
        assert [item.type for item in items(events)] == ["contextCompaction"]
        await turn(runtime, "and now?")
    said = str(model.requests()[-1].json)
    assert "SUMMARY OF IT ALL" in said
    assert "what is the answer?" in said
    assert "the answer is 42" not in said


async def test_a_compaction_that_fails_changes_nothing(model: MockModel) -> None:
    model.enqueue_assistant_message("the answer is 42")
    model.enqueue_error(401, {})
    model.enqueue_assistant_message("yes")
    async with opened(model) as runtime:
        await turn(runtime)
        assert await runtime.compact()
        assert end(await rest(runtime)).status == "failed"
        await turn(runtime, "still?")
    assert "the answer is 42" in str(model.requests()[-1].json)


async def test_what_failed_is_remembered_and_said_again_only_once(model: MockModel) -> None:
    async with opened(model) as runtime:
        for status in (401, 401):
            model.enqueue_error(status, {})
            await turn(runtime, "do it")
        model.enqueue_assistant_message("done")
        await turn(runtime, "do it")
        assert [part["content"][0]["text"] for part in model.requests()[-1].json["input"]] == ["do it"]


async def test_what_the_server_refuses_does_not_stay_in_the_way(model: MockModel) -> None:
    async with opened(model) as runtime:
        model.enqueue_error(400, {"error": {"message": "this image is broken"}})
        await turn(runtime, [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}])
        model.enqueue_assistant_message("done")
        assert end(await turn(runtime, "hello")).status == "completed"
        assert "input_image" not in str(model.requests()[-1].json)


async def test_only_its_own_thread_can_be_resumed(model: MockModel) -> None:
    model.enqueue_assistant_message("one")
    model.enqueue_assistant_message("two")
    async with opened(model) as runtime:
        await turn(runtime, "first")
        with pytest.raises(ResumeFailed):
            await runtime.open(Opening(resume="01890000-0000-7000-8000-000000000000"), nobody)
        thread_id = runtime._thread_id
        again = await runtime.open(Opening(resume=thread_id), nobody)
        assert again.thread_id == thread_id
        assert again.usage is not None
        await turn(runtime, "second")
    assert "first" in str(model.requests()[-1].json)


async def test_options_of_a_turn(model: MockModel) -> None:
    model.enqueue_assistant_message("{}")
    schema = {"type": "object", "properties": {}, "additionalProperties": False}
    async with opened(model) as runtime:
        await turn(runtime, model="gpt-5.4", effort="low", output_schema=schema)
        with pytest.raises(RuntimeFault, match="effort"):
            await runtime.start_turn("hi", {"effort": 3})
        model.enqueue_assistant_message("again")
        await turn(runtime)
    asked, after = (request.json for request in model.requests())
    assert (asked["model"], asked["reasoning"]["effort"]) == ("gpt-5.4", "low")
    assert schema == asked["text"]["format"]["schema"]
    # They are for one turn.
    assert after["model"] != "gpt-5.4"
    assert "effort" not in after["reasoning"]
    assert "text" not in after


async def test_a_reader_that_is_slow_loses_nothing(model: MockModel) -> None:
    words = [f"{number} " for number in range(3000)]
    model.enqueue_assistant_message("".join(words), deltas=words)
    async with opened(model) as runtime:
        await runtime.start_turn("count", {})
        while not (runtime._turn is not None and runtime._turn.completed):
            await asyncio.sleep(0.01)
        events = await rest(runtime)
    assert "".join(event.text for event in events if isinstance(event, Delta)) == "".join(words)


def test_a_server_that_fails_is_as_good_as_one_that_has_too_much_to_do() -> None:
    """An app-server calls it the same: what a program does about it does not depend on the runtime."""
    failure = ModelFailure(kind="server_failed", advice="", status=500)
    fault = turn_fault(TurnError(message="the model server failed (HTTP 500)", failure=failure))
    assert (fault.kind, fault.retryable) == ("overloaded", True)
