"""`treadle mcp-server`, spoken to line by line."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from kit.mcp_client import ELICITATION, McpClient, mcp_client
from kit.processes import DEADLINE_S, processes_left, wait_for_process
from system.agent.scene import patch
from system.mcp.mcp_scene import PROBE
from treadle import Codex
from treadle.own_python import treadle_command
from treadle.testing import AppServerHarness

ASKING = {"approval-policy": "untrusted"}


@contextmanager
def serving(
    harness: AppServerHarness, *words: str, capabilities: Mapping[str, Any] | None = None
) -> Iterator[McpClient]:
    log = harness.workspace.parent / "mcp-server.stderr"
    with mcp_client(harness.workspace, harness.environ(), log, *words) as client:
        client.shake_hands(capabilities=capabilities)
        yield client
        if client.process.poll() is None:
            assert client.hang_up() == 0
    assert log.read_text(encoding="utf-8") == ""


def command(harness: AppServerHarness, line: str) -> None:
    """The model runs a command, and then says that it is done."""
    harness.model.enqueue_function_call("exec_command", {"cmd": line})
    harness.model.enqueue_assistant_message("done")


def text_of(result: Any) -> str:
    return str(result["content"][0]["text"])


def thread_of(result: Any) -> str:
    return str(result["structuredContent"]["threadId"])


# --- the conversation ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "spoken"),
    [("2024-11-05", "2024-11-05"), ("2025-06-18", "2025-06-18"), ("1999-01-01", "2025-11-25")],
)
def test_the_version_is_the_clients_where_it_is_known(harness: AppServerHarness, asked: str, spoken: str) -> None:
    with mcp_client(harness.workspace, harness.environ(), harness.workspace.parent / "log") as client:
        result = client.shake_hands(asked)
        assert result["protocolVersion"] == spoken
        assert result["serverInfo"]["name"] == "treadle"
        assert result["capabilities"] == {"tools": {"listChanged": False}, "logging": {}}
        assert client.hang_up() == 0


def test_the_tools_are_codexs_and_ours(harness: AppServerHarness) -> None:
    with serving(harness) as client:
        tools = {tool["name"]: tool for tool in client.result(client.ask("tools/list"))["tools"]}
        ours = ["treadle_threads", "treadle_read", "treadle_interrupt"]
        assert list(tools) == ["codex", "codex-reply", *ours]
        schema = tools["codex"]["inputSchema"]
        assert schema["required"] == ["prompt"]
        assert {"approval-policy", "sandbox", "cwd", "model", "profile", "config"} < set(schema["properties"])
        assert tools["codex"]["outputSchema"]["required"] == ["threadId", "content"]


def test_what_cannot_be_done_is_said_and_the_conversation_goes_on(harness: AppServerHarness) -> None:
    with serving(harness) as client:
        assert client.answer(client.ask("resources/list"))["error"]["code"] == -32601
        unknown = client.answer(client.call("shell", {}))["error"]
        assert (unknown["code"], "codex-reply" in unknown["message"]) == (-32602, True)
        assert client.answer(client.ask("tools/call", {"arguments": {}}))["error"]["code"] == -32602
        assert client.answer(client.ask("logging/setLevel", {"level": "loud"}))["error"]["code"] == -32602
        client.send_line(b"{broken")
        assert client.wait(lambda it: "id" in it and it["id"] is None)["error"]["code"] == -32700
        client.send_line(b"[" * 100_000)
        client.send({"id": 999, "result": {}})
        client.send({"method": "notifications/cancelled", "params": {"requestId": "no such"}})
        assert client.result(client.ask("ping")) == {}


WRONG_ARGUMENTS: list[tuple[str, dict[str, Any], str]] = [
    ("codex", {}, "missing required field `prompt`"),
    ("codex", {"prompt": "x", "sandbx": "read-only"}, "unknown field `sandbx`"),
    ("codex", {"prompt": "x", "sandbox": "none"}, "`$.sandbox`"),
    ("codex", {"prompt": "x", "cwd": "no/such/folder"}, "no/such/folder"),
    ("codex", {"prompt": "x", "profile": "none"}, "none"),
    ("codex", {"prompt": "x", "config": {"sandbox_mode": 5}}, "sandbox_mode"),
    ("codex-reply", {"prompt": "x"}, "`threadId` is missing"),
    ("codex-reply", {"prompt": "x", "threadId": "nonsense"}, "nonsense"),
    ("treadle_read", {"threadId": "nonsense"}, "nonsense"),
    ("treadle_interrupt", {"threadId": "nonsense"}, "nonsense"),
    ("codex", {"prompt": ["no", "text"]}, "Expected `str`"),
    ("codex", {"prompt": "x", "config": "model"}, "`$.config`"),
]


def test_arguments_that_cannot_be_used(harness: AppServerHarness) -> None:
    with serving(harness) as client:
        for tool, arguments, said in WRONG_ARGUMENTS:
            result = client.run(tool, arguments)
            assert result["isError"] is True, arguments
            assert said in text_of(result)


# --- turns -----------------------------------------------------------------------------------------------------------


def test_a_turn_and_the_next_on_its_thread(harness: AppServerHarness) -> None:
    harness.model.enqueue_assistant_message("Hello.")
    harness.model.enqueue_assistant_message("Again.")
    harness.model.enqueue_assistant_message("And again.")
    with serving(harness) as client:
        first = client.run("codex", {"prompt": "hi", "developer-instructions": "Be kind.", "include-plan-tool": True})
        thread = thread_of(first)
        assert first["structuredContent"] == {"threadId": thread, "content": "Hello."}
        assert first["content"] == [{"type": "text", "text": "Hello."}]
        assert "isError" not in first
        assert "Be kind." in str(harness.model.requests()[0].json)
        second = client.run("codex-reply", {"threadId": thread, "prompt": "more"})
        assert second["structuredContent"] == {"threadId": thread, "content": "Again."}
        third = client.run("codex-reply", {"conversationId": thread, "prompt": "more"})
        assert third["structuredContent"] == {"threadId": thread, "content": "And again."}
        assert "Hello." in str(harness.model.requests()[-1].json)


def test_a_turn_runs_where_and_as_it_is_told(harness: AppServerHarness) -> None:
    (harness.workspace / "inner").mkdir()
    command(harness, "pwd; touch made")
    with serving(harness) as client:
        settings = {"cwd": "inner", "sandbox": "read-only", "approval-policy": "never", "model": "another"}
        result = client.run("codex", {"prompt": "hi", **settings})
        assert text_of(result) == "done"
        request = harness.model.requests()[-1]
        assert request.json["model"] == "another"
        assert str(harness.workspace / "inner") in next(iter(request.tool_outputs.values()))
        assert not (harness.workspace / "inner" / "made").exists()


def test_a_turn_is_shown_as_it_goes(harness: AppServerHarness) -> None:
    command(harness, "echo well")
    with serving(harness) as client:
        thread = thread_of(client.run("codex", {"prompt": "hi"}, token="t1"))
        progress = client.told("notifications/progress")
        assert [it["progress"] for it in progress] == list(range(1, len(progress) + 1))
        assert {it["progressToken"] for it in progress} == {"t1"}
        messages = [it["message"] for it in progress]
        assert (messages[0], messages[-2:]) == ("started", ["done", "ended"])
        assert "echo well" in messages[1]
        logged = client.told("notifications/message")
        assert {it["data"]["threadId"] for it in logged} == {thread}
        methods = [it["data"]["method"] for it in logged]
        assert (methods[0], methods[-1]) == ("turn/started", "turn/completed")
        assert "item/agentMessage/delta" not in methods


def test_the_client_sets_how_much_is_logged(harness: AppServerHarness) -> None:
    harness.model.enqueue_assistant_message("Hello.")
    harness.model.enqueue_assistant_message("Hello.")
    with serving(harness) as client:
        client.result(client.ask("logging/setLevel", {"level": "warning"}))
        client.run("codex", {"prompt": "hi"})
        assert client.told("notifications/message") == []
        assert client.told("notifications/progress") == []
        client.result(client.ask("logging/setLevel", {"level": "debug"}))
        client.run("codex", {"prompt": "hi"})
        assert "item/agentMessage/delta" in [it["data"]["method"] for it in client.told("notifications/message")]


def test_a_turn_that_fails_is_an_error_with_its_thread(harness: AppServerHarness) -> None:
    harness.model.enqueue_error(400, {"error": {"message": "no such thing"}})
    with serving(harness) as client:
        result = client.run("codex", {"prompt": "hi"})
        assert result["isError"] is True
        assert "no such thing" in text_of(result)
        assert thread_of(result)


def test_turns_run_beside_each_other_and_one_at_a_time_on_a_thread(harness: AppServerHarness) -> None:
    gate = threading.Event()
    harness.model.enqueue_assistant_message("first")
    with serving(harness) as client:
        thread = thread_of(client.run("codex", {"prompt": "hi"}))
        for number in range(8):
            harness.model.enqueue_assistant_message(f"answer {number}", gate=gate)
        calls = [client.call("codex", {"prompt": "hi"}) for _ in range(7)]
        calls.append(client.call("codex-reply", {"threadId": thread, "prompt": "hi"}))
        client.wait(lambda it: _turns_started(client) == 9)
        busy = client.run("codex-reply", {"threadId": thread, "prompt": "hi"})
        assert (busy["isError"], "has a turn that runs" in text_of(busy)) == (True, True)
        gate.set()
        answers = {text_of(client.result(call)) for call in calls}
        assert answers == {f"answer {number}" for number in range(8)}


def _turns_started(client: McpClient) -> int:
    return sum(it["data"]["method"] == "turn/started" for it in client.told("notifications/message"))


def test_more_turns_than_there_is_room_for_are_refused(harness: AppServerHarness) -> None:
    gate = threading.Event()
    for _ in range(32):
        harness.model.enqueue_assistant_message("hello", gate=gate)
    with serving(harness) as client:
        calls = [client.call("codex", {"prompt": "hi"}) for _ in range(40)]
        early = client.wait(lambda it: it.get("id") in calls)
        assert "32 turns are running" in text_of(early["result"])
        gate.set()
        results = [client.result(call) for call in calls]
        assert sum("isError" in result for result in results) == 8
        assert sum(text_of(result) == "hello" for result in results) == 32


# --- the end of a turn before its time -------------------------------------------------------------------------------


def test_a_cancelled_call_interrupts_its_turn(harness: AppServerHarness, marker: str) -> None:
    command(harness, f"sleep {marker}")
    with serving(harness) as client:
        call = client.call("codex", {"prompt": "hi"})
        wait_for_process(marker)
        client.send({"method": "notifications/cancelled", "params": {"requestId": call}})
        assert not processes_left(marker)
        thread = client.run("treadle_threads", {})["structuredContent"]["threads"][0]["threadId"]
        assert text_of(client.run("codex-reply", {"threadId": thread, "prompt": "more"})) == "done"
        turns = client.run("treadle_read", {"threadId": thread})["structuredContent"]["turns"]
        assert [turn["status"] for turn in turns] == ["interrupted", "completed"]
        assert not any(it.get("id") == call for it in client.messages)


def test_a_turn_is_interrupted_by_another_call(harness: AppServerHarness, marker: str) -> None:
    command(harness, f"sleep {marker}")
    with serving(harness) as client:
        call = client.call("codex", {"prompt": "hi"})
        wait_for_process(marker)
        running = client.run("treadle_threads", {})["structuredContent"]["threads"][0]
        assert running["status"] == "running"
        client.run("treadle_interrupt", {"threadId": running["threadId"]})
        result = client.result(call)
        assert (result["isError"], text_of(result)) == (True, "the turn was interrupted")
        again = client.run("treadle_interrupt", {"threadId": running["threadId"]})
        assert "has no turn that runs" in text_of(again)


def test_the_end_of_the_input_is_the_end_of_all(harness: AppServerHarness, marker: str) -> None:
    command(harness, f"sleep {marker}")
    with serving(harness) as client:
        client.call("codex", {"prompt": "hi"})
        wait_for_process(marker)
        assert client.hang_up() == 0
        assert not processes_left(marker)


# --- approvals -------------------------------------------------------------------------------------------------------


ANSWERS: list[tuple[dict[str, Any], bool]] = [
    ({"action": "accept", "content": {}}, True),
    ({"decision": "approved"}, True),
    ({"action": "accept", "decision": "approved_for_session"}, True),
    ({"action": "decline"}, False),
    ({"decision": "denied"}, False),
    ({"action": "decline", "decision": "approved"}, False),
    ({"action": "accept", "decision": "perhaps"}, False),
    ({}, False),
]


def _asked_about(client: McpClient, call: int) -> Any:
    return client.wait(lambda it: it.get("params", {}).get("codex_mcp_tool_call_id") == str(call))


def test_an_approval_is_asked_of_the_client(harness: AppServerHarness) -> None:
    """In a thread of its own each: a yes for the session is none for another."""
    made = harness.workspace / "made"
    with serving(harness, capabilities=ELICITATION) as client:
        for answer, allowed in ANSWERS:
            command(harness, "touch made")
            call = client.call("codex", {"prompt": "hi", **ASKING})
            asked = _asked_about(client, call)
            params = asked["params"]
            assert "touch made" in params["message"]
            assert params["requestedSchema"] == {"type": "object", "properties": {}}
            assert params["codex_elicitation"] == "exec-approval"
            assert params["codex_command"][-1] == "touch made"
            assert params["codex_cwd"] == str(harness.workspace)
            assert not made.exists()
            client.send({"id": asked["id"], "result": answer})
            result = client.result(call)
            assert result["structuredContent"] == {"threadId": params["threadId"], "content": "done"}
            assert made.exists() is allowed, answer
            made.unlink(missing_ok=True)


@pytest.mark.parametrize("answer", [{"action": "cancel"}, {"decision": "abort"}])
def test_a_cancel_ends_the_turn(harness: AppServerHarness, answer: dict[str, Any]) -> None:
    command(harness, "touch made")
    with serving(harness, capabilities=ELICITATION) as client:
        call = client.call("codex", {"prompt": "hi", **ASKING})
        client.send({"id": client.asked()["id"], "result": answer})
        assert client.result(call)["isError"] is True
        assert not (harness.workspace / "made").exists()


@pytest.mark.parametrize("capabilities", [{}, {"elicitation": {"url": {}}}])
def test_a_client_that_cannot_be_asked_is_told_what_was_declined(
    harness: AppServerHarness, capabilities: dict[str, Any]
) -> None:
    command(harness, "touch made")
    with serving(harness, capabilities=capabilities) as client:
        result = client.run("codex", {"prompt": "hi", **ASKING})
        assert text_of(result) == "done"
        assert "touch made" in result["content"][1]["text"]
        assert "elicitation" in result["content"][1]["text"]
        assert len(result["structuredContent"]["declined"]) == 1
        assert not (harness.workspace / "made").exists()


def test_a_client_that_fails_to_answer_has_declined(harness: AppServerHarness) -> None:
    command(harness, "touch made")
    with serving(harness, capabilities=ELICITATION) as client:
        call = client.call("codex", {"prompt": "hi", **ASKING})
        client.send({"id": client.asked()["id"], "error": {"code": -1, "message": "nobody at home"}})
        assert "nobody at home" in client.result(call)["structuredContent"]["declined"][0]
        assert not (harness.workspace / "made").exists()


# --- approvals by a model --------------------------------------------------------------------------------------------

MODEL_APPROVES = ("-c", "mcp_model_approvals=true")


@pytest.mark.parametrize("decision", ["accept", "decline"])
def test_a_model_approves_where_nobody_can_and_the_user_allows_it(harness: AppServerHarness, decision: str) -> None:
    command(harness, "touch made")
    with serving(harness, *MODEL_APPROVES) as client:
        call = client.call("codex", {"prompt": "hi", **ASKING})
        asks = client.wait(lambda it: it.get("params", {}).get("msg", {}).get("type") == "exec_approval_request")
        thread = asks["params"]["_meta"]["threadId"]
        (approval,) = client.run("treadle_read", {"threadId": thread})["structuredContent"]["approvals"]
        assert "touch made" in approval["asksFor"]
        answer = {"approvalId": approval["approvalId"], "decision": decision}
        assert client.run("treadle_approve", answer)["structuredContent"] == answer
        assert text_of(client.result(call)) == "done"
        assert (harness.workspace / "made").exists() is (decision == "accept")
        assert client.run("treadle_approve", answer)["isError"] is True  # it is answered


@pytest.mark.parametrize(
    ("words", "capabilities"),
    [((), {}), (MODEL_APPROVES, ELICITATION), ((), ELICITATION)],
)
def test_a_model_approves_nothing_else(
    harness: AppServerHarness, words: tuple[str, ...], capabilities: dict[str, Any]
) -> None:
    command(harness, "touch made")
    with serving(harness, *words, capabilities=capabilities) as client:
        tools = client.result(client.ask("tools/list"))["tools"]
        assert "treadle_approve" not in [tool["name"] for tool in tools]
        call = client.call("codex", {"prompt": "hi", "config": {"mcp_model_approvals": True}, **ASKING})
        if capabilities:
            asked = client.asked()
            thread = client.run("treadle_read", {"threadId": asked["params"]["threadId"]})["structuredContent"]
            assert thread["approvals"] == []
        guess = client.call("treadle_approve", {"approvalId": "approval-1", "decision": "accept"})
        assert client.answer(guess)["error"]["code"] == -32602
        if capabilities:
            client.send({"id": asked["id"], "result": {"action": "decline"}})
        assert text_of(client.result(call)) == "done"
        assert not (harness.workspace / "made").exists()


def test_an_approval_that_is_not_open(harness: AppServerHarness) -> None:
    with serving(harness, *MODEL_APPROVES) as client:
        unknown = client.run("treadle_approve", {"approvalId": "nonsense", "decision": "accept"})
        assert "no approval 'nonsense' is open" in text_of(unknown)


def test_the_question_of_an_interrupted_turn_is_taken_back(harness: AppServerHarness) -> None:
    command(harness, "touch made")
    with serving(harness, capabilities=ELICITATION) as client:
        call = client.call("codex", {"prompt": "hi", **ASKING})
        asked = client.asked()
        client.send({"method": "notifications/cancelled", "params": {"requestId": call}})
        taken_back = client.wait(lambda it: it.get("method") == "notifications/cancelled")
        assert taken_back["params"]["requestId"] == asked["id"]


# --- threads ---------------------------------------------------------------------------------------------------------


def test_threads_are_those_of_every_other_client(harness: AppServerHarness) -> None:
    for text in ("From here.", "From there.", "Again."):
        harness.model.enqueue_assistant_message(text)
    with Codex(harness.codex_config()) as codex:
        other = codex.thread_start()
        other.run("one")
        with serving(harness) as client:
            mine = thread_of(client.run("codex", {"prompt": "two"}))
            listed = client.run("treadle_threads", {})["structuredContent"]["threads"]
            assert [thread["threadId"] for thread in listed] == [mine, other.id]
            found = client.run("treadle_threads", {"search": "one", "limit": 1})["structuredContent"]["threads"]
            assert [thread["threadId"] for thread in found] == [other.id]
            read = client.run("treadle_read", {"threadId": other.id})["structuredContent"]
            assert [item["text"] for item in read["turns"][0]["items"]] == ["one", "From here."]
        assert [thread.id for thread in codex.thread_list().data] == [mine, other.id]
        assert codex.thread_resume(mine).run("three").final_response == "Again."


# --- what other MCP servers ask --------------------------------------------------------------------------------------


def test_a_patch_and_a_tool_of_another_server_are_asked_about(harness: AppServerHarness) -> None:
    model = harness.model
    model.enqueue_custom_call("apply_patch", patch("*** Add File: made", "+x"))
    model.enqueue_function_call("mcp__probe__write_it", {"text": "v"})
    model.enqueue_assistant_message("done")
    probe = {"command": sys.executable, "args": ["-I", "-S", PROBE]}
    with serving(harness, capabilities=ELICITATION) as client:
        settings = {"approval-policy": "untrusted", "sandbox": "read-only", "config": {"mcp_servers": {"probe": probe}}}
        call = client.call("codex", {"prompt": "hi", **settings})
        asked = client.asked()
        assert asked["params"]["codex_elicitation"] == "patch-approval"
        assert "made" in asked["params"]["message"]
        client.send({"id": asked["id"], "result": {"action": "accept"}})
        about_tool = client.wait(lambda it: it.get("method") == "elicitation/create" and it["id"] != asked["id"])
        assert 'MCP server probe: Allow the probe MCP server to run tool "write_it"?' in about_tool["params"]["message"]
        assert '{"text":"v"}' in about_tool["params"]["message"]
        client.send({"id": about_tool["id"], "result": {"action": "accept", "content": {}}})
        assert text_of(client.result(call)) == "done"
        assert (harness.workspace / "made").read_text(encoding="utf-8") == "x\n"
        assert next(reversed(model.requests()[-1].tool_outputs.values())).endswith("written")


# --- clients that mean no good ---------------------------------------------------------------------------------------


def test_a_client_that_asks_and_does_not_read_waits(harness: AppServerHarness) -> None:
    log = harness.workspace.parent / "log"
    with log.open("wb") as errors:
        process = subprocess.Popen(
            treadle_command("mcp-server"),
            cwd=harness.workspace,
            env=dict(harness.environ()),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
        )
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        line = b'{"jsonrpc":"2.0","id":%d,"method":"tools/list"}\n'
        sent = 0
        os.set_blocking(process.stdin.fileno(), False)
        deadline = time.monotonic() + DEADLINE_S
        while sent < 10_000 and time.monotonic() < deadline:
            _, writable, _ = select.select([], [process.stdin], [], 1.0)
            if not writable:
                break  # it reads no more: its answers are not read
            sent += 1
            process.stdin.raw.write(line % sent)  # type: ignore[attr-defined]
        assert 0 < sent < 10_000
        memory = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")
        assert int(memory.partition("VmRSS:")[2].split()[0]) < 200_000
        numbers = [json.loads(process.stdout.readline())["id"] for _ in range(sent)]
        assert numbers == list(range(1, sent + 1))  # whoever reads gets all answers
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            assert stream is not None
            with suppress(OSError):
                stream.close()


def test_no_token_is_logged_whatever_goes_wrong(harness: AppServerHarness) -> None:
    log = harness.workspace.parent / "secrets"
    secret = "very-secret-value-0123456789"
    servers = {"one": {"command": "no-such-program", "env": {"API_TOKEN": secret}}}
    harness.model.enqueue_assistant_message("Hello.")
    with mcp_client(harness.workspace, harness.environ(), log, "--log-level", "debug") as client:
        client.shake_hands()
        client.run("codex", {"prompt": "hi", "config": {"mcp_servers": servers}})
        client.run("codex", {"prompt": "hi", "config": {"mcp_servers": {"one": {"env": {"API_TOKEN": secret}}}}})
        client.run("codex", {"prompt": "hi", "nonsense": secret})
        client.hang_up()
    assert secret not in log.read_text(encoding="utf-8")
