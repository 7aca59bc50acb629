from __future__ import annotations

import asyncio

import pytest

from session_bench import BUSY, DEAD, FULL, Bench, failed, fault
from treadle.host import (
    Delta,
    ItemStarted,
    Opened,
    Opening,
    ResumeFailed,
    RuntimeFault,
    SessionBusy,
    SessionClosed,
    ThreadNamed,
    Timeouts,
    Usage,
    UsageReported,
)
from treadle.protocol.app import AgentMessageThreadItem
from treadle.testing import DONE, SILENCE, Gate, echoed, ran, said, thought

pytestmark = pytest.mark.anyio


def total(tokens: int) -> UsageReported:
    return UsageReported(Usage(input_tokens=tokens, total_tokens=tokens))


async def test_a_turn_gives_its_answer_and_the_session_goes_on() -> None:
    bench = Bench([[echoed("hello"), said("hi"), DONE], [said("again"), DONE]])
    first = await bench.session.run_turn("hello", model="m")
    assert (first.final_text, first.error, first.interrupted, first.should_retire) == ("hi", None, False, False)
    assert (first.thread_id, first.turn_id, first.usage) == ("thread-1", "turn-1", None)
    assert bench.runtime.options == [{"model": "m"}]
    assert (await bench.session.run_turn("more")).final_text == "again"
    assert bench.runtime.calls == ["open", "start_turn", "start_turn"]
    await bench.close()


async def test_a_text_about_an_aborted_turn_ends_nothing() -> None:
    bench = Bench([[said("<turn_aborted>"), said("<turn_aborted/> is a marker"), DONE]])
    result = await bench.session.run_turn("what is <turn_aborted>?")
    assert (result.interrupted, result.error) == (False, None)
    assert result.final_text == "<turn_aborted/> is a marker"
    await bench.close()


async def test_a_thread_that_gets_its_id_when_it_runs_has_that_one_from_then_on() -> None:
    turns = [[said("no name"), DONE], [ThreadNamed("real"), said("hi"), DONE], [said("again"), DONE]]
    bench = Bench(turns, opens=[Opened(thread_id="stand-in", provisional=True)])
    assert (await bench.session.run_turn("hello")).thread_id is None
    assert (await bench.session.run_turn("hello")).thread_id == "real"
    assert (await bench.session.run_turn("more")).thread_id == bench.session.thread_id == "real"
    await bench.close()


async def test_what_a_failed_attempt_had_thought_is_not_in_the_result_of_the_next() -> None:
    bench = Bench([[thought("first"), failed(BUSY)], [thought("second"), said("hi"), DONE]])
    turn = await bench.begun()
    await bench.clock.advance(60)
    assert (await turn).projected_messages == [{"role": "assistant", "content": "hi", "reasoning": "second"}]
    await bench.close()


async def test_a_sink_that_fails_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench([[said("hi"), DONE]])

    def sink(event: object) -> None:
        raise ValueError("no display")

    bench.session.sink = sink
    assert (await bench.session.run_turn("hello")).final_text == "hi"
    assert "sink" in caplog.text
    await bench.close()


async def test_an_error_of_the_program_is_raised_and_the_session_is_of_no_use_any_more() -> None:
    bench = Bench([[ValueError("a bug")], [DONE]])
    with pytest.raises(ValueError, match="a bug"):
        await bench.session.run_turn("hello")
    assert (await bench.session.run_turn("again")).should_retire
    await bench.close()


# --- starting --------------------------------------------------------------------------------------------------------


async def test_those_who_come_at_once_start_it_once() -> None:
    gate = Gate()
    bench = Bench([[DONE]], opens=[gate])
    starts = [asyncio.create_task(bench.session.ensure_started()) for _ in range(3)]
    await gate.reached()
    starts.pop().cancel()
    gate.open()
    assert await asyncio.gather(*starts) == ["thread-1", "thread-1"]
    assert bench.runtime.calls == ["open"]
    await bench.close()


