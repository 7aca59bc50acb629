"""`command/exec` of the app-server: real processes, in process and over stdio."""

from __future__ import annotations

import asyncio
import base64
import uuid
from pathlib import Path
from typing import Any

import pytest

from kit.async_app_client import AsyncAppClient, InProcess, OverStdio, opened
from kit.processes import processes_left, processes_with
from treadle.errors import INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST
from treadle.server import client_command
from treadle.server.methods import command_exec

pytestmark = pytest.mark.anyio

FULL = {"sandboxPolicy": {"type": "dangerFullAccess"}}
SPOKEN = {"processId": "p", "streamStdin": True, "streamStdoutStderr": True, "disableTimeout": True}


@pytest.fixture
def home(home: Path) -> Path:
    (home / "config.toml").write_text('sandbox_mode = "danger-full-access"\n')
    return home


def shell(script: str, **more: Any) -> dict[str, Any]:
    return {"command": ["/bin/sh", "-c", script], **more}


def coded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def told(client: AsyncAppClient, stream: str = "stdout") -> str:
    deltas = [params for params in client.params_of("command/exec/outputDelta") if params["stream"] == stream]
    return b"".join(base64.b64decode(params["deltaBase64"]) for params in deltas).decode()


async def run(client: AsyncAppClient, params: dict[str, Any]) -> Any:
    return await client.request("command/exec", params)


# --- to its end ------------------------------------------------------------------------------------------------------


async def test_a_command_is_answered_at_its_exit(client: AsyncAppClient, workspace: Path) -> None:
    done = await run(client, shell("pwd; echo bad >&2; exit 4"))
    assert done == {"exitCode": 4, "stdout": f"{workspace}\n", "stderr": "bad\n"}
    assert client.notices == []


async def test_death_by_a_signal_is_an_exit_code(local: InProcess) -> None:
    assert (await run(local, shell("kill -9 $$")))["exitCode"] == 137


async def test_bytes_that_are_no_text_are_replaced(local: InProcess) -> None:
    assert (await run(local, shell(r"printf 'a\303\251\377'")))["stdout"] == "aé\ufffd"


async def test_directory_and_variables_are_given(client: AsyncAppClient, workspace: Path) -> None:
    (workspace / "sub").mkdir()
    script = "pwd; echo $FOO ${HOME-none}"
    done = await run(client, shell(script, cwd="sub", env={"FOO": "bar", "HOME": None}))
    assert done["stdout"] == f"{workspace}/sub\nbar none\n"


async def test_without_streaming_the_input_is_empty(local: InProcess) -> None:
    assert (await run(local, shell("cat; echo end")))["stdout"] == "end\n"


async def test_what_still_holds_the_pipes_ends_with_the_command(
    local: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_command, "DRAIN_S", 0.0)
    marker = f"3600.{uuid.uuid4().int % 10**12}"
    done = await run(local, shell(f"sleep {marker} & echo up"))
    assert done == {"exitCode": 0, "stdout": "up\n", "stderr": ""}
    assert await asyncio.to_thread(processes_left, marker) == []


# --- limits ----------------------------------------------------------------------------------------------------------


async def test_a_command_that_takes_too_long_is_killed_with_its_children(client: AsyncAppClient) -> None:
    marker = f"3600.{uuid.uuid4().int % 10**12}"
    script = f"echo begun; (trap '' TERM HUP; sleep {marker}) & sleep {marker}"
    done = await run(client, shell(script, timeoutMs=500))
    assert done["exitCode"] == 124
    assert await asyncio.to_thread(processes_left, marker) == []


async def test_no_time_is_too_little(local: InProcess) -> None:
    assert (await run(local, shell("sleep 3600", timeoutMs=0)))["exitCode"] == 124


async def test_time_is_limited_unless_it_is_said_otherwise(local: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_exec, "DEFAULT_TIMEOUT_S", 0.0)
    assert (await run(local, shell("sleep 3600")))["exitCode"] == 124
    assert (await run(local, shell("echo done", disableTimeout=True)))["exitCode"] == 0


async def test_output_is_capped_for_each_stream(client: AsyncAppClient) -> None:
    done = await run(client, shell("echo hello world; echo error >&2", outputBytesCap=5))
    assert done == {"exitCode": 0, "stdout": "hello", "stderr": "error"}
    none = await run(client, shell("echo hello", outputBytesCap=0))
    assert none == {"exitCode": 0, "stdout": "", "stderr": ""}


async def test_a_mebibyte_is_kept_unless_the_cap_is_off(local: InProcess) -> None:
    script = "head -c 1500000 /dev/zero | tr '\\0' a"
    assert len((await run(local, shell(script)))["stdout"]) == client_command.DEFAULT_CAP
    assert len((await run(local, shell(script, disableOutputCap=True)))["stdout"]) == 1_500_000


async def test_a_reply_is_bounded_also_without_a_cap(local: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_command, "MAX_HELD", 1000)
    done = await run(local, shell("head -c 5000 /dev/zero | tr '\\0' a", disableOutputCap=True))
    assert len(done["stdout"]) == 1000


