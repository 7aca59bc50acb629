"""A scripted exec-server that answers as a test wants: truly where nothing else was said, else with anything."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, TypeAlias

from system.agent.scene import Json
from treadle.execution import RemoteBackend, RemoteFiles
from treadle.transport import Channel, memory_pair

NOT_FOUND: Final = -32004
CAPABILITIES: Final = {"sandboxOrders": True, "processAck": True}
INFO: Final[Json] = {"shell": {"name": "sh", "path": "/bin/sh"}, "capabilities": CAPABILITIES}

Answer: TypeAlias = Callable[["Line", Json], Any]
"""What a request is answered with; a `Failure` is an error, and `SILENCE` no answer at all."""
SILENCE: Final = object()


class Failure(Exception):
    def __init__(self, code: int, message: str, data: Any = None) -> None:
        self.error = {"code": code, "message": message, "data": data}


class Line:
    """One connection."""

    def __init__(self, liar: Liar, channel: Channel) -> None:
        self.liar = liar
        self.channel = channel
        channel.attach(self)

    def frame_received(self, frame: bytes) -> None:
        message = json.loads(frame)
        method = message.get("method")
        self.liar.heard.append((method, message.get("params")))
        if "id" not in message or method is None:
            return
        try:
            result = self.liar.answers.get(method, _honest)(self, {"method": method, **(message["params"] or {})})
        except Failure as failure:
            self.send({"id": message["id"], "error": failure.error})
            return
        if isinstance(result, bytes):
            self.channel.send(b'{"id":%d,"result":%b}' % (message["id"], result))
        elif result is not SILENCE:
            self.send({"id": message["id"], "result": result})

    def send(self, message: Json) -> None:
        self.channel.send(json.dumps(message).encode())

    def push(self, kind: str, process: str, seq: Any, **params: Any) -> None:
        self.send({"method": f"process/{kind}", "params": {"processId": process, "seq": seq, **params}})

    def output(self, process: str, seq: Any, data: bytes) -> None:
        self.push("output", process, seq, stream="stdout", chunk=b64encode(data).decode())

    def end(self, process: str, seq: int, code: Any = 0) -> None:
        self.push("exited", process, seq, exitCode=code)
        self.push("closed", process, seq + 1)

    def channel_closed(self, reason: str) -> None: ...

    def channel_writable(self) -> None: ...


class Liar:
    def __init__(self) -> None:
        self.answers: dict[str, Answer] = {}
        self.lines: list[Line] = []
        self.heard: list[tuple[str | None, Any]] = []
        self.files: dict[str, bytes] = {}

    def accept(self, channel: Channel) -> None:
        self.lines.append(Line(self, channel))

    def count(self, method: str) -> int:
        return Counter(name for name, _ in self.heard)[method]


def _path(params: Json) -> str:
    return str(params["path"]).removeprefix("file://")


def _honest(line: Line, params: Json) -> Any:
    files = line.liar.files
    match params["method"]:
        case "initialize":
            return {"sessionId": params.get("resumeSessionId") or "s", "environmentInfo": INFO}
        case "environment/info":
            return INFO
        case "environment/status":
            return {"status": "ready"}
        case "fs/canonicalize":
            return {"path": params["path"]}
        case "fs/getMetadata":
            path = _path(params)
            if path not in files and path != "/" and not path.endswith("/work"):
                raise Failure(NOT_FOUND, "nothing there")
            size = len(files.get(path, b""))
            there = {"isDirectory": path not in files, "isFile": path in files, "isSymlink": False, "size": size}
            return {**there, "createdAtMs": 0, "modifiedAtMs": 0}
        case "fs/readFile":
            if _path(params) not in files:
                raise Failure(NOT_FOUND, "nothing there")
            return {"dataBase64": b64encode(files[_path(params)]).decode()}
        case "fs/writeFile":
            files[_path(params)] = params["dataBase64"].encode()
            return {}
        case "fs/walk":
            return {"entries": [], "errors": [], "truncated": False}
        case "fs/open":
            return {"handleId": params["handleId"]}
        case "fs/readBlock":
            return {"chunk": b64encode(b"".join(files.values())).decode(), "eof": True}
        case "fs/createDirectory" | "fs/remove" | "fs/close":
            return {}
        case "process/start":
            process = params["processId"]
            line.send({"method": "process/none", "params": {}})
            line.output(process, 1, b"honest output\n")
            line.end(process, 2)
            return {"processId": process, "sandboxType": "linuxSeccomp"}
        case "process/terminate":
            return {"running": False}
        case other:
            raise Failure(-32601, f"no {other}")


def fixed(result: Any) -> Answer:
    return lambda line, params: result


@asynccontextmanager
async def opened(initialize: Answer | None = None) -> AsyncIterator[tuple[RemoteFiles, Liar, RemoteBackend]]:
    """A session in memory."""
    liar = Liar()
    if initialize is not None:
        liar.answers["initialize"] = initialize

    async def connect() -> Channel:
        near, far = memory_pair()
        liar.accept(far)
        return near

    backend = RemoteBackend(connect, recovery_s=5.0, request_timeout=10.0)
    async with asyncio.timeout(60):
        await backend.open()
        yield RemoteFiles(backend.call_method), liar, backend
        await backend.close()
