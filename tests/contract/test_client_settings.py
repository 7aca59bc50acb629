"""Approval mode and sandbox: what is sent, how long it stays, who inherits it."""

from __future__ import annotations

from typing import Any

import pytest

from contract import client_stage
from contract.client_stage import Stage, only
from treadle import ApprovalMode, Sandbox

pytestmark = pytest.mark.anyio
stage = client_stage.stage

DENIED = ("never", "user", "dangerFullAccess")
REVIEWED = ("on-request", "auto_review", "dangerFullAccess")


async def _settings(stage: Stage, codex: Any, thread_id: str) -> tuple[str, str, str]:
    """Resuming a thread that is loaded only tells its state."""
    state = await stage.call(codex._client.thread_resume, thread_id)
    return str(state.approval_policy), str(state.approvals_reviewer), state.sandbox.type


async def test_how_long_an_approval_mode_stays(stage: Stage) -> None:
    stage.answer = lambda request: "ok"
    async with stage.codex() as codex:
        thread = await stage.call(codex.thread_start, approval_mode=ApprovalMode.deny_all)
        seen = [await _settings(stage, codex, thread.id)]
        for changes in (
            {},
            {"approval_mode": ApprovalMode.auto_review},
            {},
            {"approval_mode": ApprovalMode.deny_all},
        ):
            await stage.call(thread.run, "go on", **changes)
            seen.append(await _settings(stage, codex, thread.id))
    policies = [policy for policy, _, _ in seen]
    assert policies == ["never", "never", "on-request", "on-request", "never"]
    assert [reviewer for _, reviewer, _ in seen[2:4]] == ["auto_review", "auto_review"]


@only("in process")
async def test_a_thread_is_reviewed_unless_told_otherwise(stage: Stage) -> None:
    async with stage.codex() as codex:
        usual = await stage.call(codex.thread_start)
        denied = await stage.call(codex.thread_start, approval_mode=ApprovalMode.deny_all)
        assert await _settings(stage, codex, usual.id) == REVIEWED
        assert (await _settings(stage, codex, denied.id))[0] == "never"


@only("in process")
async def test_with_a_handler_it_is_the_one_who_decides(stage: Stage) -> None:
    async with stage.codex(approval_handler=lambda request: True) as codex:
        thread = await stage.call(codex.thread_start)
        assert await _settings(stage, codex, thread.id) == ("on-request", "user", "dangerFullAccess")


async def test_a_fork_inherits_unless_told_otherwise(stage: Stage) -> None:
    stage.answer = lambda request: "ok"
    async with stage.codex() as codex:
        thread = await stage.call(codex.thread_start, approval_mode=ApprovalMode.deny_all, sandbox=Sandbox.read_only)
        await stage.call(thread.run, "go")
        same = await stage.call(codex.thread_fork, thread.id)
        other = await stage.call(
            codex.thread_fork, thread.id, approval_mode=ApprovalMode.auto_review, sandbox=Sandbox.workspace_write
        )
        seen = [await _settings(stage, codex, each.id) for each in (same, other)]
    assert [(policy, sandbox) for policy, _, sandbox in seen] == [
        ("never", "readOnly"),
        ("on-request", "workspaceWrite"),
    ]


async def test_a_thread_that_is_resumed_later_is_as_it_was(stage: Stage) -> None:
    stage.answer = lambda request: "ok"
    async with stage.codex() as codex:
        thread = await stage.call(codex.thread_start, approval_mode=ApprovalMode.deny_all)
        await stage.call(thread.run, "go", approval_mode=ApprovalMode.auto_review, sandbox=Sandbox.read_only)
    async with stage.codex() as codex:
        resumed = await stage.call(codex.thread_resume, thread.id)
        seen = [await _settings(stage, codex, resumed.id)]
        await stage.call(resumed.run, "go on", approval_mode=ApprovalMode.deny_all)
        seen.append(await _settings(stage, codex, resumed.id))
    assert seen[0] == ("on-request", "auto_review", "readOnly")
    assert (seen[1][0], seen[1][2]) == ("never", "readOnly")


@only("in process")
async def test_nobody_is_asked_when_all_is_denied(stage: Stage) -> None:
    escalated = {"cmd": "touch made", "sandbox_permissions": "require_escalated", "justification": "because"}
    stage.model.enqueue_function_call("exec_command", escalated)
    stage.model.enqueue_assistant_message("then not")
    asked: list[Any] = []

    def handler(request: Any) -> bool:
        asked.append(request)
        return True

    async with stage.codex(approval_handler=handler) as codex:
        thread = await stage.call(codex.thread_start, approval_mode=ApprovalMode.deny_all, sandbox=Sandbox.read_only)
        assert (await stage.call(thread.run, "make it")).final_response == "then not"
    assert not asked
    assert not (stage.workspace / "made").exists()
