"""JSON-RPC as the app-server speaks it, case by case: the recorded scenarios 01, 01b, 01c and 01d, and floods."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kit.app_client import AppClient, connected, joined
from kit.app_program import Program, resident_bytes, stdio_server
from treadle.testing import AppServerHarness

NOBODY = "01a1dcbc-6c44-7ea1-8238-647d4750d13d"  # a thread id that is in no home
HELLO = {"clientInfo": {"name": "probe", "title": "Probe", "version": "0.1.0"}}


@pytest.fixture
def bare(shared_server: Program) -> Iterator[AppClient]:
    """A connection on which nothing was said yet."""
    with connected(shared_server.url) as client:
        yield client


@pytest.fixture
def client(shared_server: Program) -> Iterator[AppClient]:
    with joined(shared_server.url) as client:
        yield client


def refusal(client: AppClient, message: dict[str, Any]) -> tuple[int, str]:
    client.send(message)
    reply = client.reply_to(message["id"])
    assert "error" in reply, reply
    return reply["error"]["code"], reply["error"]["message"]


# --- the handshake ---


def test_nothing_works_before_initialize(bare: AppClient) -> None:
    assert refusal(bare, {"id": 1, "method": "thread/list", "params": {}}) == (-32600, "Not initialized")
    assert (
        refusal(bare, {"id": 2, "method": "thread/events/list", "params": {"threadId": NOBODY}})[1] == "Not initialized"
    )


def test_parsing_comes_before_the_handshake(bare: AppClient) -> None:
    for message, says in (
        ({"method": "model/list"}, "Invalid request: missing field `params`"),
        (
            {"method": "no/such/method", "params": {}},
            "Invalid request: unknown variant `no/such/method`, expected one of",
        ),
        ({"method": "thread/read", "params": {}}, "Invalid request: missing field `threadId`"),
    ):
        code, text = refusal(bare, {"id": 1, **message})
        assert code == -32600
        assert text.startswith(says)


@pytest.mark.parametrize(
    ("params", "says"),
    [
        ({}, "Invalid request: missing field `clientInfo`"),
        (None, "Invalid request: missing field `params`"),
        ({"clientInfo": {"version": "1"}}, "Invalid request: missing field `name`"),
        (
            {"clientInfo": {"name": "bad name\n", "version": "1"}},
            "Invalid clientInfo.name: 'bad name\n'. Must be a valid HTTP",
        ),
        ({"clientInfo": {"name": "", "version": "1"}}, "Invalid clientInfo.name"),
        ({"clientInfo": {"name": "naïve", "version": "1"}}, "Invalid clientInfo.name"),
        ({"clientInfo": {"name": 5, "version": "1"}}, "Invalid request: "),
    ],
)
def test_a_bad_initialize_can_be_said_again_rightly(bare: AppClient, params: Any, says: str) -> None:
    message = {"id": 1, "method": "initialize"}
    code, text = refusal(bare, message if params is None else {**message, "params": params})
    assert code == -32600
    assert text.startswith(says)
    result = bare.call("initialize", {"clientInfo": {"name": "ok", "version": "1"}, "capabilities": None})
    assert result["userAgent"].startswith("ok/")


def test_initialize(bare: AppClient, shared_harness: AppServerHarness) -> None:
    result = bare.call("initialize", HELLO)
    name, _, rest = result["userAgent"].partition("/")
    assert name == "probe"
    assert rest.endswith("(probe; 0.1.0)")
    assert (result["platformFamily"], result["platformOs"]) == ("unix", "linux")
    assert result["codexHome"] == str(shared_harness.home)
    assert result["extensions"] == {"treadle/threadEvents": {"version": 1}, "treadle/messageSearch": {"version": 1}}
    assert "data" in bare.call("thread/loaded/list")  # without waiting for `initialized`
    bare.send({"method": "initialized"})
    assert bare.failure("initialize", HELLO) == {"code": -32600, "message": "Already initialized"}


# --- requests ---


@pytest.mark.parametrize(
    ("method", "params", "says"),
    [
        ("thread/loaded/list", None, "Invalid request: missing field `params`"),
        ("no/such/method", {}, "Invalid request: unknown variant `no/such/method`, expected one of `initialize`"),
        ("thread/start", {"cwd": 5}, "Invalid request: "),
        ("thread/start", {"approvalPolicy": "bogus"}, "Invalid request: unknown variant `bogus`"),
        ("turn/start", {}, "Invalid request: missing field `threadId`"),
        ("turn/start", {"threadId": NOBODY}, "Invalid request: missing field `input`"),
        ("turn/start", {"threadId": "nope", "input": []}, "invalid thread id: "),
        ("turn/start", {"threadId": NOBODY, "input": []}, f"thread not found: {NOBODY}"),
        ("thread/read", {"threadId": "nope"}, "invalid thread id: "),
        ("thread/read", {"threadId": NOBODY}, f"thread not loaded: {NOBODY}"),
        ("thread/resume", {"threadId": "nope"}, "invalid session id: "),
        ("thread/resume", {"threadId": NOBODY}, f"no rollout found for thread id {NOBODY}"),
        ("thread/loaded/list", [], "Invalid request: "),
        ("thread/loaded/list", "text", "Invalid request: "),
        ("thread/loaded/list", 5, "Invalid request: "),
    ],
)
def test_refusals(client: AppClient, method: str, params: Any, says: str) -> None:
    message = {"id": "x", "method": method}
    code, text = refusal(client, message if params is None else {**message, "params": params})
    assert code == -32600
    assert text.startswith(says)


@pytest.mark.parametrize("request_id", [0, -1, 2**63 - 1, -(2**63), "", "text", "ü", "0"])
def test_ids_come_back_as_they_are(client: AppClient, request_id: int | str) -> None:
    client.send({"id": request_id, "method": "thread/loaded/list", "params": {}})
    assert client.reply_to(request_id)["id"] == request_id


@pytest.mark.parametrize("more", [{"jsonrpc": "2.0"}, {"trace": {"traceparent": "x"}}, {"unknown": [1, {}]}])
def test_other_members_are_ignored(client: AppClient, more: dict[str, Any]) -> None:
    client.send({"id": "x", "method": "thread/loaded/list", "params": {"unknownField": 1}, **more})
    assert "data" in client.reply_to("x")["result"]


@pytest.mark.parametrize(
    "raw",
    [
        "this is not json",
        "",
        "   ",
        "[]",
        '[{"id":1,"method":"thread/loaded/list","params":{}}]',
        "5",
        '"text"',
        "null",
        '{"foo":1}',
        '{"id":900}',
        '{"id":901,"method":5,"params":{}}',
        '{"id":902,"method":"thread/loaded/list","params":{}',
        '{"id":null,"method":"thread/loaded/list","params":{}}',
        '{"id":1.5,"method":"thread/loaded/list","params":{}}',
        '{"id":true,"method":"thread/loaded/list","params":{}}',
        '{"id":[1],"method":"thread/loaded/list","params":{}}',
        '{"id":9223372036854775808,"method":"thread/loaded/list","params":{}}',
        '{"method":"thread/loaded/list","params":{}}',
        '{"method":"unknown/notification","params":{}}',
        '{"method":"unknown/notification"}',
        '{"id":999,"result":{}}',
        '{"id":"999","result":{}}',
        '{"id":999,"error":{"code":-1,"message":"x"}}',
        '{"id":999,"error":"x"}',
        "[" * 20_000,
        '{"params":' * 5_000,
        '{"method":"\ud800"}',
    ],
    ids=range(27),
)
def test_what_is_no_request_is_dropped(client: AppClient, raw: str) -> None:
    """No reply, and the connection goes on."""
    client.transport.send(raw.encode("utf-8", "replace").decode())
    last = client.request("thread/loaded/list", {})
    assert client.receive()["id"] == last


@pytest.mark.parametrize("raw", [b"\xff\xfe", b"\x00", b"", b"\r", b'{"id":1', b"\xef\xbb\xbf{}"])
def test_lines_that_are_no_messages(harness: AppServerHarness, raw: bytes) -> None:
    with stdio_server(harness) as program:
        assert program.process.stdin is not None
        program.process.stdin.write(raw + b"\n")
        program.process.stdin.write(b'{"id":1,"method":"initialize","params":%b}\r\n' % json.dumps(HELLO).encode())
        program.process.stdin.flush()
        program.client.expect(1, "initialize")
        assert program.client.receive()["id"] == 1
        program.hang_up()
        assert program.wait() == 0


# --- what has to be asked for ---


def test_the_experimental_gate(client: AppClient, shared_server: Program) -> None:
    granular = {"granular": {"sandbox_approval": True, "rules": True, "mcp_elicitations": True}}
    tool = {"type": "function", "name": "lookup", "description": "x", "inputSchema": {"type": "object"}}
    thread = client.start_thread()
    for method, params, what in (
        ("thread/start", {"approvalPolicy": granular}, "askForApproval.granular"),
        ("thread/start", {"dynamicTools": [tool]}, "thread/start.dynamicTools"),
        ("thread/start", {"runtimeWorkspaceRoots": ["/srv"]}, "thread/start.runtimeWorkspaceRoots"),
        ("thread/settings/update", {"threadId": thread, "model": "other"}, "thread/settings/update"),
        ("turn/start", {"threadId": thread, "input": [], "approvalPolicy": granular}, "askForApproval.granular"),
    ):
        error = client.failure(method, params)
        assert error == {"code": -32600, "message": f"{what} requires experimentalApi capability"}
    with joined(shared_server.url, experimentalApi=True) as able:
        assert "granular" in able.call("thread/start", {"approvalPolicy": granular})["approvalPolicy"]
        able.call("thread/start", {"dynamicTools": [tool]})
        able.call("thread/resume", {"threadId": thread})
        assert able.call("thread/settings/update", {"threadId": thread, "model": "other"}) == {}
        assert able.wait_for("thread/settings/updated")["params"]["threadSettings"]["model"] == "other"
    # The other client listens to the thread, too, but did not ask for experimental news.
    client.call("thread/name/set", {"threadId": thread, "name": "later"})
    client.wait_for("thread/name/updated")
    assert client.of("thread/settings/updated") == []


def test_opting_out(bare: AppClient) -> None:
    bare.initialize(optOutNotificationMethods=["thread/started", "no/such", "thread/name"])
    thread = bare.start_thread()
    bare.call("thread/name/set", {"threadId": thread, "name": "named"})
    bare.wait_for("thread/name/updated")
    assert bare.of("thread/started") == []


# --- much at once ---


def test_a_flood_of_requests(harness: AppServerHarness) -> None:
    """Every one is answered: with a result, or refused so that a client knows to come back."""
    number = 20_000
    with stdio_server(harness) as program:
        client = program.client
        client.initialize()
        thread = client.start_thread()
        kinds = [
            ("thread/read", {"threadId": thread}),
            ("thread/loaded/list", {}),
            ("thread/list", {}),
            ("thread/read", {"threadId": NOBODY}),
        ]
        lines = []
        for index in range(number):
            method, params = kinds[index % len(kinds)]
            lines.append(json.dumps({"id": f"f{index}", "method": method, "params": params}))
            client.expect(f"f{index}", method)
        _write_in_background(client, "\n".join(lines))
        replies = [client.reply_to(f"f{index}") for index in range(number)]
        refused = [reply["error"] for reply in replies if "error" in reply]
        overloaded = [error for error in refused if error["code"] == -32001]
        assert all(error["data"] == {"codexErrorInfo": "server_overloaded"} for error in overloaded)
        assert {error["message"] for error in overloaded} <= {"Server overloaded; retry later."}
        others = [error["message"] for error in refused if error["code"] != -32001]
        assert set(others) <= {f"thread not loaded: {NOBODY}"}
        assert sum("result" in reply for reply in replies) >= 1024
        assert client.call("thread/loaded/list")["data"] == [thread]
        assert resident_bytes(program.pid) < 300 << 20
        assert "Traceback" not in program.stderr


def _write_in_background(client: AppClient, text: str) -> None:
    """The other side may stop reading until its answers are taken."""
    import threading

    threading.Thread(target=client.transport.send, args=(text,), daemon=True).start()


def test_input_that_is_too_large(client: AppClient) -> None:
    thread = client.start_thread()
    text = "x" * 1_048_577
    error = client.failure("turn/start", {"threadId": thread, "input": [{"type": "text", "text": text}]})
    assert error["code"] == -32602
    assert error["message"] == "Input exceeds the maximum length of 1048576 characters."
    assert error["data"] == {"input_error_code": "input_too_large", "max_chars": 1_048_576, "actual_chars": 1_048_577}


def test_input_that_is_just_small_enough(tmp_path: Path) -> None:
    text = "ü" * 1_048_576
    with AppServerHarness(tmp_path, settings={"model_context_window": 2_000_000}) as harness:
        harness.model.enqueue_assistant_message("That was long.")
        with stdio_server(harness) as program:
            program.client.initialize()
            assert program.client.run(program.client.start_thread(), text)["status"] == "completed"
        assert harness.model.single_request().last_user_text == text
