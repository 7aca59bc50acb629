"""The terminal interface of codex: sub-agents, skills and hooks, on our app-server and on the real one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import pytest

from interop.scripted_model import exec_command, outside_the_sandbox
from interop.tui.app_servers import AppServer
from interop.tui.conftest import CLIENT, OpenTui
from interop.tui.told_model import ToldModel
from kit.hook_files import refusing
from treadle.testing import RecordedRequest, ToolCall

pytestmark = [pytest.mark.interop, pytest.mark.timeout(120)]

QUESTION: Final = "Would you like to run the following command?"
SALVE: Final = "---\nname: greet\ndescription: How to greet\n---\n\nSay salve.\n"


@pytest.fixture(scope="module", autouse=True)
def guard(server: AppServer) -> None:
    """A hook that refuses some commands, in the home of the server, which has been told to trust it."""
    with (server.home / ".codex" / "config.toml").open("a") as file:
        file.write(refusing(server.home / ".codex", "forbidden", "not in this house"))
    server.stop()
    server.start()


def spawn(message: str) -> ToolCall:
    return ToolCall("multi_agent_v1.spawn_agent", {"message": message})


def wait_for_it(request: RecordedRequest) -> ToolCall:
    """Wait for the agent that was spawned last."""
    *_, spawned = request.tool_outputs.values()
    return ToolCall("multi_agent_v1.wait_agent", {"targets": [json.loads(spawned)["agent_id"]]})


@pytest.mark.scenario(client=CLIENT, name="sub-agents: one is spawned and waited for")
def test_sub_agent(tui: OpenTui, model: ToldModel) -> None:
    model.when("Let somebody look.", spawn("Look around."), wait_for_it, "It is done.")
    model.when("Look around.", exec_command("echo looked"), "I have looked.")
    screen = tui()
    screen.say("Let somebody look.")
    screen.wait_for_sequence(
        "• Spawned ", "└ Look around.", "• Waiting for ", "• Finished waiting", "Completed - I have"
    )
    screen.wait_for_sequence("• It is done.", "Worked for")
    *_, answered = model.asked("Let somebody look.")
    *_, waited = answered.tool_outputs.values()
    assert list(json.loads(waited)["status"].values()) == [{"completed": "I have looked."}]


@pytest.mark.scenario(client=CLIENT, name="sub-agents: approval of what one asks for")
def test_approval_of_a_sub_agent(tui: OpenTui, model: ToldModel, folder: Path) -> None:
    model.when("Let somebody ask.", spawn("Ask and do it."), wait_for_it, "It was allowed.")
    model.when("Ask and do it.", outside_the_sandbox("echo yes >asked.txt"), "I was allowed.")
    screen = tui()
    screen.say("Let somebody ask.")
    screen.wait_for(QUESTION, "Thread: ", "May I do this?", "$ echo yes >asked.txt", "or o to open thread")
    assert not (folder / "asked.txt").exists()
    screen.press("y")
    screen.wait_for_sequence("• Finished waiting", "Completed - I was allowed.", "• It was allowed.", "Worked for")
    assert (folder / "asked.txt").read_text() == "yes\n"


@pytest.mark.scenario(client=CLIENT, name="sub-agents: open one's thread")
def test_thread_of_a_sub_agent(tui: OpenTui, model: ToldModel, folder: Path) -> None:
    model.when("Let somebody stay.", spawn("Ask from afar."), "It is on its way.")
    model.when("Ask from afar.", outside_the_sandbox("echo yes >opened.txt"), "I was seen.")
    screen = tui()
    screen.say("Let somebody stay.")
    screen.wait_for(QUESTION, "or o to open thread")
    screen.press("o")
    screen.wait_for("› Ask from afar.", QUESTION)
    screen.press("y")
    screen.wait_for_sequence("✔ You approved codex to run echo yes >opened.txt this time", "• I was seen.")
    assert (folder / "opened.txt").read_text() == "yes\n"


@pytest.mark.scenario(client=CLIENT, name="skills: a mention")
def test_skill(tui: OpenTui, model: ToldModel, folder: Path) -> None:
    skill = folder / ".agents" / "skills" / "greet" / "SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text(SALVE)
    model.when("Please $greet me.", "Salve.")
    screen = tui()
    screen.press("$gree")
    screen.wait_for("greet", "[Skill] How to greet")
    screen.press("ctrl-u")
    screen.wait_until_gone("[Skill]")
    screen.say("Please $greet me.")
    screen.wait_for_sequence("› Please $greet me.", "• Salve.", "Worked for")
    [asked] = model.asked("$greet")
    [body] = [text for text in asked.input_texts("user") if text.startswith("<skill>")]
    assert str(skill) in body
    assert "Say salve." in body
    screen.say("/skills")
    screen.wait_for("1. List skills")
    screen.press("enter")
    screen.wait_for("[Skill] How to greet")


@pytest.mark.scenario(client=CLIENT, name="hooks: one refuses a command")
def test_hook(tui: OpenTui, model: ToldModel, folder: Path) -> None:
    model.when("Do it all the same.", exec_command("echo forbidden >made.txt"), "It was refused.")
    screen = tui()
    screen.say("Do it all the same.")
    screen.wait_for_sequence("• Blocked by hook", "└ not in this house", "• It was refused.", "Worked for")
    assert not (folder / "made.txt").exists()
    *_, refused = model.asked("Do it all the same.")
    (output,) = refused.tool_outputs.values()
    assert output == "Command blocked by PreToolUse hook: not in this house. Command: echo forbidden >made.txt"
    screen.say("/hooks")
    screen.wait_for("Lifecycle hooks from config")
    assert "PreToolUse 1 1 Before a tool executes" in " ".join(screen.text.split())
