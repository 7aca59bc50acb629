"""`[mcp_servers]`: what is read from which source, what disables a server or only warns, and that no secret shows."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.config import (
    ApprovalMode,
    Config,
    ConfigError,
    ConfigWriteError,
    EnvVar,
    Layers,
    LoadedConfig,
    McpServerConfig,
    McpServerTable,
    McpToolTable,
    OAuthTable,
    load_config,
    read_mcp_servers,
    remember_tool_approval,
    write_values,
)
from treadle.protocol.app import ConfigEdit
from treadle.secrets import known

SECRET = "s3cret-value"


def load(home: Path, text: str = "", overrides: Iterable[str] = ()) -> LoadedConfig:
    (home / "config.toml").write_text(text)
    return load_config(home, overrides=overrides, environ={})


def read(tables: object) -> tuple[Mapping[str, McpServerConfig], list[str]]:
    servers, warnings = read_mcp_servers(Layers(path="config.toml", file={"mcp_servers": tables}), tables)
    return servers, [str(warning) for warning in warnings]


def only(table: Mapping[str, Any]) -> McpServerConfig:
    servers, warnings = read({"x": table})
    assert warnings == []
    return servers["x"]


# --- what is read ----------------------------------------------------------------------------------------------------


def test_every_key_of_a_server_that_is_started() -> None:
    text = """
command = "python3"
args = ["-m", "probe"]
env = { A = "b" }
env_vars = ["LANGUAGE", { name = "X", source = "remote" }]
cwd = "/srv"
environment_id = "local"
required = true
startup_timeout_sec = 1.5
tool_timeout_sec = 2
enabled_tools = ["a", "b"]
disabled_tools = ["b"]
default_tools_approval_mode = "writes"
supports_parallel_tool_calls = true
share = true
sampling = true
[tools.a]
approval_mode = "approve"
"""
    assert only(tomllib.loads(text)) == McpServerConfig(
        name="x",
        command="python3",
        args=("-m", "probe"),
        env={"A": "b"},
        env_vars=("LANGUAGE", EnvVar(name="X", source="remote")),
        cwd="/srv",
        required=True,
        startup_timeout_sec=1.5,
        tool_timeout_sec=2.0,
        enabled_tools=("a", "b"),
        disabled_tools=("b",),
        default_tools_approval_mode="writes",
        tools={"a": McpToolTable(approval_mode="approve")},
        supports_parallel_tool_calls=True,
        share=True,
        sampling=True,
    )


def test_every_key_of_a_server_that_is_reached_over_http() -> None:
    server = only(
        {
            "url": "http://127.0.0.1:9/mcp",
            "bearer_token_env_var": "TOKEN",
            "http_headers": {"x-a": "b"},
            "env_http_headers": {"x-c": "D"},
            "http_headers_helper": "headers --json",
            "auth": "oauth",
            "scopes": ["read"],
            "oauth": {"client_id": "me", "callback_port": 1234},
            "oauth_resource": "https://r.example",
            "startup_timeout_ms": 1500,
        }
    )
    assert server == McpServerConfig(
        name="x",
        url="http://127.0.0.1:9/mcp",
        bearer_token_env_var="TOKEN",
        http_headers={"x-a": "b"},
        env_http_headers={"x-c": "D"},
        http_headers_helper="headers --json",
        auth="oauth",
        scopes=("read",),
        oauth=OAuthTable(client_id="me", callback_port=1234),
        oauth_resource="https://r.example",
        startup_timeout_ms=1500,
    )
    assert server.is_http
    assert server.startup_timeout_s == 1.5


def test_without_more_a_server_has_the_defaults_of_codex() -> None:
    server = only({"command": "x"})
    assert (server.startup_timeout_s, server.tool_timeout_s, server.enabled, server.required) == (30, 300, True, False)
    assert server.approval_of("any") == "auto"
    assert not server.is_http


def test_the_list_of_allowed_tools_goes_before_the_list_of_others() -> None:
    def offered(**table: Any) -> list[str]:
        server = only({"command": "x", **table})
        return [tool for tool in ("a", "b", "c") if server.allows(tool)]

    assert offered() == ["a", "b", "c"]
    assert offered(enabled_tools=["a", "b"], disabled_tools=["b"]) == ["a"]
    assert offered(disabled_tools=["b"]) == ["a", "c"]
    assert offered(enabled_tools=[]) == []


@pytest.mark.parametrize("mode", get_args(ApprovalMode))
def test_a_tool_has_its_own_approval_mode_or_that_of_the_server(mode: str) -> None:
    other = "prompt" if mode == "approve" else "approve"
    tools: dict[str, Any] = {"a": {"approval_mode": other}, "b": {}}
    server = only({"command": "x", "default_tools_approval_mode": mode, "tools": tools})
    assert [server.approval_of(tool) for tool in ("a", "b", "c")] == [other, mode, mode]


# --- where it comes from ---------------------------------------------------------------------------------------------

FILE = """
profile = "work"
[mcp_servers.one]
command = "one"
args = ["a"]
[mcp_servers.two]
url = "http://127.0.0.1:9/mcp"
[profiles.work.mcp_servers.one]
args = ["b"]
[profiles.work.mcp_servers.three]
command = "three"
"""


def named(config: Config) -> list[str]:
    return [name for name, server in config.mcp_servers.items() if server.enabled]


def test_servers_come_from_the_file_its_profile_the_command_line_and_the_thread(tmp_path: Path) -> None:
    config = load(tmp_path, FILE, ["mcp_servers.four.command=four", "mcp_servers.two.required=true"]).config
    assert list(config.mcp_servers) == ["one", "two", "three", "four"]
    assert config.mcp_servers["one"].args == ("b",)
    assert config.mcp_servers["two"].required
    thread = config.with_thread_overrides({"mcp_servers": {"five": {"command": "five"}, "two": {"enabled": False}}})
    assert named(thread) == ["one", "three", "four", "five"]
    dotted = config.with_thread_overrides({"mcp_servers.five": {"command": "5"}, "mcp_servers.one.cwd": "/"})
    assert named(dotted) == ["one", "two", "three", "four", "five"]
    assert dotted.mcp_servers["one"].cwd == "/"
    assert load(tmp_path).config.mcp_servers == {}


def test_a_configuration_without_servers_does_not_load_their_module(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from treadle.config import load_config\n"
        "load_config(Path(sys.argv[1]), environ={}); print('treadle.config.mcp_settings' in sys.modules)"
    )
    for text, loaded in (("", "False"), ('[mcp_servers.x]\ncommand = "y"\n', "True")):
        (tmp_path / "config.toml").write_text(text)
        done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == loaded


# --- what is wrong ---------------------------------------------------------------------------------------------------


def test_a_bad_table_disables_its_server_alone_and_names_its_place(tmp_path: Path) -> None:
    text = """model = "m"
