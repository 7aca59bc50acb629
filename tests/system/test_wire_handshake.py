"""Handshake and sessions: who may say what and when, and what a lost connection leaves."""

from __future__ import annotations

import asyncio
import json
import uuid
from pathlib import Path

import pytest
from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as async_connect

from kit.exec_client import ExecClient, connected, error_of, numbers, start_params
from kit.processes import DEADLINE_S, processes_left, processes_with
from kit.server_process import ServerProcess
from kit.wire_client import Json
from treadle.execution.server import ExecServer
from treadle.transport import Address, memory_pair
from treadle.transport.listen import listen

START = start_params("p", ["true"], Path("/"))


@pytest.mark.parametrize(
    ("method", "params", "family"),
    [
        ("environment/info", None, "environment info"),
        ("environment/status", None, "environment status"),
        ("process/start", START, "exec"),
        ("process/read", {"processId": "p"}, "exec"),
        ("fs/getMetadata", {"path": "file:///"}, "filesystem"),
        ("http/request", {"method": "GET", "url": "http://127.0.0.1:1/", "requestId": "r"}, "http"),
    ],
)
def test_nothing_works_before_the_handshake(bare: ExecClient, method: str, params: object, family: str) -> None:
    before = bare.failure(method, params)
    assert before == (-32600, f"client must call initialize before using {family} methods")
    bare.initialize()
    between = bare.failure(method, params)
    assert between == (-32600, f"client must send initialized before using {family} methods")


def test_params_are_decoded_before_the_order_is_checked(bare: ExecClient) -> None:
    code, text = bare.failure("process/start", {"processId": "x"})
    assert code == -32602
    assert "argv" in text


def test_initialize_tells_about_the_machine(client: ExecClient, server: ServerProcess) -> None:
    assert uuid.UUID(client.session_id)
    info = client.info
    assert info["shell"]["path"].endswith(info["shell"]["name"])
    assert info["cwd"] == server.log.parent.as_uri()
    assert info["platformOs"] == "linux"
    asked = client.call("environment/info")
    assert asked.pop("confinesBy") in ("bubblewrap", "landlock", "none")  # found out when it is asked for
    assert info == asked
    extensions = ("CloseStdin", "GracefulTerminate", "List", "Resize", "Signals")
    assert all(info["capabilities"][f"process{name}"] is True for name in extensions)
    assert client.call("environment/status") == {"status": "ready"}


@pytest.mark.parametrize("params", [None, {}])
def test_methods_without_params_take_none(client: ExecClient, params: object) -> None:
    assert client.call("environment/status", params) == {"status": "ready"}
    client.send({"id": "null", "method": "environment/status", "params": None})
    assert client.reply_to("null")["result"] == {"status": "ready"}


def test_initialize_is_sent_once(client: ExecClient) -> None:
    assert client.failure("initialize", {"clientName": "x"}) == (
        -32600,
        "initialize may only be sent once per connection",
    )
    assert client.failure("initialize", {})[0] == -32602
    assert client.call("environment/status") == {"status": "ready"}


@pytest.mark.parametrize(
    "params", [{"clientName": ""}, {"clientName": "x", "foo": 1, "resumeSessionId": None}], ids=["empty", "unknown"]
)
def test_initialize_is_lenient(bare: ExecClient, params: object) -> None:
    assert uuid.UUID(bare.call("initialize", params)["sessionId"])


def test_repeated_initialized_is_harmless(client: ExecClient) -> None:
    client.send({"method": "initialized"})
    client.send({"method": "initialized", "params": [1, "junk"]})
    assert client.call("environment/status") == {"status": "ready"}


def test_failed_initialize_may_be_retried(client: ExecClient, server: ServerProcess) -> None:
    with connected(server.url) as second:
        resume_unknown = {"clientName": "x", "resumeSessionId": "nope"}
        resume_attached = {"clientName": "x", "resumeSessionId": client.session_id}
        assert second.failure("initialize", resume_unknown) == (-32600, "unknown session id nope")
        code, text = second.failure("initialize", resume_attached)
        assert code == -32010
        assert "already attached" in text
        assert second.handshake().session_id != client.session_id
        assert second.call("environment/status") == {"status": "ready"}
    assert client.call("environment/status") == {"status": "ready"}, "the holder of the session was disturbed"


