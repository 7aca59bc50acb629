"""Treadle as an MCP server, driven by the client of the official package."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from interop.peers import installed
from kit.app_program import listening_server
from treadle.own_python import treadle_command
from treadle.testing import AppServerHarness

pytestmark = pytest.mark.interop
PROGRAM = Path(__file__).with_name("official_client.py")
DEADLINE_S = 120.0


def drive(harness: AppServerHarness, *server: str) -> Any:
    done = subprocess.run(
        [sys.executable, str(PROGRAM), *server],
        cwd=harness.workspace,
        env={**harness.environ(), "PYTHONPATH": os.fspath(installed("mcp").parent)},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_the_official_client_runs_agents(tmp_path: Path, transport: str) -> None:
    with AppServerHarness(tmp_path) as harness:
        for name in ("first", "second"):
            harness.model.enqueue_function_call("exec_command", {"cmd": f"touch {name}"})
            harness.model.enqueue_assistant_message(f"The {name} answer.")
        for _ in "123":
            harness.model.enqueue_assistant_message("beside")
        if transport == "stdio":
            report = drive(harness, *treadle_command("mcp-server"))
        else:
            with listening_server(harness) as program:  # whose URL has the token as its path
                report = drive(harness, f"{program.url.replace('ws://', 'http://')}/mcp")
        assert (report["version"], report["server"]) == ("2025-11-25", "treadle")
        assert report["tools"][:2] == ["codex", "codex-reply"]
        thread = report["calls"][0]["data"]["threadId"]
        for found, name in zip(report["calls"], ("first", "second"), strict=True):
            text = f"The {name} answer."
            assert found == {"text": text, "data": {"threadId": thread, "content": text}, "error": False}
        assert ["touch first" in report["asked"][0], "touch second" in report["asked"][1]] == [True, True]
        assert (harness.workspace / "first").exists()
        assert not (harness.workspace / "second").exists()
        assert report["wrong"]["error"] is True
        assert report["many"] == ["beside"] * 3
        assert len(report["threads"]) == 4
        assert {"turn/started", "item/completed", "turn/completed"} < set(report["logged"])
        assert [1, "started"] in report["steps"]
