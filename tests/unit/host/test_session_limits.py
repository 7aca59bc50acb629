from __future__ import annotations

import asyncio

import pytest

from session_bench import DEAD, Bench, failed, fault
from treadle.host import Ask, Delta, Fault, ItemStarted, RuntimeFault, Timeouts
from treadle.testing import DONE, SILENCE, STOPPED, Gate, ran, running, said

pytestmark = pytest.mark.anyio
ASK = Ask(kind="command", title="make clean")


# --- deadlines -------------------------------------------------------------------------------------------------------


async def test_a_turn_without_a_sign_of_life_is_ended() -> None:
    bench = Bench([[said("well", phase="commentary"), SILENCE]], timeouts=Timeouts(idle=600.0))
    turn = await bench.begun()
    await bench.clock.advance(599.0)
    assert not turn.done()
    await bench.clock.advance(1.0)
    result = await turn
    assert result.fault is not None
    assert (result.fault.kind, result.interrupted, result.should_retire) == ("deadline", True, True)
    assert "10 min" in str(result.error)
    assert bench.runtime.calls[-1] == "interrupt"
    await bench.close()


async def test_every_sign_of_life_renews_the_idle_deadline() -> None:
    gates = [Gate() for _ in range(5)]
    script = [step for gate in gates for step in (gate, Delta("m", "x"))]
    bench = Bench([[*script, said("done"), DONE]], timeouts=Timeouts(idle=600.0))
    turn = await bench.begun()
    for gate in gates:
        await bench.clock.advance(590.0)
        assert not turn.done()
        gate.open()
    assert (await turn).final_text == "done"
    await bench.close()


async def test_the_ceiling_counts_however_lively_the_turn_is() -> None:
    async def chatter(runtime: object) -> Delta:
        await bench.clock.sleep(10.0)
        return Delta("m", "x")

    bench = Bench([[chatter] * 1000], timeouts=Timeouts(turn=100.0))
    turn = await bench.begun()
    await bench.clock.advance(99.0)
    assert not turn.done()
    await bench.clock.advance(1.0)
    result = await turn
    assert "was not done within 1 min 40 s" in str(result.error)
    await bench.close()


async def test_an_answer_that_is_there_when_the_time_is_up_is_taken() -> None:
    bench = Bench([[ran("make"), said("all done"), SILENCE]], timeouts=Timeouts(idle=60.0))
    turn = await bench.begun()
    await bench.clock.advance(65.0)
    result = await turn
    assert (result.final_text, result.error, result.interrupted, result.should_retire) == (
        "all done",
        None,
        False,
        False,
    )
    assert "taken as it stood" in result.notices[0]
    assert "interrupt" in bench.runtime.calls, "nothing of it may come later"
    await bench.close()


async def test_an_answer_whose_turn_cannot_be_ended_is_taken_and_the_runtime_retired() -> None:
    bench = Bench([[said("all done"), SILENCE]], timeouts=Timeouts(idle=60.0), on_interrupt=())
    turn = await bench.begun()
    await bench.clock.advance(70.0)
    result = await turn
    assert (result.final_text, result.error) == ("all done", None)
    assert (result.interrupted, result.should_retire) == (False, True)
    assert (await bench.session.run_turn("again")).should_retire
    assert len(bench.runtime.inputs) == 1
    await bench.close()


@pytest.mark.parametrize("after", [ran("make"), ItemStarted(running("make")), ItemStarted(said("and").item)])
async def test_what_was_said_before_more_is_no_answer(after: object) -> None:
    bench = Bench([[said("I look"), after, SILENCE]], timeouts=Timeouts(idle=60.0))
    turn = await bench.begun()
    await bench.clock.advance(60.0)
    result = await turn
    assert result.fault is not None
    assert result.fault.kind == "deadline"
    assert ("may have been done already" in str(result.error)) == ("CommandExecution" in repr(after))
    await bench.close()


async def test_a_turn_that_completes_when_it_is_told_to_end_has_completed() -> None:
    script = (said("just in time"), DONE)
    bench = Bench([[ran("make"), SILENCE]], timeouts=Timeouts(idle=60.0), on_interrupt=script)
    turn = await bench.begun()
    await bench.clock.advance(60.0)
    result = await turn
    assert (result.final_text, result.error, result.should_retire) == ("just in time", None, False)
    await bench.close()