@pytest.mark.parametrize("kind", ["missing", "startup", "auth"])
async def test_a_start_that_fails_is_raised_by_it_and_in_the_result_of_a_turn(kind: str) -> None:
    bench = Bench(opens=[fault(kind, retire=True)])
    result = await bench.session.run_turn("hello")
    assert result.fault is not None
    assert (result.fault.kind, result.should_retire, result.interrupted) == (kind, True, False)
    with pytest.raises(RuntimeFault, match=kind):
        await bench.session.ensure_started()
    assert bench.runtime.calls == ["open"], "a runtime that is of no use is not started again"
    await bench.close()


async def test_a_start_that_may_succeed_is_tried_once_more() -> None:
    bench = Bench([[said("hi"), DONE]], opens=[fault("overloaded", retryable=True)])
    turn = await bench.begun()
    await bench.clock.advance(1.0)
    assert (await turn).final_text == "hi"
    assert bench.runtime.calls == ["open", "open", "start_turn"]
    await bench.close()


async def test_a_start_is_not_tried_a_third_time() -> None:
    bench = Bench(opens=[fault("overloaded", retryable=True)] * 3)
    turn = await bench.begun()
    await bench.clock.advance(1.0)
    assert "overloaded" in str((await turn).error)
    assert bench.runtime.calls == ["open", "open"]
    await bench.close()


async def test_a_start_has_a_deadline() -> None:
    bench = Bench(opens=[SILENCE], timeouts=Timeouts(startup=60.0))
    turn = await bench.begun()
    await bench.clock.advance(59.0)
    assert not turn.done()
    await bench.clock.advance(1.0)
    result = await turn
    assert result.fault is not None
    assert (result.fault.kind, result.should_retire) == ("startup", True)
    assert "1 min" in str(result.error)
    await bench.close()


async def test_a_thread_that_cannot_be_resumed_is_begun_anew_with_its_history_and_a_notice() -> None:
    opening = Opening(resume="old", history=({"role": "user", "content": "before"},), instructions="be kind")
    bench = Bench([[DONE], [DONE]], opening=opening, opens=[ResumeFailed(fault("refused").fault)])
    result = await bench.session.run_turn("hello")
    assert [opened.resume for opened in bench.runtime.openings] == ["old", None]
    assert bench.runtime.opening.history == opening.history
    assert bench.runtime.opening.instructions == "be kind"
    assert "could not be resumed" in result.notices[0]
    assert result.thread_id != "old"
    assert (await bench.session.run_turn("more")).notices == []
    await bench.close()


# --- trying again ----------------------------------------------------------------------------------------------------


async def test_a_turn_that_is_not_taken_is_tried_again_a_few_times() -> None:
    bench = Bench([RuntimeFault(BUSY), RuntimeFault(BUSY), [said("hi"), DONE]])
    turn = await bench.begun()
    await bench.clock.advance(10.0)
    assert (await turn).final_text == "hi"
    assert len(bench.told) == 2
    assert "tried again in" in bench.told[0]
    await bench.close()


async def test_a_turn_that_is_never_taken_fails_after_a_bounded_time() -> None:
    bench = Bench([RuntimeFault(BUSY)] * 10)
    turn = await bench.begun()
    await bench.clock.advance(60.0)
    assert (await turn).fault == BUSY
    assert len(bench.runtime.inputs) == 4
    await bench.close()


async def test_a_pause_can_be_interrupted() -> None:
    bench = Bench([RuntimeFault(BUSY)] * 10)
    turn = await bench.begun()
    bench.session.request_interrupt()
    await bench.clock.settle()
    result = await turn
    assert (result.interrupted, result.error) == (True, None)
    await bench.close()


async def test_a_refusal_for_good_is_told_at_once() -> None:
    bench = Bench([fault("refused"), [DONE]])
    result = await bench.session.run_turn("hello")
    assert (result.error, result.should_retire) == ("It is refused.", False)
    assert (await bench.session.run_turn("again")).error is None
    await bench.close()


async def test_a_turn_that_failed_before_anything_happened_is_run_again() -> None:
    bench = Bench([[echoed("hello"), thought("hm"), failed(BUSY)], [echoed("hello"), said("hi"), DONE]])
    turn = await bench.begun()
    await bench.clock.advance(5.0)
    result = await turn
    assert (result.final_text, result.error, result.turn_id) == ("hi", None, "turn-2")
    assert [message["role"] for message in result.projected_messages] == ["assistant"]
    assert len(bench.told) == 1
    await bench.close()


