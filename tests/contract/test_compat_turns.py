"""The earlier shapes of the official SDK on a real server, in both faces."""

from __future__ import annotations

from dataclasses import asdict
from importlib import import_module
from typing import Any

import pytest

from contract import client_stage
from contract.client_stage import Stage, methods_of, only
from treadle.types import SandboxMode, TurnStatus

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("release", ["codex_app_server", "openai_codex_0_131"])]
stage = client_stage.stage


async def _codex(stage: Stage, release: str) -> Any:
    sdk = import_module(f"treadle.compat.{release}")
    config = sdk.AppServerConfig(**{name: value for name, value in asdict(stage.config()).items() if value})
    return sdk.AsyncCodex(config) if stage.face == "async" else await stage.call(sdk.Codex, config)


@only("in process")
async def test_a_handle_gives_the_bare_turn_and_run_the_answer(stage: Stage, release: str) -> None:
    stage.model.enqueue_assistant_message("one")
    stage.model.enqueue_assistant_message("two", deltas=["t", "wo"])
    stage.model.enqueue_assistant_message("three")
    codex = await _codex(stage, release)
    try:
        thread = await stage.call(codex.thread_start, sandbox=SandboxMode.read_only)
        handle = await stage.call(thread.turn, "1")
        turn = await stage.call(handle.run)
        result = await stage.call(thread.run, "2")
        seen = await stage.read((await stage.call(thread.turn, "3")).stream()).rest()
        await stage.call(thread.set_name, "counting")
        read = await stage.call(thread.read, include_turns=True)
        forked = await stage.call(codex.thread_fork, thread.id)
        resumed = await stage.call(codex.thread_resume, thread.id)
    finally:
        await stage.call(codex.close)
    assert (turn.id, turn.status, turn.items) == (handle.id, TurnStatus.completed, [])
    assert result.final_response == "two"
    assert [item.type for item in result.items] == ["agentMessage"]
    assert methods_of(seen)[-1] == "turn/completed"
    assert (read.thread.name, len(read.thread.turns)) == ("counting", 3)
    assert (resumed.id == thread.id, forked.id == thread.id) == (True, False)


@only("in process")
async def test_the_low_level_stream_leaves_room_for_other_calls(stage: Stage, release: str) -> None:
    stage.model.enqueue_assistant_message("one two", deltas=["one ", "two"])
    codex = await _codex(stage, release)
    try:
        thread = await stage.call(codex.thread_start)
        reading = stage.read(codex._client.stream_text(thread.id, "count"))
        await reading.next()
        models = await stage.call(codex.models)
        pieces = await reading.rest()
    finally:
        await stage.call(codex.close)
    assert [piece.delta for piece in pieces] == ["one ", "two"]
    assert models.data


@only("in process")
async def test_a_handler_that_is_put_into_the_client_decides(stage: Stage, release: str) -> None:
    """Those releases had no other way to decide about approvals."""
    stage.configure(approval_policy="on-request", sandbox_mode="read-only")
    call = {"cmd": "touch made", "sandbox_permissions": "require_escalated", "justification": "because"}
    stage.model.enqueue_function_call("exec_command", call, call_id="c1")
    stage.model.enqueue_assistant_message("so be it")
    asked: list[str] = []

    def decide(method: str, params: object) -> dict[str, str]:
        asked.append(method)
        return {"decision": "accept"}

    codex = await _codex(stage, release)
    getattr(codex._client, "_sync", codex._client)._approval_handler = decide
    reviewed_by_us = {"approvals_reviewer": "user"} if release == "codex_app_server" else {"approval_mode": None}
    try:
        thread = await stage.call(codex.thread_start, **reviewed_by_us)
        result = await stage.call(thread.run, "make it")
    finally:
        await stage.call(codex.close)
    assert asked == ["item/commandExecution/requestApproval"]
    assert (stage.workspace / "made").exists()
    assert result.final_response == "so be it"
