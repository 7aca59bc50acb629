"""File handles: blocks, limits, and closing while a block is on its way."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from treadle.errors import INTERNAL_ERROR, INVALID_REQUEST, NOT_FOUND, ExecError
from treadle.execution import MAX_BLOCK, MAX_HANDLES, FileAccess, FileHandles, OpenMode

DEADLINE = 60


@pytest.fixture
def handles() -> Iterator[FileHandles]:
    table = FileHandles()
    yield table
    table.close_all()


@pytest.fixture
def path(tmp_path: Path) -> str:
    (tmp_path / "a.txt").write_bytes(b"hello world")
    return str(tmp_path / "a.txt")


def code_of(function: Callable[[], object]) -> int:
    with pytest.raises(ExecError) as caught:
        function()
    return caught.value.code


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_eof_is_told_only_by_a_short_read(handles: FileHandles, path: str) -> None:
    handles.open("h", path, "read", FileAccess())
    assert handles.read_block("h", 0, 3) == (b"hel", False)
    assert handles.read_block("h", 3, 8) == (b"lo world", False)
    assert handles.read_block("h", 3, 9) == (b"lo world", True)
    assert handles.read_block("h", 11, 100) == (b"", True)
    assert handles.read_block("h", 10**12, 1) == (b"", True)


def test_replace_empties_at_once_and_writes_at_positions(handles: FileHandles, path: str) -> None:
    handles.open("w", path, "replace", FileAccess())
    assert os.path.getsize(path) == 0
    handles.write_block("w", 3, b"def")
    handles.write_block("w", 0, b"Z")
    handles.write_block("w", 8, b"!")
    with open(path, "rb") as file:
        assert file.read() == b"Z\0\0def\0\0!"


def test_the_mode_binds(handles: FileHandles, path: str) -> None:
    handles.open("r", path, "read", FileAccess())
    handles.open("w", path + "2", "replace", FileAccess())
    assert code_of(lambda: handles.write_block("r", 0, b"x")) == INTERNAL_ERROR
    assert code_of(lambda: handles.read_block("w", 0, 1)) == INTERNAL_ERROR


def test_refusals(handles: FileHandles, path: str) -> None:
    access = FileAccess()
    handles.open("", path, "read", access)
    assert code_of(lambda: handles.open("", path, "read", access)) == INVALID_REQUEST
    assert code_of(lambda: handles.open("é" * 17, path, "read", access)) == INVALID_REQUEST
    handles.open("é" * 16, path, "read", access)
    assert code_of(lambda: handles.open("m", path + "x", "read", access)) == NOT_FOUND
    assert code_of(lambda: handles.open("d", os.path.dirname(path), "read", access)) == INVALID_REQUEST
    for length in (0, MAX_BLOCK + 1):
        assert code_of(lambda length=length: handles.read_block("", 0, length)) == INVALID_REQUEST  # type: ignore[misc]
        assert code_of(lambda length=length: handles.write_block("", 0, b"x" * length)) == INVALID_REQUEST  # type: ignore[misc]
    assert code_of(lambda: handles.read_block("", 2**64 - 1, 1)) == INVALID_REQUEST
    assert code_of(lambda: handles.write_block("", 2**64 - 1, b"x")) == INVALID_REQUEST
    assert code_of(lambda: handles.read_block("zz", 0, 1)) == NOT_FOUND
    assert code_of(lambda: handles.write_block("zz", 0, b"x")) == NOT_FOUND
    assert len(handles) == 2


def test_an_id_is_free_again_after_close_or_a_failed_open(handles: FileHandles, path: str) -> None:
    access = FileAccess()
    code_of(lambda: handles.open("h", path + "x", "read", access))
    handles.open("h", path, "read", access)
    handles.close("h")
    handles.close("h")
    assert code_of(lambda: handles.read_block("h", 0, 1)) == NOT_FOUND
    handles.open("h", path, "read", access)


def test_the_number_of_handles_is_limited(handles: FileHandles, path: str) -> None:
    before = open_descriptors()
    for number in range(MAX_HANDLES):
        handles.open(str(number), path, "read", FileAccess())
    assert code_of(lambda: handles.open("more", path, "read", FileAccess())) == INVALID_REQUEST
    handles.close("0")
    handles.open("more", path, "read", FileAccess())
    handles.close_all()
    assert open_descriptors() == before
    assert code_of(lambda: handles.open("late", path, "read", FileAccess())) == INVALID_REQUEST


def test_closing_during_a_read_waits_for_its_end(
    handles: FileHandles, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other"
    other.write_bytes(b"another file that must not be read")
    reading, go_on = threading.Event(), threading.Event()
    real, results = os.pread, []

    def slow_pread(descriptor: int, length: int, offset: int) -> bytes:
        reading.set()
        assert go_on.wait(DEADLINE)
        return real(descriptor, length, offset)

    monkeypatch.setattr(os, "pread", slow_pread)
    before = open_descriptors()
    handles.open("h", path, "read", FileAccess())
    thread = threading.Thread(target=lambda: results.append(handles.read_block("h", 0, 5)))
    thread.start()
    assert reading.wait(DEADLINE)
    handles.close("h")
    handles.open("other", str(other), "read", FileAccess())
    go_on.set()
    thread.join(DEADLINE)
    assert results == [(b"hello", False)]
    handles.close("other")
    assert open_descriptors() == before


def test_closing_during_an_open_leaves_nothing_open(handles: FileHandles, path: str) -> None:
    class Slow(FileAccess):
        __slots__ = ()

        def open(self, path: str, mode: OpenMode, follow: bool = True) -> int:
            descriptor = super().open(path, mode, follow)
            handles.close_all()
            return descriptor

    before = open_descriptors()
    assert code_of(lambda: handles.open("h", path, "read", Slow())) == INVALID_REQUEST
    assert open_descriptors() == before
