"""The same questions to both servers: where the real one's answer is worth having, ours is the same.

Results are compared whole, errors by their code: texts are our own. Each server works in a folder of its own, made
alike; the name of the folder is taken out of the answers.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from kit.exec_client import ExecClient, connected

pytestmark = [pytest.mark.interop, pytest.mark.anyio]

Question = tuple[str, Any]

WALK = {"maxDepth": 5, "maxDirectories": 100, "maxEntries": 1000, "followDirectorySymlinks": False}
# In place of the folder in questions and answers.
ROOT = "file:///ROOT"


def start(**changes: object) -> Question:
    params = {"processId": "p", "argv": ["true"], "cwd": ROOT, "env": {}, "tty": False, **changes}
    return "process/start", params


def path(method: str, name: str, **more: object) -> Question:
    return f"fs/{method}", {"path": f"{ROOT}/{name}".rstrip("/"), **more}


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


FILES: list[Question] = [
    path("readFile", "a.txt"),
    path("readFile", "nope"),
    path("readFile", "d"),
    path("readFile", "fifo"),
    path("readFile", "link"),
    path("readFile", "link", followSymlinks=False),
    path("readFile", "broken"),
    path("readFile", "spa%20ce%25%C3%A9.txt"),
    ("fs/readFile", {"path": "file:///dev/zero"}),
    ("fs/readFile", {"path": "/etc/hostname"}),
    ("fs/readFile", {"path": "http://host/x"}),
    ("fs/readFile", {"path": "file:///etc?x=1"}),
    ("fs/readFile", {"path": "file:///etc#x"}),
    ("fs/readFile", {"path": "file://host/etc"}),
    ("fs/readFile", {"path": "file:///C:/etc"}),
    ("fs/readFile", {}),
    path("writeFile", "w.txt", dataBase64=b64(b"data")),
    path("readFile", "w.txt"),
    path("writeFile", "no/w.txt", dataBase64=b64(b"data")),
    path("writeFile", "d", dataBase64=b64(b"data")),
    path("writeFile", "w2", dataBase64="%%"),
    path("writeFile", "link", dataBase64=b64(b"x"), followSymlinks=False),
    path("createDirectory", "nd"),
    path("createDirectory", "nd"),
    path("createDirectory", "nd", recursive=False),
    path("createDirectory", "x/y/z"),
    path("createDirectory", "x2/y/z", recursive=False),
    path("getMetadata", "a.txt"),
    path("getMetadata", "link"),
    path("getMetadata", "dlink"),
    path("getMetadata", "link", followSymlinks=False),
    path("getMetadata", "broken"),
    path("getMetadata", "broken", followSymlinks=False),
    path("getMetadata", "fifo"),
    path("getMetadata", "nope"),
    path("canonicalize", "dlink/../link"),
    path("canonicalize", "dlink/b.txt"),
    path("canonicalize", "nope"),
    path("readDirectory", ""),
    path("readDirectory", "a.txt"),
    path("readDirectory", "nope"),
    path("walk", "", options=WALK),
    path("walk", "", options={**WALK, "followDirectorySymlinks": True, "pruneHiddenDirectories": True}),
    path("walk", "", options={**WALK, "maxEntries": 3}),
    path("walk", "", options={**WALK, "maxDepth": 0}),
    path("walk", "", options={**WALK, "maxDepth": 100}),
    path("walk", "nope", options=WALK),
    path("walk", "a.txt", options=WALK),
    path("walk", "", options={}),
    ("fs/copy", {"sourcePath": f"{ROOT}/a.txt", "destinationPath": f"{ROOT}/copy.txt", "recursive": False}),
    path("readFile", "copy.txt"),
    ("fs/copy", {"sourcePath": f"{ROOT}/d", "destinationPath": f"{ROOT}/dcopy", "recursive": False}),
    ("fs/copy", {"sourcePath": f"{ROOT}/d", "destinationPath": f"{ROOT}/dcopy", "recursive": True}),
    path("walk", "dcopy", options=WALK),
    ("fs/copy", {"sourcePath": f"{ROOT}/d", "destinationPath": f"{ROOT}/d/sub/inner", "recursive": True}),
    ("fs/copy", {"sourcePath": f"{ROOT}/link", "destinationPath": f"{ROOT}/linkcopy", "recursive": False}),
    path("getMetadata", "linkcopy"),
    ("fs/copy", {"sourcePath": f"{ROOT}/nope", "destinationPath": f"{ROOT}/q", "recursive": False}),
    ("fs/copy", {"sourcePath": f"{ROOT}/fifo", "destinationPath": f"{ROOT}/q", "recursive": False}),
    ("fs/copy", {"sourcePath": f"{ROOT}/a.txt", "destinationPath": f"{ROOT}/q"}),
    path("remove", "nope"),
    path("remove", "nope", force=False),
    path("remove", "d", recursive=False),
    path("remove", "nd", recursive=False),
    path("remove", "dlink"),
    path("remove", "dcopy"),
    path("readDirectory", ""),
    ("fs/open", {"handleId": "h", "path": f"{ROOT}/a.txt"}),
    ("fs/open", {"handleId": "h", "path": f"{ROOT}/a.txt"}),
    ("fs/readBlock", {"handleId": "h", "offset": 0, "len": 3}),
    ("fs/readBlock", {"handleId": "h", "offset": 3, "len": 2}),
    ("fs/readBlock", {"handleId": "h", "offset": 3, "len": 100}),
    ("fs/readBlock", {"handleId": "h", "offset": 100, "len": 100}),
    ("fs/readBlock", {"handleId": "h", "offset": 0, "len": 0}),
    ("fs/readBlock", {"handleId": "h", "offset": 0, "len": 2_000_000}),
    ("fs/readBlock", {"handleId": "zz", "offset": 0, "len": 2}),
    ("fs/writeBlock", {"handleId": "h", "offset": 0, "chunk": b64(b"abc")}),
    ("fs/close", {"handleId": "h"}),
    ("fs/close", {"handleId": "h"}),
    ("fs/open", {"handleId": "w", "path": f"{ROOT}/blocks", "mode": "replace"}),
    ("fs/writeBlock", {"handleId": "w", "offset": 0, "chunk": b64(b"abc")}),
    ("fs/writeBlock", {"handleId": "w", "offset": 5, "chunk": b64(b"z")}),
    ("fs/writeBlock", {"handleId": "w", "offset": 0, "chunk": ""}),
    ("fs/readBlock", {"handleId": "w", "offset": 0, "len": 10}),
    ("fs/close", {"handleId": "w"}),
    path("readFile", "blocks"),
    ("fs/open", {"handleId": "d", "path": f"{ROOT}/d"}),
    ("fs/open", {"handleId": "f", "path": f"{ROOT}/fifo"}),
    ("fs/open", {"handleId": "m", "path": f"{ROOT}/a.txt", "mode": "write"}),
    ("fs/open", {"handleId": "x" * 33, "path": f"{ROOT}/a.txt"}),
]

PROCESSES: list[Question] = [
    start(argv=[]),
    start(argv=[""]),
    start(argv=["/no/such/program"]),
    start(argv=["no-such-program"]),
    start(argv=["a\0b"]),
    start(argv=[str(Path("/"))]),
    start(cwd="file:///no/such/folder"),
    start(cwd="/tmp"),
    start(cwd="file:///C:/x"),
    start(cwd="file://host/x"),
    start(processId=5),
    start(tty="yes"),
    ("process/start", {"processId": "p"}),
    ("process/read", {"processId": "nope"}),
    ("process/read", {"processId": "nope", "waitMs": -1}),
    ("process/read", {"processId": "nope", "afterSeq": 1.5}),
    ("process/write", {"processId": "nope", "chunk": "eA==", "writeId": "1"}),
    ("process/write", {"processId": "nope", "chunk": "eA==", "writeId": ""}),
    ("process/write", {"processId": "nope", "chunk": "eA==", "writeId": None}),
    ("process/write", {"processId": "nope", "chunk": "%%%", "writeId": "1"}),
    ("process/write", {"processId": "nope", "chunk": "aGk", "writeId": "1"}),
    ("process/write", {"processId": "nope", "chunk": "_-8=", "writeId": "1"}),
    ("process/signal", {"processId": "nope", "signal": "interrupt"}),
    ("process/signal", {"processId": "nope", "signal": "bogus"}),
    ("process/terminate", {"processId": "nope"}),
    ("environment/status", None),
    ("environment/status", {}),
    ("environment/status", []),
    ("environment/status", 5),
    ("environment/status", {"x": 1}),
    ("initialize", {"clientName": "again"}),
    ("initialize", {}),
    ("no/such/method", {}),
]

RUNS: list[dict[str, object]] = [
    {"argv": ["/bin/sh", "-c", "echo out; sleep 0.2; echo err >&2; sleep 0.2; exit 7"]},
    {"argv": ["/bin/sh", "-c", "sleep 0.2; exit 300"]},
    {"argv": ["/bin/sh", "-c", "sleep 0.2; kill -9 $$"]},
    {"argv": ["/bin/sh", "-c", "echo $0 $A; sleep 0.2"], "arg0": "name", "env": {"A": "b"}},
    {"argv": ["pwd"], "cwd": f"{ROOT}/d/../d"},
    {"argv": ["env"], "env": {"B": "1"}},
    {
        "argv": ["/bin/sh", "-c", "/usr/bin/env | /usr/bin/sort"],
        "env": {"A": "env", "Q": "1"},
        "envPolicy": {
            "inherit": "all",
            "ignoreDefaultExcludes": True,
            "exclude": [],
            "set": {"SETZ": "1", "A": "set"},
            "includeOnly": ["set*", "lang"],
        },
    },
    {"argv": ["/bin/sh", "-c", "stty size; tty >/dev/null && echo terminal; sleep 0.2"], "tty": True},
]


@pytest.fixture
def pair(
    real_exec_server: str, treadle_exec_server: str, tmp_path: Path
) -> Iterator[tuple[tuple[ExecClient, Path], tuple[ExecClient, Path]]]:
    with ExitStack() as stack:
        sides = []
        for name, url in (("ours", treadle_exec_server), ("real", real_exec_server)):
            client = stack.enter_context(connected(url))
            client.handshake()
            sides.append((client, make_tree(tmp_path / name)))
        yield sides[0], sides[1]


def make_tree(root: Path) -> Path:
    for folder in ("d/sub", ".hid/in"):
        (root / folder).mkdir(parents=True)
    (root / "a.txt").write_bytes(b"hello")
    (root / "d" / "b.txt").write_bytes(b"b")
    (root / "d" / "sub" / "c.txt").write_bytes(b"c")
    (root / ".hid" / "in" / "h.txt").write_bytes(b"h")
    (root / "spa ce%é.txt").write_bytes(b"u")
    (root / "link").symlink_to("a.txt")
    (root / "dlink").symlink_to("d")
    (root / "broken").symlink_to("nowhere")
    os.mkfifo(root / "fifo")
    return root


def asked(client: ExecClient, root: Path, method: str, params: object) -> object:
    """The result, or the code of the error."""
    question = json.loads(json.dumps(params).replace(ROOT, root.as_uri()))
    reply = client.reply_to(client.request(method, question))
    if "error" in reply:
        return reply["error"]["code"]
    return normal(json.loads(json.dumps(reply["result"]).replace(root.as_uri(), ROOT)))


def normal(result: Any) -> Any:
    """Without what cannot be the same: times, the order of a listing, members that are our extensions."""
    if "entries" in result and "truncated" not in result:
        result["entries"].sort(key=lambda entry: entry["fileName"])
    return {name: value for name, value in result.items() if name not in ("modifiedAtMs", "createdAtMs", "exitedSeq")}


async def compare(pair: Any, questions: Sequence[Question]) -> None:
    (ours, our_root), (real, real_root) = pair

    def ask() -> list[tuple[Question, object, object]]:
        return [(q, asked(ours, our_root, *q), asked(real, real_root, *q)) for q in questions]

    different = [row for row in await asyncio.to_thread(ask) if row[1] != row[2]]
    assert different == [], "\n".join(f"{q}\n   ours {o}\n   real {r}" for q, o, r in different)


async def test_files(pair: Any) -> None:
    await compare(pair, FILES)


async def test_processes(pair: Any) -> None:
    await compare(pair, PROCESSES)


async def test_runs(pair: Any) -> None:
    def run(client: ExecClient, root: Path) -> list[object]:
        stories: list[object] = []
        for number, changes in enumerate(RUNS):
            params = {"processId": str(number), "cwd": ROOT, "env": {}, "tty": False, **changes}
            assert asked(client, root, "process/start", params) == {"processId": str(number), "sandboxType": "none"}
            client.wait_for_process("process/closed", str(number))
            read = asked(client, root, "process/read", {"processId": str(number)})
            assert isinstance(read, dict)
            read["chunks"] = _joined(read["chunks"], root)
            stories.append({name: value for name, value in read.items() if name != "nextSeq"})
        return stories

    (ours, our_root), (real, real_root) = pair
    assert await asyncio.to_thread(run, ours, our_root) == await asyncio.to_thread(run, real, real_root)


def _joined(chunks: list[dict[str, str]], root: Path) -> dict[str, bytes]:
    """How the output was cut into chunks is the pipe's business."""
    streams: dict[str, bytes] = {}
    for chunk in chunks:
        streams[chunk["stream"]] = streams.get(chunk["stream"], b"") + base64.b64decode(chunk["chunk"])
    return {name: data.replace(os.fsencode(root), b"ROOT") for name, data in streams.items()}


