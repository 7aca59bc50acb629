"""`HostAgent` end to end on a mock model: our own loop, the app-server, and the review that learns."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from treadle.host import HostAgent
from treadle.testing import MockModel

DEADLINE_S = 60
KEY = "sk-test-key-123456"


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MockModel]:
    monkeypatch.setenv("TREADLE_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("CODEX_HOME", raising=False)
    with MockModel() as made:
        yield made


@pytest.mark.parametrize("runtime", ["app_server", "responses", "chat_completions"])
def test_a_conversation_with_a_memory_and_a_restart(runtime: str, model: MockModel, tmp_path: Path) -> None:
    def agent() -> HostAgent:
        return HostAgent(
            runtime,
            api_key=KEY,
            base_url=model.base_url,
            memory=tmp_path / "memory",
            memory_nudge_interval=0,
            store=tmp_path / "c.db",
            session_id="a",
            model="gpt-5.5",
            cwd=tmp_path,
        )

    model.enqueue_function_call(
        "memory", {"target": "user", "action": "add", "content": "Likes quokkas."}, call_id="c1"
    )
    model.enqueue_assistant_message("Noted.")
    with agent() as first:
        result = first.run_conversation("I like quokkas.")
        assert (result.final_response, result.error) == ("Noted.", None)
        assert [message["role"] for message in result.messages] == ["user", "assistant", "tool", "assistant"]
        assert first.iterations_since_skill == 1
    assert "Likes quokkas." in (tmp_path / "memory" / "USER.md").read_text()

    model.enqueue_assistant_message("Quokkas.")
    with agent() as second:
        result = second.run_conversation("What do I like?")
        assert (result.final_response, second.user_turn_count) == ("Quokkas.", 2)
        assert [message["content"] for message in result.messages if message["role"] == "user"] == [
            "I like quokkas.",
            "What do I like?",
        ]
    asked = model.requests()[-1]
    assert "I like quokkas." in asked.body.decode()
    assert KEY not in (tmp_path / "c.db").read_bytes().decode("latin-1")


def test_a_review_learns_and_says_so(model: MockModel, tmp_path: Path) -> None:
    with HostAgent(
        "responses",
        api_key=KEY,
        base_url=model.base_url,
        memory=tmp_path / "memory",
        memory_nudge_interval=1,
        model="gpt-5.5",
    ) as agent:
        model.enqueue_assistant_message("Hello.")
        model.enqueue_function_call("memory", {"target": "user", "action": "add", "content": "Says hello."})
        model.enqueue_assistant_message("Nothing more.")
        before = len(agent.run_conversation("hello").messages)
        assert agent.wait_for_review(DEADLINE_S)
        assert "Says hello." in (tmp_path / "memory" / "USER.md").read_text()
        assert len(agent.messages) == before
        agent.review = False
        model.enqueue_assistant_message("Bye.")
        assert any("Learned" in notice for notice in agent.run_conversation("bye").notices)
