"""Where an answer is cut. The rows are what codex 0.166 made of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.agent import PlanCutter, cut

OPEN, CLOSE = "<proposed_plan>", "</proposed_plan>"
ROWS: list[tuple[str, str, str | None]] = [
    (f"intro\n{OPEN}\n# Plan\n- a\n{CLOSE}\noutro", "intro\noutro", "# Plan\n- a\n"),
    (f"{OPEN}\n# Plan\n- a\n{CLOSE}", "", "# Plan\n- a\n"),
    (f"a {OPEN} inline {CLOSE} b", f"a {OPEN} inline {CLOSE} b", None),
    (f"a\n{OPEN}\nunclosed\nplan", "a\n", "unclosed\nplan"),
    (f"a\n{OPEN}\nP1\n{CLOSE}\nmid\n{OPEN}\nP2\n{CLOSE}\nend", "a\nmid\nend", "P2\n"),
    (f"a\n  {OPEN}  \nP1\n  {CLOSE}  \nend", "a\nend", "P1\n"),
    ("nothing", "nothing", None),
    (f"x\n{OPEN}rest\nP\n{CLOSE} tail\nend\n{CLOSE}", f"x\n{OPEN}rest\nP\n{CLOSE} tail\nend\n{CLOSE}", None),
    (f"\n\n{OPEN}\nP\n{CLOSE}\n\n", "\n\n\n", "P\n"),
    (f"a\n{OPEN}\nP\n{OPEN}\nQ\n{CLOSE}\n", "a\n", f"P\n{OPEN}\nQ\n"),
    (f"a\r\n{OPEN}\r\nP\r\n{CLOSE}\r\nb", "a\r\nb", "P\r\n"),
    (f"a\n{OPEN}", "a\n", ""),
    (f"{OPEN}\n{CLOSE}\nx", "x", ""),
    ("", "", None),
]


@pytest.mark.parametrize(("text", "message", "plan"), ROWS)
def test_a_whole_answer(text: str, message: str, plan: str | None) -> None:
    assert cut(text) == (message, plan)


LINES = st.sampled_from([OPEN, CLOSE, f" {OPEN} ", "<proposed", "word", "", "  ", f"x{OPEN}", f"{CLOSE}y"])


@given(st.lists(LINES), st.lists(st.integers(1, 20)))
def test_however_it_arrives_it_is_cut_alike(lines: list[str], sizes: list[int]) -> None:
    text = rest = "\n".join(lines)
    cutter = PlanCutter()
    pieces = []
    for size in sizes:
        pieces += cutter.feed(rest[:size])
        rest = rest[size:]
    pieces += [*cutter.feed(rest), *cutter.finish()]
    message, plan = cut(text)
    last = max((piece.plan for piece in pieces), default=0)
    assert "".join(piece.text for piece in pieces if not piece.plan) == message
    assert "".join(piece.text for piece in pieces if piece.plan == last) == (plan if last else message)
    assert (plan is None) == (last == 0)


def test_a_word_is_not_held_back() -> None:
    cutter = PlanCutter()
    assert [piece.text for piece in cutter.feed("<prop")] == []
    assert [piece.text for piece in cutter.feed("er> it is")] == ["<proper> it is"]
    assert [piece.text for piece in cutter.feed(" <proposed_plan>")] == [" <proposed_plan>"]
