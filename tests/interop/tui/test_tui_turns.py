"""The terminal interface of codex: what an ordinary turn shows, on our app-server and on the real one."""

from __future__ import annotations

import threading

import pytest

from interop.tui.conftest import OpenTui
from interop.tui.told_model import ToldModel

CLIENT = "codex TUI"
pytestmark = [pytest.mark.interop, pytest.mark.timeout(120)]


@pytest.mark.scenario(client=CLIENT, name="start-up")
def test_start_up(tui: OpenTui) -> None:
    screen = tui().wait_for("OpenAI Codex (v0.166.0)", "Ask Codex to do anything", "GPT-5.5 default · ")
    assert "warning" not in screen, screen


@pytest.mark.scenario(client=CLIENT, name="message")
def test_message(tui: OpenTui, model: ToldModel) -> None:
    model.when("Who is there?", "Nobody but the mock.")
    screen = tui()
    screen.say("Who is there?")
    screen.wait_for("› Who is there?", "• Nobody but the mock.", "Worked for")


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
