"""The terminal interface of codex: its slash commands that change how a thread goes on."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from interop.scripted_model import apply_patch, exec_command
from interop.tui.app_servers import COMPACT_PROMPT
from interop.tui.conftest import CLIENT, OpenTui
from interop.tui.told_model import ToldModel
from treadle.testing import ToolCall

pytestmark = [pytest.mark.interop, pytest.mark.timeout(120)]


@pytest.mark.scenario(client=CLIENT, name="review")
def test_review(tui: OpenTui, model: ToldModel, folder: Path) -> None:
    file = _changed_file(folder)
    finding = {
        "title": "[P1] Do not divide by zero",
        "body": "It raises an error.",
        "confidence_score": 0.9,
        "priority": 1,
        "code_location": {"absolute_file_path": str(file), "line_range": {"start": 1, "end": 1}},
    }
    verdict = {
        "findings": [finding],
        "overall_correctness": "patch is incorrect",
        "overall_explanation": "It fails at once.",
        "overall_confidence_score": 0.9,
    }
    model.when("Review the current code changes", json.dumps(verdict))  # how the real one begins,
    model.when("Review the changes of the working tree", json.dumps(verdict))  # and ours
    screen = tui()
    screen.say("/review")
    screen.wait_for("Select a review preset")
    screen.choose("Review uncommitted changes")
    screen.wait_for(">> Code review started: current changes <<", "<< Code review finished >>", "Worked for")
    screen.wait_for("It fails at once.", f"• [P1] Do not divide by zero — {file}:1-1", "It raises an error.")


def _changed_file(folder: Path) -> Path:
    file = folder / "half.py"
    file.write_text("half = 1 / 2\n")
    author = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org")
    for arguments in (("init", "-q", "-b", "main"), ("add", "."), (*author, "commit", "-q", "-m", "half")):
        subprocess.run(["git", *arguments], cwd=folder, check=True)
    file.write_text("half = 1 / 0\n")
    return file


@pytest.mark.scenario(client=CLIENT, name="compact")
def test_compact(tui: OpenTui, model: ToldModel) -> None:
    model.when("Remember the colour blue.", "I will.")
    model.when(COMPACT_PROMPT, "The colour is blue.")
    model.when("Which colour?", "Blue.")
    screen = tui()
    screen.say("Remember the colour blue.")
    screen.wait_for("• I will.", "Worked for")
    screen.say("/compact")
    screen.wait_for("• Context compacted")
    screen.say("Which colour?")
    screen.wait_for("• Blue.")
    (asked,) = model.asked("Which colour?")
    assert "The colour is blue." in json.dumps(asked.input)
    assert "I will." not in json.dumps(asked.input)


@pytest.mark.scenario(client=CLIENT, name="model switch")
def test_model_switch(tui: OpenTui, model: ToldModel) -> None:
    model.when("Which model are you?", "The chosen one.")
    screen = tui()
    screen.say("/model")
    screen.wait_for("Select Model and Effort")
    screen.choose("Astra")
    screen.wait_for("Select Reasoning Level")
    screen.choose("High", key="s")  # for the session: other tests start with the default
    screen.wait_for("• Model changed to gpt-6-astra high")
    screen.say("Which model are you?")
    screen.wait_for("• The chosen one.")
    (asked,) = model.asked("Which model are you?")
    assert (asked.json["model"], asked.reasoning_effort) == ("gpt-6-astra", "high")


@pytest.mark.scenario(client=CLIENT, name="permissions")
def test_permissions(tui: OpenTui, model: ToldModel, folder: Path) -> None:
    protected = folder / ".git" / "free.txt"
    protected.parent.mkdir()
    model.when("Do as you please.", exec_command("echo free >.git/free.txt"), "I was not asked.")
    model.when("Write with care.", apply_patch("*** Begin Patch\n*** Add File: care.txt\n+care\n*** End Patch"))
    screen = tui()
    screen.say("/status")
    screen.wait_for("Workspace (Ask for approval)")
    screen.say("/permissions")
    screen.wait_for("Update Model Permissions", "1. Ask for approval (current)")
    screen.choose("Full Access")
    screen.wait_for("Enable full access?")
    screen.choose("Yes, continue anyway")
    screen.say("Do as you please.")
    screen.wait_for("• I was not asked.", "Worked for")
    assert protected.read_text() == "free\n"
    screen.say("/permissions")
    screen.wait_for("3. Full Access (current)")
    screen.choose("Read Only")
    screen.wait_until_gone("Update Model Permissions")
    screen.say("Write with care.")
    screen.wait_for("Would you like to make the following edits?")
    screen.press("escape")
    screen.wait_for("■ Conversation interrupted")
    assert not (folder / "care.txt").exists()


@pytest.mark.scenario(client=CLIENT, name="plan mode")
def test_plan_mode(tui: OpenTui, model: ToldModel) -> None:
    plan = "<proposed_plan>\n# The way\n- first this\n- then that\n</proposed_plan>"
    model.when("Make a plan.", plan)
    model.when("Implement the plan", "It is built.")
    screen = tui()
    screen.say("/plan")
    screen.wait_for("Plan mode (shift+tab to cycle)")
    screen.say("Make a plan.")
    screen.wait_for("• Proposed Plan", "# The way", "• first this", "• then that", "Implement this plan?")
    screen.choose("Yes, implement this plan")
    screen.wait_for("• It is built.")


@pytest.mark.scenario(client=CLIENT, name="question to the user")
def test_question_to_the_user(tui: OpenTui, model: ToldModel) -> None:
    red = {"label": "Red (Recommended)", "description": "Warm."}
    blue = {"label": "Blue", "description": "Cold."}
    question = {"id": "colour", "header": "Colour", "question": "Which shall it be?", "options": [red, blue]}
    model.when("Ask me a question.", ToolCall("request_user_input", {"questions": [question]}), "Blue it is.")
    screen = tui()
    screen.say("/plan")
    screen.wait_for("Plan mode (shift+tab to cycle)")
    screen.say("Ask me a question.")
    screen.wait_for("Which shall it be?", "1. Red", "2. Blue")
    screen.choose("Blue")
    screen.wait_for("• Blue it is.")
    *_, answered = model.asked("Ask me a question.")
    assert [json.loads(output) for output in answered.tool_outputs.values()] == [
        {"answers": {"colour": {"answers": ["Blue"]}}}
    ]


@pytest.mark.scenario(client=CLIENT, name="shell command of the user")
def test_shell_command(tui: OpenTui) -> None:
    screen = tui()
    screen.press("!")
    screen.wait_for("Shell mode")
    screen.type("echo mine $((40 + 2))", prompt="!")
    screen.press("enter")
    screen.wait_for("• You ran echo mine $((40 + 2))", "mine 42")


@pytest.mark.scenario(client=CLIENT, name="mention of a file")
def test_mention_of_a_file(tui: OpenTui, folder: Path) -> None:
    (folder / "needle.txt").touch()
    (folder / "straw.txt").touch()
    screen = tui()
    screen.type("@ndl")
    shown = screen.wait_for("needle.txt")
    assert "straw.txt" not in shown
    screen.press("tab")
    screen.wait_for("› needle.txt")


@pytest.mark.scenario(client=CLIENT, name="background terminals")
def test_background_terminals(tui: OpenTui, model: ToldModel) -> None:
    model.when("Start the clock.", exec_command("echo ticking; exec sleep 100", yield_time_ms=250), "It ticks.")
    model.when("Is it quiet?", "Quite.")
    screen = tui()
    screen.say("Start the clock.")
    screen.wait_for("• It ticks.", "1 background terminal running · /ps to view · /stop to close")
    screen.say("/ps")
    screen.wait_for("Background terminals", "• echo ticking; exec sleep 100")
    screen.say("/stop")
    screen.wait_for("• Stopping all background terminals.")
    screen.wait_until_gone("1 background terminal running")
    screen.say("Is it quiet?")
    screen.wait_for("• Quite.")
