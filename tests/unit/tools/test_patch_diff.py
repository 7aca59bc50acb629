"""Unified hunks: they lead from the old file to the new one, and look as expected."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.tools import unified
from unit.tools.patch_edits import PATIENT

HEADER = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
NO_NEWLINE = "\\ No newline at end of file"


def _apply(old: str, diff: str) -> str:
    """A second, simple reader of the format, which checks every number and every context line."""
    lines = old.split("\n")
    lines = [f"{line}\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])
    out: list[str] = []
    at = 0
    rows = diff.split("\n")
    assert rows.pop() == ""
    for index, row in enumerate(rows):
        if row == NO_NEWLINE:
            continue
        if header := HEADER.fullmatch(row):
            start, count = int(header[1]), int(header[2] or 1)
            out += lines[at : start - (count > 0)]
            at = start - (count > 0)
            assert int(header[3]) == len(out) + (int(header[4] or 1) > 0)
            continue
        ended = "" if rows[index + 1 : index + 2] == [NO_NEWLINE] else "\n"
        text = row[1:] + ended
        if row[0] != "+":
            assert lines[at] == text
            at += 1
        if row[0] != "-":
            out.append(text)
    return "".join(out + lines[at:])


LINES = st.lists(st.sampled_from(["a", "b", "c", "", "d\r"]), max_size=25).map("\n".join)


@PATIENT
@given(LINES, LINES)
def test_the_hunks_lead_from_old_to_new(old: str, new: str) -> None:
    diff = unified(old.encode(), new.encode())
    assert _apply(old, diff) == new
    assert bool(diff) == (old != new)


@PATIENT
@given(LINES, st.integers(0, 25), st.integers(0, 25))
def test_two_small_edits_of_a_long_file(text: str, first: int, second: int) -> None:
    lines = [f"{number}{line}" for number, line in enumerate(text.split("\n"))]
    new = list(lines)
    for index in sorted({first % len(lines), second % len(lines)}):
        new[index] += "!"
    old_text, new_text = "\n".join(lines), "\n".join(new)
    diff = unified(old_text.encode(), new_text.encode())
    assert _apply(old_text, diff) == new_text
    near = abs(first % len(lines) - second % len(lines)) <= 7
    assert diff.count("@@ -") == (1 if near else 2)


@pytest.mark.parametrize(
    ("old", "new", "diff"),
    [
        (b"", b"a\n", "@@ -0,0 +1 @@\n+a\n"),
        (b"a\n", b"", "@@ -1 +0,0 @@\n-a\n"),
        (b"a", b"b\n", f"@@ -1 +1 @@\n-a\n{NO_NEWLINE}\n+b\n"),
        (b"a\nb\n", b"a\nx\nb\n", "@@ -1,2 +1,3 @@\n a\n+x\n b\n"),
        (b"\xff\n", b"a\n", "@@ -1 +1 @@\n-\ufffd\n+a\n"),
    ],
)
def test_examples(old: bytes, new: bytes, diff: str) -> None:
    assert unified(old, new) == diff


def test_large_rewrites_are_one_hunk_and_still_right() -> None:
    old = "".join(f"old {number}\nsame\n" for number in range(1500))
    new = "".join(f"new {number}\nsame\n" for number in range(1500))
    diff = unified(old.encode(), new.encode())
    assert diff.count("@@ -") == 1
    assert _apply(old, diff) == new
