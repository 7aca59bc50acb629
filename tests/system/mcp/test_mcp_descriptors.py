"""More MCP servers than the process has files for."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import kit.mcp_probe
from kit.app_client import AppClient
from kit.app_program import listening_server
from kit.transports import socket_to
from treadle.testing import AppServerHarness

LIMIT = 256
MANY = 70
OTHERS = 12


@contextmanager
def joined(url: str) -> Iterator[AppClient]:
    with socket_to(url) as socket:
        client = AppClient(socket)
        client.initialize()
        yield client


def test_servers_that_would_take_the_last_files_say_so_and_nothing_else_is_missing(tmp_path: Path) -> None:
    probe = {"command": sys.executable, "args": ["-I", "-S", kit.mcp_probe.__file__]}
    servers = {f"s{number}": probe for number in range(MANY)}
    free = {"sandbox_mode": "danger-full-access", "approval_policy": "never"}
    limited = ("/bin/sh", "-c", f'ulimit -n {LIMIT}; exec "$@"', "sh")
    with (
        AppServerHarness(tmp_path, settings=free) as harness,
        listening_server(harness, wrapper=limited) as program,
        joined(program.url) as client,
    ):
        thread = client.call("thread/start", {"config": {"mcp_servers": servers}})["thread"]["id"]
        params = {"threadId": thread, "limit": MANY, "detail": "toolsAndAuthOnly"}
        statuses = client.call("mcpServerStatus/list", params)["data"]
        problems = {status["toolsError"] for status in statuses if status["runtimeStatus"] == "failed"}
        connected = [status["name"] for status in statuses if status["runtimeStatus"] == "connected"]
        assert len(statuses) == MANY
        assert 20 < len(connected) < MANY
        for problem in problems:
            assert f"this process may have {LIMIT}: raise the limit (ulimit -n)" in problem
        # Clients come in, threads begin, commands run, and what they do is stored.
        for number in range(OTHERS):
            with joined(program.url) as other:
                harness.model.enqueue_function_call("exec_command", {"cmd": f"echo {number} > made-{number}"})
                harness.model.enqueue_assistant_message("done")
                another = other.call("thread/start", {})["thread"]["id"]
                assert other.run(another)["status"] == "completed"
        assert len(list(harness.workspace.glob("made-*"))) == OTHERS
        called = {"threadId": thread, "server": connected[-1], "tool": "echo", "arguments": {"text": "on"}}
        assert client.call("mcpServer/tool/call", called)["content"][0]["text"] == "on"
