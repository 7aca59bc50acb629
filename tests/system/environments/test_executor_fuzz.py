"""Answers and events of an exec-server, changed in every place where they can be: there is a result or an error that a
person can read, the memory stays bounded, and others go on. Nothing of this machine is behind these paths."""

from __future__ import annotations

import asyncio
import copy
import gc
import time
import tracemalloc
from base64 import b64encode
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET

from system.agent.scene import Json, scene, shell
from system.environments.far import FAR, call, until
from system.environments.liar import INFO, Failure, Line, fixed, opened
from treadle.config import EnvironmentConfig
from treadle.errors import RpcError
from treadle.events import Gap
from treadle.execution import (
    MAX_HELD_BYTES,
    Closed,
    ExecError,
    ExecParams,
    Exited,
    Output,
    RemoteBackend,
    RemoteFiles,
    RemoteProcess,
)
from treadle.testing import ToolCall

pytestmark = pytest.mark.anyio

LARGE = 50_000_000
RETAINED = 2 << 20  # of output, and what belongs to it
DEADLINE_S = 60.0


def deep(levels: int) -> Any:
    value: Any = "x"
    for _ in range(levels):
        value = [value]
    return value


ODD: dict[str, Any] = {
    "null": None,
    "true": True,
    "minus one": -1,
    "far": 10**30,
    "a fraction": 0.5,
    "a word": "file:///etc/passwd",
    "no base64": "!!!!",
    "half a character": "\ud800",
    "NUL": "file:///a%00b",
    "a list": [1, {}],
    "an object": {"path": "file:///"},
    "deep": deep(500),
}

METADATA: Json = {
    "isDirectory": False,
    "isFile": True,
    "isSymlink": False,
    "size": 3,
    "createdAtMs": 0,
    "modifiedAtMs": 0,
}
READ: Json = {
    "chunks": [{"seq": 1, "stream": "stdout", "chunk": "eA=="}],
    "nextSeq": 4,
    "exited": True,
    "exitCode": 0,
    "closed": True,
    "failure": None,
    "sandboxDenied": False,
    "evicted": {"firstSeq": 1, "lastSeq": 1},
    "exitedSeq": 2,
}
LISTED: Json = {
    "processId": "p",
    "argv": ["x"],
    "tty": False,
    "nextSeq": 1,
    "exited": False,
    "exitCode": 0,
    "closed": False,
}
ABLE = {
    **INFO,
    "cwd": "file:///work",
    "userHomeDir": "/home/x",
    "temporaryDirectories": ["/tmp"],
    "confinesBy": "bubblewrap",
    "capabilities": dict.fromkeys(
        (
            "sandboxOrders",
            "processAck",
            "processList",
            "processResize",
            "processCloseStdin",
            "processSignals",
            "fsLook",
        ),
        True,
    ),
}
Use = Callable[[RemoteFiles, RemoteBackend, RemoteProcess], Awaitable[object]]


METHODS: dict[str, tuple[Any, Use]] = {
    "fs/readFile": ({"dataBase64": "eHl6"}, lambda files, *_: files.read("/a")),
    "fs/getMetadata": (METADATA, lambda files, *_: files.stat("/a")),
    "fs/look": ({"found": [METADATA, None]}, lambda files, *_: files.look(["/a", "/b"])),
    "fs/canonicalize": ({"path": "file:///a"}, lambda files, *_: files.canonicalize("/a")),
    "fs/readDirectory": (
        {"entries": [{"fileName": "a", "isDirectory": False, "isFile": True}]},
        lambda files, *_: files.list("/a"),
    ),
    "fs/walk": (
        {
            "entries": [{"path": "file:///a", "kind": "file"}],
            "errors": [{"path": "file:///b", "message": "no"}],
            "truncated": False,
        },
        lambda files, *_: files.walk("/a"),
    ),
    "fs/writeFile": ({}, lambda files, *_: files.write("/a", b"x")),
    "fs/remove": ({}, lambda files, *_: files.remove("/a")),
    "fs/open": ({"handleId": "h"}, lambda files, *_: files.write_blocks("/a", [b"x"])),
    "process/read": (READ, lambda _, __, process: process._catch_up()),
    "process/write": ({"status": "accepted"}, lambda _, __, process: process.write(b"x")),
    "process/terminate": ({"running": True}, lambda _, __, process: process.terminate()),
    "process/closeStdin": ({}, lambda _, __, process: process.close_stdin()),
    "process/signal": ({}, lambda _, __, process: process.signal("interrupt")),
    "process/list": ({"processes": [LISTED]}, lambda _, backend, __: backend.processes()),
    "environment/status": ({"status": "ready"}, lambda _, backend, __: backend.check()),
    "environment/info": (ABLE, lambda _, backend, __: backend.confines_by()),
}


