"""`Scheduler` over a scripted runner: order, sessions, cancellation, ends of every kind, limits, the end of it all."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from treadle.errors import ArgumentValueError, TreadleError
from treadle.runners import (
    LOG_BYTES,
    Action,
    ActionEvent,
    CompletedEvent,
    Event,
    Job,
    Limits,
    QueueFull,
    RunOptions,
    Scheduler,
    SessionQueues,
    StartedEvent,
    TextDelta,
    Timeouts,
)
from unit.runners.scripted_runner import ENGINE, DeafRun, PoliteRun, ScriptedRunner, StuckRun, done, token

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]


def job(prompt: str, session: str | None = None, **more: Any) -> Job:
    return Job(engine=ENGINE, prompt=prompt, resume=token(session) if session else None, **more)


def memory(runner: ScriptedRunner, **more: Any) -> Scheduler:
    return Scheduler(runner, durable=False, **more)


async def settle() -> None:
    """Let everything happen that can without the test's doing: nothing in these tests waits for a clock or a thread."""
    for _ in range(50):
        await asyncio.sleep(0)


# --- one at a time per session ---


async def test_jobs_of_a_session_run_one_after_the_other_in_order() -> None:
    runner = ScriptedRunner()
    async with memory(runner) as scheduler:
        handles = [await scheduler.submit(job(prompt, "s")) for prompt in ("one", "two", "three")]
        await settle()
        assert [handle.state for handle in handles] == ["running", "queued", "queued"]
        for prompt, handle in zip(("one", "two", "three"), handles, strict=True):
            (await runner.begun(prompt)).finish(prompt)
            assert (await handle.wait()).answer == prompt
            assert handle.state == "done"
        assert runner.order == ["one", "two", "three"]
        assert scheduler.stats() == (0, 0, 0, 3, 0)


async def test_new_sessions_and_different_sessions_run_at_once() -> None:
    runner = ScriptedRunner()
    async with memory(runner, at_exit="cancel") as scheduler:
        for prompt, session in (("a", None), ("b", None), ("c", "s"), ("d", "t")):
            await scheduler.submit(job(prompt, session))
        await settle()
        assert runner.order == ["a", "b", "c", "d"]
        assert scheduler.stats()[:2] == (4, 0)


async def test_once_a_new_session_is_known_later_jobs_for_it_wait() -> None:
    runner = ScriptedRunner()
    async with memory(runner) as scheduler:
        first = await scheduler.submit(job("new"))
        run = await runner.begun("new")
        run.start("s")
        assert [event async for event in _first(first.events())] == [StartedEvent(ENGINE, token("s"))]
        assert first.session == token("s")
        second = await scheduler.submit(job("later", "s"))
        await settle()
        assert second.state == "queued"
        run.finish()
        await first.wait()
        (await runner.begun("later")).finish()
        assert (await second.wait()).ok


async def _first(events: AsyncIterator[Event]) -> AsyncIterator[Event]:
    async for event in events:
        yield event
        return


async def test_a_run_that_tells_another_session_than_it_was_to_resume_holds_both() -> None:
    runner = ScriptedRunner()
    async with memory(runner, at_exit="cancel") as scheduler:
        await scheduler.submit(job("fork", "old"))
        (await runner.begun("fork")).start("new")
        await settle()
        await scheduler.submit(job("to old", "old"))
        await scheduler.submit(job("to new", "new"))
        await settle()
        assert runner.order == ["fork"]
        runner.runs["fork"].finish()
        await runner.begun("to old")
        await runner.begun("to new")


async def test_a_follow_up_waits_for_the_session_and_then_for_its_turn() -> None:
    runner = ScriptedRunner()
    async with memory(runner) as scheduler:
        first = await scheduler.submit(job("first"))
        second = await scheduler.submit(job("second"), after=first)
        third = await scheduler.submit(job("third"), after=second)
        run = await runner.begun("first")
        await settle()
        assert (second.session, third.session) == (None, None)
        run.start("s")
        await settle()
        assert (second.session, third.session) == (token("s"), token("s"))
        assert runner.order == ["first"]
        run.finish()
        for prompt in ("second", "third"):
            run = await runner.begun(prompt)
            assert run.resume == token("s")
            run.finish()
        await third.wait()
        late = await scheduler.submit(job("late"), after=third)
        run = await runner.begun("late")
        assert run.resume == token("s")
        run.finish()
        await late.wait()


