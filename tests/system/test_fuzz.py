"""Hostile and random messages: the server never crashes, never hangs, and leaves no process behind.

One server for all of it. After every example it must still answer; at the end it must be the same process, without a
traceback in its log, and nothing that it was made to run may be left.

What is generated can start only harmless programs and touch only one folder: see `Guard`.
"""

from __future__ import annotations

import base64
import json
import os
import random
import re
import socket
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from websockets.exceptions import ConnectionClosed

from kit.exec_client import ExecClient, connected
from kit.exec_program import running
from kit.processes import DEADLINE_S, processes_left
from kit.server_process import ServerProcess
from kit.transports import Gone
from kit.wire_client import Json
from treadle.protocol.exec import METHODS
from treadle.transport import Address

MARKER: Final = f"3600.{uuid.uuid4().int % 10**15:015d}"
# Placeholders, since the examples are made before the folder is: replaced in the text of a frame.
FOLDER: Final = "@FOLDER@"
STATUS: Final = "environment/status"

COMMANDS: Final[tuple[list[str], ...]] = (
    ["true", MARKER],
    ["sleep", MARKER],
    ["/bin/sh", "-c", f"cat; : {MARKER}"],
    ["/bin/sh", "-c", f"echo out; echo err >&2; (setsid sleep {MARKER} &); : {MARKER}"],
    ["/no/such/program"],
    [""],
    [],
)
NAMES: Final = ("", *"pqrstuvwxyz")
# Not the folder itself: it must outlive requests to remove it.
PATHS: Final = tuple(f"file://{FOLDER}/files{name}" for name in ("", "/a", "/b/c", "/a/../b", "/%FF"))
NONSENSE: Final = ("", "/", "..", "relative", "http://x/", "file", "\0", "é" * 50)

_settings = settings(
    derandomize=True,
    deadline=None,
    max_examples=80,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)


