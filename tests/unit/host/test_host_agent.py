"""`HostAgent` on a scripted runtime: its two faces, interrupts, steering, what is stored, resuming, and its end."""

from __future__ import annotations

import asyncio
import gc
import math
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from treadle import ArgumentError, Tool
from treadle.host import (
    AgentClosed,
    AgentTurn,
    Ask,
    ConversationStore,
    Fault,
    HostAgent,
    Notice,
    ResumeFailed,
    RuntimeEvent,
    RuntimeFault,
    Session,
    TurnResult,
    agent_resources,
)
from treadle.store import StoreError
from treadle.testing import DONE, SILENCE, Gate, ScriptedRuntime, said

DEADLINE_S = 30


class Runtimes:
    """Makes runtimes from scripts, and keeps them."""

    def __init__(self, *turns: Any, **choices: Any) -> None:
        self.made: list[ScriptedRuntime] = []
        self._turns = turns
        self._choices = choices

    def __call__(self) -> ScriptedRuntime:
        turns: Any = self._turns or [[said("hello"), DONE]] * 50
        runtime = ScriptedRuntime(turns, **self._choices)
        self.made.append(runtime)
        return runtime


class Held:
    """In the place of a session's turn: it lasts until it is interrupted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.running = threading.Event()
        self.interrupted = 0
        held = self
        stops: list[asyncio.Event] = []

        async def run_turn(self: Session, user_input: Any, **options: Any) -> TurnResult:
            stops.append(asyncio.Event())
            held.running.set()
            await stops[-1].wait()
            return TurnResult(interrupted=True, error="interrupted", thread_id="t", turn_id="1")

        def request_interrupt(self: Session) -> None:
            held.interrupted += 1
            stops[-1].set()

        monkeypatch.setattr(Session, "run_turn", run_turn)
        monkeypatch.setattr(Session, "request_interrupt", request_interrupt)


# --- making one ------------------------------------------------------------------------------------------------------


def test_making_one_starts_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TREADLE_HOME", str(tmp_path / "home"))
    before = threading.active_count()
    runtimes = Runtimes()
    agent = HostAgent(runtimes, memory=True, skills=True, store=True)
    assert agent.tool_names == {"memory", "skills_list", "skill_view", "skill_manage", "session_search"}
    agent.close()
    assert (runtimes.made, list(tmp_path.iterdir()), threading.active_count()) == ([], [], before)


@pytest.mark.parametrize(
    "bad",
    [
        {"runtime": "no-such-runtime"},
        {"runtime": 3},
        {"api_key": 3},
        {"provider": None},
        {"memory": 3},
        {"skills": object()},
        {"store": 1.5},
        {"memory_nudge_interval": -1},
        {"skill_nudge_interval": "10"},
        {"review": "yes"},
        {"approvals": "always"},
        {"on_event": 3},
        {"sandbox": "none"},
        {"cwd": "/no/such/folder"},
        {"session_id": "a"},
        {"tools": print},
        {"memory": True, "tools": [Tool(lambda: "", name="memory")]},
    ],
    ids=lambda bad: "-".join(bad),
)
def test_a_bad_argument_is_an_error_at_once(bad: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError) as raised:
        HostAgent(**bad)
    assert raised.value.parameter in {*bad, "tools"}


# --- both faces ------------------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_both_faces_with_a_running_loop() -> None:
    runtimes = Runtimes()
    async with HostAgent(runtimes) as agent:
        assert (await agent.arun_conversation("one", effort="low")).final_response == "hello"
        assert agent.run_conversation("two").final_response == "hello"
        assert (await asyncio.to_thread(agent.run_conversation, "three")).completed
        assert agent.runtime_name == "scripted"
    (runtime,) = runtimes.made
    assert runtime.inputs == ["one", "two", "three"]
    assert runtime.options[0] == {"effort": "low"}
    assert runtime.closed


def test_one_turn_at_a_time_and_the_others_wait() -> None:
    gate = Gate()
    runtimes = Runtimes([gate, said("1"), DONE], *([[said("x"), DONE]] * 3))
    with HostAgent(runtimes) as agent, ThreadPoolExecutor(4) as pool:
        first = pool.submit(agent.run_conversation, "first")
        gate.wait_reached()
        others = [pool.submit(agent.run_conversation, f"other {number}") for number in range(3)]
        gate.open()
        assert first.result(DEADLINE_S).final_response == "1"
        assert all(other.result(DEADLINE_S).completed for other in others)
        assert [message["role"] for message in agent.messages] == ["user", "assistant"] * 4


def test_on_event_may_fail_and_may_not_wait(caplog: pytest.LogCaptureFixture) -> None:
    def told(event: RuntimeEvent) -> None:
        agent.run_conversation("from inside")

    with HostAgent(Runtimes(), on_event=told) as agent:
        assert agent.run_conversation("hello").completed
    assert "waits for the agent" in caplog.text


class Odd(BaseException):
    pass


@pytest.mark.parametrize("error", [ValueError(), SystemExit(1), KeyboardInterrupt(), asyncio.CancelledError(), Odd()])
def test_whatever_on_event_raises_the_agent_goes_on(error: BaseException, caplog: pytest.LogCaptureFixture) -> None:
    def told(event: RuntimeEvent) -> None:
        raise error

    with HostAgent(Runtimes(), on_event=told) as agent:
        assert [agent.run_conversation("hello").completed for _ in range(2)] == [True, True]
    assert "on_event failed" in caplog.text


def test_an_on_event_that_hangs_holds_up_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_resources, "CATCH_UP_S", 0.01)
    monkeypatch.setattr(agent_resources, "MAX_BEHIND", 3)
    called, gate, end = threading.Event(), Gate(), threading.Event()

    def told(event: RuntimeEvent) -> None:
        called.set()
        end.wait(DEADLINE_S)

    runtimes = Runtimes([said("1"), DONE], [said("2"), gate, SILENCE])
    try:
        with HostAgent(runtimes, on_event=told) as agent, ThreadPoolExecutor(1) as pool:
            assert agent.run_conversation("hello").completed
            assert called.is_set()
            turn = pool.submit(agent.run_conversation, "again")
            gate.wait_reached()
            gate.open()
            agent.interrupt()
            assert turn.result(DEADLINE_S).interrupted
    finally:
        end.set()


def test_events_were_shown_when_a_turn_has_ended() -> None:
    slow = threading.Event()
    events: list[RuntimeEvent] = []

    def told(event: RuntimeEvent) -> None:
        slow.wait(0.01)
        events.append(event)

    with HostAgent(Runtimes([said("1"), DONE], [said("1"), DONE]), on_event=told) as agent:
        agent.run_conversation("hello")
        first = len(events)
        agent.run_conversation("hello")
        assert 0 < first == len(events) - first


# --- interrupts ------------------------------------------------------------------------------------------------------


def test_interrupt_from_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held(monkeypatch)
    with HostAgent(Runtimes()) as agent, ThreadPoolExecutor(1) as pool:
        turn = pool.submit(agent.run_conversation, "hello")
        assert held.running.wait(DEADLINE_S)
        agent.interrupt()
        result = turn.result(DEADLINE_S)
    assert (result.interrupted, result.partial, result.error) == (True, True, "interrupted")


def test_after_an_interrupt_the_session_goes_on() -> None:
    gate = Gate()
    runtimes = Runtimes([gate, SILENCE], [said("x"), DONE])
    with HostAgent(runtimes) as agent, ThreadPoolExecutor(1) as pool:
        turn = pool.submit(agent.run_conversation, "hello")
        gate.wait_reached()
        agent.interrupt()
        assert turn.result(DEADLINE_S).interrupted
        assert agent.run_conversation("again").final_response == "x"
    assert len(runtimes.made) == 1


def test_an_interrupt_without_a_turn_hits_nothing() -> None:
    with HostAgent(Runtimes()) as agent:
        agent.interrupt()
        assert agent.run_conversation("one").completed
        agent.interrupt()
        assert agent.run_conversation("two").completed


def test_interrupt_while_the_runtime_starts() -> None:
    gate = Gate()
    runtimes = Runtimes(opens=[gate])
    with HostAgent(runtimes) as agent, ThreadPoolExecutor(1) as pool:
        turn = pool.submit(agent.run_conversation, "hello")
        gate.wait_reached()
        agent.interrupt()
        result = turn.result(DEADLINE_S)
        assert result.interrupted
        assert result.error == "Interrupted while the runtime was starting."
        assert agent.session is None
        assert runtimes.made[0].closed


@pytest.mark.anyio
async def test_who_is_cancelled_interrupts_the_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held(monkeypatch)
    async with HostAgent(Runtimes()) as agent:
        turn = asyncio.create_task(agent.arun_conversation("hello"))
        waiting = asyncio.create_task(agent.arun_conversation("never run"))
        assert await asyncio.to_thread(held.running.wait, DEADLINE_S)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert held.interrupted == 0  # the one that runs is not its business
        turn.cancel()
        with pytest.raises(asyncio.CancelledError):
            await turn
        assert held.interrupted == 1
        assert agent.messages == [{"role": "user", "content": "hello"}]


CTRL_C = """
import asyncio, os, signal, sys, threading
from treadle.host import HostAgent, Session, TurnResult
from treadle.testing.scripted_runtime import ScriptedRuntime

