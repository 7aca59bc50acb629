"""One id from the request of a client to the process on another machine, in the logs of both servers; and what these
logs never show."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kit.app_program import stdio_server
from kit.exec_program import running
from kit.server_process import ServerProcess
from system.agent.scene import Scene, scene
from treadle.execution import Environment
from treadle.logs import JsonLine, LogFile
from treadle.testing import AppServerHarness, ToolCall

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
TRACED = {"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01", "tracestate": "a=b"}
NO_UNDO = "[features]\nundo = false\n"  # which runs git, and logs that
JSON = {"TREADLE_LOG_FORMAT": "json", "TREADLE_LOG": "debug"}


def read_log(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def messages(log: list[dict[str, Any]], **ids: str) -> list[str]:
    """Of lines with these members, in their order."""
    return [line["message"] for line in log if all(line.get(name) == value for name, value in ids.items())]


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Path]:
    """What this process logs."""
    handler = LogFile(str(tmp_path / "app.log"))
    handler.setFormatter(JsonLine())
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield tmp_path / "app.log"
    root.removeHandler(handler)
    root.setLevel(level)
    handler.close()


@asynccontextmanager
async def remote_scene(folder: Path, server: ServerProcess) -> AsyncIterator[Scene]:
    """A server whose commands run on an exec-server."""
    async with scene(folder, extra_toml=NO_UNDO) as stage:
        connecting = Environment.connect(server.url)
        stage.server._environment = asyncio.get_running_loop().create_task(connecting)
        yield stage


@pytest.mark.anyio
async def test_one_id_from_the_request_to_the_process_on_another_machine(tmp_path: Path, log: Path) -> None:
    (tmp_path / "exec").mkdir()
    with running(tmp_path / "exec", env=JSON) as server:
        async with remote_scene(tmp_path, server) as stage:
            stage.model.enqueue_calls(ToolCall("exec_command", {"cmd": "echo hi; exit 3"}, "call_1"))
            stage.model.enqueue_assistant_message("done")
            thread = await stage.start()
            turn = await stage.run(thread)
            assert turn["status"] == "completed"
        assert server.stop() == 0
        theirs = read_log(server.log)
    ours = read_log(log)
    (started,) = [line for line in ours if line["message"] == "turn started"]
    trace = started["trace"]
    model = ["response to a model request", "model answered"]
    call = ["tool called", "process started", "process exited", "tool ended"]
    seen = messages(ours, trace=trace)
    seen.remove("request answered")  # when the turn is stored; the model is asked meanwhile
    assert seen == ["request received", "turn started", *model, *call, *model, "turn ended"]
    assert messages(ours, trace=trace, thread=thread, turn=turn["id"], call="call_1") == call
    assert messages(theirs, trace=trace) == ["request received", "process started", "process exited"]
    here, there = (line_of(log, "process exited") for log in (ours, theirs))
    assert (here["exit_code"], here["process"]) == (3, there["process"])
    ended = line_of(ours, "turn ended")
    assert ended["status"] == "completed"
    assert ended["duration_ms"] >= here["duration_ms"]
    assert ended["tokens"] > 0


def line_of(log: list[dict[str, Any]], message: str) -> dict[str, Any]:
    (line,) = [line for line in log if line["message"] == message]
    return line


def test_a_client_names_the_trace_and_the_protocol_stays_clean(harness: AppServerHarness) -> None:
    harness.model.enqueue_assistant_message("done")
    with stdio_server(harness, env=JSON) as program:
        client = program.client
        client.initialize()
        thread = client.start_thread()
        params = {"threadId": thread, "input": [{"type": "text", "text": "go"}]}
        client.send({"id": "mine", "method": "turn/start", "params": params, "trace": TRACED})
        client.expect("mine", "turn/start")
        client.wait_for("turn/completed")
        program.hang_up()
        assert program.wait() == 0
        log = read_log(program.log)
    assert {line["request"] for line in log if line.get("trace") == TRACE} == {"1:mine"}
    traced = messages(log, trace=TRACE)
    traced.remove("request answered")  # when the turn is stored; a short turn may have ended by then
    assert traced[-1] == "turn ended"
    assert "client has left" in messages(log)
    assert line_of(log, "client has left").get("trace") is None


APPROVED = {"approval_policy": "untrusted"}


@pytest.mark.anyio
async def test_approvals_are_logged(tmp_path: Path, log: Path) -> None:
    async with scene(tmp_path, settings=APPROVED, extra_toml=NO_UNDO) as stage:
        stage.model.enqueue_calls(ToolCall("exec_command", {"cmd": "touch x"}, "call_1"))
        stage.model.enqueue_assistant_message("done")
        turn = await stage.begin(await stage.start())
        asked = await stage.asked("item/commandExecution/requestApproval")
        stage.client.reply(asked, {"decision": "decline"})
        await stage.end(turn)
    call = ["tool called", "approval asked", "approval answered", "tool ended"]
    assert messages(read_log(log), call="call_1") == call
    assert line_of(read_log(log), "approval answered")["outcome"] == "decline"


PLANTED = "".join(chr(97 + number % 17) for number in range(0, 200, 7))
"""No shape of a key, and in no dictionary."""


KEYS = ("environment", "header", "override", "login")


def planted(place: str) -> str:
    return f"{PLANTED}{place}"


def test_nothing_of_what_was_said_and_no_key_is_in_the_log(tmp_path: Path) -> None:
    """At the most talkative level, with a turn that fails and one that does not."""
    provider = {"env_key": "MOCK_KEY"}
    extra = f'[model_providers.mock_provider.http_headers]\nx-more = "{planted("header")}"\n'
    env = {**JSON, "MOCK_KEY": planted("environment"), "TREADLE_LOG_FILE": str(tmp_path / "log")}
    with AppServerHarness(tmp_path, provider=provider, extra_toml=extra) as harness:
        model = harness.model
        model.enqueue_calls(ToolCall("exec_command", {"cmd": f"echo {planted('command')}"}, "call_1"))
        model.enqueue_calls(ToolCall("exec_command", {planted("argument"): 1}, "call_2"))
        model.enqueue_assistant_message(planted("answer"))
        model.enqueue_error(
            400, f"{planted('environment')} {planted('header')} is not welcome with {planted('prompt')}"
        )
        command = harness.command("-c", f"model_providers.other.experimental_bearer_token={planted('override')}")
        with stdio_server(harness, env=env, command=command) as program:
            client = program.client
            client.initialize()
            client.call("account/login/start", {"type": "apiKey", "apiKey": planted("login")})
            thread = client.start_thread(baseInstructions=planted("instructions"))
            assert client.turn_end(client.begin(thread, planted("prompt")))["status"] == "completed"
            failed = client.turn_end(client.begin(thread, planted("prompt")))
            assert failed["status"] == "failed"
            for place in KEYS:  # what a client says is in the reason of a refusal
                assert planted(place) in client.failure(planted(place))["message"]
            program.hang_up()
            assert program.wait() == 0
        assert program.stderr == ""
    log = read_log(tmp_path / "log")
    assert messages(log).count("turn ended") == 2
    assert len([line for line in log if "[redacted]" in line.get("reason", "")]) >= len(KEYS)
    assert not [line for line in log if PLANTED in json.dumps(line)]
