"""Both servers as programs with a certificate, and our clients on them."""

from __future__ import annotations

import asyncio
import json
import ssl
from http.client import HTTPSConnection
from pathlib import Path

import pytest

from kit.app_program import listening_server, refused
from kit.certificates import Certificate, make_issuer, sign
from kit.exec_program import running
from kit.processes import DEADLINE_S
from treadle import AsyncCodex, Codex, CodexConfig, Environment, ExecError, TransportClosedError
from treadle.testing import AppServerHarness
from treadle.transport import Address, connect

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("certificates")


@pytest.fixture(scope="module")
def issuer(folder: Path) -> Certificate:
    return make_issuer(folder)


@pytest.fixture(scope="module")
def options(issuer: Certificate, folder: Path) -> list[str]:
    made = sign(issuer, folder)
    return ["--listen", "wss://127.0.0.1:0", "--tls-cert", str(made.certificate), "--tls-key", str(made.key)]


def asked(url: str, path: str, issuer: Certificate, token: str | None = None) -> tuple[int, str]:
    address = Address.parse(url)
    context = ssl.create_default_context(cafile=str(issuer.certificate))
    web = HTTPSConnection(address.host, address.port, context=context, timeout=DEADLINE_S)
    try:
        web.request("GET", path, headers={} if token is None else {"Authorization": f"Bearer {token}"})
        response = web.getresponse()
        return response.status, response.read().decode()
    finally:
        web.close()


