"""File operations without a sandbox: what they do, and the code of every refusal."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from treadle.errors import INTERNAL_ERROR, INVALID_REQUEST, NOT_FOUND, ExecError
from treadle.execution import FileAccess, WalkLimits
from treadle.execution.files import directories


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A small zoo: files, directories, links of every kind, a fifo."""
    base = Path(os.path.realpath(tmp_path)) / "zoo"
    (base / "d" / "sub").mkdir(parents=True)
    (base / ".hid").mkdir()
    (base / "a.txt").write_bytes(b"hello")
    (base / "d" / "b.txt").write_bytes(b"b")
    (base / ".hid" / "x").write_bytes(b"x")
    (base / "link").symlink_to("a.txt")
    (base / "dlink").symlink_to("d")
    (base / "broken").symlink_to("nope")
    os.mkfifo(base / "fifo")
    return base


@pytest.fixture
def files() -> FileAccess:
    return FileAccess()


def code_of(function: Callable[[], object]) -> int:
    with pytest.raises(ExecError) as caught:
        function()
    caught.value.message.encode()
    return caught.value.code


def names(files: FileAccess, path: Path, **limits: bool | int) -> list[str]:
    outcome = files.walk(str(path), WalkLimits(**limits))  # type: ignore[arg-type]
    return [os.path.relpath(entry.path, path) for entry in outcome.entries]


# --- read ---


def test_read_follows_links(files: FileAccess, root: Path) -> None:
    assert files.read(f"{root}/a.txt") == b"hello"
    assert files.read(f"{root}/link") == b"hello"
    assert files.read(f"{root}/dlink/b.txt") == b"b"


def test_read_of_a_kernel_file_whose_size_says_zero(files: FileAccess) -> None:
    assert files.read("/proc/self/status").startswith(b"Name:")


@pytest.mark.parametrize(
    ("name", "follow", "code"),
    [
        ("nope", True, NOT_FOUND),
        ("broken", True, NOT_FOUND),
        ("no/such", True, NOT_FOUND),
        ("d", True, INVALID_REQUEST),
        ("fifo", True, INVALID_REQUEST),
        ("a.txt/x", True, INTERNAL_ERROR),
        ("link", False, INTERNAL_ERROR),
        ("dlink/b.txt", False, INTERNAL_ERROR),
        ("broken", False, INTERNAL_ERROR),
        ("nope", False, NOT_FOUND),
    ],
)
def test_read_refusals(files: FileAccess, root: Path, name: str, follow: bool, code: int) -> None:
    assert code_of(lambda: files.read(f"{root}/{name}", follow)) == code