def test_a_second_connection_does_not_see_the_first_ones_processes(
    client: ExecClient, server: ServerProcess, tmp_path: Path, marker: str
) -> None:
    client.start("shared", ["sleep", marker], tmp_path)
    with connected(server.url) as second:
        second.handshake()
        assert second.failure("process/read", {"processId": "shared"}) == (-32600, "unknown process id shared")
        assert second.write("shared", b"x", "1") == "unknownProcess"
        assert second.call("process/terminate", {"processId": "shared"}) == {"running": False}
        assert second.call("process/signal", {"processId": "shared", "signal": "interrupt"}) == {}
        assert second.call("process/list") == {"processes": []}
        assert second.run("shared", ["true"], tmp_path) == (0, b""), "the id is free in another session"
    assert client.call("process/terminate", {"processId": "shared"}) == {"running": True}
    assert client.exit_code("shared") == 143


def resumed(client: ExecClient, session_id: str) -> ExecClient:
    """Resume as a client must: an attached session is retried, since the server may notice the loss later."""
    params = {"clientName": "raw", "resumeSessionId": session_id}
    while "error" in (reply := client.reply_to(client.request("initialize", params))):
        assert error_of(reply)[0] == -32010
    assert reply["result"]["sessionId"] == session_id
    return client


@pytest.mark.parametrize("clean", [True, False], ids=["closed", "cut"])
def test_resume_goes_on_where_the_connection_was_lost(server: ServerProcess, tmp_path: Path, clean: bool) -> None:
    step = tmp_path / "step"
    script = f"echo one; while [ ! -e {step} ]; do sleep 0.02; done; echo two; read x; echo three $x; exit 4"
    with connected(server.url) as first:
        first.handshake().start("p", ["/bin/sh", "-c", script], tmp_path, pipeStdin=True)
        first.wait_for_output("p", b"one\n")
        if not clean:
            first.socket.socket.close()
    with connected(server.url) as second:
        step.touch()
        resumed(second, first.session_id)
        second.send({"method": "initialized"})
        missed = second.call("process/read", {"processId": "p", "afterSeq": 1, "waitMs": 30000})
        assert [chunk["seq"] for chunk in missed["chunks"]] == [2]
        assert second.write("p", b"!\n", "w") == "accepted"
        pushed = numbers(second.story("p"))
        assert pushed == list(range(pushed[0], 6)), "after the resume everything is pushed, in order"
        assert pushed[0] in (2, 3), "what was pushed to the first connection is not pushed again"
        assert second.exit_code("p") == 4


def test_events_of_the_detached_time_are_not_pushed_but_can_be_read(
    client: ExecClient, server: ServerProcess, tmp_path: Path, marker: str
) -> None:
    go = tmp_path / "go"
    script = f"while [ ! -e {go} ]; do sleep 0.02; done; echo done; exit 3 # {marker}"
    with connected(server.url) as first:
        first.handshake().start("p", ["/bin/sh", "-c", script], tmp_path)
        first.start("bystander", ["cat"], tmp_path, pipeStdin=True)
    go.touch()
    assert processes_left(marker) == []
    # Exits are reported in the order in which they happened: after this one the server knows of the other.
    assert client.run("true", ["true"], tmp_path) == (0, b"")
    with connected(server.url) as second:
        resumed(second, first.session_id)
        second.send({"method": "initialized"})
        # Pushes come in order on one connection: whatever was due for "p" would be here by now.
        assert second.write("bystander", b"x", "w") == "accepted"
        second.wait_for_process("process/output", "bystander")
        assert [event["params"]["processId"] for event in second.told] == ["bystander"]
        missed = second.call("process/read", {"processId": "p"})
        assert [chunk["chunk"] for chunk in missed["chunks"]] == ["ZG9uZQo="]
        assert (missed["exitCode"], missed["nextSeq"], missed["closed"]) == (3, 4, True)


