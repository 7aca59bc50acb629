"""The real `codex exec` with an exec-server as its remote environment.

Every case runs against our server and, as the control, against the real one. Between the two sits a recording proxy,
and every case looks into its record: a codex that ran the command itself would pass otherwise.
"""

from __future__ import annotations

import asyncio
import base64
import errno
import hashlib
import json
import os
import re
import uuid
from collections.abc import AsyncIterator, Generator
from pathlib import Path

import pytest

from interop.programs import RunCodex, codex_command, exec_server, treadle_command
from interop.proxy import DEADLINE, Json, Recorded, RecordingProxy
from interop.scripted_model import (
    Reply,
    Script,
    ScriptedModel,
    apply_patch,
    exec_command,
    replies,
    write_stdin,
)
from treadle.testing import ToolCall

pytestmark = [pytest.mark.interop, pytest.mark.anyio, pytest.mark.timeout(600)]


@pytest.fixture(params=["treadle", "codex"])
async def proxy(request: pytest.FixtureRequest, codex_bin: Path, tmp_path: Path) -> AsyncIterator[RecordingProxy]:
    command = treadle_command() if request.param == "treadle" else codex_command(codex_bin)
    home = tmp_path / "server-home"
    home.mkdir()
    async with exec_server(command, home) as url, RecordingProxy(url).running() as proxy:
        yield proxy


def only_start(proxy: RecordingProxy) -> Json:
    [params] = proxy.traffic.params("process/start")
    assert isinstance(params, dict)
    return params


def session_of(output: str) -> int:
    found = re.search(r"running with session ID (\d+)", output)
    assert found, f"the command is not running: {output}"
    return int(found[1])


def started(call: ToolCall, sign: str) -> Generator[Reply, list[str], tuple[int, str]]:
    """Play a call and look on until the command has printed `sign`: its session, and the outputs so far."""
    [output] = yield [call]
    session = session_of(output)
    while sign not in output:
        [more] = yield [write_stdin(session, "")]
        output += more
    return session, output


async def test_a_command_with_both_streams_and_an_exit_code(
    proxy: RecordingProxy, run_codex: RunCodex, mock_model: ScriptedModel, workspace: Path
) -> None:
    command = "echo to-out; echo to-err >&2; pwd; exit 3"
    run = await run_codex(replies([exec_command(command)], "all done"), proxy.url, workspace)

    assert (run.exit_code, run.answer) == (0, "all done")
    start = only_start(proxy)
    assert start["argv"][-1] == command
    assert (start["cwd"], start["tty"]) == (workspace.as_uri(), False)
    process = start["processId"]
    assert proxy.traffic.pushed(process, "stdout").decode() == f"to-out\n{workspace}\n"
    assert proxy.traffic.pushed(process, "stderr") == b"to-err\n"
    assert proxy.traffic.exit_code(process) == 3
    [seen] = mock_model.outputs
    assert "Process exited with code 3" in seen
    assert {"to-out", "to-err", str(workspace)} <= set(seen.splitlines())


async def test_a_terminal_that_is_typed_into(
    proxy: RecordingProxy, run_codex: RunCodex, mock_model: ScriptedModel, workspace: Path
) -> None:
    command = "test -t 0 && echo a-tty; read x; echo got:$x; read y; echo bye:$y; exit 7"

    def script() -> Script:
        session, _ = yield from started(exec_command(command, tty=True, yield_time_ms=250), "a-tty")
        yield [write_stdin(session, "abc\n")]
        yield [write_stdin(session, "def\n", yield_time_ms=30_000)]
        yield "all done"

    run = await run_codex(script(), proxy.url, workspace)

    assert run.answer == "all done"
    start = only_start(proxy)
    assert start["tty"] is True
    writes = proxy.traffic.calls("process/write")
    assert [base64.b64decode(write.message["params"]["chunk"]) for write in writes] == [b"abc\n", b"def\n"]
    assert [proxy.traffic.reply(write)["result"]["status"] for write in writes] == ["accepted", "accepted"]
    screen = proxy.traffic.pushed(start["processId"], "pty")
    assert b"got:abc\r\n" in screen
    assert screen.endswith(b"bye:def\r\n")
    assert proxy.traffic.exit_code(start["processId"]) == 7
    seen = "".join(mock_model.outputs)
    assert "got:abc" in seen
    assert "bye:def" in seen
    assert "Process exited with code 7" in mock_model.outputs[-1]


@pytest.mark.parametrize("tty", [False, True], ids=["pipes", "tty"])
async def test_ctrl_c(
    proxy: RecordingProxy, run_codex: RunCodex, mock_model: ScriptedModel, workspace: Path, tty: bool
) -> None:
    # Nothing is forked: bash hangs for good when an interrupt ends its child between fork and exec.
    command = "trap 'echo interrupted; exit 9' INT; echo ready; while :; do :; done"

    def script() -> Script:
        session, _ = yield from started(exec_command(command, tty=tty, yield_time_ms=250), "ready")
        yield [write_stdin(session, "\u0003", yield_time_ms=30_000)]
        yield "all done"

    run = await run_codex(script(), proxy.url, workspace)

    assert run.answer == "all done"
    process = only_start(proxy)["processId"]
    if tty:
        assert [base64.b64decode(write["chunk"]) for write in proxy.traffic.params("process/write")] == [b"\x03"]
        assert not proxy.traffic.calls("process/signal")
    else:
        [signal] = proxy.traffic.calls("process/signal")
        assert signal.message["params"] == {"processId": process, "signal": "interrupt"}
        assert proxy.traffic.reply(signal)["result"] == {}
    assert b"interrupted" in proxy.traffic.pushed(process)
    assert proxy.traffic.exit_code(process) == 9
    assert "interrupted" in mock_model.outputs[-1]
    assert "Process exited with code 9" in mock_model.outputs[-1]


async def test_two_commands_in_parallel_that_wait_for_each_other(
    proxy: RecordingProxy, run_codex: RunCodex, mock_model: ScriptedModel, workspace: Path
) -> None:
    meet = "touch {me}; for i in $(seq 1000); do test -e {other} && echo {me}-met && exit 0; sleep 0.02; done; exit 1"
    both = [exec_command(meet.format(me=me, other=other)) for me, other in (("left", "right"), ("right", "left"))]
    run = await run_codex(replies(both, "all done"), proxy.url, workspace)

    assert run.answer == "all done"
    starts = proxy.traffic.params("process/start")
    assert len(starts) == 2
    assert [proxy.traffic.exit_code(start["processId"]) for start in starts] == [0, 0]
    order = [r.message["method"] for r in proxy.traffic.messages if "method" in r.message]
    assert [m for m in order if m in ("process/start", "process/exited")][:2] == ["process/start"] * 2
    left, right = mock_model.outputs
    assert "left-met" in left
    assert "right-met" in right


async def test_apply_patch_writes_through_the_server(
    proxy: RecordingProxy, run_codex: RunCodex, mock_model: ScriptedModel, workspace: Path
) -> None:
    (workspace / "old.txt").write_text("first\nsecond\nthird\n")
    (workspace / "gone.txt").write_text("unwanted\n")
    patch = (
        "*** Begin Patch\n*** Add File: new.txt\n+hello\n+world\n"
        "*** Update File: old.txt\n@@\n first\n-second\n+2nd\n third\n"
        "*** Delete File: gone.txt\n*** End Patch\n"
    )
    run = await run_codex(
        replies([apply_patch(patch)], [exec_command("cat new.txt old.txt")], "done"), proxy.url, workspace
    )

    assert run.answer == "done"
    assert (workspace / "new.txt").read_text() == "hello\nworld\n"
    assert (workspace / "old.txt").read_text() == "first\n2nd\nthird\n"
    assert not (workspace / "gone.txt").exists()
    written = {w["path"]: base64.b64decode(w["dataBase64"]) for w in proxy.traffic.params("fs/writeFile")}
    assert written == {
        (workspace / "new.txt").as_uri(): b"hello\nworld\n",
        (workspace / "old.txt").as_uri(): b"first\n2nd\nthird\n",
    }
    [removed] = proxy.traffic.calls("fs/remove")
    assert removed.message["params"]["path"] == (workspace / "gone.txt").as_uri()
    assert proxy.traffic.reply(removed)["result"] == {}
    patched, shown = mock_model.outputs
    assert "Success" in patched
    assert "hello\nworld\nfirst\n2nd\nthird\n" in shown


async def test_agents_md_of_the_remote_folder_reaches_the_model(
    proxy: RecordingProxy, run_codex: RunCodex, mock_model: ScriptedModel, workspace: Path
) -> None:
    rule = "Always answer in the manner of a weaver."
    (workspace / "AGENTS.md").write_text(rule)
    run = await run_codex(replies("all done"), proxy.url, workspace)

    assert run.answer == "all done"
    uri = (workspace / "AGENTS.md").as_uri()
    reads = [read for read in proxy.traffic.calls("fs/readFile") if read.message["params"]["path"] == uri]
    assert reads
    assert base64.b64decode(proxy.traffic.reply(reads[0])["result"]["dataBase64"]).decode() == rule
    assert rule in json.dumps(mock_model.requests()[0].input)


async def test_large_output_arrives_whole_and_its_end_reaches_the_model(
    proxy: RecordingProxy, run_codex: RunCodex, mock_model: ScriptedModel, workspace: Path
) -> None:
    lines = 30_000
    command = f"yes {'x' * 99} | head -n {lines}; echo the-very-end"
    run = await run_codex(replies([exec_command(command)], "all done"), proxy.url, workspace)

    assert run.answer == "all done"
    process = only_start(proxy)["processId"]
    assert proxy.traffic.pushed(process) == (b"x" * 99 + b"\n") * lines + b"the-very-end\n"
    assert proxy.traffic.exit_code(process) == 0
    [seen] = mock_model.outputs
    assert "Process exited with code 0" in seen
    assert seen.rstrip().endswith("the-very-end")


async def open_gate(gate: Path) -> None:
    """Let the command go on that reads from this FIFO; returns once it has come there."""
    async with asyncio.timeout(DEADLINE):
        while True:
            try:
                writer = os.open(gate, os.O_WRONLY | os.O_NONBLOCK)
                break
            except OSError as error:
                if error.errno != errno.ENXIO:
                    raise
                await asyncio.sleep(0.02)
    os.write(writer, b"\n")
    os.close(writer)


def is_resumption(recorded: Recorded) -> bool:
    message = recorded.message
    return message.get("method") == "initialize" and message["params"].get("resumeSessionId") is not None


async def catching_up(proxy: RecordingProxy, resumed: Recorded) -> Json:
    """What the server answers when the client asks for the events that it missed."""

    def is_read(recorded: Recorded) -> bool:
        # A first attempt may come too early for the server and be answered "attached": then it is a later connection.
        return recorded.connection >= resumed.connection and recorded.message.get("method") == "process/read"

    read = await proxy.traffic.wait_for(is_read)
    reply = await proxy.traffic.wait_for(lambda recorded: recorded.answers(read))
    result = reply.message["result"]
    assert isinstance(result, dict)
    return result


@pytest.mark.parametrize("outage", [False, True], ids=["blip", "outage"])
async def test_a_cut_connection_resumes_and_loses_nothing(
    proxy: RecordingProxy, run_codex: RunCodex, mock_model: ScriptedModel, workspace: Path, outage: bool
) -> None:
    first, second, third = (workspace / f"gate{number}" for number in (1, 2, 3))
    for gate in (first, second, third):
        os.mkfifo(gate)
    command = "echo one; read _ <gate1; echo two; read _ <gate2; echo three; read _ <gate3; echo four; exit 5"

    async with asyncio.TaskGroup() as group:
        running = group.create_task(run_codex(replies([exec_command(command)], "all done"), proxy.url, workspace))
        await proxy.traffic.wait_for(lambda recorded: recorded.message.get("method") == "process/output")
        if outage:
            proxy.refuse()
        proxy.cut()
        if outage:
            await open_gate(first)
            await open_gate(second)  # so "two" was said while nobody was connected
            async with asyncio.timeout(DEADLINE):
                await proxy.refused.wait()
            proxy.accept()
        resumed = await proxy.traffic.wait_for(is_resumption)
        caught_up = await catching_up(proxy, resumed)
        if not outage:
            await open_gate(first)
            await open_gate(second)
        await open_gate(third)
    run = running.result()

    assert run.answer == "all done"
    fresh = proxy.traffic.calls("initialize")[0]
    session = proxy.traffic.reply(fresh)["result"]["sessionId"]
    assert resumed.message["params"]["resumeSessionId"] == session
    assert resumed.connection > fresh.connection
    assert only_start(proxy)["argv"][-1] == command
    missed = b"".join(base64.b64decode(chunk["chunk"]) for chunk in caught_up["chunks"])
    assert b"two\n" in missed or not outage
    [seen] = mock_model.outputs
    assert "Process exited with code 5" in seen
    assert seen.endswith("Output:\none\ntwo\nthree\nfour\n")


async def test_a_sandbox_is_enforced(
    proxy: RecordingProxy, run_codex: RunCodex, mock_model: ScriptedModel, workspace: Path
) -> None:
    # Not below the temporary folder: codex grants that too.
    outside = Path("/usr") / f"treadle-interop-{uuid.uuid4()}"
    script = replies([exec_command(f"touch inside.txt && echo made; touch {outside}")], "all done")
    run = await run_codex(script, proxy.url, workspace, sandbox="workspace-write")

    assert (run.exit_code, run.answer) == (0, "all done")
    start = only_start(proxy)
    assert start["sandbox"]["permissions"]["type"] == "managed"
    process = start["processId"]
    assert proxy.traffic.pushed(process, "stdout") == b"made\n"
    # As bubblewrap says it, or Landlock.
    refusal = proxy.traffic.pushed(process, "stderr")
    assert b"Read-only file system" in refusal or b"Permission denied" in refusal
    assert (workspace / "inside.txt").exists()
    assert not outside.exists()


async def test_the_secret_in_the_url_lets_codex_in_and_nothing_else_does(
    treadle_exec_server: str, run_codex: RunCodex, mock_model: ScriptedModel, workspace: Path, tmp_path: Path
) -> None:
    """It can be given nothing but a URL; here no proxy adds the token for it."""
    run = await run_codex(replies([exec_command("touch made")], "all done"), treadle_exec_server, workspace)
    assert run.answer == "all done"
    (workspace / "made").unlink()

    (tmp_path / "codex-home").rename(tmp_path / "first-home")
    bare = treadle_exec_server.rpartition("/")[0]
    await run_codex(replies([exec_command("touch made")], "all done"), bare, workspace)
    assert not (workspace / "made").exists()
    assert mock_model.outputs[-1] == "unsupported call: exec_command", "without an environment it offers no commands"


async def test_with_rights_of_its_own_codex_works_in_its_folder_alone(
    codex_bin: Path, tmp_path: Path, run_codex: RunCodex, mock_model: ScriptedModel, workspace: Path
) -> None:
    """It looks for `.git` above the folder as well, asks for no sandbox, and gets on with what it is denied."""
    home, token = tmp_path / "server-home", "token-of-the-real-codex"
    home.mkdir()
    tokens = home / "tokens.toml"
    tokens.touch(mode=0o600)
    digest = hashlib.sha256(token.encode()).hexdigest()
    tokens.write_text(f'[tokens.codex]\nsha256 = "{digest}"\nfolders = ["{workspace}"]\n')
    (tmp_path / "secret").write_text("secret of others")
    command = [*treadle_command(), "--tokens-file", str(tokens)]
    patch = "*** Begin Patch\n*** Add File: made.txt\n+by codex\n*** End Patch\n"
    script = replies(
        [exec_command(f"pwd; echo one > one; cat {tmp_path / 'secret'}; exit 3")], [apply_patch(patch)], "all done"
    )
    async with exec_server(command, home) as url, RecordingProxy(f"{url}/{token}").running() as proxy:
        run = await run_codex(script, proxy.url, workspace)
        assert (run.exit_code, run.answer) == (0, "all done")
        assert only_start(proxy)["sandbox"] is None
    assert (workspace / "one").read_text() == "one\n"
    assert (workspace / "made.txt").read_text() == "by codex\n"
    assert str(workspace) in mock_model.outputs[0]
    assert not [seen for seen in mock_model.outputs if "secret of others" in seen]