async def test_a_turn_that_is_not_started_in_time_is_stuck() -> None:
    bench = Bench([SILENCE], timeouts=Timeouts(request=30.0))
    turn = await bench.begun()
    await bench.clock.advance(30.0)
    result = await turn
    assert "did not start the turn within 30 s" in str(result.error)
    assert result.should_retire
    await bench.close()


# --- silence after a tool --------------------------------------------------------------------------------------------


async def test_a_runtime_that_answers_is_waited_for_and_that_is_told_once() -> None:
    gate = Gate()
    bench = Bench([[ran("make"), gate, said("done"), DONE]])
    turn = await bench.begun()
    await bench.clock.advance(89.0)
    assert "probe" not in bench.runtime.calls
    await bench.clock.advance(1.0)
    assert bench.runtime.calls.count("probe") == 1
    await bench.clock.advance(300.0)
    assert bench.runtime.calls.count("probe") == 4
    assert len(bench.told) == 1
    gate.open()
    result = await turn
    assert (result.final_text, result.error, result.notices) == ("done", None, bench.told)
    assert "1 min 30 s" in result.notices[0]
    await bench.close()


async def test_a_runtime_that_does_not_answer_is_retired() -> None:
    bench = Bench([[ran("make"), SILENCE]], probes=[SILENCE], on_interrupt=())
    turn = await bench.begun()
    await bench.clock.advance(94.0)
    assert not turn.done()
    await bench.clock.advance(6.0)
    result = await turn
    assert result.fault is not None
    assert (result.fault.kind, result.should_retire, result.interrupted) == ("stuck", True, True)
    assert "has not answered for 1 min 35 s" in str(result.error)
    await bench.close()


async def test_a_probe_is_forgotten_when_the_runtime_speaks() -> None:
    gate = Gate()
    bench = Bench([[ran("make"), gate, Delta("m", "x"), SILENCE]], probes=[SILENCE], timeouts=Timeouts(probe=5.0))
    turn = await bench.begun()
    await bench.clock.advance(92.0)
    gate.open()
    await bench.clock.advance(20.0)
    assert not turn.done()
    bench.session.request_interrupt()
    assert (await turn).error is None
    await bench.close()


@pytest.mark.parametrize(("answer", "alive"), [("refused", True), ("other", True), ("dead", False)])
async def test_a_probe_that_is_refused_is_a_sign_of_life(answer: str, alive: bool) -> None:
    bench = Bench([[ran("make"), SILENCE]], probes=[fault(answer)])
    turn = await bench.begun()
    await bench.clock.advance(90.0)
    assert turn.done() != alive
    bench.session.request_interrupt()
    assert (await turn).should_retire != alive
    await bench.close()


async def test_warning_only_says_so_and_retiring_ends_it() -> None:
    warned = Bench([[ran("make"), SILENCE]], timeouts=Timeouts(quiet_action="warn"))
    turn = await warned.begun()
    await warned.clock.advance(300.0)
    assert (len(warned.told), turn.done()) == (1, False)
    assert "probe" not in warned.runtime.calls
    await warned.close()
    retired = Bench([[ran("make"), SILENCE]], timeouts=Timeouts(quiet_action="retire"))
    turn = await retired.begun()
    await retired.clock.advance(90.0)
    result = await turn
    assert "went silent for 1 min 30 s" in str(result.error)
    assert (result.interrupted, result.should_retire) == (True, True)
    await retired.close()


async def test_no_silence_while_an_item_is_open_or_before_any_tool() -> None:
    for script in ([ran("make"), ItemStarted(running("sleep")), SILENCE], [said("hm"), SILENCE]):
        bench = Bench([script], timeouts=Timeouts(quiet_action="retire"))
        turn = await bench.begun()
        await bench.clock.advance(500.0)
        assert not turn.done()
        await bench.close()


async def test_while_a_person_is_asked_no_limit_counts() -> None:
    answer = asyncio.get_running_loop().create_future()

    async def approvals(ask: Ask) -> object:
        return await answer

    limits = Timeouts(idle=60.0, turn=100.0, quiet=10.0, quiet_action="retire", approval=None)
    bench = Bench([[ran("make"), ASK, SILENCE]], approvals=approvals, timeouts=limits)
    turn = await bench.begun()
    await bench.clock.advance(100_000.0)
    assert not turn.done()
    answer.set_result("once")
    await bench.clock.advance(9.0)
    assert (turn.done(), bench.runtime.answers) == (False, ["once"])
    await bench.clock.advance(1.0)
    assert "went silent" in str((await turn).error)
    await bench.close()


