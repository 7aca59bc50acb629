"""`check_runtime`: what must hold for every `Runtime` of `treadle.host`, ours and yours.

from treadle.testing import EngineModel, check_runtime

async def test_my_runtime():
    with EngineModel() as model:
        await check_runtime(lambda: MyRuntime(model.base_url))
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from treadle.host.approver import Ask, Choice
from treadle.host.faults import ResumeFailed, RuntimeFault
from treadle.host.runtime import (
    Delta,
    ItemCompleted,
    ItemStarted,
    Opening,
    Runtime,
    RuntimeEvent,
    TurnEnded,
    UsageReported,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

DEADLINE_S: Final = 60.0
"""For each check, on a busy machine."""


class RuntimePlay:
    """What the model behind a runtime does for which prompt; the prompts are those of `EngineModel`.

    Args:
        ask: A prompt that is answered.
        answer: What is answered; None when nobody knows.
        fails: A prompt that makes the turn fail; None when none does.
        hangs: A prompt that is not answered; None when all are.
    """

    def __init__(
        self,
        *,
        ask: str = "hello",
        answer: str | None = "pong: hello",
        fails: str | None = "HTTP:400",
        hangs: str | None = "GATE:never-opened",
    ) -> None:
        self.ask = ask
        self.answer = answer
        self.fails = fails
        self.hangs = hangs


async def check_runtime(make: Callable[[], Runtime], play: RuntimePlay | None = None) -> None:
    """Raises `AssertionError` with what does not hold.

    Args:
        make: A new runtime, not open yet; it is called many times.
        play: What its model does, when it is not an `EngineModel`.
    """
    plays = play or RuntimePlay()
    for check in (_check_unopened, _check_closed, _check_use, _check_close_in_a_turn, _check_resume):
        async with asyncio.timeout(DEADLINE_S):
            await check(make, plays)


async def deny(ask: Ask) -> Choice:
    """Say no: nobody is there to be asked."""
    return "deny"


async def turn_events(runtime: Runtime) -> list[RuntimeEvent]:
    """The events of the turn that runs, to its end."""
    events: list[RuntimeEvent] = []
    while not events or not isinstance(events[-1], TurnEnded):
        events.append(await runtime.next_event())
    return events


@asynccontextmanager
async def _opened(make: Callable[[], Runtime]) -> AsyncIterator[Runtime]:
    runtime = make()
    try:
        opened = await runtime.open(Opening(), deny)
        assert opened.thread_id, "an open thread has no id"
        yield runtime
    finally:
        await runtime.close()


async def _raises(what: str, work: Any) -> RuntimeFault:
    raised: RuntimeFault | None = None
    try:
        await work
    except RuntimeFault as error:
        raised = error
    assert raised is not None, f"{what} is not refused with a RuntimeFault"
    assert raised.fault.message, f"{what}: the fault says nothing"
    return raised


async def _ending(runtime: Runtime, prompt: str | None = None) -> TurnEnded:
    """How the turn of a prompt ends, or the one that runs."""
    if prompt is not None:
        await runtime.start_turn(prompt, {})
    end = (await turn_events(runtime))[-1]
    assert isinstance(end, TurnEnded)
    return end


async def _answers(runtime: Runtime, play: RuntimePlay, when: str) -> None:
    assert await runtime.start_turn(play.ask, {}), "a turn has no id"
    events = await turn_events(runtime)
    end, answer = events[-1], _answer(events)
    assert isinstance(end, TurnEnded)
    assert end.status == "completed", f"{when}, a turn ended as {end}"
    assert answer, f"{when}, there is no answer"
    assert play.answer in (None, answer), f"{when}, the answer is {answer!r}"


def _answer(events: list[RuntimeEvent]) -> str | None:
    items: list[Any] = [event.item for event in events if isinstance(event, ItemCompleted)]
    return next((item.text for item in reversed(items) if item.type == "agentMessage"), None)


# --- what is checked ---


async def _check_unopened(make: Callable[[], Runtime], play: RuntimePlay) -> None:
    runtime = make()
    assert runtime.name, "it has no name"
    await _raises("a turn before `open`", runtime.start_turn(play.ask, {}))
    await runtime.interrupt()
    assert not await runtime.steer("more"), "one can say something to a turn that does not run"
    await runtime.close()


async def _check_closed(make: Callable[[], Runtime], play: RuntimePlay) -> None:
    async with _opened(make) as runtime:
        await runtime.close()
        await runtime.close()
        await _raises("`open` after `close`", runtime.open(Opening(), deny))
        await _raises("a turn after `close`", runtime.start_turn(play.ask, {}))
        await _raises("`next_event` after `close`", runtime.next_event())
        await runtime.interrupt()
        assert not await runtime.steer("more"), "one can say something after `close`"


async def _check_use(make: Callable[[], Runtime], play: RuntimePlay) -> None:
    """Check a runtime while it is open, all on one: opening may cost a process."""
    async with _opened(make) as runtime:
        # Before the first turn: nothing to interrupt or steer, and what cannot be a turn is refused.
        await runtime.interrupt()
        await runtime.probe()
        assert not await runtime.steer("more"), "one can say something before a turn"
        error = await _raises("an unknown option", runtime.start_turn(play.ask, {"no_such_option": 1}))
        assert "no_such_option" in error.fault.message, f"it does not say which option: {error.fault.message}"
        await _raises("an input of nothing", runtime.start_turn("", {}))
        await _raises("a part that nobody knows", runtime.start_turn([{"type": "no-such-part"}], {}))
        await _check_turns(runtime, play)
        # Between turns.
        await runtime.interrupt()
        await runtime.probe()
        assert not await runtime.steer("more"), "one can say something after a turn"
        await _answers(runtime, play, "interrupted after a turn")
        if play.fails is not None:
            end = await _ending(runtime, play.fails)
            assert end.status == "failed", f"a turn that cannot succeed ended as {end}"
            assert end.fault is not None, "a turn failed and does not say why"
            assert end.fault.message, "a turn failed and does not say why"
            await _answers(runtime, play, "after a turn that failed")
        if play.hangs is not None:
            await runtime.start_turn(play.hangs, {})
            await _raises("a second turn at a time", runtime.start_turn(play.ask, {}))
            await runtime.interrupt()
            await runtime.interrupt()
            end = await _ending(runtime)
            assert end.status == "interrupted", f"a turn that was interrupted ended as {end}"
            assert end.fault is None, f"who interrupts a turn knows why: {end}"
            await _answers(runtime, play, "after a turn that was interrupted")


async def _check_turns(runtime: Runtime, play: RuntimePlay) -> None:
    totals: list[int] = []
    ids: set[str] = set()
    for when, read in (("first", turn_events), ("second", _with_waits_that_are_cancelled)):
        ids.add(await runtime.start_turn(play.ask, {}))
        events = await read(runtime)
        assert _answer(events) is not None, f"there is no {when} answer"
        assert play.answer in (None, _answer(events)), f"the {when} answer is {_answer(events)!r}"
        _check_items(events)
        totals += [event.total.total_tokens for event in events if isinstance(event, UsageReported)]
    assert len(ids) == 2, "two turns have the same id"
    assert totals == sorted(totals), f"the total of the thread goes down: {totals}"


async def _with_waits_that_are_cancelled(runtime: Runtime) -> list[RuntimeEvent]:
    """The events of a turn, read as a session does that looks at its clocks in between: none gets lost."""
    events: list[RuntimeEvent] = []
    while not events or not isinstance(events[-1], TurnEnded):
        wait = asyncio.ensure_future(runtime.next_event())
        await asyncio.sleep(0)
        if not wait.done():
            wait.cancel()
        await asyncio.wait([wait])
        if not wait.cancelled():
            events.append(wait.result())
    return events


def _check_items(events: list[RuntimeEvent]) -> None:
    started: dict[str, str] = {}
    completed: dict[str, Any] = {}
    grown: dict[str, str] = {}
    for event in events:
        item: Any = getattr(event, "item", None)
        match event:
            case ItemStarted():
                assert item.id not in started, f"{item.id} starts twice"
                assert item.id not in completed, f"{item.id} starts after its end"
                started[item.id] = item.type
            case ItemCompleted():
                assert item.id not in completed, f"{item.id} ends twice"
                assert started.get(item.id, item.type) == item.type, f"{item.id} changes its type"
                completed[item.id] = item
            case Delta():
                assert event.item_id in started, f"a piece of {event.item_id}, which has not started"
                assert event.item_id not in completed, f"a piece of {event.item_id} after its end"
                if event.kind == "text":
                    grown[event.item_id] = grown.get(event.item_id, "") + event.text
    assert sum(isinstance(event, TurnEnded) for event in events) == 1, "a turn ends more than once"
    assert set(started) <= set(completed), f"never ended: {set(started) - set(completed)}"
    for item_id, text in grown.items():
        assert completed[item_id].text == text, f"the pieces of {item_id} are not its text"


async def _check_close_in_a_turn(make: Callable[[], Runtime], play: RuntimePlay) -> None:
    if play.hangs is None:
        return
    async with _opened(make) as runtime:
        await runtime.start_turn(play.hangs, {})
        reading = asyncio.ensure_future(turn_events(runtime))
        await asyncio.sleep(0)
        await runtime.close()
        await _raises("an event of a turn that was closed", reading)


async def _check_resume(make: Callable[[], Runtime], play: RuntimePlay) -> None:
    runtime = make()
    try:
        error = await _raises("a thread that is not there", runtime.open(Opening(resume="no such thread"), deny))
        assert isinstance(error, ResumeFailed), f"a thread that is not there is no ResumeFailed: {error!r}"
        await runtime.open(Opening(), deny)
        await _answers(runtime, play, "after a resume that failed")
    finally:
        await runtime.close()
