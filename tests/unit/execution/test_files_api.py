"""`Files`: one suite over the local implementation and the remote one, which talks in memory to the server's side."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Iterable
from pathlib import Path

import msgspec
import pytest
from msgspec import Struct

from treadle.errors import INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, NOT_FOUND, ExecError
from treadle.execution import (
    DirEntry,
    FileMethods,
    Files,
    LocalFiles,
    RemoteFiles,
    WalkEntry,
    WalkOutcome,
    uri_from_path,
)
from treadle.execution.files import remote_files
from treadle.protocol.exec import METHODS, Sandbox

pytestmark = pytest.mark.anyio


class Wired:
    """A server's file methods behind what a connection does to params and results: encode and decode them."""

    def __init__(self) -> None:
        self.server = FileMethods(lambda _method, _params: None)
        self.calls: list[str] = []

    async def call(self, method: str, params: Struct) -> Struct:
        self.calls.append(method)
        sent = msgspec.json.decode(msgspec.json.encode(params), type=METHODS[method].params)
        result = await self.server.handlers[method](sent)
        answer: Struct = msgspec.json.decode(msgspec.json.encode(result), type=METHODS[method].result)
        return answer


@pytest.fixture
async def wired() -> AsyncIterator[Wired]:
    wired = Wired()
    yield wired
    await wired.server.close()


@pytest.fixture(params=["local", "remote"])
def files(request: pytest.FixtureRequest, wired: Wired) -> Files:
    return LocalFiles() if request.param == "local" else RemoteFiles(wired.call)


@pytest.fixture
def base(tmp_path: Path) -> Path:
    base = tmp_path.resolve()
    (base / "d" / "sub").mkdir(parents=True)
    (base / "a.txt").write_bytes(b"hello")
    (base / "d" / "b.txt").write_bytes(b"b")
    (base / "link").symlink_to("a.txt")
    (base / "dlink").symlink_to("d")
    (base / "broken").symlink_to("nope")
    os.mkfifo(base / "fifo")
    return base


async def code_of(operation: Awaitable[object]) -> int:
    with pytest.raises(ExecError) as caught:
        await operation
    return caught.value.code


async def collect(blocks: AsyncIterator[bytes]) -> list[bytes]:
    return [block async for block in blocks]


def descriptors(path: Path) -> int:
    """How many of our descriptors have the file open."""
    count = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            count += os.readlink(f"/proc/self/fd/{name}") == str(path)
        except FileNotFoundError:  # the descriptor of the listing itself
            continue
    return count


async def test_read_and_write(files: Files, base: Path) -> None:
    await files.write(base / "new", b"\0\xff")
    assert await files.read(str(base / "new")) == b"\0\xff"
    await files.write(base / "new", b"")
    assert await files.read(base / "new") == b""
    await files.write_text(base / "text", "grüße")
    assert await files.read_text(base / "text") == "grüße"
    assert (base / "text").read_bytes() == "grüße".encode()
    assert await files.read(f"{base}/d/../link") == b"hello"


async def test_large_files_go_in_blocks(
    files: Files, base: Path, wired: Wired, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_files, "_WHOLE", 1000)
    data = os.urandom(2_500_000)
    await files.write(base / "large", data)
    assert await files.read(base / "large") == data
    assert "fs/readFile" not in wired.calls
    assert "fs/writeFile" not in wired.calls
    assert descriptors(base / "large") == 0


async def test_a_file_over_the_limit_is_refused(files: Files, base: Path) -> None:
    os.truncate(base / "a.txt", 512 * 1024 * 1024 + 1)
    assert await code_of(files.read(base / "a.txt")) == INVALID_REQUEST


async def test_stat_and_exists(files: Files, base: Path) -> None:
    os.utime(base / "a.txt", ns=(0, 1_500_000_000_123_999_999))
    found = await files.stat(base / "link")
    assert (found.is_file, found.is_directory, found.is_symlink, found.size) == (True, False, True, 5)
    assert found.modified_at_ms == 1_500_000_000_123
    assert (await files.stat(base / "d")).is_directory
    assert await files.exists(base / "link")
    assert not await files.exists(base / "nope")
    assert not await files.exists(base / "broken")


