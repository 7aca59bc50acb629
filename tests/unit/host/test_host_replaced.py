"""`HostAgent` in the tests of its users: with `unittest.mock`, with stand-ins for its parts, and in any event loop."""

from __future__ import annotations

import asyncio
import gc
import inspect
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock, MagicMock, Mock, call, patch

import anyio
import pytest

from treadle.errors import ArgumentTypeError
from treadle.host import (
    AskPerson,
    Fault,
    HostAgent,
    ItemCompleted,
    MemoryStore,
    Opened,
    Opening,
    RuntimeEvent,
    RuntimeFault,
    Session,
    Timeouts,
    TurnEnded,
    TurnResult,
)
from treadle.testing import said

HELLO = TurnResult(
    "Hello.", [{"role": "assistant", "content": "Hello."}], 1, False, None, "turn", "thread", None, False
)


def stub(**choices: Any) -> HostAgent:
    given = {"runtime": "app_server", "api_key": "stub", "base_url": "http://127.0.0.1:1/v1", "provider": "openai"}
    return HostAgent(**{**given, **choices})


@pytest.fixture
def turns() -> Iterator[AsyncMock]:
    """In the place of `Session.run_turn`; nothing is started and nothing has to be closed."""
    with (
        patch.object(Session, "ensure_started", AsyncMock(return_value="thread")),
        patch.object(Session, "run_turn", AsyncMock(return_value=HELLO)) as run_turn,
        patch.object(Session, "close", AsyncMock()),
    ):
        yield run_turn


def test_the_names_and_their_order() -> None:
    order = (
        "runtime api_key base_url provider memory skills memory_nudge_interval skill_nudge_interval review approvals"
    )
    assert list(inspect.signature(HostAgent).parameters)[:11] == [*order.split(), "store"]
    fields = "final_text projected_messages tool_iterations interrupted error turn_id thread_id usage should_retire"
    assert list(inspect.signature(TurnResult).parameters)[:9] == fields.split()
    review = inspect.signature(HostAgent.spawn_background_review).parameters
    keywords = [name for name, parameter in review.items() if parameter.kind is parameter.KEYWORD_ONLY]
    assert keywords == ["messages_snapshot", "review_memory", "review_skills"]
    for name in ("ensure_started", "run_turn", "close"):
        assert inspect.iscoroutinefunction(getattr(Session, name))
    assert TurnResult() == TurnResult("", [], 0, False, None, None, None, None, False)
    assert Timeouts().quiet_action == "probe"


def test_making_one_opens_no_socket_and_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    monkeypatch.setenv("TREADLE_HOME", str(home))
    with patch.object(socket.socket, "connect", side_effect=AssertionError("the network was touched")):
        agent = stub(memory=True, skills=True, store=True)
        assert (agent.runtime_name, agent.session, agent.review_runtime()) == ("app_server", None, "responses")
        assert (agent.iterations_since_skill, agent.user_turn_count, agent.turns_since_memory) == (0, 0, 0)
        assert {"skill_manage", "memory"} <= agent.tool_names
    assert not home.exists()


def test_the_session_is_asked_with_the_text_alone(turns: AsyncMock) -> None:
    agent = stub()
    result = agent.run_conversation("hello")
    assert turns.await_args_list == [call("hello")]
    assert (result.final_response, result.api_calls, result.usage) == ("Hello.", 1, None)
    agent.run_conversation("more", effort="high")
    assert turns.await_args_list[1] == call("more", effort="high")


def test_autospec_sees_the_session_itself() -> None:
    with (
        patch.object(Session, "ensure_started", autospec=True) as started,
        patch.object(Session, "run_turn", autospec=True, return_value=HELLO) as run_turn,
        patch.object(Session, "close", autospec=True) as close,
    ):
        agent = stub()
        agent.run_conversation("hello")
        session = agent.session
        assert isinstance(session, Session)
        run_turn.assert_awaited_once_with(session, "hello")
        started.assert_awaited_once_with(session)
        agent.close()
        close.assert_awaited_once_with(session)
        assert agent.session is None


def test_a_review_that_is_a_mock(turns: AsyncMock) -> None:
    agent = stub()
    agent.tool_names.add("skill_manage")
    agent.iterations_since_skill = 9
    review = agent.spawn_background_review = Mock()  # type: ignore[method-assign]
    result = agent.run_conversation("hello")
    review.assert_called_once_with(messages_snapshot=result.messages, review_memory=False, review_skills=True)
    assert isinstance(review.call_args.kwargs["messages_snapshot"], list)
    assert agent.iterations_since_skill == 0
    agent.iterations_since_skill, review.return_value = 9, False
    agent.run_conversation("hello")
    assert agent.iterations_since_skill == 10


@pytest.mark.parametrize("kind", [Mock, MagicMock])
def test_stores_that_are_mocks(turns: AsyncMock, kind: type[Mock]) -> None:
    agent = stub(memory=kind(), skills=MagicMock())
    assert agent.run_conversation("hello").completed
    assert agent.turns_since_memory == 1


@pytest.mark.parametrize("given", ["path", "text", "store"])
def test_a_memory_by_its_place_or_itself(turns: AsyncMock, tmp_path: Path, given: str) -> None:
    place = tmp_path / "memory"
    memory: Any = {"path": place, "text": str(place), "store": MemoryStore(place)}[given]
    agent = stub(memory=memory)
    agent.run_conversation("hello")
    assert agent.turns_since_memory == 1
    assert isinstance(agent.memory, MemoryStore)