class _Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/moved":
            self._answer(302, b"", ("Location", "/ok"))
        else:
            self._answer(200, f"{self.path} {self.headers.get('X-Q')}".encode(), ("X-A", "1"), ("X-A", "2"))

    def do_POST(self) -> None:
        self._answer(201, self.rfile.read(int(self.headers["Content-Length"])))

    def _answer(self, status: int, body: bytes, *headers: tuple[str, str]) -> None:
        self.send_response_only(status)
        for header in (*headers, ("Content-Length", str(len(body)))):
            self.send_header(*header)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def page() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Page) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


async def test_http(pair: Any, page: str) -> None:
    def request(**changes: object) -> Question:
        return "http/request", {"method": "GET", "url": f"{page}/ok", "requestId": "r", **changes}

    await compare(
        pair,
        [
            request(),
            request(headers=[{"name": "X-Q", "value": "1"}]),
            request(method="POST", bodyBase64=b64(b"body!")),
            request(url=f"{page}/moved"),
            request(url=f"{page}/moved", redirectPolicy="stop"),
            request(url="http://127.0.0.1:1/"),
            request(url="ftp://x/"),
            request(url="nourl"),
            request(method="BAD METHOD"),
            request(requestId=None),
            request(streamResponse=True),
        ],
    )
    (ours, _), (real, _) = pair
    deltas = [await asyncio.to_thread(_deltas, client) for client in (ours, real)]
    assert deltas[0] == deltas[1] == b"/ok None"


def _deltas(client: ExecClient) -> bytes:
    while not (client.told and client.told[-1]["params"].get("done")):
        client.receive()
    deltas = [event["params"] for event in client.told if event["method"] == "http/request/bodyDelta"]
    assert [delta["seq"] for delta in deltas] == list(range(1, len(deltas) + 1))
    return b"".join(base64.b64decode(delta["deltaBase64"]) for delta in deltas)