stop = asyncio.Event()

def waits():
    return sys._current_frames()[threading.main_thread().ident].f_code.co_name == "wait"

async def run_turn(self, user_input, **options):
    while not waits():
        await asyncio.sleep(0.001)
    os.kill(os.getpid(), signal.SIGINT)
    await stop.wait()
    return TurnResult(interrupted=True, error="interrupted")

Session.run_turn = run_turn
Session.request_interrupt = lambda self: stop.set()
agent = HostAgent(ScriptedRuntime)
try:
    agent.run_conversation("hello")
except KeyboardInterrupt:
    print("interrupted", stop.is_set())
"""


def test_ctrl_c_interrupts_the_turn_and_the_program_ends() -> None:
    assert run(CTRL_C) == "interrupted True\n"


# --- steering --------------------------------------------------------------------------------------------------------


def test_steer_into_the_turn() -> None:
    gate = Gate()
    runtimes = Runtimes([gate, said("1"), DONE])
    with HostAgent(runtimes) as agent, ThreadPoolExecutor(1) as pool:
        turn = pool.submit(agent.run_conversation, "hello")
        gate.wait_reached()
        steered = agent.steer("also this")
        gate.open()
        turn.result(DEADLINE_S)
    assert steered
    assert runtimes.made[0].steered == ["also this"]


def test_what_cannot_be_steered_begins_the_next_message() -> None:
    runtimes = Runtimes()
    with HostAgent(runtimes) as agent:
        assert agent.steer("first this") is False
        agent.run_conversation("then that")
        agent.run_conversation("done")
        assert runtimes.made[0].inputs == ["first this\n\nthen that", "done"]
        agent.steer("look")
        agent.run_conversation([{"type": "text", "text": "here"}])
        assert agent.messages[-2]["content"] == [{"type": "text", "text": "look"}, {"type": "text", "text": "here"}]


# --- approvals -------------------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_async_approvals_run_on_the_callers_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    asked_on: list[Any] = []

    async def approve(ask: Ask) -> bool:
        asked_on.append(asyncio.get_running_loop())
        return True

    async def run_turn(self: Session, user_input: Any, **options: Any) -> TurnResult:
        assert self.approvals is not None
        answer: Any = self.approvals(Ask(kind="command", title="make"))
        return TurnResult(final_text=str(await answer))

    monkeypatch.setattr(Session, "run_turn", run_turn)
    async with HostAgent(Runtimes(), approvals=approve) as agent:
        assert (await agent.arun_conversation("hello")).final_response == "True"
        assert asked_on == [asyncio.get_running_loop()]
        assert agent.run_conversation("hello").final_response == "True"
        assert asked_on[1] is not asked_on[0]


# --- the prompt ------------------------------------------------------------------------------------------------------


class Kept:
    """A memory, or skills."""

    def __init__(self, words: str | Exception, *names: str) -> None:
        self.words = words
        self.names = names

    def prompt(self) -> str:
        if isinstance(self.words, Exception):
            raise self.words
        return self.words

    def tools(self) -> list[Tool]:
        return [Tool(lambda: "", name=name, description="") for name in self.names]

    def tool(self) -> Tool:
        return self.tools()[0]


def test_what_the_model_is_told_and_offered(tmp_path: Path) -> None:
    runtimes = Runtimes()
    memory: Any = Kept("MEMORY", "memory")
    skills: Any = Kept("SKILLS", "skills_list", "skill_view", "skill_manage")
    with HostAgent(
        runtimes, memory=memory, skills=skills, store=tmp_path / "c.db", instructions="ME", tools=[Tool(run)]
    ) as agent:
        agent.tool_names.discard("skill_manage")
        agent.run_conversation("hello")
        memory.words = "CHANGED"
        agent.run_conversation("hello")
    (opening,) = runtimes.made[0].openings  # frozen for the session
    assert opening.instructions == "ME\n\nMEMORY\n\nSKILLS"
    assert [tool.name for tool in opening.tools] == ["memory", "skills_list", "skill_view", "session_search", "run"]


def test_a_memory_that_cannot_be_read_is_said() -> None:
    memory: Any = Kept(OSError("no such disk"), "memory")
    with HostAgent(Runtimes(), memory=memory) as agent:
        result = agent.run_conversation("hello")
    assert result.completed
    assert any("no such disk" in notice for notice in result.notices)


def test_other_instructions_begin_a_new_session_that_knows_the_history() -> None:
    runtimes = Runtimes()
    with HostAgent(runtimes, instructions="You are kind.") as agent:
        agent.run_conversation("one")
        agent.instructions = "You are brief."
        result = agent.run_conversation("two")
    first, second = runtimes.made
    assert first.closed
    assert second.opening.instructions == "You are brief."
    assert [message["content"] for message in second.opening.history] == ["one", "hello"]
    assert result.notices


def test_use_runtime_is_the_way_back() -> None:
    dead = RuntimeFault(Fault(kind="dead", message="It is dead.", retire=True))
    bad, good = Runtimes(opens=[dead]), Runtimes()
    with HostAgent(bad) as agent:
        assert "runtime auto" in agent.run_conversation("one").final_response
        agent.use_runtime(good)
        assert agent.run_conversation("two").completed
    assert [message["content"] for message in good.made[0].opening.history] == ["one"]


def test_a_runtime_object_serves_once() -> None:
    fault = Fault(kind="stuck", message="It is stuck.", retire=True)
    with HostAgent(ScriptedRuntime([RuntimeFault(fault)])) as agent:
        assert agent.runtime_name == "scripted"
        first = agent.run_conversation("one")
        assert (first.error, first.api_calls, agent.session) == ("It is stuck.", 1, None)
        second = agent.run_conversation("two")
    assert second.api_calls == 0
    assert "give a function that makes one" in (second.error or "")


def test_the_model_can_search_what_was_said(tmp_path: Path) -> None:
    runtimes = Runtimes()
    with HostAgent(runtimes, store=tmp_path / "c.db", session_id="a") as agent:
        agent.run_conversation("the quokka smiles")
        (tool,) = runtimes.made[0].opening.tools
        (found,) = tool.call({"query": "quokka"})
        assert (found["session"], found["role"], found["text"]) == ("a", "user", "the [quokka] smiles")


# --- the store -------------------------------------------------------------------------------------------------------


def test_resume_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    with HostAgent(Runtimes(), store=path) as agent:
        agent.run_conversation("one")
        session_id = agent.session_id
    runtimes = Runtimes()
    with HostAgent(runtimes, store=path, session_id=session_id) as agent:
        result = agent.run_conversation("two")
    assert runtimes.made[0].opening.resume == "thread-1"
    assert result.thread_id == "thread-1"
    assert [message["content"] for message in result.messages] == ["one", "hello", "two", "hello"]
    assert agent.user_turn_count == 2


def test_a_turn_that_is_stopped_before_its_first_step_is_never_run() -> None:
    with HostAgent(Runtimes()) as agent:
        turn = AgentTurn("never run", {}, None)
        turn.stop()
        with pytest.raises(CancelledError):
            agent._own.loop.submit(lambda: agent._wait_and_run(turn)).result(DEADLINE_S)
        assert agent.messages == []


def test_a_resumed_thread_is_told_what_was_there_before_it_began(tmp_path: Path) -> None:
    """A server that takes new instructions would forget what it was told in the old ones."""
    path, dead = tmp_path / "c.db", RuntimeFault(Fault(kind="dead", message="It has ended.", retire=True))
    scripts: Any = iter([([said("1"), DONE], [dead]), ([said("3"), DONE],)])
    with HostAgent(lambda: ScriptedRuntime(next(scripts)), store=path, session_id="a") as agent:
        for words in ("one", "two", "three"):
            agent.run_conversation(words)
    runtimes = Runtimes()
    with HostAgent(runtimes, store=path, session_id="a") as agent:
        agent.run_conversation("four")
    opening = runtimes.made[0].opening
    assert opening.resume == "thread-1"
    assert [message["content"] for message in opening.history] == ["one", "1", "two", "three", "3"]
    assert [message["content"] for message in opening.history[: opening.before_thread]] == ["one", "1", "two"]


def test_a_runtime_that_ended_between_turns_is_replaced_before_anything_is_asked_of_it() -> None:
    runtimes = Runtimes()
    with HostAgent(runtimes) as agent:
        agent.run_conversation("one")
        runtimes.made[0].is_over = True  # type: ignore[attr-defined]
        result = agent.run_conversation("two")
    assert result.completed
    assert any("has ended since the last turn" in notice for notice in result.notices)
    assert [runtime.inputs for runtime in runtimes.made] == [["one"], ["two"]]
    assert [message["content"] for message in runtimes.made[1].opening.history] == ["one", "hello"]
    assert runtimes.made[0].closed


@pytest.mark.parametrize("when", ["start", "turn"])
def test_the_result_has_the_fault_in_parts(when: str) -> None:
    fault = Fault(kind="auth", message="Log in again.", retire=True)
    script: Any = {"opens": [RuntimeFault(fault)]} if when == "start" else {}
    with HostAgent(Runtimes([RuntimeFault(fault)], **script)) as agent:
        result = agent.run_conversation("one")
    assert result.fault == fault
    assert not result.completed


def test_a_thread_that_cannot_be_resumed_is_begun_anew_with_the_history(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    with HostAgent(Runtimes(), store=path, session_id="a") as agent:
        agent.run_conversation("one")
    gone = ResumeFailed(Fault(kind="refused", message="There is no such thread."))
    runtimes = Runtimes(opens=[gone])
    with HostAgent(runtimes, store=path, session_id="a") as agent:
        result = agent.run_conversation("two")
    assert [message["content"] for message in runtimes.made[0].opening.history] == ["one", "hello"]
    assert runtimes.made[0].opening.resume is None
    assert any("could not be resumed" in notice for notice in result.notices)


def test_another_runtime_gets_the_history_and_a_notice(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    with HostAgent(Runtimes(name="claude"), store=path, session_id="a") as agent:
        agent.run_conversation("one")
    runtimes = Runtimes(name="pi")
    with HostAgent(runtimes, store=path, session_id="a") as agent:
        result = agent.run_conversation("two")
    assert runtimes.made[0].opening.resume is None
    assert [message["content"] for message in runtimes.made[0].opening.history] == ["one", "hello"]
    assert any("claude" in notice for notice in result.notices)


@pytest.mark.parametrize("retired", [True, False])
def test_a_retired_thread_is_never_published(tmp_path: Path, retired: bool) -> None:
    path = tmp_path / "c.db"
    fault = Fault(kind="stuck", message="It is stuck.", retire=retired)
    with HostAgent(Runtimes([said("1"), DONE], RuntimeFault(fault)), store=path, session_id="a") as agent:
        agent.run_conversation("one")
        agent.run_conversation("two")
    store = ConversationStore(path)
    assert store.sessions()[0].thread_id == (None if retired else "thread-1")
    assert [record.state for record in store.messages("a")] == ["done", "done", "failed"]
    store.close()


def test_a_start_that_failed_does_not_lose_the_thread(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    with HostAgent(Runtimes(), store=path, session_id="a") as agent:
        agent.run_conversation("one")
    fault = RuntimeFault(Fault(kind="auth", message="Log in again.", retire=True))
    runtimes = Runtimes(opens=[fault])
    with HostAgent(runtimes, store=path, session_id="a") as agent:
        assert not agent.run_conversation("two").completed
        assert runtimes.made[0].opening.resume == "thread-1"
    later = Runtimes()
    with HostAgent(later, store=path, session_id="a") as agent:
        agent.run_conversation("three")
    assert later.made[0].opening.resume == "thread-1"


def test_a_thread_that_was_resumed_and_retired_is_not_gone_back_to(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    with HostAgent(Runtimes(), store=path, session_id="a") as agent:
        agent.run_conversation("one")
    runtimes = Runtimes([RuntimeError("it broke")])
    with HostAgent(runtimes, store=path, session_id="a") as agent:
        agent.run_conversation("two")
        agent.run_conversation("three")
    assert [runtime.opening.resume for runtime in runtimes.made] == ["thread-1", None]


CRASH = """
import os, sys
from treadle.host import HostAgent, Session
from treadle.testing.scripted_runtime import ScriptedRuntime

