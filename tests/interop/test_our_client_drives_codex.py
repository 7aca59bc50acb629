"""Our client and the real `codex exec-server`: the cases of the contract that it supports.

Left out is what the real server cannot do: end of input on a pipe, resize, other signals, graceful termination, exit
codes of signals on a terminal, flow control per process, numbering output before the exit.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from backends import Starter, deadline, output_of, story, wait_for_text
from contract import test_environment, test_processes
from system.test_recovery import road_to
from treadle.execution import Closed, Environment, ExecError, ExecParams, Exited, Output
from treadle.logs import IDS, new_trace, outgoing

pytestmark = [pytest.mark.anyio, pytest.mark.interop]

__all__ = ["deadline"]

SUPPORTED = (
    "test_1_true_exits_and_closes",
    "test_2_max_bytes_returns_whole_chunks_and_where_to_go_on",
    "test_2_polling_sees_each_byte_once",
    "test_2_read_without_news_waits_no_longer_than_asked",
    "test_3_pushed_events_are_exact",
    "test_4_evicted_events_are_told_by_read_and_by_events",
    "test_4_late_and_live_join_without_gap_or_repeat",
    "test_4_late_subscribers_get_the_whole_story",
    "test_5_stdin_by_terminal_and_its_end",
    "test_5_without_stdin_a_write_is_refused_and_the_child_reads_eof",
    "test_6_events_before_the_first_subscriber_are_kept",
    "test_10_ctrl_c_on_a_terminal_interrupts",
    "test_11_interrupt_goes_to_the_group",
    "test_12_duplicate_id",
    "test_12_empty_argv",
    "test_12_not_a_program",
    "test_12_nul_bytes",
    "test_an_empty_environment_is_empty_and_programs_are_still_found",
    "test_many_at_once",
    "test_run_collects_output_and_exit_code",
)
globals().update({name: getattr(test_processes, name, None) or getattr(test_environment, name) for name in SUPPORTED})


@pytest.fixture
async def env(real_exec_server: str) -> AsyncIterator[Environment]:
    async with await Environment.connect(real_exec_server) as env:
        yield env


@pytest.fixture
def start(env: Environment, tmp_path: Path) -> Starter:
    return Starter(env, tmp_path)


async def test_numbers_are_gapless_and_in_order_although_pushes_are_not(start: Starter) -> None:
    for _ in range(40):
        events = await story(await start("echo out; echo err >&2"))
        numbers = [event.seq for event in events if isinstance(event, Output | Exited | Closed)]
        assert numbers == list(range(1, len(events) + 1))
        assert isinstance(events[-1], Closed)
        assert len(output_of(events)) == 8


async def test_it_takes_requests_that_are_part_of_a_trace(start: Starter) -> None:
    before = IDS.set({"trace": new_trace()})
    try:
        assert outgoing()
        assert output_of(await story(await start("echo out"))) == b"out\n"
    finally:
        IDS.reset(before)


async def test_terminate_ends_the_process(start: Starter) -> None:
    process = await start(["sleep", "1000"])
    assert await process.terminate() is True
    assert await process.wait() == 137


async def test_what_it_cannot_do_is_said(start: Starter) -> None:
    process = await start(["sleep", "1000"], pipe_stdin=True)
    with pytest.raises(ExecError, match="cannot close stdin"):
        await process.close_stdin()
    with pytest.raises(ExecError, match="cannot send the signal"):
        await process.signal("usr1")
    terminal = await start(["sleep", "1000"], tty=True)
    with pytest.raises(ExecError, match="cannot resize"):
        await terminal.resize(10, 20)


async def test_a_cut_connection_is_resumed(real_exec_server: str, tmp_path: Path) -> None:
    async with road_to(real_exec_server) as (road, url), await Environment.connect(url) as env:
        start = Starter(env, tmp_path)
        process = await start("i=0; while [ $i -lt 60 ]; do echo $i; i=$((i+1)); sleep 0.01; done; exit 5")
        events = []
        async for event in process.events():
            events.append(event)
            if len(events) in (3, 20):
                road.cut()
        assert output_of(events) == b"".join(b"%d\n" % i for i in range(60))
        assert process.exit_code == 5
        assert road.accepted >= 2


async def test_files(env: Environment, tmp_path: Path) -> None:
    path = tmp_path / "folder" / "ä.txt"
    await env.files.mkdir(path.parent)
    await env.files.write(path, b"hello")
    assert path.read_bytes() == b"hello"
    assert await env.files.read(path) == b"hello"
    assert (await env.files.stat(path)).size == 5
    assert [entry.name for entry in await env.files.list(path.parent)] == ["ä.txt"]
    assert [b"".join([block async for block in env.files.read_blocks(path)])] == [b"hello"]
    await env.files.copy(path, tmp_path / "copy")
    await env.files.remove(path.parent)
    assert not path.exists()
    with pytest.raises(ExecError) as caught:
        await env.files.read(path)
    assert caught.value.code == -32004


async def test_stdin_by_pipe(start: Starter) -> None:
    process = await start(["cat"], pipe_stdin=True)
    for number in range(50):
        await process.write(b"%d\n" % number)
    await wait_for_text(process, b"49\n")
    await process.terminate()
    assert output_of(await story(process)) == b"".join(b"%d\n" % number for number in range(50))


async def test_a_start_that_fails_leaves_the_id_free(env: Environment, tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(ExecError) as caught:
            await env.start(ExecParams(process_id="x", argv=["/no/such/program"], cwd=tmp_path))
        assert caught.value.code == -32603
    async with asyncio.timeout(30):
        assert await (await env.start(ExecParams(process_id="x", argv=["true"], cwd=tmp_path))).wait() == 0