# --- approvals -------------------------------------------------------------------------------------------------------


async def test_without_a_callback_the_answer_is_no() -> None:
    bench = Bench([[ASK, DONE]])
    await bench.session.run_turn("hello")
    assert bench.runtime.answers == ["deny"]
    await bench.close()


async def test_a_person_who_does_not_answer_in_time_has_said_no() -> None:
    async def approvals(ask: Ask) -> object:
        return await asyncio.get_running_loop().create_future()

    bench = Bench([[ASK, said("then not"), DONE]], approvals=approvals)
    turn = await bench.begun()
    await bench.clock.advance(300.0)
    assert (await turn).final_text == "then not"
    assert bench.runtime.answers == ["deny"]
    await bench.close()


@pytest.mark.parametrize("withdraws", [True, False])
async def test_an_interrupt_while_a_person_is_asked_takes_the_question_back(withdraws: bool) -> None:
    asked, over = asyncio.Event(), asyncio.Event()

    async def approvals(ask: Ask) -> object:
        asked.set()
        try:
            return await asyncio.get_running_loop().create_future()
        finally:
            over.set()

    bench = Bench([[ASK, STOPPED]], approvals=approvals, on_interrupt=(STOPPED,) if withdraws else ())
    turn = bench.start()
    await asked.wait()
    bench.session.request_interrupt()
    result = await turn
    assert (result.interrupted, result.error, result.should_retire) == (True, None, False)
    await asyncio.wait_for(over.wait(), 30)
    assert bench.runtime.answers == ([] if withdraws else ["deny"])
    await bench.close()


async def test_nobody_is_asked_for_a_turn_that_is_being_ended() -> None:
    asked: list[Ask] = []
    bench = Bench([[SILENCE]], approvals=asked.append, on_interrupt=(ASK, STOPPED))
    turn = await bench.begun()
    bench.session.request_interrupt()
    assert (await turn).interrupted
    assert (asked, bench.runtime.answers) == ([], ["deny"])
    await bench.close()


async def test_a_runtime_that_dies_takes_its_questions_with_it() -> None:
    asked, over = asyncio.Event(), asyncio.Event()

    async def approvals(ask: Ask) -> object:
        asked.set()
        try:
            return await asyncio.get_running_loop().create_future()
        finally:
            over.set()

    async def ask_aside(runtime: object) -> None:
        asides.append(asyncio.create_task(bench.session._ask(ASK)))
        await asked.wait()

    asides: list[asyncio.Task[str]] = []
    bench = Bench([[ask_aside, RuntimeFault(DEAD)]], approvals=approvals)
    assert (await bench.session.run_turn("hello")).fault == DEAD
    await asyncio.wait_for(over.wait(), 30)
    assert await asides[0] == "deny"
    assert await bench.session._ask(ASK) == "deny", "nobody is asked when no turn runs"
    await bench.close()


# --- interrupts ------------------------------------------------------------------------------------------------------


async def test_an_interrupt_in_the_middle_of_a_tool_waits_for_the_end() -> None:
    gate = Gate()
    late = (gate, ran("make", exit_code=130), STOPPED)
    bench = Bench([[ItemStarted(running("make")), SILENCE], [said("next"), DONE]], on_interrupt=late)
    turn = await bench.begun()
    await asyncio.to_thread(bench.session.request_interrupt)
    bench.session.request_interrupt()
    await gate.reached()
    assert not turn.done()
    gate.open()
    result = await turn
    assert (result.interrupted, result.error, result.should_retire) == (True, None, False)
    assert len(bench.events) == 3
    assert bench.runtime.calls.count("interrupt") == 1
    assert (await bench.session.run_turn("go on")).final_text == "next"
    await bench.close()


async def test_a_turn_that_will_not_end_is_left_and_the_runtime_retired() -> None:
    bench = Bench([[SILENCE]], on_interrupt=())
    turn = await bench.begun()
    bench.session.request_interrupt()
    await bench.clock.advance(4.9)
    assert not turn.done()
    await bench.clock.advance(0.2)
    result = await turn
    assert (result.interrupted, result.should_retire) == (True, True)
    assert "did not end the turn within 5 s" in str(result.error)
    await bench.close()


