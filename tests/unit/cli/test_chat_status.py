"""The line at the bottom, and what is known of a thread, in words."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from treadle.cli import ChatThread, sandbox_words, status_line
from treadle.protocol.app import (
    ActivePermissionProfile,
    DangerFullAccessSandboxPolicy,
    ReadOnlySandboxPolicy,
    ThreadTokenUsage,
    TokenUsageBreakdown,
    UsageCost,
    WorkspaceWriteSandboxPolicy,
)


def _facts(**given: Any) -> ChatThread:
    answer = SimpleNamespace(
        thread=SimpleNamespace(id="0199a213-81c0-7800-8aa1-bbab2a035a53", name=None, environments=None),
        model="gpt-5.5",
        model_provider="openai",
        reasoning_effort=None,
        cwd="/w",
        sandbox=ReadOnlySandboxPolicy(),
        approval_policy="on-request",
        active_permission_profile=None,
    )
    return msgspec.structs.replace(ChatThread.of(answer), **given)


def _usage(tokens: int, cost: float | None = None) -> ThreadTokenUsage:
    count = TokenUsageBreakdown(
        cached_input_tokens=0, input_tokens=tokens, output_tokens=0, reasoning_output_tokens=0, total_tokens=tokens
    )
    return ThreadTokenUsage(last=count, total=count, model_context_window=100_000, cost=UsageCost(thread_usd=cost))


def test_it_has_model_sandbox_thread_tokens_cost_and_context() -> None:
    line = status_line(_facts(usage=_usage(12_345, 0.5)), 100)
    assert line == "gpt-5.5 · read-only · thread 2a035a53 · 12.3k tokens · $0.5000 · 88% context left"


@pytest.mark.parametrize(
    ("width", "line"),
    [
        (60, "gpt-5.5 · read-only · thread 2a035a53 · 12.3k tokens"),
        (40, "gpt-5.5 · read-only · 12.3k tokens"),
        (20, "gpt-5.5 · read-only"),
        (5, "gpt-5"),
    ],
)
def test_what_does_not_fit_is_left_out(width: int, line: str) -> None:
    assert status_line(_facts(usage=_usage(12_345)), width) == line


def test_names_are_harmless() -> None:
    assert "\x1b" not in status_line(_facts(model="evil\x1b[2J", name="a\nb"), 100)


@pytest.mark.parametrize(
    ("policy", "profile", "words"),
    [
        (ReadOnlySandboxPolicy(), None, "read-only"),
        (WorkspaceWriteSandboxPolicy(), ActivePermissionProfile(id=":workspace"), "workspace-write"),
        (DangerFullAccessSandboxPolicy(), None, "danger-full-access"),
        (ReadOnlySandboxPolicy(), ActivePermissionProfile(id="mine"), "mine (profile)"),
        (object(), None, "unknown"),
    ],
)
def test_a_sandbox_is_called_as_its_option(policy: Any, profile: Any, words: str) -> None:
    assert sandbox_words(policy, profile) == words
