"""The audit log of servers: who did what, and nothing without it where it is required."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kit.app_program import listening_server, refused, stdio_server
from kit.exec_client import connected
from kit.exec_program import running
from treadle import Codex, CodexConfig, Environment, ExecError, TreadleError
from treadle.errors import RpcError
from treadle.execution import uri_from_path
from treadle.execution.server import ExecServer
from treadle.logs import AuditFailed, AuditLog, audit
from treadle.protocol.app import CommandExecParams
from treadle.testing import AppServerHarness
from treadle.transport import Address
from treadle.transport.listen import listen

ESCALATED = {"cmd": "touch hello", "sandbox_permissions": "require_escalated", "justification": "why"}
pytestmark = pytest.mark.anyio


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_requests_approvals_and_commands_of_an_app_server(tmp_path: Path) -> None:
    path = tmp_path / "audit"
    with AppServerHarness(tmp_path) as harness:
        config_file = harness.home / "config.toml"
        settings = config_file.read_text().replace('"never"', '"on-request"').replace("danger-full-access", "read-only")
        config_file.write_text(settings)
        with listening_server(harness, env={"TREADLE_AUDIT_FILE": str(path)}) as server:
            harness.model.enqueue_function_call("exec_command", ESCALATED)
            harness.model.enqueue_assistant_message("what the model said")
            config = CodexConfig(url=server.url, client_name="my-bot")
            with Codex(config, approval_handler=lambda request: True) as codex:
                thread = codex.thread_start()
                thread.run("what the user said")
            secret = Address.parse(server.url).path[1:]
        written = lines(path)
        text = path.read_text()
    for nothing in ("what the user said", "what the model said", secret):
        assert nothing not in text
    assert written[0]["event"] == "listening"
    assert len(written[0]["token"]) == 12
    requests = [line for line in written if line["event"] == "request"]
    assert {line["name"] for line in requests if line["method"] == "turn/start"} == {"my-bot"}
    assert next(line for line in requests if line["method"] == "turn/start")["thread"] == thread.id
    (command,) = [line for line in written if "touch hello" in line.get("command", "")]
    assert command["thread"] == thread.id
    (answer,) = [line for line in written if line["event"] == "question answered"]
    assert (answer["answer"], answer["name"], answer["thread"]) == ("accept", "my-bot", thread.id)
    (decided,) = [line for line in written if line["event"] == "approval decided"]
    assert decided["outcome"] == "accept"
    assert written.index(answer) < written.index(decided) < written.index(command)


def test_a_request_about_another_machine_names_it() -> None:
    assert audit.subject(CommandExecParams(command=("true",), environment_id="box"))["machine"] == "box"


def test_a_server_in_the_process_of_a_bot_has_one_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "log", None)
    path = tmp_path / "audit"
    with AppServerHarness(tmp_path) as harness:
        harness.model.enqueue_assistant_message("done")
        environ = {**harness.environ(), "TREADLE_AUDIT_FILE": str(path)}
        with Codex(harness.codex_config(env=environ, client_name="my-bot")) as codex:
            codex.thread_start().run("go")
        (begun,) = [line for line in lines(path) if line.get("method") == "turn/start"]
        assert (begun["name"], begun["pid"]) == ("my-bot", os.getpid())
        monkeypatch.setattr(audit, "log", None)
        path.unlink()
        path.mkdir()
        with pytest.raises(TreadleError, match="cannot be opened"):
            Codex(harness.codex_config(env=environ))


class Refusing(AuditLog):
    """Cannot write some events."""

    refused = ""

    def record(self, event: str, fields: Mapping[str, object]) -> None:
        if event == self.refused:
            raise AuditFailed("the audit log is full")
        super().record(event, fields)


@pytest.mark.parametrize("event", ["approval asked", "question answered", "approval decided", "command"])
async def test_a_yes_that_cannot_be_written_down_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, event: str
) -> None:
    required = Refusing(str(tmp_path / "audit"), required=True)
    monkeypatch.setattr(audit, "log", required)
    settings = {"approval_policy": "on-request", "sandbox_mode": "read-only"}
    with AppServerHarness(tmp_path, settings=settings) as harness:
        async with harness.connect() as client:
            client.answer = lambda ask: {"decision": "accept"}
            thread = (await client.request("thread/start", {}))["thread"]["id"]

            async def output() -> str:
                """Of the call of a turn."""
                harness.model.enqueue_function_call("exec_command", ESCALATED)
                harness.model.enqueue_assistant_message("done")
                given = {"threadId": thread, "input": [{"type": "text", "text": "go"}]}
                turn = (await client.request("turn/start", given))["turn"]["id"]
                assert (await client.turn_end(turn))["turn"]["status"] == "completed"
                return list(harness.model.requests()[-1].tool_outputs.values())[-1]

            required.refused = event
            said = await output()
            assert ("the audit log is full" if event == "command" else "approval request failed") in said
            assert "internal error" not in said
            assert not (harness.workspace / "hello").exists()
            required.refused = ""
            await output()
            assert (harness.workspace / "hello").exists()
            flags = [told["params"]["status"].get("activeFlags") for told in client.told("thread/status/changed")]
            assert flags[-2:] == [[], None]  # no question is left open
    required.close()


class FullDisk:
    path = "audit"

    def write(self, line: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def close(self) -> None:
        pass


async def test_nothing_is_done_that_cannot_be_written_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    required = AuditLog(str(tmp_path / "audit"), required=True)
    monkeypatch.setattr(audit, "log", required)
    marker = tmp_path / "marker"
    async with ExecServer() as server:
        listener = await listen(Address.parse("ws://127.0.0.1:0"), server.accept, token="t" * 16)
        remote = await Environment.connect(listener.url, token="t" * 16, recovery_s=0)
        async with remote, await Environment.connect() as local:
            for environment in (remote, local):
                assert (await environment.run(["echo", "one"])).text == "one\n"
            with monkeypatch.context() as full:
                full.setattr(required, "_file", FullDisk())
                for environment in (remote, local):
                    with pytest.raises(ExecError, match="audit log audit cannot be written"):
                        await environment.run(["touch", str(marker)])
                with pytest.raises(TreadleError, match="audit log"):
                    await remote.files.write(marker, "text")
                with pytest.raises(TreadleError, match="audit log"):
                    await Environment.connect(listener.url, token="t" * 16)
            assert not marker.exists()
            await remote.files.write(marker, "text")
        await listener.close()
    required.close()
    written = lines(tmp_path / "audit")
    events = [line["event"] for line in written]
    assert events[:2] == ["listening", "session"]
    assert [line["command"] for line in written if line["event"] == "command"] == ["echo one"] * 2
    assert written[-1]["path"].endswith("/marker")


def test_what_requests_are_about_is_written_down_without_what_may_be_secret(tmp_path: Path) -> None:
    path = tmp_path / "audit"
    with running(tmp_path, env={"TREADLE_AUDIT_FILE": str(path)}) as server, connected(server.url) as client:
        client.handshake()
        one, two = (uri_from_path(str(tmp_path / name)) for name in ("one", "two"))
        client.failure("fs/copy", {"sourcePath": one, "destinationPath": two, "recursive": False})
        secret = "http://user:secret1@127.0.0.1:1/secret2?key=secret3"
        client.failure("http/request", {"method": "GET", "url": secret, "requestId": "r"})
    with AppServerHarness(tmp_path) as harness, stdio_server(harness, env={"TREADLE_AUDIT_FILE": str(path)}) as program:
        program.client.initialize()
        program.client.call("fs/createDirectory", {"path": str(tmp_path / "three")})
    assert "secret" not in path.read_text()
    copied, fetched, made = [line for line in lines(path) if line["event"] == "request"]
    assert (copied["method"], copied["path"], copied["to"]) == ("fs/copy", one, two)
    assert (fetched["method"], fetched["url"]) == ("http/request", "http://127.0.0.1:1/…")
    assert (made["method"], made["path"], made["name"]) == ("fs/createDirectory", str(tmp_path / "three"), "raw")


async def test_an_app_server_answers_no_request_that_it_cannot_write_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    required = AuditLog(str(tmp_path / "audit"), required=True)
    monkeypatch.setattr(audit, "log", required)
    with AppServerHarness(tmp_path) as harness:
        async with harness.connect() as client:
            thread = (await client.request("thread/start", {}))["thread"]
            with monkeypatch.context() as full:
                full.setattr(required, "_file", FullDisk())
                with pytest.raises(RpcError, match="audit log"):
                    await client.request("thread/name/set", {"threadId": thread["id"], "name": "other"})
            listed = await client.request("thread/read", {"threadId": thread["id"]})
            assert listed["thread"]["name"] is None
    required.close()


def test_a_server_whose_audit_log_cannot_be_opened_does_not_start(tmp_path: Path) -> None:
    with AppServerHarness(tmp_path) as harness:
        said = refused(harness, "--listen", "ws://127.0.0.1:0", env={"TREADLE_AUDIT_FILE": str(tmp_path / "no" / "a")})
    assert "audit log" in said
    assert "TREADLE_AUDIT_FILE" in said
