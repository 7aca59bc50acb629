"""The same reviews on both servers: clients see the same items with the same titles and reports, and the thread goes on
knowing of them.

What the reviewer is asked is our own wording. The order of what announces the turn, and a raw item that the real server
begins and never ends, are among the differences of the replay. Reviews in another thread exist on ours alone: the real
server has given them up, and asks for a thread of its own first.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from kit.app_client import AppClient
from kit.app_program import stdio_server
from kit.wire_client import Json
from treadle.testing import AppServerHarness

pytestmark = pytest.mark.interop

Story: TypeAlias = list[Any]


def _finding(number: int) -> Json:
    place = {"absolute_file_path": f"/x/{number}.py", "line_range": {"start": number, "end": number + 1}}
    return {
        "title": f"[P{number}] Mend it",
        "body": f"It is broken.\nIn {number} places.",
        "confidence_score": 0.5,
        "priority": number,
        "code_location": place,
    }


def _answer(findings: int, explanation: str = "Hm.") -> str:
    return json.dumps(
        {
            "findings": [_finding(number) for number in range(1, findings + 1)],
            "overall_correctness": "patch is correct",
            "overall_explanation": explanation,
            "overall_confidence_score": 0.5,
        }
    )


REVIEWS: list[tuple[Json, str]] = [
    ({"type": "uncommittedChanges"}, _answer(2)),
    ({"type": "uncommittedChanges"}, _answer(1, "")),
    ({"type": "baseBranch", "branch": " main "}, _answer(1)),
    ({"type": "baseBranch", "branch": "unknown"}, _answer(0)),
    ({"type": "commit", "sha": "HEAD", "title": "Second"}, f"```json\n{_answer(1)}\n```"),
    ({"type": "commit", "sha": "0123456789abcdef", "title": " "}, f"See: {_answer(0)} Bye."),
    ({"type": "custom", "instructions": " look at a.txt "}, "no JSON at all"),
]
REFUSED: list[Json] = [
    {"type": "baseBranch", "branch": " "},
    {"type": "commit", "sha": ""},
    {"type": "custom", "instructions": "\n"},
    {"type": "weather"},
]


@contextmanager
def _server(folder: Path, command: list[str]) -> Iterator[tuple[AppClient, AppServerHarness]]:
    """One that works in a repository with two commits and a file that is not in it."""
    with AppServerHarness(folder, settings={"approval_policy": "never"}) as harness:
        _commits(harness.workspace)
        with stdio_server(harness, env={"HOME": str(folder)}, command=command, ours=False) as program:
            program.client.initialize()
            yield program.client, harness


def _commits(workspace: Path) -> None:
    who = ("-c", "user.name=a", "-c", "user.email=a@b")
    for number, command in enumerate((["init", "-q", "-b", "main"], ["checkout", "-q", "-b", "work"])):
        subprocess.run(["git", *command], cwd=workspace, check=True)
        (workspace / "a.txt").write_text(f"{number}\n")
        subprocess.run(["git", "add", "."], cwd=workspace, check=True)
        subprocess.run(["git", *who, "commit", "-q", "-m", f"commit {number}"], cwd=workspace, check=True)
    (workspace / "new.txt").write_text("new\n")


def _reviewed(client: AppClient, harness: AppServerHarness, target: Json, said: str, delivery: str) -> Story:
    """What a client sees of a review, and what the model is told of it in the next turn."""
    thread = client.start_thread(cwd=str(harness.workspace))
    harness.model.enqueue_assistant_message(said)
    begun = client.call("review/start", {"threadId": thread, "target": target, "delivery": delivery})
    turn, place = begun["turn"], begun["reviewThreadId"]
    assert (place == thread) == (delivery == "inline")
    ended = client.turn_end(turn["id"])
    harness.model.enqueue_assistant_message("later")
    client.run(place, "And now?")
    asked = harness.model.requests()[-1]
    return [
        [turn["status"], turn["itemsView"], [item["content"] for item in turn["items"]]],
        [_shown(item["params"]["item"]) for item in client.of("item/completed") if _belongs(item, turn["id"])],
        [ended["status"], ended["itemsView"], [_shown(item) for item in ended["items"]], ended["error"]],
        asked.input_texts("assistant"),
        [text for text in asked.input_texts("user") if "<action>review</action>" in text] != [],
    ]


def _belongs(message: Json, turn_id: str) -> bool:
    return str(message["params"]["turnId"]) == turn_id


def _shown(item: Json) -> list[Any]:
    return [item["type"], item.get("review"), item.get("text")]


def _stories(client: AppClient, harness: AppServerHarness, delivery: str) -> list[Story]:
    return [_reviewed(client, harness, target, said, delivery) for target, said in REVIEWS]


def _refusals(client: AppClient, harness: AppServerHarness) -> list[Story]:
    thread = client.start_thread(cwd=str(harness.workspace))
    errors = [client.error("review/start", {"threadId": thread, "target": target}) for target in REFUSED]
    return [[error["code"], error["message"]] for error in errors[:-1]] + [[errors[-1]["code"]]]


def _on_both(tmp_path: Path, codex: Path, tell: Callable[[AppClient, AppServerHarness], Story]) -> tuple[Story, Story]:
    with _server(tmp_path / "ours", []) as (client, harness):
        ours = tell(client, harness)
    with _server(tmp_path / "theirs", [str(codex), "app-server"]) as (client, harness):
        return ours, tell(client, harness)


def test_reviews_are_the_same(tmp_path: Path, codex_bin: Path) -> None:
    ours, theirs = _on_both(tmp_path, codex_bin, lambda client, harness: _stories(client, harness, "inline"))
    for target, one, other in zip(REVIEWS, ours, theirs, strict=True):
        assert one == other, target


def test_the_same_is_refused(tmp_path: Path, codex_bin: Path) -> None:
    ours, theirs = _on_both(tmp_path, codex_bin, _refusals)
    assert ours == theirs


def test_a_review_in_another_thread_is_like_one_in_this(tmp_path: Path) -> None:
    with _server(tmp_path, []) as (client, harness):
        assert _stories(client, harness, "detached") == _stories(client, harness, "inline")
