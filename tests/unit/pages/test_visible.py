"""Nothing that somebody else wrote acts on the terminal."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.pages import printable, printable_line


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("two\nlines\tand a tab", "two\nlines\tand a tab"),
        ("\x1b[2J\x1b[H", "\\x1b[2J\\x1b[H"),
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("\x1b]52;c;aGk=\x1b\\", "\\x1b]52;c;aGk=\\x1b\\"),
        ("\x9b2J", "\\x9b2J"),
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("password:\rharmless", "password:\nharmless"),
        ("dos\r\nlines", "dos\nlines"),
        ("a\u202eb\u2066c\u2028d", "a\\u202eb\\u2066c\\u2028d"),
        ("half \ud800", "half \\ud800"),
        ("tag \U000e0041", "tag \\U000e0041"),
        ("ünïcödé 🧵 \u200d", "ünïcödé 🧵 \u200d"),
    ],
)
def test_what_is_shown(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_a_line_stays_one() -> None:
    assert printable_line("a\nb\rc") == "a\\nb\\nc"


@given(st.text(st.characters(exclude_categories=())))
def test_no_control_character_is_left(text: str) -> None:
    shown = printable(text)
    left = {letter for letter in shown if unicodedata.category(letter) in ("Cc", "Cs")} - {"\n", "\t"}
    assert left == set()
    assert printable(shown) == shown
