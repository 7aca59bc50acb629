"""The terminal interface of codex: what ordinary turns show, on our app-server and on the real one."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from interop.scripted_model import apply_patch, exec_command
from interop.tui.app_servers import AppServer
from interop.tui.conftest import CLIENT, OpenTui
from interop.tui.told_model import TITLE, ToldModel

SHELL_TOOLS = {"exec_command", "write_stdin", "shell", "shell_command"}
pytestmark = [pytest.mark.interop, pytest.mark.timeout(120)]

INTERRUPTED = "■ Conversation interrupted"


@pytest.mark.scenario(client=CLIENT, name="start-up")
def test_start_up(tui: OpenTui, server: AppServer) -> None:
    server.stop()
    server.start()  # so that it starts with what clients write into its settings
    screen = tui()
    screen.wait_for("OpenAI Codex (v0.166.0)", "To get started, describe a task", "Ask Codex to do anything")
    screen.press("f2")
    screen.wait_for("No warnings")


def test_nobody_is_let_in_without_the_secret(tui: OpenTui) -> None:
    screen = tui(secret="another", ready="401 Unauthorized")
    assert screen.wait_for_end() != 0


@pytest.mark.scenario(client=CLIENT, name="message")
def test_message(tui: OpenTui, model: ToldModel) -> None:
    model.when("Who is there?", "Nobody but the mock.")
    screen = tui()
    screen.say("Who is there?")
    screen.wait_for("› Who is there?", "• Nobody but the mock.", "Worked for", f"· {TITLE}")
    screen.press("f2")
    screen.wait_for("No warnings")


@pytest.mark.scenario(client=CLIENT, name="streaming")
def test_streaming(tui: OpenTui, model: ToldModel) -> None:
    gate = threading.Event()
    model.when("Count slowly.", model.gated("one, two\nthree, four\nfive", gate, shown="one, two\nthree"))
    screen = tui()
    screen.say("Count slowly.")
    shown = screen.wait_for("• one, two")
    assert "five" not in shown
    assert "Worked for" not in shown
    gate.set()
    screen.wait_for("three, four", "five", "Worked for")


@pytest.mark.scenario(client=CLIENT, name="command")
def test_command(tui: OpenTui, model: ToldModel, folder: Path) -> None:
    model.when("Make a file.", exec_command("echo made >made.txt; echo printed $((40 + 2))"), "It is made.")
    screen = tui()
    screen.say("Make a file.")
    screen.wait_for("• Ran echo made >made.txt", "printed 42", "• It is made.", "Worked for")
    assert (folder / "made.txt").read_text() == "made\n"


@pytest.mark.scenario(client=CLIENT, name="patch")
def test_patch(tui: OpenTui, model: ToldModel, folder: Path) -> None:
    (folder / "song.txt").write_text("first\nlast\n")
    lines = ("*** Begin Patch", "*** Update File: song.txt", "@@", " first", "+middle", " last", "*** End Patch")
    model.when("Add a line.", apply_patch("\n".join(lines)), "It is added.")
    screen = tui()
    screen.say("Add a line.")
    screen.wait_for("• Edited song.txt (+1 -0)", "+middle", "• It is added.", "Worked for")
    assert (folder / "song.txt").read_text() == "first\nmiddle\nlast\n"


@pytest.mark.scenario(client=CLIENT, name="interrupt in text")
def test_interrupt_in_text(tui: OpenTui, model: ToldModel) -> None:
    gate = threading.Event()
    model.when("Tell a tale.", model.gated("Once upon\na time\nthe end", gate, shown="Once upon\na t"))
    model.when("Never mind.", "As you like.")
    screen = tui()
    screen.say("Tell a tale.")
    screen.wait_for("• Once upon")
    screen.press("escape")
    shown = screen.wait_for(INTERRUPTED)
    gate.set()
    assert "the end" not in shown
    screen.say("Never mind.")
    screen.wait_for("• As you like.", "Worked for")


@pytest.mark.scenario(client=CLIENT, name="interrupt in a command")
def test_interrupt_in_a_command(tui: OpenTui, model: ToldModel) -> None:
    model.when("Wait long.", exec_command("echo begun; exec sleep 100"), "never said")
    model.when("Are you there?", "Still here.")
    screen = tui()
    screen.say("Wait long.")
    screen.wait_for("1 background terminal running")
    screen.press("escape")
    screen.wait_for(INTERRUPTED)
    screen.say("Are you there?")
    screen.wait_for("• Still here.", "Worked for")
    assert len(model.asked("Wait long.")) == 1


@pytest.mark.scenario(client=CLIENT, name="steer")
def test_steer(tui: OpenTui, model: ToldModel) -> None:
    model.when("Work until I speak.", *[exec_command("sleep 0.2")] * 100, "You did not speak.")
    model.when("Work faster.", "Faster it is.")
    screen = tui()
    screen.say("Work until I speak.")
    screen.wait_for("• Ran sleep 0.2")
    screen.say("Work faster.")
    screen.wait_for_sequence("› Work faster.", "• Faster it is.", "Worked for")
    assert screen.history.count("Worked for") == 1
    (asked,) = model.asked("Work faster.")
    assert asked.input_texts("user")[-2:] == ["Work until I speak.", "Work faster."]


@pytest.mark.scenario(client=CLIENT, name="queued message")
def test_queued_message(tui: OpenTui, model: ToldModel) -> None:
    gate = threading.Event()
    model.when("This one first.", model.gated("I take\nmy time\nfor it", gate, shown="I take\nmy"))
    model.when("That one then.", "Now that one.")
    screen = tui()
    screen.say("This one first.")
    screen.wait_for("• I take")
    screen.type("That one then.")
    screen.press("tab")
    screen.wait_for("Queued follow-up inputs", "↳ That one then.")
    assert model.asked("That one then.") == []
    gate.set()
    screen.wait_for("for it", "› That one then.", "• Now that one.")


@pytest.mark.scenario(client=CLIENT, name="title")
def test_title(tui: OpenTui, model: ToldModel, folder: Path) -> None:
    """It is asked for in a thread that nobody sees, which must not do what the user wants done once."""
    model.when("Do this once.", exec_command("echo done >>once.txt"), "Done once.")
    screen = tui()
    screen.say("Do this once.")
    screen.wait_for("• Done once.", f"· {TITLE}")
    assert (folder / "once.txt").read_text() == "done\n"
    (asked,) = model.titles("Do this once.")
    assert not SHELL_TOOLS & set(asked.tool_names), asked.tool_names
