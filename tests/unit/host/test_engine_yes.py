"""What a yes for the session is a yes to, when an engine asks."""

from __future__ import annotations

from typing import Any

import pytest

from treadle.host import Ask, Choice, EngineRuntime, EngineTurn, Opening
from treadle.runners import ApprovalAsk

pytestmark = pytest.mark.anyio
BASH = {"command": "make", "description": "Build it"}


async def asked_again(first: tuple[str, dict[str, Any]], second: tuple[str, dict[str, Any]]) -> bool:
    """Whether the person is asked for the second, after a yes for the session to the first."""
    asks: list[Ask] = []

    async def person(ask: Ask) -> Choice:
        asks.append(ask)
        return "session"

    runtime = EngineRuntime("claude", command="/nonexistent/claude")
    await runtime.open(Opening(), person)
    await runtime.start_turn("hello", {})
    turn = runtime._turn
    assert isinstance(turn, EngineTurn)
    try:
        for number, (tool, given) in enumerate((first, second)):
            answer = await turn._approve(ApprovalAsk(id=str(number), tool=tool, input=given))
            assert answer.allow
    finally:
        await runtime.close()
    return len(asks) == 2


@pytest.mark.parametrize(
    ("first", "second", "asked"),
    [
        (("Bash", BASH), ("Bash", {**BASH, "description": "Again"}), False),
        (("Bash", BASH), ("Bash", {"command": "make install"}), True),
        (("Bash", BASH), ("Bash", {**BASH, "dangerouslyDisableSandbox": True}), True),
        (("Edit", {"file_path": "a", "old_string": "1"}), ("Edit", {"file_path": "a", "old_string": "2"}), False),
        (("Edit", {"file_path": "a"}), ("Edit", {"file_path": "b"}), True),
        (("Edit", {"where": "a"}), ("Edit", {"where": "b"}), True),
    ],
)
async def test_a_yes_for_the_session(
    first: tuple[str, dict[str, Any]], second: tuple[str, dict[str, Any]], asked: bool
) -> None:
    assert await asked_again(first, second) is asked
