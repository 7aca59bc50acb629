"""Carrying changes out: sections that add up, all or nothing under failures and cancellation, and stale plans."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from treadle.execution import LocalFiles
from treadle.tools.patch import FileChange, PatchError, apply, parse, plan
from unit.tools.patch_edits import PATIENT
from unit.tools.patch_files import MemoryFiles

CWD = "/work"
DEADLINE_S = 30


@dataclass(frozen=True)
class Op:
    """One section: `content` replaces everything, `target` moves."""

    verb: str
    path: str
    content: str = ""
    target: str | None = None

    def lines(self, old: bytes) -> list[str]:
        if self.verb == "Update":
            move = [] if self.target is None else [f"*** Move to: {self.target}"]
            removed = [f"-{line}" for line in old.decode().splitlines()]
            return [f"*** Update File: {self.path}", *move, "@@", *removed, f"+{self.content}"]
        return [f"*** {self.verb} File: {self.path}", *([f"+{self.content}"] if self.verb == "Add" else [])]

    def run(self, files: dict[str, bytes]) -> bool:
        """Do it to plain files; whether it may be done."""
        if self.verb != "Add" and self.path not in files:
            return False
        if self.target not in (None, self.path) and self.target in files:
            return False
        if self.verb != "Add":
            del files[self.path]
        if self.verb != "Delete":
            files[self.target or self.path] = f"{self.content}\n".encode()
        return True


NAMES = ["a", "b", "c", "d/e", "d/f/g"]
PATHS = st.sampled_from(NAMES)
CONTENTS = st.sampled_from(["one", "two", "three"])
FILES = st.dictionaries(PATHS, st.sampled_from([b"x\n", b"x\ny\n"]), max_size=4)


def _mostly(draw: st.DrawFn, names: list[str]) -> st.SearchStrategy[str]:
    anything = draw(st.integers(0, 15)) == 0
    return PATHS if anything or not names else st.sampled_from(names)


def _op(draw: st.DrawFn, files: dict[str, bytes]) -> Op:
    """Mostly one that may be done."""
    verb = draw(st.sampled_from(["Add", "Delete", "Update", "Move"]))
    existing = _mostly(draw, sorted(files))
    if verb == "Add":
        return Op(verb, draw(PATHS), draw(CONTENTS))
    if verb == "Delete":
        return Op(verb, draw(existing))
    target = draw(_mostly(draw, sorted({*NAMES} - {*files}))) if verb == "Move" else None
    return Op("Update", draw(existing), draw(CONTENTS), target)


@dataclass(frozen=True)
class Case:
    before: dict[str, bytes]
    after: dict[str, bytes]
    text: str
    allowed: bool


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Files, and a patch of several sections with what it should do, up to the first that may not be done."""
    before = {f"{CWD}/{path}": data for path, data in draw(FILES).items()}
    now = {path.removeprefix(f"{CWD}/"): data for path, data in before.items()}
    lines: list[str] = []
    allowed = True
    for _ in range(draw(st.integers(1, 8))):
        op = _op(draw, now)
        lines += op.lines(now.get(op.path, b""))
        allowed = op.run(now)
        if not allowed:
            break
    text = "\n".join(["*** Begin Patch", *lines, "*** End Patch"])
    return Case(before, {f"{CWD}/{path}": data for path, data in now.items()}, text, allowed)


def _changes(case: Case) -> list[FileChange]:
    return plan(parse(case.text), case.before.get, CWD)


def _files(case: Case) -> MemoryFiles:
    files = MemoryFiles(case.before)
    files.directories.add(CWD)
    return files


@settings(PATIENT, max_examples=150)
@given(cases())
def test_sections_add_up_to_what_they_do_one_by_one(case: Case) -> None:
    if not case.allowed:
        with pytest.raises(PatchError):
            _changes(case)
        return
    changes = _changes(case)
    files = _files(case)
    asyncio.run(apply(changes, files))
    assert files.files == case.after
    for change in changes:
        assert change.old == case.before.get(change.path)
    named = [path for change in changes for path in (change.path, change.move_path) if path]
    assert len(named) == len(set(named)), "a file is in one change only"


class Broken(Exception):
    pass


def _operations(case: Case) -> int:
    files = _files(case)
    asyncio.run(apply(_changes(case), files))
    return files.operations


@settings(PATIENT, max_examples=50)
@given(cases())
def test_a_failure_at_any_point_changes_nothing(case: Case) -> None:
    assume(case.allowed)
    for broken in range(1, _operations(case) + 1):
        files = _files(case)
        untouched = files.snapshot()

        def fail(number: int, at: int = broken) -> None:
            if number == at:
                raise Broken("disk on fire")

        files.before = fail
        error = asyncio.run(_error(case, files))
        assert error is not None, f"operation {broken} failed and nobody noticed"
        assert files.snapshot() == untouched
        assert (error.reason, error.unrestored) == ("failed", ())
        assert "disk on fire; everything was put back" in error.message


async def _error(case: Case, files: MemoryFiles) -> PatchError | None:
    try:
        await apply(_changes(case), files)
    except PatchError as error:
        return error
    return None


@settings(PATIENT, max_examples=50)
@given(cases())
def test_a_cancellation_at_any_point_changes_nothing(case: Case) -> None:
    assume(case.allowed)
    for at in range(1, _operations(case) + 1):
        files = _files(case)
        untouched = files.snapshot()
        asyncio.run(_cancelled(case, files, at))
        assert files.snapshot() == untouched


