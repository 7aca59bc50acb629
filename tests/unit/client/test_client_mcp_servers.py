"""MCP servers that a program passes: what is sent, and what is refused with the key that is wrong."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from treadle.client import with_mcp_servers
from treadle.errors import ArgumentError

TIME: dict[str, Any] = {"command": "uvx", "args": ["mcp-server-time"]}


def test_servers_are_settings_of_the_thread() -> None:
    assert with_mcp_servers(None, None) is None
    assert with_mcp_servers({"model": "m"}, None) == {"model": "m"}
    assert with_mcp_servers(None, {"time": TIME}) == {"mcp_servers": {"time": TIME}}
    assert with_mcp_servers({"model": "m"}, {"time": TIME}) == {"model": "m", "mcp_servers": {"time": TIME}}
    assert with_mcp_servers(None, {}) == {"mcp_servers": {}}


def test_values_are_what_a_file_could_have() -> None:
    table = {"command": Path("/bin/server"), "args": (Path("/data"), "x"), "env": MappingProxyType({"A": "b"})}
    sent = with_mcp_servers(None, MappingProxyType({"own": {**table, "cwd": None}}))
    assert sent == {"mcp_servers": {"own": {"command": "/bin/server", "args": ["/data", "x"], "env": {"A": "b"}}}}


@pytest.mark.parametrize(
    "table",
    [
        {"enabled": False},
        {"enabled_tools": ["a"], "bearer_token_env_var": "TOKEN"},  # of a server of the file
        {"url": "https://docs.example/mcp", "oauth": {"client_id": "me", "callback_port": 8765}},
        {**TIME, "env_vars": ["A", {"name": "B", "source": "local"}], "tools": {"t": {"approval_mode": "prompt"}}},
        {**TIME, "startup_timeout_sec": 3, "share": True, "sampling": True, "name": "ignored"},
    ],
)
def test_what_is_accepted(table: dict[str, Any]) -> None:
    assert with_mcp_servers(None, {"one": table}) == {"mcp_servers": {"one": table}}


@pytest.mark.parametrize(
    ("servers", "parameter", "message"),
    [
        (["time"], "mcp_servers", "must be a dict"),
        ({"time": "uvx"}, "mcp_servers['time']", "must be a dict"),
        ({"time": {"comand": "uvx"}}, "mcp_servers['time']['comand']", "did you mean 'command'"),
        ({"time": {**TIME, "xyz": 1}}, "mcp_servers['time']['xyz']", "it is not known"),
        ({"time": {**TIME, "args": "x"}}, "mcp_servers['time']['args']", "allowed is a list of texts"),
        ({"time": {**TIME, "env": {"A": 1}}}, "mcp_servers['time']['env']", "allowed is a table of texts"),
        ({"time": {**TIME, "url": "https://x.example"}}, "mcp_servers['time']['url']", "a command or a url"),
        ({"time": {**TIME, "http_headers": {}}}, "mcp_servers['time']['http_headers']", "a server with a command"),
        ({"docs": {"url": "docs.example"}}, "mcp_servers['docs']['url']", "no http or https URL"),
        ({"docs": {"bearer_token": "t0ken"}}, "mcp_servers['docs']['bearer_token']", "bearer_token_env_var"),
        (
            {"time": {**TIME, "tools": {"now": {"approval_mode": "yes"}}}},
            "mcp_servers['time']['tools']['now']['approval_mode']",
            "one of `auto`",
        ),
    ],
)
def test_what_is_refused(servers: Any, parameter: str, message: str) -> None:
    with pytest.raises(ArgumentError, match=message) as caught:
        with_mcp_servers(None, servers)
    assert caught.value.parameter == parameter
    assert "t0ken" not in str(caught.value)


@pytest.mark.parametrize("key", ["mcp_servers", "mcp_servers.other"])
def test_servers_are_passed_in_one_place(key: str) -> None:
    with pytest.raises(ArgumentError, match="config has MCP servers too"):
        with_mcp_servers({key: {}}, {"time": TIME})
