"""Hooks on a terminal and in a pipe: those that refuse, fail or have something to say."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from treadle.cli import PlainTurn, TurnRenderer
from treadle.protocol.app import HookCompletedNotification, HookOutputEntry, HookRunSummary


def ended(status: str, *entries: tuple[str, str]) -> HookCompletedNotification:
    run = HookRunSummary(
        id="pre-tool-use:0:/h.json",
        display_order=0,
        entries=tuple(HookOutputEntry(kind=kind, text=text) for kind, text in entries),
        event_name="preToolUse",
        execution_mode="sync",
        handler_type="command",
        scope="turn",
        source_path="/h.json",
        started_at=0,
        status=status,
    )
    return HookCompletedNotification(thread_id="t", run=run)


def live(params: HookCompletedNotification) -> str:
    file = StringIO()
    console = Console(file=file, width=80, highlight=False, markup=False, emoji=False)
    for block in TurnRenderer(0.0).show("hook/completed", params, 1.0):
        console.print(block)
    return file.getvalue()


def plain(params: HookCompletedNotification) -> str:
    written: list[str] = []
    PlainTurn(written.append, color=False).show("hook/completed", params)
    return "".join(written)


@pytest.mark.parametrize(
    ("params", "on_terminal", "in_pipe"),
    [
        (ended("completed"), "", ""),
        (ended("completed", ("context", "for the model")), "", ""),
        (
            ended("blocked", ("feedback", "not\nhere")),
            "✗ hook PreToolUse · blocked: not here\n",
            "hook PreToolUse: blocked: not here\n",
        ),
        (ended("failed", ("error", "timed out")), "✗ hook PreToolUse · failed: timed out\n", None),
        (ended("completed", ("warning", "late")), "✓ hook PreToolUse: late\n", "hook PreToolUse: late\n"),
    ],
)
def test_what_is_shown_of_a_hook(params: HookCompletedNotification, on_terminal: str, in_pipe: str | None) -> None:
    assert live(params) == on_terminal
    if in_pipe is not None:
        assert plain(params) == in_pipe


def test_what_a_hook_says_is_made_visible() -> None:
    evil = ended("blocked", ("feedback", "not\x1b[2J here"))
    assert "\x1b" not in live(evil) + plain(evil)
