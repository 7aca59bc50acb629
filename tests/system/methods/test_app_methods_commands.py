"""`command/exec` of the app-server: real processes, in process and over stdio."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from kit.app_client import AppClient
from kit.in_process import ServerHere
from kit.processes import processes_left, processes_with
from system.methods.conftest import both_roads, opened
from treadle.errors import INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST
from treadle.server.methods import command_methods
from treadle.testing import AppServerHarness

FULL = {"sandboxPolicy": {"type": "dangerFullAccess"}}
SPOKEN = {"processId": "p", "streamStdin": True, "streamStdoutStderr": True, "disableTimeout": True}


def shell(script: str, **more: Any) -> dict[str, Any]:
    return {"command": ["/bin/sh", "-c", script], **more}


def coded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def told(client: AppClient, stream: str = "stdout") -> str:
    deltas = [params for params in client.params_of("command/exec/outputDelta") if params["stream"] == stream]
    return b"".join(base64.b64decode(params["deltaBase64"]) for params in deltas).decode()


def begun(client: AppClient, params: dict[str, Any]) -> int:
    return client.request("command/exec", params)


def run(client: AppClient, params: dict[str, Any]) -> Any:
    return client.result_of(begun(client, params))


# --- to its end ------------------------------------------------------------------------------------------------------


@both_roads
def test_a_command_is_answered_at_its_exit(client: AppClient, workspace: Path) -> None:
    done = run(client, shell("pwd; echo bad >&2; exit 4"))
    assert done == {"exitCode": 4, "stdout": f"{workspace}\n", "stderr": "bad\n"}
    assert client.told == []


def test_death_by_a_signal_is_an_exit_code(local: AppClient) -> None:
    assert run(local, shell("kill -9 $$"))["exitCode"] == 137


def test_bytes_that_are_no_text_are_replaced(local: AppClient) -> None:
    assert run(local, shell(r"printf 'a\303\251\377'"))["stdout"] == "aé\ufffd"


def test_directory_and_variables_are_given(client: AppClient, workspace: Path) -> None:
    (workspace / "sub").mkdir()
    script = "pwd; echo $FOO ${HOME-none}"
    done = run(client, shell(script, cwd="sub", env={"FOO": "bar", "HOME": None}))
    assert done["stdout"] == f"{workspace}/sub\nbar none\n"


def test_without_streaming_the_input_is_empty(local: AppClient) -> None:
    assert run(local, shell("cat; echo end"))["stdout"] == "end\n"


def test_what_still_holds_the_pipes_ends_with_the_command(
    local: AppClient, marker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command_methods, "DRAIN_S", 0.0)
    done = run(local, shell(f"sleep {marker} & echo up"))
    assert done == {"exitCode": 0, "stdout": "up\n", "stderr": ""}
    assert processes_left(marker) == []


# --- limits ----------------------------------------------------------------------------------------------------------


@both_roads
def test_a_command_that_takes_too_long_is_killed_with_its_children(client: AppClient, marker: str) -> None:
    script = f"echo begun; (trap '' TERM HUP; sleep {marker}) & sleep {marker}"
    done = run(client, shell(script, timeoutMs=500))
    assert done["exitCode"] == 124
    assert processes_left(marker) == []


def test_no_time_is_too_little(local: AppClient) -> None:
    assert run(local, shell("sleep 3600", timeoutMs=0))["exitCode"] == 124


def test_time_is_limited_unless_it_is_said_otherwise(local: AppClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_methods, "DEFAULT_TIMEOUT_S", 0.0)
    assert run(local, shell("sleep 3600"))["exitCode"] == 124
    assert run(local, shell("echo done", disableTimeout=True))["exitCode"] == 0


def test_output_is_capped_for_each_stream(client: AppClient) -> None:
    done = run(client, shell("echo hello world; echo error >&2", outputBytesCap=5))
    assert done == {"exitCode": 0, "stdout": "hello", "stderr": "error"}
    none = run(client, shell("echo hello", outputBytesCap=0))
    assert none == {"exitCode": 0, "stdout": "", "stderr": ""}


def test_a_mebibyte_is_kept_unless_the_cap_is_off(local: AppClient) -> None:
    script = "head -c 1500000 /dev/zero | tr '\\0' a"
    assert len(run(local, shell(script))["stdout"]) == command_methods.DEFAULT_CAP
    assert len(run(local, shell(script, disableOutputCap=True))["stdout"]) == 1_500_000


def test_a_reply_is_bounded_also_without_a_cap(local: AppClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_methods, "MAX_HELD", 1000)
    done = run(local, shell("head -c 5000 /dev/zero | tr '\\0' a", disableOutputCap=True))
    assert len(done["stdout"]) == 1000


def test_the_cap_is_told_once_when_streaming(client: AppClient) -> None:
    done = run(client, shell("echo hello world; echo more", outputBytesCap=5, processId="p", streamStdoutStderr=True))
    assert done == {"exitCode": 0, "stdout": "", "stderr": ""}
    deltas = client.params_of("command/exec/outputDelta")
    assert deltas[-1]["capReached"]
    assert [delta["capReached"] for delta in deltas[:-1]] == [False] * (len(deltas) - 1)
    assert told(client) == "hello"


# --- talking to it ---------------------------------------------------------------------------------------------------


@both_roads
def test_a_command_is_talked_to(client: AppClient) -> None:
    script = 'echo ready; read word; echo "got $word" >&2; cat'
    running = begun(client, shell(script, **SPOKEN))
    client.until(lambda: told(client) == "ready\n")
    assert client.call("command/exec/write", {"processId": "p", "deltaBase64": coded("hi\n")}) == {}
    client.until(lambda: told(client, "stderr") == "got hi\n")
    last = {"processId": "p", "deltaBase64": coded("bye"), "closeStdin": True}
    assert client.call("command/exec/write", last) == {}
    assert client.result_of(running) == {"exitCode": 0, "stdout": "", "stderr": ""}
    assert told(client) == "ready\nbye"


def test_a_write_may_come_before_the_start_is_over(client: AppClient) -> None:
    running = begun(client, {"command": ["cat"], **SPOKEN})
    writes: list[dict[str, Any]] = [{"deltaBase64": coded("a")}, {"deltaBase64": coded("b")}, {"closeStdin": True}]
    written = [client.request("command/exec/write", {"processId": "p", **write}) for write in writes]
    assert [client.result_of(write) for write in written] == [{}] * 3
    assert client.result_of(running)["exitCode"] == 0
    assert told(client) == "ab"


def test_a_terminal_has_a_size(client: AppClient) -> None:
    """The command looks until it sees the size: it may be begun before its terminal has it."""
    script = 'for size in "4 33" "7 99"; do until test "$(stty size)" = "$size"; do :; done; echo "is $size"; done'
    params = shell(script, processId="p", tty=True, size={"rows": 4, "cols": 33}, disableTimeout=True)
    running = begun(client, params)
    client.until(lambda: told(client) == "is 4 33\r\n")
    client.call("command/exec/resize", {"processId": "p", "size": {"rows": 7, "cols": 99}})
    assert client.result_of(running)["exitCode"] == 0
    assert told(client) == "is 4 33\r\nis 7 99\r\n"


def test_a_terminal_takes_input(client: AppClient) -> None:
    script = 'test -t 0 && stty -echo && echo ready; read word; echo "got $word"; cat'
    running = begun(client, shell(script, processId="p", tty=True, disableTimeout=True))
    client.until(lambda: told(client) == "ready\r\n")
    client.call("command/exec/write", {"processId": "p", "deltaBase64": coded("hi\n")})
    client.until(lambda: told(client) == "ready\r\ngot hi\r\n")
    client.call("command/exec/write", {"processId": "p", "closeStdin": True})
    assert client.result_of(running)["exitCode"] == 0


def test_a_command_is_ended_at_once(client: AppClient) -> None:
    script = "trap '' TERM; echo up; while :; do sleep 3600; done"
    params = shell(script, processId="p", streamStdoutStderr=True, disableTimeout=True)
    running = begun(client, params)
    client.until(lambda: told(client) == "up\n")
    duplicate = client.failure("command/exec", {"command": ["true"], "processId": "p"})
    assert duplicate["message"] == 'duplicate active command/exec process id: "p"'
    assert client.call("command/exec/terminate", {"processId": "p"}) == {}
    assert client.result_of(running)["exitCode"] == 137
    again = client.failure("command/exec/terminate", {"processId": "p"})
    assert again["message"] == 'no active command/exec for process id "p"'


def test_a_name_is_free_after_the_end_and_after_a_failed_start(here: ServerHere, local: AppClient) -> None:
    local.failure("command/exec", {"command": ["/no/such/program"], "processId": "p"})
    for _ in range(2):
        assert run(local, {"command": ["true"], "processId": "p"})["exitCode"] == 0
    assert here.watches(local) == {}


def test_two_clients_may_use_the_same_name(here: ServerHere, local: AppClient) -> None:
    other = here.connect()
    params = shell("echo up; cat", **SPOKEN)
    both = [begun(client, params) for client in (local, other)]
    local.until(lambda: told(local) == "up\n")
    other.until(lambda: told(other) == "up\n")
    local.call("command/exec/write", {"processId": "p", "deltaBase64": coded("mine"), "closeStdin": True})
    local.result_of(both[0])
    other.call("command/exec/terminate", {"processId": "p"})
    other.result_of(both[1])
    assert (told(local), told(other)) == ("up\nmine", "up\n")


def test_a_client_that_leaves_ends_its_commands(here: ServerHere, local: AppClient, marker: str) -> None:
    other = here.connect()
    begun(other, shell(f"echo up; sleep {marker} & wait", **SPOKEN))
    other.until(lambda: told(other) == "up\n")
    assert processes_with(marker)
    here.hang_up(other)
    assert processes_left(marker) == []
    assert run(local, {"command": ["true"]})["exitCode"] == 0


def test_a_server_that_ends_leaves_no_command_behind(harness: AppServerHarness, marker: str) -> None:
    with opened("stdio", harness) as client:
        begun(client, shell(f"echo up; sleep {marker}", **SPOKEN))
        client.until(lambda: told(client) == "up\n")
    assert processes_left(marker) == []


# --- confined --------------------------------------------------------------------------------------------------------


def test_the_sandbox_is_that_of_the_request(client: AppClient, workspace: Path) -> None:
    target = workspace / "made"
    confined = run(client, {"command": ["touch", str(target)], "sandboxPolicy": {"type": "readOnly"}})
    assert confined["exitCode"] != 0
    assert not target.exists()
    free = run(client, {"command": ["touch", str(target)], **FULL})
    assert free["exitCode"] == 0
    assert target.exists()


def test_without_one_the_sandbox_is_that_of_the_settings(harness: AppServerHarness, workspace: Path) -> None:
    with opened("local", harness, 'sandbox_mode="read-only"') as client:
        done = run(client, {"command": ["touch", str(workspace / "made")]})
        assert done["exitCode"] != 0
    assert not (workspace / "made").exists()


# --- refusals --------------------------------------------------------------------------------------------------------


@both_roads
def test_what_cannot_be_started_is_told(client: AppClient, workspace: Path) -> None:
    for params in ({"command": ["/no/such/program"]}, {"command": ["true"], "cwd": str(workspace / "none")}):
        error = client.failure("command/exec", params)
        assert error["code"] == INTERNAL_ERROR
        assert error["message"].startswith("failed to spawn command: No such file or directory (os error 2)")


@pytest.mark.parametrize(
    ("params", "code", "message"),
    [
        ({"command": []}, INVALID_REQUEST, "command must not be empty"),
        ({"tty": True}, INVALID_REQUEST, "command/exec tty or streaming requires a client-supplied processId"),
        ({"streamStdin": True, "processId": ""}, INVALID_REQUEST, "requires a client-supplied processId"),
        ({"streamStdoutStderr": True}, INVALID_REQUEST, "requires a client-supplied processId"),
        ({"size": {"rows": 1, "cols": 1}}, INVALID_PARAMS, "command/exec size requires tty: true"),
        ({"tty": True, "processId": "p", "size": {"rows": 0, "cols": 1}}, INVALID_PARAMS, "greater than 0"),
        ({"tty": True, "processId": "p", "size": {"rows": 1, "cols": 65536}}, INVALID_PARAMS, "at most 65535"),
        ({"outputBytesCap": 1, "disableOutputCap": True}, INVALID_PARAMS, "cannot set both outputBytesCap"),
        ({"timeoutMs": 1, "disableTimeout": True}, INVALID_PARAMS, "cannot set both timeoutMs"),
        ({"timeoutMs": -1}, INVALID_PARAMS, "command/exec timeoutMs must be non-negative, got -1"),
    ],
)
def test_what_makes_no_sense_is_refused(local: AppClient, params: dict[str, Any], code: int, message: str) -> None:
    error = local.failure("command/exec", {"command": ["true"], **params})
    assert error["code"] == code
    assert message in error["message"]


def test_what_cannot_be_said_to_a_command_is_refused(client: AppClient) -> None:
    for method, more in (
        ("write", {"deltaBase64": ""}),
        ("terminate", {}),
        ("resize", {"size": {"rows": 1, "cols": 1}}),
    ):
        error = client.failure(f"command/exec/{method}", {"processId": "none", **more})
        assert error["message"] == 'no active command/exec for process id "none"'
    quiet = begun(client, shell("sleep 3600", processId="q", disableTimeout=True))
    spoken = begun(client, shell("echo up; sleep 3600", **SPOKEN))
    client.until(lambda: told(client) == "up\n")
    refusals = [
        ("write", {"processId": "p"}, INVALID_PARAMS, "requires deltaBase64 or closeStdin"),
        ("write", {"processId": "p", "deltaBase64": "!"}, INVALID_PARAMS, "invalid deltaBase64"),
        ("write", {"processId": "q", "deltaBase64": "YQ=="}, INVALID_REQUEST, "stdin streaming is not enabled"),
        ("resize", {"processId": "p", "size": {"rows": 0, "cols": 1}}, INVALID_PARAMS, "greater than 0"),
        ("resize", {"processId": "p", "size": {"rows": 1, "cols": 1}}, INVALID_REQUEST, "failed to resize PTY"),
    ]
    for method, params, code, message in refusals:
        error = client.failure(f"command/exec/{method}", params)
        assert error["code"] == code
        assert message in error["message"]
    client.call("command/exec/write", {"processId": "p", "closeStdin": True})
    closed = client.failure("command/exec/write", {"processId": "p", "deltaBase64": "YQ=="})
    assert closed["message"] == "stdin is already closed"
    for name, running in (("p", spoken), ("q", quiet)):
        client.call("command/exec/terminate", {"processId": name})
        client.result_of(running)
