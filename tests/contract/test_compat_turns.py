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


@only("in process", "child")
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
    assert [item.type for item in result.items] == ["userMessage", "agentMessage"]
    assert methods_of(seen)[-1] == "turn/completed"
    assert (read.thread.name, len(read.thread.turns)) == ("counting", 3)
    assert (resumed.id == thread.id, forked.id == thread.id) == (True, False)
