"""`treadle mcp …`, in this process: what codex was recorded to write, and what is refused or hidden."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from treadle.cli import main

SECRET = "s3cret-value"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "TREADLE_MODEL", "TREADLE_MODEL_PROVIDER", "CODEX_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TREADLE_HOME", str(tmp_path))
    return tmp_path


def written(home: Path) -> Any:
    return tomllib.loads((home / "config.toml").read_text()).get("mcp_servers", {})


# --- as codex 0.166 was recorded (with our name in place of its own, without spaces at the ends of lines) ------------

LISTED = """\
Name  Command  Args         Env      Cwd  Status   Auth
one   python3  -m x --flag  A=*****  -    enabled  Unsupported

Name  Url                     Bearer Token Env Var  Status   Auth
two   http://127.0.0.1:9/mcp  TOK                   enabled  Bearer token
"""
ONE = """\
one
  enabled: true
  transport: stdio
  command: python3
  args: -m x --flag
  cwd: -
  env: A=*****
  remove: treadle mcp remove one
"""
ONE_LISTED = {
    "name": "one",
    "enabled": True,
    "disabled_reason": None,
    "transport": {
        "type": "stdio",
        "command": "python3",
        "args": ["-m", "x", "--flag"],
        "env": {"A": "b"},
        "env_vars": [],
        "cwd": None,
    },
    "startup_timeout_sec": None,
    "tool_timeout_sec": None,
    "auth_status": "unsupported",
}
TWO = {
    "name": "two",
    "enabled": True,
    "disabled_reason": None,
    "transport": {
        "type": "streamable_http",
        "url": "http://127.0.0.1:9/mcp",
        "bearer_token_env_var": "TOK",
        "http_headers": None,
        "env_http_headers": None,
        "http_headers_helper": None,
    },
    "startup_timeout_sec": None,
    "tool_timeout_sec": None,
}


def test_the_recorded_session_gives_the_same(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def said(*words: str, code: int = 0) -> str:
        assert main(["mcp", *words]) == code
        return capsys.readouterr().out

    assert (
        said("add", "one", "--env", "A=b", "--", "python3", "-m", "x", "--flag") == "Added global MCP server 'one'.\n"
    )
    two = ("add", "two", "--url", "http://127.0.0.1:9/mcp", "--bearer-token-env-var", "TOK")
    assert said(*two) == "Added global MCP server 'two'.\n"
    assert said("list") == LISTED
    assert json.loads(said("list", "--json")) == [ONE_LISTED, {**TWO, "auth_status": "bearer_token"}]
    assert said("get", "one") == ONE
    assert json.loads(said("get", "two", "--json")) == {**TWO, "enabled_tools": None, "disabled_tools": None}
    assert main(["mcp", "get", "zzz"]) == 1
    assert "No MCP server named 'zzz' found." in capsys.readouterr().err
    assert said("remove", "one") == "Removed global MCP server 'one'.\n"
    assert said("remove", "one") == "No MCP server named 'one' found.\n"
    assert main(["mcp", "add", "bad name", "--", "x"]) == 1
    wrong = "invalid server name 'bad name' (use letters, numbers, '-', '_', ':', '@', '/', '.')"
    assert wrong in capsys.readouterr().err
    assert list(written(home)) == ["two"]


# --- what is written -------------------------------------------------------------------------------------------------


def test_all_options_of_add_are_written_and_the_rest_of_the_file_stays(home: Path) -> None:
    (home / "config.toml").write_text('# mine\nmodel = "m" # best\n[mcp_servers.a]\ncommand = "old"\nargs = ["x"]\n')
    assert main(["mcp", "add", "a", "--env", "A=b=c", "--env", "D=", "new"]) == 0
    http = ["--url", "http://h/", "--oauth-client-id", "me", "--oauth-resource", "https://r"]
    assert main(["mcp", "add", "srv:b@1/x.y", *http]) == 0
    assert written(home) == {
        "a": {"command": "new", "env": {"A": "b=c", "D": ""}},
        "srv:b@1/x.y": {"url": "http://h/", "oauth": {"client_id": "me"}, "oauth_resource": "https://r"},
    }
    assert (home / "config.toml").read_text().startswith('# mine\nmodel = "m" # best\n')


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["a"], 2, "a program or has a --url"),
        (["a", "--url", "http://h/", "--", "x"], 2, "a program or has a --url"),
        (["a", "--url", "http://h/", "--env", "A=b"], 2, "--env is for a program"),
        (["a", "--env", SECRET, "--", "x"], 2, "it is no KEY=VALUE"),
        (["a", "--bearer-token-env-var", "T", "--", "x"], 2, "--bearer-token-env-var needs a --url"),
        (["a", "--oauth-client-id", "T", "--", "x"], 2, "--oauth-client-id needs a --url"),
        (["a", "--url", f"ftp://{SECRET}"], 2, "no http or https URL"),
        (["a", "--env", f"A B=={SECRET}\0", "--", "x"], 2, "NUL"),
    ],
)
def test_what_cannot_be_a_server_is_not_written(
    home: Path, capsys: pytest.CaptureFixture[str], words: list[str], code: int, said: str
) -> None:
    assert main(["mcp", "add", *words]) == code
    error = capsys.readouterr().err
    assert said in error
    assert SECRET not in error
    assert not (home / "config.toml").exists()


# --- what is shown ---------------------------------------------------------------------------------------------------

FILE = f"""
[mcp_servers.full]
url = "http://user:{SECRET}@h/mcp?key={SECRET}"
enabled = false
startup_timeout_ms = 1500
tool_timeout_sec = 2.5
enabled_tools = ["a", "b"]
disabled_tools = ["b"]
http_headers = {{ x-plain = "{SECRET}" }}
env_http_headers = {{ x-a = "B" }}
[mcp_servers.plain]
command = "x"
args = ["--token=sk-{SECRET}-abcdefgh"]
env = {{ PLAIN = "{SECRET}" }}
env_vars = ["C", {{ name = "D" }}]
[mcp_servers.bad]
args = 1
"""


def test_get_shows_what_is_set(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "config.toml").write_text(FILE)
    assert main(["mcp", "get", "full"]) == 0
    assert capsys.readouterr().out == (
        "full (disabled)\n  enabled: false\n  enabled_tools: a, b\n  disabled_tools: b\n"
        "  transport: streamable_http\n  url: http://h/mcp\n  bearer_token_env_var: -\n"
        "  http_headers: x-plain=*****\n  env_http_headers: x-a=B\n"
        "  startup_timeout_sec: 1.5\n  tool_timeout_sec: 2.5\n  remove: treadle mcp remove full\n"
    )
    assert main(["mcp", "get", "plain"]) == 0
    assert "  env: PLAIN=*****, C=*****, D=*****\n" in capsys.readouterr().out


def test_a_server_that_cannot_be_used_is_listed_with_the_reason(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "config.toml").write_text(FILE)
    reason = f"{home}/config.toml:17:1: mcp_servers.bad.args: found a whole number, allowed is a list of texts"
    assert main(["mcp", "list"]) == 0
    assert f"bad  cannot be used: {reason}\n" in capsys.readouterr().out
    assert main(["mcp", "list", "--json"]) == 0
    [bad] = [one for one in json.loads(capsys.readouterr().out) if one["name"] == "bad"]
    assert (bad["enabled"], bad["disabled_reason"]) == (False, reason)
    assert main(["mcp", "get", "bad"]) == 0
    assert capsys.readouterr().out.startswith(f"bad (disabled: {reason})\n")


@pytest.mark.parametrize("words", [["list"], ["get", "full"], ["get", "plain"]])
def test_the_text_has_no_secret(home: Path, capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    (home / "config.toml").write_text(FILE)
    assert main(["mcp", *words]) == 0
    assert SECRET not in capsys.readouterr().out


@pytest.mark.parametrize("words", [["show"], ["show", "--json"], ["show", "-c", "profile=p"]])
def test_config_show_hides_them_too(home: Path, capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    (home / "config.toml").write_text(f"{FILE}{FILE.replace('mcp_servers', 'profiles.p.mcp_servers')}")
    assert main(["config", *words]) == 0
    out = capsys.readouterr().out
    assert SECRET not in out
    assert "mcp_servers.full.tool_timeout_sec" in out


def test_settings_of_servers_that_are_no_secrets_are_shown(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "config.toml").write_text('[mcp_servers.x]\nurl = "http://h/"\nauth = "oauth"\noauth.client_id = "me"\n')
    assert main(["config", "get", "mcp_servers.x.oauth.client_id"]) == 0
    assert capsys.readouterr().out == "me\n"


def test_settings_of_one_run_go_before_the_file(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mcp", "list", "--json", "-c", "mcp_servers.run.command=r"]) == 0
    assert [one["name"] for one in json.loads(capsys.readouterr().out)] == ["run"]
    assert main(["mcp", "list"]) == 0
    assert capsys.readouterr().out.startswith("No MCP servers configured yet.")