@pytest.mark.parametrize("how", ["ends", "is cancelled", "has ended"])
async def test_a_follow_up_of_a_job_without_a_session_fails_and_never_runs(how: str) -> None:
    runner = ScriptedRunner()
    async with memory(runner, limits=Limits(running=1)) as scheduler:
        blocker = await scheduler.submit(job("blocker"))
        first = await scheduler.submit(job("first"))
        second = await scheduler.submit(job("second"), after=first) if how != "has ended" else None
        if how == "is cancelled":
            await first.cancel()
        (await runner.begun("blocker")).finish()
        await blocker.wait()
        if how != "is cancelled":
            (await runner.begun("first")).finish()
        await first.wait()
        second = second or await scheduler.submit(job("second"), after=first)
        completed = await second.wait()
        assert not completed.ok
        assert completed.error is not None
        assert "ended before its session was known" in completed.error
        await settle()
        assert "second" not in runner.order
        assert scheduler.jobs == []


# --- what a runner is given, and what is passed on ---


async def test_a_job_gives_its_run_the_options() -> None:
    runner = ScriptedRunner()
    async with memory(runner, at_exit="cancel") as scheduler:
        limits = Timeouts(total=5)
        await scheduler.submit(job("x", "s", model="m", effort="high", cwd="/tmp", timeouts=limits))
        run = await runner.begun("x")
        assert run.resume == token("s")
        assert run.options == RunOptions(model="m", effort="high", cwd="/tmp", timeouts=limits)


async def test_events_are_replayed_from_the_start_and_told_to_the_listener() -> None:
    runner = ScriptedRunner()
    heard: list[tuple[str, Event]] = []

    def listen(job: Job, event: Event) -> None:
        heard.append((job.meta["chat"], event))
        raise ValueError("listeners may fail")

    async with memory(runner) as scheduler:
        handle = await scheduler.submit(job("x", meta={"chat": "c"}), listen)
        said: list[Event] = [StartedEvent(ENGINE, token("s")), TextDelta(ENGINE, "hello"), done("hello")]
        (await runner.begun("x")).say(*said)
        await handle.wait()
        assert [event async for event in handle.events()] == said
        assert [event async for event in handle.events()] == said
        assert heard == [("c", event) for event in said]