async def test_list_and_walk(files: Files, base: Path) -> None:
    os.mkdir(os.fsencode(base) + b"/\xff")
    assert await files.list(base) == [
        DirEntry("a.txt", is_directory=False, is_file=True),
        DirEntry("d", is_directory=True, is_file=False),
        DirEntry("dlink", is_directory=True, is_file=False),
        DirEntry("fifo", is_directory=False, is_file=False),
        DirEntry("link", is_directory=False, is_file=True),
        DirEntry("\ufffd", is_directory=True, is_file=False),
    ]
    assert await files.walk(base) == WalkOutcome(
        (
            WalkEntry(f"{base}/a.txt", "file"),
            WalkEntry(f"{base}/d", "directory"),
            WalkEntry(f"{base}/\udcff", "directory"),
            WalkEntry(f"{base}/d/b.txt", "file"),
            WalkEntry(f"{base}/d/sub", "directory"),
        ),
        (),
        truncated=False,
    )
    assert (await files.walk(base, max_entries=1)).truncated
    shallow = await files.walk(base, max_depth=0, follow_directory_symlinks=True)
    assert WalkEntry(f"{base}/dlink", "directory") in shallow.entries
    assert WalkEntry(f"{base}/d/b.txt", "file") not in shallow.entries


async def test_mkdir_copy_remove_canonicalize(files: Files, base: Path) -> None:
    await files.mkdir(base / "x" / "y")
    await files.mkdir(base / "x" / "y")
    await files.mkdir(base / "single", parents=False)
    await files.copy(base / "a.txt", base / "x" / "a")
    await files.copy(base / "d", base / "x" / "d", recursive=True)
    assert (base / "x" / "a").read_bytes() == b"hello"
    assert (base / "x" / "d" / "sub").is_dir()
    await files.remove(base / "x")
    await files.remove(base / "x")
    await files.remove(base / "dlink")
    await files.remove(base / "single", recursive=False, missing_ok=False)
    assert sorted(os.listdir(base)) == ["a.txt", "broken", "d", "fifo", "link"]
    assert await files.canonicalize(base / "link") == f"{base}/a.txt"


async def test_copying_a_file_onto_itself(files: Files, base: Path) -> None:
    await files.copy(base / "a.txt", base / "a.txt")
    await files.copy(base / "a.txt", base / "link")
    assert (base / "a.txt").read_bytes() == b"hello"


async def test_error_codes(files: Files, base: Path) -> None:
    cases: list[tuple[Awaitable[object], int]] = [
        (files.read(base / "nope"), NOT_FOUND),
        (files.read(base / "d"), INVALID_REQUEST),
        (files.read(base / "fifo"), INVALID_REQUEST),
        (files.read(base / "a.txt" / "x"), INTERNAL_ERROR),
        (files.read("a.txt"), INVALID_PARAMS),
        (files.read("/a\0b"), INVALID_PARAMS),
        (files.write(base / "no" / "w", b""), NOT_FOUND),
        (files.write(base / "d", b""), INTERNAL_ERROR),
        (files.write("relative", b""), INVALID_PARAMS),
        (files.stat(base / "broken"), NOT_FOUND),
        (files.exists("relative"), INVALID_PARAMS),
        (files.exists(base / "a.txt" / "x"), INTERNAL_ERROR),
        (files.list(base / "a.txt"), INTERNAL_ERROR),
        (files.list(base / "nope"), NOT_FOUND),
        (files.walk(base / "nope"), NOT_FOUND),
        (files.walk(base, max_depth=65), INVALID_REQUEST),
        (files.walk(base, max_entries=-1), INVALID_PARAMS),
        (files.mkdir(base / "d", parents=False), INTERNAL_ERROR),
        (files.mkdir(base / "a.txt"), INTERNAL_ERROR),
        (files.remove(base / "nope", missing_ok=False), NOT_FOUND),
        (files.remove(base / "d", recursive=False), INTERNAL_ERROR),
        (files.remove("/"), INVALID_REQUEST),
        (files.copy(base / "d", base / "q"), INVALID_REQUEST),
        (files.copy(base / "d", base / "d" / "q", recursive=True), INVALID_REQUEST),
        (files.copy(base / "nope", base / "q"), NOT_FOUND),
        (files.copy(base / "a.txt", "q"), INVALID_PARAMS),
        (files.canonicalize(base / "nope"), NOT_FOUND),
        (collect(files.read_blocks(base / "nope")), NOT_FOUND),
        (collect(files.read_blocks(base / "fifo")), INVALID_REQUEST),
        (collect(files.read_blocks("relative")), INVALID_PARAMS),
        (files.write_blocks(base / "no" / "w", [b"x"]), NOT_FOUND),
        (files.write_blocks("relative", [b"x"]), INVALID_PARAMS),
    ]
    for number, (operation, code) in enumerate(cases):
        assert await code_of(operation) == code, f"case {number}"


