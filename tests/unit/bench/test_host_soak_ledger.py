"""What the soak of the host takes for lost, doubled or strange: a ledger that sees nothing would look like a result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from bench.host_soak.ledger import Ledger, Turn
from bench.host_soak.plan import KINDS, turns

Row = dict[str, Any]


def call(number: int) -> list[Row]:
    called = {"id": f"c{number}", "type": "function", "function": {"name": "tool", "arguments": "{}"}}
    return [
        {"role": "assistant", "content": "", "tool_calls": [called]},
        {"role": "tool", "tool_call_id": f"c{number}", "name": "tool", "content": "done"},
    ]


def user(words: str) -> Row:
    return {"role": "user", "content": words}


def assistant(words: str) -> Row:
    return {"role": "assistant", "content": words}


def ledger() -> Ledger:
    made = Ledger()
    made.turns += [
        Turn(1, "[turn 1 tool]", completed=True),
        Turn(2, "[turn 2 kill]", completed=False),
        Turn(3, "[turn 3 steer]", completed=True, steered="[steer 3]"),
    ]
    return made


def kept() -> list[Row]:
    first = [user("[turn 1 tool]"), *call(1), assistant("[answer 1]")]
    second = [user("[turn 2 kill]"), assistant("[answ")]
    return [*first, *second, user("[turn 3 steer]"), user("[steer 3]"), assistant("[answer 3]")]


def problems(rows: list[Row], state: str = "done", shown: list[Row] | None = None) -> list[str]:
    return ledger().check([(state, row) for row in rows], rows if shown is None else shown)


def test_nothing_is_wrong() -> None:
    assert problems(kept()) == []


@pytest.mark.parametrize(
    ("break_it", "words"),
    [
        (lambda rows: rows.pop(0), "[turn 1 tool]' is there 0 times"),
        (lambda rows: rows.insert(0, rows[0]), "[turn 1 tool]' is there 2 times"),
        (lambda rows: rows.pop(3), "turn 1: the answer is there 0 times"),
        (lambda rows: rows.insert(3, rows[3]), "turn 1: the answer is there 2 times"),
        (lambda rows: rows.append(rows.pop(3)), "is not of this turn"),
        (lambda rows: rows.pop(2), "1 calls have 0 results"),
        (lambda rows: rows.pop(1), "0 calls have 1 results"),
        (lambda rows: rows.extend(call(1)), "the call c1 is there 2 times"),
        (lambda rows: rows.pop(7), "said to have said []"),
        (lambda rows: rows.insert(5, user("who?")), "said to have said ['who?']"),
    ],
)
def test_what_is_wrong_is_seen(break_it: Callable[[list[Row]], object], words: str) -> None:
    rows = kept()
    break_it(rows)
    assert any(words in problem for problem in problems(rows)), problems(rows)


def test_a_turn_that_is_open_and_a_store_that_differs_are_seen() -> None:
    assert problems(kept(), state="open")
    assert problems(kept(), shown=kept()[:-1])


def test_a_seed_is_a_plan() -> None:
    first, again, other = ([*turns("app_server", 200, seed)] for seed in (1, 1, 2))
    assert first == again != other
    assert not any(kind.needs_process for kind in turns("responses", 500, 1))
    assert {kind.name for kind in turns("app_server", 5000, 1)} == {kind.name for kind in KINDS}
