"""MCP servers over streamable HTTP: sessions, streams that are cut, tokens, and what is no such server."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from mcp_stage import http_probe, mcp_stage, text_of
from treadle.mcp import ElicitParams, ElicitResult, McpCallError, McpError, McpHttp, McpProgress, ServerTokens
from treadle.secrets import known

pytestmark = pytest.mark.anyio
DEADLINE_S = 60.0


async def test_a_session_has_its_id_its_version_and_the_headers_of_the_settings(tmp_path: Path) -> None:
    async with mcp_stage(tmp_path) as stage, http_probe(stage, "--token", "s3cret-token") as probe:
        server = probe.server(
            bearer_token_env_var="TOK",
            http_headers={"X-One": "1"},
            env_http_headers={"X-Two": "TWO_VAR", "X-Three": "NOT_SET"},
            environ={"TOK": "s3cret-token", "TWO_VAR": "two-is-secret"},
        )
        assert text_of(await server.call_tool("echo", {"text": "hi"})) == "hi"
        await server.close()
        posts = probe.requests("POST")
        assert [post["body"]["method"] for post in posts] == [
            "initialize",
            "notifications/initialized",
            "tools/list",
            "tools/call",
        ]
        first, *others = (post["headers"] for post in posts)
        assert first["accept"] == "text/event-stream, application/json"
        assert first["content-type"] == "application/json"
        assert first["user-agent"] == "treadle-tests/1.0"
        assert "mcp-session-id" not in first
        assert "mcp-protocol-version" not in first
        for headers in (first, *others):
            assert headers["authorization"] == "Bearer s3cret-token"
            assert (headers["x-one"], headers["x-two"]) == ("1", "two-is-secret")
            assert "x-three" not in headers
        for headers in others:
            assert headers["mcp-session-id"] == "session-1"
            assert headers["mcp-protocol-version"] == "2025-11-25"
        [deleted] = probe.requests("DELETE")
        assert deleted["headers"]["mcp-session-id"] == "session-1"
        assert {"s3cret-token", "two-is-secret"} <= set(known())


@pytest.mark.parametrize("arguments", [(), ("--json",), ("--fault", "no-get"), ("--fault", "no-ids")])
async def test_answers_come_as_streams_or_documents(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    async with mcp_stage(tmp_path) as stage, http_probe(stage, *arguments) as probe:
        server = probe.server()
        await server.ready()
        assert {tool.name for tool in server.tools} > {"echo", "image"}
        answers = await asyncio.gather(*(server.call_tool("echo", {"text": str(number)}) for number in range(20)))
        assert [text_of(answer) for answer in answers] == [str(number) for number in range(20)]
        with pytest.raises(McpCallError, match="bad arguments here"):
            await server.call_tool("rpcerror", {})


async def test_what_the_server_asks_comes_with_the_stream_of_the_call(tmp_path: Path) -> None:
    async with mcp_stage(tmp_path) as stage, http_probe(stage) as probe:
        server = probe.server()
        assert '"name": "Ada"' in text_of(await server.call_tool("ask", {}))
        steps: list[McpProgress] = []
        await server.call_tool("progress", {"text": "3"}, on_progress=steps.append)
        assert [step.message for step in steps] == ["step 1", "step 2", "step 3"]


async def test_what_the_server_says_by_itself_comes_with_the_get(tmp_path: Path) -> None:
    async with mcp_stage(tmp_path) as stage, http_probe(stage, "--json") as probe:
        server = probe.server()
        await server.call_tool("more", {"text": "later"})
        async with asyncio.timeout(DEADLINE_S):
            while not server.tools_changed:
                await asyncio.sleep(0.01)
        await server.refresh_tools()
        assert "later" in {tool.name for tool in server.tools}


async def test_a_stream_that_is_cut_is_taken_up_where_it_ended(tmp_path: Path) -> None:
    async with mcp_stage(tmp_path) as stage, http_probe(stage) as probe:
        server = probe.server()
        assert text_of(await server.call_tool("drop", {"text": "3"})) == "resumed"
        resumed = [
            get["headers"]["last-event-id"] for get in probe.requests("GET") if "last-event-id" in get["headers"]
        ]
        assert len(resumed) == 3
        assert len(set(resumed)) == 3
        calls = [post for post in probe.requests("POST") if post["body"]["method"] == "tools/call"]
        assert len(calls) == 1


async def test_a_stream_without_ids_cannot_be_taken_up_and_the_call_is_not_repeated(tmp_path: Path) -> None:
    async with mcp_stage(tmp_path) as stage, http_probe(stage, "--fault", "no-ids") as probe:
        server = probe.server()
        with pytest.raises(McpCallError, match="the connection was lost before the answer came") as failed:
            await server.call_tool("drop", {})
        assert failed.value.kind == "closed"
        calls = [post for post in probe.requests("POST") if post["body"]["method"] == "tools/call"]
        assert len(calls) == 1
        assert text_of(await server.call_tool("echo", {"text": "on"})) == "on"


async def test_a_forgotten_session_is_begun_anew_and_the_call_repeated(tmp_path: Path) -> None:
    async with mcp_stage(tmp_path) as stage, http_probe(stage) as probe:
        server = probe.server()
        await server.call_tool("forget", {})
        assert text_of(await server.call_tool("echo", {"text": "again"})) == "again"
        assert [status.status for status in stage.statuses] == ["starting", "ready", "starting", "ready"]
        begun = [post for post in probe.requests("POST") if post["body"]["method"] == "initialize"]
        assert len(begun) == 2
        assert probe.requests("POST")[-1]["headers"]["mcp-session-id"] == "session-2"


async def test_calls_at_the_same_time_are_repeated_in_one_new_session(tmp_path: Path) -> None:
    async with mcp_stage(tmp_path) as stage, http_probe(stage) as probe:
        server = probe.server()
        running = asyncio.ensure_future(server.call_tool("sleep", {"text": "0.5"}))
        while not any(post["body"]["method"] == "tools/call" for post in probe.requests("POST")):
            await asyncio.sleep(0.01)
        await server.call_tool("forget", {})
        answers = await asyncio.gather(*(server.call_tool("echo", {"text": str(number)}) for number in range(10)))
        assert [text_of(answer) for answer in answers] == [str(number) for number in range(10)]
        begun = [post for post in probe.requests("POST") if post["body"]["method"] == "initialize"]
        assert len(begun) == 2
        # What was under way in the old session still has its answer.
        assert text_of(await running) == "slept"


async def test_servers_of_one_owner_share_their_connections(tmp_path: Path) -> None:
    async with mcp_stage(tmp_path) as stage, http_probe(stage, "--json", "--fault", "no-get") as probe:
        http = McpHttp()
        servers = [probe.server(http=http) for _ in range(3)]
        for server in servers:
            for number in range(5):
                assert text_of(await server.call_tool("echo", {"text": str(number)})) == str(number)
            await server.close()
        # One more for the GET, which is tried meanwhile.
        assert len({each["peer"] for each in probe.requests()}) <= 2
        await http.close()


async def test_a_stream_that_does_not_end_with_its_answer_is_closed(tmp_path: Path) -> None:
    async with mcp_stage(tmp_path) as stage, http_probe(stage, "--fault", "open") as probe:
        http = McpHttp()
        server = probe.server(http=http)
        for number in range(5):
            assert text_of(await server.call_tool("echo", {"text": str(number)})) == str(number)
        [pool] = http._pools.values()
        async with asyncio.timeout(DEADLINE_S):
            while pool.stats().busy > 1:  # that of the GET
                await asyncio.sleep(0.01)
        await server.close()
        await http.close()


async def test_a_server_that_was_restarted_is_found_again(tmp_path: Path) -> None:
    async with mcp_stage(tmp_path) as stage, http_probe(stage) as probe:
        server = probe.server()
        await server.ready()
        await probe.kill()
        with pytest.raises(McpCallError, match="nothing listens there"):
            await server.call_tool("echo", {"text": "x"})
        await probe.start()
        assert text_of(await server.call_tool("echo", {"text": "back"})) == "back"


async def test_a_call_that_its_server_did_not_survive_is_not_repeated(tmp_path: Path) -> None:
    async with mcp_stage(tmp_path) as stage, http_probe(stage, "--json") as probe:
        server = probe.server()
        await server.call_tool("echo", {"text": "the connection is kept"})
        with pytest.raises(McpCallError, match="closed the connection before it answered"):
            await server.call_tool("die", {})
        calls = [post for post in probe.requests("POST") if post["body"]["params"].get("name") == "die"]
        assert len(calls) == 1


async def test_a_refused_token_is_told_with_what_to_do(tmp_path: Path) -> None:
    async with mcp_stage(tmp_path) as stage, http_probe(stage, "--token", "right-token") as probe:
        server = probe.server()
        with pytest.raises(McpError) as failed:
            await server.ready()
        assert str(failed.value) == "The web MCP server is not logged in. Run `treadle mcp login web`."
        assert (failed.value.kind, server.state) == ("authentication", "authenticationRequired")

        server = probe.server(bearer_token_env_var="TOK", environ={"TOK": "wrong-token-x"})
        with pytest.raises(McpError, match="refuses the token in the environment variable TOK") as failed:
            await server.ready()
        assert "wrong-token-x" not in str(failed.value)

        server = probe.server(bearer_token_env_var="TOK", environ={})
        with pytest.raises(McpError, match="Environment variable TOK for MCP server `web` is not set"):
            await server.ready()


class _Tokens(ServerTokens):
    def __init__(self, *tokens: str) -> None:
        self._tokens = list(tokens)
        self.refused: list[str | None] = []

    async def token(self, *, refused: str | None = None) -> str | None:
        if refused is not None:
            self.refused.append(refused)
            self._tokens.pop(0)
        return self._tokens[0] if self._tokens else None


async def test_a_token_that_has_expired_is_renewed_once(tmp_path: Path) -> None:
    async with mcp_stage(tmp_path) as stage, http_probe(stage, "--token", "new-token-1") as probe:
        tokens = _Tokens("old-token-1", "new-token-1")
        server = probe.server(tokens=tokens)
        assert text_of(await server.call_tool("echo", {"text": "in"})) == "in"
        assert tokens.refused == ["old-token-1"]

        tokens = _Tokens("old-token-1", "old-token-2", "new-token-1")
        server = probe.server(tokens=tokens)
        with pytest.raises(McpError, match="is not logged in"):
            await server.ready()
        assert tokens.refused == ["old-token-1"]


async def test_a_helper_prints_the_headers(tmp_path: Path) -> None:
    async with mcp_stage(tmp_path) as stage, http_probe(stage, "--token", "helped-token") as probe:
        helper = """printf '{"Authorization": "Bearer %s", "X-Here": "%s"}' helped-token "$PWD" """
        server = probe.server(http_headers_helper=helper)
        await server.ready()
        assert probe.requests("POST")[-1]["headers"]["x-here"] == str(tmp_path)
        assert "Bearer helped-token" in known()

        for wrong, problem in (("echo secret-thing", "something other than a JSON object"), ("exit 3", "exit code 3")):
            server = probe.server(http_headers_helper=wrong)
            with pytest.raises(McpError, match=problem) as failed:
                await server.ready()
            assert "secret-thing" not in str(failed.value)


@pytest.mark.parametrize(
    ("arguments", "path", "problem"),
    [
        (("--fault", "old"), "/mcp", "speaks the old HTTP\\+SSE transport, which is not supported"),
        ((), "/nothing", "handshaking with MCP server failed: HTTP 404 from http://127.0.0.1:[0-9]+/nothing"),
        (("--fault", "not-mcp"), "/mcp", "HTTP 200 with text/html in place of an answer"),
        (("--fault", "error-500"), "/mcp", "HTTP 500 from .*: the backend is down"),
        ((), "/away", "redirects to http://127.0.0.2:1/mcp; if you trust it, make that the url"),
        (("--version", "2019-01-01"), "/mcp", "it speaks version '2019-01-01' of MCP"),
    ],
)
async def test_what_is_no_such_server_is_named(
    tmp_path: Path, arguments: tuple[str, ...], path: str, problem: str
) -> None:
    async with mcp_stage(tmp_path) as stage, http_probe(stage, *arguments) as probe:
        server = probe.server(path=path)
        with pytest.raises(McpError, match=problem):
            await server.ready()
        assert server.state == "failed"


async def test_a_redirect_to_the_same_server_is_followed(tmp_path: Path) -> None:
    async with mcp_stage(tmp_path) as stage, http_probe(stage) as probe:
        server = probe.server(path="/moved")
        assert text_of(await server.call_tool("echo", {"text": "moved"})) == "moved"


async def test_a_call_whose_time_is_up_is_cancelled_there(tmp_path: Path) -> None:
    async with mcp_stage(tmp_path) as stage, http_probe(stage) as probe:
        server = probe.server(tool_timeout_sec=0.3)
        with pytest.raises(McpCallError, match=r"timed out awaiting tools/call after 0\.3s") as failed:
            await server.call_tool("sleep", {})
        assert failed.value.kind == "timeout"
        async with asyncio.timeout(DEADLINE_S):
            while (sent := probe.requests("POST"))[-1]["body"]["method"] != "notifications/cancelled":
                await asyncio.sleep(0.01)
        *_, called, cancelled = (post["body"] for post in sent)
        assert called["method"] == "tools/call"
        assert cancelled["params"]["requestId"] == called["id"]


async def test_an_old_version_of_the_protocol_is_spoken(tmp_path: Path) -> None:
    async with mcp_stage(tmp_path) as stage, http_probe(stage, "--version", "2025-06-18") as probe:
        server = probe.server()
        await server.ready()
        assert probe.requests("POST")[-1]["headers"]["mcp-protocol-version"] == "2025-06-18"


async def test_while_the_user_is_asked_a_session_can_be_closed(tmp_path: Path) -> None:
    async with mcp_stage(tmp_path) as stage, http_probe(stage) as probe:
        asked = asyncio.Event()

        async def answer() -> ElicitResult:
            asked.set()
            await asyncio.Event().wait()
            raise AssertionError

        def asking(_: ElicitParams) -> object:
            return answer()

        stage.answer = asking
        server = probe.server()
        call = asyncio.ensure_future(server.call_tool("ask", {}))
        async with asyncio.timeout(DEADLINE_S):
            await asked.wait()
            await server.close()
            with pytest.raises(McpCallError, match="the connection was closed"):
                await call
