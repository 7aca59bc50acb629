"""The official SDK runs and streams turns. The scenarios are in `scenarios/turns.py`."""

from __future__ import annotations

import pytest

from interop.interop_table import scenario_of
from interop.sdk.interpreter import Play

pytestmark = pytest.mark.interop
scenario = scenario_of("Python SDK")


@scenario("message")
def test_a_run_gives_the_answer_and_what_led_to_it(play: Play) -> None:
    seen = play("turns.hello")
    assert seen == {
        "completed": {"items": ["agentMessage"], "itemsView": "summary"},
        "client": "codex_python_sdk",
        "status": "completed",
        "answer": "Hello, user.",
        "error": None,
        "items": ["userMessage", "agentMessage"],
        "usage": [11, 3, 7, 2, 18],
        "asked": "Say hello.",
        "timed": ["int", "int", "int"],
    }


def test_the_second_turn_knows_the_first(play: Play) -> None:
    assert play("turns.conversation") == {
        "answer": "It was blue.",
        "said": ["My colour is blue.", "Which colour?"],
        "answered": ["Noted."],
        "total": 4,
    }


def test_the_phase_of_a_message_decides_whether_it_is_the_answer(play: Play) -> None:
    items = ["userMessage", "agentMessage"]
    assert play("turns.phases") == [["as None", items], ["as final_answer", items], [None, items]]


@scenario("command")
def test_a_command_is_run_and_told(play: Play) -> None:
    assert play("turns.command") == {
        "items": ["userMessage", "commandExecution", "agentMessage"],
        "answer": "It said so.",
        "command": ["call-1", "completed", 0, "to-the-model\n"],
        "mentions": True,
        "told": True,
        "cwd": True,
    }


@scenario("patch")
def test_a_patch_is_applied_and_told(play: Play) -> None:
    assert play("turns.patched") == {
        "items": ["userMessage", "fileChange", "agentMessage"],
        "change": ["call-1", "completed", ["update"]],
        "diff": "@@ -1,2 +1,2 @@\n one\n-two\n+three\n",
        "path": True,
        "text": "one\nthree\n",
        "turn diff": ["-two", "+three"],
    }


@scenario("streaming")
def test_a_stream_has_every_delta_in_order(play: Play) -> None:
    assert play("turns.streamed") == {
        "methods": [
            "turn/started",
            "item/started",
            "item/completed",
            "item/started",
            "item/agentMessage/delta",
            "item/agentMessage/delta",
            "item/agentMessage/delta",
            "item/completed",
            "thread/tokenUsage/updated",
            "turn/completed",
        ],
        "text": "one two three",
        "items": ["userMessage", "agentMessage"],
        "same": True,
        "status": "completed",
    }


def test_reasoning_is_streamed_and_a_message_without_deltas_is_whole(play: Play) -> None:
    user, thought, answer = (
        ["item/started", "item/completed"],
        ["item/started", "item/reasoning/summaryPartAdded", "item/reasoning/summaryTextDelta", "item/completed"],
        ["item/started", "item/completed"],
    )
    assert play("turns.reasoning") == {
        "methods": [*user, *thought, *answer],
        "summary": ["I think."],
        "answer": "So.",
    }


def test_turns_of_two_threads_interleave(play: Play) -> None:
    assert play("turns.interleaved") == {"first": ["0a", "1a"], "texts": ["1a1b", "0a0b"], "models": True}


def test_threads_run_at_the_same_time(play: Play) -> None:
    assert play("turns.at_once") == ["re: 0", "re: 1", "re: 2", "re: 3"]


def test_a_turn_that_is_started_while_one_runs_joins_it(play: Play) -> None:
    assert play("turns.joined") == {
        "same": True,
        "ends": ["completed", "completed"],
        "asked": ["first", "second"],
        "started": 1,
    }


def test_the_client_below_the_public_classes_streams_too(play: Play) -> None:
    assert play("turns.low_level") == {"deltas": ["a", "b"], "status": "completed", "started": "inProgress"}


@scenario("a request that the model refuses")
def test_an_error_of_the_model_fails_one_turn(play: Play) -> None:
    assert play("turns.failed") == {
        "message": True,
        "status": "systemError",
        "answer": "Fine again.",
        "errors": [False],
        "turns": ["failed", "completed"],
        "read": True,
    }
