"""The official SDK keeps, finds and changes threads. The scenarios are in `scenarios/threads.py`."""

from __future__ import annotations

import pytest

from interop.interop_table import scenario_of
from interop.sdk.differences import DIFFERENCES, Server
from interop.sdk.interpreter import Play

pytestmark = pytest.mark.interop
scenario = scenario_of("Python SDK")


@scenario("resume")
def test_a_thread_is_resumed_by_another_server(play: Play) -> None:
    assert play("threads.resumed") == {
        "same": True,
        "before": [["userMessage", "agentMessage"]],
        "after": ["completed", "completed"],
        "answer": "It was blue.",
        "said": ["My colour is blue.", "Which colour?"],
        "answered": ["Noted."],
    }


def test_turns_can_be_left_out_of_answers(play: Play) -> None:
    assert play("threads.without_turns") == [0, 0, 1]


@scenario("fork")
def test_a_fork_and_its_source_go_their_own_ways(play: Play) -> None:
    assert play("threads.forked") == {
        "other": True,
        "from": True,
        "turns": [2, 2],
        "said": [["Shared."], ["Shared.", "Only the fork."], ["Shared.", "Only the source."]],
    }


@scenario("resume picker")
def test_threads_are_listed(play: Play, server: Server) -> None:
    seen = play("threads.listed")
    assert seen.pop("pages") in DIFFERENCES["pages by creation"].of(server)
    assert seen == {
        "all": [2, 1, 0],
        "previews": ["thread number 2", "thread number 1", "thread number 0"],
        "names": ["name 2", "name 1", "name 0"],
        "end": None,
        "pages by recency": [[2, 1], [0]],
        "oldest first": [0, 1, 2],
        "folder": [1],
        "search": [2],
        "provider": [],
        "archived": [],
    }


@scenario("archive")
def test_a_thread_is_archived_and_comes_back(play: Play) -> None:
    assert play("threads.archived") == {
        "away": [[], [True]],
        "refused": True,
        "back": [[True], []],
        "answer": "still here",
        "told": [True, True],
    }


def test_a_thread_has_a_name(play: Play) -> None:
    assert play("threads.named") == {
        "name": ["a good name", "a good name"],
        "preview": "Hello.",
        "status": ["idle", "notLoaded"],
        "turns": [],
        "told": "a good name",
        "refusal": "thread name must not be empty",
    }


def test_an_ephemeral_thread_is_not_kept(play: Play) -> None:
    assert play("threads.ephemeral") == {
        "answer": "ok",
        "ephemeral": True,
        "path": None,
        "listed": 0,
        "refusal": "no rollout found for thread id ID",
    }


@scenario("compact")
def test_a_compacted_thread_goes_on_from_the_summary(play: Play, server: Server) -> None:
    seen = play("threads.compacted")
    assert seen.pop("summary") in DIFFERENCES["summary"].of(server)
    assert seen == {
        "status": "completed",
        "items": ["contextCompaction"],
        "completed": [[], "notLoaded"],
        "tools": [],
        "answer": "Going on.",
        "question": True,
        "old": [],
    }


def test_an_unknown_thread_is_refused_in_the_words_that_clients_know(play: Play) -> None:
    assert play("threads.unknown") == {
        "run": "thread not found: ID",
        "read": "thread not loaded: ID",
        "resume": "no rollout found for thread id ID",
        "fork": "no rollout found for thread id ID",
        "archive": "no rollout found for thread id ID",
        "unarchive": "no archived rollout found for thread id ID",
        "no id": "invalid session id",
    }
