"""The terminal interface of codex: threads that are found again, branched off, put away, and looked at by two."""

from __future__ import annotations

import pytest

from interop.tui.app_servers import AppServer
from interop.tui.conftest import CLIENT, OpenTui
from interop.tui.told_model import TITLE, ToldModel
from interop.tui.tui import Tui

pytestmark = [pytest.mark.interop, pytest.mark.timeout(120)]

PICKER = "Resume a previous session"


def exchange(screen: Tui, model: ToldModel, words: str, answer: str) -> None:
    """A whole turn, until the thread can be left."""
    model.when(words, answer)
    screen.say(words)
    screen.wait_for_sequence(f"› {words}", f"• {answer}", "Worked for", f"· {TITLE}")


@pytest.mark.scenario(client=CLIENT, name="resume picker")
def test_resume_picker(tui: OpenTui, model: ToldModel) -> None:
    screen = tui()
    for number in ("one", "two", "three"):
        exchange(screen, model, f"This is {number}.", f"I see {number}.")
        if number != "three":
            screen.say("/new")
            screen.wait_until_gone(f"I see {number}.")
    screen.close()
    picker = tui("resume", ready=PICKER)
    shown = picker.wait_for("1 / 3")
    assert shown.count(TITLE) == 3, shown
    picker.press("down", "enter")
    picker.wait_for("› This is two.", "• I see two.")
    exchange(picker, model, "Still two?", "Yes, two.")


@pytest.mark.scenario(client=CLIENT, name="fork")
def test_fork(tui: OpenTui, model: ToldModel) -> None:
    screen = tui()
    exchange(screen, model, "What is the trunk?", "This is.")
    screen.say("/fork")
    screen.wait_for(f"Thread forked from {TITLE}", "› What is the trunk?", "• This is.")
    exchange(screen, model, "What is the branch?", "That is.")
    (asked,) = model.asked("What is the branch?")
    assert asked.input_texts("user")[-2:] == ["What is the trunk?", "What is the branch?"]
    screen.close()
    picker = tui("resume", ready=PICKER)
    picker.wait_for("1 / 2")


@pytest.mark.scenario(client=CLIENT, name="archive")
def test_archive(tui: OpenTui, model: ToldModel) -> None:
    screen = tui()
    exchange(screen, model, "Is this new?", "Brand new.")
    screen.say("/new")
    screen.wait_until_gone("• Brand new.")
    exchange(screen, model, "Is this old?", "Very old.")
    screen.say("/archive")
    screen.wait_for("Archive this session?")
    screen.choose("Yes, archive")
    screen.wait_for("Agent command center")
    screen.close()
    picker = tui("resume", ready=PICKER)
    picker.wait_for("1 / 1")
    picker.press("enter")
    picker.wait_for("› Is this new?", "• Brand new.")


@pytest.mark.scenario(client=CLIENT, name="side conversation")
def test_side_conversation(tui: OpenTui, model: ToldModel) -> None:
    model.when("A word aside.", "Between us.")
    screen = tui()
    exchange(screen, model, "What is the matter?", "This matter.")
    screen.say("/side")
    screen.wait_for("Side from main thread")
    screen.say("A word aside.")
    screen.wait_for("• Between us.")
    screen.press("ctrl-c")
    screen.wait_until_gone("Side from main thread")
    screen.wait_for("• This matter.")
    exchange(screen, model, "Back to the matter.", "At once.")
    (asked,) = model.asked("Back to the matter.")
    assert asked.input_texts("user")[-2:] == ["What is the matter?", "Back to the matter."]


@pytest.mark.scenario(client=CLIENT, name="going back")
def test_going_back(tui: OpenTui, model: ToldModel) -> None:
    screen = tui()
    exchange(screen, model, "The right way.", "I go.")
    exchange(screen, model, "The wrong way.", "I went.")
    screen.press("escape")
    screen.wait_for("esc again to edit previous message")
    screen.press("escape")
    screen.wait_for("↵ rewind")
    screen.press("enter")
    screen.wait_for("• Conversation reverted to this point.")
    screen.wait_until_gone("• I went.")
    screen.press("ctrl-u")
    exchange(screen, model, "The other way.", "I come.")
    (asked,) = model.asked("The other way.")
    assert asked.input_texts("user")[-2:] == ["The right way.", "The other way."]


@pytest.mark.scenario(client=CLIENT, name="two clients on one thread")
def test_two_clients(tui: OpenTui, model: ToldModel) -> None:
    first = tui()
    exchange(first, model, "Who speaks?", "The first.")
    second = tui("resume", "--last", ready="• The first.")
    exchange(second, model, "And who now?", "The second.")
    first.wait_for("› And who now?", "• The second.")
    exchange(first, model, "And again?", "The first again.")
    second.wait_for("› And again?", "• The first again.")


@pytest.mark.scenario(client=CLIENT, name="server restart in mid-session")
def test_server_restart(tui: OpenTui, model: ToldModel, server: AppServer) -> None:
    screen = tui()
    exchange(screen, model, "Before the end.", "All is well.")
    server.stop()
    screen.wait_for("Reconnecting to server")
    server.start()
    screen.wait_until_gone("Reconnecting to server")
    screen.wait_for("• All is well.", "Ask Codex to do anything")
    exchange(screen, model, "After the end.", "Well again.")
    (asked,) = model.asked("After the end.")
    assert asked.input_texts("user")[-2:] == ["Before the end.", "After the end."]
