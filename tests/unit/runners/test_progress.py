"""What is running and what is done, from the events of a run."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.runners import (
    KEEP_RUNNING,
    KEEP_TEXT,
    Action,
    ActionEvent,
    ActionKind,
    CompletedEvent,
    Event,
    Phase,
    Progress,
    ResumeToken,
    StartedEvent,
    TextDelta,
    elapsed,
    one_line,
)
from treadle.runners.progress import MAX_TITLE, cut

TOKEN = ResumeToken("codex", "1")


def act(
    action: str,
    phase: Phase = "started",
    *,
    ok: bool | None = None,
    title: str | None = None,
    kind: ActionKind = "command",
    **detail: Any,
) -> ActionEvent:
    return ActionEvent("codex", Action(action, kind, title or f"do {action}", detail), phase, ok)


def folded(*events: Event, keep: int = 50) -> Progress:
    progress = Progress(100.0, keep=keep)
    for event in events:
        progress.add(event)
    return progress


def test_a_run_from_its_start_to_its_end() -> None:
    progress = folded()
    assert (progress.header(100.4), progress.lines()) == ("starting · 0s", [])
    progress.add(StartedEvent("codex", TOKEN, "gpt-5"))
    assert progress.header(112.9) == "working · codex · 12s"
    progress.add(act("turn", kind="turn"))
    progress.add(act("a", title="pytest -q"))
    progress.add(act("b", title="ls"))
    assert progress.header(284) == "working · codex · 3m 04s · step 2"
    assert progress.lines() == ["▸ pytest -q", "▸ ls"]
    progress.add(act("b", "updated", title="ls -l"))
    progress.add(act("a", "completed", ok=False, title="pytest -q", exit_code=2))
    assert progress.lines() == ["✗ pytest -q (exit 2)", "↻ ls -l"]
    progress.add(act("b", "completed", ok=True, title="ls -l", exit_code=0))
    progress.add(TextDelta("codex", "all "))
    progress.add(TextDelta("codex", "well"))
    end = CompletedEvent("codex", True, "all well")
    progress.add(end)
    assert progress.header(284) == "done · codex · 3m 04s · 2 steps"
    assert progress.lines() == ["✗ pytest -q (exit 2)", "✓ ls -l"]
    now = progress.snapshot()
    assert (now.seen, now.running, now.done, now.failed) == (2, 0, 2, 1)
    assert (now.resume, now.title, now.text, now.completed) == (TOKEN, "gpt-5", "all well", end)


def test_a_run_that_failed_without_a_start() -> None:
    progress = folded(
        act("w", "completed", ok=False, kind="warning", title="no"), CompletedEvent("pi", False, "", TOKEN)
    )
    assert progress.header(101) == "failed · pi · 1s · 1 step"
    assert progress.snapshot().resume == TOKEN


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (act("a", "completed"), "✓ do a"),
        (act("a", "completed", exit_code=3), "✗ do a (exit 3)"),
        (act("a", "completed", ok=True, exit_code=1), "✓ do a (exit 1)"),
        (act("a", "completed", ok=False), "✗ do a"),
        (act("a", "updated", ok=False), "↻ do a"),
        (act("a", "completed", exit_code="3"), "✓ do a"),
        (act("a", "completed", exit_code=True), "✓ do a"),
        (act("a", title="two\nlines\tand \x1b[31mcolour\u202e"), "▸ two lines and [31mcolour"),
    ],
)
def test_lines(event: ActionEvent, line: str) -> None:
    assert folded(event).lines() == [line]


def test_a_long_command_is_cut_and_how_it_ended_is_not() -> None:
    progress = folded(act("a", "completed", ok=False, title="x" * 10_000, exit_code=127))
    assert progress.lines(width=20) == ["✗ xxxxxx… (exit 127)"]
    assert len(progress.lines(width=10_000)[0]) == MAX_TITLE + len("✗  (exit 127)")
    assert all(len(progress.lines(width=width)[0]) <= width for width in range(30))


def test_what_runs_is_shown_before_what_is_done_in_the_order_of_their_beginnings() -> None:
    done = [act(f"d{number}", "completed", ok=True) for number in range(9)]
    progress = folded(act("old"), *done[:5], act("new"), *done[5:])
    assert progress.lines(limit=4) == ["▸ do old", "▸ do new", "✓ do d7", "✓ do d8"]
    assert progress.lines(limit=1) == ["▸ do new"]
    assert progress.lines(limit=0) == []


def test_an_action_that_begins_again_runs_again() -> None:
    progress = folded(act("a", "completed", ok=False), act("b"), act("a"))
    now = progress.snapshot()
    assert (now.seen, now.running, now.done, now.failed) == (2, 2, 0, 0)
    assert progress.lines() == ["▸ do a", "▸ do b"]


def test_many_events_take_no_more_room_than_some() -> None:
    progress = Progress(0.0, keep=10)

    def feed(first: int, last: int) -> None:
        for number in range(first, last):
            progress.add(act(f"a{number}"))
            if number % 3:
                progress.add(act(f"a{number}", "completed", ok=bool(number % 2), title="y" * 500))
            for _ in range(10):
                progress.add(TextDelta("codex", f"{number:050}"))

    feed(0, 1_000)
    tracemalloc.start()
    try:
        feed(1_000, 2_000)
        grown, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    now = progress.snapshot()
    # As much as is kept was made anew meanwhile, and that is all.
    assert grown < 500_000
    assert (now.seen, now.done) == (2_000, 1_333)
    assert KEEP_RUNNING - 1 <= now.running <= KEEP_RUNNING
    assert len(now.steps) == now.running + 10
    assert len(now.text) == KEEP_TEXT
    assert now.text.endswith(f"{1_999:050}" * 10)


def test_an_id_and_a_message_of_any_length() -> None:
    event = ActionEvent("codex", Action("i" * 10**6, "note", "t"), "started", message="m" * 10**6)
    step = folded(event, event).snapshot().steps[0]
    assert len(step.id) + len(step.message or "") < 3_000
    assert step.number == 1


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-1, "0s"), (0, "0s"), (59.9, "59s"), (60, "1m 00s"), (184, "3m 04s"), (3599, "59m 59s"), (3720, "1h 02m")],
)
def test_elapsed(seconds: float, text: str) -> None:
    assert elapsed(seconds) == text


@given(st.text(st.characters(exclude_categories=())), st.integers(-3, 400))
def test_a_line_is_one_and_fits(text: str, width: int) -> None:
    line = one_line(text)
    assert line.isprintable()
    assert len(line) <= MAX_TITLE
    assert len(cut(text, width)) <= max(width, 0)
    assert cut(text, len(text)) == text


EVENTS = st.lists(
    st.builds(
        act,
        st.sampled_from("abcdef"),
        st.sampled_from(["started", "updated", "completed"]),
        ok=st.sampled_from([None, True, False]),
        kind=st.sampled_from(["command", "tool", "note", "turn"]),
    ),
    max_size=40,
)


@given(EVENTS)
def test_the_last_word_about_each_counts_and_the_first_gives_its_place(events: list[ActionEvent]) -> None:
    counted = [event for event in events if event.action.kind != "turn"]
    last = {event.action.id: event for event in counted}  # in the order of the first
    now = folded(*events).snapshot()
    assert [step.id for step in now.steps] == list(last)
    assert [(step.phase, step.ok) for step in now.steps] == [(event.phase, event.ok) for event in last.values()]
    assert [step.number for step in now.steps] == list(range(1, len(last) + 1))
    ended = [event for event in last.values() if event.phase == "completed"]
    failed = [event for event in ended if event.ok is False]
    assert (now.seen, now.done, now.failed) == (len(last), len(ended), len(failed))
    assert now.running == len(last) - len(ended)


@given(EVENTS, st.integers(1, 4), st.integers(0, 8))
def test_however_little_is_kept_the_lines_are_the_last(events: list[ActionEvent], keep: int, limit: int) -> None:
    progress = folded(*events, keep=keep)
    now = progress.snapshot()
    assert sum(step.phase == "completed" for step in now.steps) <= keep
    lines = progress.lines(limit=limit)
    assert len(lines) == min(limit, len(now.steps))
    running = sum(line[0] in "▸↻" for line in lines)
    assert running == min(limit, now.running)
