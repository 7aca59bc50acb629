"""A small disk of our own, in a namespace of our own, which runs out of space or of files while servers work on it."""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from kit.app_program import stdio_server
from kit.exec_client import ExecClient
from kit.exec_program import COMMAND, server_environment
from kit.server_process import ServerProcess, child
from kit.transports import Pipes
from treadle.execution import Mechanism, uri_from_path
from treadle.testing import AppServerHarness, MockModel

# Mounts a disk of 4 MB and 100 files over the folder in $0, with the files that were there, and runs the rest.
SMALL_DISK: Final = (
    *("unshare", "-rm", "sh", "-c"),
    'mkdir "$0.old" && cp -r "$0/." "$0.old" && mount -t tmpfs -o size=4m,nr_inodes=100 none "$0" && '
    'cp -r "$0.old/." "$0" && cd "$PWD" && exec "$@"',
)


FILLING: Final = {
    "space": "head -c 99999999 /dev/zero > {disk}/filler",
    "files": "mkdir {disk}/filler; cd {disk}/filler; for name in $(seq 200); do : > $name; done",
}


@pytest.fixture
def small_disk(tmp_path: Path) -> tuple[str, ...]:
    """What to start a server with; the disk is `tmp_path / "disk"`."""
    for name in ("disk", "trial"):
        (tmp_path / name).mkdir()
    trial = [*SMALL_DISK, str(tmp_path / "trial"), "true"]
    if shutil.which("unshare") is None or subprocess.run(trial, capture_output=True).returncode != 0:
        pytest.skip("no disk can be mounted here")
    return (*SMALL_DISK, str(tmp_path / "disk"))


def make_room(server: ServerProcess, disk: Path) -> None:
    """On the disk that the server sees."""
    filler = Path(f"/proc/{server.pid}/root{disk}/filler")
    if filler.is_dir():
        shutil.rmtree(filler)
    else:
        filler.unlink()


@pytest.mark.parametrize("kind", ["space", "files"])
def test_a_command_that_fills_the_disk_costs_at_most_its_own_turn(
    tmp_path: Path, small_disk: tuple[str, ...], kind: str
) -> None:
    disk = tmp_path / "disk"
    with (
        MockModel(on_empty=lambda request: "Done.") as model,
        AppServerHarness(disk, model=model) as harness,
        stdio_server(harness, wrapper=small_disk, log="../server") as program,
    ):
        client = program.client
        client.initialize()
        thread = client.start_thread()
        for _ in range(3):
            model.enqueue_function_call("exec_command", {"cmd": FILLING[kind].format(disk=disk), "login": False})
            ended = client.turn_end(client.begin(thread, "fill it"))
            assert ended["status"] == "completed" or "no space left" in ended["error"]["message"]
            coded = base64.b64encode(bytes(9999)).decode()
            # The end of the turn has released the name of its own mark: somebody takes that too.
            client.reply_to(
                client.request("fs/writeFile", {"path": str(disk / "filler" / "last"), "dataBase64": coded})
            )
            error = client.failure("fs/writeFile", {"path": str(disk / "new"), "dataBase64": coded})
            assert "No space left on device" in error["message"]
            make_room(program, disk)
            assert client.run(thread, "after")["status"] == "completed"
            assert client.turns(thread)[-1]["items"][-1]["text"] == "Done."
        published = {
            each["seq"]: each["method"] for each in client.told if "seq" in each and "delta" not in each["params"]
        }
        page = client.call("thread/events/list", {"threadId": thread, "limit": 1000})
        assert published.items() <= {each["seq"]: each["method"] for each in page["data"]}.items()
        assert [each["seq"] for each in page["data"]] == list(range(1, page["lastSeq"] + 1))
        program.check_well()


def test_confined_commands_where_no_file_can_be_made(
    tmp_path: Path, small_disk: tuple[str, ...], mechanism: Mechanism
) -> None:
    """bubblewrap has names to hold there, so it says why not; Landlock has none."""
    disk = tmp_path / "disk"
    confined = {"type": "workspaceWrite", "excludeSlashTmp": True, "excludeTmpdirEnvVar": True}
    given = {"command": ["echo", "ran"], "cwd": str(disk / "workspace"), "sandboxPolicy": confined}
    with AppServerHarness(disk) as harness, stdio_server(harness, wrapper=small_disk, log="../server") as program:
        client = program.client
        client.initialize()
        assert client.call("command/exec", given)["stdout"] == "ran\n"
        filling = {"command": ["sh", "-c", FILLING["files"].format(disk=disk / "workspace")]}
        client.call("command/exec", {**given, **filling, "sandboxPolicy": {"type": "dangerFullAccess"}})
        if mechanism == "bubblewrap":
            assert "No space left on device" in client.failure("command/exec", given)["message"]
        else:
            assert client.call("command/exec", given)["stdout"] == "ran\n"
        make_room(program, disk / "workspace")
        assert client.call("command/exec", given)["stdout"] == "ran\n"
        assert os.listdir(f"/proc/{program.pid}/root{disk}/workspace") == []
        program.check_well()


@pytest.mark.parametrize("kind", ["space", "files"])
def test_processes_of_an_exec_server_on_a_full_disk(tmp_path: Path, small_disk: tuple[str, ...], kind: str) -> None:
    disk = tmp_path / "disk"
    environ = server_environment({"TREADLE_HOME": str(disk / "home"), "TMPDIR": str(disk)})
    command, log = [*small_disk, *COMMAND, "--listen", "stdio://"], tmp_path / "server.stderr"
    with child(command, cwd=tmp_path, env=environ, log=log) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        server, client = ServerProcess(process, log), ExecClient(Pipes(process.stdin, process.stdout)).handshake()
        client.start("running", ["sh", "-c", "read line; echo $line"], disk, pipeStdin=True)
        client.run("filling", ["sh", "-c", FILLING[kind].format(disk=disk)], disk)
        code, output = client.run("full", ["sh", "-c", "head -c 9999 /dev/zero > new; echo went on"], disk)
        assert (code, b"No space left" in output, b"went on" in output) == (0, True, True)
        written = {"path": uri_from_path(str(disk / "new")), "dataBase64": base64.b64encode(bytes(9999)).decode()}
        assert "No space left on device" in client.failure("fs/writeFile", written)[1]
        client.write("running", b"still here\n", "1")
        assert client.exit_code("running") == 0
        client.wait_for_output("running", b"still here")
        make_room(server, disk)
        assert client.call("fs/writeFile", written) == {}
        server.check_well()
