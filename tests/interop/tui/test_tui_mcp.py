"""The terminal interface of codex: MCP servers and their tools, on our app-server and on the real one."""

from __future__ import annotations

import json
import sys

import pytest

import kit.mcp_probe
from interop.tui.app_servers import AppServer
from interop.tui.conftest import CLIENT, OpenTui
from interop.tui.told_model import ToldModel
from treadle.testing import ToolCall

pytestmark = [pytest.mark.interop, pytest.mark.timeout(120)]


@pytest.fixture(scope="module", autouse=True)
def probe(server: AppServer) -> None:
    """In the settings of the server: a terminal on another machine does not pass on its own."""
    arguments = json.dumps(["-I", "-S", kit.mcp_probe.__file__])
    with (server.home / ".codex" / "config.toml").open("a") as file:
        file.write(f"[mcp_servers.probe]\ncommand = {json.dumps(sys.executable)}\nargs = {arguments}\n")
    server.stop()
    server.start()


@pytest.mark.scenario(client=CLIENT, name="MCP servers: their list and a call")
def test_mcp_call(tui: OpenTui, model: ToldModel) -> None:
    model.when("Say it back.", ToolCall("mcp__probe.echo", {"text": "an echo"}), "It was said.")
    screen = tui()
    screen.say("Say it back.")
    screen.wait_for_sequence("• Called probe.echo", "└ an echo", "• It was said.", "Worked for")
    screen.say("/mcp verbose")
    screen.wait_for_sequence("• probe: connected (", "• Tools:", "echo", "write_it", "• Resources: one (probe://one)")


@pytest.mark.scenario(client=CLIENT, name="MCP servers: approval of a call")
def test_mcp_approval(tui: OpenTui, model: ToldModel) -> None:
    write = ToolCall("mcp__probe.write_it", {"text": "x"})
    model.when("Write it.", write, "It was written.")
    model.when("Write it again.", write, "It was not.")
    screen = tui()
    screen.say("Write it.")
    screen.wait_for('Allow the probe MCP server to run tool "write_it"?', "text: x", "3. Always allow")
    screen.press("enter")
    screen.wait_for_sequence("• Called probe.write_it", "└ written", "• It was written.")
    screen.say("Write it again.")
    screen.wait_for("4. Cancel")
    screen.press("escape")
    screen.wait_for_sequence("• Failed probe.write_it", "user cancelled MCP tool call", "• It was not.")


@pytest.mark.scenario(client=CLIENT, name="MCP servers: question to the user")
def test_mcp_question(tui: OpenTui, model: ToldModel) -> None:
    model.when("Ask my name.", ToolCall("mcp__probe.ask", {"text": "Who is it?"}), "Now I know.")
    screen = tui()
    screen.say("Ask my name.")
    screen.wait_for("4. Cancel")
    screen.press("enter")
    screen.wait_for("Who is it?", "Type your answer")
    screen.type("Ada")
    screen.press("enter")
    screen.wait_for("• Now I know.")
    *_, answered = model.asked("Ask my name.")
    assert '{"action": "accept", "content": {"name": "Ada"}}' in "".join(answered.tool_outputs.values())
