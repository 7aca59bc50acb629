"""What a patch does to files: matching, endings, sections that add up, and refusals."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from treadle.tools.patch import FileChange, PatchError, parse, paths, plan
from treadle.tools.patch.planner import _plain
from unit.tools.patch_edits import PATIENT, TEXT, FileEdit, edits, file_bytes, update_patch

CWD = "/work"


def _plan(text: str, files: dict[str, bytes]) -> list[FileChange]:
    return plan(parse(text), files.get, CWD)


def _patch(*lines: str) -> str:
    return "\n".join(["*** Begin Patch", *lines, "*** End Patch"])


def _updated(data: bytes, *lines: str) -> bytes:
    (change,) = _plan(_patch("*** Update File: f", *lines), {"/work/f": data})
    assert change.old == data
    assert change.new is not None
    return change.new


def _refused(data: bytes, *lines: str) -> PatchError:
    with pytest.raises(PatchError) as caught:
        _updated(data, *lines)
    assert caught.value.reason == "mismatch"
    assert caught.value.path == "/work/f"
    return caught.value


# --- random edits ----------------------------------------------------------------------------------------------------

FILES = st.lists(TEXT, min_size=1, max_size=12)
ENDINGS = st.sampled_from(["\n", "\r\n"])


@PATIENT
@given(edits(FILES), ENDINGS, st.booleans())
def test_any_edit_of_any_file_with_all_of_it_as_context(edit: FileEdit, ending: str, unfinished: bool) -> None:
    assume(not unfinished or (edit.old[-1] and edit.new and edit.new[-1]))  # else its end cannot be told
    hunks = edit.hunks(len(edit.steps))
    assume(hunks)
    data = file_bytes(edit.old, ending, unfinished)
    assume(data.count(b"\n") * 2 > len(edit.old) or ending == "\n")  # else one line alone cannot tell its ending
    (change,) = _plan(update_patch("f", hunks), {"/work/f": data})
    assert change.new == file_bytes(edit.new, ending, unfinished)


@PATIENT
@given(edits(st.lists(TEXT, min_size=1, max_size=30, unique=True)), st.integers(0, 3))
def test_any_edit_with_a_little_context(edit: FileEdit, context: int) -> None:
    hunks = edit.hunks(context)
    assume(hunks)
    (change,) = _plan(update_patch("f", hunks), {"/work/f": file_bytes(edit.old)})
    assert change.new == file_bytes(edit.new)


LOOK_ALIKES = {"-": "\u2013", "'": "\u2019", '"': "\u201c", " ": "\u00a0"}
WORDS = st.text(st.sampled_from("abc-'\" "), max_size=8)
SPACES = st.sampled_from(["", " ", "\t", "   "])


@PATIENT
@given(
    edits(st.lists(WORDS, min_size=1, max_size=20, unique_by=_plain)),
    st.integers(0, 2),
    st.data(),
)
def test_drift_of_white_space_and_punctuation_is_tolerated(edit: FileEdit, context: int, data: st.DataObject) -> None:
    def drift(line: str) -> str:
        drifted = "".join(LOOK_ALIKES.get(c, c) if data.draw(st.booleans()) else c for c in line)
        return data.draw(SPACES) + drifted + data.draw(SPACES)

    hunks = edit.hunks(context, drift)
    assume(hunks)
    (change,) = _plan(update_patch("f", hunks), {"/work/f": file_bytes(edit.old)})
    assert change.new == file_bytes(edit.new)  # the lines that stay are those of the file, not those of the patch


@PATIENT
@given(edits(st.lists(st.sampled_from("ab"), min_size=1, max_size=8)), st.integers(0, 2))
def test_a_file_full_of_repeats_is_edited_right_or_not_at_all(edit: FileEdit, context: int) -> None:
    hunks = edit.hunks(context)
    assume(len(hunks) == 1)
    try:
        (change,) = _plan(update_patch("f", hunks), {"/work/f": file_bytes(edit.old)})
    except PatchError as error:
        message = error.message
    else:
        assert change.new == file_bytes(edit.new)
        return
    assert "fits several places" in message


# --- matching --------------------------------------------------------------------------------------------------------


def test_the_closest_stage_decides() -> None:
    assert _updated(b"  x\nx\n", "-x", "+y") == b"  x\ny\n"


def test_hunks_go_on_where_the_last_one_ended() -> None:
    assert _updated(b"a\nx\nb\nx\n", "@@", " a", "-x", "@@", "-x", "+z") == b"a\nb\nz\n"


def test_hunks_out_of_order_are_refused_with_the_place() -> None:
    error = _refused(b"one\ntwo\nthree\n", "@@", "-three", "@@", "-one")
    assert "at line 1, before the end of the previous hunk" in error.message
    assert error.line == 5


def test_an_unmatched_hunk_shows_what_was_looked_for() -> None:
    error = _refused(b"one\n", " one", "-zwei", "+two")
    assert error.message.endswith("Looked for:\none\nzwei")
    assert "line 3 of the patch in /work/f" in error.message


def test_an_ambiguous_hunk_names_the_places() -> None:
    error = _refused(b"x\ny\nx\ny\n", "-x", "+z")
    assert "(lines 1, 3)" in error.message


REPEATS = b"class A:\n    def f():\n        pass\nclass B:\n    def f():\n        pass\n"


@pytest.mark.parametrize(
    "anchors", [["@@ class B:"], ["@@ class B:", "@@ def f():"], ["@@ class B:", "@@     def f():"]]
)
def test_anchors_lead_to_the_place(anchors: list[str]) -> None:
    new = _updated(REPEATS, *anchors, "-        pass", "+        return")
    assert new == REPEATS[: -len(b"        pass\n")] + b"        return\n"


def test_an_anchor_that_leads_to_two_places_is_refused() -> None:
    assert "(lines 3, 6)" in _refused(REPEATS, "@@ def f():", "-        pass").message


def test_an_anchor_that_is_not_there() -> None:
    assert "cannot find @@ class C: of line 3" in _refused(REPEATS, "@@ class C:", "-        pass").message


def test_an_anchor_repeated_as_context() -> None:
    assert _updated(b"a\nb\n", "@@ a", " a", "-b") == b"a\n"


def test_an_anchor_stands_before_its_hunk() -> None:
    assert _updated(b"a\nb\na\n", "@@ a", "-a", "+x") == b"a\nb\nx\n"


def test_lines_without_context_go_behind_the_anchor_or_to_the_end() -> None:
    assert _updated(b"a\nb\n", "@@ a", "+x") == b"a\nx\nb\n"
    assert _updated(b"a\nb\n", "+x") == b"a\nb\nx\n"
    assert _updated(b"", "+x") == b"x\n"


def test_lines_behind_an_ambiguous_anchor_are_refused() -> None:
    assert "(lines 1, 2)" in _refused(b"a\na\n", "@@ a", "+x").message


def test_end_of_file_picks_the_last() -> None:
    assert _updated(b"x\ny\nx\n", "-x", "+z", "*** End of File") == b"x\ny\nz\n"


def test_end_of_file_must_be_the_end() -> None:
    assert "at its end" in _refused(b"x\ny\n", "-x", "*** End of File").message


def test_an_empty_line_too_many_at_the_end_of_a_hunk_is_forgiven() -> None:
    assert _updated(b"a\nb\n", "@@", "-a", " ") == b"b\n"


def test_a_hunk_without_a_change_changes_nothing() -> None:
    (change,) = _plan(_patch("*** Update File: f", " a"), {"/work/f": b"a\n"})
    assert (change.kind, change.new, change.diff) == ("update", b"a\n", "")


def test_many_equal_lines_are_searched_quickly() -> None:
    """Lines × lines comparisons would take far too long, and the test would time out."""
    hunk = [" same"] * 30_000
    error = _refused(b"same\n" * 300_000, *hunk, "-other")
    assert len(error.message) < 1000
    assert "lines more" in error.message


# --- endings and bytes -----------------------------------------------------------------------------------------------


def test_crlf_is_kept_also_when_the_patch_writes_it() -> None:
    assert _updated(b"a\r\nb\r\n", "-b\r", "+c\r", "+d") == b"a\r\nc\r\nd\r\n"


def test_mixed_endings_stay_where_they_are() -> None:
    assert _updated(b"a\r\nb\nc\n", " a", "-b", "+x") == b"a\r\nx\nc\n"


def test_a_missing_final_newline_stays_missing() -> None:
    assert _updated(b"a\nb", "-b", "+c") == b"a\nc"
    assert _updated(b"a\nb", " b", "+c") == b"a\nb\nc"
    assert _updated(b"a\nb", "-b") == b"a"


def test_bytes_that_are_no_text_survive() -> None:
    assert _updated(b"\xff\xfe\na\n", "-a", "+b") == b"\xff\xfe\nb\n"


def test_a_byte_order_mark_does_not_hide_the_first_line() -> None:
    assert _updated(b"\xef\xbb\xbfa\nb\n", " a", "-b") == b"\xef\xbb\xbfa\n"


# --- changes ---------------------------------------------------------------------------------------------------------


def test_the_recorded_patches_give_the_recorded_changes() -> None:
    """As the real server reported them."""
    first = _patch("*** Update File: a.txt", "@@", " one", "-two", "+TWO", "*** Add File: b.txt", "+new file")
    update, add = _plan(first, {"/work/a.txt": b"one\ntwo\nthree\n"})
    assert (update.path, update.kind, update.move_path) == ("/work/a.txt", "update", None)
    assert update.diff == "@@ -1,3 +1,3 @@\n one\n-two\n+TWO\n three\n"
    assert (add.path, add.kind, add.diff) == ("/work/b.txt", "add", "new file\n")
    second = _patch("*** Update File: a.txt", "*** Move to: c.txt", "@@", "-TWO", "+2", "*** Delete File: b.txt")
    move, delete = _plan(second, {"/work/a.txt": b"one\nTWO\nthree\n", "/work/b.txt": b"new file\n"})
    assert (move.path, move.kind, move.move_path) == ("/work/a.txt", "update", "/work/c.txt")
    assert move.diff == "@@ -1,3 +1,3 @@\n one\n-TWO\n+2\n three\n\n\nMoved to: /work/c.txt"
    assert (delete.kind, delete.diff, delete.old, delete.new) == ("delete", "new file\n", b"new file\n", None)


def test_paths_are_resolved_against_cwd_and_may_leave_it() -> None:
    patch = parse(_patch("*** Add File: ./x/../a", "*** Add File: ../up", "*** Delete File: /abs//b"))
    assert paths(patch, CWD) == ["/work/a", "/up", "/abs/b"]


def test_every_path_is_read_once() -> None:
    asked: list[str] = []

    def read(path: str) -> bytes | None:
        asked.append(path)
        return b"a\n" if path == "/work/f" else None

    patch = parse(_patch("*** Update File: f", "*** Move to: g", "+b", "*** Update File: g", "+c", "*** Add File: h"))
    plan(patch, read, CWD)
    assert asked == paths(patch, CWD) == ["/work/f", "/work/g", "/work/h"]


def test_add_over_a_file_is_an_update() -> None:
    (change,) = _plan(_patch("*** Add File: f", "+new"), {"/work/f": b"old\n"})
    assert (change.kind, change.old, change.new) == ("update", b"old\n", b"new\n")
    assert change.diff == "@@ -1 +1 @@\n-old\n+new\n"


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["*** Delete File: f"], "cannot delete /work/f: there is no such file"),
        (["*** Update File: f", "+x"], "cannot update /work/f: there is no such file"),
        (["*** Update File: g", "*** Move to: h"], "cannot move /work/g to /work/h: there is a file"),
        (["*** Delete File: g", "*** Update File: g", "+x"], "cannot update /work/g"),
    ],
)
def test_what_is_missing_or_in_the_way(lines: list[str], message: str) -> None:
    with pytest.raises(PatchError) as caught:
        _plan(_patch(*lines), {"/work/g": b"", "/work/h": b""})
    assert message in caught.value.message
    assert caught.value.reason == "mismatch"


def test_move_onto_a_file_that_was_deleted_before() -> None:
    files = {"/work/g": b"g\n", "/work/h": b"h\n"}
    (change,) = _plan(_patch("*** Delete File: h", "*** Update File: g", "*** Move to: h"), files)
    assert (change.path, change.move_path, change.old, change.move_old) == ("/work/g", "/work/h", b"g\n", b"h\n")
    assert change.new == b"g\n"


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["*** Add File: n", "+1", "*** Delete File: n"], []),
        (["*** Add File: n", "+1", "*** Update File: n", "-1", "+2"], [("add", "n", None)]),
        (["*** Add File: n", "+1", "*** Update File: n", "*** Move to: m"], [("add", "m", None)]),
        (["*** Update File: g", "+1", "*** Update File: g", "+2"], [("update", "g", None)]),
        (["*** Update File: g", "+1", "*** Delete File: g"], [("delete", "g", None)]),
        (["*** Delete File: g", "*** Add File: g", "+1"], [("update", "g", None)]),
        (["*** Update File: g", "*** Move to: n", "*** Update File: n", "+1"], [("update", "g", "n")]),
        (["*** Update File: g", "*** Move to: n", "*** Update File: n", "*** Move to: m"], [("update", "g", "m")]),
        (["*** Update File: g", "*** Move to: n", "*** Update File: n", "*** Move to: g"], [("update", "g", None)]),
        (["*** Update File: g", "*** Move to: n", "*** Delete File: n"], [("delete", "g", None)]),
        (
            ["*** Update File: g", "*** Move to: n", "*** Add File: g", "+1"],
            [("update", "g", None), ("add", "n", None)],
        ),
        (["*** Update File: g", "*** Move to: g", "+1"], [("update", "g", None)]),
    ],
)
def test_sections_on_one_file_are_one_change(lines: list[str], expected: list[tuple[str, str, str | None]]) -> None:
    changes = _plan(_patch(*lines), {"/work/g": b"g\n"})
    named = [(change.kind, change.path, change.move_path) for change in changes]
    assert named == [(kind, f"/work/{path}", target and f"/work/{target}") for kind, path, target in expected]


def test_a_relative_cwd_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(ValueError, match="absolute"):
        plan(parse(_patch("*** Add File: f")), lambda _: None, "work")


def test_a_file_that_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("treadle.tools.patch.planner.MAX_FILE_BYTES", 3)
    with pytest.raises(PatchError, match="more than 3"):
        _updated(b"1234", "+x")