async def test_the_cap_is_told_once_when_streaming(client: AsyncAppClient) -> None:
    done = await run(
        client, shell("echo hello world; echo more", outputBytesCap=5, processId="p", streamStdoutStderr=True)
    )
    assert done == {"exitCode": 0, "stdout": "", "stderr": ""}
    deltas = client.params_of("command/exec/outputDelta")
    assert deltas[-1]["capReached"]
    assert [delta["capReached"] for delta in deltas[:-1]] == [False] * (len(deltas) - 1)
    assert told(client) == "hello"


# --- talking to it ---------------------------------------------------------------------------------------------------


async def test_a_command_is_talked_to(client: AsyncAppClient) -> None:
    script = 'echo ready; read word; echo "got $word" >&2; cat'
    running = asyncio.create_task(run(client, shell(script, **SPOKEN)))
    await client.until(lambda: told(client) == "ready\n")
    assert await client.request("command/exec/write", {"processId": "p", "deltaBase64": coded("hi\n")}) == {}
    await client.until(lambda: told(client, "stderr") == "got hi\n")
    last = {"processId": "p", "deltaBase64": coded("bye"), "closeStdin": True}
    assert await client.request("command/exec/write", last) == {}
    assert await running == {"exitCode": 0, "stdout": "", "stderr": ""}
    assert told(client) == "ready\nbye"


async def test_a_write_may_come_before_the_start_is_over(client: AsyncAppClient) -> None:
    running = asyncio.create_task(run(client, {"command": ["cat"], **SPOKEN}))
    await asyncio.sleep(0)
    writes: list[dict[str, Any]] = [{"deltaBase64": coded("a")}, {"deltaBase64": coded("b")}, {"closeStdin": True}]
    async with asyncio.TaskGroup() as group:
        for write in writes:
            group.create_task(client.request("command/exec/write", {"processId": "p", **write}))
    assert (await running)["exitCode"] == 0
    assert told(client) == "ab"


async def test_a_terminal_has_a_size(client: AsyncAppClient) -> None:
    """The command looks until it sees the size: it may be begun before its terminal has it."""
    script = 'for size in "4 33" "7 99"; do until test "$(stty size)" = "$size"; do :; done; echo "is $size"; done'
    params = shell(script, processId="p", tty=True, size={"rows": 4, "cols": 33}, disableTimeout=True)
    running = asyncio.create_task(run(client, params))
    await client.until(lambda: told(client) == "is 4 33\r\n")
    await client.request("command/exec/resize", {"processId": "p", "size": {"rows": 7, "cols": 99}})
    assert (await running)["exitCode"] == 0
    assert told(client) == "is 4 33\r\nis 7 99\r\n"


async def test_a_terminal_takes_input(client: AsyncAppClient) -> None:
    script = 'test -t 0 && stty -echo && echo ready; read word; echo "got $word"; cat'
    running = asyncio.create_task(run(client, shell(script, processId="p", tty=True, disableTimeout=True)))
    await client.until(lambda: told(client) == "ready\r\n")
    await client.request("command/exec/write", {"processId": "p", "deltaBase64": coded("hi\n")})
    await client.until(lambda: told(client) == "ready\r\ngot hi\r\n")
    await client.request("command/exec/write", {"processId": "p", "closeStdin": True})
    assert (await running)["exitCode"] == 0


async def test_a_command_is_ended_at_once(client: AsyncAppClient) -> None:
    script = "trap '' TERM; echo up; while :; do sleep 3600; done"
    params = shell(script, processId="p", streamStdoutStderr=True, disableTimeout=True)
    running = asyncio.create_task(run(client, params))
    await client.until(lambda: told(client) == "up\n")
    duplicate = await client.refusal("command/exec", {"command": ["true"], "processId": "p"})
    assert duplicate.message == 'duplicate active command/exec process id: "p"'
    assert await client.request("command/exec/terminate", {"processId": "p"}) == {}
    assert (await running)["exitCode"] == 137
    again = await client.refusal("command/exec/terminate", {"processId": "p"})
    assert again.message == 'no active command/exec for process id "p"'


async def test_a_name_is_free_after_the_end_and_after_a_failed_start(local: InProcess) -> None:
    await local.refusal("command/exec", {"command": ["/no/such/program"], "processId": "p"})
    for _ in range(2):
        assert (await run(local, {"command": ["true"], "processId": "p"}))["exitCode"] == 0
    assert local.server.watches(local.client) == {}


async def test_two_clients_may_use_the_same_name(local: InProcess) -> None:
    other = InProcess(local.server)
    await other.send("initialize", {"clientInfo": {"name": "other", "version": "1"}})
    params = shell("echo up; cat", **SPOKEN)
    both = [asyncio.create_task(run(client, params)) for client in (local, other)]
    await local.until(lambda: told(local) == "up\n")
    await other.until(lambda: told(other) == "up\n")
    await local.request("command/exec/write", {"processId": "p", "deltaBase64": coded("mine"), "closeStdin": True})
    await both[0]
    await other.request("command/exec/terminate", {"processId": "p"})
    await both[1]
    assert (told(local), told(other)) == ("up\nmine", "up\n")


