"""How each engine is told of an MCP server, and what cannot be one."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import pytest

from treadle.errors import ArgumentError
from treadle.runners import (
    BUILT_IN,
    ClaudeRunner,
    CodexRunner,
    CompletedEvent,
    McpCommand,
    OpenCodeRunner,
    Runner,
    RunOptions,
    RunRequest,
    find_engine,
    make_runner,
)

SERVER = McpCommand(name="own", command=("/bin/server", 'a "b"', "c,d"), tools=("one", "two"))
OPTIONS = RunOptions(mcp_servers=[SERVER])


def _words(runner: Runner, options: RunOptions = OPTIONS) -> list[str]:
    return runner.build_args("hi", None, state=None, options=options)


def test_claude_has_it_on_its_command_line_and_may_use_its_tools() -> None:
    words = _words(ClaudeRunner(allowed_tools=["Read"]))
    (config,) = [words[at + 1] for at, word in enumerate(words) if word == "--mcp-config"]
    assert json.loads(config) == {"mcpServers": {"own": {"command": "/bin/server", "args": ['a "b"', "c,d"]}}}
    allowed = [words[at + 1] for at, word in enumerate(words) if word == "--allowedTools"]
    assert allowed == ["Read", "mcp__own__one,mcp__own__two"]
    assert "--mcp-config" not in _words(ClaudeRunner(), RunOptions())


def test_codex_has_it_as_settings_before_the_word_exec() -> None:
    words = _words(CodexRunner())
    before = words[: words.index("exec")]
    table: Any = tomllib.loads("\n".join(before[1::2]))["mcp_servers"]["own"]
    assert set(before[0::2]) == {"-c"}
    assert (table["command"], table["args"]) == ("/bin/server", ['a "b"', "c,d"])
    assert table["tools"] == {name: {"approval_mode": "approve"} for name in ("one", "two")}
    assert "-c" not in _words(CodexRunner(), RunOptions())


def test_opencode_has_it_in_a_variable_beside_what_the_user_has_there() -> None:
    engine, name = OpenCodeRunner().engine, "OPENCODE_CONFIG_CONTENT"
    request = RunRequest(prompt="hi", options=OPTIONS)
    (content,) = engine.run_env(request, {}).values()
    (server,) = json.loads(content)["mcp"].values()
    assert (server["type"], server["command"]) == ("local", ["/bin/server", 'a "b"', "c,d"])
    users = json.dumps({"model": "m", "mcp": {"other": {"enabled": False}}})
    merged = json.loads(engine.run_env(request, {name: users})[name])
    assert (merged["model"], list(merged["mcp"])) == ("m", ["other", "own"])
    with pytest.raises(ArgumentError, match="no object of JSON"):
        engine.run_env(request, {name: "{"})
    assert engine.run_env(RunRequest(prompt="hi"), {name: users}) == {}


@pytest.mark.parametrize(
    ("rules", "merged"),
    [(None, {}), ("ask", {"*": "ask"}), ({"bash": "deny", "*": "ask"}, {"bash": "deny", "*": "ask"})],
)
def test_opencode_may_use_its_tools_and_no_other_rule_changes(rules: Any, merged: dict[str, str]) -> None:
    name = "OPENCODE_CONFIG_CONTENT"
    users = {} if rules is None else {name: json.dumps({"permission": rules})}
    (content,) = OpenCodeRunner().engine.run_env(RunRequest(prompt="hi", options=OPTIONS), users).values()
    assert json.loads(content)["permission"] == {**merged, "own_one": "allow", "own_two": "allow"}


def test_servers_of_the_runner_and_of_the_run_come_together() -> None:
    other = McpCommand(name="other", command=["x"])
    assert [server.name for server in OPTIONS.over(RunOptions(mcp_servers=[other])).mcp_servers] == ["other", "own"]


@pytest.mark.parametrize(
    ("given", "parameter"),
    [
        ({"name": "a.b"}, "name"),
        ({"name": "-x"}, "name"),
        ({"name": ""}, "name"),
        ({"tools": ["a,Bash"]}, "tools"),
        ({"command": []}, "command"),
        ({"command": "server"}, "command"),
    ],
)
def test_what_cannot_be_one(given: dict[str, Any], parameter: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        McpCommand(**{"name": "own", "command": ["x"], **given})
    assert caught.value.parameter == parameter


@pytest.mark.anyio
@pytest.mark.parametrize("engine", [name for name in BUILT_IN if not find_engine(name).takes_mcp_servers])
async def test_an_engine_that_knows_none_says_so_and_is_not_started(engine: str) -> None:
    (event,) = [event async for event in make_runner(engine).run("hi", options=OPTIONS)]
    assert isinstance(event, CompletedEvent)
    assert event.error == f"{engine} cannot be given MCP servers: leave `mcp_servers` out"
