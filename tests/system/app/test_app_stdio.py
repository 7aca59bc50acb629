"""The program for one client: JSON lines on standard input and output, and its ends."""

from __future__ import annotations

import json
import signal
import threading

import pytest

from kit.app_program import refused, stdio_server
from treadle.own_python import treadle_command
from treadle.testing import AppServerHarness


def held(harness: AppServerHarness, text: str = "partial") -> threading.Event:
    """A reply of the model that stops after its first piece, until the event is set."""
    gate = threading.Event()
    harness.model.enqueue_assistant_message(
        f"{text} and the rest", deltas=[text, " and the rest"], gate=gate, gate_after=3
    )
    return gate


def test_a_turn_from_start_to_end(harness: AppServerHarness) -> None:
    harness.model.enqueue_function_call("exec_command", {"cmd": "echo from the shell", "login": False})
    harness.model.enqueue_assistant_message("Done.")
    with stdio_server(harness) as program:
        client = program.client
        hello = client.initialize()
        assert hello["codexHome"] == str(harness.home)
        assert hello["userAgent"].startswith("raw/")
        thread = client.start_thread()
        assert client.run(thread)["status"] == "completed"
        (command,) = [
            message["params"]["item"]
            for message in client.of("item/completed")
            if message["params"]["item"]["type"] == "commandExecution"
        ]
        assert command["aggregatedOutput"] == "from the shell\n"
        program.hang_up()
        client.read_to_end()  # every line is JSON, or this fails
        assert program.wait() == 0
        assert "Traceback" not in program.stderr


@pytest.mark.parametrize("end", ["eof", "SIGTERM", "SIGINT"])
def test_an_end_in_the_middle_of_a_turn(harness: AppServerHarness, end: str) -> None:
    held(harness)
    with stdio_server(harness) as program:
        client = program.client
        client.initialize()
        thread = client.start_thread()
        turn = client.begin(thread, "hello")
        client.wait_for("item/agentMessage/delta")
        if end == "eof":
            program.hang_up()
        else:
            program.send_signal(signal.Signals[end])
        client.read_to_end()
        assert program.wait() == 0
        assert "Traceback" not in program.stderr
    with stdio_server(harness) as program:
        client = program.client
        client.initialize()
        resumed = client.call("thread/resume", {"threadId": thread})["thread"]
        (kept,) = resumed["turns"]
        assert (kept["id"], kept["status"]) == (turn, "interrupted")
        assert [item["type"] for item in kept["items"]] == ["userMessage", "agentMessage"]
        assert kept["items"][1]["text"] == "partial"
        assert resumed["status"] == {"type": "idle"}
        harness.model.enqueue_assistant_message("Again.")
        assert client.run(thread, "go on")["status"] == "completed"


def test_an_end_with_a_command_that_runs(harness: AppServerHarness) -> None:
    harness.model.enqueue_function_call("exec_command", {"cmd": "echo begun; exec sleep 3600", "login": False})
    with stdio_server(harness) as program:
        client = program.client
        client.initialize()
        thread = client.start_thread()
        client.begin(thread)
        client.wait_for("item/commandExecution/outputDelta", lambda params: "begun" in params["delta"])
        program.hang_up()
        assert program.wait() == 0


def test_the_end_of_input_right_after_the_start(harness: AppServerHarness) -> None:
    with stdio_server(harness) as program:
        program.hang_up()
        program.client.read_to_end()
        assert program.wait() == 0
        assert program.stderr == ""


def test_answers_to_what_was_said_before_the_end(harness: AppServerHarness) -> None:
    with stdio_server(harness) as program:
        program.client.initialize()
        asked = [program.client.request("thread/loaded/list", {}) for _ in range(50)]
        program.hang_up()
        for request in asked:
            assert program.client.reply_to(request)["result"]["data"] == []
        assert program.wait() == 0


def test_what_commands_print_stays_out_of_the_messages(harness: AppServerHarness) -> None:
    """A command of the user inherits nothing of the server's standard output."""
    with stdio_server(harness) as program:
        client = program.client
        client.initialize()
        thread = client.start_thread()
        client.call("thread/shellCommand", {"threadId": thread, "command": "echo to stdout; echo to stderr >&2"})
        client.wait_for("turn/completed")
        program.hang_up()
        client.read_to_end()
        assert program.wait() == 0


def test_the_same_as_stdio(harness: AppServerHarness) -> None:
    """`--stdio` and no argument at all are `--listen stdio://`."""
    import subprocess

    hello = {"id": 1, "method": "initialize", "params": {"clientInfo": {"name": "x", "version": "1"}}}
    for arguments in ((), ("--stdio",)):
        done = subprocess.run(
            treadle_command("app-server", *arguments),
            cwd=harness.workspace,
            env=harness.environ(),
            input=json.dumps(hello).encode() + b"\n",
            capture_output=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0
        assert json.loads(done.stdout.splitlines()[0])["id"] == 1


def test_settings_before_the_command(harness: AppServerHarness) -> None:
    settings = ("--config", "model=other-model", "-c", 'approval_policy="on-request"')
    command = treadle_command(*settings, "app-server", "--listen", "stdio://")
    with stdio_server(harness, command=command) as program:
        program.client.initialize()
        started = program.client.call("thread/start")
        assert (started["model"], started["approvalPolicy"]) == ("other-model", "on-request")
        program.hang_up()
        assert program.wait() == 0


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("http://127.0.0.1:0", "not an address"),
        ("ws://127.0.0.1:x", "HOST:PORT"),
        ("ws://0.0.0.0:0", "token"),
        ("unix://relative.sock", "absolute path"),
    ],
)
def test_addresses_that_cannot_be_listened_on(harness: AppServerHarness, url: str, says: str) -> None:
    assert says in refused(harness, "--listen", url)


@pytest.mark.parametrize("depth", [129, 900])
def test_params_that_are_nested_too_deep_are_refused(harness: AppServerHarness, depth: int) -> None:
    with stdio_server(harness) as program:
        client = program.client
        client.initialize()
        thread = client.start_thread()
        inside = '{"a":' * depth + "1" + "}" * depth
        for number, (method, params) in enumerate(
            (
                ("thread/start", f'{{"config":{{"x":{inside}}}}}'),
                ("config/value/write", f'{{"keyPath":"x","mergeStrategy":"replace","value":{inside}}}'),
                ("thread/list", f'{{"unknown":{inside}}}'),
            ),
            start=1000,
        ):
            client.expect(number, method)
            client.transport.send(f'{{"id":{number},"method":"{method}","params":{params}}}')
            error = client.reply_to(number)["error"]
            assert error["code"] == -32600
            assert error["message"] == "Invalid request: params are nested more than 128 levels deep"
        assert client.call("thread/read", {"threadId": thread})["thread"]["id"] == thread
    assert "Traceback" not in program.stderr
