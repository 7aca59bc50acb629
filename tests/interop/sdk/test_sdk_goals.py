"""The official SDK pursues goals. The scenarios are in `scenarios/goals.py`."""

from __future__ import annotations

import pytest

from interop.sdk.interpreter import Play

pytestmark = pytest.mark.interop


def test_turns_follow_each_other_until_the_goal_is_reached(play: Play) -> None:
    assert play("goals.reached") == {
        "turns": [3, True],
        "status": "completed",
        "goal": ["active", "complete"],
        "answers": ["Half way.", "All done."],
        "objective": [False, True, True, True],
        "offered": True,
    }


def test_a_goal_is_given_up(play: Play) -> None:
    assert play("goals.given_up") == {
        "status": "interrupted",
        "goal": ["active", "paused"],
        "cleared": True,
        "answer": "Free again.",
    }
