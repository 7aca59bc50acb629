"""Versions of files: what is copied, what is noticed, and that nothing outside of the folder is ever written."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from treadle.errors import ExecError
from treadle.execution import (
    FileCopies,
    Listing,
    NotCopied,
    Versions,
    differences,
    file_versions,
    put_back,
    read_version,
)

OLD_NS = 1_000_000_000


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "root"
    folder.mkdir()
    return folder


def _listing(root: Path, *, hidden: frozenset[str] = frozenset(), by_git: bool = True) -> Listing:
    paths = [os.path.join(folder, name) for folder, _, names in os.walk(root) for name in names]
    return Listing([path for path in paths if path not in hidden], hidden, by_git)


def _copies(root: Path, name: str = "") -> FileCopies:
    copies = FileCopies(str(root.parent / "home"), str(root / name))
    copies.hold()
    return copies


def _packs(copies: FileCopies) -> list[str]:
    return [name for name in os.listdir(copies.folder) if name.startswith("pack")]


def test_what_was_is_known_and_comes_back(root: Path) -> None:
    odd = os.fsencode(root) + b"/\xff\n name"
    with open(odd, "wb") as file:
        file.write(bytes(range(256)))
    os.chmod(odd, 0o751)
    (root / "link").symlink_to("nowhere")
    copies = _copies(root)
    before = copies.look(_listing(root))
    os.unlink(odd)
    (root / "link").unlink()
    (root / "link").write_text("a file now")
    for path, change in differences(before, copies.look(_listing(root))).items():
        assert change.before is not None
        content = copies.content(change.before) if change.before.kind == "file" else b""
        put_back(path, str(root), change.before, content)
    with open(odd, "rb") as file:
        assert file.read() == bytes(range(256))
    assert os.stat(odd).st_mode & 0o777 == 0o751
    assert os.readlink(root / "link") == "nowhere"
    copies.close()


def test_what_looks_the_same_is_not_read_again_once_the_clock_has_gone_on(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "file").write_text("one")
    copies = _copies(root)
    copies.look(_listing(root))
    read: list[str] = []

    def counted(path: str) -> object:
        read.append(path)
        return read_version(path)

    monkeypatch.setattr(file_versions, "read_version", counted)
    copies.look(_listing(root))
    assert len(read) == 1  # it was changed just now, and may have been again
    monkeypatch.setattr(file_versions, "SETTLED_NS", -(10**12))
    copies.look(_listing(root))
    copies.look(_listing(root))
    assert len(read) == 2
    (root / "file").write_text("two")
    copies.look(_listing(root))
    assert len(read) == 3


def test_copies_stay_while_somebody_holds_them_and_go_then(root: Path) -> None:
    (root / "file").write_text("one")
    first = _copies(root)
    version = first.look(_listing(root)).files[str(root / "file")]
    (root / "file").write_text("two")
    second = _copies(root)
    second.look(_listing(root))
    second.close()
    assert first.content(version) == b"one"
    assert len(_packs(first)) == 2
    first.close()
    assert len(_packs(first)) == 1


def test_many_packs_become_one(root: Path) -> None:
    for number in range(file_versions.MAX_PACKS + 1):
        (root / f"file{number}").write_text(str(number))
        copies = _copies(root)
        copies.look(_listing(root))
        copies.close()
    assert len(_packs(copies)) == 1
    copies = _copies(root)
    for path, version in copies.look(_listing(root)).files.items():
        assert copies.content(version) == Path(path).read_bytes()
    copies.close()


def test_the_copies_are_for_their_owner_alone_and_the_oldest_folders_go(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_versions, "MAX_FOLDERS", 1)
    (root / "file").write_text("one")
    copies = _copies(root)
    copies.look(_listing(root))
    assert os.stat(copies.folder).st_mode & 0o777 == 0o700
    assert {os.stat(os.path.join(copies.folder, name)).st_mode & 0o777 for name in os.listdir(copies.folder)} == {0o600}
    os.utime(copies.folder, ns=(OLD_NS, OLD_NS))
    other = _copies(root, "other")  # while the first is held, it stays
    assert os.path.isdir(copies.folder)
    copies.close()
    other.close()
    os.utime(copies.folder, ns=(OLD_NS, OLD_NS))
    third = _copies(root, "third")
    third.close()
    assert not os.path.isdir(copies.folder)


def test_what_is_too_large_or_no_file_is_only_known_to_change(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_versions, "MAX_FILE_BYTES", 10)
    (root / "large").write_text("more than ten bytes")
    os.mkfifo(root / "pipe")
    copies = _copies(root)
    before = copies.look(_listing(root))
    assert {version.kind for version in before.files.values()} == {"unknown"}
    assert differences(before, copies.look(_listing(root))) == {}
    (root / "large").write_text("more than ten bytes again")
    assert list(differences(before, copies.look(_listing(root)))) == [str(root / "large")]
    copies.close()


def test_a_folder_that_is_too_large_is_not_copied(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_versions, "MAX_BYTES", 10)
    (root / "file").write_text("more than ten bytes")
    copies = _copies(root)
    with pytest.raises(NotCopied, match="more than"):
        copies.look(_listing(root))
    copies.close()


def test_only_what_was_surely_not_there_counts_as_made(root: Path) -> None:
    was, ignored, made = root / "was", root / "ignored" / "file", root / "made"
    ignored.parent.mkdir()
    was.write_text("not listed, for whatever reason")
    before = Versions({}, Listing([], frozenset({f"{root}/ignored/"}), by_git=True), time.time_ns() + 10**10)
    copies = _copies(root)
    assert differences(before, copies.look(_listing(root))) == {}
    ignored.write_text("x")
    made.write_text("x")
    before = before._replace(taken_ns=0)
    changes = differences(before, copies.look(_listing(root)))
    assert {path: change.before for path, change in changes.items() if change.before is None} == {
        str(was): None,
        str(made): None,
    }
    assert changes[str(ignored)].before is not None
    # In what has become a repository, or is none any more, others are listed than before.
    changes = differences(before, copies.look(_listing(root, by_git=False)))
    assert all(change.before is not None for change in changes.values())
    copies.close()


@pytest.mark.parametrize("name", ["../victim", "/etc/passwd", "folder/../../victim", ".", "folder/."])
def test_a_path_outside_is_refused(root: Path, name: str) -> None:
    (root.parent / "victim").write_text("untouched")
    (root / "folder").mkdir()
    with pytest.raises(ExecError, match="is not in"):
        put_back(os.path.join(root, name), str(root), None, b"")
    assert (root.parent / "victim").read_text() == "untouched"


@pytest.mark.parametrize("removed", [True, False])
def test_a_link_on_the_way_is_not_followed(root: Path, removed: bool) -> None:
    (root / "folder" / "below").mkdir(parents=True)
    (root / "folder" / "below" / "file").write_text("inside")
    version, content = read_version(str(root / "folder" / "below" / "file"))
    victim = root.parent / "victim"
    (victim / "below").mkdir(parents=True)
    (victim / "below" / "file").write_text("untouched")
    (root / "folder").rename(root.parent / "elsewhere")
    (root / "folder").symlink_to(victim)
    path = str(root / "folder" / "below" / "file")
    assert read_version(path) == (None, b"")
    with pytest.raises(OSError, match="folder"):
        put_back(path, str(root), None if removed else version, content)
    assert (victim / "below" / "file").read_text() == "untouched"


def test_a_link_in_the_place_of_a_file_is_replaced_and_not_followed(root: Path) -> None:
    (root / "file").write_text("inside")
    version, content = read_version(str(root / "file"))
    victim = root.parent / "victim"
    victim.write_text("untouched")
    (root / "file").unlink()
    (root / "file").symlink_to(victim)
    (root / ".treadle-undo.tmp").symlink_to(victim)
    put_back(str(root / "file"), str(root), version, content)
    assert victim.read_text() == "untouched"
    assert (root / "file").read_text() == "inside"
    assert not (root / "file").is_symlink()
    assert os.listdir(root) == ["file"]
