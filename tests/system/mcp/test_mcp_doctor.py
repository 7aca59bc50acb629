"""`treadle doctor` and MCP servers: each is tried, and none is left behind."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from kit.oauth_server import browse, oauth_server
from kit.processes import DEADLINE_S, processes_left, processes_with
from mcp_stage import PROBE
from system.test_cli_run import Stage
from treadle.config import value_text


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    stage = Stage(tmp_path)
    stage.env["PATH"] = f"{stage.programs}:/usr/bin:/bin"
    return stage


def examined(stage: Stage, servers: dict[str, dict[str, Any]], *words: str) -> tuple[int, list[dict[str, Any]]]:
    stage.home.mkdir(mode=0o700, exist_ok=True)
    (stage.home / "config.toml").write_text(f"mcp_servers = {value_text(servers)}\n")
    done = stage.run("doctor", "--no-engines", "--json", *words)
    assert "Traceback" not in done.stderr
    return done.returncode, json.loads(done.stdout)["subjects"].get("MCP servers", [])


def probe(*options: str, **more: Any) -> dict[str, Any]:
    return {"command": PROBE[0], "args": [*PROBE[1:], *options], **more}


def test_each_server_is_tried_and_named_with_its_tools(stage: Stage, tmp_path: Path) -> None:
    record = tmp_path / "record.jsonl"
    servers = {
        "good": probe("--record", str(record), enabled_tools=["echo", "rpcerror"]),
        "off": {"command": "nothing", "enabled": False},
        "missing": {"command": "no-such-program-here"},
        "bad": {"args": 1},
        "far": {"url": "https://mcp.example/mcp"},
        "quits": probe("--fault", "exit"),
        "hangs": probe("--fault", "hang", startup_timeout_sec=0.5),
    }
    code, checks = examined(stage, servers)
    assert code == 1
    found = {check["what"].split(" ")[0].rstrip(":"): check for check in checks}
    assert [(name, found[name]["verdict"]) for name in servers] == [
        ("good", "ok"),
        ("off", "skipped"),
        ("missing", "failed"),
        ("bad", "failed"),
        ("far", "skipped"),
        ("quits", "failed"),
        ("hangs", "failed"),
    ]
    assert found["good"]["what"].startswith("good: 2 tools, ")
    assert "No such file or directory" in found["missing"]["what"]
    assert "config.toml:1:1: mcp_servers.bad.args: found a whole number" in found["bad"]["what"]
    assert found["far"]["advice"] == "treadle doctor --online"
    assert "timed out after 0.5 seconds" in found["hangs"]["what"]
    assert found["hangs"]["advice"] == "treadle mcp get hangs"
    assert record.read_text().count('"tools/list"') == 1
    assert processes_left(str(record)) == []


def test_a_server_that_will_not_end_is_ended(stage: Stage, tmp_path: Path) -> None:
    record = tmp_path / "record.jsonl"
    code, checks = examined(stage, {"stubborn": probe("--record", str(record), "--fault", "stubborn")})
    assert (code, [check["verdict"] for check in checks]) == (0, ["ok"])
    assert record.exists()
    assert processes_with(str(record)) == []


def test_a_session_over_http_is_ended(stage: Stage, tmp_path: Path) -> None:
    record = tmp_path / "record.jsonl"
    command = [*PROBE, "--http", "--port", "0", "--record", str(record)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            port = int(server.stdout.readline())
            code, [check] = examined(stage, {"web": {"url": f"http://127.0.0.1:{port}/mcp"}})
        finally:
            server.kill()
    assert (code, check["verdict"]) == (0, "ok")
    lines = map(json.loads, record.read_text().splitlines())
    methods = [line["msg"]["method"] for line in lines if line["dir"] == "http"]
    assert methods[0] == "POST"
    # Behind it there can only be the GET of the stream for what the server says by itself, which was still on its way.
    assert "DELETE" in methods[-2:]
    assert methods.count("DELETE") == 1


def test_without_servers_nothing_is_said_of_them(stage: Stage) -> None:
    assert examined(stage, {}) == (0, [])
    assert "MCP" not in stage.run("doctor", "--no-engines").stdout


def test_settings_of_one_run_are_tried_too(stage: Stage) -> None:
    stage.home.mkdir(mode=0o700)
    done = stage.run("doctor", "--no-engines", "-c", "mcp_servers.run.command=no-such-program-here")
    assert done.returncode == 1
    assert "MCP servers\n  ✗ run: MCP client for `run` failed to start" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("does not work: MCP servers")


def test_a_server_over_http_is_asked_with_the_token_of_its_login(stage: Stage) -> None:
    stage.env.pop("DISPLAY", None)
    stage.env.pop("WAYLAND_DISPLAY", None)
    with oauth_server() as server:
        web = {"web": {"url": server.url}}
        code, [before] = examined(stage, web)
        assert (code, before["verdict"], before["advice"]) == (1, "failed", "treadle mcp login web")
        assert "not logged in" in before["what"]
        login = stage.start("mcp", "login", "web")
        try:
            assert login.stdout is not None
            login.stdout.readline()
            browse(login.stdout.readline().strip())
            login.communicate(timeout=DEADLINE_S)
        finally:
            login.kill()
            login.wait(DEADLINE_S)
        code, [after] = examined(stage, web)
        assert (code, after["verdict"]) == (0, "ok")
        assert after["what"].startswith("web: ")