async def test_blocks_are_read_in_order_and_whole(files: Files, base: Path) -> None:
    data = os.urandom(1_000_000)
    (base / "data").write_bytes(data)
    blocks = await collect(files.read_blocks(base / "data", block_size=300_000))
    assert [len(block) for block in blocks] == [300_000, 300_000, 300_000, 100_000]
    assert b"".join(blocks) == data
    assert await collect(files.read_blocks(base / "a.txt", block_size=5)) == [b"hello"]
    (base / "empty").touch()
    assert await collect(files.read_blocks(base / "empty")) == []
    for size in (0, (1 << 20) + 1):
        with pytest.raises(ExecError) as caught:
            files.read_blocks(base / "data", block_size=size)
        assert caught.value.code == INVALID_PARAMS


async def test_a_reader_that_stops_early_leaves_nothing_open(files: Files, base: Path) -> None:
    (base / "data").write_bytes(b"x" * 100)
    blocks = files.read_blocks(base / "data", block_size=10)
    assert await anext(blocks) == b"x" * 10
    assert descriptors(base / "data") == 1
    await blocks.aclose()  # type: ignore[attr-defined]
    assert descriptors(base / "data") == 0


async def test_blocks_are_written_as_they_come(files: Files, base: Path) -> None:
    (base / "data").write_bytes(b"old content")
    sizes: list[int] = []

    async def produce() -> AsyncIterator[bytes]:
        for block in (b"first", b"", b"second"):
            sizes.append((base / "data").stat().st_size)
            yield block

    await files.write_blocks(base / "data", produce())
    assert (base / "data").read_bytes() == b"firstsecond"
    assert sizes == [0, 5, 5]
    large: Iterable[bytes] = [b"a" * 2_500_000, b"b"]
    await files.write_blocks(base / "data", large)
    assert (base / "data").read_bytes() == b"a" * 2_500_000 + b"b"
    assert descriptors(base / "data") == 0


async def test_a_producer_that_fails_leaves_nothing_open(files: Files, base: Path) -> None:
    async def produce() -> AsyncIterator[bytes]:
        yield b"first"
        raise LookupError("no more")

    with pytest.raises(LookupError):
        await files.write_blocks(base / "data", produce())
    assert (base / "data").read_bytes() == b"first"
    assert descriptors(base / "data") == 0


async def test_a_writer_that_is_cancelled_leaves_nothing_open(files: Files, base: Path) -> None:
    waiting = asyncio.Event()

    async def produce() -> AsyncIterator[bytes]:
        yield b"first"
        waiting.set()
        await asyncio.Event().wait()

    task = asyncio.ensure_future(files.write_blocks(base / "data", produce()))
    async with asyncio.timeout(60):
        await waiting.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert descriptors(base / "data") == 0


@pytest.mark.parametrize("kind", ["local", "remote"])
async def test_both_are_confined_alike(kind: str, wired: Wired, base: Path) -> None:
    entry = {"path": {"type": "path", "path": uri_from_path(base / "d")}, "access": "read"}
    raw = {"type": "managed", "network": "restricted", "file_system": {"type": "restricted", "entries": [entry]}}
    wire = msgspec.convert({"permissions": raw}, Sandbox)
    from treadle.execution import policy_from_wire

    files = LocalFiles(policy_from_wire(wire)) if kind == "local" else RemoteFiles(wired.call, sandbox=wire)
    assert await files.read(base / "dlink" / "b.txt") == b"b"
    assert await code_of(files.read(base / "a.txt")) == INVALID_REQUEST
    assert await code_of(collect(files.read_blocks(base / "a.txt"))) == INVALID_REQUEST
    assert await code_of(files.write(base / "d" / "new", b"")) == INTERNAL_ERROR
    assert await code_of(files.write_blocks(base / "d" / "b.txt", [b"x"])) == INTERNAL_ERROR
    assert await code_of(files.mkdir(base / "d" / "new")) == INTERNAL_ERROR
    assert await code_of(files.remove(base / "d")) == INTERNAL_ERROR
    assert await code_of(files.copy(base / "d" / "b.txt", base / "d" / "c.txt")) == INTERNAL_ERROR
    assert await code_of(files.walk(base)) == INVALID_REQUEST
    assert await code_of(files.list(base)) == INVALID_REQUEST
    assert await code_of(files.canonicalize(base / "link")) == INVALID_REQUEST
    assert (base / "d" / "b.txt").read_bytes() == b"b"
