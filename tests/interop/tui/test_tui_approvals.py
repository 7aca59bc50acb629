"""The terminal interface of codex: what the user is asked, and what becomes of each answer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from interop.scripted_model import outside_the_sandbox
from interop.tui.app_servers import AppServer
from interop.tui.conftest import CLIENT, OpenTui
from interop.tui.told_model import ToldModel

pytestmark = [pytest.mark.interop, pytest.mark.timeout(120)]

QUESTION = "Would you like to run the following command?"


@pytest.mark.scenario(client=CLIENT, name="approval: accept")
def test_accept(tui: OpenTui, model: ToldModel, folder: Path) -> None:
    model.when("Ask and do.", outside_the_sandbox("echo yes >asked.txt"), "I was allowed.")
    screen = tui()
    screen.say("Ask and do.")
    screen.wait_for(QUESTION, "Reason: May I do this?", "$ echo yes >asked.txt")
    assert not (folder / "asked.txt").exists()
    screen.press("y")
    screen.wait_for("✔ You approved codex to run echo yes >asked.txt this time", "• I was allowed.", "Worked for")
    assert (folder / "asked.txt").read_text() == "yes\n"


@pytest.mark.scenario(client=CLIENT, name="approval: for the session")
def test_for_the_session(tui: OpenTui, model: ToldModel, folder: Path) -> None:
    again = outside_the_sandbox("echo more >>log.txt")
    model.when("Ask the first time.", again, "Once.")
    model.when("And the second time.", again, "Twice.")
    screen = tui()
    screen.say("Ask the first time.")
    screen.wait_for(QUESTION, "2. Yes, and don't ask again")
    screen.press("2")
    screen.wait_for("• Once.", "Worked for")
    screen.say("And the second time.")
    shown = screen.wait_for("• Twice.")
    assert QUESTION not in shown
    assert (folder / "log.txt").read_text() == "more\nmore\n"


@pytest.mark.scenario(client=CLIENT, name="approval: decline")
def test_decline(tui: OpenTui, model: ToldModel, server: AppServer, folder: Path) -> None:
    if server.kind == "codex":
        pytest.skip("the real app-server does not offer it: its choices are accept, for the session and cancel")
    model.when("Ask, then go on.", outside_the_sandbox("echo no >declined.txt"), "Then without it.")
    screen = tui()
    screen.say("Ask, then go on.")
    screen.wait_for(QUESTION, "3. No, continue without running it")
    screen.press("3")
    screen.wait_for("• Then without it.", "Worked for")
    assert not (folder / "declined.txt").exists()


@pytest.mark.scenario(client=CLIENT, name="approval: cancel")
def test_cancel(tui: OpenTui, model: ToldModel, folder: Path) -> None:
    model.when("Ask and stop.", outside_the_sandbox("echo no >cancelled.txt"), "never said")
    model.when("Something else.", "Gladly.")
    screen = tui()
    screen.say("Ask and stop.")
    screen.wait_for(QUESTION)
    screen.press("escape")
    screen.wait_for("✗ You canceled the request to run echo no >cancelled.txt", "■ Conversation interrupted")
    screen.say("Something else.")
    screen.wait_for("• Gladly.", "Worked for")
    assert not (folder / "cancelled.txt").exists()
    assert len(model.asked("Ask and stop.")) == 1


@pytest.mark.scenario(client=CLIENT, name="approval: by the automatic reviewer")
def test_by_the_reviewer(tui: OpenTui, model: ToldModel, folder: Path) -> None:
    model.when("Ask the reviewer.", outside_the_sandbox("echo fine >reviewed.txt"), "It was allowed.")
    screen = tui()
    screen.say("/permissions")
    screen.wait_for("Update Model Permissions")
    screen.choose("Approve for me")
    screen.wait_for("• Permission selection requested: Approve for me")
    screen.say("Ask the reviewer.")
    shown = screen.wait_for("• Ran echo fine >reviewed.txt", "• It was allowed.", "Worked for")
    assert QUESTION not in shown
    assert (folder / "reviewed.txt").read_text() == "fine\n"
    (asked,) = model.verdicts
    assert "reviewed.txt" in json.dumps(asked.input)
