"""Threads on another machine, when the connection, the machine or the app-server goes away in mid-command."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from kit.app_client import joined
from kit.app_program import listening_server, stdio_server
from kit.exec_program import running
from kit.ports import free_port
from kit.processes import processes_left
from kit.server_process import ServerProcess
from system.agent.scene import Json, Scene, scene, shell
from system.environments.relay import relay
from treadle.testing import AppServerHarness, ToolCall

pytestmark = pytest.mark.anyio

FULL: Json = {"type": "dangerFullAccess"}


@contextmanager
def executor(folder: Path, name: str = "executor", *arguments: str) -> Iterator[ServerProcess]:
    """An exec-server on the socket `socket` of its folder."""
    place = folder / name
    (place / "user").mkdir(parents=True, exist_ok=True)
    env = {"HOME": str(place / "user"), "TREADLE_HOME": str(place / "home")}
    with running(place, "--listen", f"unix://{place / 'socket'}", *arguments, env=env) as server:
        yield server


def settings(url: str, **more: object) -> str:
    lines = [f"{key} = {value}" for key, value in {"url": f'"{url}"', **more}.items()]
    return "\n".join(["[environments.box]", *lines])


def place(stage: Scene | AppServerHarness) -> Json:
    return {"environments": [{"environmentId": "box", "cwd": str(stage.workspace)}]}


def waits(folder: Path, *, says: str = "begun") -> ToolCall:
    """A command that writes until the file `go` is there."""
    line = f"echo {says}; i=0; while [ ! -e {folder}/go ]; do i=$((i+1)); echo $i; sleep 0.02; done; echo done"
    return ToolCall("exec_command", shell(line, yield_time_ms=30_000), "call")


def said_by(thread: str, text: str = "") -> Callable[[Json], bool]:
    return lambda params: params["threadId"] == thread and text in params.get("delta", "")


def check_output(text: str) -> None:
    """All lines are there, once and in order."""
    lines = text.split()
    assert (lines[0], lines[-1]) == ("begun", "done")
    assert lines[1:-1] == [str(number) for number in range(1, len(lines) - 1)]


async def start(stage: Scene, **more: Any) -> str:
    return await stage.start(approvalPolicy="never", sandbox="danger-full-access", **place(stage), **more)


async def test_a_connection_that_is_cut_loses_no_byte(tmp_path: Path) -> None:
    with executor(tmp_path):
        async with (
            relay(tmp_path, tmp_path / "executor/socket") as between,
            scene(tmp_path, extra_toml=settings(between.url)) as stage,
        ):
            stage.model.enqueue_calls(waits(stage.workspace))
            stage.model.enqueue_assistant_message("fine")
            thread = await start(stage)
            turn = await stage.begin(thread)
            await stage.command_output(thread, "begun")
            for number in range(3):
                between.cut()
                await stage.asked("thread/environment/connected", number + 1)
            (stage.workspace / "go").touch()
            assert (await stage.end(turn))["status"] == "completed"
            (item,) = stage.completed("commandExecution")
            assert (item["status"], item["exitCode"]) == ("completed", 0)
            check_output(item["aggregatedOutput"])
            told = [message["method"] for message in stage.client.told("thread/environment/disconnected")]
            assert len(told) == 3
            (answer,) = stage.model.requests()[-1].tool_outputs.values()
            assert answer.rstrip().endswith("done")


async def test_a_machine_that_is_gone_fails_the_command_and_not_the_thread(tmp_path: Path) -> None:
    async with scene(tmp_path, extra_toml=settings(f"unix://{tmp_path}/executor/socket", recovery_s=0.5)) as stage:
        with executor(tmp_path) as first:
            stage.model.enqueue_calls(waits(stage.workspace))
            stage.model.enqueue_calls(ToolCall("exec_command", shell("echo again"), "second"))
            stage.model.enqueue_assistant_message("it is gone")
            thread = await start(stage)
            turn = await stage.begin(thread)
            await stage.command_output(thread, "begun")
            first.process.kill()
            assert (await stage.end(turn))["status"] == "completed"
        lost, refused = stage.completed("commandExecution")
        assert (lost["status"], lost["exitCode"]) == ("failed", -1)
        assert lost["aggregatedOutput"].startswith("begun")
        assert refused["status"] == "failed"
        told = stage.model.requests()[-1].tool_outputs
        assert "exec-server transport disconnected" in told["call"]
        assert "the environment `box` cannot be reached" in told["second"]
        status = await stage.client.request("environment/status", {"environmentId": "box"})
        assert status["status"] == "disconnected"
        # It comes back, and the next command runs.
        (tmp_path / "executor/socket").unlink(missing_ok=True)
        with executor(tmp_path):
            stage.model.enqueue_calls(ToolCall("exec_command", shell("echo back"), "third"))
            stage.model.enqueue_assistant_message("it is back")
            await stage.run(thread)
            assert "back" in stage.model.requests()[-1].tool_outputs["third"]


async def test_a_thread_moves_to_another_machine_and_the_model_is_told(tmp_path: Path) -> None:
    async with scene(tmp_path, extra_toml=settings(f"unix://{tmp_path}/executor/socket")) as stage:
        with executor(tmp_path):
            stage.model.enqueue_calls(ToolCall("exec_command", shell("echo there"), "first"))
            stage.model.enqueue_assistant_message("a")
            thread = await start(stage)
            await stage.run(thread)
        move = {"threadId": thread, "environments": [{"environmentId": "local", "cwd": str(tmp_path)}]}
        await stage.client.request("thread/settings/update", move)
        stage.model.enqueue_calls(ToolCall("exec_command", shell("pwd"), "second"))
        stage.model.enqueue_assistant_message("b")
        await stage.run(thread)
        request = stage.model.requests()[-1]
        assert str(tmp_path) in request.tool_outputs["second"]
        note = next(text for text in request.input_texts("developer") if "environment" in text and "`box`" in text)
        assert "`local`" in note


@pytest.mark.parametrize("still_runs", [True, False], ids=["still runs", "has ended"])
def test_a_killed_server_finds_its_commands_again(tmp_path: Path, still_runs: bool) -> None:
    with (
        executor(tmp_path, "executor", "--detached-s", "600"),
        AppServerHarness(tmp_path, extra_toml=settings(f"unix://{tmp_path}/executor/socket", detach_s=600)) as harness,
    ):
        go = harness.workspace / "go"
        harness.model.enqueue_calls(waits(harness.workspace))
        with stdio_server(harness, log="first") as server:
            client = server.client
            client.initialize(experimentalApi=True)
            thread = client.start_thread(approvalPolicy="never", sandbox="danger-full-access", **place(harness))
            client.begin(thread)
            client.wait_for("item/commandExecution/outputDelta", lambda params: "3" in params["delta"])
            server.process.kill()
            server.process.wait()
        if not still_runs:
            go.touch()
            assert processes_left(f"{go} ]") == []
        with stdio_server(harness, log="second") as server:
            client = server.client
            client.initialize(experimentalApi=True)
            client.call("thread/resume", {"threadId": thread})
            if still_runs:
                client.wait_for("item/commandExecution/outputDelta", lambda params: params["threadId"] == thread)
                listed = client.call("thread/backgroundTerminals/list", {"threadId": thread})["data"]
                assert len(listed) == 1
                go.touch()
                client.wait_for("item/completed", lambda params: params["threadId"] == thread)
            while True:  # its end may have been published before we followed the thread
                (turn,) = client.turns(thread)
                (item,) = (each for each in turn["items"] if each["type"] == "commandExecution")
                if item["status"] == "completed":
                    break
            assert (item["type"], item["status"], item["exitCode"]) == ("commandExecution", "completed", 0)
            check_output(item["aggregatedOutput"])
            harness.model.enqueue_assistant_message("go on")
            assert client.run(thread)["status"] == "completed"


def test_a_killed_server_finds_the_commands_of_several_threads_on_one_machine(tmp_path: Path) -> None:
    """They share a session. The machine cannot be reached at first."""
    socket = tmp_path / "executor/socket"
    with (
        executor(tmp_path, "executor", "--detached-s", "600"),
        AppServerHarness(tmp_path, extra_toml=settings(f"unix://{socket}", detach_s=600)) as harness,
    ):
        with stdio_server(harness, log="first") as server:
            client = server.client
            client.initialize(experimentalApi=True)
            threads = []
            for _ in range(2):
                harness.model.enqueue_calls(waits(harness.workspace))
                started = client.start_thread(approvalPolicy="never", sandbox="danger-full-access", **place(harness))
                threads.append(started)
                client.begin(started)
                client.wait_for("item/commandExecution/outputDelta", said_by(started, "3"))
            server.process.kill()
            server.process.wait()
        socket.rename(tmp_path / "away")
        with stdio_server(harness, log="second", env={"TREADLE_LOG": "info"}) as server:
            client = server.client
            client.initialize(experimentalApi=True)
            for thread in threads:
                client.call("thread/resume", {"threadId": thread})
            client.call("environment/status", {"environmentId": "box"})
            (tmp_path / "away").rename(socket)
            for thread in threads:
                client.wait_for("item/commandExecution/outputDelta", said_by(thread))
            (harness.workspace / "go").touch()
            for thread in threads:
                done = client.wait_for("item/completed", said_by(thread))
                item = done["params"]["item"]
                assert (item["status"], item["exitCode"]) == ("completed", 0)
                check_output(item["aggregatedOutput"])


def test_a_killed_server_finds_commands_on_whichever_of_its_executors_they_are(tmp_path: Path) -> None:
    """Several have the label, and the one with the command is not the first that dials again."""
    port, words = free_port(), ("--label", "any", "--detached-s", "600")
    token, executors = tmp_path / "clients", tmp_path / "executors"
    for path in (token, executors):
        path.touch(mode=0o600)
        path.write_text(f"token-of-{path.name}-0123")
    toml = '[environments.box]\nlabels = ["any"]\ndetach_s = 600'
    listen = ("--listen", f"ws://127.0.0.1:{port}", "--executors-token-file", str(executors), "--no-token")
    dial = ("--dial", f"ws://127.0.0.1:{port}/executors", "--token-file", str(executors), *words)

    def dialer(name: str) -> AbstractContextManager[ServerProcess]:
        (tmp_path / name).mkdir()
        return running(tmp_path / name, *dial, "--name", name, env={"TREADLE_LOG": "info"}, announced=False)

    with AppServerHarness(tmp_path, extra_toml=toml) as harness, dialer("first") as first:
        harness.model.enqueue_calls(waits(harness.workspace))
        with listening_server(harness, *listen) as server, joined(server.url, experimentalApi=True) as client:
            thread = client.start_thread(approvalPolicy="never", sandbox="danger-full-access", **place(harness))
            client.begin(thread)
            client.wait_for("item/commandExecution/outputDelta", lambda params: "3" in params["delta"])
            first.send_signal(signal.SIGSTOP)
            server.process.kill()
            server.process.wait()
        with (
            dialer("second") as second,
            listening_server(harness, *listen, log="second", env={"TREADLE_LOG": "info"}) as server,
            joined(server.url, experimentalApi=True) as client,
        ):
            second.wait_for_log("ready for the app-server")
            client.call("thread/resume", {"threadId": thread})
            server.wait_for_log("an executor has come")
            second.wait_for_log("session")  # it was asked, and does not know it
            first.send_signal(signal.SIGCONT)
            client.wait_for("item/commandExecution/outputDelta", lambda params: params["threadId"] == thread)
            (harness.workspace / "go").touch()
            item = client.wait_for("item/completed", lambda params: params["threadId"] == thread)["params"]["item"]
            assert (item["status"], item["exitCode"]) == ("completed", 0)
            check_output(item["aggregatedOutput"])


def test_a_command_that_may_do_more_than_the_thread_now_is_ended_when_it_is_found(tmp_path: Path) -> None:
    with (
        executor(tmp_path, "executor", "--detached-s", "600"),
        AppServerHarness(tmp_path, extra_toml=settings(f"unix://{tmp_path}/executor/socket", detach_s=600)) as harness,
    ):
        harness.model.enqueue_calls(waits(harness.workspace))
        with stdio_server(harness, log="first") as server:
            client = server.client
            client.initialize(experimentalApi=True)
            thread = client.start_thread(approvalPolicy="never", sandbox="danger-full-access", **place(harness))
            client.begin(thread)
            client.wait_for("item/commandExecution/outputDelta", lambda params: "3" in params["delta"])
            server.process.kill()
            server.process.wait()
        with stdio_server(harness, log="second") as server:
            client = server.client
            client.initialize(experimentalApi=True)
            client.call("thread/resume", {"threadId": thread, "sandbox": "read-only"})
            assert processes_left(f"{harness.workspace}/go ]") == []
            while True:
                (turn,) = client.turns(thread)
                (item,) = (each for each in turn["items"] if each["type"] == "commandExecution")
                if "could do more than they allow now" in (item["aggregatedOutput"] or ""):
                    break
            assert item["status"] == "failed"


async def test_a_thread_whose_environment_is_named_nowhere_any_more_says_so(tmp_path: Path) -> None:
    with (
        executor(tmp_path),
        AppServerHarness(tmp_path, extra_toml=settings(f"unix://{tmp_path}/executor/socket")) as harness,
    ):
        async with harness.server() as server, harness.connect(server=server) as client:
            thread = await start(Scene(harness, server, client))
        config = harness.home / "config.toml"
        config.write_text(config.read_text().partition("[environments.box]")[0])
        async with harness.server() as server, harness.connect(server=server) as client:
            stage = Scene(harness, server, client)
            await client.request("thread/resume", {"threadId": thread})
            stage.model.enqueue_calls(ToolCall("exec_command", shell("echo no"), "call"))
            stage.model.enqueue_assistant_message("it is gone")
            assert (await stage.run(thread))["status"] == "completed"
            (answer,) = stage.model.requests()[-1].tool_outputs.values()
            assert answer == "the command could not be started: unknown turn environment id `box`"
