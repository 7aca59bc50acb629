"""The official SDK steers and interrupts turns. The scenarios are in `scenarios/control.py`."""

from __future__ import annotations

import pytest

from interop.interop_table import scenario_of
from interop.sdk.differences import DIFFERENCES, Server
from interop.sdk.interpreter import Play

pytestmark = pytest.mark.interop
scenario = scenario_of("Python SDK")


@scenario("steer")
def test_a_steered_turn_answers_to_the_new_input(play: Play, server: Server) -> None:
    seen = play("control.steered")
    assert {name: seen.pop(name) for name in ("items", "answered")} in DIFFERENCES["steering"].of(server)
    assert seen == {"turn": True, "status": "completed", "requests": 2, "last": "And also this."}


def test_steering_waits_for_a_running_command(play: Play) -> None:
    assert play("control.steered_during_a_command") == {
        "items": ["userMessage", "commandExecution", "userMessage", "agentMessage"],
        "requests": 2,
        "output": True,
        "last": "Meanwhile.",
    }


@scenario("interrupt in text")
def test_an_interrupted_turn_ends_and_the_thread_goes_on(play: Play, server: Server) -> None:
    seen = play("control.interrupted")
    assert seen.pop("marked") in DIFFERENCES["notes of the server"].of(server)
    assert seen == {
        "status": "interrupted",
        "items": ["userMessage"],
        "answer": "Back.",
        "turns": ["interrupted", "completed"],
    }


@scenario("interrupt in a command")
def test_a_turn_is_interrupted_while_a_command_runs(play: Play) -> None:
    assert play("control.interrupted_command") == {"status": "interrupted", "answer": None}


def test_a_turn_is_interrupted_right_after_its_start(play: Play, server: Server) -> None:
    assert play("control.interrupted_at_once") in DIFFERENCES["interrupt right after turn/start"].of(server)


def test_a_turn_that_is_over_cannot_be_controlled(play: Play) -> None:
    assert play("control.too_late") == {
        "refusals": [
            "no active turn to steer",
            "expected active turn id `OVER` but found `RUNNING`",
            "expected active turn id OVER but found RUNNING",
        ],
        "status": "completed",
    }


@scenario("server restart in mid-session")
def test_after_a_killed_server_the_thread_goes_on(play: Play) -> None:
    assert play("control.killed") == {
        "error": "TransportClosedError",
        "turns": ["completed", "interrupted"],
        "answer": "Here again.",
    }