async def test_the_exec_server_and_its_client(
    issuer: Certificate, options: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(tmp_path, *options) as server:
        address = Address.parse(server.url)
        assert await asyncio.to_thread(asked, server.url, "/readyz", issuer) == (200, "")
        status, text = await asyncio.to_thread(asked, server.url, "/metrics", issuer, address.path[1:])
        assert (status, "treadle_connections 0" in text) == (200, True)
        async with await Environment.connect(server.url, ca_file=issuer.certificate) as environment:
            done = await environment.run(["cat"], input=b"x" * (3 << 20))
            assert len(done.stdout) == 3 << 20
        # The secret is found in the home, and the issuers of the system are used without a file.
        monkeypatch.setenv("TREADLE_HOME", str(tmp_path / "home"))
        bare = f"wss://{address.authority}"
        async with await Environment.connect(bare, ca_file=issuer.certificate) as environment:
            assert (await environment.run(["true"])).exit_code == 0
        monkeypatch.setenv("SSL_CERT_FILE", str(issuer.certificate))
        async with await Environment.connect(bare) as environment:
            assert (await environment.run(["true"])).exit_code == 0
        monkeypatch.delenv("SSL_CERT_FILE")
        with pytest.raises(ExecError, match="its certificate is refused"):
            await Environment.connect(server.url)


async def test_the_app_server_and_the_sdk(issuer: Certificate, options: list[str], tmp_path: Path) -> None:
    with AppServerHarness(tmp_path) as harness, listening_server(harness, *options) as server:
        config = CodexConfig(url=server.url, ca_file=str(issuer.certificate))

        def blocking() -> str | None:
            with Codex(config) as codex:
                return codex.thread_start().run("Hello").final_response

        harness.model.enqueue_assistant_message("one")
        harness.model.enqueue_assistant_message("two")
        assert await asyncio.to_thread(blocking) == "one"
        async with AsyncCodex(config) as codex:
            thread = await codex.thread_start()
            assert (await thread.run("Hello")).final_response == "two"
        for trusting in (AsyncCodex(CodexConfig(url=server.url)), AsyncCodex(CodexConfig(url=server.url, token="t"))):
            with pytest.raises(TransportClosedError, match="its certificate is refused"):
                async with trusting:
                    pass
        with pytest.raises(TransportClosedError, match="its certificate is refused"):
            await asyncio.to_thread(Codex, CodexConfig(url=server.url))
        with pytest.raises(TransportClosedError, match=r"TLS failed|ended during the handshake|no answer|reset"):
            await asyncio.to_thread(Codex, CodexConfig(url=server.url.replace("wss:", "ws:")))


async def test_clients_with_certificates(options: list[str], issuer: Certificate, tmp_path: Path) -> None:
    clients = make_issuer(tmp_path, "clients")
    robot = sign(clients, tmp_path, "robot", "DNS:robot")
    options = [*options, "--tls-client-ca", str(clients.certificate)]
    ca, cert, key = str(issuer.certificate), str(robot.certificate), str(robot.key)
    with AppServerHarness(tmp_path) as harness, listening_server(harness, *options) as server:
        with_it = CodexConfig(url=server.url, ca_file=ca, cert_file=cert, key_file=key)
        harness.model.enqueue_assistant_message("one")
        harness.model.enqueue_assistant_message("two")

        def blocking() -> str | None:
            with Codex(with_it) as codex:
                return codex.thread_start().run("Hello").final_response

        assert await asyncio.to_thread(blocking) == "one"
        async with AsyncCodex(with_it) as codex:
            assert (await (await codex.thread_start()).run("Hello")).final_response == "two"
        # The token counts beside it, and nothing counts without it.
        wrong = CodexConfig(
            url=f"wss://{Address.parse(server.url).authority}", token="w", ca_file=ca, cert_file=cert, key_file=key
        )
        with pytest.raises(TransportClosedError, match="HTTP 401"):
            await asyncio.to_thread(Codex, wrong)
        for make in (Codex, lambda config: asyncio.run(AsyncCodex(config).__aenter__())):
            with pytest.raises(TransportClosedError, match=r"wants a client certificate|handshake|reset|TLS failed"):
                await asyncio.to_thread(make, CodexConfig(url=server.url, ca_file=ca))
    tokens = tmp_path / "tokens.toml"
    tokens.touch(mode=0o600)
    tokens.write_text('[tokens.machine]\ncertificate = "robot"\nsandbox = "none"\n')
    with running(tmp_path, *options, "--tokens-file", str(tokens)) as executor:
        channel = await connect(Address.parse(executor.url), ca_file=ca, cert_file=cert, key_file=key)
        channel.abort()
        with pytest.raises(ExecError, match=r"wants a client certificate|handshake|reset"):
            await Environment.connect(executor.url, ca_file=ca)


async def test_mcp_clients_are_served_with_a_certificate_too(
    issuer: Certificate, options: list[str], tmp_path: Path
) -> None:
    with AppServerHarness(tmp_path) as harness, listening_server(harness, *options) as server:
        address = Address.parse(server.url)
        harness.model.enqueue_assistant_message("by MCP")

        def post(session: str | None, **message: object) -> tuple[str, str]:
            context = ssl.create_default_context(cafile=str(issuer.certificate))
            web = HTTPSConnection(address.host, address.port, context=context, timeout=DEADLINE_S)
            headers = {
                "Authorization": f"Bearer {address.path[1:]}",
                "Content-Type": "application/json",
                "Accept": "application/json, text/event-stream",
                **({} if session is None else {"Mcp-Session-Id": session}),
            }
            web.request("POST", "/mcp", json.dumps({"jsonrpc": "2.0", **message}), headers)
            response = web.getresponse()
            body = response.read().decode()
            web.close()
            return response.headers.get("Mcp-Session-Id", ""), body

        handshake = {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        }
        session, _ = await asyncio.to_thread(post, None, id=1, method="initialize", params=handshake)
        await asyncio.to_thread(post, session, method="notifications/initialized")
        call = {"name": "codex", "arguments": {"prompt": "Hello"}}
        _, answer = await asyncio.to_thread(post, session, id=2, method="tools/call", params=call)
    assert "by MCP" in answer


async def test_a_start_with_bad_files_says_which_and_why(options: list[str], tmp_path: Path) -> None:
    with AppServerHarness(tmp_path) as harness:
        *listen, _, certificate, _, key = options
        assert "--tls-cert and --tls-key go together" in refused(harness, *listen, "--tls-cert", certificate, code=2)
        assert "key in PEM form" in refused(harness, *listen, "--tls-cert", key, "--tls-key", key)
        assert "which needs both" in refused(harness, *listen)
        plain = ("--listen", "ws://127.0.0.1:0", "--tls-cert", certificate, "--tls-key", key)
        assert "are for wss://" in refused(harness, *plain)
        assert "standard input and output" in refused(harness, "--tls-cert", certificate, "--tls-key", key, code=2)
