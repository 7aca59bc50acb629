"""Logins to MCP servers: by a client of the app-server, as recorded of the real one, and by `treadle mcp login`."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kit.oauth_server import OAuthServer, browse, oauth_server
from system.agent.scene import Scene
from system.mcp.mcp_scene import STATUS, call, items, mcp_scene, run_calls
from system.test_cli_run import Stage
from treadle.config import find_home
from treadle.errors import RpcError
from treadle.mcp import TokenFile

DEADLINE_S = 60
COMPLETED = "mcpServer/oauthLogin/completed"


@pytest.fixture
def server() -> Iterator[OAuthServer]:
    with oauth_server(resource_metadata="none") as running:
        yield running


def table(server: OAuthServer) -> str:
    return f'[mcp_servers.web]\nurl = "{server.url}"\nscopes = ["read"]\n'


async def log_in(stage: Scene, thread: str | None, **params: Any) -> dict[str, Any]:
    """The notification at its end."""
    begun = await stage.client.request("mcpServer/oauth/login", {"name": "web", "threadId": thread, **params})
    await asyncio.to_thread(browse, begun["authorizationUrl"])
    told = await stage.client.wait_for(COMPLETED, lambda params: params["loginId"] == begun["loginId"])
    ended: dict[str, Any] = told["params"]
    return ended


async def status_of(stage: Scene, thread: str | None = None) -> dict[str, Any]:
    answer = await stage.client.request("mcpServerStatus/list", {"threadId": thread})
    (status,) = answer["data"]
    assert isinstance(status, dict)
    return status


def started(stage: Scene) -> list[tuple[str, str | None]]:
    return [(each["params"]["status"], each["params"]["error"]) for each in stage.client.told(STATUS)]


@pytest.mark.anyio
async def test_a_login_of_a_client_as_the_real_program_does_it(tmp_path: Path, server: OAuthServer) -> None:
    async with mcp_scene(tmp_path, table(server)) as stage:
        thread = await stage.start()
        status = await status_of(stage, thread)
        assert (status["runtimeStatus"], status["authStatus"]) == ("authenticationRequired", "notLoggedIn")
        problem = "The web MCP server is not logged in. Run `treadle mcp login web`."
        assert started(stage) == [("starting", None), ("failed", problem)]

        ended = await log_in(stage, thread, timeoutSecs=20)
        assert ended == {"name": "web", "threadId": thread, "loginId": ended["loginId"], "success": True}
        await stage.client.wait_for(STATUS, lambda params: params["status"] == "ready")
        assert started(stage)[2:] == [("starting", None), ("ready", None)]

        for call_id in ("c1", "c2"):
            outputs = await run_calls(stage, thread, call("hello", call_id=call_id, server="web"))
            assert outputs[call_id].endswith("hello via http")
            assert await stage.client.request("config/mcpServer/reload", {}) == {}
        status = await status_of(stage, thread)
        assert (status["runtimeStatus"], status["authStatus"]) == ("connected", "oAuth")
        with pytest.raises(RpcError) as refused:
            await log_in(stage, None, name="nosuch")
        assert (refused.value.code, refused.value.message) == (-32600, "No MCP server named 'nosuch' found.")


@pytest.mark.anyio
async def test_a_token_is_renewed_in_the_middle_of_a_thread(tmp_path: Path, server: OAuthServer) -> None:
    async with mcp_scene(tmp_path, table(server)) as stage:
        await log_in(stage, None)
        thread = await stage.start()
        await run_calls(stage, thread, call("hello", server="web"))
        server.revoke()
        await run_calls(stage, thread, call("hello", server="web"))
        assert [item["status"] for item in items(stage)] == ["completed", "completed"]
        assert [form["grant_type"] for form in server.forms()] == ["authorization_code", "refresh_token"]


@pytest.mark.anyio
async def test_a_tool_that_wants_another_scope_says_what_to_type_and_costs_nothing_else(tmp_path: Path) -> None:
    with oauth_server(resource_metadata="none", call_scope="write") as server:
        async with mcp_scene(tmp_path, table(server)) as stage:
            await log_in(stage, None)
            thread = await stage.start()
            outputs = await run_calls(stage, thread, call("hello", call_id="c1", server="web"))
            problem = (
                "The web MCP server wants the scope `write` beyond those of its login. Run `treadle mcp login web`."
            )
            assert problem in outputs["c1"]
            assert problem in items(stage)[0]["error"]["message"]
            assert (await status_of(stage, thread))["runtimeStatus"] == "connected"
            assert [form["grant_type"] for form in server.forms()] == ["authorization_code"], "renewing is of no use"

            await log_in(stage, None)  # which asks for all that it takes
            assert server.scopes[server.last_access] == "read write"
            outputs = await run_calls(stage, thread, call("hello", call_id="c2", server="web"))
            assert outputs["c2"].endswith("hello via http")
            assert [status for status, _ in started(stage)] == ["starting", "ready"]

            server.revoke()  # what is renewed has the same scopes
            outputs = await run_calls(stage, thread, call("hello", call_id="c3", server="web"))
            assert outputs["c3"].endswith("hello via http")


@pytest.mark.anyio
async def test_a_login_that_fails_is_notified_and_starts_nothing(tmp_path: Path) -> None:
    with oauth_server(error="access_denied") as server:
        async with mcp_scene(tmp_path, table(server)) as stage:
            ended = await log_in(stage, None)
            assert ended["success"] is False
            assert "access_denied" in ended["error"]
            assert started(stage) == []


@pytest.mark.anyio
async def test_logins_that_nobody_finishes_are_bounded_and_end_with_the_server(
    tmp_path: Path, server: OAuthServer
) -> None:
    async with mcp_scene(tmp_path, table(server)) as stage:
        for _ in range(8):
            await stage.client.request("mcpServer/oauth/login", {"name": "web"})
        with pytest.raises(RpcError, match="8 logins wait for a browser already"):
            await stage.client.request("mcpServer/oauth/login", {"name": "web"})


@pytest.mark.anyio
async def test_a_login_to_a_program_and_to_nobody_are_refused(tmp_path: Path) -> None:
    with oauth_server(metadata="none") as server:
        program = '[mcp_servers.program]\ncommand = "true"\n'
        async with mcp_scene(tmp_path, table(server), program) as stage:
            with pytest.raises(RpcError, match="only supported for streamable HTTP servers"):
                await stage.client.request("mcpServer/oauth/login", {"name": "program"})
            with pytest.raises(RpcError, match="offers no login"):
                await stage.client.request("mcpServer/oauth/login", {"name": "web"})


# --- the command ------------------------------------------------------------------------------------------------------


def test_logging_in_and_out_by_command(tmp_path: Path, server: OAuthServer) -> None:
    stage = Stage(tmp_path)
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        stage.env.pop(name, None)
    stage.home.mkdir(mode=0o700)
    (stage.home / "config.toml").write_text(table(server))
    login = stage.start("mcp", "login", "web")
    try:
        assert login.stdout is not None
        assert login.stdout.readline() == "Authorize `web` by opening this URL in your browser:\n"
        status, page = browse(login.stdout.readline().strip())
        assert (status, "logged in" in page) == (200, True)
        printed, problems = login.communicate(timeout=DEADLINE_S)
    finally:
        login.kill()
        login.wait(DEADLINE_S)
    assert (login.returncode, problems) == (0, "")
    assert printed.strip() == "Successfully logged in to MCP server 'web'."

    listed = json.loads(stage.run("mcp", "list", "--json").stdout)
    assert [one["auth_status"] for one in listed] == ["o_auth"]
    assert stage.run("mcp", "list").stdout.rstrip().endswith("OAuth")
    examined = json.loads(stage.run("doctor", "--no-engines", "--json").stdout)["subjects"]["MCP servers"]
    assert [check["what"] for check in examined] == ["web: 1 tool, locked 1"]
    for expected in ("Removed OAuth credentials for 'web'.\n", "No OAuth credentials stored for 'web'.\n"):
        done = stage.run("mcp", "logout", "web")
        assert (done.returncode, done.stdout) == (0, expected)


def test_a_login_that_does_not_work_says_why(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.home.mkdir(mode=0o700)
    with oauth_server(registration=False) as server:
        (stage.home / "config.toml").write_text(table(server) + '[mcp_servers.program]\ncommand = "true"\n')
        done = stage.run("mcp", "login", "web")
        assert done.returncode == 1
        assert "oauth.client_id" in done.stderr
        done = stage.run("mcp", "login", "program")
        assert done.returncode == 1
        assert "OAuth login is only supported for streamable HTTP servers." in done.stderr
        assert "No MCP server named 'nosuch' found." in stage.run("mcp", "logout", "nosuch").stderr


RENEW = """
import asyncio, sys
from pathlib import Path
from treadle.mcp.mcp_http import McpHttp
from treadle.mcp.oauth_tokens import ServerTokens, TokenFile

async def main():
    http = McpHttp()
    sys.stdin.readline()
    print(await ServerTokens(TokenFile(Path(sys.argv[1]), "web", sys.argv[2]), http).token(refused=sys.argv[3]))
    await http.close()

asyncio.run(main())
"""


@pytest.mark.anyio
async def test_one_process_renews_for_all(tmp_path: Path, server: OAuthServer) -> None:
    async with mcp_scene(tmp_path, table(server)) as stage:
        await log_in(stage, None)
        home = find_home({"TREADLE_HOME": stage.server.home})
    tokens = TokenFile(home, "web", server.url).read()
    assert tokens is not None
    server.revoke()
    words = [sys.executable, "-c", RENEW, str(home), server.url, tokens.access_token]
    processes = [subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    try:
        for process in processes:  # all at once
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        printed = {process.communicate(timeout=DEADLINE_S)[0].strip() for process in processes}
    finally:
        for process in processes:
            process.kill()
            process.wait(DEADLINE_S)
    assert printed == server.access
    assert server.stolen == []
    assert len(server.forms()) == 2
