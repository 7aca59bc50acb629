"""`Environment` beyond single processes: `run`, the list, many at once. The same on every backend."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from backends import Starter, gone
from treadle.errors import ArgumentTypeError, ArgumentValueError, ExecTimeout
from treadle.execution import Data, Environment

pytestmark = pytest.mark.anyio


async def test_run_collects_output_and_exit_code(env: Environment, tmp_path: Path) -> None:
    done = await env.run(["/bin/sh", "-c", "pwd; echo err >&2; exit 3"], cwd=tmp_path)
    assert (done.exit_code, done.stdout, done.stderr) == (3, os.fsencode(tmp_path) + b"\n", b"err\n")
    assert sorted(done.output.split()) == sorted([os.fsencode(tmp_path), b"err"])


async def test_run_with_input(env: Environment) -> None:
    data = os.urandom(300_000)
    assert (await env.run(["cat"], input=data)).stdout == data
    assert (await env.run(["true"], input=data)).exit_code == 0


async def test_run_times_out_and_ends_the_command(env: Environment) -> None:
    output = b""
    for timeout in (0.5, 5.0, 30.0):  # a busy machine may take its time to start it
        with pytest.raises(ExecTimeout) as caught:
            await env.run(["/bin/sh", "-c", "echo $$; sleep 1000"], timeout=timeout)
        output = caught.value.output
        if output:
            break
    await gone(int(output))


async def test_processes_are_listed(env: Environment, start: Starter) -> None:
    running = await start(["sleep", "1000"], name="runs")
    ended = await start("exit 2", name="ended")
    await ended.wait()
    infos = {info.process_id: info for info in await env.processes()}
    assert (infos["runs"].exited, infos["runs"].argv) == (False, ("sleep", "1000"))
    assert (infos["ended"].closed, infos["ended"].exit_code) == (True, 2)
    assert not running.exited


async def test_many_at_once(env: Environment) -> None:
    async with asyncio.TaskGroup() as group:
        runs = [group.create_task(env.run(["/bin/sh", "-c", f"echo {i}; exit {i}"])) for i in range(40)]
    assert [(run.result().exit_code, run.result().stdout) for run in runs] == [(i, b"%d\n" % i) for i in range(40)]


# "SGVsbG8=" is base64 too: what is text must not be taken for it, wherever it is written.
TEXT = "SGVsbG8="
WRONG: list[Any] = [5, ["a"], object()]


@pytest.mark.parametrize("data", [TEXT, "grün\n", b"\0\xff", bytearray(b"abc"), memoryview(b"abcdef")[2:4]])
async def test_what_may_be_written(env: Environment, start: Starter, tmp_path: Path, data: Data) -> None:
    expected = data.encode() if isinstance(data, str) else bytes(data)
    assert (await env.run(["cat"], input=data)).stdout == expected
    process = await start(["cat"], pipe_stdin=True)
    await process.write(data)
    await process.close_stdin()
    await process.wait()
    assert b"".join(chunk.chunk for chunk in (await process.read()).chunks) == expected
    await env.files.write(tmp_path / "whole", data)
    await env.files.write_blocks(tmp_path / "blocks", [data, data])
    await env.files.write_blocks(tmp_path / "one", data)  # type: ignore[arg-type]
    assert [(tmp_path / name).read_bytes() for name in ("whole", "blocks", "one")] == [expected, expected * 2, expected]


async def test_half_a_character_cannot_be_written(env: Environment, tmp_path: Path) -> None:
    for call in (env.run(["cat"], input="a\ud800"), env.files.write(tmp_path / "file", "a\ud800")):
        with pytest.raises(ArgumentValueError, match="has half a character"):
            await call
    assert not (tmp_path / "file").exists()


@pytest.mark.parametrize("data", WRONG, ids=lambda data: type(data).__name__)
async def test_what_cannot_be_written_is_said_at_once(
    env: Environment, start: Starter, tmp_path: Path, data: Any
) -> None:
    (tmp_path / "kept").write_bytes(b"as it was")
    process = await start(["cat"], pipe_stdin=True)
    for call in (
        env.run(["touch", str(tmp_path / "ran")], input=data),
        process.write(data),
        env.files.write(tmp_path / "kept", data),
    ):
        with pytest.raises(ArgumentTypeError, match=r"must be text .* or bytes, not "):
            await call
    with pytest.raises(ArgumentTypeError, match="blocks must be an iterable of text or bytes, not an int"):
        await env.files.write_blocks(tmp_path / "kept", 5)  # type: ignore[arg-type]
    with pytest.raises(ArgumentTypeError, match="text must be a str, not a bytes"):
        await env.files.write_text(tmp_path / "kept", b"x")  # type: ignore[arg-type]
    assert (tmp_path / "kept").read_bytes() == b"as it was"
    assert not (tmp_path / "ran").exists()
