"""`codex/event` of `treadle mcp-server`, beside what codex 0.153 sent for the same turns (`codex_events.jsonl`)."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from kit.mcp_client import ELICITATION, McpClient, mcp_client
from kit.processes import wait_for_process
from system.agent.scene import patch
from treadle.testing import AppServerHarness

RECORDED: Final = Path(__file__).parents[2] / "data" / "codex_events.jsonl"
# How often they come is another matter, and what a command has written comes at once or in pieces.
ANY_TIME: Final = frozenset({"token_count", "turn_diff", "exec_command_output_delta", "mcp_startup_complete"})
# What theirs has and ours has not.
MISSING: Final = {
    "session_configured": {"permission_profile"},
    "task_complete": {"time_to_first_token_ms"},
    "user_message": {"local_images", "audio", "local_audio", "text_elements"},
    "exec_command_begin": {"started_at_ms"},
    "exec_command_end": {"completed_at_ms"},
    "exec_approval_request": {
        "available_decisions",
        "environmentId",
        "kind",
        "proposed_execpolicy_amendment",
        "started_at_ms",
    },
}


def recorded() -> dict[str, list[Any]]:
    cases = defaultdict(list)
    for line in RECORDED.read_text(encoding="utf-8").splitlines():
        message = json.loads(line)
        cases[message["case"]].append(message)
    return cases


def shape(value: Any) -> Any:
    """The keys and kinds of a value; null fits everything."""
    if isinstance(value, dict):
        return {key: shape(each) for key, each in value.items() if each is not None}
    return type(value).__name__


def fits(theirs: Any, ours: Any) -> bool:
    if isinstance(theirs, dict) and isinstance(ours, dict):
        return all(fits(theirs[key], ours[key]) for key in theirs.keys() & ours.keys())
    return bool(theirs == ours)


@contextmanager
def serving(harness: AppServerHarness) -> Iterator[McpClient]:
    log = harness.workspace.parent / "mcp-server.stderr"
    with mcp_client(harness.workspace, harness.environ(), log) as client:
        client.shake_hands(capabilities=ELICITATION)
        yield client
        assert client.hang_up() == 0


def events(client: McpClient) -> list[Any]:
    return [event for event in client.told("codex/event") if event["msg"]["type"] not in ANY_TIME]


def check(client: McpClient, case: str, call: int) -> list[Any]:
    ours = events(client)
    theirs = [
        message["params"]
        for message in recorded()[case]
        if message["method"] == "codex/event" and message["params"]["msg"]["type"] not in ANY_TIME
    ]
    if case == "asked":  # ours says that a command begins before it asks whether it may
        asked = next(number for number, event in enumerate(theirs) if event["msg"]["type"] == "exec_approval_request")
        theirs[asked : asked + 2] = reversed(theirs[asked : asked + 2])
    assert [event["msg"]["type"] for event in ours] == [event["msg"]["type"] for event in theirs]
    for mine, other in zip(ours, theirs, strict=True):
        assert mine["_meta"].keys() == other["_meta"].keys()
        assert mine["_meta"]["requestId"] == call
        assert bool(mine["id"]) is bool(other["id"])
        kind = mine["msg"]["type"]
        assert other["msg"].keys() - mine["msg"].keys() == MISSING.get(kind, set()), kind
        assert fits(shape(other["msg"]), shape(mine["msg"])), (other["msg"], mine["msg"])
    return ours


@pytest.mark.parametrize(
    ("case", "line", "arguments"),
    [
        ("answer", None, {}),
        ("command", "echo well; exit 3", {"sandbox": "danger-full-access"}),
        ("asked", "touch made", {"approval-policy": "untrusted"}),
    ],
)
def test_a_turn_is_told_in_the_same_events(
    harness: AppServerHarness, case: str, line: str | None, arguments: dict[str, Any]
) -> None:
    if line is not None:
        harness.model.enqueue_function_call("exec_command", {"cmd": line})
    harness.model.enqueue_assistant_message("Hello.")
    with serving(harness) as client:
        call = client.call("codex", {"prompt": "hi", **arguments})
        if case == "asked":
            asked = client.asked()
            [theirs] = [message["params"] for message in recorded()[case] if message["method"] == asked["method"]]
            assert theirs.keys() <= asked["params"].keys()
            assert fits(shape(theirs), shape(asked["params"]))
            client.send({"id": asked["id"], "result": {"decision": "approved"}})
        thread = client.result(call)["structuredContent"]["threadId"]
        ours = check(client, case, call)
        assert {event["_meta"]["threadId"] for event in ours} == {thread}
        assert ours[-1]["msg"]["last_agent_message"] == "Hello."
        if case == "answer":
            usage, theirs_usage = (
                next(event["msg"] for event in found if event["msg"]["type"] == "token_count")
                for found in (client.told("codex/event"), [message["params"] for message in recorded()[case]])
            )
            assert fits(shape(theirs_usage), shape(usage))
        if case == "command":
            ended = next(event["msg"] for event in ours if event["msg"]["type"] == "exec_command_end")
            assert (ended["exit_code"], ended["stdout"], ended["status"]) == (3, "well\n", "failed")


def test_a_patch(harness: AppServerHarness) -> None:
    (harness.workspace / "old.txt").write_text("a\nb\n", encoding="utf-8")
    (harness.workspace / "gone.txt").write_text("g\n", encoding="utf-8")
    lines = ("*** Update File: old.txt", "@@", "-a", "+c", " b", "*** Delete File: gone.txt")
    harness.model.enqueue_custom_call("apply_patch", patch(*lines, "*** Add File: new.txt", "+n"))
    harness.model.enqueue_assistant_message("done")
    with serving(harness) as client:
        call = client.call("codex", {"prompt": "hi", "sandbox": "workspace-write"})
        client.result(call)
        ours = check(client, "patch", call)
        begun = next(event["msg"] for event in ours if event["msg"]["type"] == "patch_apply_begin")
        changes = {path.rpartition("/")[2]: change for path, change in begun["changes"].items()}
        assert changes["new.txt"] == {"type": "add", "content": "n\n"}
        assert changes["gone.txt"]["type"] == "delete"
        assert changes["old.txt"]["move_path"] is None
        assert "-a\n+c\n" in changes["old.txt"]["unified_diff"]


def test_a_turn_that_fails(harness: AppServerHarness) -> None:
    harness.model.enqueue_error(400, {"error": {"message": "no such thing"}})
    with serving(harness) as client:
        call = client.call("codex", {"prompt": "hi"})
        assert client.result(call)["isError"] is True
        assert "no such thing" in check(client, "failure", call)[-1]["msg"]["message"]


def test_a_turn_that_is_interrupted(harness: AppServerHarness, marker: str) -> None:
    harness.model.enqueue_function_call("exec_command", {"cmd": f"sleep {marker}"})
    with serving(harness) as client:
        call = client.call("codex", {"prompt": "hi"})
        wait_for_process(marker)
        client.wait(lambda it: it.get("method") == "codex/event")
        thread = events(client)[0]["_meta"]["threadId"]
        client.run("treadle_interrupt", {"threadId": thread})
        client.result(call)
        [aborted] = [event["msg"] for event in events(client) if event["msg"]["type"] == "turn_aborted"]
        assert aborted["reason"] == "interrupted"
