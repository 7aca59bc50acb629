"""`treadle exec` with MCP servers: what it shows of them in a pipe, as JSON and on a terminal, and how it asks."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from kit.processes import DEADLINE_S, processes_left
from system.mcp.mcp_scene import call, probe_table, record_of
from system.test_cli_exec_json import JSON
from system.test_cli_exec_json import Stage as PipeStage
from system.test_cli_exec_terminal import Stage as TerminalStage


def add_tables(stage: PipeStage | TerminalStage, *tables: str) -> None:
    path = stage.home / "config.toml"
    path.write_text("\n".join([path.read_text(), *tables]))


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[PipeStage]:
    settings = {"sandbox_mode": "danger-full-access", "approval_policy": "never"}
    with PipeStage(tmp_path, settings=settings) as stage:
        yield stage


@pytest.fixture
def on_terminal(tmp_path: Path) -> Iterator[TerminalStage]:
    with TerminalStage(tmp_path) as stage:
        yield stage


def test_a_pipe_has_the_servers_and_their_calls(stage: PipeStage, tmp_path: Path) -> None:
    missing = '[mcp_servers.missing]\ncommand = "no-such-program-here"\n'
    add_tables(stage, probe_table(tmp_path), missing)
    stage.model.enqueue_calls(call("echo", "hello"), call("rpcerror"))
    stage.model.enqueue_assistant_message("Done.")
    done = stage.run("exec", "--skip-git-repo-check", "go")
    assert (done.returncode, done.stdout) == (0, "Done.\n"), done.stderr
    lines = done.stderr.splitlines()
    assert "MCP server probe: ready" in lines
    assert any(line.startswith("MCP server missing: failed: MCP client for `missing` failed") for line in lines)
    assert "probe.echo: completed" in lines
    assert any(line.startswith("probe.rpcerror: failed: tool call error: ") for line in lines)
    assert lines.index("MCP server probe: ready") < lines.index("probe.echo: completed")
    assert processes_left(str(record_of(tmp_path))) == []


def test_json_has_the_calls_as_codex_prints_them(stage: PipeStage, tmp_path: Path) -> None:
    add_tables(stage, probe_table(tmp_path))
    stage.model.enqueue_calls(call("echo", "hello"))
    stage.model.enqueue_assistant_message("Done.")
    events = stage.events(*JSON[:1], *JSON[1:], "go")
    calls = [event for event in events if event.get("item", {}).get("type") == "mcp_tool_call"]
    assert [event["type"] for event in calls] == ["item.started", "item.completed"]
    item = calls[1]["item"]
    assert (item["server"], item["tool"], item["status"]) == ("probe", "echo", "completed")
    assert item["arguments"] == {"text": "hello"}
    assert item["result"]["content"] == [{"type": "text", "text": "hello"}]
    assert item["error"] is None


def test_a_call_that_nobody_can_be_asked_about_is_refused(tmp_path: Path) -> None:
    with PipeStage(tmp_path, settings={"sandbox_mode": "read-only"}) as stage:
        add_tables(stage, probe_table(tmp_path))
        stage.model.enqueue_calls(call("more"))
        stage.model.enqueue_assistant_message("Done.")
        done = stage.run("exec", "--skip-git-repo-check", "go")
        assert done.returncode == 0, done.stderr
        assert "probe.more: failed: MCP tool call requires approval, but approval policy is never" in done.stderr


def test_servers_of_one_run_are_given_by_dash_c(stage: PipeStage, tmp_path: Path) -> None:
    table = tomllib.loads(probe_table(tmp_path))["mcp_servers"]["probe"]
    server = [f"mcp_servers.probe.{key}={json.dumps(value)}" for key, value in table.items()]
    stage.model.enqueue_calls(call("echo", "hello"))
    stage.model.enqueue_assistant_message("Done.")
    words = [word for setting in server for word in ("-c", setting)]
    done = stage.run("exec", "--skip-git-repo-check", *words, "go")
    assert "probe.echo: completed" in done.stderr.splitlines()
    stage.model.enqueue_assistant_message("Without it.")
    bad = stage.run("exec", "--skip-git-repo-check", "-c", "mcp_servers.x.args=1", "go")
    assert bad.returncode == 0, bad.stderr
    assert "mcp_servers.x.args: found a whole number, allowed is a list of texts" in bad.stderr


def test_on_a_terminal_a_call_is_asked_about_once_and_for_all(on_terminal: TerminalStage, tmp_path: Path) -> None:
    add_tables(on_terminal, probe_table(tmp_path))
    for number in range(2):
        on_terminal.model.enqueue_calls(call("more", f"text {number}"))
    on_terminal.model.enqueue_assistant_message("Done.")
    with on_terminal.exec("go") as program:
        on_terminal.terminal.wait_for('Allow the probe MCP server to run tool "more"?')
        on_terminal.terminal.wait_for('text: "text 0"')
        on_terminal.terminal.wait_for("write it into config.toml")
        on_terminal.terminal.wait_for("  > ")
        on_terminal.terminal.type(b"w")
        screen = on_terminal.screen()
        assert program.wait(timeout=DEADLINE_S) == 0
    assert "✓ MCP server probe" in screen
    assert screen.count("✓ probe.more") == 2
    settings = tomllib.loads((on_terminal.home / "config.toml").read_text())
    assert settings["mcp_servers"]["probe"]["tools"] == {"more": {"approval_mode": "approve"}}


def test_on_a_terminal_a_call_can_be_refused(on_terminal: TerminalStage, tmp_path: Path) -> None:
    add_tables(on_terminal, probe_table(tmp_path))
    on_terminal.model.enqueue_calls(call("more"))
    on_terminal.model.enqueue_assistant_message("Then not.")
    with on_terminal.exec("go") as program:
        on_terminal.terminal.wait_for("Allow the probe MCP server")
        on_terminal.terminal.wait_for("  > ")
        on_terminal.terminal.type(b"n")
        on_terminal.terminal.wait_for("what instead?")
        on_terminal.terminal.type(b"\n")
        screen = on_terminal.screen()
        assert program.wait(timeout=DEADLINE_S) == 0
    assert any(line.startswith("✗ probe.more · failed: user rejected MCP tool call") for line in screen)