def test_pushes_begin_before_initialized(server: ServerProcess, tmp_path: Path) -> None:
    go = tmp_path / "go"
    with connected(server.url) as first:
        script = f"while [ ! -e {go} ]; do sleep 0.02; done; echo late"
        first.handshake().start("p", ["/bin/sh", "-c", script], tmp_path)
    with connected(server.url) as second:
        resumed(second, first.session_id)
        go.touch()
        assert numbers(second.story("p")) == [1, 2, 3]


def test_a_session_can_be_resumed_again_and_again(server: ServerProcess, tmp_path: Path) -> None:
    with connected(server.url) as client:
        session_id = client.handshake().session_id
        client.start("cat", ["cat"], tmp_path, pipeStdin=True)
    for turn in range(3):
        with connected(server.url) as client:
            resumed(client, session_id)
            client.send({"method": "initialized"})
            assert client.write("cat", b"%d" % turn, str(turn)) == "accepted"
            client.wait_for_process("process/output", "cat")
            assert client.write("cat", b"again", str(turn)) == "accepted", "a repeated write id is accepted"
    with connected(server.url) as client:
        resumed(client, session_id)
        client.send({"method": "initialized"})
        assert client.call("process/closeStdin", {"processId": "cat"}) == {}
        client.story("cat")
        assert [c["chunk"] for c in client.call("process/read", {"processId": "cat"})["chunks"]] == [
            "MA==",
            "MQ==",
            "Mg==",
        ]


# --- in this process: with a short life after the loss, and at the end ---


async def _ask(socket: ClientConnection, request_id: int, method: str, params: Json) -> Json:
    await socket.send(json.dumps({"id": request_id, "method": method, "params": params}))
    answer = json.loads(await asyncio.wait_for(socket.recv(), DEADLINE_S))
    assert isinstance(answer, dict)
    return answer


@pytest.mark.anyio
async def test_a_detached_session_expires_with_its_processes(tmp_path: Path, marker: str) -> None:
    start = start_params("p", ["/bin/sh", "-c", f"(setsid sleep {marker} &); sleep {marker}"], tmp_path)
    async with ExecServer(detached_s=0.05) as server:
        listener = await listen(Address.parse("ws://127.0.0.1:0"), server.accept)
        async with async_connect(listener.url, proxy=None) as socket:
            answer = await _ask(socket, 1, "initialize", {"clientName": "x"})
            session_id = answer["result"]["sessionId"]
            await socket.send('{"method":"initialized"}')
            assert "result" in await _ask(socket, 2, "process/start", start)
            assert len(server.sessions) == 1
        left = await asyncio.to_thread(processes_left, marker)
        assert left == []
        async with asyncio.timeout(60):
            while server.sessions:  # its processes go first
                await asyncio.sleep(0.01)
        async with async_connect(listener.url, proxy=None) as socket:
            resume = {"clientName": "x", "resumeSessionId": session_id}
            assert error_of(await _ask(socket, 1, "initialize", resume)) == (
                -32600,
                f"unknown session id {session_id}",
            )
        assert len(server.sessions) == 0
        await listener.close()


@pytest.mark.anyio
async def test_a_resumed_session_does_not_expire(tmp_path: Path, marker: str) -> None:
    async with ExecServer(detached_s=0.2) as server:
        listener = await listen(Address.parse("ws://127.0.0.1:0"), server.accept)
        async with async_connect(listener.url, proxy=None) as first:
            answer = await _ask(first, 1, "initialize", {"clientName": "x"})
            await first.send('{"method":"initialized"}')
            start = start_params("p", ["sleep", marker], tmp_path)
            assert "result" in await _ask(first, 2, "process/start", start)
        resume = {"clientName": "x", "resumeSessionId": answer["result"]["sessionId"]}
        async with async_connect(listener.url, proxy=None) as second:
            while "error" in (again := await _ask(second, 1, "initialize", resume)):
                assert error_of(again)[0] == -32010
            await second.send('{"method":"initialized"}')
            # Longer than the detached time: the read returns when it is over.
            read = {"processId": "p", "waitMs": 600}
            still = await _ask(second, 2, "process/read", read)
            assert still["result"]["exited"] is False
            assert processes_with(marker) != []
        await listener.close()
    assert await asyncio.to_thread(processes_left, marker) == []