async def test_an_interrupt_that_fails_with_the_runtime_has_its_fault() -> None:
    bench = Bench([[SILENCE]], on_interrupt=(RuntimeFault(DEAD),))
    turn = await bench.begun()
    bench.session.request_interrupt()
    result = await turn
    assert (result.interrupted, result.fault) == (True, DEAD)
    await bench.close()


async def test_an_interrupt_during_the_start_counts_and_the_start_goes_on() -> None:
    gate = Gate()
    bench = Bench([[said("hi"), DONE]], opens=[gate])
    turn = bench.start()
    await gate.reached()
    bench.session.request_interrupt()
    result = await turn
    assert (result.interrupted, result.error, result.should_retire) == (True, None, False)
    assert bench.runtime.inputs == []
    gate.open()
    assert (await bench.session.run_turn("again")).final_text == "hi"
    assert bench.runtime.calls == ["open", "start_turn"]
    await bench.close()


async def test_an_interrupt_while_the_turn_is_being_taken_ends_it_when_it_is() -> None:
    gate = Gate()
    bench = Bench([gate, [SILENCE]])
    turn = bench.start()
    await gate.reached()
    bench.session.request_interrupt()
    await bench.clock.settle()
    assert not turn.done()
    gate.open()
    result = await turn
    assert (result.interrupted, result.error) == (True, None)
    assert bench.runtime.calls == ["open", "start_turn", "interrupt"]
    await bench.close()


async def test_an_interrupt_while_a_turn_is_never_taken_has_an_end() -> None:
    bench = Bench([SILENCE])
    turn = await bench.begun()
    bench.session.request_interrupt()
    await bench.clock.advance(5.0)
    result = await turn
    assert (result.interrupted, result.should_retire) == (True, True)
    await bench.close()


async def test_an_interrupt_between_turns_does_not_hit_the_next() -> None:
    bench = Bench([[said("one"), DONE], [said("two"), DONE]])
    bench.session.request_interrupt()
    assert not (await bench.session.run_turn("hello")).interrupted
    bench.session.request_interrupt()
    assert (await bench.session.run_turn("hello")).final_text == "two"
    await bench.close()


async def test_an_interrupt_that_comes_when_the_turn_is_over_does_not_hit_the_next() -> None:
    gate = Gate()
    bench = Bench([[DONE], [gate, said("two"), DONE]])
    await bench.session.run_turn("hello")
    late = bench.session._turns
    turn = bench.start()
    await gate.reached()
    bench.session._interrupt(late)
    await bench.clock.settle()
    gate.open()
    assert (await turn).final_text == "two"
    await bench.close()


async def test_an_interrupt_while_a_full_thread_is_summed_up() -> None:
    full = Fault(kind="context_window", message="It does not fit.")
    bench = Bench([[failed(full)]], compaction=[SILENCE])
    turn = await bench.begun()
    assert bench.runtime.calls[-1] == "compact"
    bench.session.request_interrupt()
    result = await turn
    assert (result.interrupted, result.compacted, result.should_retire) == (True, False, False)
    await bench.close()


@pytest.mark.parametrize("where", ["opens", "starts", "runs"])
async def test_a_cancelled_turn_is_interrupted_and_leaves_nothing_behind(where: str) -> None:
    gate = Gate()
    turns = [gate, [SILENCE]] if where == "starts" else [[SILENCE]]
    bench = Bench([*turns, [said("next"), DONE]], opens=[gate] if where == "opens" else ())
    turn = await bench.begun()
    turn.cancel()
    await bench.clock.settle()
    gate.open()
    with pytest.raises(asyncio.CancelledError):
        await turn
    assert ("interrupt" in bench.runtime.calls) == (where != "opens")
    if where != "opens":
        assert (await bench.session.run_turn("again")).final_text == "next"
    await bench.close()


async def test_a_turn_that_is_cancelled_twice_is_left_at_once_and_the_runtime_not_used_again() -> None:
    bench = Bench([[SILENCE], [DONE]], on_interrupt=())
    turn = await bench.begun()
    turn.cancel()
    await bench.clock.settle()
    assert not turn.done()
    turn.cancel()
    with pytest.raises(asyncio.CancelledError):
        await turn
    assert (await bench.session.run_turn("again")).should_retire
    await bench.close()
