"""Hooks of sessions, messages, turns and permissions, as real commands: what they are told, and what follows."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from system.agent.scene import Scene, gate, shell, user_texts
from system.hooks.hooks_scene import command, hooked, runs, says, specific, told, warnings
from treadle.logs import AuditLog, audit
from treadle.testing import ToolCall

pytestmark = pytest.mark.anyio
ASKING = {"sandbox_mode": "danger-full-access", "approval_policy": "untrusted"}


# --- the session and its messages ---


async def test_a_session_starts_once_and_again_after_a_compaction(tmp_path: Path) -> None:
    note = tmp_path / "note"
    events = {
        "SessionStart": [command(says("session context", note=note))],
        "UserPromptSubmit": [command(says(specific("UserPromptSubmit", additionalContext="prompt context")))],
    }
    async with hooked(tmp_path, events) as stage:
        thread = await stage.start()
        stage.model.enqueue_assistant_message("one")
        await stage.run(thread, "the one prompt")
        # Some wire APIs have one system message at the beginning.
        text = "\n".join(_texts(stage))
        assert text.index("session context") < text.index("the one prompt")
        assert "prompt context" in text
        if stage.harness.wire_api == "responses":
            assert text.index("the one prompt") < text.index("prompt context")
        stage.model.enqueue_assistant_message("two")
        await stage.run(thread, "second")
        stage.model.enqueue_assistant_message("summary")
        await stage.client.request("thread/compact/start", {"threadId": thread})
        await stage.client.wait_for("turn/completed", lambda _: len(stage.client.told("turn/completed")) == 3)
        stage.model.enqueue_assistant_message("three")
        await stage.run(thread, "third")
    first, second = told(note)
    assert (first["source"], second["source"]) == ("startup", "compact")
    assert "turn_id" not in first


def _texts(stage: Scene) -> list[str]:
    return [
        part["text"]
        for item in stage.model.requests()[-1].input
        if item.get("type") == "message"
        for part in item["content"]
    ]


async def test_a_session_that_may_not_start(tmp_path: Path) -> None:
    answer = says({"continue": False, "stopReason": "closed today"})
    async with hooked(tmp_path, {"SessionStart": [command(answer)]}) as stage:
        turn = await stage.run(await stage.start())
        assert (turn["status"], turn["items"], stage.model.requests()) == ("completed", [], [])
        assert runs(stage) == [("sessionStart", "stopped", [("stop", "closed today")])]
        assert "The turn was ended by a SessionStart hook: closed today" in warnings(stage)


@pytest.mark.parametrize(
    "answer",
    [
        says({"decision": "block", "reason": "no such prompt"}),
        says(stderr="no such prompt", code=2),
        says({"continue": False, "stopReason": "no such prompt"}),
    ],
)
async def test_a_message_that_is_refused_reaches_nobody(tmp_path: Path, answer: str) -> None:
    async with hooked(tmp_path, {"UserPromptSubmit": [command(answer)]}) as stage:
        thread = await stage.start()
        turn = await stage.run(thread)
        assert (turn["status"], turn["items"], stage.model.requests()) == ("completed", [], [])
        assert stage.completed("userMessage") == []
        assert any("no such prompt" in warning for warning in warnings(stage))
        assert await stage.items(thread) == []


async def test_a_refused_message_in_a_running_turn_leaves_it_as_it_was(tmp_path: Path) -> None:
    check = "grep -q secret && { echo no >&2; exit 2; }; exit 0"
    async with hooked(tmp_path, {"UserPromptSubmit": [command(check)]}) as stage:
        thread = await stage.start()
        stage.model.enqueue_calls(ToolCall("exec_command", shell("read x"), "c1"))
        stage.model.enqueue_assistant_message("done")
        turn = await stage.begin(thread, "first")
        await stage.steer(thread, turn, "a secret")
        assert (await stage.end(turn))["status"] == "completed"
        assert [text for text in user_texts(stage.model.requests()[-1]) if "secret" in text] == []


# --- the end of a turn ---


async def test_a_turn_goes_on_when_a_hook_says_so(tmp_path: Path) -> None:
    note, once = tmp_path / "note", tmp_path / "once"
    again = (
        f"tr -d '\\n' >> {note}; echo >> {note}; [ -e {once} ] || {{ touch {once}; echo go on please >&2; exit 2; }}"
    )
    async with hooked(tmp_path, {"Stop": [command(again)]}) as stage:
        stage.model.enqueue_assistant_message("fin")
        stage.model.enqueue_assistant_message("fin2")
        thread = await stage.start()
        await stage.run(thread)
        (item,) = stage.completed("hookPrompt")
        (fragment,) = item["fragments"]
        run_id = f"stop:0:{tmp_path / 'home' / 'hooks.json'}"
        assert fragment == {"text": "go on please", "hookRunId": run_id}
        prompt = f'<hook_prompt hook_run_id="{run_id}">go on please</hook_prompt>'
        assert user_texts(stage.model.requests()[-1])[-1] == prompt
        assert runs(stage) == [("stop", "blocked", [("feedback", "go on please")]), ("stop", "completed", [])]
        assert [item["type"] for item in await stage.items(thread)][-3:] == [
            "agentMessage",
            "hookPrompt",
            "agentMessage",
        ]
    given = [(each["stop_hook_active"], each["last_assistant_message"]) for each in told(note)]
    assert given == [(False, "fin"), (True, "fin2")]


async def test_a_hook_that_never_lets_go_is_ended(tmp_path: Path) -> None:
    answer = says({"decision": "block", "reason": "again"})
    async with hooked(tmp_path, {"Stop": [command(answer)]}, extra_toml="[hooks]\nmax_continuations = 2\n") as stage:
        for _ in range(3):
            stage.model.enqueue_assistant_message("fin")
        assert (await stage.run(await stage.start()))["status"] == "completed"
        assert len(stage.model.requests()) == 3
        (warning,) = [text for text in warnings(stage) if "max_continuations" in text]
        assert "2 times" in warning


async def test_requests_and_interrupts(tmp_path: Path) -> None:
    notes = {event: tmp_path / event for event in ("PreModelRequest", "PostModelRequest", "Interrupt")}
    events = {event: [command(says({"decision": "block", "reason": "x"}, note=note))] for event, note in notes.items()}
    async with hooked(tmp_path, events) as stage:
        thread = await stage.start()
        stage.model.enqueue_assistant_message("one")
        await stage.run(thread)
        held = gate()
        stage.model.enqueue_assistant_message("two", gate=held)
        turn = await stage.begin(thread)
        await stage.client.wait_for("hook/completed", lambda _: len(told(notes["PreModelRequest"])) == 2)
        while len(stage.model.requests()) < 2:
            await asyncio.sleep(0.01)
        await stage.interrupt(thread, turn)
        held.set()
        assert (await stage.end(turn))["status"] == "interrupted"
    posts = told(notes["PostModelRequest"])
    assert [post["status"] for post in posts] == ["completed", "cancelled"]
    assert posts[0]["token_usage"]["total_tokens"] > 0
    (interrupt,) = told(notes["Interrupt"])
    assert interrupt["turn_id"] == turn


async def test_a_compaction_that_is_stopped(tmp_path: Path) -> None:
    answer = says({"continue": False, "stopReason": "keep it"})
    async with hooked(tmp_path, {"PreCompact": [command(answer)]}) as stage:
        thread = await stage.start()
        stage.model.enqueue_assistant_message("one")
        await stage.run(thread)
        await stage.client.request("thread/compact/start", {"threadId": thread})
        await stage.client.wait_for("turn/completed", lambda _: len(stage.client.told("turn/completed")) == 2)
        assert stage.client.told("turn/completed")[1]["params"]["turn"]["status"] == "interrupted"
        assert len(stage.model.requests()) == 1
        assert stage.completed("contextCompaction") == []


# --- permissions ---


@pytest.mark.parametrize(
    ("answer", "ran"),
    [
        (specific("PermissionRequest", decision={"behavior": "allow"}), True),
        (specific("PermissionRequest", decision={"behavior": "deny", "message": "hook says no"}), False),
    ],
)
async def test_a_hook_answers_in_place_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: dict[str, object], ran: bool
) -> None:
    note = tmp_path / "note"
    monkeypatch.setattr(audit, "log", AuditLog(str(tmp_path / "audit"), required=True))
    async with hooked(tmp_path, {"PermissionRequest": [command(says(answer, note=note))]}, settings=ASKING) as stage:
        stage.model.enqueue_calls(ToolCall("exec_command", shell("touch there"), "c1"))
        stage.model.enqueue_assistant_message("done")
        await stage.run(await stage.start())
        assert (stage.workspace / "there").exists() is ran
        output = stage.model.requests()[-1].tool_outputs["c1"]
        assert ("rejected by a PermissionRequest hook: hook says no" in output) is not ran
        assert stage.client.told("item/commandExecution/requestApproval") == []
    (given,) = told(note)
    assert given["tool_input"] == {"command": "touch there"}
    assert "tool_use_id" not in given
    audited = [json.loads(line) for line in (tmp_path / "audit").read_text().splitlines()]
    (outcome,) = [line["outcome"] for line in audited if line["event"] == "approval decided"]
    assert outcome == ("accepted by a hook" if ran else "declined by a hook")


async def test_without_a_decision_the_user_is_asked(tmp_path: Path) -> None:
    async with hooked(tmp_path, {"PermissionRequest": [command(says())]}, settings=ASKING) as stage:
        stage.model.enqueue_calls(ToolCall("exec_command", shell("touch there"), "c1"))
        stage.model.enqueue_assistant_message("done")
        turn = await stage.begin(await stage.start())
        stage.client.reply(await stage.asked("item/commandExecution/requestApproval"), {"decision": "accept"})
        await stage.end(turn)
        assert (stage.workspace / "there").exists()


async def test_a_patch_is_asked_about_with_its_text(tmp_path: Path) -> None:
    note = tmp_path / "note"
    deny = specific("PermissionRequest", decision={"behavior": "deny", "message": "no"})
    text = "*** Begin Patch\n*** Add File: a.txt\n+hello\n*** End Patch"
    events = {"PermissionRequest": [command(says(deny, note=note), matcher="Edit|Write")]}
    async with hooked(tmp_path, events, settings=ASKING) as stage:
        stage.model.enqueue_calls(ToolCall("apply_patch", {"input": text}, "c1"))
        stage.model.enqueue_assistant_message("done")
        await stage.run(await stage.start())
        assert not (stage.workspace / "a.txt").exists()
    (given,) = told(note)
    assert (given["tool_name"], given["tool_input"]) == ("apply_patch", {"command": text})