@pytest.mark.anyio
async def test_a_session_waits_as_long_as_its_client_wishes_and_the_server_allows(marker: str, tmp_path: Path) -> None:
    async with ExecServer(detached_s=3600) as server:
        listener = await listen(Address.parse("ws://127.0.0.1:0"), server.accept)
        async with async_connect(listener.url, proxy=None) as socket:
            first = (await _ask(socket, 1, "initialize", {"clientName": "x"}))["result"]
        assert "detachS" not in first, "who does not ask sees no difference"
        assert first["environmentInfo"]["capabilities"]["sessionDetach"] is True
        for wish, given in ((7200.5, 3600), (600, 600), (0.05, 0.05)):
            async with async_connect(listener.url, proxy=None) as socket:
                answer = await _ask(socket, 1, "initialize", {"clientName": "x", "detachS": wish})
                assert answer["result"]["detachS"] == given
                start = start_params("p", ["sleep", marker], tmp_path)
                await socket.send('{"method":"initialized"}')
                assert "result" in await _ask(socket, 2, "process/start", start)
        # Only the last one has ended; it is resumed with another wish while it can be.
        async with asyncio.timeout(60):
            while len(server.sessions) > 3:
                await asyncio.sleep(0.01)
        async with async_connect(listener.url, proxy=None) as socket:
            bads: tuple[object, ...] = (-1, "1", [], True)
            for bad in bads:
                answer = await _ask(socket, 1, "initialize", {"clientName": "x", "detachS": bad})
                assert error_of(answer)[0] == -32602
            resume = {"clientName": "x", "resumeSessionId": first["sessionId"], "detachS": 0}
            assert (await _ask(socket, 2, "initialize", resume))["result"]["detachS"] == 0
            await socket.send('{"method":"initialized"}')
            for wish, given in ((7200, 3600), (0, 0)):  # who leaves for good says so
                answer = await _ask(socket, 3, "session/detach", {"detachS": wish})
                assert answer["result"] == {"detachS": given}
        async with asyncio.timeout(60):
            while len(server.sessions) > 2:
                await asyncio.sleep(0.01)
        await listener.close()
    assert await asyncio.to_thread(processes_left, marker) == []


@pytest.mark.anyio
async def test_what_has_ended_while_its_client_was_away_is_not_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = tmp_path / "go"
    start = start_params("p", ["/bin/sh", "-c", f"while [ ! -e {go} ]; do sleep 0.02; done; echo done"], tmp_path)
    async with ExecServer(detached_s=3600) as server:
        listener = await listen(Address.parse("ws://127.0.0.1:0"), server.accept)
        async with async_connect(listener.url, proxy=None) as socket:
            answer = await _ask(socket, 1, "initialize", {"clientName": "x", "detachS": 3600})
            await socket.send('{"method":"initialized"}')
            assert "result" in await _ask(socket, 2, "process/start", start)

        def facts() -> dict[str, float]:
            return {gauge.name: gauge.value for gauge in server.sessions.gauges()}

        async with asyncio.timeout(60):
            while not facts()["treadle_sessions_detached"]:
                await asyncio.sleep(0.01)
            with monkeypatch.context() as patch:
                patch.setattr("treadle.execution.local_backend.CLOSED_S", 0.0)
                go.touch()
                while facts()["treadle_processes_running"]:
                    await asyncio.sleep(0.01)
                await asyncio.sleep(0.05)  # the timer that must not be there would be over
            resume = {"clientName": "x", "resumeSessionId": answer["result"]["sessionId"]}
            async with async_connect(listener.url, proxy=None) as socket:
                while "error" in (await _ask(socket, 1, "initialize", resume)):
                    pass
                await socket.send('{"method":"initialized"}')
                read = (await _ask(socket, 2, "process/read", {"processId": "p"}))["result"]
        assert [chunk["chunk"] for chunk in read["chunks"]] == ["ZG9uZQo="]
        assert read["closed"] is True
        await listener.close()


@pytest.mark.anyio
async def test_a_closed_server_takes_no_more_connections() -> None:
    server = ExecServer()
    await server.close()
    ours, theirs = memory_pair()
    server.accept(theirs)
    await asyncio.wait_for(theirs.wait_closed(), DEADLINE_S)
    ours.abort()
