"""`thread.review`: started and read like any other turn, in both faces."""

from __future__ import annotations

from pathlib import Path

import pytest

from treadle import AsyncCodex, Codex, CodexConfig
from treadle.testing import AppServerHarness


def config(harness: AppServerHarness) -> CodexConfig:
    home = str(harness.home)
    return CodexConfig(env={"CODEX_HOME": home, "TREADLE_HOME": home}, cwd=str(harness.workspace))


def test_a_review_is_read_like_a_turn(tmp_path: Path) -> None:
    with AppServerHarness(tmp_path) as harness, Codex(config(harness)) as codex:
        harness.model.enqueue_assistant_message("looks fine")
        thread = codex.thread_start()
        result = thread.review(branch="main").run()
        assert result.final_response == "looks fine"
        assert [item.type for item in result.items] == ["enteredReviewMode", "exitedReviewMode", "agentMessage"]
        harness.model.enqueue_assistant_message("thanks")
        assert thread.run("good").final_response == "thanks"


@pytest.mark.anyio
async def test_a_review_is_read_like_a_turn_on_a_loop(tmp_path: Path) -> None:
    with AppServerHarness(tmp_path) as harness:
        harness.model.enqueue_assistant_message("looks fine")
        async with AsyncCodex(config(harness)) as codex:
            thread = await codex.thread_start()
            turn = await thread.review("the tests")
            assert [type(event).__name__ async for event in turn.events()][-2:] == ["Text", "Done"]
