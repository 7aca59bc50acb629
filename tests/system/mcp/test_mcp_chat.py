"""`treadle chat` with MCP servers: how they start, what they are called for, and a yes for the session."""

from __future__ import annotations

from pathlib import Path

from system.mcp.mcp_scene import call, probe_table
from system.test_cli_chat import SETTINGS, Stage
from treadle.testing import AppServerHarness


def test_starts_calls_and_questions_are_shown(tmp_path: Path) -> None:
    missing = '[mcp_servers.missing]\ncommand = "no-such-program-here"\n'
    extra = "\n".join([probe_table(tmp_path), missing])
    with AppServerHarness(tmp_path, settings=SETTINGS) as harness:
        path = harness.home / "config.toml"
        path.write_text(f"{path.read_text()}\n{extra}")
        stage = Stage(tmp_path, harness)
        with stage.chat() as tui:
            stage.model.enqueue_calls(call("more", "first"))
            stage.model.enqueue_calls(call("more", "second"))
            stage.model.enqueue_assistant_message("Twice.")
            tui.say("go")
            tui.wait_for(
                'Allow the probe MCP server to run tool "more"?', 'text: "first"', "for the rest of this session"
            )
            tui.press("a")
            tui.wait_for("Twice.", "✓ MCP server probe", "✗ MCP server missing · failed: MCP client for `missing`")
            assert tui.text.count("✓ probe.more") == 2
            tui.press("ctrl-d")
            assert tui.wait_for_end() == 0
        assert "approval_mode" not in path.read_text()


def test_prompts_are_commands(tmp_path: Path) -> None:
    with AppServerHarness(tmp_path, settings=SETTINGS) as harness:
        path = harness.home / "config.toml"
        path.write_text(f"{path.read_text()}\n{probe_table(tmp_path)}")
        stage = Stage(tmp_path, harness)
        with stage.chat() as tui:
            tui.say("/help")
            tui.wait_for("✓ MCP server probe", "/mcp__probe__greet who [how]", "/mcp__probe__odd_name", "All kinds")
            tui.say("/mcp__probe__greet")
            tui.wait_for("it is used like this: /mcp__probe__greet who [how]")
            tui.say("/mcp__probe__gree Ada")
            tui.wait_for("there is no prompt /mcp__probe__gree; there are /mcp__probe__greet, /mcp__probe__odd_name")
            stage.model.enqueue_assistant_message("Hello Ada.")
            tui.say('/mcp__probe__greet "Ada L." with three cheers')
            tui.wait_for_sequence("› Greet Ada L. with three cheers.", "Hello Ada.")
            assert stage.model.requests()[-1].last_user_text == "Greet Ada L. with three cheers."
            tui.press("ctrl-d")
            assert tui.wait_for_end() == 0
