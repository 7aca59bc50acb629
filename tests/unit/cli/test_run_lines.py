"""A run as plain lines."""

from __future__ import annotations

from treadle.cli import LineView, usage
from treadle.pages import took
from treadle.runners import Action, ActionEvent, CompletedEvent, Event, ResumeToken, StartedEvent, TextDelta

TOKEN = ResumeToken("codex", "0199a213-81c0-7800-8aa1-bbab2a035a53")


def shown(*events: Event, color: bool = False) -> list[str]:
    lines: list[str] = []
    now = 0.0
    view = LineView(lines.append, color=color, clock=lambda: now)
    for event in events:
        now += 0.5
        view.show(event)
    return [line.removesuffix("\n") for line in lines]


def test_a_line_when_it_begins_and_one_when_it_has_ended() -> None:
    ls = Action("a", "command", "ls\x1b[2J\nrm")
    assert shown(
        StartedEvent("codex", TOKEN, "gpt-5.5"),
        ActionEvent("codex", Action("t", "turn", "turn 1"), "started"),
        ActionEvent("codex", ls, "started"),
        ActionEvent("codex", ls, "updated"),
        ActionEvent("codex", ls, "completed", ok=True),
        TextDelta("codex", "Hello"),
        CompletedEvent("codex", ok=True, answer="Hello"),
    ) == ["codex · gpt-5.5", "▸ ls\\x1b[2J\\nrm", "✓ ls\\x1b[2J\\nrm · 1.0s"]


def test_an_update_is_told_when_it_has_something_new() -> None:
    told = shown(
        ActionEvent("codex", Action("r", "note", "Reconnecting... 1/5"), "started"),
        ActionEvent("codex", Action("r", "note", "Reconnecting... 1/5"), "updated"),
        ActionEvent("codex", Action("r", "note", "Reconnecting... 2/5"), "updated"),
    )
    assert told == ["▸ Reconnecting... 1/5", "▸ Reconnecting... 2/5"]


def test_failures_are_red() -> None:
    failed = ActionEvent("codex", Action("a", "command", "false", {"exit_code": 1}), "completed", ok=False)
    assert shown(failed, color=True) == ["\x1b[31m✗ false (exit 1)\x1b[0m"]


def test_usage_in_words() -> None:
    assert usage(None) == ""
    assert usage({"input_tokens": 1200, "output_tokens": 34}) == "1,200 tokens in, 34 out"
    used = {"input_tokens": 12, "cached_input_tokens": 2, "output_tokens": 3, "cost_usd": 0.0123, "scope": "session"}
    assert usage(used) == "12 tokens in (2 cached), 3 out · $0.0123 · in the whole session"
    assert usage({"cost_usd": 0.5}) == "$0.5000"


def test_durations() -> None:
    assert [took(seconds) for seconds in (0.01, 0.4, 12, 75)] == ["", " · 0.4s", " · 12s", " · 1m 15s"]
