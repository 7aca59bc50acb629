"""The ACP agent for codex, as editors run it, on our app-server and on the real one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import kit.mcp_probe
from interop.clients.acp_editor import AcpEditor, AcpRefused, AcpSession
from interop.clients.client_model import FINDING, FIRST, PLAN, SECOND, TITLE
from interop.clients.client_stage import MODEL, WAIT_S, ClientStage
from interop.clients.conftest import OpenEditor
from interop.clients.prompts import escalated, patch
from interop.interop_table import scenario_of
from kit.processes import child_of

pytestmark = pytest.mark.interop
scenario = scenario_of("codex-acp")

PROBE = {"name": "probe", "command": sys.executable, "args": ["-I", "-S", kit.mcp_probe.__file__], "env": []}
TOKEN = "the-token-of-the-editor"


@pytest.fixture(scope="module")
def extended(open_editor: OpenEditor) -> AcpEditor:
    """An editor that has added to the protocol."""
    return open_editor(extensions=["sessionIndex", "asyncTasks"])


def output_of(call: dict[str, Any], session: AcpSession) -> str:
    """What the editor shows in the terminal of a command."""
    pieces = [update.get("_meta", {}) for update in session.updates if update.get("toolCallId") == call["toolCallId"]]
    return "".join(meta["terminal_output_delta"]["data"] for meta in pieces if "terminal_output_delta" in meta)


def titles(session: AcpSession) -> list[str]:
    return [update["title"] for update in session.of("session_info_update") if "title" in update]


@scenario("start-up")
def test_acp_starts(editor: AcpEditor) -> None:
    assert editor.agent["agentInfo"]["name"] == "@agentclientprotocol/codex-acp"
    session = editor.new_session()
    modes = [mode["id"] for mode in session.opened["modes"]["availableModes"]]
    assert modes == ["read-only", "workspace-write", "agent", "agent-full-access"]
    assert session.option("model")["currentValue"] == MODEL
    session.wait_update("available_commands_update")


@scenario("message")
def test_acp_message(editor: AcpEditor) -> None:
    session = editor.new_session()
    assert session.prompt("hello acp") == "end_turn"
    assert session.said() == "pong: hello acp"
    assert session.prompt("USERS?") == "end_turn"
    assert "users=" in session.said()


@scenario("streaming")
def test_acp_streaming(editor: AcpEditor, stage: ClientStage) -> None:
    session = editor.new_session()
    turn = session.begin("STREAM:acp")
    session.wait_said(FIRST)
    assert session.said() == FIRST
    stage.model.open_gate("acp")
    assert session.ended(turn) == "end_turn"
    assert session.said() == FIRST + SECOND


@scenario("command")
def test_acp_command(editor: AcpEditor) -> None:
    session = editor.new_session()
    assert session.prompt("RUN:echo mark$((40+2)); exit 3") == "end_turn"
    [call] = session.tool_calls()
    assert (call["kind"], call["title"], call["status"]) == ("execute", "echo mark$((40+2)); exit 3", "failed")
    assert output_of(call, session) == "mark42\n"
    assert call["_meta"]["terminal_exit"]["exit_code"] == 3
    assert "mark42" in session.said()


@scenario("patch")
def test_acp_patch(editor: AcpEditor, stage: ClientStage) -> None:
    session = editor.new_session("workspace-write")
    assert session.prompt(patch("patched.txt")) == "end_turn"
    path = stage.workspace / "patched.txt"
    assert path.read_text() == "one\n"
    [call] = session.tool_calls()
    assert (call["kind"], call["status"]) == ("edit", "completed")
    [shown] = call["content"]
    assert (shown["path"], shown["oldText"], shown["newText"]) == (str(path), None, "one\n")
    assert session.asked == []


@scenario("approval: accept")
def test_acp_accept(editor: AcpEditor) -> None:
    session = editor.new_session("workspace-write")
    session.choice = "allow_once"
    for _ in range(2):
        assert session.prompt(escalated("echo yes$((40+2))")) == "end_turn"
    assert [asked["toolCall"]["title"] for asked in session.asked] == ["echo yes$((40+2))"] * 2
    assert [output_of(call, session) for call in session.tool_calls()] == ["yes42\n"] * 2


@scenario("approval: for the session")
def test_acp_accept_for_session(editor: AcpEditor, stage: ClientStage) -> None:
    session = editor.new_session("read-only")
    session.choice = "allow_for_session"
    assert session.prompt(patch("often.txt")) == "end_turn"
    assert session.prompt(patch("often.txt", "Update File: {}\n@@\n-one\n+two")) == "end_turn"
    assert (stage.workspace / "often.txt").read_text() == "two\n"
    assert len(session.asked) == 1


@scenario("approval: cancel")
def test_acp_cancel(editor: AcpEditor, stage: ClientStage) -> None:
    session = editor.new_session("workspace-write")
    session.choice = "cancel"
    assert session.prompt(escalated("touch cancelled.txt")) == "cancelled"
    assert len(session.asked) == 1
    [call] = session.tool_calls()
    assert call["status"] == "failed"
    assert not (stage.workspace / "cancelled.txt").exists()
    assert session.prompt("still there") == "end_turn"


@scenario("approval: by the automatic reviewer")
def test_acp_auto_review(editor: AcpEditor, stage: ClientStage) -> None:
    session = editor.new_session("agent")
    assert session.prompt(escalated("touch reviewed.txt")) == "end_turn"
    assert (stage.workspace / "reviewed.txt").exists()
    assert session.prompt(escalated("touch forbidden.txt")) == "end_turn"
    assert not (stage.workspace / "forbidden.txt").exists()
    reviews = [call for call in session.tool_calls() if call["toolCallId"].startswith("guardian_assessment")]
    assert [review["status"] for review in reviews] == ["completed", "failed"]
    assert session.asked == []


@scenario("permissions")
def test_acp_modes(editor: AcpEditor, stage: ClientStage) -> None:
    session = editor.new_session("read-only")
    session.prompt("RUN:echo x > modes.txt")
    assert not (stage.workspace / "modes.txt").exists()
    session.set_mode("agent-full-access")
    assert session.prompt("RUN:echo x > modes.txt") == "end_turn"
    assert (stage.workspace / "modes.txt").exists()


@scenario("interrupt in text")
def test_acp_interrupt_text(editor: AcpEditor) -> None:
    session = editor.new_session()
    turn = session.begin("STREAM:never")
    session.wait_said(FIRST)
    session.cancel()
    assert session.ended(turn) == "cancelled"
    assert session.prompt("still there") == "end_turn"
    assert session.said().endswith("pong: still there")


@scenario("interrupt in a command")
def test_acp_interrupt_command(editor: AcpEditor, stage: ClientStage) -> None:
    session = editor.new_session()
    turn = session.begin("RUN:echo begun; sleep 600")
    session.wait_update("tool_call")
    session.cancel()
    assert session.ended(turn) == "cancelled"
    if stage.server == "ours":  # the real one never tells that the command has ended
        assert [call["status"] for call in session.tool_calls()] == ["failed"]
    assert session.prompt("still there") == "end_turn"
    assert session.said().endswith("pong: still there")


@scenario("steer")
def test_acp_steer(editor: AcpEditor, stage: ClientStage) -> None:
    session = editor.new_session()
    turn = session.begin("GATE:steer first")
    stage.model.wait_for_prompt("GATE:steer first")
    steered = [{"type": "text", "text": "and this"}]
    assert editor.ask("_session/steering", sessionId=session.id, prompt=steered) == {"outcome": "injected"}
    stage.model.open_gate("steer")
    assert session.ended(turn) == "end_turn"
    assert session.said().endswith("pong: and this")


@scenario("plan mode")
def test_acp_plan(editor: AcpEditor) -> None:
    session = editor.new_session()
    session.set_option("collaboration_mode", "plan")
    session.choice = "implement_plan"
    assert session.prompt("make a PLAN") == "end_turn"
    [asked] = session.asked
    assert asked["toolCall"]["title"] == "Implement this plan?"
    assert asked["toolCall"]["rawInput"]["plan"].strip() == PLAN
    assert PLAN in session.said()
    assert session.said().endswith("pong: Implement the approved plan.")


@scenario("a question of the model")
def test_acp_question(editor: AcpEditor) -> None:
    session = editor.new_session()
    session.set_option("collaboration_mode", "plan")
    session.form = {"colour": "red"}
    options = [{"label": "red", "description": "warm"}, {"label": "blue", "description": "cold"}]
    question = {"id": "colour", "header": "Colour", "question": "Which one?", "options": options}
    assert session.prompt(f"CALL:request_user_input {json.dumps({'questions': [question]})}") == "end_turn"
    [asked] = session.asked
    assert asked["requestedSchema"]["properties"]["colour"]["title"] == "Which one?"
    assert session.said() == 'tool said: {"answers":{"colour":{"answers":["red"]}}}'


@scenario("MCP server of the session")
def test_acp_mcp_server(editor: AcpEditor) -> None:
    session = editor.new_session(mcp_servers=[PROBE])
    assert session.prompt('CALL:mcp__probe.echo {"text": "from the editor"}') == "end_turn"
    assert "from the editor" in session.said()
    [call] = session.tool_calls()
    assert (call["title"], call["status"]) == ("mcp.probe.echo", "completed")
    assert call["rawOutput"]["result"]["content"] == [{"type": "text", "text": "from the editor"}]
    assert session.asked == []
    another = editor.new_session()
    assert another.prompt('CALL:mcp__probe.echo {"text": "from another"}') == "end_turn"
    assert "unsupported call" in another.said()


@scenario("MCP server of the session over HTTP")
def test_acp_mcp_over_http(editor: AcpEditor) -> None:
    with http_server() as url:
        header = {"name": "Authorization", "value": f"Bearer {TOKEN}"}
        locked = {"type": "http", "name": "web", "url": url, "headers": [header]}
        session = editor.new_session(mcp_servers=[PROBE, locked])
        assert session.prompt('CALL:mcp__web.echo {"text": "over the net"}') == "end_turn"
        assert "over the net" in session.said()
        [call] = session.tool_calls()
        assert (call["title"], call["status"]) == ("mcp.web.echo", "completed")
        assert session.prompt('CALL:mcp__probe.echo {"text": "beside it"}') == "end_turn"
        assert "beside it" in session.said()


@contextmanager
def http_server() -> Iterator[str]:
    """The probe over HTTP, which lets in whoever has the token."""
    program = [sys.executable, "-I", "-S", kit.mcp_probe.__file__, "--http", "--port", "0", "--token", TOKEN]
    with subprocess.Popen(program, stdout=subprocess.PIPE) as probe:
        try:
            assert probe.stdout is not None
            yield f"http://127.0.0.1:{int(probe.stdout.readline())}/mcp"
        finally:
            probe.kill()


@scenario("MCP server: approval of a call")
def test_acp_mcp_approval(editor: AcpEditor) -> None:
    session = editor.new_session("workspace-write", mcp_servers=[PROBE])
    session.choice = "allow_session"
    for _ in range(2):
        assert session.prompt('CALL:mcp__probe.write_it {"text": "x"}') == "end_turn"
        assert session.said().endswith("written")
    [asked] = session.asked
    offered = ["allow_once", "allow_session", "allow_always", "cancel"]
    assert [option["optionId"] for option in asked["options"]] == offered
    session.choice = "cancel"
    assert session.prompt('CALL:mcp__probe.sample {"text": "x"}') == "end_turn"
    assert session.said().endswith("user cancelled MCP tool call")
    assert [call["status"] for call in session.tool_calls()] == ["completed", "completed", "failed"]


@scenario("MCP server: its question to the user")
def test_acp_mcp_question(editor: AcpEditor) -> None:
    session = editor.new_session("workspace-write", mcp_servers=[PROBE])
    session.choice = "allow_once"
    session.form = {"name": "Ada"}
    assert session.prompt('CALL:mcp__probe.ask {"text": "Who is it?"}') == "end_turn"
    *_, asked = session.asked
    assert asked["message"] == "Who is it?"
    assert '{"action": "accept", "content": {"name": "Ada"}}' in session.said()


@scenario("title")
def test_acp_title(editor: AcpEditor) -> None:
    session = editor.new_session()
    session.prompt("give it a name")
    editor.wait(lambda: TITLE in titles(session), "the title")
    assert editor.listed()[session.id]["title"] == TITLE
    assert editor.ask("session/set_title", sessionId=session.id, title="My own") == {"title": "My own"}
    assert editor.listed()[session.id]["title"] == "My own"


@scenario("resume picker")
def test_acp_resume(editor: AcpEditor) -> None:
    session = editor.new_session()
    session.prompt("remember me")
    editor.ask("session/close", sessionId=session.id)
    assert session.id in editor.listed()
    again = editor.load_session(session.id)
    assert again.said("user") == "remember me"
    assert again.said() == "pong: remember me"
    assert again.prompt("and this") == "end_turn"
    assert again.said().endswith("pong: and this")


@scenario("fork")
def test_acp_fork(editor: AcpEditor, stage: ClientStage) -> None:
    session = editor.new_session()
    session.prompt("before the fork")
    fork = editor.fork_session(session.id)
    assert fork.prompt("in the fork") == "end_turn"
    [asked] = [request for request in stage.model.requests() if request.last_user_text == "in the fork"]
    assert "before the fork" in asked.input_texts("user")
    assert session.prompt("in the first") == "end_turn"
    [asked] = [request for request in stage.model.requests() if request.last_user_text == "in the first"]
    assert "in the fork" not in asked.input_texts("user")


@scenario("archive")
def test_acp_archive(extended: AcpEditor) -> None:
    session = extended.new_session()
    session.prompt("to be archived")
    extended.ask("_session/archive", sessionId=session.id)
    assert session.id not in extended.listed()
    extended.ask("_session/unarchive", sessionId=session.id)
    assert session.id in extended.listed()
    assert extended.load_session(session.id).said("user") == "to be archived"


@scenario("background terminals")
def test_acp_background(extended: AcpEditor) -> None:
    session = extended.new_session("workspace-write")
    arguments = {"cmd": "echo begun; sleep 600", "yield_time_ms": 250}
    assert session.prompt(f"CALL:exec_command {json.dumps(arguments)}") == "end_turn"
    task = session.wait_update("async_task_spawned")
    assert (task["name"], task["canStop"]) == ("echo begun; sleep 600", True)
    stop = {"sessionId": session.id, "asyncTaskId": task["asyncTaskId"]}
    assert extended.ask("_session/async_task/stop", **stop) == {"stopped": True}
    assert session.wait_update("async_task_state_update")["state"] == "stopped"
    extended.wait(lambda: session.tool_calls()[0]["status"] == "failed", "the end of the command")


@scenario("delete")
def test_acp_delete(editor: AcpEditor) -> None:
    session = editor.new_session()
    session.prompt("to be deleted")
    assert session.id in editor.listed()
    editor.ask("session/delete", sessionId=session.id)
    assert session.id not in editor.listed()


@scenario("review")
def test_acp_review(editor: AcpEditor, stage: ClientStage) -> None:
    session = editor.new_session()
    assert session.prompt("/review") == "end_turn"
    assert session.said().count("pong: ") > 0
    path = stage.workspace / "README.md"
    assert session.prompt(f"/review FINDING:{path}") == "end_turn"
    assert FINDING in session.said()
    assert session.prompt("after the review") == "end_turn"


@scenario("compact")
def test_acp_compact(editor: AcpEditor) -> None:
    session = editor.new_session()
    session.prompt("much to say")
    assert session.prompt("/compact") == "end_turn"
    [call] = session.tool_calls()
    assert (call["title"], call["status"]) == ("Compact conversation", "completed")
    assert session.prompt("after that") == "end_turn"
    assert session.said().endswith("pong: after that")


@scenario("model switch")
def test_acp_model(editor: AcpEditor, stage: ClientStage) -> None:
    session = editor.new_session()
    [other, *_] = [choice["value"] for choice in session.option("model")["options"] if choice["value"] != MODEL]
    session.set_option("model", other)
    assert session.prompt("by another model") == "end_turn"
    [asked] = [request for request in stage.model.requests() if request.last_user_text == "by another model"]
    assert asked.json["model"] == other


@scenario("two clients on one thread")
def test_acp_two_clients(open_editor: OpenEditor, stage: ClientStage) -> None:
    """Two servers on one home. The real one tells the second client that the first has the thread; ours serves both."""
    first, second = open_editor(), open_editor()
    session = first.new_session()
    session.prompt("from the first")
    if stage.server == "codex":
        with pytest.raises(AcpRefused, match="in use by another Codex client"):
            second.load_session(session.id)
        first.close()
    same = load_when_free(second, session.id)
    assert same.said("user") == "from the first"
    assert same.prompt("from the second") == "end_turn"
    if stage.server == "ours":
        assert session.prompt("again from the first") == "end_turn"
        [asked] = [request for request in stage.model.requests() if request.last_user_text == "again from the first"]
        assert "from the second" in asked.input_texts("user")


def load_when_free(editor: AcpEditor, session_id: str) -> AcpSession:
    """The server of an agent that was killed may need a moment to die."""
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            return editor.load_session(session_id)
        except AcpRefused:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.05)


@scenario("server restart in mid-session")
def test_acp_restart(open_editor: OpenEditor, stage: ClientStage) -> None:
    editor = open_editor()
    session = editor.new_session()
    session.prompt("before the restart")
    turn = session.begin("STREAM:lost")
    session.wait_said(FIRST)
    os.kill(child_of(editor.child.pid, "app-server"), signal.SIGKILL)
    with pytest.raises(AcpRefused, match="killed by SIGKILL"):
        session.ended(turn)
    assert session.prompt("after the restart") == "end_turn"
    [asked] = [request for request in stage.model.requests() if request.last_user_text == "after the restart"]
    assert "before the restart" in asked.input_texts("user")