def places(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    yield path
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(inner, (*path, key))


def changed(value: Any, path: tuple[str | int, ...], new: Any) -> Any:
    if not path:
        return new
    made = copy.deepcopy(value)
    inner = made
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = new
    return made


@pytest.mark.parametrize("method", METHODS)
async def test_every_part_of_an_answer_may_be_anything(method: str) -> None:
    honest, use = METHODS[method]
    answers: list[tuple[tuple[str, tuple[str | int, ...]], Any]] = [(("honest", ()), honest)]
    answers += [((name, path), changed(honest, path, odd)) for path in places(honest) for name, odd in ODD.items()]
    hello = {"sessionId": "s", "environmentInfo": ABLE}
    async with opened(initialize=fixed(hello)) as (files, liar, backend):
        liar.answers |= {name: fixed(result) for name, (result, _) in METHODS.items()}
        liar.answers["fs/writeBlock"] = fixed({})
        liar.answers["process/start"] = lambda line, params: {"processId": params["processId"], "sandboxType": "none"}
        for number, (what, answer) in enumerate(answers):
            process = await backend.start(ExecParams(process_id=f"p{number}", argv=["x"], cwd="/", pipe_stdin=True))
            backend._confines_by = UNSET  # it asks once
            liar.answers[method] = fixed(answer)
            try:
                await use(files, backend, process)
            except ExecError as error:
                if not 0 < len(error.message) < 10_000 or number == 0:
                    raise
            except Exception as error:
                error.add_note(f"{method} with {what}")
                raise
            liar.answers[method] = fixed(honest)
            assert await files.stat("/a"), what
            assert backend.is_connected, what
            assert process.exit_code is None or -(2**31) <= process.exit_code < 2**31, what
            process._lose("done with it")


async def test_every_part_of_the_handshake_may_be_anything() -> None:
    honest = {"sessionId": "s", "environmentInfo": ABLE, "detachS": 1}
    for path in places(honest):
        for odd in ODD.values():
            answer = changed(honest, path, odd)
            try:
                async with opened(initialize=fixed(answer)) as (files, _, backend):
                    await files.stat("/")
                    assert backend.info is not None
            except ExecError as error:
                if not 0 < len(error.message) < 10_000:
                    raise


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["output", "output", "exited", "closed"]),
        st.integers(-1, 8) | st.sampled_from([2**63, -(2**63), 10**30]),
        st.sampled_from(["p", "p", "p", "q"]),
        st.sampled_from(["", "eA==", "eHl6", "!", "e"]),
    ),
    max_size=16,
)


@given(EVENTS, st.booleans())
@settings(max_examples=150, deadline=None)
def test_whatever_the_order_of_events_they_are_seen_once_and_in_order(
    events: list[tuple[str, int, str, str]], before: bool
) -> None:
    """Before the answer to the start, or after it."""

    async def run() -> None:
        async with opened() as (_, liar, backend):

            def push(line: Line) -> None:
                for kind, seq, process, chunk in events:
                    more: Json = {"stream": "stdout", "chunk": chunk} if kind == "output" else {}
                    line.push(kind, process, seq, **more, **({"exitCode": seq} if kind == "exited" else {}))

            def start(line: Line, params: Json) -> Any:
                if before:
                    push(line)
                return {"processId": "p", "sandboxType": "none"}

            liar.answers["process/start"] = start
            process = await backend.start(ExecParams(process_id="p", argv=["x"], cwd="/"))
            if not before:
                push(liar.lines[-1])
            await backend.check()  # what came before it has been seen
            seen = []
            cursor = process.log.cursor(0)
            while (item := cursor.take()) is not None:
                assert not isinstance(item, Gap)
                seen.append(item.event)
            numbers = [event.seq for event in seen if isinstance(event, Output | Exited | Closed)]
            assert numbers == sorted(set(numbers))
            kinds = [type(event) for event in seen]
            assert Closed not in kinds[:-1], "nothing comes after the close"
            assert kinds.count(Exited) <= 1
            assert backend.is_connected

    asyncio.run(run())


FLOODS: dict[str, Callable[[Line, str], None]] = {
    "output": lambda line, text: line.push("output", "p", 1, stream="stdout", chunk=text),
    "output out of order": lambda line, text: line.push("output", "p", 7, stream="stdout", chunk=text),
    "a stream": lambda line, text: line.push("output", "p", 1, stream=text, chunk=""),
    "a process": lambda line, text: line.push("output", text, 1, stream="stdout", chunk=""),
    "a method": lambda line, text: line.send({"method": text, "params": {}}),
    "a request": lambda line, text: line.send({"id": text, "method": "x", "params": {}}),
    "an answer": lambda line, text: line.send({"id": text, "result": text}),
    "an error": lambda line, text: line.send({"id": 10**9, "error": {"code": 1, "message": text, "data": text}}),
    "a member": lambda line, text: line.send({"method": "process/output", "params": {text: text[:9]}}),
    "no JSON": lambda line, text: line.channel.send(text.encode()),
}


