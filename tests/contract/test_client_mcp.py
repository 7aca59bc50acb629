"""MCP servers of a thread: how a program passes them, is asked about their tools, answers questions and watches."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from contract import client_stage
from contract.client_stage import Stage, only
from kit import mcp_probe
from treadle import ApprovalDecision, ApprovalRequest, Sandbox, UserInputRequest
from treadle.errors import ArgumentError
from treadle.testing import replies
from treadle.types import ToolCall, ToolCallProgress, ToolCallStarted

pytestmark = pytest.mark.anyio
stage = client_stage.stage


def _probe(**keys: Any) -> dict[str, Any]:
    return {"probe": {"command": sys.executable, "args": ["-I", "-S", mcp_probe.__file__], **keys}}


FREE = _probe(default_tools_approval_mode="approve")


def _enqueue(stage: Stage, tool: str, text: str | None = None, *, call_id: str = "c1") -> None:
    arguments = {} if text is None else {"text": text}
    stage.model.enqueue_calls(replies.ToolCall(f"mcp__probe__{tool}", arguments, call_id))
    stage.model.enqueue_assistant_message("done")


def _output(stage: Stage, call_id: str = "c1") -> str:
    """What the model was told of a call."""
    return str(stage.model.requests()[-1].tool_outputs[call_id]).partition("Output:")[2].strip()


async def test_a_call_is_shown_from_its_start_to_its_end(stage: Stage) -> None:
    _enqueue(stage, "progress", "2")
    async with stage.codex() as codex:
        thread = await stage.call(codex.thread_start, mcp_servers=FREE)
        events = await stage.read(thread.events("go")).rest()
    calls: list[Any] = [each for each in events if isinstance(each, ToolCallStarted | ToolCallProgress | ToolCall)]
    assert [event.kind for event in calls] == ["tool_call_started", *["tool_call_progress"] * 2, "tool_call"]
    started, first, second, ended = calls
    assert {event.item_id for event in calls} == {"c1"}
    assert (started.server, started.tool, started.arguments) == ("probe", "progress", {"text": "2"})
    assert [first.message, second.message] == ["step 1", "step 2"]
    assert (ended.server, ended.tool, ended.status, ended.output) == ("probe", "progress", "completed", "2 steps")
    assert (ended.error, ended.duration_ms is not None) == (None, True)


@only("in process")
async def test_a_call_that_fails_says_why(stage: Stage) -> None:
    _enqueue(stage, "rpcerror")
    async with stage.codex() as codex:
        thread = await stage.call(codex.thread_start, mcp_servers=FREE)
        events = await stage.read(thread.events("go")).rest()
    (ended,) = [event for event in events if isinstance(event, ToolCall)]
    assert (ended.status, ended.output) == ("failed", "")
    assert "bad arguments here" in (ended.error or "")


async def test_the_approval_handler_is_asked_about_a_tool(stage: Stage) -> None:
    _enqueue(stage, "write_it", "x")
    asked: list[ApprovalRequest] = []

    def decide(request: ApprovalRequest) -> bool:
        asked.append(request)
        return True

    async with stage.codex(approval_handler=decide) as codex:
        thread = await stage.call(codex.thread_start, mcp_servers=_probe(), sandbox=Sandbox.workspace_write)
        result = await stage.call(thread.run, "go")
    (request,) = asked
    assert (request.kind, request.server, request.tool) == ("tool", "probe", "write_it")
    assert (request.arguments, request.turn_id, request.item_id) == ({"text": "x"}, result.id, "")
    assert request.params.message == request.reason
    assert _output(stage) == "written"


@only("in process")
@pytest.mark.parametrize(
    ("verdict", "message"),
    [
        (False, "user rejected MCP tool call"),
        (None, "user rejected MCP tool call"),
        ("nonsense", "user rejected MCP tool call"),
        (ApprovalDecision.decline, "user rejected MCP tool call"),
        (ApprovalDecision.cancel, "user cancelled MCP tool call"),
    ],
    ids=str,
)
async def test_everything_but_a_yes_is_a_no(stage: Stage, verdict: Any, message: str) -> None:
    _enqueue(stage, "write_it")
    # An answer to the questions of servers is no approval.
    handlers = {"approval_handler": lambda _: verdict, "user_input_handler": lambda _: {}}
    async with stage.codex(**handlers) as codex:
        thread = await stage.call(codex.thread_start, mcp_servers=_probe(), sandbox=Sandbox.workspace_write)
        assert (await stage.call(thread.run, "go")).final_response == "done"
    assert _output(stage) == message


async def test_without_an_approval_handler_the_answer_is_no(stage: Stage) -> None:
    stage.configure(approval_policy="on-request", sandbox_mode="workspace-write")
    _enqueue(stage, "write_it")
    async with stage.codex(user_input_handler=lambda _: {}) as codex:
        started = await stage.call(codex._client.thread_start, {})  # with the policy of the file, which asks us
        thread = await stage.call(codex.thread_resume, started.thread.id, mcp_servers=_probe())
        await stage.call(thread.run, "go")
    assert _output(stage) == "user rejected MCP tool call"


@only("in process")
async def test_a_yes_for_the_session_is_not_asked_for_again(stage: Stage) -> None:
    asked: list[ApprovalRequest] = []

    def decide(request: ApprovalRequest) -> ApprovalDecision:
        asked.append(request)
        return ApprovalDecision.accept_for_session

    async with stage.codex(approval_handler=decide) as codex:
        thread = await stage.call(codex.thread_start, mcp_servers=_probe(), sandbox=Sandbox.workspace_write)
        for call_id in ("c1", "c2"):
            _enqueue(stage, "write_it", call_id=call_id)
            await stage.call(thread.run, "go")
            assert _output(stage, call_id) == "written"
    assert len(asked) == 1


@only("in process")
async def test_a_yes_for_the_session_to_what_is_asked_each_time_is_for_once(stage: Stage) -> None:
    _enqueue(stage, "echo", "hi")
    servers = _probe(default_tools_approval_mode="prompt")
    async with stage.codex(approval_handler=lambda _: ApprovalDecision.accept_for_session) as codex:
        thread = await stage.call(codex.thread_start, mcp_servers=servers, sandbox=Sandbox.workspace_write)
        await stage.call(thread.run, "go")
    assert _output(stage) == "hi"


@only("in process", "websocket")
async def test_questions_of_a_server_are_answered_by_the_handler(stage: Stage) -> None:
    asked: list[UserInputRequest] = []

    def answer(request: UserInputRequest) -> dict[str, Any]:
        asked.append(request)
        return {} if request.url else {"name": "Ada", "age": 36}

    async with stage.codex(approval_handler=lambda _: False, user_input_handler=answer) as codex:
        thread = await stage.call(codex.thread_start, mcp_servers=FREE)
        for call_id, tool in (("c1", "ask"), ("c2", "ask_url")):
            _enqueue(stage, tool, call_id=call_id)
            await stage.call(thread.run, "go")
    form, page = asked
    assert (form.kind, form.server, form.message) == ("elicitation", "probe", "Who are you?")
    assert form.schema["required"] == ["name"]
    assert (page.server, page.message, page.url) == ("probe", "Look here", "https://example.com/x")
    assert '"name": "Ada", "age": 36' in _output(stage, "c1")
    assert '"action": "accept"' in _output(stage, "c2")


@only("in process")
async def test_without_a_handler_questions_are_declined(stage: Stage) -> None:
    _enqueue(stage, "ask")
    async with stage.codex(approval_handler=lambda _: True) as codex:
        thread = await stage.call(codex.thread_start, mcp_servers=FREE)
        await stage.call(thread.run, "go")
    assert _output(stage) == '{"action": "decline"}'


@only("in process")
async def test_a_server_that_wants_to_ask_the_model_needs_an_approval(stage: Stage) -> None:
    _enqueue(stage, "sample", "a riddle")
    asked: list[ApprovalRequest] = []
    async with stage.codex(approval_handler=asked.append) as codex:
        servers = _probe(default_tools_approval_mode="approve", sampling=True)
        thread = await stage.call(codex.thread_start, mcp_servers=servers)
        await stage.call(thread.run, "go")
    (request,) = asked
    assert (request.kind, request.server, request.tool) == ("sampling", "probe", None)
    assert "a riddle" in (request.reason or "")
    assert '"code": -1' in _output(stage)


async def _servers(stage: Stage, codex: Any, thread: Any) -> list[str]:
    answer = await stage.call(codex._client.mcp_server_status_list, {"threadId": thread.id})
    return [server.name for server in answer.data]


@only("in process")
async def test_servers_stay_with_the_thread_until_others_are_passed(stage: Stage) -> None:
    _enqueue(stage, "echo")
    async with stage.codex() as codex:
        thread = await stage.call(codex.thread_start, mcp_servers=FREE)
        await stage.call(thread.run, "go")
        assert await _servers(stage, codex, await stage.call(codex.thread_fork, thread.id)) == ["probe"]
        other = {"other": FREE["probe"]}
        fork = await stage.call(codex.thread_fork, thread.id, mcp_servers=other)
        assert await _servers(stage, codex, fork) == ["other"]
        resumed = await stage.call(codex.thread_resume, thread.id)
        assert await _servers(stage, codex, resumed) == ["probe"]
        resumed = await stage.call(codex.thread_resume, thread.id, mcp_servers=other)
        assert await _servers(stage, codex, resumed) == ["other"]


@only("in process", "websocket")
async def test_servers_are_asked_without_a_turn(stage: Stage) -> None:
    async with stage.codex() as codex:
        thread = await stage.call(codex.thread_start, mcp_servers=FREE)
        client = codex._client
        (server,) = (await stage.call(client.mcp_server_status_list, {"threadId": thread.id})).data
        assert server.tools["echo"].description == "echo tool"
        of_probe = {"threadId": thread.id, "server": "probe"}
        params = {**of_probe, "tool": "echo", "arguments": {"text": "hi"}}
        called = await stage.call(client.mcp_server_tool_call, params)
        assert called.content[0]["text"] == "hi"
        read = await stage.call(client.mcp_server_resource_read, {**of_probe, "uri": "probe://one"})
        assert read.contents[0].text == "the first"
        await stage.call(client.config_mcp_server_reload)


@only("in process")
@pytest.mark.parametrize("call", ["thread_start", "thread_resume", "thread_fork"])
async def test_a_typo_is_an_error_before_anything_is_sent(stage: Stage, call: str) -> None:
    async with stage.codex() as codex:
        of_thread = () if call == "thread_start" else ("no-such-thread",)
        with pytest.raises(ArgumentError, match="did you mean 'command'") as caught:
            await stage.call(getattr(codex, call), *of_thread, mcp_servers={"time": {"comand": "uvx"}})
    assert caught.value.parameter == "mcp_servers['time']['comand']"
