"""The `fs/*` methods as a connection sees them: JSON in, structs out, with the codes that were measured."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from treadle.errors import INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, NOT_FOUND, ExecError
from treadle.execution import FileMethods, decode_base64, uri_from_path
from treadle.protocol.exec import METHODS, MissingChangedNotice

pytestmark = pytest.mark.anyio

DEADLINE = 60
Json = dict[str, object]


class Connection:
    """Calls methods as a server would: decode params, find the handler, encode the result."""

    def __init__(self) -> None:
        self.notices: list[tuple[str, Struct]] = []
        self.noticed = asyncio.Event()
        self.methods = FileMethods(self._notify)

    def _notify(self, method: str, params: Struct) -> None:
        self.notices.append((method, params))
        self.noticed.set()

    async def call(self, method: str, **params: object) -> Json:
        decoded = msgspec.json.decode(msgspec.json.encode(params), type=METHODS[method].params)
        result = await self.methods.handlers[method](decoded)
        assert type(result) is METHODS[method].result
        encoded: Json = msgspec.json.decode(msgspec.json.encode(result))
        return encoded

    async def code(self, method: str, **params: object) -> int:
        with pytest.raises(ExecError) as caught:
            await self.call(method, **params)
        return caught.value.code


@pytest.fixture
async def connection() -> AsyncIterator[Connection]:
    connection = Connection()
    yield connection
    await connection.methods.close()


@pytest.fixture
def uri(tmp_path: Path) -> str:
    (tmp_path / "a.txt").write_bytes(b"hello")
    (tmp_path / "link").symlink_to("a.txt")
    (tmp_path / "d").mkdir()
    return uri_from_path(tmp_path.resolve())


def sandbox(uri: str, access: str) -> Json:
    entry = {"path": {"type": "path", "path": uri}, "access": access}
    file_system = {"type": "restricted", "entries": [entry]}
    return {"permissions": {"type": "managed", "network": "restricted", "file_system": file_system}}


async def test_every_file_method_has_a_handler(connection: Connection) -> None:
    assert set(connection.methods.handlers) == {name for name in METHODS if name.startswith("fs/")}


async def test_files_and_their_encodings(connection: Connection, uri: str) -> None:
    assert await connection.call("fs/readFile", path=f"{uri}/a.txt") == {"dataBase64": "aGVsbG8="}
    assert await connection.call("fs/writeFile", path=f"{uri}/w%20%FF", dataBase64="ZGF0YQ==") == {}
    assert await connection.call("fs/readFile", path=f"{uri}/w%20%FF") == {"dataBase64": "ZGF0YQ=="}
    found = await connection.call("fs/getMetadata", path=f"{uri}/link")
    del found["modifiedAtMs"]
    assert found == {"isDirectory": False, "isFile": True, "isSymlink": True, "size": 5, "createdAtMs": 0}
    assert await connection.call("fs/canonicalize", path=f"{uri}/d/../link") == {"path": f"{uri}/a.txt"}


async def test_many_paths_are_looked_at_as_each_would_be(connection: Connection, uri: str, tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    paths = [f"{uri}/{name}" for name in ("a.txt", "nope", "link", "loop", "d", "a.txt/x")]
    one = [await connection.call("fs/getMetadata", path=paths[number]) for number in (0, 2, 4)]
    found = await connection.call("fs/look", paths=paths)
    assert found == {"found": [one[0], None, one[1], None, one[2], None]}
    confined = await connection.call("fs/look", paths=[f"{uri}/d", f"{uri}/a.txt"], sandbox=sandbox(f"{uri}/d", "read"))
    assert confined == {"found": [one[2], None]}
    assert await connection.call("fs/look", paths=[]) == {"found": []}
    assert await connection.code("fs/look", paths=["a.txt"]) == INVALID_PARAMS


async def test_directories(connection: Connection, uri: str) -> None:
    assert await connection.call("fs/createDirectory", path=f"{uri}/d/x/y") == {}
    assert await connection.code("fs/createDirectory", path=f"{uri}/d", recursive=False) == INTERNAL_ERROR
    listed = await connection.call("fs/readDirectory", path=f"{uri}/d")
    assert listed == {"entries": [{"fileName": "x", "isDirectory": True, "isFile": False}]}
    options = {"maxDepth": 5, "maxDirectories": 9, "maxEntries": 99, "followDirectorySymlinks": False}
    assert await connection.call("fs/walk", path=uri, options=options) == {
        "entries": [
            {"path": f"{uri}/a.txt", "kind": "file"},
            {"path": f"{uri}/d", "kind": "directory"},
            {"path": f"{uri}/d/x", "kind": "directory"},
            {"path": f"{uri}/d/x/y", "kind": "directory"},
        ],
        "errors": [],
        "truncated": False,
    }
    options["maxDepth"] = 100
    assert await connection.code("fs/walk", path=uri, options=options) == INVALID_REQUEST
    copied = await connection.call("fs/copy", sourcePath=f"{uri}/d", destinationPath=f"{uri}/e", recursive=True)
    assert copied == {}
    assert await connection.call("fs/remove", path=f"{uri}/e") == {}
    assert await connection.code("fs/remove", path=f"{uri}/e", force=False) == NOT_FOUND


async def test_blocks(connection: Connection, uri: str) -> None:
    opened = await connection.call("fs/open", handleId="h", path=f"{uri}/a.txt")
    assert opened == {"handleId": "h"}
    assert await connection.call("fs/readBlock", handleId="h", offset=1, len=3) == {"chunk": "ZWxs", "eof": False}
    await connection.call("fs/open", handleId="w", path=f"{uri}/new", mode="replace")
    assert await connection.call("fs/writeBlock", handleId="w", offset=2, chunk="YQ==") == {}
    assert await connection.call("fs/readFile", path=f"{uri}/new") == {"dataBase64": "AABh"}
    assert await connection.call("fs/close", handleId="h") == {}
    assert await connection.call("fs/close", handleId="h") == {}
    assert await connection.code("fs/readBlock", handleId="h", offset=0, len=1) == NOT_FOUND


async def test_closing_the_connection_closes_its_handles(connection: Connection, uri: str) -> None:
    await connection.call("fs/open", handleId="h", path=f"{uri}/a.txt")
    await connection.methods.close()
    assert await connection.code("fs/readBlock", handleId="h", offset=0, len=1) == NOT_FOUND
    assert await connection.code("fs/open", handleId="g", path=f"{uri}/a.txt") == INVALID_REQUEST


async def test_bad_uris_and_bad_base64(connection: Connection, uri: str) -> None:
    assert await connection.code("fs/readFile", path="/a") == INVALID_PARAMS
    assert await connection.code("fs/readFile", path="file://host/a") == INVALID_REQUEST
    assert await connection.code("fs/writeFile", path=f"{uri}/w", dataBase64="%%") == INVALID_REQUEST
    assert await connection.code("fs/readFile", path=f"{uri}/w") == NOT_FOUND


async def test_watch_and_notice(connection: Connection, uri: str, tmp_path: Path) -> None:
    missing = [f"{uri}/m"]
    assert await connection.call("fs/watchMissing", watchId=2**63 - 1, missing=missing) == {"watching": True}
    again = await connection.call("fs/watchMissing", watchId=2**63 - 1, missing=missing, present=None)
    assert again == {"watching": False}
    assert await connection.code("fs/watchMissing", watchId=2, missing=["/m"]) == INVALID_PARAMS
    (tmp_path / "m").touch()
    async with asyncio.timeout(DEADLINE):
        await connection.noticed.wait()
    assert connection.notices == [("fs/missingChanged", MissingChangedNotice(watch_id=2**63 - 1))]


async def test_the_sandbox_of_a_request_is_enforced(connection: Connection, uri: str, tmp_path: Path) -> None:
    (tmp_path / "d" / "out").symlink_to("../a.txt")
    inside, outside = sandbox(f"{uri}/d", "write"), f"{uri}/d/out"
    read_only = sandbox(uri, "read")
    assert await connection.code("fs/readFile", path=outside, sandbox=inside) == INVALID_REQUEST
    assert await connection.code("fs/open", handleId="h", path=outside, sandbox=inside) == INVALID_REQUEST
    assert await connection.call("fs/writeFile", path=f"{uri}/d/w", dataBase64="eA==", sandbox=inside) == {}
    writes: list[tuple[str, Json]] = [
        ("fs/writeFile", {"path": f"{uri}/a.txt", "dataBase64": "eA=="}),
        ("fs/createDirectory", {"path": f"{uri}/n"}),
        ("fs/remove", {"path": f"{uri}/a.txt"}),
        ("fs/copy", {"sourcePath": f"{uri}/a.txt", "destinationPath": f"{uri}/n", "recursive": False}),
        ("fs/open", {"handleId": "r", "path": f"{uri}/a.txt", "mode": "replace"}),
    ]
    for method, params in writes:
        assert await connection.code(method, **params, sandbox=read_only) == INTERNAL_ERROR, method
    options = {"maxDepth": 5, "maxDirectories": 9, "maxEntries": 99, "followDirectorySymlinks": False}
    reads: list[tuple[str, Json]] = [
        ("fs/readFile", {"path": f"{uri}/a.txt"}),
        ("fs/getMetadata", {"path": f"{uri}/a.txt"}),
        ("fs/canonicalize", {"path": f"{uri}/a.txt"}),
        ("fs/readDirectory", {"path": uri}),
        ("fs/walk", {"path": uri, "options": options}),
    ]
    for method, params in reads:
        assert await connection.code(method, **params, sandbox=inside) == INVALID_REQUEST, method
        await connection.call(method, **params, sandbox=read_only)
    assert (await connection.call("fs/readFile", path=f"{uri}/a.txt"))["dataBase64"] == "aGVsbG8="


@given(st.binary(max_size=50))
def test_base64_round_trip(data: bytes) -> None:
    assert decode_base64(msgspec.json.decode(msgspec.json.encode(data))) == data


@pytest.mark.parametrize(
    "text", ["%%", "eA", "eA=", "eA==\n", " eA==", "e-_=", "eB==", "eA==eA==", "=", "é===", "A", "QUI", "QUL="]
)
def test_wrong_base64(text: str) -> None:
    with pytest.raises(ExecError) as caught:
        decode_base64(text)
    assert caught.value.code == INVALID_REQUEST