async def test_a_log_that_is_too_long_forgets_the_middle_and_says_so() -> None:
    runner = ScriptedRunner()
    async with memory(runner) as scheduler:
        handle = await scheduler.submit(job("x"))
        run = await runner.begun("x")
        run.start("s")
        run.say(*[TextDelta(ENGINE, "x" * (LOG_BYTES // 4)) for _ in range(10)], done())
        await handle.wait()
        events = [event async for event in handle.events()]
        assert events[0] == StartedEvent(ENGINE, token("s"))
        assert isinstance(events[1], ActionEvent)
        assert events[1].action.kind == "warning"
        assert 2 + len([event for event in events if isinstance(event, TextDelta)]) + 1 == len(events)
        assert events[-1] == done()


async def test_a_second_started_event_and_what_comes_after_the_end_are_not_passed_on() -> None:
    runner = ScriptedRunner()
    async with memory(runner) as scheduler:
        handle = await scheduler.submit(job("x"))
        run = await runner.begun("x")
        run.start("s")
        run.start("s")
        run.say(done(), TextDelta(ENGINE, "late"), done("again"))
        assert await handle.wait() == done()
        assert [event.type async for event in handle.events()] == ["started", "completed"]
        await run.closed.wait()


async def test_the_words_of_a_job_are_not_in_its_repr() -> None:
    runner = ScriptedRunner()
    async with memory(runner, at_exit="cancel") as scheduler:
        handle = await scheduler.submit(job("a secret prompt"))
        assert "secret" not in repr(handle) + repr(handle.job) + f"{handle.job}"


# --- runners that misbehave ---


async def test_a_runner_that_raises_completes_the_job_and_its_words_stay_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    runner = ScriptedRunner()
    async with memory(runner) as scheduler:
        first = await scheduler.submit(job("x", "s"))
        second = await scheduler.submit(job("y", "s"))
        (await runner.begun("x")).say(RuntimeError("the key is 12345"))
        completed = await first.wait()
        assert completed == CompletedEvent(
            ENGINE, False, "", token("s"), "the runner of codex failed (RuntimeError); the log has the details"
        )
        (await runner.begun("y")).finish()
        assert (await second.wait()).ok
    assert any(record.levelno == logging.ERROR for record in caplog.records)


async def test_a_runner_that_cannot_be_made_completes_the_job() -> None:
    def runner_for(job: Job) -> ScriptedRunner:
        raise LookupError("no such engine")

    async with Scheduler(runner_for, durable=False) as scheduler:
        completed = await (await scheduler.submit(job("x"))).wait()
        assert completed.error is not None
        assert "LookupError" in completed.error


async def test_an_engine_that_is_not_there_is_said_in_plain_words() -> None:
    async with Scheduler(durable=False) as scheduler:
        completed = await (await scheduler.submit(Job(engine="nobody", prompt="x"))).wait()
        assert completed.error is not None
        assert completed.error.startswith("there is no engine 'nobody'")


async def test_a_runner_that_ends_without_a_word_completes_the_job(caplog: pytest.LogCaptureFixture) -> None:
    runner = ScriptedRunner()
    async with memory(runner) as scheduler:
        handle = await scheduler.submit(job("x"))
        run = await runner.begun("x")
        run.start("s")
        run.say(None)
        completed = await handle.wait()
        assert (completed.ok, completed.resume) == (False, token("s"))
        assert completed.error == "the runner of codex ended without saying how it went"
    assert "without a completed event" in caplog.text


# --- cancel ---


async def test_a_queued_job_that_is_cancelled_never_runs_and_the_running_one_goes_on() -> None:
    runner = ScriptedRunner(PoliteRun)
    async with memory(runner) as scheduler:
        running, first, second = [await scheduler.submit(job(prompt, "s")) for prompt in ("running", "first", "second")]
        run = await runner.begun("running")
        assert await first.cancel()
        assert await first.wait() == CompletedEvent(ENGINE, False, "", token("s"), "cancelled before it started")
        assert not await first.cancel()
        assert [event async for event in first.events()] == [first.completed]
        assert isinstance(run, PoliteRun)
        assert (run.asked, running.state) == (0, "running")
        run.finish()
        assert (await running.wait()).ok
        (await runner.begun("second")).finish()
        assert (await second.wait()).ok
        assert runner.order == ["running", "second"]


async def test_a_job_cancelled_the_moment_it_is_taken_never_runs() -> None:
    """The known race: the job is out of the queue, and its run has not begun."""
    runner = ScriptedRunner()
    async with memory(runner) as scheduler:
        first = await scheduler.submit(job("first", "s"))
        second = await scheduler.submit(job("second", "s"))
        run = await runner.begun("first")
        run.finish()
        while second.state == "queued":
            await asyncio.sleep(0)
        assert "second" not in runner.order
        assert await second.cancel()
        assert (await second.wait()).error == "cancelled before it started"
        assert (await first.wait()).ok
        await settle()
        assert runner.order == ["first"]


async def test_cancel_asks_the_run_to_stop_in_order_and_the_next_one_runs() -> None:
    runner = ScriptedRunner(PoliteRun)
    async with memory(runner) as scheduler:
        first = await scheduler.submit(job("first", "s"))
        second = await scheduler.submit(job("second", "s"))
        other = await scheduler.submit(job("other", "t"))
        await runner.begun("first")
        await runner.begun("other")
        assert await first.cancel()
        assert (await first.wait()).error == "stopped in order"
        assert not await first.cancel()
        (await runner.begun("second")).finish()
        assert (await second.wait()).ok
        runner.runs["other"].finish()
        assert (await other.wait()).ok


async def test_a_run_that_cannot_be_asked_is_closed() -> None:
    runner = ScriptedRunner()
    async with memory(runner) as scheduler:
        handle = await scheduler.submit(job("x"))
        run = await runner.begun("x")
        run.start("s")
        await settle()
        await handle.cancel()
        assert await handle.wait() == CompletedEvent(ENGINE, False, "", token("s"), "cancelled")
        assert run.closed.is_set()


async def test_a_run_that_does_not_stop_when_asked_is_closed() -> None:
    runner = ScriptedRunner(DeafRun)
    async with memory(runner, stop_s=0.01) as scheduler:
        handle = await scheduler.submit(job("x"))
        run = await runner.begun("x")
        await handle.cancel()
        assert (await handle.wait()).error == "cancelled"
        assert run.closed.is_set()


async def test_a_run_that_never_ends_does_not_hold_the_queue_for_ever(caplog: pytest.LogCaptureFixture) -> None:
    runner = ScriptedRunner(StuckRun)
    async with memory(runner, stop_s=0.01) as scheduler:
        handle = await scheduler.submit(job("x", "s"))
        run = await runner.begun("x")
        assert isinstance(run, StuckRun)
        run.start("s")
        await settle()
        await handle.cancel()
        error = (await handle.wait()).error
        assert error is not None
        assert error.startswith("cancelled, but its runner has not ended")
        assert "does not end" in caplog.text
        next_one = await scheduler.submit(job("y", "s"))
        other = await runner.begun("y")
        assert isinstance(other, StuckRun)
        other.say(done())
        await settle()
        run.release.set()
        other.release.set()
        assert (await next_one.wait()).ok


async def test_whoever_waits_can_be_cancelled_without_harm() -> None:
    runner = ScriptedRunner()
    async with memory(runner) as scheduler:
        handle = await scheduler.submit(job("x"))
        waiter = asyncio.ensure_future(handle.wait())
        await runner.begun("x")
        waiter.cancel()
        await asyncio.wait({waiter})
        runner.runs["x"].finish()
        assert (await handle.wait()).ok


# --- limits and refusals ---


async def test_whoever_came_first_is_not_overtaken_while_it_is_being_written_down() -> None:
    queues: SessionQueues[str] = SessionQueues(Limits())
    for name in ("first", "second"):
        queues.add(name, session=token("s"))
    queues.add("other", session=token("t"))
    queues.confirm("second")
    queues.confirm("other")
    assert (queues.take(), queues.take()) == ("other", None)
    queues.confirm("first")
    assert (queues.take(), queues.take()) == ("first", None)


async def test_what_does_not_fit_is_refused_and_counted() -> None:
    runner = ScriptedRunner()
    limits = Limits(running=2, queued=3, depth=2)
    async with memory(runner, limits=limits, at_exit="cancel") as scheduler:
        for prompt in ("running", "one", "two"):
            await scheduler.submit(job(prompt, "s"))
        with pytest.raises(QueueFull, match="2 jobs wait for this session") as depth:
            await scheduler.submit(job("three", "s"))
        assert (depth.value.limit, depth.value.size) == ("depth", 2)
        await scheduler.submit(job("also running"))
        await scheduler.submit(job("waits"))
        with pytest.raises(QueueFull, match="2 jobs run and 3 wait") as queued:
            await scheduler.submit(job("too much"))
        assert (queued.value.limit, queued.value.size) == ("queued", 3)
        assert scheduler.stats() == (2, 3, 1, 0, 2)
        await settle()
        assert runner.order == ["running", "also running"]
        runner.runs["also running"].finish()
        await runner.begun("waits")


async def test_without_a_queue_what_can_run_at_once_is_taken() -> None:
    runner = ScriptedRunner()
    async with memory(runner, limits=Limits(running=1, queued=0), at_exit="cancel") as scheduler:
        await scheduler.submit(job("x"))
        with pytest.raises(QueueFull):
            await scheduler.submit(job("y"))


async def test_wrong_jobs_are_refused_with_a_reason() -> None:
    runner = ScriptedRunner()
    async with memory(runner, at_exit="cancel") as scheduler:
        first = await scheduler.submit(job("x", id="one"))
        with pytest.raises(ArgumentValueError, match="already"):
            await scheduler.submit(job("y", id="one"))
        with pytest.raises(ArgumentValueError, match="leave out one"):
            await scheduler.submit(job("y", "s"), after=first)
        with pytest.raises(ArgumentValueError, match="session of codex cannot be continued by claude"):
            await scheduler.submit(Job(engine="claude", prompt="y"), after=first)
        with pytest.raises(ArgumentValueError, match="session of codex cannot be continued by claude"):
            await scheduler.submit(Job(engine="claude", prompt="y", resume=token("s")))
        with pytest.raises(ArgumentValueError, match="as JSON"):
            await scheduler.submit(job("y", meta={"chat": object()}))
        with pytest.raises(ArgumentValueError, match="as JSON"):
            await scheduler.submit(job("\ud800"))
    with pytest.raises(TreadleError, match="not running"):
        await scheduler.submit(job("late"))


# --- the end ---


async def test_at_the_end_everything_that_is_left_is_stopped_and_told(tmp_path: Path) -> None:
    runner = ScriptedRunner(PoliteRun)
    async with memory(runner, at_exit="cancel") as scheduler:
        running = await scheduler.submit(job("running"))
        queued = await scheduler.submit(job("queued"), after=running)
        follower = await scheduler.submit(job("follower"), after=queued)
        await runner.begun("running")
    assert (await running.wait()).error == "stopped in order"
    for handle in (queued, follower):
        assert (await handle.wait()).error == "the scheduler was stopped before it started"
    assert runner.order == ["running"]


async def test_at_the_end_follow_ups_of_what_waits_are_told_too() -> None:
    runner = ScriptedRunner(PoliteRun)
    async with memory(runner, limits=Limits(running=1)) as scheduler:
        await scheduler.submit(job("running"))
        queued = await scheduler.submit(job("queued"))
        follower = await scheduler.submit(job("follower"), after=queued)
        await runner.begun("running")
    for handle in (queued, follower):
        assert (await handle.wait()).error == "the scheduler was stopped before it started"


async def test_the_end_is_in_time_even_if_a_run_is_stuck() -> None:
    runner = ScriptedRunner(StuckRun)
    async with memory(runner, at_exit="cancel", stop_s=0.01) as scheduler:
        handle = await scheduler.submit(job("x"))
        run = await runner.begun("x")
        run.say(ActionEvent(ENGINE, Action("a", "note", "hello"), "completed"))
        await settle()
    assert handle.state == "done"
    assert isinstance(run, StuckRun)
    run.release.set()
    await settle()
