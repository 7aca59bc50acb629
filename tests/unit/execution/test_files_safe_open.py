"""Opening without following links: the kernel's way and the way by components must agree."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from treadle.execution import open_by_component, open_no_symlinks, path_at
from treadle.execution.files import safe_open

Open = Callable[[str, int, int], int]


@pytest.fixture(params=["openat2", "components"])
def opener(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Open:
    if request.param == "openat2":
        kernel = safe_open._kernel_opener()
        if kernel is None:
            pytest.skip("this kernel has no openat2, or a filter forbids it")
        return kernel
    monkeypatch.setattr(safe_open, "_kernel_opener", lambda: None)
    return open_no_symlinks


def number_of(function: Callable[[], int]) -> int:
    with pytest.raises(OSError) as caught:
        os.close(function())
    assert caught.value.errno is not None
    return caught.value.errno


@pytest.fixture
def tree(tmp_path: Path) -> str:
    root = Path(os.path.realpath(tmp_path))
    (root / "d").mkdir()
    (root / "d" / "f").write_bytes(b"content")
    (root / "dlink").symlink_to("d")
    (root / "flink").symlink_to("d/f")
    (root / "nowhere").symlink_to("missing")
    return str(root)


def test_plain_paths_open(opener: Open, tree: str) -> None:
    descriptor = opener(f"{tree}/d/f", os.O_RDONLY, 0)
    assert os.read(descriptor, 100) == b"content"
    os.close(descriptor)
    os.close(opener("/", os.O_PATH, 0))


@pytest.mark.parametrize("name", ["dlink/f", "flink", "nowhere", "dlink", "dlink/missing"])
@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_PATH, os.O_PATH | os.O_DIRECTORY, os.O_WRONLY | os.O_CREAT])
def test_a_link_anywhere_is_refused(opener: Open, tree: str, name: str, flags: int) -> None:
    assert number_of(lambda: opener(f"{tree}/{name}", flags, 0o600 if flags & os.O_CREAT else 0)) == errno.ELOOP
    assert not os.path.exists(f"{tree}/missing")


def test_other_errors_are_the_kernels(opener: Open, tree: str) -> None:
    assert number_of(lambda: opener(f"{tree}/missing/f", os.O_RDONLY, 0)) == errno.ENOENT
    assert number_of(lambda: opener(f"{tree}/d/f/x", os.O_RDONLY, 0)) == errno.ENOTDIR
    assert number_of(lambda: opener(f"{tree}/d/f", os.O_PATH | os.O_DIRECTORY, 0)) == errno.ENOTDIR


def test_no_descriptor_is_left_open(opener: Open, tree: str) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for name in ("d/f", "dlink/f", "missing/f", "d/f/x", "flink"):
        try:
            os.close(opener(f"{tree}/{name}", os.O_PATH, 0))
        except OSError:
            continue
    assert len(os.listdir("/proc/self/fd")) == before


def test_the_place_of_the_root_is_the_root() -> None:
    for no_symlinks in (True, False):
        with path_at("/", no_symlinks=no_symlinks) as found:
            assert os.path.samestat(found.stat(), os.stat("/"))


def test_components_work_without_the_kernel(tree: str) -> None:
    descriptor = open_by_component(f"{tree}/d/new", os.O_WRONLY | os.O_CREAT, 0o600)
    os.close(descriptor)
    assert os.path.isfile(f"{tree}/d/new")
