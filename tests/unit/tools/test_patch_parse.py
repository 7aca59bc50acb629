"""The grammar of patches: what is read, what is forgiven, and how the rest is refused."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from treadle.tools.patch import AddFile, DeleteFile, Hunk, HunkLine, Patch, PatchError, UpdateFile, parse
from unit.tools.patch_edits import PATIENT

FULL = """\
*** Begin Patch
*** Add File: new/file.txt
+first
+
+ indented
*** Delete File: old.txt
*** Update File: a b.py
*** Move to: c.py
@@ class A:
@@     def run(self):
 context
-gone
+come

 last
*** End of File
@@
-x
*** End Patch"""


def _line(text: str) -> HunkLine:
    mark = text[0]
    assert mark in (" ", "-", "+")
    return HunkLine(mark, text[1:])  # type: ignore[arg-type]


EXPECTED = Patch(
    (
        AddFile(line=2, path="new/file.txt", content="first\n\n indented\n"),
        DeleteFile(line=6, path="old.txt"),
        UpdateFile(
            line=7,
            path="a b.py",
            move_path="c.py",
            hunks=(
                Hunk(
                    line=9,
                    anchors=("class A:", "    def run(self):"),
                    lines=tuple(map(_line, [" context", "-gone", "+come", " ", " last"])),
                    at_end=True,
                ),
                Hunk(line=17, lines=(_line("-x"),)),
            ),
        ),
    )
)


def _patch(*lines: str) -> str:
    return "\n".join(["*** Begin Patch", *lines, "*** End Patch"])


def test_everything_at_once() -> None:
    assert parse(FULL) == EXPECTED


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("\n \n", "\n\n"),
        ("<<EOF\n", "\nEOF"),
        ("<<'EOF'\n", "\nEOF\n"),
        ('<<"PATCH"\n', "\nPATCH"),
        ("apply_patch <<'EOF'\n", "\nEOF\n"),
    ],
)
def test_what_may_be_around_it(before: str, after: str) -> None:
    shifted = parse(before + FULL + after)
    assert [section.path for section in shifted.sections] == [section.path for section in EXPECTED.sections]
    assert shifted.sections[0].line == 2 + before.count("\n")


def test_a_patch_with_crlf_is_the_same_patch() -> None:
    assert parse(FULL.replace("\n", "\r\n")) == EXPECTED


def test_a_carriage_return_in_an_added_file_is_content() -> None:
    patch = parse("*** Begin Patch\n*** Add File: a\n+x\r\n*** End Patch")
    assert patch.sections == (AddFile(line=2, path="a", content="x\r\n"),)


def test_indented_headers_and_empty_lines_between_sections() -> None:
    patch = parse(
        " *** Begin Patch\n\n  *** Add File: a\n+x\n\n *** Delete File: b\n*** Update File: c\n\n@@\n-y\n\n"
        "*** Delete File: d\n *** End Patch "
    )
    assert [section.path for section in patch.sections] == ["a", "b", "c", "d"]
    update = patch.sections[2]
    assert isinstance(update, UpdateFile)
    assert update.hunks[0].lines == (_line("-y"),)


def test_an_indented_header_in_a_hunk_is_content() -> None:
    patch = parse("*** Begin Patch\n*** Update File: c\n *** Delete File: b\n+x\n*** End Patch")
    (update,) = patch.sections
    assert isinstance(update, UpdateFile)
    assert update.hunks[0].lines == (_line(" *** Delete File: b"), _line("+x"))


def test_line_numbers_of_a_unified_diff_are_no_anchor() -> None:
    text = _patch("*** Update File: c", "@@ -1,3 +1,4 @@ def f():", "-x", "\\ No newline at end of file", "+y")
    (update,) = parse(text).sections
    assert isinstance(update, UpdateFile)
    assert update.hunks == (Hunk(line=3, lines=(_line("-x"), _line("+y"))),)


def test_a_move_needs_no_hunk() -> None:
    (update,) = parse("*** Begin Patch\n*** Update File: a\n*** Move to: b\n*** End Patch").sections
    assert update == UpdateFile(line=2, path="a", move_path="b")


@pytest.mark.parametrize(
    ("text", "line", "expected"),
    [
        ("", 1, "*** Begin Patch, got ''"),
        ("hello", 1, "*** Begin Patch, got 'hello'"),
        ("*** Begin Patch\n*** Delete File: a", 2, "*** End Patch as the last line"),
        ("*** Begin Patch", 1, "*** End Patch as the last line"),
        ("<<EOF\n*** Begin Patch\n*** Delete File: a\n*** End Patch", 1, "*** Begin Patch, got '<<EOF'"),
        (_patch(), 2, "at least one"),
        (_patch("*** Delete File: "), 2, "a path after"),
        (_patch("*** Delete File: a", "*** End Patch", "*** Delete File: b"), 4, "nothing after"),
        (_patch("*** End Patch now"), 2, "without more on its line"),
        (_patch("*** Rename File: a"), 2, "*** Add File: path"),
        (_patch("*** Add File: a", "+x", "y"), 4, "*** Add File: path"),
        (_patch("*** Add File: a", "+x", "", "+y"), 5, "*** Add File: path"),
        (_patch("*** Update File: a"), 3, "a hunk for"),
        (_patch("*** Update File: a", "*** Move to:", "-x"), 3, "a path after"),
        (_patch("*** Update File: a", "@@"), 4, "starts with ' ', '-' or '+'"),
        (_patch("*** Update File: a", "@@", "*** End of File"), 4, "starts with ' ', '-' or '+'"),
        (_patch("*** Update File: a", "-x", "*** End of File", "-y"), 5, "@@ before the next hunk"),
        (_patch("*** Update File: a", "-x", "what?"), 4, "or a header, got 'what?'"),
        (_patch("*** Add File: a", "+\ud800"), 3, "half a character"),
    ],
)
def test_refusals_name_the_line_and_what_was_expected(text: str, line: int, expected: str) -> None:
    with pytest.raises(PatchError) as caught:
        parse(text)
    assert (caught.value.reason, caught.value.line) == ("syntax", line), caught.value.message
    assert f"line {line} of the patch" in caught.value.message
    assert expected in caught.value.message


def test_a_patch_that_is_too_long() -> None:
    with pytest.raises(PatchError, match="split it"):
        parse("*" * (8 * 1024 * 1024 + 1))


def test_errors_do_not_repeat_long_lines() -> None:
    with pytest.raises(PatchError) as caught:
        parse("x" * 100_000)
    assert len(caught.value.message) < 400


PIECES = st.sampled_from(
    [*FULL.split("\n"), "", " ", "\r", "@@", "*** ", "***", "\\ No newline at end of file", "<<EOF", "EOF", "\ud800"]
)


@PATIENT
@given(st.one_of(st.text(), st.lists(st.one_of(PIECES, st.text(max_size=5)), max_size=15).map("\n".join)))
@example("\n")
def test_any_text_is_read_or_refused(text: str) -> None:
    for candidate in (text, f"*** Begin Patch\n{text}\n*** End Patch"):
        outcome = _outcome(candidate)
        if isinstance(outcome, Patch):
            assert outcome.sections
        else:
            assert outcome.reason == "syntax"
            assert outcome.line is not None
            assert 1 <= outcome.line <= candidate.count("\n") + 1


def _outcome(text: str) -> Patch | PatchError:
    try:
        return parse(text)
    except PatchError as error:
        return error


def test_many_empty_lines_take_no_time_to_speak_of() -> None:
    """Quadratic reading of this one would take hours, and the test would time out."""
    empty = "\n" * 300_000
    with pytest.raises(PatchError):
        parse(f"*** Begin Patch\n*** Update File: a\n@@\n{empty}?\n*** End Patch")