class Guard:
    """Refuses every frame that could name a file outside the folder, whatever a mutation made of it."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)
        self._uris = re.compile(rb"file:(?!//" + re.escape(os.fsencode(folder)) + rb"/)", re.IGNORECASE)

    def frame(self, text: str | bytes) -> str | bytes | None:
        raw = text.encode("utf-8", "replace") if isinstance(text, str) else text
        raw = raw.replace(FOLDER.encode(), self._folder.encode())
        if self._uris.search(raw) or (b"fs/" in raw and b"/../.." in raw):
            return None
        return raw.decode() if isinstance(text, str) else raw


class Target:
    """The server under fire, and a connection that is opened again whenever the server drops it."""

    def __init__(self, server: ServerProcess, folder: Path) -> None:
        self.server = server
        self.guard = Guard(folder)
        self._open = ExitStack()
        self._client: ExecClient | None = None
        self._uses = 0

    def client(self) -> ExecClient:
        self._uses += 1
        if self._client is None or self._uses % 25 == 0:
            self.hang_up()
            self._client = self._open.enter_context(connected(self.server.url)).handshake()
        return self._client

    def hang_up(self) -> None:
        self._open.close()
        self._client = None

    def fire(self, *frames: str | bytes) -> None:
        """Send, then see that the server answers: on the same connection, or on a new one when it hung up."""
        client = self.client()
        try:
            for frame in map(self.guard.frame, frames):
                if frame is not None:
                    client.socket.send(frame)
            self._ask(client)
        except (ConnectionClosed, Gone):  # while sending, or while waiting
            self.hang_up()
            self._ask(self.client())
        assert self.server.process.poll() is None, self.server.stderr

    def _ask(self, client: ExecClient) -> None:
        question = uuid.uuid4().hex
        client.send({"id": question, "method": STATUS})
        assert client.reply_to(question)["result"] == {"status": "ready"}
        client.told.clear()
        client.forget_replies()


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    folder = tmp_path_factory.mktemp("fuzz").resolve()
    with running(tmp_path_factory.mktemp("server")) as server:
        target = Target(server, folder)
        yield target
        target.hang_up()
        assert server.process.poll() is None, server.stderr
        assert server.stop() == 0
        assert "Traceback" not in server.stderr, server.stderr
    assert processes_left(MARKER) == []


@pytest.fixture(autouse=True)
def still_works(target: Target, tmp_path: Path) -> Iterator[None]:
    """Answering is not all: after each test a new client can run a command."""
    yield
    with connected(target.server.url) as client:
        assert client.handshake().run("after", ["echo", "well"], tmp_path) == (0, b"well\n")


# --- values ---

_texts = st.text(max_size=20) | st.sampled_from(["p", "initialize", "𝔸", "a" * 300])
_numbers = st.integers() | st.sampled_from([0, -1, 2**31, 2**63, 2**64, 10**30])
_scalars = st.none() | st.booleans() | _numbers | st.floats() | _texts
_values = st.recursive(
    _scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_texts, inner, max_size=4), max_leaves=12
)
_base64 = st.binary(max_size=40).map(lambda data: base64.b64encode(data).decode())
_paths = st.sampled_from(PATHS + NONSENSE)
_small = st.sampled_from([0, 1, 20, 30])
_sandboxes = st.none() | st.just({"permissions": {"type": "disabled"}}) | _values

# Fields with values that are mostly right, so that requests get past their decoding.
_FIELDS: Final[dict[str, st.SearchStrategy[Any]]] = {
    "processId": st.sampled_from(NAMES),
    "argv": st.sampled_from(COMMANDS),
    "cwd": st.just(f"file://{FOLDER}/") | _paths,
    "env": st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3),
    "tty": st.booleans(),
    "pipeStdin": st.booleans(),
    "arg0": st.none() | st.text(max_size=5),
    "sandbox": _sandboxes,
    "afterSeq": st.none() | _numbers,
    "maxBytes": st.none() | _numbers,
    "waitMs": _small,
    "chunk": _base64,
    "writeId": st.text(max_size=3),
    "signal": st.sampled_from(["interrupt", "terminate", "kill", "stop", "continue", "nuke"]),
    "graceMs": _small,
    "rows": _numbers,
    "cols": _numbers,
    "clientName": _texts,
    "resumeSessionId": st.none() | _texts,
    "path": _paths,
    "sourcePath": _paths,
    "destinationPath": _paths,
    "dataBase64": _base64,
    "recursive": st.booleans(),
    "force": st.booleans(),
    "followSymlinks": st.booleans(),
    "options": st.fixed_dictionaries(
        {
            "maxDepth": _small,
            "maxDirectories": _small,
            "maxEntries": _small,
            "followDirectorySymlinks": st.booleans(),
        }
    ),
    "handleId": st.sampled_from(["h", "i", "x" * 33]),
    "mode": st.sampled_from(["read", "replace"]),
    "offset": _small | _numbers,
    "len": _small | _numbers,
    "watchId": _small,
    "missing": st.lists(_paths, max_size=2),
    "present": st.none() | _paths,
    "method": st.just("GET"),
    "url": st.sampled_from(["http://127.0.0.1:1/", "nonsense", ""]),
    "requestId": st.text(max_size=3),
    "timeoutMs": st.just(200),
}


def _wire_fields(method: str) -> list[str]:
    known = METHODS[method].params.__struct_encode_fields__
    return [name for name in known if name in _FIELDS]


@st.composite
def plausible(draw: st.DrawFn) -> Json:
    """A request for a real method, with some of its fields, each mostly right."""
    method = draw(st.sampled_from(sorted(METHODS)))
    fields = {name: _FIELDS[name] for name in _wire_fields(method)}
    params = draw(st.fixed_dictionaries(fields) | st.fixed_dictionaries({}, optional=fields))
    if params and draw(st.integers(0, 4)) == 0:
        # Paths and programs stay as they were chosen.
        loose = sorted(set(params) - {"argv", "cwd", "path", "sourcePath", "destinationPath", "url"})
        if loose:
            params[draw(st.sampled_from(loose))] = draw(_values)
    return {"id": draw(st.integers(0, 2**31)), "method": method, "params": params}


# --- the tests ---


@_settings
@given(st.lists(st.binary(max_size=200), min_size=1, max_size=5))
@example([b""])
@example([b"\x00" * 100, b"\xff" * 100])
def test_random_bytes(target: Target, frames: list[bytes]) -> None:
    target.fire(*frames)


@_settings
@given(st.lists(st.text(max_size=100), min_size=1, max_size=5))
def test_random_text(target: Target, frames: list[str]) -> None:
    with suppress(UnicodeEncodeError):
        target.fire(*frames)


@_settings
@given(st.lists(_values, min_size=1, max_size=5))
def test_random_json(target: Target, values: list[object]) -> None:
    target.fire(*(json.dumps(value) for value in values))


@_settings
@given(
    st.fixed_dictionaries(
        {},
        optional={
            "id": _scalars,
            "method": st.sampled_from([*sorted(METHODS), "initialized", "process/ack", "x"]) | _scalars,
            "params": _values,
            "result": _values,
            "error": _values,
            "jsonrpc": _values,
            "trace": _values,
        },
    )
)
def test_random_envelopes(target: Target, message: Json) -> None:
    target.fire(json.dumps(message))


@settings(_settings, max_examples=200)
@given(st.lists(plausible(), min_size=1, max_size=6))
def test_plausible_requests(target: Target, messages: list[Json]) -> None:
    target.fire(*map(json.dumps, messages))


@_settings
@given(
    st.lists(st.sampled_from(["initialize", "initialized", "resume", "status", "start", "read", "garbage"]), max_size=8)
)
def test_random_handshakes(target: Target, words: list[str]) -> None:
    frames = {
        "initialize": '{"id":1,"method":"initialize","params":{"clientName":"x"}}',
        "resume": '{"id":1,"method":"initialize","params":{"clientName":"x","resumeSessionId":"y"}}',
        "initialized": '{"method":"initialized"}',
        "status": '{"id":1,"method":"environment/status"}',
        "start": json.dumps({"id": 2, "method": "process/start", "params": _start("p", ["sleep", MARKER])}),
        "read": '{"id":3,"method":"process/read","params":{"processId":"p"}}',
        "garbage": "garbage",
    }
    with connected(target.server.url) as client, suppress(ConnectionClosed):
        for word in words:
            frame = target.guard.frame(frames[word])
            assert frame is not None
            client.socket.send(frame)
    target.fire()


@_settings
@given(st.lists(st.binary(max_size=64), max_size=4), st.booleans())
@example([b"\x81\xfe"], True)
@example([b"\x88\x80\0\0\0\0"], True)
@example([b"\x81\xff\xff\xff\xff\xff\xff\xff\xff\xff"], True)
@example([b"\x01\x80\0\0\0\0" + b"\x00\x80\0\0\0\0" * 1000], True)
def test_random_bytes_on_the_socket(target: Target, pieces: list[bytes], upgrade: bool) -> None:
    address = Address.parse(target.server.url)
    with socket.create_connection((address.host, address.port), DEADLINE_S) as raw, suppress(ConnectionError):
        if upgrade:
            raw.sendall(
                f"GET {address.path} HTTP/1.1\r\n".encode()
                + b"Host: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
            )
        for piece in pieces:
            raw.sendall(piece)
    target.fire()


def _start(name: str, argv: list[str], **more: object) -> Json:
    env = {"PATH": "/usr/bin:/bin"}
    return {"processId": name, "argv": argv, "cwd": f"file://{FOLDER}/", "env": env, "tty": False, **more}


# No file requests among these: a mutated path could be anything (the guard would stop it, but need not).
VALID: Final = tuple(
    json.dumps(message)
    for message in (
        {"id": 1, "method": "initialize", "params": {"clientName": "x", "resumeSessionId": None}},
        {"method": "initialized", "params": {}},
        {"id": 2, "method": STATUS},
        {"id": 3, "method": "environment/info", "params": {}},
        {"id": 4, "method": "process/read", "params": {"processId": "p", "afterSeq": 0, "maxBytes": 9, "waitMs": 5}},
        {"id": 5, "method": "process/write", "params": {"processId": "p", "chunk": "eHg=", "writeId": "1"}},
        {"id": 6, "method": "process/signal", "params": {"processId": "p", "signal": "interrupt"}},
        {"id": 7, "method": "process/terminate", "params": {"processId": "p", "graceMs": 5}},
        {"id": 8, "method": "process/resize", "params": {"processId": "p", "rows": 5, "cols": 5}},
        {"id": 9, "method": "process/closeStdin", "params": {"processId": "p"}},
        {"id": 10, "method": "process/list"},
        {"method": "process/ack", "params": {"processId": "p", "seq": 1}},
        {"id": 11, "result": {}},
    )
)
STARTS: Final = tuple(
    json.dumps({"id": 20 + number, "method": "process/start", "params": _start(name, argv, **more)})
    for number, (name, argv, more) in enumerate(
        (name, argv, more)
        for name in NAMES[:6]
        for argv in COMMANDS[:4]
        for more in ({}, {"tty": True}, {"pipeStdin": True}, {"acks": True})
    )
)


def _mutated(text: str, chance: random.Random) -> bytes:
    raw = bytearray(text.encode())
    for _ in range(chance.choice((1, 1, 2, 5))):
        at = chance.randrange(len(raw) + 1)
        match chance.randrange(4):
            case 0:
                raw[at:at] = chance.randbytes(chance.choice((1, 4)))
            case 1:
                del raw[at : at + chance.choice((1, 2, 10))]
            case 2:
                raw[at : at + 1] = chance.choice(
                    (b'"', b"{", b"[", b",", b"\\", b"\\ud800", b"9" * 400, b"\xed\xa0\x80")
                )
            case _:
                start = chance.randrange(len(raw) + 1)
                raw[at:at] = raw[start : start + 20]
    return bytes(raw)


@pytest.mark.parametrize("seed", range(4))
def test_mutated_messages(target: Target, seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(80):
        target.fire(*(_mutated(chance.choice(VALID), chance) for _ in range(8)))


@pytest.mark.parametrize("seed", range(4))
def test_valid_messages_in_random_order(target: Target, seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(40):
        requests = [frame.replace('"p"', f'"{chance.choice(NAMES[:6])}"') for frame in VALID[2:11]]
        target.fire(*chance.choices((*requests, *chance.sample(STARTS, 6)), k=15))


def test_the_valid_messages_are_valid(target: Target) -> None:
    """Otherwise the tests above would try nothing but refusals."""
    with connected(target.server.url) as client:
        client.handshake()
        for number, text in enumerate((*STARTS[:16], *VALID[2:11])):
            frame = target.guard.frame(text.replace('"processId": ""', f'"processId": "{number}"'))
            assert frame is not None
            reply = client.answer_to_raw(frame)
            assert "result" in reply or reply["error"]["message"] == "unknown process id p"


def test_the_guard_stops_what_is_outside(tmp_path: Path) -> None:
    guard = Guard(tmp_path)
    assert guard.frame(f'"file://{FOLDER}/a"') == f'"file://{tmp_path}/a"'
    for frame in ("file:///", "FILE:/x", f"file://{tmp_path}", f"fs/remove file://{FOLDER}/../.."):
        assert guard.frame(frame) is None
