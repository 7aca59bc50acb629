"""`process/*` of the app-server: real processes of a client, in process and over stdio."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from kit.app_client import AppClient
from kit.in_process import ServerHere
from kit.processes import processes_left, processes_with, wait_for_process
from system.methods.conftest import both_roads, opened
from treadle.errors import INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, OVERLOADED
from treadle.server.methods import command_methods
from treadle.testing import AppServerHarness


def shell(script: str, handle: str = "p", **more: Any) -> dict[str, Any]:
    return {"processHandle": handle, "command": ["/bin/sh", "-c", script], "cwd": "/", **more}


def coded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def told(client: AppClient, stream: str = "stdout") -> str:
    deltas = [params for params in client.params_of("process/outputDelta") if params["stream"] == stream]
    return b"".join(base64.b64decode(params["deltaBase64"]) for params in deltas).decode()


def exited(client: AppClient, number: int = 1) -> dict[str, Any]:
    client.until(lambda: len(client.params_of("process/exited")) >= number)
    return client.params_of("process/exited")[number - 1]


def end(code: int, stdout: str = "", stderr: str = "", **more: Any) -> dict[str, Any]:
    known = {"stdoutCapReached": False, "stderrCapReached": False, "outputDrainTimedOut": False}
    return {"processHandle": "p", "exitCode": code, "stdout": stdout, "stderr": stderr, **known, **more}


@both_roads
def test_the_answer_comes_at_the_start_and_the_end_is_told(client: AppClient, workspace: Path) -> None:
    script = "pwd; echo err >&2; exit 3"
    assert client.call("process/spawn", shell(script, cwd=str(workspace))) == {}
    assert exited(client) == end(3, f"{workspace}\n", "err\n")
    assert client.params_of("process/outputDelta") == []


def test_what_is_streamed_is_not_told_twice_and_a_handle_can_be_used_again(client: AppClient) -> None:
    for number in (1, 2):
        client.call("process/spawn", shell("echo out; echo err >&2", streamStdoutStderr=True))
        assert exited(client, number) == end(0)
        assert (told(client), told(client, "stderr")) == ("out\n" * number, "err\n" * number)


def test_input_is_written_and_closed(client: AppClient) -> None:
    client.call("process/spawn", shell("cat", streamStdin=True, timeoutMs=None))
    client.call("process/writeStdin", {"processHandle": "p", "deltaBase64": coded("hello ")})
    last = {"processHandle": "p", "deltaBase64": coded("world"), "closeStdin": True}
    client.call("process/writeStdin", last)
    assert exited(client) == end(0, "hello world")


def test_a_terminal_has_its_size_from_the_start(client: AppClient) -> None:
    script = "stty -echo; stty size; read x; echo $x; stty size"
    client.call("process/spawn", shell(script, tty=True, size={"rows": 11, "cols": 22}, timeoutMs=None))
    client.until(lambda: "11 22" in told(client))
    client.call("process/resizePty", {"processHandle": "p", "size": {"rows": 5, "cols": 6}})
    client.call("process/writeStdin", {"processHandle": "p", "deltaBase64": coded("yes\n")})
    assert exited(client) == end(0)
    assert told(client) == "11 22\r\nyes\r\n5 6\r\n"


@both_roads
def test_the_environment_is_that_of_the_server_with_changes(client: AppClient) -> None:
    env = {"ADDED": "1", "HOME": None}
    client.call("process/spawn", shell("echo $ADDED-$HOME-${PATH:+path}", env=env))
    assert exited(client) == end(0, "1--path\n")


# --- limits ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("streamed", [False, True])
def test_each_stream_has_its_cap(local: AppClient, streamed: bool) -> None:
    script = "printf 1234567890; printf ab >&2"
    local.call("process/spawn", shell(script, outputBytesCap=4, streamStdoutStderr=streamed))
    capped = end(0, stdoutCapReached=True) if streamed else end(0, "1234", "ab", stdoutCapReached=True)
    assert exited(local) == capped
    if streamed:
        assert [params["capReached"] for params in local.params_of("process/outputDelta")] == [True, False]
        assert told(local) == "1234"


def test_output_is_bounded_unless_it_is_said_otherwise(local: AppClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_methods, "MAX_HELD", 2 << 20)
    script = f"head -c {3 << 20} /dev/zero | tr '\\0' x"
    cases: list[tuple[dict[str, Any], int]] = [({}, 1 << 20), ({"outputBytesCap": None}, 2 << 20)]
    for number, (more, size) in enumerate(cases, start=1):
        local.call("process/spawn", shell(script, **more))
        ended = exited(local, number)
        assert (len(ended["stdout"]), ended["stdoutCapReached"]) == (size, True)


def test_time_is_up_for_the_descendants_too(client: AppClient, marker: str) -> None:
    script = f"(trap '' TERM HUP; exec setsid sleep {marker}) & sleep {marker}"
    client.call("process/spawn", shell(script, timeoutMs=300))
    assert exited(client) == end(124)
    assert processes_left(marker) == []


def test_time_is_limited_unless_it_is_said_otherwise(local: AppClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_methods, "DEFAULT_TIMEOUT_S", 0.0)
    local.call("process/spawn", shell("sleep 3600"))
    assert exited(local)["exitCode"] == 124
    local.call("process/spawn", shell("echo done", timeoutMs=None))
    assert exited(local, 2)["exitCode"] == 0


def test_what_a_process_leaves_behind_ends_with_it(
    local: AppClient, marker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command_methods, "DRAIN_S", 0.0)
    local.call("process/spawn", shell(f"sleep {marker} & echo up"))
    assert exited(local) == end(0, "up\n", outputDrainTimedOut=True)
    assert processes_left(marker) == []


def test_a_client_has_so_many_at_a_time(local: AppClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_methods, "MAX_PROCESSES", 2)
    for handle in ("a", "b"):
        local.call("process/spawn", shell("sleep 3600", handle, timeoutMs=None))
    assert local.failure("process/spawn", shell("true", "c"))["code"] == OVERLOADED
    local.call("process/kill", {"processHandle": "a"})
    assert exited(local)["exitCode"] == 137
    assert local.call("process/spawn", shell("true", "c")) == {}


# --- ends ------------------------------------------------------------------------------------------------------------


@both_roads
def test_kill_spares_nothing(client: AppClient, marker: str) -> None:
    client.call("process/spawn", shell(f"trap '' TERM; sleep {marker} & echo up; wait", streamStdoutStderr=True))
    client.until(lambda: told(client) == "up\n")
    assert client.call("process/kill", {"processHandle": "p"}) == {}
    assert exited(client) == end(137)
    assert processes_left(marker) == []


def test_they_end_with_their_connection(here: ServerHere, local: AppClient, marker: str) -> None:
    script = f"(setsid sleep {marker} &) ; echo up; exec sleep {marker}"
    local.call("process/spawn", shell(script, timeoutMs=None, streamStdoutStderr=True))
    local.until(lambda: told(local) == "up\n")
    assert processes_with(marker)
    here.hang_up(local)
    assert processes_left(marker) == []


def test_they_end_with_their_server(harness: AppServerHarness, marker: str) -> None:
    with opened("stdio", harness) as client:
        script = f"echo up; exec sleep {marker}"
        client.call("process/spawn", shell(script, timeoutMs=None, streamStdoutStderr=True))
        client.until(lambda: told(client) == "up\n")
        assert processes_with(marker)
    assert processes_left(marker) == []


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
def test_what_cannot_be_started_is_refused(local: AppClient, changes: dict[str, Any], code: int, text: str) -> None:
    error = local.failure("process/spawn", {**shell("true"), **changes})
    assert error["code"] == code
    assert text in error["message"]
    assert local.call("process/spawn", shell("true")) == {}  # and its handle is free


def test_later_requests_are_about_a_process_that_runs(local: AppClient) -> None:
    size = {"rows": 1, "cols": 1}
    following: list[tuple[str, dict[str, Any]]] = [
        ("process/kill", {}),
        ("process/writeStdin", {"deltaBase64": coded("x")}),
        ("process/resizePty", {"size": size}),
    ]
    for method, more in following:
        error = local.failure(method, {"processHandle": "p", **more})
        assert (error["code"], error["message"]) == (INVALID_REQUEST, 'no active process for process handle "p"')
    local.call("process/spawn", shell("sleep 3600", timeoutMs=None))
    assert "duplicate active" in local.failure("process/spawn", shell("true"))["message"]
    for method, more, text in (
        ("process/writeStdin", {"deltaBase64": coded("x")}, "stdin streaming is not enabled"),
        ("process/writeStdin", {"deltaBase64": "%"}, "invalid deltaBase64"),
        ("process/writeStdin", {}, "requires deltaBase64 or closeStdin"),
        ("process/resizePty", {"size": size}, "failed to resize PTY"),
    ):
        assert text in local.failure(method, {"processHandle": "p", **more})["message"]


def test_the_handles_of_others_are_unknown_and_so_is_the_method_without_the_experimental_api(
    here: ServerHere, local: AppClient, marker: str
) -> None:
    local.call("process/spawn", shell(f"exec sleep {marker}", timeoutMs=None))
    wait_for_process(marker)
    other = here.connect()
    for method, params in (("process/spawn", shell("true")), ("process/kill", {"processHandle": "p"})):
        assert "requires experimentalApi" in other.failure(method, params)["message"]
    third = here.connect(experimentalApi=True)
    assert "no active process" in third.failure("process/kill", {"processHandle": "p"})["message"]
    assert processes_with(marker)
