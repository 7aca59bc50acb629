"""The ACP agent for codex: sub-agents, skills and hooks, on our app-server and on the real one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest

from interop.clients.acp_editor import AcpEditor, AcpSession
from interop.clients.client_stage import ClientStage
from interop.clients.conftest import OpenEditor
from interop.clients.prompts import escalated
from interop.interop_table import scenario_of
from kit.hook_files import refusing

pytestmark = pytest.mark.interop
scenario = scenario_of("codex-acp")

SALVE: Final = "---\nname: greet\ndescription: How to greet\n---\n\nSay salve.\n"


@pytest.fixture(scope="module", autouse=True)
def skill(stage: ClientStage) -> Path:
    """In the workspace; and a hook in the home that refuses some commands. Both before a server starts."""
    with (stage.home / ".codex" / "config.toml").open("a") as file:
        file.write(refusing(stage.home / ".codex", "unlawful", "not in this house"))
    path = stage.workspace / ".agents" / "skills" / "greet" / "SKILL.md"
    path.parent.mkdir(parents=True)
    path.write_text(SALVE)
    return path


def spawn(session: AcpSession, prompt: str) -> str:
    """Have the model start an agent; its id."""
    assert session.prompt(f"CALL:multi_agent_v1.spawn_agent {json.dumps({'message': prompt})}") == "end_turn"
    (agent,) = session.tool_calls()[-1]["rawInput"]["receiverThreadIds"]
    return str(agent)


def wait_for(session: AcpSession, agent: str) -> dict[str, Any]:
    """Have the model wait for it; what the editor was told of that."""
    assert session.prompt(f"CALL:multi_agent_v1.wait_agent {json.dumps({'targets': [agent]})}") == "end_turn"
    return session.tool_calls()[-1]


@scenario("sub-agents: one is spawned and waited for")
def test_acp_sub_agent(editor: AcpEditor) -> None:
    session = editor.new_session()
    agent = spawn(session, "look around")
    waited = wait_for(session, agent)
    assert [(call["title"], call["status"]) for call in session.tool_calls()] == [
        ("spawnAgent", "completed"),
        ("wait", "completed"),
    ]
    spawned = session.tool_calls()[0]["rawInput"]
    assert (spawned["prompt"], spawned["receiverThreadIds"]) == ("look around", [agent])
    assert waited["rawInput"]["agentsStates"] == {agent: {"status": "completed", "message": "pong: look around"}}
    said = [chunk["content"]["text"] for chunk in session.of("agent_message_chunk")]
    assert "pong: look around" not in said  # as if the agent that the editor talks to had said it


@scenario("sub-agents: approval of what one asks for")
def test_acp_approval_of_a_sub_agent(editor: AcpEditor, stage: ClientStage) -> None:
    session = editor.new_session("workspace-write")
    session.choice = "allow_once"
    agent = spawn(session, escalated("touch by-an-agent.txt"))
    waited = wait_for(session, agent)
    assert waited["rawInput"]["agentsStates"][agent]["status"] == "completed"
    [asked] = session.asked
    assert asked["toolCall"]["title"] == "touch by-an-agent.txt"
    assert (stage.workspace / "by-an-agent.txt").exists()


@scenario("skills: a mention")
def test_acp_skill(editor: AcpEditor, stage: ClientStage, skill: Path) -> None:
    session = editor.new_session()
    session.wait_update("available_commands_update")
    (update, *_) = session.of("available_commands_update")
    assert {"name": "$greet", "description": "How to greet", "input": None} in update["availableCommands"]
    assert session.prompt("by the skill $greet") == "end_turn"
    [texts] = [
        request.input_texts("user")
        for request in stage.model.requests()
        if "by the skill $greet" in request.input_texts("user")
    ]
    assert texts[-2] == "by the skill $greet"
    assert f"<path>{skill}</path>" in texts[-1]
    assert "Say salve." in texts[-1]


@scenario("hooks: one refuses a command")
def test_acp_hook(editor: AcpEditor, stage: ClientStage) -> None:
    session = editor.new_session("workspace-write")
    assert session.prompt("RUN:touch unlawful.txt") == "end_turn"
    assert not (stage.workspace / "unlawful.txt").exists()
    refused = "Command blocked by PreToolUse hook: not in this house. Command: touch unlawful.txt"
    assert session.said() == f"tool said: {refused}"
    assert session.prompt("RUN:echo law$((40+2))") == "end_turn"
    assert "law42" in session.said()
    assert [call["title"] for call in session.tool_calls()] == ["echo law$((40+2))"]


@scenario("hooks: one of the editor is trusted")
def test_acp_hook_of_the_editor(open_editor: OpenEditor, stage: ClientStage) -> None:
    command = "grep -q unwanted && { echo 'not in this editor' >&2; exit 2; }; exit 0"
    group = {"matcher": "Bash", "hooks": [{"type": "command", "command": command}]}
    editor = open_editor(extensions=["codexHooks"], config={"hooks": {"PreToolUse": [group]}})
    session = editor.new_session("workspace-write")
    where = {"cwd": str(editor.cwd)}
    [hook] = editor.ask("_codex/hooks/list", **where)["hooks"]
    assert (hook["command"], hook["trustStatus"]) == (command, "untrusted")
    known = {"key": hook["key"], "currentHash": hook["currentHash"]}
    assert editor.ask("_codex/hooks/trust", **where, hooks=[known]) == {"trusted": True}
    for word, whose in (("unwanted", "editor"), ("unlawful", "house")):  # those of the home go on to count
        session.prompt(f"RUN:touch {word}.txt")
        assert f"Command blocked by PreToolUse hook: not in this {whose}." in session.said()
        assert not (stage.workspace / f"{word}.txt").exists()