[mcp_servers.good]
command = "x"
[mcp_servers.bad]
command = "y"
  args = "no list"
"""
    loaded = load(tmp_path, text)
    path = tmp_path / "config.toml"
    assert loaded.config.mcp_servers["good"].enabled
    bad = loaded.config.mcp_servers["bad"]
    assert not bad.enabled
    assert bad.problem == f"{path}:6:3: mcp_servers.bad.args: found a text, allowed is a list of texts"
    [warning] = loaded.warnings
    assert (warning.path, warning.line, warning.column) == (str(path), 6, 3)
    assert "the MCP server `bad` cannot be used" in warning.message


@pytest.mark.parametrize(
    ("table", "key", "problem"),
    [
        ({}, "x", "neither a command nor a url"),
        ({"args": ["y"]}, "x", "neither a command nor a url"),
        ({"command": "y", "url": "http://h/"}, "url", "a command or a url"),
        ({"command": "y", "http_headers": {}}, "http_headers", "a server with a command cannot have it"),
        ({"url": "http://h/", "args": []}, "args", "a server with a url cannot have it"),
        ({"url": "http://h/", "bearer_token": SECRET}, "bearer_token", "put it into a variable"),
        ({"url": f"ftp://{SECRET}/"}, "url", "no http or https URL"),
        ({"url": "http://h/", "http_headers": {"a b": SECRET}}, "http_headers", "'a b' is no header"),
        ({"url": "http://h/", "http_headers": {"a": f"{SECRET}\n"}}, "http_headers", "'a' is no header"),
        ({"command": "y", "env": {"A=B": SECRET}}, "env", "'A=B' is no name of a variable"),
        ({"command": "y", "env_vars": ["A=B"]}, "env_vars", "'A=B' is no name of a variable"),
        ({"command": "y", "env": {"A": f"{SECRET}\0"}}, "x", "NUL"),
        ({"command": ""}, "command", "not empty"),
        ({"command": 1}, "command", "found a whole number"),
        ({"command": "y", "startup_timeout_sec": 0}, "startup_timeout_sec", "above 0"),
        ({"command": "y", "tools": []}, "tools", "a table of tools"),
        ({"command": "y", "tools": {"a": 1}}, "tools.a", "allowed is a table"),
        ({"command": "y", "tools": {"a": {"approval_mode": "x"}}}, "tools.a.approval_mode", "`writes`"),
        ({"command": "y", "default_tools_approval_mode": "x"}, "default_tools_approval_mode", "`writes`"),
        ({"command": "y", "environment_id": ""}, "environment_id", "not empty"),
        ({"url": "http://h/", "environment_id": "box"}, "environment_id", "called from this machine"),
        ({"url": "http://h/", "oauth": 1}, "oauth", "allowed is a table"),
        ({"url": "http://h/", "oauth": {"callback_port": 0}}, "oauth.callback_port", "from 1 to 65535"),
        ({"url": "http://h/", "auth": "basic"}, "auth", "`chatgpt`"),
        ({"url": "http://h/", "auth": "chatgpt"}, "auth", "no login with ChatGPT"),
        ([], "x", "found a list"),
    ],
)
def test_what_is_refused_is_said_without_its_value(table: object, key: str, problem: str) -> None:
    servers, warnings = read({"x": table, "good": {"command": "g"}})
    assert servers["good"].enabled
    server = servers["x"]
    assert not server.enabled
    assert server.problem is not None
    key = "mcp_servers.x" if key == "x" else f"mcp_servers.x.{key}"
    assert f"config.toml: {key}: " in server.problem
    assert problem in server.problem
    assert len(warnings) == 1
    assert SECRET not in server.problem + warnings[0]


def test_what_is_not_a_table_of_tables_leaves_no_servers(tmp_path: Path) -> None:
    loaded = load(tmp_path, "mcp_servers = 1")
    assert loaded.config.mcp_servers == {}
    assert "allowed is a table of tables" in str(loaded.warnings[0])


def test_unknown_keys_only_warn() -> None:
    servers, warnings = read({"x": {"command": "y", "comand": 1, "name": "Y", "tools": {"a": {"mode": 1}}}})
    assert servers["x"].enabled
    assert len(warnings) == 2
    assert "did you mean `mcp_servers.x.command`?" in warnings[0]
    assert "there are approval_mode" in warnings[1]


def test_to_switch_off_a_server_that_is_not_there_does_no_harm() -> None:
    assert not only({"enabled": False}).enabled


def test_a_bad_table_of_the_thread_itself_is_an_error(tmp_path: Path) -> None:
    config = load(tmp_path, "[mcp_servers.broken]\nargs = 1\n").config
    missing = r"the configuration of the thread: mcp_servers\.bad: it has neither a command"
    with pytest.raises(ConfigError, match=missing):
        config.with_thread_overrides({"mcp_servers": {"bad": {"args": ["x"]}}})
    # What is wrong in the file does not concern the thread; and a stored thread is to go on.
    assert config.with_thread_overrides({"mcp_servers.good.command": "x"}).mcp_servers["good"].enabled
    stored = config.with_thread_overrides({"mcp_servers": {"bad": {"args": ["x"]}}}, stored=True)
    assert not stored.mcp_servers["bad"].enabled


def test_a_bad_table_of_the_command_line_is_an_error_for_who_gives_it(tmp_path: Path) -> None:
    loaded = load(tmp_path, "[mcp_servers.broken]\nargs = 1\n", ["mcp_servers.x.args=1"])
    assert [str(error) for error in loaded.unknown_keys("-c")] == [
        "-c: mcp_servers.x.args: found a whole number, allowed is a list of texts"
    ]


def test_a_client_cannot_write_a_bad_table_into_the_file(tmp_path: Path) -> None:
    load(tmp_path, "[mcp_servers.broken]\nargs = 1\n")
    good = ConfigEdit(key_path="mcp_servers.good", value={"command": "x"}, merge_strategy="upsert")
    write_values(tmp_path, [good])  # what was wrong before is no reason to refuse
    bad = ConfigEdit(key_path="mcp_servers.good.url", value="http://h/", merge_strategy="upsert")
    with pytest.raises(ConfigWriteError, match="a command or a url"):
        write_values(tmp_path, [bad])
    assert load_config(tmp_path, environ={}).config.mcp_servers["good"].enabled


# --- secrets ---------------------------------------------------------------------------------------------------------


def test_no_secret_is_in_the_repr_and_logs_know_them() -> None:
    stdio = only({"command": "x", "args": ["--key", SECRET], "env": {"PASSWORD": "env-secret-1", "PLAIN": "plain-env"}})
    http = only(
        {"url": f"http://user:{SECRET}@h/mcp?key={SECRET}", "http_headers": {"authorization": "Bearer header-secret"}}
    )
    for secret in (SECRET, "env-secret-1", "header-secret", "plain-env"):
        assert secret not in repr(stdio) + repr(http)
    assert {"env-secret-1", "Bearer header-secret", "header-secret"} <= set(known())
    assert "plain-env" not in known()


# --- anything --------------------------------------------------------------------------------------------------------

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner), max_leaves=5
)
TABLES = st.dictionaries(st.sampled_from([*McpServerTable.__struct_fields__, "odd"]), VALUES, max_size=5)


@given(st.dictionaries(st.text(max_size=5), TABLES | VALUES, max_size=3))
def test_any_table_gives_a_server_that_is_usable_or_says_why(tables: dict[str, Any]) -> None:
    servers, _ = read(tables)
    assert list(servers) == list(tables)
    for name, server in servers.items():
        assert server.name == name
        assert server.problem is None or not server.enabled
        if server.enabled:
            assert (server.command is None) != (server.url is None)
        msgspec.convert(msgspec.to_builtins(server), McpServerConfig)


# --- what is written -------------------------------------------------------------------------------------------------

WRITTEN = """# mine
[mcp_servers."a.b"] # a server
command = "x"
[mcp_servers.inline]
command = "y"
tools = { "t.1" = { approval_mode = "prompt" } }
[profiles.p.mcp_servers.in_profile]
url = "http://h/"
[profiles.q.mcp_servers.inline]
args = ["only this"]
"""


@pytest.mark.parametrize(
    ("server", "tool", "table"),
    [("a.b", "run it", ()), ("inline", "t.1", ()), ("inline", "t.2", ()), ("in_profile", "t", ("profiles", "p"))],
)
def test_an_approval_is_remembered_where_the_server_is_defined(
    tmp_path: Path, server: str, tool: str, table: tuple[str, ...]
) -> None:
    (tmp_path / "config.toml").write_text(WRITTEN)
    remember_tool_approval(tmp_path, server, tool)
    text = (tmp_path / "config.toml").read_text()
    values = tomllib.loads(text)
    for part in (*table, "mcp_servers", server, "tools", tool):
        values = values[part]
    assert values == {"approval_mode": "approve"}
    assert text.startswith('# mine\n[mcp_servers."a.b"] # a server\ncommand = "x"\n')
    assert tomllib.loads(text)["profiles"]["q"] == {"mcp_servers": {"inline": {"args": ["only this"]}}}
    overrides = ["profile=p"] if table else []
    config = load_config(tmp_path, overrides=overrides, environ={}).config
    assert config.mcp_servers[server].approval_of(tool) == "approve"


def test_an_approval_for_a_server_that_is_not_in_the_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(WRITTEN)
    with pytest.raises(ConfigWriteError, match="the MCP server `elsewhere` is not in the file"):
        remember_tool_approval(tmp_path, "elsewhere", "t")
    assert (tmp_path / "config.toml").read_text() == WRITTEN


def test_approvals_that_are_written_at_the_same_time_are_all_kept(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(WRITTEN)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: remember_tool_approval(tmp_path, "a.b", f"t{number}"), range(16)))
    config = load_config(tmp_path, environ={}).config
    assert config.mcp_servers["a.b"].tools == {
        f"t{number}": McpToolTable(approval_mode="approve") for number in range(16)
    }
