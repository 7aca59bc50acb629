"""The live view of a run, without a terminal: events in, lines out."""

from __future__ import annotations

import io

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from treadle.cli import RUNNING_LINES, RunRenderer
from treadle.runners import (
    Action,
    ActionEvent,
    ActionKind,
    CompletedEvent,
    Event,
    Phase,
    ResumeToken,
    StartedEvent,
    TextDelta,
)

TOKEN = ResumeToken("codex", "0199a213-81c0-7800-8aa1-bbab2a035a53")


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def action(
    id: str,
    phase: Phase,
    title: str = "ls",
    *,
    kind: ActionKind = "command",
    ok: bool | None = None,
    code: int | None = None,
) -> ActionEvent:
    detail = {} if code is None else {"exit_code": code}
    return ActionEvent("codex", Action(id, kind, title, detail), phase, ok=ok)


def plain(lines: list[Text]) -> list[str]:
    return [line.plain for line in lines]


def test_time_passes_between_events() -> None:
    clock = Clock()
    frame = RunRenderer("codex", clock)
    frame.take(StartedEvent("codex", TOKEN, "gpt-5.5"), 80)
    frame.take(action("a", "started", "make test"), 80)
    clock.now = 63
    running, status = plain(frame.lines(80, 24))
    assert running == "▸ make test · 1m 03s"
    assert status[2:] == "codex · gpt-5.5 · 1m 03s"


def test_what_is_done_stays_with_its_time_and_its_exit_code() -> None:
    clock = Clock()
    frame = RunRenderer("codex", clock)
    assert frame.take(action("a", "started", "false"), 80) == []
    clock.now = 1.5
    assert plain(frame.take(action("a", "completed", "false", ok=False, code=3), 80)) == ["✗ false (exit 3) · 1.5s"]
    assert plain(frame.take(action("b", "completed", "add x.py", kind="file_change", ok=True), 80)) == ["✓ add x.py"]
    [status] = plain(frame.lines(80, 24))
    assert status.endswith("· 2 done (1 failed)")


def test_a_long_command_loses_its_end_and_not_its_time() -> None:
    clock = Clock()
    frame = RunRenderer("codex", clock)
    frame.take(action("a", "started", "x" * 300), 40)
    clock.now = 2
    assert plain(frame.lines(40, 24))[0] == f"▸ {'x' * 30}… · 2.0s"
    assert plain(frame.take(action("a", "completed", "x" * 300, ok=True), 40)) == [f"✓ {'x' * 30}… · 2.0s"]


def test_wide_letters_count_twice() -> None:
    frame = RunRenderer("codex", Clock())
    [line] = frame.take(action("a", "completed", "宽" * 100, ok=True), 40)
    assert 36 <= cell_len(line.plain) <= 40


def test_many_running_actions_are_counted() -> None:
    frame = RunRenderer("codex", Clock())
    for number in range(20):
        frame.take(action(str(number), "started", f"job {number}"), 80)
    lines = plain(frame.lines(80, 24))
    assert lines[:2] == ["… 13 more", "▸ job 13"]
    assert lines[-2] == "▸ job 19"
    assert len(lines) == RUNNING_LINES + 1


def test_text_is_shown_as_it_streams_until_something_is_done_about_it() -> None:
    frame = RunRenderer("claude", Clock())
    frame.take(TextDelta("claude", "I will look\nat \x1b[2J"), 80)
    frame.take(TextDelta("claude", "it"), 80)
    assert plain(frame.lines(80, 24))[:2] == ["I will look", "at \\x1b[2Jit"]
    frame.take(action("a", "started"), 80)
    frame.take(TextDelta("claude", "Seen."), 80)
    assert plain(frame.lines(80, 24))[:2] == ["▸ ls", "Seen."]


def test_what_had_not_ended_is_said_at_the_end() -> None:
    frame = RunRenderer("codex", Clock())
    frame.take(action("a", "started", "sleep 100"), 80)
    frame.take(action("r", "started", "Reconnecting... 1/5", kind="note"), 80)  # nothing that has an end
    told = frame.take(CompletedEvent("codex", ok=False, answer="", error="cancelled"), 80)
    assert plain(told) == ["– sleep 100 · had not ended"]


def test_notes_and_warnings_are_told_apart_and_turns_are_not_told() -> None:
    frame = RunRenderer("codex", Clock())
    assert frame.take(action("t", "started", "turn 1", kind="turn"), 80) == []
    assert plain(frame.take(action("n", "completed", "thinking", kind="note", ok=True), 80)) == ["· thinking"]
    assert plain(frame.take(action("w", "completed", "no network", kind="warning", ok=False), 80)) == ["! no network"]
    frame.note = "stopping codex…"
    assert plain(frame.lines(80, 24))[-1] == "stopping codex…"


texts = st.text(max_size=120)
events = st.one_of(
    st.builds(TextDelta, st.just("codex"), texts),
    st.builds(
        ActionEvent,
        st.just("codex"),
        st.builds(Action, st.sampled_from("abcdefghijkl"), st.sampled_from(["command", "note", "warning"]), texts),
        st.sampled_from(["started", "updated", "completed"]),
        ok=st.sampled_from([None, True, False]),
    ),
)


@given(st.lists(events, max_size=40), st.integers(10, 120), st.integers(2, 30))
def test_nothing_is_wider_or_higher_than_the_terminal_or_acted_upon(
    happened: list[Event], width: int, height: int
) -> None:
    frame = RunRenderer("codex", Clock())
    kept = [line for event in happened for line in frame.take(event, width)]
    drawn = frame.lines(width, height)
    assert len(drawn) <= max(3, height)
    for line in (*kept, *drawn[:-1]):
        assert line.cell_len <= max(width, 16)
        assert not any(letter < " " or letter == "\x7f" for letter in line.plain if letter != "\t")
    Console(file=io.StringIO(), width=width).print(*drawn)
