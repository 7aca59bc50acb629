"""The fifteen points that define the contract of `HostAgent`, as a user would write them: `Session` is replaced."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from treadle.host import ConversationStore, HostAgent, Session, TurnResult, Usage
from treadle.testing import ScriptedRuntime

CALL = {
    "role": "assistant",
    "content": "",
    "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "exec_command", "arguments": "{}"}}],
}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "ok"}
ANSWER = {"role": "assistant", "content": "done"}
USAGE = Usage(input_tokens=10, output_tokens=5, total_tokens=15)


def a_turn(**members: Any) -> TurnResult:
    known: dict[str, Any] = {
        "final_text": "done",
        "projected_messages": [CALL, RESULT, ANSWER],
        "tool_iterations": 1,
        "turn_id": "turn-1",
        "thread_id": "thread-1",
        "usage": USAGE,
    }
    return TurnResult(**{**known, **members})


class Stage:
    """What the replaced session does, and what it was asked for."""

    def __init__(self) -> None:
        self.turn: TurnResult | Exception = a_turn()
        self.start: Exception | None = None
        self.inputs: list[Any] = []
        self.closed = 0


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    played = Stage()

    async def ensure_started(self: Session) -> str:
        if played.start is not None:
            raise played.start
        return "thread-1"

    async def run_turn(self: Session, user_input: Any, **options: Any) -> TurnResult:
        played.inputs.append(user_input)
        if isinstance(played.turn, Exception):
            raise played.turn
        return played.turn

    async def close(self: Session) -> None:
        played.closed += 1

    monkeypatch.setattr(Session, "ensure_started", ensure_started)
    monkeypatch.setattr(Session, "run_turn", run_turn)
    monkeypatch.setattr(Session, "close", close)
    monkeypatch.setattr(
        "treadle.host.app_server.runtime.AppServerRuntime", lambda **_: ScriptedRuntime(name="app_server")
    )
    return played


class Recorder:
    """In the place of `spawn_background_review`."""

    def __init__(self, answer: bool | None = None, error: Exception | None = None) -> None:
        self.calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
        self.answer = answer
        self.error = error

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.calls.append((args, kwargs))
        if self.error is not None:
            raise self.error
        return self.answer


class Remembering:
    """A memory with nothing in it."""

    def prompt(self) -> str:
        return ""

    def tool(self) -> Any:
        from treadle import Tool

        return Tool(lambda: "", name="memory", description="")


@pytest.fixture
def agent(stage: Stage) -> Iterator[HostAgent]:
    with HostAgent(runtime="app_server", api_key="sk-test-key-123456", base_url="http://127.0.0.1:9/v1") as made:
        yield made


def learning(agent: HostAgent, recorder: Recorder) -> HostAgent:
    agent.tool_names.add("skill_manage")
    agent.spawn_background_review = recorder  # type: ignore[method-assign]
    return agent


@pytest.mark.parametrize("word", ["app_server", "responses", "chat_completions", "anthropic", "auto", "claude"])
def test_01_the_explicit_runtime_is_kept(word: str) -> None:
    # An Anthropic URL would suggest another one.
    assert HostAgent(runtime=word, base_url="https://api.anthropic.com", provider="anthropic").runtime_name == word


def test_02_the_result_of_a_normal_turn(agent: HostAgent) -> None:
    result = agent.run_conversation("hello")
    assert result.final_response == "done"
    assert result.api_calls == 1
    assert (result.completed, result.partial, result.interrupted, result.error) == (True, False, False, None)
    assert (result.thread_id, result.turn_id) == ("thread-1", "turn-1")
    assert result.usage == USAGE
    assert result.messages == agent.messages


def test_03_projected_messages_follow_the_user_message(agent: HostAgent) -> None:
    result = agent.run_conversation("hello")
    assert result.messages == [{"role": "user", "content": "hello"}, CALL, RESULT, ANSWER]


def test_04_the_user_message_is_there_once(agent: HostAgent, stage: Stage) -> None:
    stage.turn = a_turn(projected_messages=[{"role": "user", "content": "hello"}, ANSWER])
    result = agent.run_conversation("hello")
    assert result.messages == [{"role": "user", "content": "hello"}, ANSWER]


def test_04_also_after_three_turns_in_the_store(stage: Stage, tmp_path: Path) -> None:
    path = tmp_path / "conversations.db"
    with HostAgent(store=path, session_id="chat") as agent:
        for text in ("one", "two", "three"):
            stage.turn = a_turn(projected_messages=[{"role": "user", "content": text}, ANSWER])
            agent.run_conversation(text)
        expected = [{"role": "user", "content": "one"}, ANSWER, {"role": "user", "content": "two"}, ANSWER]
        expected += [{"role": "user", "content": "three"}, ANSWER]
        assert agent.messages == expected
    store = ConversationStore(path)
    assert [record.message for record in store.messages("chat")] == expected
    assert {record.state for record in store.messages("chat")} == {"done"}
    store.close()


def test_05_counters_add_up_over_turns(agent: HostAgent) -> None:
    agent.run_conversation("one")
    assert (agent.iterations_since_skill, agent.user_turn_count) == (1, 1)
    agent.run_conversation("two")
    assert (agent.iterations_since_skill, agent.user_turn_count) == (2, 2)
    assert agent.turns_since_memory == 0  # there is no memory


def test_05_the_memory_counter_needs_a_memory(stage: Stage) -> None:
    with HostAgent(memory=Remembering()) as agent:  # type: ignore[arg-type]
        agent.run_conversation("one")
        agent.run_conversation("two")
        assert agent.turns_since_memory == 2
    with HostAgent(memory=Remembering(), memory_nudge_interval=0) as agent:  # type: ignore[arg-type]
        agent.run_conversation("one")
        assert agent.turns_since_memory == 0


@pytest.mark.parametrize(("tool", "left"), [("skill_manage", (0, 5)), ("memory", (8, 0))])
def test_05_counters_go_back_when_the_tool_is_used(stage: Stage, tool: str, left: tuple[int, int]) -> None:
    call = {"role": "assistant", "content": "", "tool_calls": [{"id": "c", "function": {"name": tool}}]}
    stage.turn = a_turn(projected_messages=[call, {"role": "tool", "tool_call_id": "c", "content": "kept"}, ANSWER])
    with HostAgent(memory=Remembering()) as agent:  # type: ignore[arg-type]
        agent.iterations_since_skill, agent.turns_since_memory = 7, 4
        agent.run_conversation("keep it")
        assert (agent.iterations_since_skill, agent.turns_since_memory) == left


def test_06_no_review_below_the_interval(agent: HostAgent) -> None:
    recorder = Recorder()
    learning(agent, recorder).iterations_since_skill = 8
    agent.run_conversation("hello")
    assert recorder.calls == []
    assert agent.iterations_since_skill == 9


@pytest.mark.parametrize("before", [9, 25])
def test_07_a_review_at_the_interval(agent: HostAgent, before: int) -> None:
    recorder = Recorder(answer=None)
    learning(agent, recorder).iterations_since_skill = before
    result = agent.run_conversation("hello")
    ((_, given),) = recorder.calls
    assert given == {"messages_snapshot": result.messages, "review_memory": False, "review_skills": True}
    assert given["messages_snapshot"] is not agent.messages
    assert agent.iterations_since_skill == 0


def test_07_the_review_of_the_memory(stage: Stage) -> None:
    recorder = Recorder(answer=True)
    with HostAgent(memory=Remembering(), memory_nudge_interval=2) as agent:  # type: ignore[arg-type]
        learning(agent, recorder)
        agent.run_conversation("one")
        assert recorder.calls == []
        agent.run_conversation("two")
        ((_, given),) = recorder.calls
        assert (given["review_memory"], given["review_skills"]) == (True, False)
        assert (agent.turns_since_memory, agent.iterations_since_skill) == (0, 2)


@pytest.mark.parametrize("recorder", [Recorder(answer=False), Recorder(error=RuntimeError("no room"))])
def test_07_the_counter_is_kept_when_the_review_could_not_start(agent: HostAgent, recorder: Recorder) -> None:
    learning(agent, recorder).iterations_since_skill = 10
    result = agent.run_conversation("hello")
    assert result.completed
    assert len(recorder.calls) == 1
    assert agent.iterations_since_skill == 11


@pytest.mark.parametrize(
    "turn",
    [a_turn(final_text=""), a_turn(interrupted=True), a_turn(error="it broke")],
    ids=["no text", "stop", "error"],
)
def test_07_only_with_a_final_text_and_no_interrupt(agent: HostAgent, stage: Stage, turn: TurnResult) -> None:
    recorder = Recorder()
    stage.turn = turn
    learning(agent, recorder).iterations_since_skill = 20
    agent.run_conversation("hello")
    assert recorder.calls == []
    assert agent.iterations_since_skill == 21


def test_07_only_when_the_skill_tool_is_available(agent: HostAgent) -> None:
    recorder = Recorder()
    learning(agent, recorder).iterations_since_skill = 20
    agent.tool_names.discard("skill_manage")
    agent.run_conversation("hello")
    assert recorder.calls == []


def test_07_not_without_reviews(stage: Stage) -> None:
    recorder = Recorder()
    with HostAgent(review=False) as agent:
        learning(agent, recorder).iterations_since_skill = 20
        agent.run_conversation("hello")
    assert recorder.calls == []


def test_08_the_review_is_called_by_keyword(agent: HostAgent) -> None:
    recorder = Recorder()
    learning(agent, recorder).iterations_since_skill = 10
    agent.run_conversation("hello")
    ((args, given),) = recorder.calls
    assert args == ()
    assert set(given) == {"messages_snapshot", "review_memory", "review_skills"}
    with pytest.raises(TypeError):
        HostAgent().spawn_background_review([], True, True)  # type: ignore[call-arg]


def test_09_the_app_server_path_never_touches_the_chat_client(
    agent: HostAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(*_: Any, **__: Any) -> None:
        raise AssertionError("the provider was asked directly")

    monkeypatch.setattr("treadle.host.local_runtime.LocalRuntime.__init__", forbidden)
    monkeypatch.setattr("treadle.llm.provider_model.ProviderModel.__init__", forbidden)
    assert agent.run_conversation("hello").completed


@pytest.mark.parametrize(
    ("runtime", "provider", "review"),
    [
        ("app_server", "openai", "responses"),
        ("claude", "openai", "responses"),
        ("responses", "openai", "responses"),
        ("chat_completions", "openai", "chat_completions"),
        ("app_server", "anthropic", "anthropic"),
    ],
)
def test_10_the_review_fork_runs_on_the_hosts_own_loop(
    runtime: str, provider: str, review: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TREADLE_HOME", str(tmp_path))
    assert HostAgent(runtime=runtime, provider=provider).review_runtime() == review


def test_10_the_review_fork_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[dict[str, Any]] = []

    def local(wire: str, **choices: Any) -> ScriptedRuntime:
        made.append({"wire": wire, **choices})
        return ScriptedRuntime()

    monkeypatch.setattr("treadle.host.local_runtime.LocalRuntime", local)
    agent = HostAgent(api_key="sk-test-key-123456", model="m")
    agent._choice.make_reviewing(agent.model, agent.timeouts.tool)
    assert made[0]["wire"] == "responses"
    assert made[0]["max_iterations"] == 16
    assert made[0]["api_key"] == "sk-test-key-123456"


@pytest.mark.parametrize("where", ["start", "turn"])
def test_11_an_exception_gives_a_partial_result(agent: HostAgent, stage: Stage, where: str) -> None:
    setattr(stage, where, RuntimeError("the pipe broke"))
    result = agent.run_conversation("hello")
    assert (result.completed, result.partial, result.interrupted) == (False, True, False)
    assert result.error is not None
    assert "the pipe broke" in result.error
    assert "the pipe broke" in result.final_response
    assert "runtime auto" in result.final_response
    assert (result.api_calls, result.thread_id, result.turn_id) == (0, None, None)
    assert result.messages == [{"role": "user", "content": "hello"}]


def test_11_no_secret_is_told(agent: HostAgent, stage: Stage) -> None:
    stage.turn = RuntimeError("refused: sk-test-key-123456")
    result = agent.run_conversation("hello")
    assert "sk-test-key" not in f"{result}{agent!r}{agent._choice!r}"


def test_12_an_interrupted_turn_is_partial_with_its_error(agent: HostAgent, stage: Stage) -> None:
    stage.turn = a_turn(final_text="", projected_messages=[CALL], interrupted=True, error="user interrupted")
    result = agent.run_conversation("hello")
    assert (result.completed, result.partial, result.interrupted) == (False, True, True)
    assert result.error == "user interrupted"
    # The call that was open has a result: models refuse a history without.
    assert [message["role"] for message in result.messages] == ["user", "assistant", "tool"]
    assert result.messages[-1]["tool_call_id"] == "c1"


def test_13_should_retire_closes_the_session_once(agent: HostAgent, stage: Stage) -> None:
    stage.turn = a_turn(should_retire=True, error="it went silent", final_text="")
    result = agent.run_conversation("hello")
    assert agent.session is None
    assert stage.closed == 1
    assert result.error == "it went silent"
    agent.close()
    assert stage.closed == 1


def test_14_a_normal_turn_keeps_the_session(agent: HostAgent, stage: Stage) -> None:
    assert agent.session is None
    agent.run_conversation("one")
    first = agent.session
    agent.run_conversation("two")
    assert first is not None
    assert agent.session is first
    assert stage.closed == 0


@pytest.mark.parametrize("where", ["start", "turn"])
def test_15_an_exception_drops_the_session(agent: HostAgent, stage: Stage, where: str) -> None:
    setattr(stage, where, RuntimeError("boom"))
    agent.run_conversation("hello")
    assert agent.session is None
    assert stage.closed == 1
    stage.start, stage.turn = None, a_turn()
    assert agent.run_conversation("again").completed
    assert agent.session is not None
