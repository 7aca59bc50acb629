"""Output that comes in pieces, as lines."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from treadle.cli import OutputLines
from treadle.cli.turn.output_view import MAX_LINE


def test_a_line_ends_with_its_last_piece_and_a_split_line_end_is_one() -> None:
    lines = OutputLines()
    assert lines.add("one\ntw") == ["one"]
    assert lines.add("o\r") == []
    assert lines.add("\nthree\r") == ["two"]
    assert lines.add("four") == ["three"]
    assert (lines.end("not this"), lines.count, lines.rest) == (["four"], 4, "")


def test_what_never_came_is_taken_from_the_whole() -> None:
    lines = OutputLines()
    assert lines.end("a\nb") == ["a", "b"]
    assert lines.count == 2


def test_a_line_without_an_end_is_bounded() -> None:
    lines = OutputLines()
    assert [len(line) for line in lines.add("x" * (2 * MAX_LINE + 1))] == [MAX_LINE, MAX_LINE]
    assert lines.rest == "x"


@given(st.lists(st.text(alphabet="ab\r\n", max_size=8), max_size=8))
def test_pieces_make_no_difference(pieces: list[str]) -> None:
    apart, whole = OutputLines(), OutputLines()
    got = [line for piece in pieces for line in apart.add(piece)] + apart.end(None)
    assert got == whole.add("".join(pieces)) + whole.end(None)
