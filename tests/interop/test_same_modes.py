"""Switches, plan mode and questions on both servers: the model has the same tools, a plan is cut at the same places,
and a question goes the same way.

Nothing here runs a command or changes a file.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kit.app_client import AppClient
from kit.app_program import stdio_server
from kit.wire_client import Json
from treadle.testing import AppServerHarness, MockModel, ToolCall

pytestmark = [pytest.mark.interop]

# Tools that both have in their default mode; the others are of one of them.
COMMON = {"exec_command", "write_stdin", "apply_patch", "view_image", "get_goal", "create_goal", "update_goal"}
SWITCHES: list[Json] = [
    {},
    {"features.shell_tool": False},
    {"features.unified_exec": False},
    {"features": {"shell_tool": False, "unified_exec": False}},
    {"features.view_image": False},
    {"features.goals": False},
    {"features": {"goals": False}, "tools": {"update_plan": {"enabled": False}}},
    {"web_search": "disabled", "mcp_servers": {}, "features.multi_agent": False},
]
PLAN: Json = {"mode": "plan", "settings": {"model": "gpt-5.5", "reasoning_effort": "medium"}}
OPEN, CLOSE = "<proposed_plan>", "</proposed_plan>"
ANSWERS = [
    f"intro\n{OPEN}\n# Plan\n- a\n{CLOSE}\noutro",
    f"{OPEN}\n# Plan\n- a\n{CLOSE}",
    f"a {OPEN} inline {CLOSE} b",
    f"a\n{OPEN}\nunclosed\nplan",
    f"a\n{OPEN}\nP1\n{CLOSE}\nmid\n{OPEN}\nP2\n{CLOSE}\nend",
    f"a\n  {OPEN}  \nP1\n  {CLOSE}  \nend",
    f"x\n{OPEN}rest\nP\n{CLOSE} tail\nend\n{CLOSE}",
    f"\n\n{OPEN}\nP\n{CLOSE}\n\n",
    f"{OPEN}\n{CLOSE}\nx",
    f"a\n{OPEN}\nP\n{OPEN}\nQ\n{CLOSE}\n",
    "",
]
QUESTION: Json = {
    "id": "q",
    "header": "Colour",
    "question": "Which?",
    "options": [{"label": "red", "description": "warm"}, {"label": "blue", "description": "cold"}],
}


class Server(AppClient):
    """One of the two, with a model of its own."""

    model: MockModel

    def turn(self, thread: Json | None = None, **params: Any) -> list[Json]:
        """A new thread and a turn in it, in which all questions are answered; what was told meanwhile."""
        before = len(self.told)
        thread_id = self.start_thread(ephemeral=True, **(thread or {}))
        self.begin(thread_id, **params)
        self.wait_for("turn/completed", lambda told: told["threadId"] == thread_id)
        return self.told[before:]

    def arrived(self, message: Json) -> None:
        if message.get("method") == "item/tool/requestUserInput":
            self.answer(message, {"answers": {"q": {"answers": ["blue"]}}})


@contextmanager
def _server(command: list[str], folder: Path) -> Iterator[Server]:
    with (
        AppServerHarness(folder, wire_api="responses", settings={"model": "gpt-5.5"}) as harness,
        stdio_server(harness, command=[*command, "app-server"], env={"HOME": str(folder)}) as program,
    ):
        server = Server(program.client.transport, ours=False)
        server.model = harness.model
        server.initialize(experimentalApi=True)
        yield server


@pytest.fixture
def both(codex_bin: Path, tmp_path: Path) -> Iterator[tuple[Server, Server]]:
    with (
        _server([sys.executable, "-m", "treadle"], tmp_path / "ours") as ours,
        _server([str(codex_bin)], tmp_path / "theirs") as theirs,
    ):
        yield ours, theirs


def test_the_same_switches_leave_the_same_tools(both: tuple[Server, Server]) -> None:
    def left(server: Server) -> list[set[str]]:
        found = []
        for switches in SWITCHES:
            server.model.enqueue_assistant_message("yes")
            server.turn({"config": switches})
            found.append(set(server.model.requests()[-1].tool_names) & COMMON)
        return found

    ours, theirs = map(left, both)
    assert ours == theirs
    assert ours[0] == COMMON


def test_a_plan_is_cut_at_the_same_places(both: tuple[Server, Server]) -> None:
    def shown(server: Server) -> list[list[tuple[str, str, str]]]:
        found = []
        for answer in ANSWERS:
            server.model.enqueue_assistant_message(answer, deltas=list(answer) or None)
            found.append(_story(server.turn(collaborationMode=PLAN)))
        return found

    ours, theirs = map(shown, both)
    assert ours == theirs
    assert ("completed", "plan", "# Plan\n- a\n") in ours[0]


def _story(told: list[Json]) -> list[tuple[str, str, str]]:
    """Items and what they grew by; neighbouring deltas are one."""
    story: list[tuple[str, str, str]] = []
    for message in told:
        _, _, what = message["method"].rpartition("/")
        if what == "delta":
            kind, text = message["method"].split("/")[1], message["params"]["delta"]
            if story and story[-1][:2] == (what, kind):
                text = story.pop()[2] + text
            story.append((what, kind, text))
        elif message["method"].startswith("item/") and message["params"].get("item", {}).get("type") != "userMessage":
            story.append((what, message["params"]["item"]["type"], message["params"]["item"]["text"]))
    return story


@pytest.mark.parametrize("mode", ["plan", "default"])
def test_a_question_goes_the_same_way(both: tuple[Server, Server], mode: str) -> None:
    def asked(server: Server) -> tuple[list[Json], bool, list[Json]]:
        server.model.enqueue_calls(ToolCall("request_user_input", {"questions": [QUESTION]}, "c1"))
        server.model.enqueue_assistant_message("done")
        told = server.turn(collaborationMode={**PLAN, "mode": mode})
        questions = [one["params"] for one in told if one["method"] == "item/tool/requestUserInput"]
        output = server.model.requests()[-1].tool_outputs["c1"]
        flags = [one["params"]["status"] for one in told if one["method"] == "thread/status/changed"]
        return [_without_ids(one) for one in questions], output == '{"answers":{"q":{"answers":["blue"]}}}', flags

    ours, theirs = map(asked, both)
    assert ours == theirs
    assert len(ours[0]) == (mode == "plan")


def _without_ids(params: Json) -> Json:
    return {key: value for key, value in params.items() if key not in ("threadId", "turnId")}


def test_the_modes_are_the_same(both: tuple[Server, Server]) -> None:
    ours, theirs = (server.call("collaborationMode/list", {}) for server in both)
    assert ours == theirs
