from __future__ import annotations

from hashlib import sha1

from hypothesis import given
from hypothesis import strategies as st

from treadle.agent import MAX_DIFF_CHARS, TurnDiff
from treadle.tools import Kind
from treadle.tools.patch import FileChange


def _change(kind: Kind, path: str, old: bytes | None, new: bytes | None, move_path: str | None = None) -> FileChange:
    return FileChange(path=path, kind=kind, old=old, new=new, diff="", move_path=move_path)


def _blob(data: bytes) -> str:
    return sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def _text(*changes: FileChange, cwd: str = "/ws") -> str:
    diff = TurnDiff()
    for change in changes:
        diff.add(change)
    return diff.text(cwd)


def test_a_new_file() -> None:
    zero = "0" * 40
    assert _text(_change("add", "/ws/a.txt", None, b"x\n")) == (
        "diff --git a/a.txt b/a.txt\nnew file mode 100644\n"
        f"index {zero}..{_blob(b'x' + bytes([10]))}\n--- /dev/null\n+++ b/a.txt\n@@ -0,0 +1 @@\n+x\n"
    )


def test_a_file_that_is_gone() -> None:
    text = _text(_change("delete", "/ws/a.txt", b"x\n", None))
    assert "deleted file mode 100644\n" in text
    assert "--- a/a.txt\n+++ /dev/null\n" in text
    assert text.endswith("-x\n")


def test_a_file_that_moved_and_changed() -> None:
    text = _text(_change("update", "/ws/a.txt", b"x\n", b"y\n", "/ws/b.txt"))
    assert text.startswith("diff --git a/a.txt b/b.txt\n")
    assert "--- a/a.txt\n+++ b/b.txt\n" in text


def test_changes_add_up() -> None:
    twice = _text(_change("update", "/ws/a", b"1\n", b"2\n"), _change("update", "/ws/a", b"2\n", b"3\n"))
    assert twice == _text(_change("update", "/ws/a", b"1\n", b"3\n"))
    moved = _text(_change("update", "/ws/a", b"1\n", b"2\n", "/ws/b"), _change("update", "/ws/b", b"2\n", b"3\n"))
    assert moved == _text(_change("update", "/ws/a", b"1\n", b"3\n", "/ws/b"))


def test_there_and_back_is_nothing() -> None:
    assert _text(_change("add", "/ws/a", None, b"x"), _change("delete", "/ws/a", b"x", None)) == ""
    assert _text(_change("update", "/ws/a", b"1", b"2"), _change("update", "/ws/a", b"2", b"1")) == ""


def test_paths_are_relative_where_they_can_be() -> None:
    assert _text(_change("add", "/else/a", None, b"x")).startswith("diff --git a/else/a b/else/a\n")
    assert _text(_change("add", "/ws2/a", None, b"x")).startswith("diff --git a/ws2/a b/ws2/a\n")
    assert _text(_change("add", "/a", None, b"x"), cwd="/").startswith("diff --git a/a b/a\n")


def test_a_huge_diff_is_cut() -> None:
    text = _text(_change("add", "/ws/a", None, b"x\n" * MAX_DIFF_CHARS))
    assert len(text) < MAX_DIFF_CHARS + 100
    assert text.endswith("[the rest of the diff is left out]\n")


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from([b"", b"1\n", b"2\n3\n", b"no end"])), max_size=12))
def test_only_the_first_and_the_last_content_count(writes: list[tuple[str, bytes]]) -> None:
    now: dict[str, bytes | None] = {}
    diff = TurnDiff()
    for name, content in writes:
        old = now.get(name)
        diff.add(_change("add" if old is None else "update", f"/ws/{name}", old, content))
        now[name] = content
    direct = TurnDiff()
    for name, final in now.items():
        direct.add(_change("add", f"/ws/{name}", None, final))
    assert diff.text("/ws") == direct.text("/ws")
