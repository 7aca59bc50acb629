"""`env.files`, the same on every backend. What the operations do in detail is in tests/unit/execution."""

from __future__ import annotations

from pathlib import Path

import pytest

from treadle.execution import Environment, ExecError

pytestmark = pytest.mark.anyio


async def test_a_file_from_beginning_to_end(env: Environment, tmp_path: Path) -> None:
    folder = tmp_path / "ein Ördner" / "deep"
    file = folder / "ä %41.txt"
    await env.files.mkdir(folder)
    await env.files.write(file, b"hello")
    assert file.read_bytes() == b"hello"
    assert await env.files.read(file) == b"hello"
    stat = await env.files.stat(file)
    assert (stat.is_file, stat.is_directory, stat.size) == (True, False, 5)
    assert [(entry.name, entry.is_file) for entry in await env.files.list(folder)] == [(file.name, True)]
    assert [entry.path for entry in (await env.files.walk(tmp_path)).entries][-1] == str(file)
    await env.files.copy(file, tmp_path / "copy")
    await env.files.copy(tmp_path / "copy", tmp_path / "copy")  # onto itself
    assert (tmp_path / "copy").read_bytes() == b"hello"
    (tmp_path / "link").symlink_to(file)
    assert await env.files.canonicalize(tmp_path / "link") == str(file)
    await env.files.remove(tmp_path / "link")
    assert await env.files.exists(file)
    await env.files.remove(folder)
    assert not folder.exists()


async def test_big_files(env: Environment, tmp_path: Path) -> None:
    data = bytes(range(256)) * 4096 * 11  # 11 MiB: more than goes in one message
    await env.files.write(tmp_path / "big", data)
    assert (tmp_path / "big").read_bytes() == data
    assert await env.files.read(tmp_path / "big") == data
    blocks = [block async for block in env.files.read_blocks(tmp_path / "big")]
    assert max(map(len, blocks)) <= 1 << 20
    assert b"".join(blocks) == data
    await env.files.write_blocks(tmp_path / "copy", blocks)
    assert (tmp_path / "copy").read_bytes() == data


async def test_failures_have_codes(env: Environment, tmp_path: Path) -> None:
    async def code_of(path: Path | str) -> int:
        with pytest.raises(ExecError) as caught:
            await env.files.read(path)
        return caught.value.code

    assert await code_of(tmp_path / "missing") == -32004
    assert await code_of(tmp_path) == -32600
    assert await code_of("relative") == -32602
    with pytest.raises(ExecError) as caught:
        await env.files.remove(tmp_path / "missing", missing_ok=False)
    assert caught.value.code == -32004
