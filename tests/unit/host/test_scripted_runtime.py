from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from treadle.host import Ask, Choice, Compacted, Fault, Opening, ResumeFailed, RuntimeEvent, RuntimeFault, TurnEnded
from treadle.testing import DONE, SILENCE, STOPPED, Gate, ManualClock, ScriptedRuntime, said

pytestmark = pytest.mark.anyio
DEAD = RuntimeFault(Fault(kind="dead", message="gone"))


async def deny(ask: Ask) -> Choice:
    return "deny"


async def turn(runtime: ScriptedRuntime) -> list[RuntimeEvent]:
    events = []
    while True:
        events.append(await runtime.next_event())
        if isinstance(events[-1], TurnEnded):
            return events


async def test_it_plays_its_turns_one_after_the_other() -> None:
    hello, again = said("hello"), said("again")
    runtime = ScriptedRuntime([[hello, DONE], [again, DONE]])
    assert (await runtime.open(Opening(), deny)).thread_id == "thread-1"
    assert await runtime.start_turn("one", {"model": "m"}) == "turn-1"
    assert await turn(runtime) == [hello, DONE]
    assert await runtime.start_turn("two", {}) == "turn-2"
    assert await turn(runtime) == [again, DONE]
    assert runtime.inputs == ["one", "two"]
    assert runtime.options == [{"model": "m"}, {}]
    with pytest.raises(AssertionError, match="no turn number 3"):
        await runtime.start_turn("three", {})


async def test_what_is_left_of_a_turn_is_not_told_in_the_next() -> None:
    runtime = ScriptedRuntime([[said("late"), DONE], [DONE]])
    await runtime.open(Opening(), deny)
    await runtime.start_turn("one", {})
    await ManualClock().settle()
    await runtime.start_turn("two", {})
    assert await turn(runtime) == [DONE]


async def test_faults_come_where_the_script_has_them() -> None:
    runtime = ScriptedRuntime([DEAD, [said("a"), DEAD]], opens=[ResumeFailed(DEAD.fault)])
    with pytest.raises(ResumeFailed):
        await runtime.open(Opening(resume="old"), deny)
    await runtime.open(Opening(), deny)
    with pytest.raises(RuntimeFault):
        await runtime.start_turn("one", {})
    await runtime.start_turn("one", {})
    await runtime.next_event()
    with pytest.raises(RuntimeFault):
        await runtime.next_event()


async def test_a_gate_holds_the_script_until_the_test_opens_it() -> None:
    gate = Gate()
    runtime = ScriptedRuntime([[gate, DONE]])
    await runtime.open(Opening(), deny)
    await runtime.start_turn("one", {})
    event = asyncio.create_task(runtime.next_event())
    await gate.reached()
    assert not event.done()
    gate.open()
    assert await event == DONE


async def test_a_cancelled_wait_loses_nothing() -> None:
    gate = Gate()
    runtime = ScriptedRuntime([[gate, DONE]])
    await runtime.open(Opening(), deny)
    await runtime.start_turn("one", {})
    for _ in range(3):
        wait = asyncio.create_task(runtime.next_event())
        await gate.reached()
        wait.cancel()
        await asyncio.wait({wait})
    gate.open()
    assert await runtime.next_event() == DONE


async def test_an_interrupt_ends_the_turn_and_is_kept() -> None:
    runtime = ScriptedRuntime([[SILENCE]])
    await runtime.open(Opening(), deny)
    await runtime.interrupt()
    await runtime.start_turn("one", {})
    await runtime.interrupt()
    assert await runtime.next_event() == STOPPED
    assert runtime.calls == ["open", "interrupt", "start_turn", "interrupt"]


async def test_the_person_is_asked_and_the_answer_kept() -> None:
    runtime = ScriptedRuntime([[Ask(kind="command", title="rm x"), DONE]])
    await runtime.open(Opening(), deny)
    await runtime.start_turn("one", {})
    await turn(runtime)
    assert runtime.answers == ["deny"]


async def test_compaction_is_a_turn_and_a_closed_runtime_is_dead() -> None:
    runtime = ScriptedRuntime()
    await runtime.open(Opening(), deny)
    assert await runtime.compact()
    assert await turn(runtime) == [Compacted(), DONE]
    await runtime.close()
    await runtime.close()
    with pytest.raises(RuntimeFault, match="closed"):
        await runtime.start_turn("one", {})


async def test_the_clock_wakes_sleepers_in_their_order() -> None:
    clock, woken = ManualClock(), list[tuple[str, float]]()

    async def sleeper(name: str, seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append((name, clock.monotonic()))
        if name == "first":
            await sleeper("after it", 1.0)

    tasks = [asyncio.create_task(sleeper("second", 5.0)), asyncio.create_task(sleeper("first", 2.0))]
    await clock.advance(4.0)
    assert woken == [("first", 2.0), ("after it", 3.0)]
    assert clock.due == [5.0]
    await clock.advance(1.0)
    assert woken[-1] == ("second", 5.0)
    assert clock.time() == 1_800_000_005.0
    await asyncio.gather(*tasks)


async def test_the_clock_can_be_turned_from_another_thread() -> None:
    clock = ManualClock()
    sleeper = asyncio.create_task(clock.sleep(3600.0))
    await clock.settle()
    turn: Callable[[float], None] = clock.turn
    await asyncio.to_thread(turn, 3600.0)
    await asyncio.wait_for(sleeper, 30)
    assert clock.due == []
