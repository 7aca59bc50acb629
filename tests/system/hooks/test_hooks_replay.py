"""What was recorded of codex 0.166 with hooks, played again on our server: what hooks were told, how their runs looked,
in which order things happened, and what the model got. `DIFFERENCES` says what differs on purpose, and why.

A line of `tests/data/hooks/recorded.jsonl` is a recording with one hook for each of some events, the answer of the hook
that it is about, the answers of the model, and what followed; ids, paths and times are masked.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from system.agent.scene import Scene
from system.hooks.hooks_scene import Json, command, hooked, told
from treadle.hooks import EVENTS, snake_case
from treadle.testing import ToolCall

pytestmark = [pytest.mark.anyio, pytest.mark.responses_wire]  # which was recorded
RECORDED: Final = {
    recording["name"]: recording
    for recording in map(
        json.loads, (Path(__file__).parents[2] / "data" / "hooks" / "recorded.jsonl").read_text().splitlines()
    )
}
NAMES: Final = {snake_case(event): event for event in EVENTS}
_REJECTED: Final = "rejected by a PermissionRequest hook: {}"
# By recording: what is there instead of a recorded text for the model. Ours names no type of a programming language.
DIFFERENCES: Final[dict[str, dict[str, str]]] = {
    "08_permission_deny": {
        'exec_command failed: CreateProcess { message: "Rejected(\\"hook says no\\")" }': _REJECTED.format(
            "hook says no"
        )
    },
    "08_permission_rc2": {
        'exec_command failed: CreateProcess { message: "Rejected(\\"perm rc2\\")" }': _REJECTED.format("perm rc2")
    },
}
# A command that a hook has refused is an item here, which ends as `declined`: there it leaves no trace.
SHOWN_AS_DECLINED: Final = frozenset({"08_permission_deny", "08_permission_rc2"})


@pytest.mark.parametrize("name", RECORDED)
async def test_as_recorded(name: str, tmp_path: Path) -> None:
    recording = RECORDED[name]
    note = tmp_path / "note"
    events: dict[str, list[Json]] = {}
    for hook in recording["hooks"]:
        event = NAMES[hook["event"]]
        text = _command(recording["answer"] if recording["answer"]["event"] == event else None, note, tmp_path)
        events[event] = [command(text, timeout=30, statusMessage=hook["statusMessage"])]
    async with hooked(tmp_path, events, settings=recording["settings"]) as stage:
        _enqueue(stage, recording["model"])
        thread = await stage.start(model="gpt-5.5" if name.startswith("13") else None)
        for number, method in enumerate(recording["requests"], 1):
            given: Json = {"threadId": thread}
            if method == "turn/start":
                given["input"] = [{"type": "text", "text": recording["prompt"]}]
            await stage.client.request(method, given)
            if asked := [line[1:] for line in recording["order"] if line.startswith("?")]:
                stage.client.reply(await stage.asked(asked[0]), {"decision": "accept"})
            await _turns(stage, number)
        if recording["order"][-1] == "item/completed commandExecution":  # one that has outlived its turn
            ended = sum(line.startswith("item/completed") for line in recording["order"])
            await stage.client.wait_for("item/completed", lambda _: len(stage.client.told("item/completed")) == ended)
        expected = [_as_here({**each, "transcript_path": None}) for each in recording["inputs"]]
        assert [_masked_input(each, stage) for each in told(note)] == expected
        assert _runs(stage) == recording["runs"]
        assert _order(stage) == _expected_order(recording)
        differences = DIFFERENCES.get(name, {})
        assert _got(stage) == [[role, differences.get(text, text).rstrip()] for role, text in recording["told"]]


async def _turns(stage: Scene, number: int) -> None:
    """Wait until so many turns are over."""
    await stage.client.wait_for("turn/completed", lambda _: len(stage.client.told("turn/completed")) >= number)


def _command(answer: Json | None, note: Path, folder: Path) -> str:
    noted = f"tr -d '\\n' >> {note}; echo >> {note}"
    if answer is None:
        return noted
    once = f"[ -e {folder / 'answered'} ] && exit 0; touch {folder / 'answered'}; " if answer["once"] else ""
    said = f"printf %s {shlex.quote(answer['stdout'])}; printf %s {shlex.quote(answer['stderr'])} >&2"
    return f"{noted}; {once}{said}; exit {answer['code']}"


def _enqueue(stage: Scene, outputs: Sequence[Sequence[Json]]) -> None:
    for ((item,),) in zip(outputs, strict=True):
        match item["type"]:
            case "message":
                stage.model.enqueue_assistant_message(item["content"][0]["text"])
            case "function_call":
                stage.model.enqueue_calls(ToolCall(item["name"], json.loads(item["arguments"]), item["call_id"]))
            case "custom_tool_call":
                stage.model.enqueue_calls(ToolCall(item["name"], item["input"], item["call_id"], custom=True))


def _as_here(given: Json) -> Json:
    """With the names of the numbers of tokens alone; and our output of a patch says neither exit code nor time."""
    usage, response = given.get("token_usage"), given.get("tool_response")
    if usage:
        given = {**given, "token_usage": sorted(usage)}
    if response:
        given = {**given, "tool_response": response.rpartition("Output:\n")[2].rstrip()}
    return given


def _masked_input(given: Json, stage: Scene) -> Json:
    given = json.loads(json.dumps(given).replace(f" {stage.workspace}/", " "))  # a patch names files in full here
    masked = {name: "*" if name in ("session_id", "turn_id", "model") else value for name, value in given.items()}
    assert masked["cwd"] == str(stage.workspace)
    return _as_here({**masked, "cwd": "CWD"})


def _runs(stage: Scene) -> list[Json]:
    runs = []
    for message in stage.client.told("hook/completed"):
        run = dict(message["params"]["run"])
        for name in ("startedAt", "completedAt", "durationMs"):
            assert run.pop(name) is not None
        path = run["sourcePath"]
        runs.append({**run, "id": run["id"].replace(path, "FILE"), "sourcePath": "FILE"})
    return runs


_KEPT: Final = frozenset({"hook/started", "hook/completed", "item/started", "item/completed", "turn/started"})


def _order(stage: Scene) -> list[str]:
    lines = []
    for message in stage.client.messages:
        method, params = message["method"], message.get("params", {})
        if method in ("hook/started", "hook/completed"):
            lines.append(f"{method} {params['run']['eventName']}")
        elif method in ("item/started", "item/completed"):
            lines.append(f"{method} {params['item']['type']}")
        elif method == "turn/started":
            lines.append(method)
        elif method == "turn/completed":
            lines.append(f"{method} {params['turn']['status']}")
    return lines


def _expected_order(recording: Json) -> list[str]:
    lines = [line for line in recording["order"] if line[0] not in ">?"]
    if recording["name"] in SHOWN_AS_DECLINED:
        at = lines.index("hook/completed permissionRequest") + 1
        lines[at:at] = ["item/started commandExecution", "item/completed commandExecution"]
    return lines


def _got(stage: Scene) -> list[list[str]]:
    """What the model got beside instructions, at last, before a compaction."""
    requests = stage.model.requests()
    if stage.client.told("hook/started")[0]["params"]["run"]["eventName"] == "preCompact":
        requests = requests[:1]
    if not requests:
        return []
    found: list[list[str]] = []
    for item in requests[-1].input:
        if str(item.get("type")).endswith("_call_output"):
            output = item["output"] if isinstance(item["output"], str) else item["output"][-1]["text"]
            output = output.rpartition("Output:\n")[2].rstrip().replace(f" {stage.workspace}/", " ")
            found.append(["output", output])
        elif item.get("type") == "message" and item["role"] in ("user", "developer"):
            text = "".join(part["text"] for part in item["content"])
            if item["role"] == "user" or len(text) < 60:
                found.append([item["role"], re.sub(r'hook_run_id="[^"]*"', 'hook_run_id="RUN"', text)])
    return found
