"""What the server says to bad messages and bad params, and that it goes on after each of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed

from kit.exec_client import ExecClient, connected, error_of, start_params
from kit.server_process import ServerProcess
from kit.wire_client import Json

STATUS = "environment/status"
READY = {"status": "ready"}


# --- messages ---


@pytest.mark.parametrize(
    "frame",
    [
        "not json",
        "",
        " ",
        "[]",
        '"x"',
        "123",
        "null",
        "{}",
        '{"id":1}',
        '{"id":1,"method":null}',
        '{"id":null,"method":"environment/status"}',
        '{"id":1.5,"method":"environment/status"}',
        '{"id":1.0,"method":"environment/status"}',
        '{"id":true,"method":"environment/status"}',
        '{"id":[1],"method":"environment/status"}',
        '{"id":9223372036854775808,"method":"environment/status"}',
        '{"id":-9223372036854775809,"method":"environment/status"}',
        '[{"id":1,"method":"environment/status"}]',
        '{"id":77,"id":78,"method":"environment/status"}',
        '{"id":77,"method":"environment/status","params":{"a":{"b":1,"b":2}}}',
        '{"id":8,"method":5}',
        '{"id":8,"method":"environment/status"',
        '{"id":8,"method":"environment/status"}}',
        '{"id":8,"method":"environment/status"}{"id":9,"method":"environment/status"}',
        '{"id":8,"method":"environment/status","params":NaN}',
        '{"result":{}}',
        '{"error":{"code":1,"message":"x"}}',
        '{"id":1,"error":"x"}',
        # Texts that are no Unicode, in the places that an error message might repeat.
        '{"\\ud800":1,"\\ud800":2}',
        '{"id":"\\ud800","method":"environment/status"}',
        '{"id":1,"method":"\\udfff"}',
        # Deeper than any parser should follow.
        '{"id":1,"method":"environment/status","params":' + "[" * 100_000 + "]" * 100_000 + "}",
        '{"id":1,"method":"environment/status","params":' + '{"a":' * 100_000 + "1" + "}" * 100_000 + "}",
        '{"id":1' + "0" * 5_000 + ',"method":"environment/status"}',
    ],
    ids=lambda frame: frame[:40],
)
def test_malformed_message_is_answered_with_id_minus_one(client: ExecClient, frame: str) -> None:
    reply = client.answer_to_raw(frame)
    assert reply["id"] == -1
    code, text = error_of(reply)
    assert code == -32600
    assert text
    assert client.call(STATUS) == READY


@pytest.mark.parametrize("frame", [b"\xff\xfe\x00garbage", b"\x00", b"\xef\xbb\xbf{}", b'{"id":1,"method":"\xff"}'])
def test_malformed_binary_message_is_answered(client: ExecClient, frame: bytes) -> None:
    assert client.answer_to_raw(frame)["id"] == -1
    assert client.call(STATUS) == READY


def test_malformed_message_before_the_handshake_is_answered(bare: ExecClient) -> None:
    assert bare.answer_to_raw("garbage")["id"] == -1
    assert bare.handshake().call(STATUS) == READY


@pytest.mark.parametrize("request_id", ["abc", "", "req-é", 0, -5, 2**63 - 1, -(2**63)])
def test_ids_are_strings_and_64_bit_integers(client: ExecClient, request_id: int | str) -> None:
    client.send({"id": request_id, "method": STATUS})
    assert client.reply_to(request_id) == {"id": request_id, "result": READY}


def test_binary_frames_are_accepted_and_answered_with_text(client: ExecClient) -> None:
    reply = client.answer_to_raw(json.dumps({"id": 500, "method": STATUS}).encode())
    assert reply == {"id": 500, "result": READY}


def test_unknown_members_are_ignored(client: ExecClient) -> None:
    trace = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
    client.send({"jsonrpc": "2.0", "id": 9, "method": STATUS, "trace": trace, "extra": 1})
    assert client.reply_to(9)["result"] == READY


def test_too_many_values_are_refused(client: ExecClient) -> None:
    frame = json.dumps({"id": 1001, "method": STATUS, "params": [0] * 262_144})
    reply = client.answer_to_raw(frame)
    assert reply["id"] == -1
    assert "262144" in error_of(reply)[1]
    almost = json.dumps({"id": 1001, "method": STATUS, "params": [0] * 262_140})
    assert error_of(client.answer_to_raw(almost))[0] == -32602


@pytest.mark.parametrize(
    "frame",
    [
        '{"method":"foo/bar","params":{}}',
        '{"method":"process/start","params":{}}',
        '{"method":"process/ack","params":{"processId":5}}',
        '{"id":5,"result":{}}',
        '{"id":5,"result":null}',
        '{"id":5,"error":{"code":1,"message":"x"}}',
        '{"id":"a","result":{}}',
    ],
)
def test_stray_notifications_and_answers_end_the_connection(
    client: ExecClient, server: ServerProcess, frame: str
) -> None:
    client.socket.send(frame)
    assert client.is_dropped()
    with connected(server.url) as other:
        assert other.handshake().call(STATUS) == READY


def test_initialized_before_initialize_ends_the_connection(bare: ExecClient) -> None:
    bare.send({"method": "initialized"})
    assert bare.is_dropped()


# --- size ---


def big_request(size: int) -> str:
    return '{"id":1000,"method":"environment/status","params":{"x":"' + "a" * size + '"}}'


def test_a_message_of_15_mib_passes_in_one_frame(client: ExecClient) -> None:
    assert error_of(client.answer_to_raw(big_request(15 << 20)))[0] == -32602


def test_a_frame_over_16_mib_ends_the_connection(client: ExecClient, server: ServerProcess) -> None:
    with suppress(ConnectionClosed):  # the server need not read to the end before it hangs up
        client.socket.send(big_request(17 << 20))
    assert client.is_dropped()
    with connected(server.url) as other:
        assert other.handshake().call(STATUS) == READY


def test_17_mib_pass_in_fragments(client: ExecClient) -> None:
    text = big_request(17 << 20)
    pieces: Iterator[str] = (text[at : at + (1 << 20)] for at in range(0, len(text), 1 << 20))
    client.socket.send(pieces)
    assert error_of(client.reply_to(1000))[0] == -32602
    assert client.call(STATUS) == READY


# --- methods and params ---


@pytest.mark.parametrize(
    "method", ["foo/bar", "process/resizePty", "fs/join", "ping", "shutdown", "", "é", "x" * 10_000]
)
def test_unknown_methods(client: ExecClient, method: str) -> None:
    code, text = client.failure(method, {"any": "thing"})
    assert code == -32601
    assert "does not implement" in text
    assert len(text) < 1000, "an error does not repeat whatever it was sent"


@pytest.mark.parametrize(
    ("method", "field"),
    [
        ("initialize", "clientName"),
        ("process/start", "processId"),
        ("process/read", "processId"),
        ("process/write", "processId"),
        ("process/signal", "processId"),
        ("process/terminate", "processId"),
        ("process/resize", "processId"),
        ("process/closeStdin", "processId"),
        ("fs/readFile", "path"),
        ("fs/writeFile", "path"),
        ("fs/createDirectory", "path"),
        ("fs/getMetadata", "path"),
        ("fs/canonicalize", "path"),
        ("fs/readDirectory", "path"),
        ("fs/walk", "path"),
        ("fs/remove", "path"),
        ("fs/copy", "sourcePath"),
        ("fs/open", "handleId"),
        ("fs/readBlock", "handleId"),
        ("fs/writeBlock", "handleId"),
        ("fs/close", "handleId"),
        ("fs/watchMissing", "watchId"),
        ("http/request", "method"),
    ],
)
@pytest.mark.parametrize("params", [None, {}], ids=["absent", "empty"])
def test_missing_params_name_the_first_missing_field(
    client: ExecClient, method: str, field: str, params: object
) -> None:
    code, text = client.failure(method, params)
    assert code == -32602
    assert f"`{field}`" in text


def test_half_a_character_is_named_and_a_nul_starts_nothing(client: ExecClient, tmp_path: Path) -> None:
    code, text = client.failure("process/start", start_params("p", ["true", "a\ud800b"], tmp_path))
    assert (code, text) == (-32602, "a text has half a character (a lone surrogate)")
    assert "NUL" in client.failure("process/start", start_params("p", ["true", "a\0b"], tmp_path))[1]
    assert client.call("process/list") == {"processes": []}


@pytest.mark.parametrize("params", [[], 5, "x", True, {"x": 1}])
@pytest.mark.parametrize("method", ["environment/info", STATUS, "process/list"])
def test_methods_without_params_refuse_some(client: ExecClient, method: str, params: object) -> None:
    assert client.failure(method, params)[0] == -32602


@pytest.mark.parametrize(
    "change",
    [
        {"processId": 5},
        {"processId": None},
        {"argv": "true"},
        {"argv": ["true", 1]},
        {"argv": []},
        {"cwd": 7},
        {"env": [["A", "b"]]},
        {"env": {"A": 1}},
        {"tty": "yes"},
        {"tty": 1},
        {"pipeStdin": None},
        {"arg0": 3},
        {"envPolicy": {"inherit": "all"}},
        {"envPolicy": {"inherit": "some", "ignoreDefaultExcludes": True, "exclude": [], "set": {}, "includeOnly": []}},
        {"sandbox": {}},
        {"sandbox": {"permissions": {"type": "other"}}},
    ],
    ids=str,
)
def test_process_start_refuses_wrong_params(client: ExecClient, tmp_path: Path, change: Json) -> None:
    assert client.failure("process/start", {**start_params("p", ["true"], tmp_path), **change})[0] == -32602
    assert client.call("process/list") == {"processes": []}


@pytest.mark.parametrize("field", ["processId", "argv", "cwd", "env", "tty"])
def test_process_start_requires(client: ExecClient, tmp_path: Path, field: str) -> None:
    params = start_params("p", ["true"], tmp_path)
    del params[field]
    code, text = client.failure("process/start", params)
    assert code == -32602
    assert f"`{field}`" in text


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("process/read", {"waitMs": -1}),
        ("process/read", {"waitMs": 1.5}),
        ("process/read", {"afterSeq": -1}),
        ("process/read", {"maxBytes": -1}),
        ("process/read", {"maxBytes": "1"}),
        ("process/read", {"afterSeq": 2**64}),
        ("process/write", {"chunk": "eA=="}),
        ("process/write", {"chunk": "eA==", "writeId": ""}),
        ("process/write", {"chunk": "eA==", "writeId": 1}),
        ("process/write", {"chunk": "%%%", "writeId": "a"}),
        ("process/write", {"chunk": "aGk", "writeId": "a"}),
        ("process/write", {"chunk": "_-8=", "writeId": "a"}),
        ("process/write", {"chunk": "aGk=\n", "writeId": "a"}),
        ("process/signal", {"signal": "nuke"}),
        ("process/signal", {"signal": 9}),
        ("process/signal", {}),
        ("process/terminate", {"graceMs": -1}),
        ("process/resize", {"rows": 0, "cols": 80}),
        ("process/resize", {"rows": 24, "cols": 65536}),
        ("process/resize", {"rows": 24}),
    ],
    ids=str,
)
def test_process_methods_refuse_wrong_params(client: ExecClient, tmp_path: Path, method: str, params: Json) -> None:
    client.start("p", ["cat"], tmp_path, pipeStdin=True)
    assert client.failure(method, {"processId": "p", **params})[0] == -32602
    assert client.call("process/terminate", {"processId": "p"}) == {"running": True}
    assert client.story("p")[0]["method"] == "process/exited", "the refused request did nothing"


@pytest.mark.parametrize("method", ["process/read", "process/closeStdin", "process/resize"])
def test_unknown_process(client: ExecClient, method: str) -> None:
    params = {"processId": "nope", "rows": 1, "cols": 1}
    assert client.failure(method, params) == (-32600, "unknown process id nope")


def test_unknown_process_where_it_is_no_error(client: ExecClient) -> None:
    assert client.write("nope", b"x", "w1") == "unknownProcess"
    assert client.call("process/terminate", {"processId": "nope"}) == {"running": False}
    assert client.call("process/signal", {"processId": "nope", "signal": "interrupt"}) == {}


@pytest.mark.parametrize(
    "cwd",
    [
        "/folder",
        "folder",
        "",
        "http://x/folder",
        "file:///C:/folder",
        "file://elsewhere/folder",
        "file:///folder?x=1",
        "file:///folder#x",
        "file:///%00/x",
    ],
)
def test_cwd_must_be_a_file_uri_of_this_host(client: ExecClient, tmp_path: Path, cwd: str) -> None:
    code, text = client.failure("process/start", {**start_params("p", ["true"], tmp_path), "cwd": cwd})
    assert code == -32602
    assert "cwd" in text


Prepare = Callable[[Path], Json]


def _missing_cwd(folder: Path) -> Json:
    return start_params("p", ["true"], folder / "missing")


def _file_as_cwd(folder: Path) -> Json:
    (folder / "file").touch()
    return start_params("p", ["true"], folder / "file")


def _directory_as_program(folder: Path) -> Json:
    return start_params("p", [str(folder)], folder)


def _not_executable(folder: Path) -> Json:
    (folder / "text").write_text("hello")
    return start_params("p", [str(folder / "text")], folder)


def _not_a_program(folder: Path) -> Json:
    (folder / "text").write_text("hello")
    (folder / "text").chmod(0o755)
    return start_params("p", [str(folder / "text")], folder)


def _too_long(folder: Path) -> Json:
    return start_params("p", ["echo", "x" * (4 << 20)], folder)


@pytest.mark.parametrize(
    ("prepare", "reason"),
    [
        (lambda folder: start_params("p", ["/no/such/program"], folder), "No such file or directory (os error 2)"),
        (lambda folder: start_params("p", ["nosuchprogramxyz"], folder), "No such file or directory (os error 2)"),
        (_missing_cwd, "No such file or directory (os error 2)"),
        (_file_as_cwd, "Not a directory (os error 20)"),
        (_directory_as_program, "Permission denied (os error 13)"),
        (_not_executable, "Permission denied (os error 13)"),
        (_not_a_program, "Exec format error (os error 8)"),
        (_too_long, "Argument list too long (os error 7)"),
        (lambda folder: start_params("p", [""], folder), "empty"),
        (lambda folder: start_params("p", ["echo", "a\0b"], folder), "NUL"),
        (lambda folder: start_params("p", ["echo"], folder, arg0="a\0b"), "NUL"),
        (lambda folder: start_params("p", ["env"], folder, env={"A": "a\0b"}), "NUL"),
        (lambda folder: start_params("p", ["env"], folder, env={"A\0": "b"}), "NUL"),
    ],
)
@pytest.mark.parametrize("tty", [False, True], ids=["pipes", "tty"])
def test_what_cannot_be_started(client: ExecClient, tmp_path: Path, prepare: Prepare, reason: str, tty: bool) -> None:
    code, text = client.failure("process/start", {**prepare(tmp_path), "tty": tty})
    assert code == -32603
    assert reason in text
    assert client.call("process/list") == {"processes": []}
    assert client.run("p", ["true"], tmp_path, tty=tty)[0] == 0, "the id is free after a failed start"
    assert [event["method"] for event in client.told][-2:] == ["process/exited", "process/closed"]


@pytest.mark.parametrize("member", ["managedNetwork", "networkProxy", "shellSnapshot"])
def test_what_would_need_more_than_this_server_has_is_refused(client: ExecClient, tmp_path: Path, member: str) -> None:
    code, text = client.failure("process/start", start_params("p", ["true"], tmp_path, **{member: {"any": 1}}))
    assert code == -32600
    assert "not started" in text
    assert (
        client.failure("process/start", start_params("p", ["true"], tmp_path, enforceManagedNetwork=True))[0] == -32600
    )


# A value that both JSON parsers may see differently must not get between them.


@pytest.mark.parametrize(
    "frame",
    [
        b'{"id":3,"method":"process/read","params":{"processId":"\xed\xa0\x80"}}',
        b'{"id":3,"method":"process/read","params":{"processId":"\\ud800"}}',
        b'{"id":3,"method":"process/read","params":{"processId":"\\udc80x"}}',
        b'{"id":3,"method":"process/start","params":{"managedNetwork":' + b"[" * 985 + b"]" * 985 + b"}}",
    ],
    ids=["surrogate-bytes", "surrogate-high", "surrogate-low", "deep"],
)
def test_params_that_only_one_parser_takes_are_refused(client: ExecClient, frame: bytes) -> None:
    assert error_of(client.answer_to_raw(frame))[0] in (-32600, -32602)
    assert client.call(STATUS) == READY