class FakeSession:
    """All that an agent needs of one."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.closed = 0

    async def ensure_started(self) -> None:
        return None

    async def run_turn(self, user_input: Any, **options: Any) -> TurnResult:
        return TurnResult(f"{user_input}?", thread_id="thread", should_retire=user_input == "enough", error=None)

    async def close(self) -> None:
        self.closed += 1


def test_another_session_in_its_place(tmp_path: Path) -> None:
    agent, session = stub(store=tmp_path / "c.db"), FakeSession()
    agent.session = session  # type: ignore[assignment]
    assert agent.run_conversation("hello").final_response == "hello?"
    assert id(agent.session) == id(session)
    agent.run_conversation("enough")
    assert (agent.session, session.closed) == (None, 1)
    agent.close()


def test_another_class_in_its_place() -> None:
    with patch("treadle.host.agent.Session", FakeSession):
        agent = stub()
        assert agent.run_conversation("hello").final_response == "hello?"
        agent.close()


def test_an_agent_that_is_forgotten_ends_with_the_methods_of_its_time() -> None:
    with (
        patch.object(Session, "ensure_started", AsyncMock()),
        patch.object(Session, "run_turn", AsyncMock(return_value=HELLO)),
    ):
        with patch.object(Session, "close", autospec=True) as first:
            agent = stub()
            agent.run_conversation("hello")
            session = agent.session
            thread = next(thread for thread in threading.enumerate() if thread is agent._own.loop._thread)
            hold = threading.Event()
            agent._own.loop.call(hold.wait, 10)  # it is busy with something else for a moment
            del agent
            gc.collect()
        with patch.object(Session, "close", autospec=True) as second:
            hold.set()
            thread.join(10)
    # Of this session: agents that earlier tests forgot may have been collected just now, too.
    assert [first.await_args_list.count(call(session)), second.await_args_list.count(call(session))] == [1, 0]


class Parrot:
    """A runtime of a user's own."""

    name = "parrot"

    def __init__(self) -> None:
        self._events: list[RuntimeEvent] = []
        self.closed = False

    async def open(self, opening: Opening, ask: AskPerson) -> Opened:
        return Opened(thread_id="cage")

    async def start_turn(self, user_input: Any, options: Any) -> str:
        self._events = [said(f"{user_input} {user_input}"), TurnEnded("completed")]
        assert isinstance(self._events[0], ItemCompleted)
        return "squawk"

    async def next_event(self) -> RuntimeEvent:
        return self._events.pop(0)

    async def interrupt(self) -> None: ...

    async def steer(self, text: str) -> bool:
        return False

    async def probe(self) -> None: ...

    async def compact(self) -> bool:
        return False

    async def close(self) -> None:
        self.closed = True


def test_a_runtime_of_ones_own() -> None:
    parrot = Parrot()
    with HostAgent(runtime=parrot) as agent:
        assert agent.runtime_name == "parrot"
        result = agent.run_conversation("hi")
        assert (result.final_response, result.thread_id, result.turn_id) == ("hi hi", "cage", "squawk")
    assert parrot.closed


def test_a_runtime_without_a_name_is_refused() -> None:
    members = {name: member for name, member in vars(Parrot).items() if name not in ("name", "__dict__", "__weakref__")}
    with pytest.raises(ArgumentTypeError, match="runtime"):
        HostAgent(runtime=type("Nameless", (), members)())


def test_a_fault_at_the_start_is_in_the_result_in_parts(turns: AsyncMock) -> None:
    fault = Fault(kind="missing", message="There is no program.", advice="Install it.", retire=True)
    with patch.object(Session, "ensure_started", AsyncMock(side_effect=RuntimeFault(fault))):
        result = stub().run_conversation("hello")
    assert (result.fault, result.error) == (fault, "There is no program. Install it.")
    assert "runtime auto" in result.final_response
    assert (result.completed, result.partial, result.api_calls) == (False, True, 0)


# --- in any event loop ---


def test_in_plain_asyncio(turns: AsyncMock) -> None:
    async def main() -> list[str]:
        agent = stub()
        inside = agent.run_conversation("one")  # it blocks this loop, and does not need it
        awaited = await agent.arun_conversation("two")
        both = await asyncio.gather(agent.arun_conversation("three"), agent.arun_conversation("four"))
        await agent.aclose()
        return [result.final_response for result in (inside, awaited, *both)]

    assert asyncio.run(main()) == ["Hello."] * 4
    assert [given.args for given in turns.await_args_list] == [("one",), ("two",), ("three",), ("four",)]


@pytest.mark.anyio
async def test_with_anyio(turns: AsyncMock) -> None:
    results: list[str] = []

    async def ask(agent: HostAgent, text: str) -> None:
        results.append((await agent.arun_conversation(text)).final_response)

    async with stub() as agent, anyio.create_task_group() as group:
        for text in ("one", "two"):
            group.start_soon(ask, agent, text)
    assert results == ["Hello.", "Hello."]


@pytest.mark.anyio
async def test_a_scope_of_anyio_that_is_over_ends_the_turn(turns: AsyncMock) -> None:
    begun = threading.Event()
    ends = Mock()

    async def first_for_ever(user_input: str) -> TurnResult:
        if begun.is_set():
            return HELLO
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ends()
        raise AssertionError

    turns.side_effect = first_for_ever
    with patch("treadle.host.agent_resources.GRACE_S", 0.1):
        async with stub(timeouts=Timeouts(interrupt=0.0)) as agent:
            with anyio.move_on_after(0.2) as scope:
                await agent.arun_conversation("hello")
            assert scope.cancelled_caught
            # The next one waits for the end of the first.
            assert (await agent.arun_conversation("again")).final_response == "Hello."
            ends.assert_called_once_with()