async def test_a_client_that_leaves_ends_its_commands(local: InProcess) -> None:
    other = InProcess(local.server)
    await other.send("initialize", {"clientInfo": {"name": "other", "version": "1"}})
    marker = f"3600.{uuid.uuid4().int % 10**12}"
    running = asyncio.create_task(other.refusal("command/exec", shell(f"echo up; sleep {marker} & wait", **SPOKEN)))
    await other.until(lambda: told(other) == "up\n")
    assert processes_with(marker)
    other.client.close()
    assert (await running).message == "the connection is closed"
    assert await asyncio.to_thread(processes_left, marker) == []
    assert (await run(local, {"command": ["true"]}))["exitCode"] == 0


async def test_a_server_that_ends_leaves_no_command_behind(workspace: Path) -> None:
    marker = f"3600.{uuid.uuid4().int % 10**12}"
    async with opened("stdio", workspace.parent / "home", workspace) as client:
        assert isinstance(client, OverStdio)
        running = client.begin("command/exec", shell(f"echo up; sleep {marker}", **SPOKEN))
        await client.until(lambda: told(client) == "up\n")
    running.cancel()
    assert await asyncio.to_thread(processes_left, marker) == []


# --- confined --------------------------------------------------------------------------------------------------------


async def test_the_sandbox_is_that_of_the_request(client: AsyncAppClient, workspace: Path) -> None:
    target = workspace / "made"
    confined = await run(client, {"command": ["touch", str(target)], "sandboxPolicy": {"type": "readOnly"}})
    assert confined["exitCode"] != 0
    assert not target.exists()
    free = await run(client, {"command": ["touch", str(target)], **FULL})
    assert free["exitCode"] == 0
    assert target.exists()


async def test_without_one_the_sandbox_is_that_of_the_settings(workspace: Path) -> None:
    (workspace.parent / "home" / "config.toml").write_text('sandbox_mode = "read-only"\n')
    async with opened("local", workspace.parent / "home", workspace) as client:
        done = await run(client, {"command": ["touch", str(workspace / "made")]})
        assert done["exitCode"] != 0
    assert not (workspace / "made").exists()


# --- refusals --------------------------------------------------------------------------------------------------------


async def test_what_cannot_be_started_is_told(client: AsyncAppClient, workspace: Path) -> None:
    for params in ({"command": ["/no/such/program"]}, {"command": ["true"], "cwd": str(workspace / "none")}):
        error = await client.refusal("command/exec", params)
        assert error.code == INTERNAL_ERROR
        assert error.message.startswith("failed to spawn command: No such file or directory (os error 2)")


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
async def test_what_makes_no_sense_is_refused(
    local: InProcess, params: dict[str, Any], code: int, message: str
) -> None:
    error = await local.refusal("command/exec", {"command": ["true"], **params})
    assert error.code == code
    assert message in error.message


async def test_what_cannot_be_said_to_a_command_is_refused(client: AsyncAppClient) -> None:
    for method, more in (
        ("write", {"deltaBase64": ""}),
        ("terminate", {}),
        ("resize", {"size": {"rows": 1, "cols": 1}}),
    ):
        error = await client.refusal(f"command/exec/{method}", {"processId": "none", **more})
        assert error.message == 'no active command/exec for process id "none"'
    quiet = asyncio.create_task(run(client, shell("sleep 3600", processId="q", disableTimeout=True)))
    spoken = asyncio.create_task(run(client, shell("echo up; sleep 3600", **SPOKEN)))
    await client.until(lambda: told(client) == "up\n")
    refusals = [
        ("write", {"processId": "p"}, INVALID_PARAMS, "requires deltaBase64 or closeStdin"),
        ("write", {"processId": "p", "deltaBase64": "!"}, INVALID_PARAMS, "invalid deltaBase64"),
        ("write", {"processId": "q", "deltaBase64": "YQ=="}, INVALID_REQUEST, "stdin streaming is not enabled"),
        ("resize", {"processId": "p", "size": {"rows": 0, "cols": 1}}, INVALID_PARAMS, "greater than 0"),
        ("resize", {"processId": "p", "size": {"rows": 1, "cols": 1}}, INVALID_REQUEST, "failed to resize PTY"),
    ]
    for method, params, code, message in refusals:
        error = await client.refusal(f"command/exec/{method}", params)
        assert error.code == code
        assert message in error.message
    await client.request("command/exec/write", {"processId": "p", "closeStdin": True})
    closed = await client.refusal("command/exec/write", {"processId": "p", "deltaBase64": "YQ=="})
    assert closed.message == "stdin is already closed"
    for name, running in (("p", spoken), ("q", quiet)):
        await client.request("command/exec/terminate", {"processId": name})
        await running