async def test_it_is_run_again_only_so_often() -> None:
    bench = Bench([[failed(BUSY)]] * 10)
    turn = await bench.begun()
    await bench.clock.advance(60.0)
    assert (await turn).fault == BUSY
    assert len(bench.runtime.inputs) == 3
    await bench.close()


@pytest.mark.parametrize("event", [ran("make"), said("well"), Delta("m", "we"), Delta("c", "out", "output")])
async def test_a_turn_in_which_something_happened_is_never_run_again(event: object) -> None:
    bench = Bench([[event, failed(BUSY)]])
    result = await bench.session.run_turn("hello")
    assert result.fault is not None
    assert result.fault.kind == "overloaded"
    assert ("may have been done already" in str(result.error)) == ("CommandExecution" in repr(event))
    assert len(bench.runtime.inputs) == 1
    await bench.close()


async def test_a_full_thread_is_summed_up_and_the_message_is_for_the_user_to_send_again() -> None:
    bench = Bench([[failed(FULL)], [said("hi"), DONE]])
    result = await bench.session.run_turn("hello")
    assert bench.runtime.calls[-1] == "compact"
    assert result.compacted
    assert "send the message again" in str(result.error)
    assert not result.should_retire
    assert (await bench.session.run_turn("hello")).final_text == "hi"
    await bench.close()


@pytest.mark.parametrize("compaction", [None, [failed(FULL)]])
async def test_a_full_thread_that_cannot_be_summed_up_says_so(compaction: object) -> None:
    bench = Bench([[failed(FULL)]], compaction=compaction)
    result = await bench.session.run_turn("hello")
    assert not result.compacted
    assert "new conversation" in str(result.error)
    await bench.close()


async def test_compact_is_a_turn_of_its_own() -> None:
    bench = Bench()
    result = await bench.session.compact()
    assert (result.compacted, result.error) == (True, None)
    await bench.close()
    cannot = Bench(compaction=None)
    assert "does not sum up" in str((await cannot.session.compact()).error)
    await cannot.close()


# --- usage -----------------------------------------------------------------------------------------------------------


async def test_usage_is_the_change_of_the_total() -> None:
    bench = Bench([[said("a"), total(100), total(250), DONE], [said("b"), total(300), DONE], [said("c"), DONE]])
    spent = [(await bench.session.run_turn("x")).usage for _ in range(3)]
    assert [usage and usage.total_tokens for usage in spent] == [250, 50, None]
    await bench.close()


async def test_a_failed_turn_that_tells_the_old_total_again_has_used_nothing() -> None:
    bench = Bench([[said("a"), total(100), DONE], [said("b"), total(100), failed(FULL)]], compaction=None)
    await bench.session.run_turn("x")
    assert (await bench.session.run_turn("x")).usage == Usage()
    await bench.close()


async def test_the_total_of_a_resumed_thread_may_be_known() -> None:
    opened = Opened(thread_id="old", usage=Usage(input_tokens=1000, total_tokens=1000))
    bench = Bench([[said("a"), total(1100), DONE]], opening=Opening(resume="old"), opens=[opened])
    assert (await bench.session.run_turn("x")).usage == Usage(input_tokens=100, total_tokens=100)
    await bench.close()


async def test_what_a_resumed_thread_used_before_is_not_put_on_the_turns_bill() -> None:
    script = [[said("a"), total(1100), DONE], [said("b"), total(1150), DONE]]
    bench = Bench(script, opening=Opening(resume="old"))
    first, second = [(await bench.session.run_turn("x")).usage for _ in range(2)]
    assert (first, second) == (None, Usage(input_tokens=50, total_tokens=50))
    await bench.close()


async def test_a_total_told_before_anything_is_done_is_that_of_the_beginning() -> None:
    script = [[echoed("x"), total(1000), said("a"), total(1100), DONE]]
    bench = Bench(script, opening=Opening(resume="old"))
    assert (await bench.session.run_turn("x")).usage == Usage(input_tokens=100, total_tokens=100)
    await bench.close()


# --- one turn at a time, and the end ---------------------------------------------------------------------------------