async def _cancelled(case: Case, files: MemoryFiles, at: int) -> None:
    task = asyncio.create_task(apply(_changes(case), files))

    def cancel(number: int) -> None:
        if number >= at:
            task.cancel()  # also while everything is put back: that must not stop it

    files.before = cancel
    with pytest.raises(asyncio.CancelledError) as caught:
        await asyncio.wait_for(task, DEADLINE_S)
    assert "everything was put back" in "".join(caught.value.__notes__)


def test_a_cancelled_patch_goes_no_further() -> None:
    sections = "".join(f"*** Add File: {name}\n+x\n" for name in "abc")
    case = Case({}, {}, f"*** Begin Patch\n{sections}*** End Patch", True)
    files = _files(case)
    asyncio.run(_cancelled(case, files, 1))
    assert (files.files, files.operations) == ({}, 2)  # one write, and it is taken away again


def test_what_cannot_be_put_back_is_named() -> None:
    files = MemoryFiles({"/work/a": b"a\n", "/work/b": b"b\n"})
    text = "*** Begin Patch\n*** Add File: a\n+A\n*** Add File: b\n+B\n*** End Patch"
    changes = plan(parse(text), files.files.get, CWD)

    def fail(number: int) -> None:
        if number >= 2:
            raise Broken("gone for good")

    files.before = fail
    with pytest.raises(PatchError) as caught:
        asyncio.run(apply(changes, files))
    assert caught.value.unrestored == ("/work/a", "/work/b")
    assert "could not be put back and must be looked at: /work/a, /work/b" in caught.value.message
    assert isinstance(caught.value.__cause__, Broken)


@pytest.mark.parametrize(
    ("text", "meanwhile", "message"),
    [
        ("*** Add File: new\n+x", {"/work/a": b"a\n", "/work/new": b"mine\n"}, "/work/new was created"),
        ("*** Update File: a\n+x", {"/work/a": b"mine\n"}, "/work/a was changed"),
        ("*** Delete File: a", {"/work/a": b"mine\n"}, "/work/a was changed"),
        ("*** Delete File: a", {"/work/z": b""}, "/work/a is gone"),
        ("*** Update File: a\n*** Move to: q", {"/work/a": b"a\n", "/work/q": b"mine\n"}, "/work/q was created"),
        ("*** Add File: n\n+x\n*** Delete File: a", {"/work/a": b"mine\n"}, "/work/a was changed"),
    ],
)
def test_nothing_is_written_over_what_changed_since_the_plan(
    text: str, meanwhile: dict[str, bytes], message: str
) -> None:
    patch = parse(f"*** Begin Patch\n{text}\n*** End Patch")
    changes = plan(patch, {"/work/a": b"a\n"}.get, CWD)
    files = MemoryFiles(meanwhile)
    with pytest.raises(PatchError, match="nothing was changed") as caught:
        asyncio.run(apply(changes, files))
    assert caught.value.reason == "stale"
    assert message in caught.value.message
    assert (files.files, files.operations) == (meanwhile, 0)


def test_a_file_that_cannot_be_read_stops_it_before_the_first_write() -> None:
    files = MemoryFiles({"/work/dir/x": b""})
    change = FileChange(path="/work/dir", kind="add", old=None, new=b"x", diff="x")
    with pytest.raises(PatchError, match="cannot be read: /work/dir is a directory") as caught:
        asyncio.run(apply([change], files))
    assert caught.value.reason == "failed"
    assert files.operations == 0


# --- on a real disk --------------------------------------------------------------------------------------------------

REAL = """\
*** Begin Patch
*** Add File: deep/er/new.txt
+hello
*** Update File: a.txt
*** Move to: moved/b.txt
-one
+ONE
*** Delete File: c.txt
*** End Patch"""


def _read(path: str) -> bytes | None:
    file = Path(path)
    return file.read_bytes() if file.exists() else None


def _tree(root: Path) -> dict[str, bytes | None]:
    return {str(path.relative_to(root)): None if path.is_dir() else path.read_bytes() for path in root.rglob("*")}


@pytest.mark.anyio
async def test_on_local_files(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"one\ntwo\n")
    (tmp_path / "c.txt").write_bytes(b"c\n")
    await apply(plan(parse(REAL), _read, str(tmp_path)), LocalFiles())
    assert _tree(tmp_path) == {
        "deep": None,
        "deep/er": None,
        "deep/er/new.txt": b"hello\n",
        "moved": None,
        "moved/b.txt": b"ONE\ntwo\n",
    }


@pytest.mark.anyio
async def test_a_failure_on_local_files_leaves_the_tree_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"one\ntwo\n")
    (tmp_path / "c.txt").write_bytes(b"c\n")
    before = _tree(tmp_path)
    changes = plan(parse(REAL), _read, str(tmp_path))
    below_new = FileChange(path=f"{tmp_path}/deep/er/new.txt/x", kind="add", old=None, new=b"x", diff="x")
    with pytest.raises(PatchError, match="everything was put back") as caught:
        await apply([*changes, below_new], LocalFiles())
    assert caught.value.path == below_new.path
    assert _tree(tmp_path) == before