@pytest.mark.parametrize("kind", FLOODS)
async def test_fifty_megabytes_leave_nothing_behind(kind: str) -> None:
    text = b64encode(b"x" * (LARGE // 4 * 3)).decode()
    async with opened() as (files, liar, backend):
        liar.answers["process/start"] = lambda line, params: {"processId": "p", "sandboxType": "none"}
        process = await backend.start(ExecParams(process_id="p", argv=["x"], cwd="/"))
        tracemalloc.start()
        try:
            before, _ = tracemalloc.get_traced_memory()
            for _ in range(3):
                FLOODS[kind](liar.lines[-1], text)
                await backend.check()
            after, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert after - before < MAX_HELD_BYTES + RETAINED, after - before
        assert most - before < 8 * LARGE, "not one beside the other"
        assert process.failure is None or len(process.failure) < 10_000
        assert await files.stat("/")


async def test_answers_of_fifty_megabytes_are_read_or_refused_and_forgotten() -> None:
    text = b64encode(b"x" * (LARGE // 4 * 3)).decode()
    async with opened() as (files, liar, backend):
        small = files.confined(None, max_read=1 << 20)
        liar.files["/work/f"] = b"x"
        for method, answer in {
            "fs/readFile": {"dataBase64": text},
            "fs/canonicalize": {"path": f"file:///{text}"},
            "fs/walk": {"entries": [{"path": f"file:///{text}", "kind": "file"}], "errors": [], "truncated": False},
        }.items():
            liar.answers[method] = fixed(answer)
            ask: Callable[[str], Awaitable[object]] = getattr(small, method.removeprefix("fs/").removesuffix("File"))
            tracemalloc.start()
            try:
                with pytest.raises(ExecError) as caught:
                    await ask("/work/f")
                assert len(caught.value.message) < 10_000
                del caught
                await backend.check()  # the last message may still be there
                gc.collect()  # what the error came through refers to itself
                assert tracemalloc.get_traced_memory()[0] < 1 << 20, method
            finally:
                tracemalloc.stop()


async def test_an_error_of_any_kind_is_short(tmp_path: Path) -> None:
    async with opened() as (files, liar, backend):
        for code in (-32600, 0, 2**31):
            for message in ("m" * 100_000, "\x1b[2J\n"):

                def fail(line: Line, params: Json, code: Any = code, message: Any = message) -> Any:
                    raise Failure(code, message, {"kind": "sandboxRefused"})

                liar.answers["fs/canonicalize"] = fail
                with pytest.raises(ExecError) as caught:
                    await files.confined(None).canonicalize("/a")
                assert len(caught.value.message) < 10_000
        assert backend.is_connected


@pytest.mark.this_machine
@pytest.mark.parametrize("where", ["the handshake", "an answer"])
async def test_a_slow_drip_has_an_end_and_stalls_nobody(tmp_path: Path, where: str) -> None:
    """One byte at a time, for ever, on the wire itself."""
    dripping = asyncio.Event()
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await reader.readuntil(b"\r\n\r\n")
            dripping.set()
            text = b"HTTP/1.1 101 Switching Protocols\r\nx: "
            if where == "an answer":
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n")
            while not writer.is_closing():
                writer.write(text[:1] or b"y")
                text = text[1:]
                await writer.drain()
                await asyncio.sleep(0.001)
        except ConnectionError:
            pass
        finally:
            writer.close()

    (tmp_path / "road").mkdir()
    listener = await asyncio.start_unix_server(serve, tmp_path / "road/s")
    async with scene(tmp_path / "app") as stage:
        config = EnvironmentConfig(id=FAR, url=f"unix://{tmp_path}/road/s", connect_timeout_sec=2.0)
        stage.server.environments.add(config)
        begun = time.monotonic()
        asking = asyncio.create_task(stage.start(environments=[{"environmentId": FAR, "cwd": str(tmp_path)}]))
        await asyncio.wait_for(dripping.wait(), DEADLINE_S)
        place = [{"environmentId": "local", "cwd": str(stage.workspace)}]
        thread = await stage.start(environments=place)
        (told,) = await call(stage, thread, ToolCall("exec_command", shell("echo local"), None))
        assert "exited with code 0" in told
        with pytest.raises(RpcError) as caught:
            await asyncio.wait_for(asking, DEADLINE_S)
        assert len(caught.value.message) < 1000
        assert time.monotonic() - begun < DEADLINE_S
    listener.close()
    await until(lambda: all(task.done() for task in tasks))


def test_the_table_has_every_answer_that_a_client_asks_for() -> None:
    """So that a new method comes in here, too."""
    asked = set(METHODS) | {"initialize", "process/start", "session/detach", "http/request", "process/resize"}
    from treadle.protocol.exec import METHODS as KNOWN

    others = {"fs/createDirectory", "fs/copy", "fs/readBlock", "fs/writeBlock", "fs/close", "fs/watchMissing"}
    assert {name for name in KNOWN if name not in others} <= asked