async def test_a_second_turn_at_the_same_time_is_an_error_and_does_no_harm() -> None:
    gate = Gate()
    bench = Bench([[gate, said("hi"), DONE]])
    turn = bench.start()
    await gate.reached()
    with pytest.raises(SessionBusy, match="runs already"):
        await bench.session.run_turn("another")
    gate.open()
    assert (await turn).final_text == "hi"
    assert len(bench.runtime.inputs) == 1
    await bench.close()


async def test_close_may_come_twice_and_nothing_works_after_it() -> None:
    bench = Bench([[DONE]])
    await bench.session.run_turn("hello")
    await asyncio.gather(bench.session.close(), bench.session.close())
    await bench.close()
    assert bench.runtime.calls.count("close") == 1
    for call in (bench.session.ensure_started, bench.session.compact):
        with pytest.raises(SessionClosed, match="make a new one"):
            await call()
    with pytest.raises(SessionClosed):
        await bench.session.run_turn("hello")
    assert not await bench.session.steer("hello")
    bench.session.request_interrupt()


@pytest.mark.parametrize("where", ["opens", "starts", "runs", "ends"])
async def test_close_in_the_middle_of_a_turn(where: str) -> None:
    turns = {"starts": [SILENCE]}.get(where, [[ran("make"), SILENCE]])
    bench = Bench(turns, opens=[SILENCE] if where == "opens" else (), on_interrupt=())
    turn = await bench.begun()
    if where == "ends":
        bench.session.request_interrupt()
        await bench.clock.settle()
    await bench.close()
    result = await turn
    assert (result.interrupted, result.should_retire) == (True, True)
    assert "closed while the turn was in flight" in str(result.error)
    assert bench.runtime.closed


async def test_a_runtime_that_will_not_close_holds_nobody_up(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench([[DONE]], closing=[SILENCE])
    await bench.session.run_turn("hello")
    await bench.close()
    assert "did not end" in caplog.text


async def test_a_dead_runtime_is_told_with_its_fault_and_retired() -> None:
    bench = Bench([[ran("make"), RuntimeFault(DEAD)], [DONE]])
    result = await bench.session.run_turn("hello")
    assert result.fault is not None
    assert (result.fault.kind, result.fault.exit_code, result.should_retire) == ("dead", 9, True)
    assert "may have been done already" in str(result.error)
    assert result.tool_iterations >= 0
    assert (await bench.session.run_turn("again")).should_retire
    assert len(bench.runtime.inputs) == 1
    await bench.close()


async def test_events_that_fail_leave_a_turn_of_which_nobody_knows_anything() -> None:
    bench = Bench([[fault("other")], [DONE]])
    result = await bench.session.run_turn("hello")
    assert (str(result.error), result.should_retire) == ("It is other.", True)
    await bench.close()


async def test_steering_reaches_only_a_turn_that_runs() -> None:
    bench = Bench([[SILENCE]])
    assert not await bench.session.steer("too early")
    turn = await bench.begun()
    assert await bench.session.steer("left")
    assert bench.runtime.steered == ["left"]
    bench.session.request_interrupt()
    await turn
    assert not await bench.session.steer("too late")
    await bench.close()


def begun(item_id: str) -> ItemStarted:
    return ItemStarted(AgentMessageThreadItem(id=item_id, text=""))


async def test_a_message_that_broke_off_and_was_said_again_is_not_the_answer() -> None:
    bench = Bench([[begun("m1"), Delta("m1", "It bu"), begun("m2"), said("It builds.", id="m2"), DONE]])
    result = await bench.session.run_turn("does it build?")
    assert (result.final_text, result.error) == ("It builds.", None)
    assert result.projected_messages == [{"role": "assistant", "content": "It builds."}]
    await bench.close()


async def test_what_was_said_before_the_end_is_kept_and_is_not_the_answer() -> None:
    words = [begun("m1"), Delta("m1", "lost"), begun("m2"), Delta("m2", "It bu"), Delta("m2", "ilds")]
    bench = Bench([[*words, RuntimeFault(DEAD)]])
    result = await bench.session.run_turn("does it build?")
    assert result.fault == DEAD
    assert result.projected_messages == [{"role": "assistant", "content": "It builds"}]
    assert result.final_text == ""
    await bench.close()
