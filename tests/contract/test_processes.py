"""What a process does, the same on every backend; numbered by subject."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import uuid
from pathlib import Path

import pytest

from backends import Starter, alive, gone, output_of, story, wait_for_text
from treadle.errors import SandboxRefused
from treadle.execution import (
    Closed,
    Environment,
    Evicted,
    ExecError,
    Exited,
    Output,
    OutputStream,
    WriteStatus,
)
from treadle.protocol.exec import Permissions, Sandbox

pytestmark = pytest.mark.anyio

# --- 1 to 3: starting, polling, pushed events ---


async def test_1_true_exits_and_closes(start: Starter) -> None:
    process = await start(["true"])
    assert await process.wait() == 0
    answer = await process.read()
    assert (answer.chunks, answer.next_seq) == ((), 3)
    assert (answer.exited, answer.exit_code, answer.closed, answer.failure) == (True, 0, True, None)


async def test_1_what_cannot_be_confined_is_not_run(start: Starter, tmp_path: Path) -> None:
    """An error of its own: the agent asks whether to run it without a sandbox."""
    with pytest.raises(SandboxRefused, match="have no file_system"):
        await start(f"touch {tmp_path}/made", sandbox=Sandbox(permissions=Permissions(type="managed")))
    assert not (tmp_path / "made").exists()
    with pytest.raises(ExecError) as caught:
        await start(["/no/such/program"])
    assert not isinstance(caught.value, SandboxRefused)


async def test_2_polling_sees_each_byte_once(start: Starter) -> None:
    process = await start("for i in 1 2 3 4 5; do echo line $i; sleep 0.02; done")
    seen, after, answer = b"", 0, await process.read()
    while True:
        seen += b"".join(chunk.chunk for chunk in answer.chunks)
        after = answer.next_seq - 1
        if answer.closed:
            break
        answer = await process.read(after, wait_ms=60_000)
    assert seen == b"line 1\nline 2\nline 3\nline 4\nline 5\n"


async def test_2_read_without_news_waits_no_longer_than_asked(start: Starter) -> None:
    process = await start(["sleep", "1000"])
    answer = await process.read(wait_ms=30)
    assert (answer.chunks, answer.exited, answer.closed) == ((), False, False)


async def test_2_max_bytes_returns_whole_chunks_and_where_to_go_on(start: Starter) -> None:
    process = await start("printf one; sleep 0.1; printf two; sleep 0.1; printf three")
    await process.wait()
    chunks, after = [], 0
    while True:
        answer = await process.read(after, max_bytes=1)
        if not answer.chunks:
            break
        assert len(answer.chunks) == 1
        chunks.append(answer.chunks[0].chunk)
        after = answer.next_seq - 1
    assert b"".join(chunks) == b"onetwothree"


async def test_3_pushed_events_are_exact(start: Starter) -> None:
    process = await start("printf out; sleep 0.2; printf err >&2; sleep 0.2; exit 7")
    assert await story(process) == [
        Output(1, OutputStream.STDOUT, b"out"),
        Output(2, OutputStream.STDERR, b"err"),
        Exited(3, 7),
        Closed(4),
    ]


async def test_changed_returns_when_there_is_something_newer(start: Starter) -> None:
    process = await start("read line; echo $line", pipe_stdin=True)
    waiting = asyncio.ensure_future(process.changed(0))
    done, _ = await asyncio.wait((waiting,), timeout=0.05)
    assert not done
    await process.write(b"go\n")
    assert await waiting >= 1
    await process.wait()
    assert await process.changed(10_000) == 3  # nothing newer will come


# --- 4, 6: late subscribers, retention ---


async def test_4_late_subscribers_get_the_whole_story(start: Starter) -> None:
    process = await start("echo a; echo b >&2; exit 3")
    await process.wait()
    first, second = await story(process), await story(process)
    assert first == second
    assert output_of(first, OutputStream.STDOUT) == b"a\n"
    assert [type(event) for event in first if not isinstance(event, Output)] == [Exited, Closed]


async def test_4_late_and_live_join_without_gap_or_repeat(start: Starter) -> None:
    process = await start("i=0; while [ $i -lt 200 ]; do echo $i; i=$((i+1)); done; read x; echo end", pipe_stdin=True)
    await wait_for_text(process, b"199\n")
    stream = process.events()
    events = [await anext(stream)]
    await process.write(b"\n")
    events += [event async for event in stream]
    assert output_of(events) == b"".join(b"%d\n" % i for i in range(200)) + b"end\n"
    assert [event.seq for event in events if isinstance(event, Output | Exited | Closed)] == list(
        range(1, len(events) + 1)
    )


async def test_4_evicted_events_are_told_by_read_and_by_events(start: Starter) -> None:
    process = await start("head -c 3000000 /dev/zero; echo the-end")
    await process.wait()
    answer = await process.read()
    assert answer.evicted is not None
    assert answer.evicted.first_seq == 1
    assert answer.chunks[0].seq == answer.evicted.last_seq + 1
    assert sum(len(chunk.chunk) for chunk in answer.chunks) <= 1 << 20
    events = await story(process)
    assert events[0] == Evicted(1, answer.evicted.last_seq)
    assert output_of(events).endswith(b"the-end\n")
    assert isinstance(events[-1], Closed)
    later = await process.read(answer.evicted.last_seq)
    assert later.evicted is None


async def test_4_the_exit_survives_eviction(start: Starter) -> None:
    process = await start("(read go; head -c 3000000 /dev/zero) & exit 9", pipe_stdin=True)
    # A background job of a shell without job control reads /dev/null, so it starts at once.
    await process.wait()
    events = await story(process)
    exits = [event for event in events if isinstance(event, Exited)]
    assert [event.exit_code for event in exits] == [9]
    assert any(isinstance(event, Evicted) for event in events)


async def test_4_a_reading_subscriber_never_misses_anything(start: Starter) -> None:
    process = await start("head -c 5000000 /dev/zero | tr '\\0' x")
    seen = 0
    async for event in process.events():
        assert not isinstance(event, Evicted)
        if isinstance(event, Output):
            seen += len(event.chunk)
            await asyncio.sleep(0)
    assert seen == 5_000_000


async def test_6_events_before_the_first_subscriber_are_kept(start: Starter) -> None:
    process = await start("echo early; read x; echo late", pipe_stdin=True)
    await process.changed(0)
    await process.write(b"\n")
    assert output_of(await story(process)) == b"early\nlate\n"


# --- 5: stdin ---


async def test_5_stdin_by_pipe_and_its_end(start: Starter) -> None:
    process = await start(["cat"], pipe_stdin=True)
    assert (await process.write(b"hello\n")).status is WriteStatus.ACCEPTED
    await wait_for_text(process, b"hello\n")
    await process.close_stdin()
    assert await process.wait() == 0
    assert output_of(await story(process)) == b"hello\n"


async def test_5_stdin_by_terminal_and_its_end(start: Starter) -> None:
    process = await start("IFS= read line; echo got:$line; cat; echo done", tty=True)
    assert (await process.write(b"hello\n")).status is WriteStatus.ACCEPTED
    await wait_for_text(process, b"got:hello\r\n")
    await process.close_stdin()
    assert await process.wait() == 0
    assert output_of(await story(process), OutputStream.PTY).endswith(b"done\r\n")


async def test_5_without_stdin_a_write_is_refused_and_the_child_reads_eof(start: Starter) -> None:
    process = await start("if read line; then echo got; else echo eof; fi; sleep 0.1")
    assert (await process.write(b"ignored\n")).status is WriteStatus.STDIN_CLOSED
    assert output_of(await story(process)) == b"eof\n"
    assert (await process.write(b"later\n")).status is WriteStatus.STDIN_CLOSED


async def test_5_many_writes_arrive_in_order(start: Starter) -> None:
    process = await start(["cat"], pipe_stdin=True)
    parts = [f"{i}\n".encode() * 50 for i in range(200)]
    async with asyncio.TaskGroup() as group:
        reader = group.create_task(story(process))
        for part in parts:
            await process.write(part)
        await process.close_stdin()
    assert output_of(reader.result()) == b"".join(parts)


async def test_5_a_write_after_the_exit_fails(start: Starter) -> None:
    process = await start(["true"], pipe_stdin=True)
    await process.wait()
    with pytest.raises(ExecError) as caught:
        await process.write(b"x")
    assert caught.value.code == -32603


# --- 8: numbering ---


async def test_8_output_is_numbered_before_the_exit_and_the_close_is_last(start: Starter) -> None:
    for round_ in range(40):
        process = await start("echo out; echo err >&2", tty=round_ % 4 == 3)
        events = await story(process)
        assert [e.seq for e in events if isinstance(e, Output | Exited | Closed)] == list(range(1, len(events) + 1))
        assert [type(event) for event in events[-2:]] == [Exited, Closed], events
        assert len(output_of(events)) >= 8


async def test_8_output_of_a_background_child_comes_between_exit_and_close(start: Starter) -> None:
    process = await start("echo first; (sleep 0.3; echo late) & exit 5")
    events = await story(process)
    kinds = [type(event) for event in events]
    assert kinds == [Output, Exited, Output, Closed]
    assert isinstance(events[2], Output)
    assert events[2].chunk == b"late\n"
    answer = await process.read()
    assert (answer.exit_code, answer.closed) == (5, True)


# --- 9: who blocks whom ---


async def test_9_a_stopped_reader_blocks_only_its_own_process(env: Environment, start: Starter) -> None:
    flood = await start("head -c 20000000 /dev/zero; echo flooded >&2")
    stopped = flood.events()
    await anext(stopped)  # subscribed, and reads no further
    for _ in range(5):
        done = await env.run(["echo", "still here"], env={"PATH": "/usr/bin:/bin"})
        assert done.stdout == b"still here\n"
    assert not flood.exited
    rest = [event async for event in stopped]
    assert 20_000_000 - 70_000 <= len(output_of(rest, OutputStream.STDOUT)) <= 20_000_000
    assert not any(isinstance(event, Evicted) for event in rest)


async def test_9_a_dropped_reader_lets_its_process_go_on(start: Starter) -> None:
    flood = await start("head -c 20000000 /dev/zero")
    stream = flood.events()
    await anext(stream)
    stream.close()
    assert await flood.wait() == 0


async def test_9_a_child_that_never_reads_blocks_only_its_writer(env: Environment, start: Starter) -> None:
    deaf = await start(["sleep", "1000"], pipe_stdin=True)

    async def fill() -> None:
        while (await deaf.write(b"x" * 65536)).status is WriteStatus.ACCEPTED:
            pass

    writer = asyncio.ensure_future(fill())
    done = await env.run(["echo", "hi"], env={"PATH": "/usr/bin:/bin"})
    assert done.stdout == b"hi\n"
    assert not writer.done()
    assert await deaf.terminate(0) is True
    assert await deaf.wait() == 137
    with contextlib.suppress(ExecError):
        await writer


# --- 10: terminals, launch ---


@pytest.mark.parametrize("tty", [False, True])
async def test_10_death_by_signal_is_128_plus_its_number(start: Starter, tty: bool) -> None:
    process = await start("kill -9 $$", tty=tty)
    assert await process.wait() == 128 + signal.SIGKILL


@pytest.mark.parametrize("tty", [False, True])
async def test_10_cwd_is_the_requested_one(start: Starter, tmp_path: Path, tty: bool) -> None:
    folder = tmp_path / "ein Ördner"
    folder.mkdir()
    process = await start("pwd", cwd=folder, tty=tty)
    assert output_of(await story(process)).strip() == os.fsencode(folder)


@pytest.mark.parametrize("tty", [False, True])
async def test_10_arg0_keeps_the_program(start: Starter, tty: bool) -> None:
    process = await start(["/bin/sh", "-c", "echo $0"], arg0="custom-name", tty=tty)
    assert output_of(await story(process)).strip() == b"custom-name"


async def test_10_a_terminal_is_a_controlling_terminal_of_the_right_size(start: Starter) -> None:
    process = await start("tty; stty size; read x; stty size; ps -o tpgid= -p $$ | tr -d ' '; echo $$", tty=True)
    before = await wait_for_text(process, b"24 80\r\n")
    assert before.startswith(b"/dev/pts/")
    await process.resize(50, 132)
    await process.write(b"\n")
    await process.wait()
    lines = output_of(await story(process)).split(b"\r\n")
    assert b"50 132" in lines
    assert lines[-2] == lines[-3]  # the foreground group is ours


async def test_10_ctrl_c_on_a_terminal_interrupts(start: Starter) -> None:
    process = await start("trap 'echo INT; exit 3' INT; echo ready; while :; do sleep 0.05; done", tty=True)
    await wait_for_text(process, b"ready")
    await process.write(b"\x03")
    assert await process.wait() == 3


async def test_10_resize_without_a_terminal_is_an_error(start: Starter) -> None:
    process = await start(["sleep", "1000"])
    with pytest.raises(ExecError, match="no terminal"):
        await process.resize(10, 10)


async def test_an_empty_environment_is_empty_and_programs_are_still_found(start: Starter) -> None:
    process = await start(["env"], env={})
    assert await story(process) == [Exited(1, 0), Closed(2)]


async def test_no_descriptors_and_no_signal_settings_leak_into_the_child(start: Starter) -> None:
    process = await start(["ls", "/proc/self/fd"])
    assert output_of(await story(process)).split() == [b"0", b"1", b"2", b"3"]  # 3 is ls reading the folder
    process = await start(["grep", "-E", "SigIgn|SigBlk", "/proc/self/status"])
    masks = [int(word, 16) for word in output_of(await story(process)).split()[1::2]]
    # 32 and 33 belong to the C library's threads, and its posix_spawn ignores them in every child.
    assert [mask & ~(0b11 << 31) for mask in masks] == [0, 0]


# --- 11: signals, terminate ---


@pytest.mark.parametrize("tty", [False, True])
async def test_11_interrupt_goes_to_the_group(start: Starter, tty: bool) -> None:
    process = await start("trap 'echo INT; exit 3' INT; echo ready; while :; do sleep 0.05; done", tty=tty)
    await wait_for_text(process, b"ready")
    await process.signal("interrupt")
    assert await process.wait() == 3
    assert b"INT" in output_of(await story(process))


async def test_11_other_signals(start: Starter) -> None:
    process = await start("trap 'echo USR1' USR1; trap 'exit 4' HUP; echo ready; while :; do sleep 0.05; done")
    await wait_for_text(process, b"ready")
    await process.signal("usr1")
    await wait_for_text(process, b"USR1")
    await process.signal("hangup")
    assert await process.wait() == 4
    await process.signal("kill")  # nothing happens


async def test_11_terminate_asks_first(start: Starter) -> None:
    process = await start("trap 'echo bye; exit 6' TERM; echo ready; while :; do sleep 0.05; done")
    await wait_for_text(process, b"ready")
    assert await process.terminate(grace_s=30) is True
    assert await process.wait() == 6
    assert output_of(await story(process), OutputStream.STDOUT).endswith(b"bye\n")
    assert await process.terminate() is False


async def test_11_terminate_then_kills_the_whole_family(start: Starter) -> None:
    process = await start(
        "trap '' TERM; sleep 1001 & echo $!; setsid sleep 1002 & echo $!;"
        " (setsid sleep 1003 >/dev/null 2>&1 </dev/null & echo $!); echo ready; wait; sleep 1000"
    )
    text = await wait_for_text(process, b"ready")
    pids = [int(word) for word in text.split()[:3]]
    assert all(alive(pid) for pid in pids)
    await process.terminate(grace_s=0.1)
    assert await process.wait() == 137
    for pid in pids:
        await gone(pid)


async def test_11_terminate_ends_what_outlived_the_exit(start: Starter) -> None:
    process = await start("sleep 1004 & echo $!; exit 0")
    pid = int(await wait_for_text(process, b"\n"))
    while not process.exited:
        await process.changed(process.log.last_seq)
    assert not process.closed
    assert await process.terminate(0) is False
    await gone(pid)
    assert await process.wait() == 0


# --- 12: bad input ---


async def refused(start: Starter, command: list[str], **options: object) -> ExecError:
    name = str(uuid.uuid4())
    with pytest.raises(ExecError) as caught:
        await start(command, name=name, **options)  # type: ignore[arg-type]
    process = await start(["true"], name=name)  # the id is free
    assert await process.wait() == 0
    return caught.value


async def test_12_empty_argv(start: Starter) -> None:
    assert (await refused(start, [])).code == -32602


@pytest.mark.parametrize("tty", [False, True])
async def test_12_missing_program(start: Starter, tty: bool) -> None:
    error = await refused(start, ["no-such-program-anywhere"], tty=tty)
    assert error.code == -32603
    assert "No such file or directory" in error.message
    assert "no-such-program-anywhere" in error.message


@pytest.mark.parametrize("tty", [False, True])
async def test_12_missing_cwd(start: Starter, tmp_path: Path, tty: bool) -> None:
    error = await refused(start, ["true"], cwd=tmp_path / "missing", tty=tty)
    assert error.code == -32603
    assert "missing" in error.message


async def test_12_nul_bytes(start: Starter) -> None:
    assert (await refused(start, ["echo", "a\0b"])).code == -32603
    assert (await refused(start, ["echo"], env={"A": "x\0y"})).code == -32603


async def test_12_no_text(start: Starter, tmp_path: Path) -> None:
    assert "surrogate" in (await refused(start, ["echo", "a\ud800b"])).message
    assert "surrogate" in (await refused(start, ["echo"], env={"A": "x\ud800y"})).message
    assert "surrogate" in (await refused(start, ["echo"], cwd=tmp_path / "x\ud800y")).message


async def test_12_not_a_program(start: Starter, tmp_path: Path) -> None:
    assert "Permission denied" in (await refused(start, [str(tmp_path)])).message
    script = tmp_path / "plain.txt"
    script.write_text("hello")
    script.chmod(0o755)
    assert "Exec format error" in (await refused(start, [str(script)])).message


async def test_12_duplicate_id(start: Starter) -> None:
    process = await start(["sleep", "1000"], name="one")
    with pytest.raises(ExecError, match="already exists") as caught:
        await start(["true"], name="one")
    assert caught.value.code == -32600
    assert not process.exited


async def test_12_relative_cwd_and_string_argv(env: Environment, start: Starter) -> None:
    with pytest.raises(ExecError, match="absolute"):
        await start(["true"], cwd=Path("relative"))
