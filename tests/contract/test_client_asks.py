"""What a program adds to the agent: approvals, tools of its own, types for the answer; and the small events."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest

from contract import client_stage
from contract.client_stage import Stage, everywhere, only
from treadle import (
    ApprovalDecision,
    ApprovalRequest,
    ArgumentError,
    InvalidRequestError,
    OutputError,
    Sandbox,
    TurnLimitReached,
)
from treadle.client import async_shell
from treadle.testing import replies
from treadle.types import (
    CommandFinished,
    CommandOutput,
    CommandStarted,
    Done,
    FileChange,
    Plan,
    Text,
    TextDelta,
    TextRestarted,
    ToolCall,
    ToolCallStarted,
    TurnStatus,
    Usage,
)

pytestmark = pytest.mark.anyio
stage = client_stage.stage

ESCALATED = {"cmd": "touch made", "sandbox_permissions": "require_escalated", "justification": "because"}
PATCH = "*** Begin Patch\n*** Add File: new.txt\n+hello\n*** End Patch\n"


class Decider:
    """An approval handler that remembers; plain or async."""

    def __init__(self, verdict: Any, *, is_async: bool = False) -> None:
        self.asked: list[ApprovalRequest] = []
        self._verdict = verdict
        self.handler: Callable[[ApprovalRequest], Any] = self._async if is_async else self._plain

    def _plain(self, request: ApprovalRequest) -> Any:
        self.asked.append(request)
        if isinstance(self._verdict, Exception):
            raise self._verdict
        return self._verdict

    async def _async(self, request: ApprovalRequest) -> Any:
        await asyncio.sleep(0)
        return self._plain(request)


async def _escalate(stage: Stage, **handlers: Any) -> Any:
    """A turn in which the agent wants to leave the sandbox."""
    stage.model.enqueue_function_call("exec_command", ESCALATED, call_id="c1")
    stage.model.enqueue_assistant_message("so be it")
    async with stage.codex(**handlers) as codex:
        thread = await stage.call(codex.thread_start, sandbox=Sandbox.read_only)
        return await stage.call(thread.run, "make it")


def _commands(result: Any) -> list[str]:
    return [str(item.status) for item in result.items if item.type == "commandExecution"]


@everywhere
async def test_a_handler_allows_a_command(stage: Stage) -> None:
    decider = Decider(True)
    result = await _escalate(stage, approval_handler=decider.handler)
    (request,) = decider.asked
    assert (request.kind, request.turn_id, request.reason) == ("command", result.id, "because")
    assert request.command == "touch made"
    assert request.params.command.endswith("-lc 'touch made'")
    assert request.cwd == str(stage.workspace)
    assert (stage.workspace / "made").exists()
    assert (_commands(result), result.final_response) == (["completed"], "so be it")


@only("in process")
async def test_an_async_handler_allows_a_command(stage: Stage) -> None:
    """Who calls it is the client, whichever way its server is reached."""
    decider = Decider(True, is_async=True)
    result = await _escalate(stage, approval_handler=decider.handler)
    assert [request.command for request in decider.asked] == ["touch made"]
    assert (stage.workspace / "made").exists()
    assert (_commands(result), result.final_response) == (["completed"], "so be it")


@only("in process")
@pytest.mark.parametrize("verdict", [False, None, ApprovalDecision.decline, "nonsense", ValueError("broken")], ids=str)
async def test_everything_but_a_yes_is_a_no(stage: Stage, verdict: Any) -> None:
    decider = Decider(verdict)
    result = await _escalate(stage, approval_handler=decider.handler)
    assert len(decider.asked) == 1
    assert not (stage.workspace / "made").exists()
    assert (_commands(result), result.final_response) == (["declined"], "so be it")


async def test_cancel_ends_the_turn(stage: Stage) -> None:
    result = await _escalate(stage, approval_handler=Decider(ApprovalDecision.cancel).handler)
    assert result.status is TurnStatus.interrupted
    assert not (stage.workspace / "made").exists()


async def test_without_a_handler_the_answer_is_no(stage: Stage) -> None:
    stage.configure(approval_policy="on-request", sandbox_mode="read-only")
    stage.model.enqueue_function_call("exec_command", ESCALATED, call_id="c1")
    stage.model.enqueue_assistant_message("so be it")
    async with stage.codex() as codex:
        started = await stage.call(codex._client.thread_start, {})  # with the policy of the file, which asks us
        thread = await stage.call(codex.thread_resume, started.thread.id)
        result = await stage.call(thread.run, "make it")
    assert (_commands(result), result.final_response) == (["declined"], "so be it")
    assert not (stage.workspace / "made").exists()


async def test_a_handler_sees_the_changes_of_a_patch(stage: Stage) -> None:
    stage.model.enqueue_custom_call("apply_patch", PATCH)
    stage.model.enqueue_assistant_message("patched")
    decider = Decider(True)
    async with stage.codex(approval_handler=decider.handler) as codex:
        thread = await stage.call(codex.thread_start, sandbox=Sandbox.read_only)
        await stage.call(thread.run, "patch")
    (request,) = decider.asked
    assert request.kind == "patch"
    assert [change.path for change in request.changes] == [str(stage.workspace / "new.txt")]
    assert "hello" in request.changes[0].diff
    assert (stage.workspace / "new.txt").read_text() == "hello\n"


@only("in process", faces=("async",))
async def test_a_handler_that_refuses_to_be_cancelled_does_not_keep_the_client_open(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(async_shell, "CLOSE_S", 0.05)
    asked, end = asyncio.Event(), asyncio.Event()

    async def handler(request: ApprovalRequest) -> bool:
        asked.set()
        while not end.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await end.wait()
        return True

    stage.model.enqueue_function_call("exec_command", ESCALATED, call_id="c1")
    async with asyncio.timeout(30):
        async with stage.codex(approval_handler=handler) as codex:
            thread = await codex.thread_start(sandbox=Sandbox.read_only)
            await thread.turn("make it")
            await asked.wait()
        end.set()
    assert not (stage.workspace / "made").exists()


@everywhere
async def test_the_turn_can_be_read_while_a_handler_thinks(stage: Stage) -> None:
    """A handler that waits for what the stream says must not be in its way."""
    heard = asyncio.Event()
    loop = asyncio.get_running_loop()

    async def wait_here() -> bool:
        await heard.wait()
        return True

    def handler(request: ApprovalRequest) -> bool | Awaitable[bool]:
        return asyncio.run_coroutine_threadsafe(wait_here(), loop).result(30)

    stage.model.enqueue_function_call("exec_command", ESCALATED)
    stage.model.enqueue_assistant_message("done")
    async with stage.codex(approval_handler=handler) as codex:
        thread = await stage.call(codex.thread_start, sandbox=Sandbox.read_only)
        reading = stage.read((await stage.call(thread.turn, "make it")).stream())
        while (await reading.until("item/started")).payload.item.type != "commandExecution":
            pass
        assert (await stage.call(codex.models)).data
        heard.set()
        await reading.rest()
    assert (stage.workspace / "made").exists()


def add(first: int, second: int) -> int:
    """Add two numbers."""
    return first + second


async def greet(name: str) -> str:
    """Greet somebody."""
    await asyncio.sleep(0)
    return f"Hello, {name}."


def fail() -> None:
    """Always fails."""
    raise LookupError("nothing there")


@only("in process", "websocket")
@pytest.mark.parametrize(
    ("name", "arguments", "output"),
    [
        ("add", {"first": 2, "second": 3}, "5"),
        ("greet", {"name": "Ada"}, "Hello, Ada."),
        ("fail", {}, "nothing there"),
        ("add", {"first": "two"}, "`second` is missing"),
    ],
    ids=["plain", "async", "failing", "wrong arguments"],
)
async def test_the_agent_calls_functions(stage: Stage, name: str, arguments: dict[str, Any], output: str) -> None:
    stage.model.enqueue_function_call(name, arguments, call_id="c1")
    stage.model.enqueue_assistant_message("thanks")
    async with stage.codex() as codex:
        thread = await stage.call(codex.thread_start, tools=[add, greet, fail])
        result = await stage.call(thread.run, "use it")
    first, second = stage.model.requests()
    assert {"add", "greet", "fail"} <= set(first.tool_names)
    assert output in second.tool_outputs["c1"]
    assert [item.tool for item in result.items if item.type == "dynamicToolCall"] == [name]


async def test_tools_after_resuming(stage: Stage) -> None:
    stage.model.enqueue_assistant_message("hello")
    async with stage.codex() as codex:
        thread = await stage.call(codex.thread_start, tools=[add])
        await stage.call(thread.run, "hello")
    stage.model.enqueue_function_call("add", {"first": 2, "second": 3}, call_id="c1")
    stage.model.enqueue_assistant_message("five")
    async with stage.codex() as codex:
        resumed = await stage.call(codex.thread_resume, thread.id, tools=[add])
        await stage.call(resumed.run, "add")
    assert stage.model.requests()[-1].tool_outputs["c1"] == "5"


@dataclass
class City:
    name: str
    people: int


async def test_an_answer_of_a_type(stage: Stage) -> None:
    stage.model.enqueue_assistant_message(json.dumps({"name": "Oslo", "people": 700_000}))
    async with stage.codex() as codex:
        thread = await stage.call(codex.thread_start)
        result = await stage.call(thread.run, "a city", output_type=City)
    assert result.output == City("Oslo", 700_000)
    sent = stage.model.single_request().output_schema
    assert sent is not None
    assert set(sent["properties"]) == {"name", "people"}


@only("in process")
async def test_a_model_whose_answer_has_another_shape_is_told_and_asked_again(stage: Stage) -> None:
    stage.model.enqueue_assistant_message("Oslo!")
    stage.model.enqueue_assistant_message('{"name": "Oslo", "people": 700000}')
    async with stage.codex() as codex:
        thread = await stage.call(codex.thread_start)
        result = await stage.call(thread.run, "a city", output_type=City)
    assert result.output == City("Oslo", 700_000)
    asked = stage.model.requests()[-1].last_user_text or ""
    assert "no JSON, so no City" in asked
    assert "Answer again" in asked


@only("in process")
async def test_an_answer_that_never_fits_is_an_error_of_the_last(stage: Stage) -> None:
    for text in ("Oslo!", "Rome!", "Bonn!"):
        stage.model.enqueue_assistant_message(text)
    async with stage.codex() as codex:
        thread = await stage.call(codex.thread_start)
        with pytest.raises(OutputError, match="no City") as caught:
            await stage.call(thread.run, "a city", output_type=City, output_retries=0)
        assert caught.value.text == "Oslo!"
        with pytest.raises(OutputError) as caught:
            await stage.call(thread.run, "a city", output_type=City)
    assert caught.value.text == "Bonn!"


@only("in process")
async def test_what_makes_no_sense_is_refused_before_anything_is_sent(stage: Stage) -> None:
    async with stage.codex() as codex:
        thread = await stage.call(codex.thread_start)
        with pytest.raises(ArgumentError, match="output_schema and output_type"):
            await stage.call(thread.run, "a city", output_type=City, output_schema={})
        with pytest.raises(ArgumentError, match="input is empty"):
            await stage.call(thread.run, "")
        with pytest.raises(ArgumentError, match="input is empty"):
            await stage.call(thread.run, [])
    assert stage.model.requests() == []


@only("in process")
async def test_limits_end_a_turn_and_say_so(stage: Stage) -> None:
    used = replies.Usage(input_tokens=10, output_tokens=5)
    async with stage.codex() as codex:
        thread = await stage.call(codex.thread_start, max_thread_tokens=40)
        stage.model.enqueue_function_call("update_plan", {"plan": []})
        stage.model.enqueue_assistant_message("That is as far as I came.", usage=used)
        result = await stage.call(thread.run, "go", max_turns=1)
        assert result.limit is None  # it had its round, and wanted no more
        stage.model.enqueue_function_call("update_plan", {"plan": []}, usage=used)
        with pytest.raises(TurnLimitReached) as caught:
            await stage.call(thread.run, "go", max_turn_tokens=3)
        assert (caught.value.limit.kind, caught.value.limit.used) == ("turnTokens", 15)
        stage.model.enqueue_function_call("update_plan", {"plan": []}, usage=used)
        with pytest.raises(TurnLimitReached) as caught:
            await stage.call(thread.run, "go")
        assert caught.value.limit.kind == "threadTokens"
        again = await stage.call(codex.thread_resume, thread.id, max_thread_tokens=1000)
        stage.model.enqueue_function_call("update_plan", {"plan": []})
        stage.model.enqueue_function_call("update_plan", {"plan": []})
        result = await stage.call(again.run, "go", max_turns=1)
        assert result.limit is not None
        assert (result.limit.kind, result.limit.limit) == ("turnIterations", 1)


@only("in process")
async def test_a_thread_is_deleted_for_good(stage: Stage) -> None:
    stage.model.enqueue_assistant_message("Hello.")
    async with stage.codex() as codex:
        thread = await stage.call(codex.thread_start)
        await stage.call(thread.run, "hi")
        assert [one.id for one in (await stage.call(codex.thread_list)).data] == [thread.id]
        await stage.call(codex.thread_delete, thread.id)
        assert len((await stage.call(codex.thread_list)).data) == 0
        with pytest.raises(InvalidRequestError):
            await stage.call(codex.thread_resume, thread.id)


@only("in process")
async def test_a_text_that_starts_again_is_told(stage: Stage) -> None:
    stage.configure(provider={"stream_max_retries": 1})
    stage.model.enqueue_assistant_message("all done", deltas=["all ", "do", "ne"], cut_after=4)
    stage.model.enqueue_assistant_message("all done", deltas=["all ", "done"])
    async with stage.codex() as codex:
        thread = await stage.call(codex.thread_start)
        events = await stage.read(thread.events("do it all")).rest()
    shown: dict[str, str] = {}
    for event in events:
        match event:
            case TextDelta():
                shown[event.item_id] = shown.get(event.item_id, "") + event.text
            case TextRestarted():
                assert shown.pop(event.item_id) == "all do"
    assert list(shown.values()) == ["all done"]
    kinds = [event.kind for event in events]
    assert kinds.count("text_restarted") == 1
    assert kinds[kinds.index("text_restarted") - 1] == "problem"
    assert events[-1].result.final_response == "all done"


async def test_questions_of_the_model_are_answered_by_a_handler(stage: Stage) -> None:
    options = [{"label": "red", "description": "warm"}, {"label": "blue", "description": "cold"}]
    question = {"id": "colour", "header": "Colour", "question": "Which?", "options": options}
    stage.model.enqueue_function_call("request_user_input", {"questions": [question]}, call_id="c1")
    stage.model.enqueue_assistant_message("done")
    async with stage.codex(user_input_handler=lambda request: {request.questions[0].id: "blue"}) as codex:
        config = {"features": {"default_mode_request_user_input": True}}
        thread = await stage.call(codex.thread_start, config=config)
        result = await stage.call(thread.run, "paint it")
    assert result.final_response == "done"
    assert json.loads(stage.model.requests()[-1].tool_outputs["c1"]) == {"answers": {"colour": {"answers": ["blue"]}}}


@pytest.mark.every_wire
@only("in process")
async def test_a_text_before_a_call_is_not_the_answer(stage: Stage) -> None:
    stage.model.enqueue_calls(replies.ToolCall("exec_command", {"cmd": "true"}), text="I look first")
    stage.model.enqueue_assistant_message("all done")
    async with stage.codex() as codex:
        thread = await stage.call(codex.thread_start)
        events = await stage.read(thread.events("do it")).rest()
    kinds = [event.kind for event in events]
    texts = [(event.text, event.final) for event in events if isinstance(event, Text)]
    assert texts == [("I look first", False), ("all done", True)]
    assert kinds.index("text") < kinds.index("command_started")
    assert kinds[-1] == "done"


async def test_simplified_events(stage: Stage) -> None:
    plan = {"plan": [{"step": "look", "status": "in_progress"}]}
    stage.model.enqueue_function_call("update_plan", plan)
    stage.model.enqueue_function_call("exec_command", {"cmd": "echo out"})
    stage.model.enqueue_custom_call("apply_patch", PATCH)
    stage.model.enqueue_function_call("add", {"first": 1, "second": 1})
    stage.model.enqueue_assistant_message("all done", deltas=["all ", "done"])
    async with stage.codex() as codex:
        thread = await stage.call(codex.thread_start, tools=[add])
        events = await stage.read(thread.events("do it all")).rest()

    def of(kind: Any) -> list[Any]:
        return [event for event in events if isinstance(event, kind)]

    assert [step.step for event in of(Plan) for step in event.steps] == ["look"]
    (started,) = of(CommandStarted)
    assert started.command == "echo out"
    assert started.command_line.endswith("-lc 'echo out'")
    assert "".join(event.text for event in of(CommandOutput)) == "out\n"
    (finished,) = of(CommandFinished)
    assert finished.command == "echo out"
    assert (finished.output, finished.exit_code, finished.status) == ("out\n", 0, "completed")
    assert [(event.paths, event.status) for event in of(FileChange)] == [
        ((str(stage.workspace / "new.txt"),), "completed")
    ]
    assert [(event.tool, event.status, event.server) for event in of(ToolCall)] == [("add", "completed", None)]
    assert [(event.output, event.error, event.duration_ms is None) for event in of(ToolCall)] == [("2", None, False)]
    assert [(event.tool, event.arguments) for event in of(ToolCallStarted)] == [("add", {"first": 1, "second": 1})]
    assert "".join(event.text for event in of(TextDelta)) == "all done"
    assert [(event.text, event.final) for event in of(Text)] == [("all done", True)]
    assert len(of(Usage)) == 5
    assert isinstance(events[-1], Done)
    assert events[-1].result.final_response == "all done"