async def run_turn(self, user_input, **options):
    os.kill(os.getpid(), 9)

Session.run_turn = run_turn
HostAgent(ScriptedRuntime, store=sys.argv[1], session_id="a").run_conversation("hello")
"""


@pytest.mark.parametrize(("again", "expected"), [("hello", ["hello", "hello"]), ("new", ["hello", "new", "hello"])])
def test_a_killed_turn_is_there_once(tmp_path: Path, again: str, expected: list[str]) -> None:
    path = tmp_path / "c.db"
    done = subprocess.run([sys.executable, "-c", CRASH, str(path)], timeout=DEADLINE_S, check=False)
    assert done.returncode == -9
    with HostAgent(Runtimes(), store=path, session_id="a") as agent:
        result = agent.run_conversation(again)
        assert [message["content"] for message in result.messages] == expected
        assert any("cut off" in notice for notice in result.notices)
        assert agent.user_turn_count == len([message for message in result.messages if message["role"] == "user"])
    store = ConversationStore(path)
    states = [record.state for record in store.messages("a")]
    assert states == (["done", "done"] if again == "hello" else ["interrupted", "done", "done"])
    store.close()


def test_a_conversation_that_is_held_is_refused(tmp_path: Path) -> None:
    with HostAgent(Runtimes(), store=tmp_path / "c.db", session_id="a") as agent:
        agent.run_conversation("one")
        second = Runtimes()
        with HostAgent(second, store=tmp_path / "c.db", session_id="a") as other:
            with pytest.raises(StoreError, match="holds the conversation a"):
                other.run_conversation("two")
            assert second.made == []
        assert agent.run_conversation("three").completed


def test_what_could_not_be_stored_is_stored_with_the_next_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise StoreError("no space left", "full")

    path = tmp_path / "c.db"
    with HostAgent(Runtimes(), store=path, session_id="a") as agent:
        with monkeypatch.context() as patched:
            patched.setattr(ConversationStore, "end_turn", full)
            result = agent.run_conversation("one")
            assert result.completed
            assert any("no space left" in notice for notice in result.notices)
            patched.setattr(ConversationStore, "begin_turn", full)
            with pytest.raises(StoreError):
                agent.run_conversation("never begun")
        agent.run_conversation("two")
        expected = list(agent.messages)
    store = ConversationStore(path)
    assert [record.message for record in store.messages("a")] == expected
    assert [message["content"] for message in expected] == ["one", "hello", "two", "hello"]
    store.close()


def test_half_a_character_does_no_harm(tmp_path: Path) -> None:
    with HostAgent(Runtimes([said("\ud83d"), DONE]), store=tmp_path / "c.db") as agent:
        result = agent.run_conversation("a \ud800 b")
    assert [message["content"] for message in result.messages] == ["a ? b", "?"]
    assert result.notices == []


# --- reviews ---------------------------------------------------------------------------------------------------------


class FakeReviewer:
    run_one: Callable[[], Any]

    def __init__(self, make_runtime: Callable[[], Any], **choices: Any) -> None:
        self.choices = choices

    async def run(self, messages: Any, *, review_memory: bool, review_skills: bool) -> Any:
        return await type(self).run_one()


def test_a_review_tells_what_it_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate()
    events: list[RuntimeEvent] = []

    async def learn() -> str:
        await gate._pass()
        return "Learned: 1 memory entry"

    monkeypatch.setattr(FakeReviewer, "run_one", staticmethod(learn), raising=False)
    monkeypatch.setattr("treadle.host.reviewer.Reviewer", FakeReviewer)
    memory: Any = Kept("", "memory")
    with HostAgent(Runtimes(), memory=memory, memory_nudge_interval=1, on_event=events.append) as agent:
        agent.run_conversation("one")
        assert agent.turns_since_memory == 0
        agent.run_conversation("two")  # one review at a time: the counter is kept
        assert agent.turns_since_memory == 1
        assert agent.wait_for_review(0) is False
        for wrong in (-1, math.nan, "3"):
            with pytest.raises(ArgumentError, match="timeout must be"):
                agent.wait_for_review(wrong)  # type: ignore[arg-type]
        gate.open()
        assert agent.wait_for_review(math.inf)
        agent.review = False
        assert agent.run_conversation("three").notices == ["Learned: 1 memory entry"]
        assert agent.run_conversation("four").notices == []
    assert Notice("Learned: 1 memory entry") in events


def test_a_review_that_fails_harms_nobody(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> str:
        raise RuntimeError("no model")

    monkeypatch.setattr(FakeReviewer, "run_one", staticmethod(fail), raising=False)
    monkeypatch.setattr("treadle.host.reviewer.Reviewer", FakeReviewer)
    memory: Any = Kept("", "memory")
    with HostAgent(Runtimes(), memory=memory, memory_nudge_interval=1) as agent:
        assert agent.run_conversation("one").completed
        assert agent.wait_for_review(DEADLINE_S)
        assert agent.run_conversation("two").notices == []
    assert "no model" in caplog.text


def test_nothing_to_keep_it_in_is_no_review() -> None:
    agent = HostAgent()
    assert agent.spawn_background_review(messages_snapshot=[], review_memory=True, review_skills=True) is False


# --- the end ---------------------------------------------------------------------------------------------------------


def test_close_is_final_and_may_be_repeated() -> None:
    runtimes = Runtimes()
    agent = HostAgent(runtimes)
    agent.run_conversation("hello")
    agent.close()
    agent.close()
    assert runtimes.made[0].calls.count("close") == 1
    assert not [thread for thread in threading.enumerate() if thread.name == "treadle agent"]
    with pytest.raises(AgentClosed):
        agent.run_conversation("again")


def test_close_in_the_middle_of_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    held, runtimes = Held(monkeypatch), Runtimes()
    agent = HostAgent(runtimes)
    with ThreadPoolExecutor(2) as pool:
        turn = pool.submit(agent.run_conversation, "hello")
        assert held.running.wait(DEADLINE_S)
        waiting = pool.submit(agent.run_conversation, "waits")
        agent.close()
        assert turn.result(DEADLINE_S).interrupted
        with pytest.raises(AgentClosed):
            waiting.result(DEADLINE_S)
    assert runtimes.made[0].closed


def test_a_forgotten_agent_is_collected_with_its_runtime() -> None:
    runtimes, closed = Runtimes(), threading.Event()

    async def closing(_: ScriptedRuntime) -> None:
        closed.set()

    runtimes._choices["closing"] = [closing]
    HostAgent(runtimes, on_event=lambda _: None).run_conversation("hello")
    gc.collect()
    assert closed.wait(DEADLINE_S)


FORGOTTEN = """
from treadle.host import HostAgent
from treadle.testing.scripted_runtime import DONE, ScriptedRuntime, said

async def closing(runtime):
    print("closed", flush=True)

agent = HostAgent(lambda: ScriptedRuntime([[said("hello"), DONE]], closing=[closing]))
print(agent.run_conversation("hello").final_response)
"""


def test_a_program_that_forgets_its_agent_ends() -> None:
    assert run(FORGOTTEN) == "hello\nclosed\n"


def run(code: str) -> str:
    """What a program prints that ends by itself."""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=DEADLINE_S, check=False, env=os.environ
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout
