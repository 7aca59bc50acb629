"""`process/*` of the app-server: real processes of a client, in process and over stdio."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import Any

import pytest

from kit.async_app_client import INITIALIZE, AsyncAppClient, InProcess, OverStdio, opened
from kit.processes import processes_left, processes_with
from treadle.errors import INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, OVERLOADED
from treadle.server import client_command
from treadle.server.methods import process_methods

pytestmark = pytest.mark.anyio


def shell(script: str, handle: str = "p", **more: Any) -> dict[str, Any]:
    return {"processHandle": handle, "command": ["/bin/sh", "-c", script], "cwd": "/", **more}


def coded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def told(client: AsyncAppClient, stream: str = "stdout") -> str:
    deltas = [params for params in client.params_of("process/outputDelta") if params["stream"] == stream]
    return b"".join(base64.b64decode(params["deltaBase64"]) for params in deltas).decode()


async def exited(client: AsyncAppClient, number: int = 1) -> dict[str, Any]:
    await client.until(lambda: len(client.params_of("process/exited")) >= number)
    return client.params_of("process/exited")[number - 1]


def end(code: int, stdout: str = "", stderr: str = "", **more: Any) -> dict[str, Any]:
    known = {"stdoutCapReached": False, "stderrCapReached": False, "outputDrainTimedOut": False}
    return {"processHandle": "p", "exitCode": code, "stdout": stdout, "stderr": stderr, **known, **more}


async def test_the_answer_comes_at_the_start_and_the_end_is_told(client: AsyncAppClient, workspace: Path) -> None:
    script = "pwd; echo err >&2; exit 3"
    assert await client.request("process/spawn", shell(script, cwd=str(workspace))) == {}
    assert await exited(client) == end(3, f"{workspace}\n", "err\n")
    assert client.params_of("process/outputDelta") == []


async def test_what_is_streamed_is_not_told_twice_and_a_handle_can_be_used_again(client: AsyncAppClient) -> None:
    for number in (1, 2):
        await client.request("process/spawn", shell("echo out; echo err >&2", streamStdoutStderr=True))
        assert await exited(client, number) == end(0)
        assert (told(client), told(client, "stderr")) == ("out\n" * number, "err\n" * number)


async def test_input_is_written_and_closed(client: AsyncAppClient) -> None:
    await client.request("process/spawn", shell("cat", streamStdin=True, timeoutMs=None))
    await client.request("process/writeStdin", {"processHandle": "p", "deltaBase64": coded("hello ")})
    last = {"processHandle": "p", "deltaBase64": coded("world"), "closeStdin": True}
    await client.request("process/writeStdin", last)
    assert await exited(client) == end(0, "hello world")


async def test_a_terminal_has_its_size_from_the_start(client: AsyncAppClient) -> None:
    script = "stty -echo; stty size; read x; echo $x; stty size"
    await client.request("process/spawn", shell(script, tty=True, size={"rows": 11, "cols": 22}, timeoutMs=None))
    await client.until(lambda: "11 22" in told(client))
    await client.request("process/resizePty", {"processHandle": "p", "size": {"rows": 5, "cols": 6}})
    await client.request("process/writeStdin", {"processHandle": "p", "deltaBase64": coded("yes\n")})
    assert await exited(client) == end(0)
    assert told(client) == "11 22\r\nyes\r\n5 6\r\n"


async def test_the_environment_is_that_of_the_server_with_changes(client: AsyncAppClient) -> None:
    env = {"ADDED": "1", "HOME": None}
    await client.request("process/spawn", shell("echo $ADDED-$HOME-${PATH:+path}", env=env))
    assert await exited(client) == end(0, "1--path\n")


# --- limits ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("streamed", [False, True])
async def test_each_stream_has_its_cap(local: InProcess, streamed: bool) -> None:
    script = "printf 1234567890; printf ab >&2"
    await local.request("process/spawn", shell(script, outputBytesCap=4, streamStdoutStderr=streamed))
    capped = end(0, stdoutCapReached=True) if streamed else end(0, "1234", "ab", stdoutCapReached=True)
    assert await exited(local) == capped
    if streamed:
        assert [params["capReached"] for params in local.params_of("process/outputDelta")] == [True, False]
        assert told(local) == "1234"


async def test_output_is_bounded_unless_it_is_said_otherwise(local: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_command, "MAX_HELD", 2 << 20)
    script = f"head -c {3 << 20} /dev/zero | tr '\\0' x"
    cases: list[tuple[dict[str, Any], int]] = [({}, 1 << 20), ({"outputBytesCap": None}, 2 << 20)]
    for number, (more, size) in enumerate(cases, start=1):
        await local.request("process/spawn", shell(script, **more))
        ended = await exited(local, number)
        assert (len(ended["stdout"]), ended["stdoutCapReached"]) == (size, True)


async def test_time_is_up_for_the_descendants_too(client: AsyncAppClient, marker: str) -> None:
    script = f"(trap '' TERM HUP; exec setsid sleep {marker}) & sleep {marker}"
    await client.request("process/spawn", shell(script, timeoutMs=300))
    assert await exited(client) == end(124)
    assert await asyncio.to_thread(processes_left, marker) == []


async def test_time_is_limited_unless_it_is_said_otherwise(local: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_methods, "DEFAULT_TIMEOUT_S", 0.0)
    await local.request("process/spawn", shell("sleep 3600"))
    assert (await exited(local))["exitCode"] == 124
    await local.request("process/spawn", shell("echo done", timeoutMs=None))
    assert (await exited(local, 2))["exitCode"] == 0


async def test_what_a_process_leaves_behind_ends_with_it(
    local: InProcess, marker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_command, "DRAIN_S", 0.0)
    await local.request("process/spawn", shell(f"sleep {marker} & echo up"))
    assert await exited(local) == end(0, "up\n", outputDrainTimedOut=True)
    assert await asyncio.to_thread(processes_left, marker) == []


async def test_a_client_has_so_many_at_a_time(local: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_methods, "MAX_PROCESSES", 2)
    for handle in ("a", "b"):
        await local.request("process/spawn", shell("sleep 3600", handle, timeoutMs=None))
    assert (await local.refusal("process/spawn", shell("true", "c"))).code == OVERLOADED
    await local.request("process/kill", {"processHandle": "a"})
    assert (await exited(local))["exitCode"] == 137
    assert await local.request("process/spawn", shell("true", "c")) == {}


# --- ends ------------------------------------------------------------------------------------------------------------


async def test_kill_spares_nothing(client: AsyncAppClient, marker: str) -> None:
    await client.request(
        "process/spawn", shell(f"trap '' TERM; sleep {marker} & echo up; wait", streamStdoutStderr=True)
    )
    await client.until(lambda: told(client) == "up\n")
    assert await client.request("process/kill", {"processHandle": "p"}) == {}
    assert await exited(client) == end(137)
    assert await asyncio.to_thread(processes_left, marker) == []


async def test_they_end_with_their_connection(local: InProcess, marker: str) -> None:
    script = f"(setsid sleep {marker} &) ; echo up; exec sleep {marker}"
    await local.request("process/spawn", shell(script, timeoutMs=None, streamStdoutStderr=True))
    await local.until(lambda: told(local) == "up\n")
    assert processes_with(marker)
    local.client.close()
    assert await asyncio.to_thread(processes_left, marker) == []


async def test_they_end_with_their_server(workspace: Path, marker: str) -> None:
    async with opened("stdio", workspace.parent / "home", workspace) as client:
        assert isinstance(client, OverStdio)
        script = f"echo up; exec sleep {marker}"
        await client.request("process/spawn", shell(script, timeoutMs=None, streamStdoutStderr=True))
        await client.until(lambda: told(client) == "up\n")
        assert processes_with(marker)
    assert await asyncio.to_thread(processes_left, marker) == []


# --- refusals --------------------------------------------------------------------------------------------------------

REFUSED: list[tuple[dict[str, Any], int, str]] = [
    ({"command": []}, INVALID_REQUEST, "command must not be empty"),
    ({"processHandle": ""}, INVALID_REQUEST, "processHandle must not be empty"),
    ({"cwd": "relative"}, INVALID_REQUEST, "must be an absolute path"),
    ({"command": ["/does/not/exist"]}, INTERNAL_ERROR, "failed to spawn process: No such file"),
    ({"cwd": "/does/not/exist"}, INTERNAL_ERROR, "failed to spawn process: No such file"),
    ({"size": {"rows": 1, "cols": 1}}, INVALID_PARAMS, "requires tty: true"),
    ({"tty": True, "size": {"rows": 0, "cols": 1}}, INVALID_PARAMS, "greater than 0"),
    ({"timeoutMs": -1}, INVALID_PARAMS, "non-negative"),
]


@pytest.mark.parametrize(("changes", "code", "text"), REFUSED)
async def test_what_cannot_be_started_is_refused(
    local: InProcess, changes: dict[str, Any], code: int, text: str
) -> None:
    error = await local.refusal("process/spawn", {**shell("true"), **changes})
    assert error.code == code
    assert text in error.message
    assert await local.request("process/spawn", shell("true")) == {}  # and its handle is free


async def test_later_requests_are_about_a_process_that_runs(local: InProcess) -> None:
    size = {"rows": 1, "cols": 1}
    following: list[tuple[str, dict[str, Any]]] = [
        ("process/kill", {}),
        ("process/writeStdin", {"deltaBase64": coded("x")}),
        ("process/resizePty", {"size": size}),
    ]
    for method, more in following:
        error = await local.refusal(method, {"processHandle": "p", **more})
        assert (error.code, error.message) == (INVALID_REQUEST, 'no active process for process handle "p"')
    await local.request("process/spawn", shell("sleep 3600", timeoutMs=None))
    assert "duplicate active" in (await local.refusal("process/spawn", shell("true"))).message
    for method, more, text in (
        ("process/writeStdin", {"deltaBase64": coded("x")}, "stdin streaming is not enabled"),
        ("process/writeStdin", {"deltaBase64": "%"}, "invalid deltaBase64"),
        ("process/writeStdin", {}, "requires deltaBase64 or closeStdin"),
        ("process/resizePty", {"size": size}, "failed to resize PTY"),
    ):
        assert text in (await local.refusal(method, {"processHandle": "p", **more})).message


async def test_the_handles_of_others_are_unknown_and_so_is_the_method_without_the_experimental_api(
    local: InProcess, marker: str
) -> None:
    await local.request("process/spawn", shell(f"exec sleep {marker}", timeoutMs=None))
    other = InProcess(local.server)
    await other.send("initialize", {"clientInfo": {"name": "other", "version": "1"}})
    for method, params in (("process/spawn", shell("true")), ("process/kill", {"processHandle": "p"})):
        assert "requires experimentalApi" in (await other.refusal(method, params)).message
    third = InProcess(local.server)
    await third.send("initialize", INITIALIZE)
    assert "no active process" in (await third.refusal("process/kill", {"processHandle": "p"})).message
    assert processes_with(marker)
