"""Text of any length in bounded memory: nothing lost below the limit, both ends and the truth about the rest above."""

from __future__ import annotations

import re

from hypothesis import example, given
from hypothesis import strategies as st

from treadle.tools import HeadTail, first_bytes, last_bytes, tokens

TEXT = st.text(st.sampled_from("ab\nä€😀"), max_size=40)


def _filled(limit: int, pieces: list[str]) -> HeadTail:
    kept = HeadTail(limit)
    for piece in pieces:
        kept.add(piece)
    return kept


def _cut(shown: str) -> tuple[str, int, str]:
    found = re.search(r"\n?\[… (\d+) (?:bytes|tokens of output) were cut here …\]\n", shown)
    assert found is not None, shown
    return shown[: found.start()], int(found.group(1)), shown[found.end() :]


@given(st.lists(TEXT, max_size=30))
def test_below_the_limit_nothing_is_lost(pieces: list[str]) -> None:
    text = "".join(pieces)
    kept = _filled(1 << 20, pieces)
    assert kept.text() == text
    assert kept.within(1 << 20) == text
    assert kept.size == len(text.encode())


@given(st.lists(TEXT, max_size=60), st.integers(64, 400))
@example(["aaäa😀", "a"], 70)  # the end of the first piece does not fit, the second one would
def test_above_the_limit_both_ends_are_kept_and_the_rest_is_counted(pieces: list[str], limit: int) -> None:
    text = "".join(pieces)
    shown = _filled(limit, pieces).text()
    assert len(shown.encode()) <= limit
    if shown == text:
        return
    start, missing, end = _cut(shown)
    assert text.startswith(start)
    assert text.endswith(end)
    # A line end before the line that tells of the cut may belong to either.
    assert len(text.encode()) - missing - len((start + end).encode()) in (0, 1)


@given(st.lists(TEXT, max_size=60), st.integers(0, 60), st.integers(64, 400))
@example(["a€"], 1, 66)
def test_a_budget_is_kept(pieces: list[str], budget: int, limit: int) -> None:
    text = "".join(pieces)
    shown = _filled(limit, pieces).within(budget)
    if shown == text:
        assert tokens(len(text.encode())) <= budget
        return
    start, missing, end = _cut(shown)
    assert text.startswith(start)
    assert text.endswith(end)
    assert len((start + end).encode()) <= budget * 4
    left_out = len(text.encode()) - len((start + end).encode())
    assert missing in (tokens(left_out), tokens(left_out - 1))


def test_the_line_about_a_cut_stands_alone() -> None:
    kept = HeadTail(1 << 20)
    kept.add("x" * 50)
    assert kept.within(5) == f"{'x' * 10}\n[… 8 tokens of output were cut here …]\n{'x' * 10}"
    assert kept.within(0) == "[… 13 tokens of output were cut here …]\n"


def test_memory_is_bounded() -> None:
    kept = HeadTail(1000)
    for _ in range(10_000):
        kept.add("0123456789")
    assert len(kept._head) + len(kept._tail) <= 3 * 1000
    assert kept.size == 100_000
    assert len(kept.text()) <= 1000


def test_a_lone_surrogate_is_no_obstacle() -> None:
    kept = HeadTail(1000)
    kept.add("a\ud800b")
    assert kept.text() == "a?b"


@given(TEXT, st.integers(0, 50))
def test_cuts_never_break_a_character(text: str, size: int) -> None:
    data = text.encode()
    assert text.startswith(first_bytes(data, size).decode())
    assert text.endswith(last_bytes(data, size).decode())
    assert len(first_bytes(data, size)) in range(min(size, len(data)) - 3, size + 1)
    assert len(last_bytes(data, size)) in range(min(size, len(data)) - 3, size + 1)


def test_tokens_are_rounded_up() -> None:
    assert [tokens(size) for size in (0, 1, 4, 5)] == [0, 1, 1, 2]
