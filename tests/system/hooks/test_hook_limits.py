"""What hooks may cost, and what happens when they fail: deadlines, floods, descendants, and who may refuse."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kit.processes import processes_left, wait_for_process
from system.agent.scene import Scene, shell
from system.hooks.hooks_scene import command, hooked, runs, says, specific
from treadle.testing import ToolCall

pytestmark = pytest.mark.anyio


async def _output(stage: Scene) -> str:
    stage.model.enqueue_calls(ToolCall("exec_command", shell("echo original"), "c1"))
    stage.model.enqueue_assistant_message("done")
    assert (await stage.run(await stage.start()))["status"] == "completed"
    return stage.model.requests()[-1].tool_outputs["c1"]


_ASYNC: dict[str, Any] = {"async": True}
WRONG = {
    "code": (says(code=1), "hook exited with code 1"),
    "no reason": (says(code=2), "PreToolUse hook exited with code 2 but did not write a blocking reason to stderr"),
    "json": (says('{"a":'), "hook returned invalid pre-tool-use JSON output"),
    "member": (says({"continues": True}), "hook returned invalid pre-tool-use JSON output"),
    "ask": (says(specific("PreToolUse", permissionDecision="ask")), "unsupported permissionDecision:ask"),
    "flood": ("cat > /dev/null; yes", "hook wrote more than 1048576 bytes"),
    "killed": ("kill -9 $$", "hook exited with code 137"),
}


@pytest.mark.parametrize("wrong", WRONG)
async def test_a_hook_that_fails_allows(tmp_path: Path, wrong: str) -> None:
    text, error = WRONG[wrong]
    async with hooked(tmp_path, {"PreToolUse": [command(text)]}) as stage:
        assert "original" in await _output(stage)
        ((_, status, entries),) = runs(stage)
        assert status == "failed"
        assert error in entries[0][1]


@pytest.mark.parametrize("setting", [{"guard": True}, {"on_error": "deny"}])
@pytest.mark.parametrize("wrong", WRONG)
async def test_unless_it_guards(tmp_path: Path, wrong: str, setting: dict[str, Any]) -> None:
    text, error = WRONG[wrong]
    async with hooked(tmp_path, {"PreToolUse": [command(text, **setting)]}) as stage:
        output = await _output(stage)
        assert output.startswith("Command blocked by PreToolUse hook: the hook")
        assert error in output


async def test_what_it_has_itself_said_counts_before_the_guard(tmp_path: Path) -> None:
    async with hooked(tmp_path, {"PreToolUse": [command(says(code=1), guard=True, on_error="allow")]}) as stage:
        assert "original" in await _output(stage)


async def test_a_deadline_ends_all_descendants(tmp_path: Path, marker: str) -> None:
    stubborn = f"trap '' TERM; (trap '' TERM; setsid sleep {marker} >/dev/null 2>&1 & sleep {marker}) & sleep {marker}"
    async with hooked(tmp_path, {"PreToolUse": [command(stubborn, timeout=1, guard=True)]}) as stage:
        assert "hook timed out after 1s" in await _output(stage)
        assert processes_left(marker) == []


async def test_what_a_hook_leaves_behind_ends_with_it(tmp_path: Path, marker: str) -> None:
    """Also what holds its output open: nobody waits for that."""
    async with hooked(tmp_path, {"PreToolUse": [command(f"sleep {marker} & exit 0")]}) as stage:
        assert "original" in await _output(stage)
        assert processes_left(marker) == []


async def test_an_interrupt_ends_a_hook(tmp_path: Path, marker: str) -> None:
    async with hooked(tmp_path, {"PreToolUse": [command(f"sleep {marker}")]}) as stage:
        stage.model.enqueue_calls(ToolCall("exec_command", shell("echo original"), "c1"))
        thread = await stage.start()
        turn = await stage.begin(thread)
        await stage.client.wait_for("hook/started")
        await asyncio.to_thread(wait_for_process, marker)
        await stage.interrupt(thread, turn)
        assert (await stage.end(turn))["status"] == "interrupted"
        assert processes_left(marker) == []
        assert runs(stage) == [("preToolUse", "failed", [("error", "the turn was interrupted")])]


async def test_a_long_input_that_nobody_reads(tmp_path: Path) -> None:
    async with hooked(tmp_path, {"UserPromptSubmit": [command("exit 0")]}) as stage:
        stage.model.enqueue_assistant_message("done")
        assert (await stage.run(await stage.start(), "x" * 1_000_000))["status"] == "completed"
        assert runs(stage) == [("userPromptSubmit", "completed", [])]


async def test_long_context_is_shortened(tmp_path: Path) -> None:
    async with hooked(tmp_path, {"SessionStart": [command("printf 'word %.0s' $(seq 1 5000)")]}) as stage:
        stage.model.enqueue_assistant_message("done")
        await stage.run(await stage.start())
        asked = stage.model.requests()[0]
        (text,) = [text for role in ("developer", "system") for text in asked.input_texts(role) if "word word" in text]
        text = text[text.index("word word") :]
        assert len(text) < 12_000
        path = Path(text.rpartition("Full hook output saved to: ")[2])
        assert path.read_text().count("word ") >= 4999
    assert not path.exists()


async def test_hooks_of_an_event_run_side_by_side_and_one_refusal_is_enough(tmp_path: Path) -> None:
    """Each waits for the other, for as long as it may."""
    one, two = tmp_path / "one", tmp_path / "two"

    def waits(mine: Path, other: Path) -> str:
        return f"touch {mine}; until [ -e {other} ]; do sleep 0.01; done; "

    allows = specific("PermissionRequest", decision={"behavior": "allow"})
    denies = specific("PermissionRequest", decision={"behavior": "deny", "message": "no"})
    events = {
        "PermissionRequest": [
            command(waits(one, two) + says(allows), timeout=20),
            command(waits(two, one) + says(denies), timeout=20),
        ]
    }
    settings = {"sandbox_mode": "danger-full-access", "approval_policy": "untrusted"}
    async with hooked(tmp_path, events, settings=settings) as stage:
        stage.model.enqueue_calls(ToolCall("exec_command", shell("touch there"), "c1"))
        stage.model.enqueue_assistant_message("done")
        await stage.run(await stage.start())
        assert not (stage.workspace / "there").exists()
        assert [status for _, status, _ in runs(stage)] != ["failed", "failed"]


async def test_an_async_hook_is_not_waited_for(tmp_path: Path) -> None:
    go, done = tmp_path / "go", tmp_path / "done"
    waits = f"until [ -e {go} ]; do sleep 0.01; done; touch {done}"
    async with hooked(tmp_path, {"PreToolUse": [command(waits, **_ASYNC)]}) as stage:
        assert "original" in await _output(stage)
        assert stage.client.told("hook/started") == []
        go.touch()
        while not done.exists():
            await asyncio.sleep(0.01)
