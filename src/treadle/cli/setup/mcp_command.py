"""`treadle mcp`: lists, shows, adds and removes the MCP servers of config.toml, and logs in to them, with the words of
Codex.

No server is started here. JSON has what is written, with null for what is not; in the text, values of variables and of
headers are not shown.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
import webbrowser
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import click

from treadle.cli.completion import completing
from treadle.cli.own_process import start_logging
from treadle.cli.problem import Problem
from treadle.cli.streams import FAILED, REFUSED, write, write_json
from treadle.cli.terminal import table_lines
from treadle.cli.user_commands import user_command, user_group
from treadle.config import Config, find_home, load_config, write_value
from treadle.config.home_files import read_document
from treadle.config.layers import lookup
from treadle.config.mcp_settings import SECTION, EnvVar, McpServerConfig
from treadle.llm.provider import shown_url
from treadle.mcp.mcp_messages import McpError
from treadle.mcp.oauth_login import OAuthLogin
from treadle.mcp.oauth_tokens import TokenFile
from treadle.pages.safe_text import printable_line
from treadle.secrets import shown_argument

_NAME: Final = re.compile(r"[A-Za-z0-9_:@/.-]+")
_HIDDEN: Final = "*****"
_STDIO: Final = ("Name", "Command", "Args", "Env", "Cwd", "Status", "Auth")
_HTTP: Final = ("Name", "Url", "Bearer Token Env Var", "Status", "Auth")
_NONE: Final = "No MCP servers configured yet. Try `treadle mcp add my-tool -- my-command`."
_AUTH: Final = {
    "unsupported": "Unsupported",
    "not_logged_in": "Not logged in",
    "bearer_token": "Bearer token",
    "o_auth": "OAuth",
}


@user_group(
    "mcp",
    more="MCP servers give the agent more tools. They are in [mcp_servers.NAME] of config.toml.",
    examples=(
        "treadle mcp add time -- uvx mcp-server-time",
        "treadle mcp add docs --url https://docs.example/mcp",
        "treadle mcp list",
    ),
)
def command() -> int:
    return 0


def _names() -> list[str]:
    return list(load_config(find_home(os.environ)).config.mcp_servers)


def _server(config: Config, name: str) -> McpServerConfig:
    if name not in config.mcp_servers:
        known = ", ".join(config.mcp_servers)
        why = f"there are {known}" if known else "none is configured"
        raise Problem(f"No MCP server named '{name}' found.", why=why, do="treadle mcp list", code=FAILED)
    return config.mcp_servers[name]


# --- add and remove --------------------------------------------------------------------------------------------------


@user_command(
    "add",
    summary="add a server to config.toml, or replace the one of that name",
    more="A server is a program, which is written after --, or has a --url (streamable HTTP).",
    config=False,
    exit_codes={0: "added", 1: "it cannot be added", 2: "wrong usage"},
    examples=(
        "treadle mcp add time -- uvx mcp-server-time",
        "treadle mcp add notes --env NOTES=/srv/notes -- notes-server --stdio",
        "treadle mcp add docs --url https://docs.example/mcp --bearer-token-env-var DOCS_TOKEN",
    ),
)
@click.argument("name")
@click.argument("program", nargs=-1, metavar="[-- COMMAND...]", type=click.UNPROCESSED)
@click.option("--env", multiple=True, metavar="KEY=VALUE", help="a variable for the program; may be given again")
@click.option("--url", metavar="URL", help="where the server is, if it is no program")
@click.option("--bearer-token-env-var", metavar="VARIABLE", help="with --url: the variable that holds its token")
@click.option("--oauth-client-id", metavar="ID", help="with --url: the id that the server has given to this client")
@click.option("--oauth-resource", metavar="RESOURCE", help="with --url: the resource that a login names")
def add(
    name: str,
    program: tuple[str, ...],
    env: tuple[str, ...],
    url: str | None,
    bearer_token_env_var: str | None,
    oauth_client_id: str | None,
    oauth_resource: str | None,
) -> int:
    usage = "treadle mcp add NAME (--url URL | -- COMMAND...)"
    if not _NAME.fullmatch(name):
        what = f"invalid server name '{name}' (use letters, numbers, '-', '_', ':', '@', '/', '.')"
        raise Problem(what, do=usage, code=FAILED)
    if (url is None) == (not program):
        raise Problem("a server is a program or has a --url, and one of them has to be given", do=usage, code=REFUSED)
    of_http = {
        "--bearer-token-env-var": ("bearer_token_env_var", bearer_token_env_var),
        "--oauth-client-id": ("oauth", oauth_client_id and {"client_id": oauth_client_id}),
        "--oauth-resource": ("oauth_resource", oauth_resource),
    }
    given = {option: pair for option, pair in of_http.items() if pair[1] is not None}
    if url is None and given:
        raise Problem(f"{next(iter(given))} needs a --url", do=usage, code=REFUSED)
    if url is not None and env:
        raise Problem("--env is for a program, not for a --url", do=usage, code=REFUSED)
    table: dict[str, Any]
    if url is not None:
        table = {"url": url, **dict(given.values())}
    else:
        table = {"command": program[0]}
        if program[1:]:
            table["args"] = list(program[1:])
        if env:
            if not all(all(word.partition("=")[:2]) for word in env):  # what it is, may be secret
                what, why = "--env cannot be used as it is given", "it is no KEY=VALUE"
                raise Problem(what, why=why, do="--env KEY=VALUE", code=REFUSED)
            table["env"] = dict(word.split("=", 1) for word in env)
    write_value(find_home(os.environ), (SECTION, name), table)
    write(sys.stdout, f"Added global MCP server '{name}'.\n")
    return 0


@user_command(
    "remove",
    summary="remove a server from config.toml",
    config=False,
    exit_codes={0: "it is not there any more", 1: "it cannot be removed", 2: "wrong usage"},
    examples=("treadle mcp remove time",),
)
@click.argument("name", shell_complete=completing(_names))
def remove(name: str) -> int:
    home = find_home(os.environ)
    if lookup(read_document(home).values, (SECTION, name)) is None:
        write(sys.stdout, printable_line(f"No MCP server named '{name}' found.") + "\n")
        return 0
    write_value(home, (SECTION, name), None)
    write(sys.stdout, printable_line(f"Removed global MCP server '{name}'.") + "\n")
    return 0


# --- list and get ----------------------------------------------------------------------------------------------------


@user_command(
    "list",
    summary="list the servers",
    exit_codes={0: "listed", 2: "wrong usage, or the settings cannot be used"},
    examples=("treadle mcp list", "treadle mcp list --json | jq -r '.[].name'"),
)
@click.option("--json", "as_json", is_flag=True, help="as a JSON list, with the values of variables")
def list_(as_json: bool, config_overrides: tuple[str, ...]) -> int:
    config = load_config(find_home(os.environ), overrides=config_overrides).config
    servers = [config.mcp_servers[name] for name in sorted(config.mcp_servers)]
    if as_json:
        write_json(
            [{**_as_json(config, one), **_timeouts(config, one), "auth_status": auth_status(one)} for one in servers]
        )
        return 0
    stdio = [
        (one.name, one.command or "-", _arguments(one), _variables(one), one.cwd or "-", _status(one), _auth(one))
        for one in servers
        if not one.is_http and one.problem is None
    ]
    http = [
        (one.name, shown_url(one.url or ""), one.bearer_token_env_var or "-", _status(one), _auth(one))
        for one in servers
        if one.is_http
    ]
    blocks = [table_lines((head, *rows)) for head, rows in ((_STDIO, stdio), (_HTTP, http)) if rows]
    if unusable := [one for one in servers if one.problem is not None]:
        blocks.append([printable_line(f"{one.name}  cannot be used: {one.problem}") for one in unusable])
    write(sys.stdout, "\n\n".join(map("\n".join, blocks)) + "\n" if blocks else f"{_NONE}\n")
    return 0


@user_command(
    "get",
    summary="show one server",
    exit_codes={0: "shown", 1: "there is no such server", 2: "wrong usage, or the settings cannot be used"},
    examples=("treadle mcp get time", "treadle mcp get time --json | jq .transport"),
)
@click.argument("name", shell_complete=completing(_names))
@click.option("--json", "as_json", is_flag=True, help="as one JSON object, with the values of variables")
def get(name: str, as_json: bool, config_overrides: tuple[str, ...]) -> int:
    config = load_config(find_home(os.environ), overrides=config_overrides).config
    server = _server(config, name)
    if as_json:
        table = _table(config, name)
        tools = {key: table.get(key) for key in ("enabled_tools", "disabled_tools")}
        write_json({**_as_json(config, server), **tools, **_timeouts(config, server)})
        return 0
    lines = [name] if server.enabled else [f"{name} ({_status(server)})"]
    lines += [f"  {key}: {value}" for key, value in _facts(config, server) if server.problem is None]
    lines.append(f"  remove: treadle mcp remove {name}")
    write(sys.stdout, "\n".join(map(printable_line, lines)) + "\n")
    return 0


def _facts(config: Config, server: McpServerConfig) -> Iterable[tuple[str, str]]:
    yield "enabled", "true" if server.enabled else "false"
    if server.enabled_tools is not None:
        yield "enabled_tools", _joined(server.enabled_tools)
    if server.disabled_tools:
        yield "disabled_tools", _joined(server.disabled_tools)
    if server.is_http:
        yield "transport", "streamable_http"
        yield "url", shown_url(server.url or "")
        yield "bearer_token_env_var", server.bearer_token_env_var or "-"
        yield "http_headers", _joined(f"{header}={_HIDDEN}" for header in server.http_headers)
        yield "env_http_headers", _joined(f"{header}={name}" for header, name in server.env_http_headers.items())
        if server.http_headers_helper is not None:
            yield "http_headers_helper", shown_argument(server.http_headers_helper)
    else:
        yield "transport", "stdio"
        yield "command", server.command or "-"
        yield "args", _arguments(server)
        yield "cwd", server.cwd or "-"
        yield "env", _variables(server)
    for key, value in _timeouts(config, server).items():
        if value is not None:
            yield key, f"{value:g}"


def _table(config: Config, name: str) -> Mapping[str, Any]:
    """What is written of a server."""
    table = config.document[SECTION][name]
    return table if isinstance(table, Mapping) else {}


def _as_json(config: Config, server: McpServerConfig) -> dict[str, Any]:
    table = _table(config, server.name)
    transport: dict[str, Any]
    if "url" in table:
        keys = ("url", "bearer_token_env_var", "http_headers", "env_http_headers", "http_headers_helper")
        transport = {"type": "streamable_http", **{key: table.get(key) for key in keys}}
    else:
        stdio: dict[str, Any] = {"command": None, "args": [], "env": None, "env_vars": [], "cwd": None}
        transport = {"type": "stdio", **{key: table.get(key, default) for key, default in stdio.items()}}
    return {
        "name": server.name,
        "enabled": server.enabled,
        "disabled_reason": server.problem,
        "transport": transport,
    }


def _timeouts(config: Config, server: McpServerConfig) -> dict[str, float | None]:
    """In seconds, null where nothing is written."""
    table = _table(config, server.name)
    is_set = "startup_timeout_sec" in table or "startup_timeout_ms" in table
    return {
        "startup_timeout_sec": server.startup_timeout_s if is_set and server.problem is None else None,
        "tool_timeout_sec": server.tool_timeout_s if "tool_timeout_sec" in table and server.problem is None else None,
    }


def auth_status(server: McpServerConfig) -> str:
    """How the server is logged in to, in the words of Codex; nothing is sent."""
    has_header = any(name.lower() == "authorization" for name in (*server.http_headers, *server.env_http_headers))
    if server.bearer_token_env_var is not None or has_header:
        return "bearer_token"
    if server.url is not None and TokenFile(find_home(os.environ), server.name, server.url).read() is not None:
        return "o_auth"
    return "not_logged_in" if server.auth == "oauth" else "unsupported"


def _joined(texts: Iterable[str]) -> str:
    return ", ".join(texts) or "-"


def _arguments(server: McpServerConfig) -> str:
    return " ".join(map(shown_argument, server.args)) or "-"


def _variables(server: McpServerConfig) -> str:
    passed_on = (one.name if isinstance(one, EnvVar) else one for one in server.env_vars)
    return _joined(f"{name}={_HIDDEN}" for name in (*server.env, *passed_on))


def _status(server: McpServerConfig) -> str:
    if server.problem is not None:
        return f"disabled: {server.problem}"
    return "enabled" if server.enabled else "disabled"


def _auth(server: McpServerConfig) -> str:
    return _AUTH[auth_status(server)]


# --- logins ----------------------------------------------------------------------------------------------------------


@user_command(
    "login",
    summary="log in to a server in the browser",
    more="It prints an address and waits until you have logged in there. The token is stored in the home, yours alone.",
    exit_codes={
        0: "logged in",
        1: "not logged in",
        2: "wrong usage, or the settings cannot be used",
        130: "interrupted",
    },
    examples=("treadle mcp login docs", "treadle mcp login docs --scopes read,write"),
)
@click.argument("name", shell_complete=completing(_names))
@click.option(
    "--scopes", metavar="SCOPE,SCOPE", help="what to ask for, in place of what the settings or the server say"
)
def login(name: str, scopes: str | None, config_overrides: tuple[str, ...]) -> int:
    start_logging("error")
    server, file = _login_of(name, config_overrides, "login")
    wanted = None if scopes is None else [scope for scope in scopes.replace(",", " ").split() if scope]
    try:
        asyncio.run(_log_in(server, file, wanted))
    except McpError as error:
        raise Problem(f"the login to '{name}' did not work", why=error.message, code=FAILED) from None
    write(sys.stdout, printable_line(f"Successfully logged in to MCP server '{name}'.") + "\n")
    return 0


async def _log_in(server: McpServerConfig, file: TokenFile, scopes: Sequence[str] | None) -> None:
    login = OAuthLogin(server, file, scopes=scopes)
    try:
        url = printable_line(await login.begin())
        write(sys.stdout, f"Authorize `{printable_line(server.name)}` by opening this URL in your browser:\n{url}\n\n")
        if os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):  # else it could be one in this terminal
            await asyncio.to_thread(webbrowser.open, url)
        await login.wait()
    finally:
        await login.close()


@user_command(
    "logout",
    summary="remove the token of a server",
    exit_codes={
        0: "there is none any more",
        1: "it cannot be removed",
        2: "wrong usage, or the settings cannot be used",
    },
    examples=("treadle mcp logout docs",),
)
@click.argument("name", shell_complete=completing(_names))
def logout(name: str, config_overrides: tuple[str, ...]) -> int:
    _, file = _login_of(name, config_overrides, "logout")
    try:
        removed = file.remove()
    except McpError as error:
        raise Problem(f"'{name}' cannot be logged out", why=error.message, code=FAILED) from None
    text = f"Removed OAuth credentials for '{name}'." if removed else f"No OAuth credentials stored for '{name}'."
    write(sys.stdout, printable_line(text) + "\n")
    return 0


def _login_of(name: str, overrides: tuple[str, ...], what: str) -> tuple[McpServerConfig, TokenFile]:
    home = find_home(os.environ)
    config = load_config(home, overrides=overrides).config
    server = _server(config, name)
    if server.url is None:
        why = server.problem or "it is a program"
        raise Problem(f"OAuth {what} is only supported for streamable HTTP servers.", why=why, code=FAILED)
    return server, TokenFile(home, name, server.url, config.mcp_oauth_credentials_store)


for _each in (list_, get, add, remove, login, logout):
    command.add_command(_each)
