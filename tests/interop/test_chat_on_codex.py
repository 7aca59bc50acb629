"""The session of `treadle chat` on the app-server of the real codex, and on ours: the same from beginning to end."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from chat_stage import ESCALATED, session_on
from treadle.cli import GitChanges, UserAnswer, all_threads
from treadle.protocol.app import CommandExecutionRequestApprovalResponse
from treadle.testing import AppServerHarness

pytestmark = [pytest.mark.interop, pytest.mark.anyio]


@pytest.fixture(params=["treadle", "codex"])
def program(request: pytest.FixtureRequest) -> str:
    if request.param == "treadle":
        return "treadle"
    return str(request.getfixturevalue("codex_bin"))


async def test_a_whole_session(program: str, tmp_path: Path) -> None:
    settings = {"approval_policy": "on-request", "sandbox_mode": "read-only"}
    with AppServerHarness(tmp_path, settings=settings, wire_api="responses") as harness:
        (harness.workspace / "needle.txt").touch()
        homes = {name: str(harness.home) for name in ("CODEX_HOME", "TREADLE_HOME", "HOME")}
        config = harness.codex_config(env=homes, **({} if program == "treadle" else {"codex_bin": program}))
        async with session_on(harness, config) as stage:
            session, model, told = stage.session, stage.model, stage.told
            first = session.facts
            assert (first.sandbox, first.approvals) == ("read-only", "on-request")

            gate = threading.Event()
            model.enqueue_assistant_message("one", deltas=["o", "ne"], gate=gate, gate_after=3)
            model.enqueue_assistant_message("two")
            stage.say("the first words")
            await told.wait_for("item/agentMessage/delta")
            stage.say("and this")
            assert await told.wait_for("note") == "added to the running turn"
            gate.set()
            assert (await stage.done()).status == "completed"

            told.answer = lambda: UserAnswer(CommandExecutionRequestApprovalResponse(decision="decline"))
            model.enqueue_function_call("exec_command", ESCALATED, call_id="c1")
            model.enqueue_assistant_message("so be it")
            stage.say("make it")
            assert (await stage.done(2)).status == "completed"
            assert told.asked[0][1]["reason"] == "because"
            assert not (harness.workspace / "made").exists()

            forever = threading.Event()
            model.enqueue_assistant_message("never said", gate=forever)
            stage.say("take your time")
            await told.wait_for("turn/started", 3)
            session.interrupt()
            assert (await stage.done(3)).status == "interrupted"
            forever.set()

            await session.change(approvalPolicy="never", sandboxPolicy={"type": "workspaceWrite"})
            assert "needle.txt" in await session.find_files("ndl")
            assert await GitChanges(session.client, session.facts).read() is None
            copy = await session.fork()
            assert copy.id != first.id
            assert {thread.id async for thread in all_threads(session.client, first.cwd)} >= {first.id}
            await session.enter(first.id)
            model.enqueue_assistant_message("the summary")
            session.want(session.compact)
            assert (await stage.done(4)).status == "completed"
            # The real one warns of an unknown model, and of summaries.
            assert [text for text in told.all("problem") if not text.startswith("warning: ")] == []
            assert told.all("lost") == []