def test_devices_and_sockets_are_no_files(files: FileAccess, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert code_of(lambda: files.read("/dev/zero")) == INVALID_REQUEST
    assert code_of(lambda: files.write("/dev/null", b"x")) == INVALID_REQUEST
    assert code_of(lambda: files.write(f"{root}/fifo", b"x")) == INVALID_REQUEST
    monkeypatch.chdir(root)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("sock")
        assert code_of(lambda: files.read(f"{root}/sock")) == INVALID_REQUEST


def test_a_file_over_the_limit_is_refused_before_it_is_read(files: FileAccess, root: Path) -> None:
    with open(root / "big", "wb") as file:
        file.truncate(512 * 1024 * 1024 + 1)
    assert code_of(lambda: files.read(f"{root}/big")) == INVALID_REQUEST


def test_a_name_that_is_no_text(files: FileAccess, root: Path) -> None:
    path = os.path.join(root, "\udcff\udcfe")
    files.write(path, b"1")
    assert os.listdir(os.fsencode(root)).count(b"\xff\xfe") == 1
    assert files.read(path) == b"1"
    assert code_of(lambda: files.read(path + "x")) == NOT_FOUND


# --- write ---


def test_write_creates_and_truncates_in_place(files: FileAccess, root: Path) -> None:
    os.link(root / "a.txt", root / "hard")
    files.write(f"{root}/a.txt", b"hi")
    assert (root / "hard").read_bytes() == b"hi"
    files.write(f"{root}/new", b"n" * 3_000_000)
    assert (root / "new").stat().st_size == 3_000_000


def test_write_goes_through_links(files: FileAccess, root: Path) -> None:
    files.write(f"{root}/link", b"via")
    files.write(f"{root}/broken", b"made")
    assert (root / "a.txt").read_bytes() == b"via"
    assert (root / "nope").read_bytes() == b"made"
    assert (root / "link").is_symlink()


@pytest.mark.parametrize(
    ("name", "follow", "code"),
    [
        ("no/such", True, NOT_FOUND),
        ("d", True, INTERNAL_ERROR),
        ("link", False, INTERNAL_ERROR),
        ("broken", False, INTERNAL_ERROR),
        ("dlink/new", False, INTERNAL_ERROR),
    ],
)
def test_write_refusals_change_nothing(files: FileAccess, root: Path, name: str, follow: bool, code: int) -> None:
    assert code_of(lambda: files.write(f"{root}/{name}", b"x", follow)) == code
    assert (root / "a.txt").read_bytes() == b"hello"
    assert not (root / "nope").exists()
    assert not (root / "d" / "new").exists()


# --- directories ---


def test_create_directory(files: FileAccess, root: Path) -> None:
    files.create_directory(f"{root}/x/y/z")
    files.create_directory(f"{root}/x/y/z")
    files.create_directory(f"{root}/dlink/deep/er")
    files.create_directory(f"{root}/one", recursive=False)
    files.create_directory("/")
    assert (root / "x" / "y" / "z").is_dir()
    assert (root / "d" / "deep" / "er").is_dir()
    assert (root / "one").is_dir()


@pytest.mark.parametrize(
    ("name", "recursive", "code"),
    [
        ("d", False, INTERNAL_ERROR),
        ("x2/y", False, NOT_FOUND),
        ("a.txt", True, INTERNAL_ERROR),
        ("a.txt/b", True, INTERNAL_ERROR),
        ("broken", True, INTERNAL_ERROR),
        ("link", True, INTERNAL_ERROR),
    ],
)
def test_create_directory_refusals(files: FileAccess, root: Path, name: str, recursive: bool, code: int) -> None:
    assert code_of(lambda: files.create_directory(f"{root}/{name}", recursive)) == code


def test_list_follows_links_and_skips_dangling_ones(files: FileAccess, root: Path) -> None:
    os.mkdir(os.fsencode(root) + b"/\xff")
    found = {entry.name: (entry.is_directory, entry.is_file) for entry in files.list(str(root))}
    assert found == {
        ".hid": (True, False),
        "a.txt": (False, True),
        "d": (True, False),
        "dlink": (True, False),
        "fifo": (False, False),
        "link": (False, True),
        "\ufffd": (True, False),
    }
    assert [entry.name for entry in files.list(f"{root}/dlink")] == ["b.txt", "sub"]
    assert code_of(lambda: files.list(f"{root}/a.txt")) == INTERNAL_ERROR
    assert code_of(lambda: files.list(f"{root}/nope")) == NOT_FOUND


def test_a_directory_over_the_limit_is_refused(files: FileAccess, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directories, "MAX_ENTRIES", 2)
    assert len(files.list(f"{root}/d")) == 2
    (root / "d" / "third").touch()
    assert code_of(lambda: files.list(f"{root}/d")) == INVALID_REQUEST


# --- stat and canonicalize ---


def test_stat_describes_the_target(files: FileAccess, root: Path) -> None:
    os.utime(root / "a.txt", ns=(0, 1_794_704_462_822_999_999))
    found = files.stat(f"{root}/link")
    assert (found.is_directory, found.is_file, found.is_symlink, found.size) == (False, True, True, 5)
    assert found.modified_at_ms == 1_794_704_462_822
    assert files.stat(f"{root}/a.txt").is_symlink is False
    assert files.stat(f"{root}/dlink").is_directory
    fifo = files.stat(f"{root}/fifo")
    assert not fifo.is_file
    assert not fifo.is_directory
    assert files.stat("/").is_directory
    assert files.stat(f"{root}/a.txt", follow=False).size == 5


def test_stat_refusals(files: FileAccess, root: Path) -> None:
    assert code_of(lambda: files.stat(f"{root}/nope")) == NOT_FOUND
    assert code_of(lambda: files.stat(f"{root}/broken")) == NOT_FOUND
    for name in ("link", "broken", "dlink/b.txt"):
        assert code_of(lambda name=name: files.stat(f"{root}/{name}", follow=False)) == INVALID_REQUEST  # type: ignore[misc]
    assert code_of(lambda: files.stat(f"{root}/nope", follow=False)) == NOT_FOUND


def test_canonicalize(files: FileAccess, root: Path) -> None:
    assert files.canonicalize(f"{root}/dlink/b.txt") == f"{root}/d/b.txt"
    assert files.canonicalize(f"{root}/link") == f"{root}/a.txt"
    assert files.canonicalize("/") == "/"
    assert code_of(lambda: files.canonicalize(f"{root}/nope")) == NOT_FOUND
    (root / "loop").symlink_to("loop")
    assert code_of(lambda: files.canonicalize(f"{root}/loop")) == INTERNAL_ERROR


# --- walk ---


def test_walk_is_breadth_first_and_sorted(files: FileAccess, root: Path) -> None:
    assert names(files, root) == [".hid", "a.txt", "d", ".hid/x", "d/b.txt", "d/sub"]


def test_walk_enters_a_linked_directory_once(files: FileAccess, root: Path) -> None:
    (root / "d" / "up").symlink_to("..")
    found = names(files, root, follow_directory_symlinks=True, prune_hidden_directories=True)
    assert found == [".hid", "a.txt", "d", "dlink", "d/b.txt", "d/sub", "d/up"]


def test_walk_limits(files: FileAccess, root: Path) -> None:
    assert names(files, root, max_depth=0) == [".hid", "a.txt", "d"]
    few = files.walk(str(root), WalkLimits(max_entries=3))
    assert (len(few.entries), few.truncated) == (3, True)
    exact = files.walk(str(root), WalkLimits(max_entries=6))
    assert (len(exact.entries), exact.truncated) == (6, False)
    two = files.walk(str(root), WalkLimits(max_directories=2))
    assert (two.entries[-1].path, two.truncated) == (f"{root}/.hid/x", True)
    for limits in (WalkLimits(max_depth=65), WalkLimits(max_directories=10_001), WalkLimits(max_entries=50_001)):
        assert code_of(lambda limits=limits: files.walk(str(root), limits)) == INVALID_REQUEST  # type: ignore[misc]


def test_walk_of_other_things(files: FileAccess, root: Path) -> None:
    assert files.walk(f"{root}/a.txt", WalkLimits()).entries == ()
    assert [entry.path for entry in files.walk(f"{root}/dlink", WalkLimits()).entries] == [
        f"{root}/dlink/b.txt",
        f"{root}/dlink/sub",
    ]
    assert code_of(lambda: files.walk(f"{root}/nope", WalkLimits())) == NOT_FOUND


def test_walk_reports_a_directory_that_vanished(files: FileAccess, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scan = directories._Walk._scan

    def scan_and_lose(self: directories._Walk, descriptor: int) -> object:
        found = scan(self, descriptor)
        if (root / ".hid").exists():
            (root / ".hid").rename(root / "elsewhere")
        return found

    monkeypatch.setattr(directories._Walk, "_scan", scan_and_lose)
    outcome = files.walk(str(root), WalkLimits())
    assert [(error.path, error.message) for error in outcome.errors] == [
        (f"{root}/.hid", "No such file or directory (os error 2)")
    ]
    assert f"{root}/d/b.txt" in [entry.path for entry in outcome.entries]


def test_walk_answers_stay_below_the_size_limit(files: FileAccess, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directories, "MAX_RESPONSE_BYTES", 2 * (len(f"file://{root}/a.txt") + 40))
    outcome = files.walk(str(root), WalkLimits())
    assert (len(outcome.entries), outcome.truncated) == (2, True)


def test_walk_stops_scanning_names_it_does_not_list(
    files: FileAccess, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(20):
        (root / "d" / f"link{number}").symlink_to("nowhere")
    monkeypatch.setattr(directories, "MAX_SCANNED", 12)
    assert files.walk(str(root), WalkLimits()).truncated


# --- remove ---


def test_remove_takes_the_link_and_leaves_the_target(files: FileAccess, root: Path) -> None:
    (root / "d" / "out").symlink_to(root / ".hid")
    files.remove(f"{root}/dlink")
    files.remove(f"{root}/broken")
    files.remove(f"{root}/fifo")
    files.remove(f"{root}/a.txt", recursive=False, force=False)
    files.remove(f"{root}/d")
    assert sorted(os.listdir(root)) == [".hid", "link"]
    assert (root / ".hid" / "x").exists()


def test_remove_of_a_large_directory_goes_on_after_a_batch(
    files: FileAccess, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directories, "_BATCH", 3)
    for number in range(10):
        (root / "d" / f"f{number}").touch()
    files.remove(f"{root}/d")
    assert not (root / "d").exists()


def test_remove_refusals(files: FileAccess, root: Path) -> None:
    files.remove(f"{root}/nope")
    files.remove(f"{root}/no/such")
    assert code_of(lambda: files.remove(f"{root}/nope", force=False)) == NOT_FOUND
    assert code_of(lambda: files.remove(f"{root}/d", recursive=False)) == INTERNAL_ERROR
    assert code_of(lambda: files.remove(f"{root}/a.txt/x")) == INTERNAL_ERROR
    assert code_of(lambda: files.remove(f"{root}/link", follow=False)) == INTERNAL_ERROR
    assert code_of(lambda: files.remove(f"{root}/dlink/b.txt", follow=False)) == INTERNAL_ERROR
    assert code_of(lambda: files.remove("/")) == INVALID_REQUEST
    assert (root / "link").is_symlink()
    assert (root / "d" / "b.txt").exists()


def test_remove_gives_up_on_a_tree_that_is_too_deep(
    files: FileAccess, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directories, "MAX_REMOVE_DEPTH", 3)
    (root / "d" / "sub" / "3" / "4").mkdir(parents=True)
    assert code_of(lambda: files.remove(f"{root}/d")) == INVALID_REQUEST
    files.remove(f"{root}/d/sub")
    assert not (root / "d" / "sub").exists()


# --- copy ---


def test_copy_keeps_content_and_permission_bits(files: FileAccess, root: Path) -> None:
    (root / "a.txt").chmod(0o751)
    (root / "target").write_bytes(b"something longer than hello")
    files.copy(f"{root}/a.txt", f"{root}/new")
    files.copy(f"{root}/a.txt", f"{root}/target")
    for name in ("new", "target"):
        assert (root / name).read_bytes() == b"hello"
        assert stat.S_IMODE((root / name).stat().st_mode) == 0o751


def test_copy_of_a_tree(files: FileAccess, root: Path) -> None:
    (root / "d" / "l").symlink_to("b.txt")
    (root / "d" / "gone").symlink_to("nowhere")
    (root / "d" / "sub" / "inner").write_bytes(b"i" * 3_000_000)
    (root / "d" / "sub").chmod(0o500)
    os.mkfifo(root / "d" / "pipe")
    files.copy(f"{root}/d", f"{root}/made/on/the/way", recursive=True)
    copied = root / "made" / "on" / "the" / "way"
    assert sorted(os.listdir(copied)) == ["b.txt", "gone", "l", "sub"]
    assert os.readlink(copied / "l") == "b.txt"
    assert os.readlink(copied / "gone") == "nowhere"
    assert (copied / "sub" / "inner").stat().st_size == 3_000_000
    assert stat.S_IMODE((copied / "sub").stat().st_mode) == 0o500


def test_copy_merges_into_an_existing_directory(files: FileAccess, root: Path) -> None:
    (root / "there" / "sub").mkdir(parents=True)
    (root / "there" / "kept").touch()
    (root / "d" / "sub" / "inner").touch()
    files.copy(f"{root}/d", f"{root}/there", recursive=True)
    assert sorted(os.listdir(root / "there")) == ["b.txt", "kept", "sub"]
    assert (root / "there" / "sub" / "inner").exists()


def test_links_are_copied_as_links(files: FileAccess, root: Path) -> None:
    files.copy(f"{root}/link", f"{root}/link2")
    files.copy(f"{root}/dlink", f"{root}/dlink2")
    assert os.readlink(root / "link2") == "a.txt"
    assert os.readlink(root / "dlink2") == "d"


def test_copying_a_file_onto_itself_leaves_it_intact(files: FileAccess, root: Path) -> None:
    os.link(root / "a.txt", root / "hard")
    for destination in ("a.txt", "link", "hard"):
        files.copy(f"{root}/a.txt", f"{root}/{destination}")
        assert (root / "a.txt").read_bytes() == b"hello"
    files.copy(f"{root}/link", f"{root}/link")
    assert os.readlink(root / "link") == "a.txt"
    assert code_of(lambda: files.copy(f"{root}/link", f"{root}/a.txt")) == INTERNAL_ERROR
    assert (root / "a.txt").read_bytes() == b"hello"


@pytest.mark.parametrize("destination", ["d", "d/sub/inner", "dlink/inner", "dlink"])
def test_a_directory_cannot_be_copied_into_itself(files: FileAccess, root: Path, destination: str) -> None:
    before = sorted(os.walk(root / "d"))
    assert code_of(lambda: files.copy(f"{root}/d", f"{root}/{destination}", recursive=True)) == INVALID_REQUEST
    assert sorted(os.walk(root / "d")) == before


def test_copy_refusals(files: FileAccess, root: Path) -> None:
    assert code_of(lambda: files.copy(f"{root}/d", f"{root}/q")) == INVALID_REQUEST
    assert code_of(lambda: files.copy(f"{root}/fifo", f"{root}/q")) == INVALID_REQUEST
    assert code_of(lambda: files.copy(f"{root}/nope", f"{root}/q")) == NOT_FOUND
    assert code_of(lambda: files.copy(f"{root}/a.txt", f"{root}/no/q")) == NOT_FOUND
    assert code_of(lambda: files.copy(f"{root}/a.txt", f"{root}/d")) == INTERNAL_ERROR
    assert code_of(lambda: files.copy(f"{root}/a.txt", f"{root}/fifo")) == INVALID_REQUEST
    assert code_of(lambda: files.copy(f"{root}/d", f"{root}/a.txt", recursive=True)) == INTERNAL_ERROR
    assert not (root / "q").exists()
    assert (root / "a.txt").read_bytes() == b"hello"


def test_a_name_inside_a_target_tree_that_is_a_link_is_not_written_through(files: FileAccess, root: Path) -> None:
    (root / "there").mkdir()
    (root / "there" / "b.txt").symlink_to(root / "a.txt")
    assert code_of(lambda: files.copy(f"{root}/d", f"{root}/there", recursive=True)) == INTERNAL_ERROR
    assert (root / "a.txt").read_bytes() == b"hello"


def test_nothing_leaves_descriptors_open(files: FileAccess, root: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    files.copy(f"{root}/d", f"{root}/copy", recursive=True)
    files.remove(f"{root}/copy")
    files.walk(str(root), WalkLimits(follow_directory_symlinks=True))
    files.list(str(root))
    for name in ("nope", "d", "fifo", "a.txt/x"):
        code_of(lambda name=name: files.read(f"{root}/{name}"))  # type: ignore[misc]
    code_of(lambda: files.write(f"{root}/d", b""))
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_folder_of_the_system_is_not_removed(files: FileAccess, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a folder of our own in the table: no test tries the real ones."""
    assert {"/etc", "/home", "/root", "/tmp", "/usr", "/var"} <= directories.SYSTEM_FOLDERS
    monkeypatch.setattr(directories, "SYSTEM_FOLDERS", {str(root)})
    assert code_of(lambda: files.remove(str(root))) == INVALID_REQUEST
    for name in ("d/..", "d/.", f"../{root.name}", "d/sub/../../.hid/../../zoo"):
        assert code_of(lambda name=name: files.remove(f"{root}/{name}")) == INVALID_REQUEST  # type: ignore[misc]
    assert (root / "a.txt").exists()
    assert (root / "d" / "b.txt").exists()
    files.remove(str(root / "d"))
    assert not (root / "d").exists()
