"""An exec-server that means harm, or is broken: the app-server neither touches its own disk because of an answer nor
fills its memory, other threads go on, and what a thread is told says what is wrong."""

from __future__ import annotations

import asyncio
import json
import re
from base64 import b64encode
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from system.agent.scene import Json, Scene, patch, scene, shell
from system.environments.far import FAR, call, far_thread, listening, snapshot, until
from system.environments.liar import CAPABILITIES, INFO, SILENCE, Answer, Failure, Liar, Line, fixed, opened
from treadle.agent import turn_sandbox
from treadle.agent.tools import command_call
from treadle.errors import RpcError
from treadle.execution import Environment, ExecError, ExecParams
from treadle.protocol.exec import Sandbox
from treadle.rpc import MAX_VALUES
from treadle.testing import ToolCall

pytestmark = [pytest.mark.anyio, pytest.mark.this_machine]  # it has a machine of its own

CANARY = "canary-3c1e9b"
ORDINARY = ToolCall("exec_command", shell("echo local"), None)
RUN = ToolCall("exec_command", shell("echo far"), None)
MEBIBYTE = b"x" * (1 << 20)


class Ground:
    def __init__(self, stage: Scene, liar: Liar, url: str, work: Path) -> None:
        self.stage = stage
        self.liar = liar
        self.url = url
        self.work = work
        self.thread = ""

    async def start(self) -> str:
        self.thread = await far_thread(self.stage, self.url, self.work)
        return self.thread

    async def call(self, *calls: ToolCall, **params: Any) -> list[str]:
        return await call(self.stage, self.thread or await self.start(), *calls, **params)

    async def local(self) -> None:
        """A thread of this machine goes on."""
        place = [{"environmentId": "local", "cwd": str(self.stage.workspace)}]
        (told,) = await call(self.stage, await self.stage.start(environments=place), ORDINARY)
        assert "exited with code 0" in told


@asynccontextmanager
async def ground(tmp_path: Path, **answers: Answer) -> AsyncIterator[Ground]:
    """With a folder on this machine that is called as the one over there, and must stay as it is and unread."""
    work = tmp_path / "here/work"
    (work / ".git").mkdir(parents=True)
    (work / ".codex/skills/one").mkdir(parents=True)
    for name in ("f", "AGENTS.md", ".git/HEAD", ".git/config", "image.png"):
        (work / name).write_text(f"{CANARY}\n")
    (work / ".codex/skills/one/SKILL.md").write_text(f"---\nname: one\ndescription: {CANARY}\n---\n{CANARY}\n")
    before = snapshot(tmp_path / "here")
    liar = Liar()
    liar.answers |= {name.replace("_", "/"): answer for name, answer in answers.items()}
    async with listening(tmp_path / "road", liar.accept) as url, scene(tmp_path / "app") as stage:
        yield Ground(stage, liar, url, work)
        assert all(CANARY.encode() not in request.body for request in stage.model.requests())
        assert CANARY not in json.dumps(stage.client.messages)
    assert snapshot(tmp_path / "here") == before


def failing(message: str, data: Any = None) -> Answer:
    def fail(line: Line, params: Json) -> Any:
        raise Failure(-32603, message, data)

    return fail


# --- answers to requests about files ---

ODD_PATHS = {
    "dots": "file:///a/../../../etc/passwd",
    "encoded dots": "file:///a/%2e%2e/%2e%2e/etc/passwd",
    "an encoded slash": "file:///a%2F..%2F..%2Fetc/passwd",
    "NUL": "file:///a%00b",
    "another host": "file://other/etc/passwd",
    "no file": "http://127.0.0.1/x",
    "a plain path": "/etc/passwd",
    "empty": "",
    "long": "file:///" + "a" * 100_000,
    "half a character": "file:///\ud800",
}
ODD_RESULTS: dict[str, Any] = {
    "null": None,
    "a list": [],
    "a number": 10**400,
    "nothing in it": {},
    "another type": {"path": ["file:///"], "size": "1", "entries": {}, "dataBase64": 5, "chunk": None},
}
PATCH = ToolCall("apply_patch", {"input": patch("*** Add File: new", "+x")}, None)
UPDATE = ToolCall("apply_patch", {"input": patch("*** Update File: f", "-canary", "+x")}, None)
LOOK = ToolCall("view_image", {"path": "image.png"}, None)


@pytest.mark.parametrize("path", ODD_PATHS)
async def test_paths_that_are_none(tmp_path: Path, path: str) -> None:
    async with ground(tmp_path) as here:
        await here.start()
        here.liar.answers["fs/canonicalize"] = fixed({"path": ODD_PATHS[path]})
        for told in await here.call(PATCH, UPDATE, LOOK, RUN):
            assert len(told) < 10_000
        await here.local()


@pytest.mark.parametrize("result", ODD_RESULTS)
@pytest.mark.parametrize("method", ["fs/canonicalize", "fs/getMetadata", "fs/readFile", "fs/walk", "process/start"])
async def test_answers_of_other_types(tmp_path: Path, method: str, result: str) -> None:
    async with ground(tmp_path) as here:
        await here.start()
        for name in ("f", "image.png", "AGENTS.md"):
            here.liar.files[str(here.work / name)] = b"canary\n"
        here.liar.answers[method] = fixed(ODD_RESULTS[result])
        for told in await here.call(UPDATE, LOOK, RUN):
            assert len(told) < 10_000
        await here.local()


async def test_a_folder_that_leads_home_is_looked_for_there_alone(tmp_path: Path) -> None:
    """Every name leads to a file that this machine has, too."""
    async with ground(tmp_path) as here:
        target = here.work / "f"
        await here.start()
        here.liar.answers["fs/canonicalize"] = fixed({"path": target.as_uri()})
        metadata = {"isDirectory": False, "isFile": True, "isSymlink": True, "size": 7}
        here.liar.answers["fs/getMetadata"] = fixed({**metadata, "createdAtMs": 0, "modifiedAtMs": 0})
        here.liar.answers["fs/readFile"] = fixed({"dataBase64": b64encode(b"canary\n").decode()})
        here.liar.answers["fs/walk"] = fixed(
            {
                "entries": [{"path": (here.work / ".codex/skills/one/SKILL.md").as_uri(), "kind": "file"}],
                "errors": [],
                "truncated": False,
            }
        )
        await here.call(PATCH, UPDATE, LOOK, RUN)
        turn = await here.stage.run(here.thread, "use $one and @f")
        assert turn["status"] in ("completed", "failed")


async def test_errors_are_short_whatever_their_length(tmp_path: Path) -> None:
    async with ground(tmp_path) as here:
        await here.start()
        for method in ("fs/canonicalize", "process/start"):
            here.liar.answers[method] = failing("e" * 5_000_000, ["data"] * 100_000)
        for told in await here.call(PATCH, RUN):
            assert "eeee" in told
            assert len(told) < 10_000
        (item,) = here.stage.completed("commandExecution")
        assert len(item["aggregatedOutput"]) < 10_000


# --- too much ---


def entries(count: int) -> bytes:
    one = b'{"path":"file:///work/a","kind":"file"}'
    return b'{"entries":[' + b",".join([one] * count) + b'],"errors":[],"truncated":false}'


async def test_a_walk_of_a_million_entries_is_refused(tmp_path: Path) -> None:
    async with opened() as (files, liar, _):
        liar.answers["fs/walk"] = fixed(entries(1_000_000))
        with pytest.raises(ExecError, match=f"more than {MAX_VALUES} JSON values"):
            await files.walk("/work")
        liar.answers["fs/walk"] = fixed(entries(11))
        with pytest.raises(ExecError, match="more than it was asked for: 11 entries"):
            await files.walk("/work", max_entries=10)


async def test_an_error_of_a_million_values_is_one_error(tmp_path: Path) -> None:
    async with opened() as (files, liar, _):
        liar.answers["fs/walk"] = failing("x", [[]] * 1_000_000)
        with pytest.raises(ExecError, match=f"an error of more than {MAX_VALUES} JSON values"):
            await files.walk("/work")


async def test_a_file_that_never_ends_is_given_up(tmp_path: Path) -> None:
    async with opened() as (files, liar, _):
        size = {"isDirectory": False, "isFile": True, "isSymlink": False, "size": 9_000_000}
        liar.answers["fs/getMetadata"] = fixed({**size, "createdAtMs": 0, "modifiedAtMs": 0})
        liar.answers["fs/readBlock"] = fixed({"chunk": b64encode(MEBIBYTE).decode(), "eof": False})
        with pytest.raises(ExecError, match="too large to read at once: the limit is 20000000"):
            await files.confined(None, max_read=20_000_000).read("/work/f")
        assert liar.count("fs/readBlock") == 20
        with pytest.raises(ExecError, match="too large to read at once: the limit is 8388608"):
            await files.confined(None, follow=False).read("/work/f")
        liar.answers["fs/readBlock"] = fixed({"chunk": b64encode(MEBIBYTE * 2).decode(), "eof": False})
        with pytest.raises(ExecError, match="more than it was asked for: 2097152 bytes for 1048576"):
            await files.read("/work/f")


async def test_without_links_nothing_goes_by_a_request_that_follows_them(tmp_path: Path) -> None:
    async with opened() as (files, liar, _):
        with pytest.raises(ExecError, match="without following links"):
            await files.confined(None, follow=False).write("/work/f", MEBIBYTE * 9)
        assert liar.count("fs/open") == 0


async def test_instructions_that_grow_while_they_are_read(tmp_path: Path) -> None:
    async with ground(tmp_path) as here:
        here.liar.files[str(here.work / "AGENTS.md")] = b"instructions "
        here.liar.answers["fs/readBlock"] = fixed({"chunk": b64encode(b"more " * 200_000).decode(), "eof": False})
        (told,) = await here.call(RUN)
        assert "honest output" in told
        assert here.liar.count("fs/readBlock") <= 2
        assert max(len(request.body) for request in here.stage.model.requests()) < 200_000


async def test_output_without_end_stalls_nobody(tmp_path: Path) -> None:
    """It is not held back by anything that this side can do, and not kept."""
    flooding: list[asyncio.Task[None]] = []

    def flood(line: Line, params: Json) -> Any:
        async def pour() -> None:
            seq = 1
            while not line.channel.closed:
                if line.channel.writable:
                    line.output(params["processId"], seq, b"y" * 60_000)
                    seq += 1
                await asyncio.sleep(0)

        flooding.append(asyncio.get_running_loop().create_task(pour()))
        return {"processId": params["processId"]}

    async with ground(tmp_path) as here:
        await here.start()
        here.liar.answers["process/start"] = flood
        (told,) = await here.call(ToolCall("exec_command", shell("yes", yield_time_ms=250), None))
        assert len(told) < 100_000
        await here.local()
        here.liar.answers.pop("process/start")
        (told,) = await here.call(RUN)
        assert "honest output" in told
        deltas = here.stage.client.told("item/commandExecution/outputDelta")
        assert sum(len(delta["params"]["delta"]) for delta in deltas) < 3 << 20
        for line in here.liar.lines:
            line.channel.abort()
        await asyncio.gather(*flooding)


# --- events ---


def events(*kinds: Callable[[Line, str], None], then: bool = True) -> Answer:
    def answer(line: Line, params: Json) -> Any:
        for kind in kinds:
            kind(line, params["processId"])
        if then:
            line.end(params["processId"], 1)
        return {"processId": params["processId"]}

    return answer


def each(numbers: range, send: Callable[[int], None]) -> None:
    for number in numbers:
        send(number)


HARMLESS: dict[str, Callable[[Line, str], None]] = {
    "of other processes": lambda line, _: each(range(2000), lambda n: line.output(f"p{n}", 1, b"x")),
    "from before the beginning": lambda line, name: line.output(name, 0, b"x"),
    "with negative numbers": lambda line, name: line.output(name, -(10**30), b"x"),
    "with far numbers": lambda line, name: line.output(name, 10**300, b"x"),
    "twice": lambda line, name: each(range(9), lambda _: line.push("exited", name, 1, exitCode=0)),
    "unknown": lambda line, name: line.push("levitated", name, 1),
    "answers to nothing": lambda line, name: line.send({"id": 999_999, "result": {}}),
    "requests": lambda line, name: line.send({"id": "a" * 100_000, "method": "fs/readFile" * 9_999, "params": {}}),
    "no JSON": lambda line, name: line.channel.send(b"{" * 100_000),
    "deep JSON": lambda line, name: line.channel.send(b'{"method":"x","params":' + b"[" * 100_000),
}


@pytest.mark.parametrize("kind", HARMLESS)
async def test_events_that_mean_nothing_are_passed_over(tmp_path: Path, kind: str) -> None:
    async with ground(tmp_path) as here:
        await here.start()
        here.liar.answers["process/start"] = events(HARMLESS[kind])
        (told,) = await here.call(RUN)
        assert "exited with code 0" in told
        await here.local()


WRONG: dict[str, tuple[Callable[[Line, str], None], str]] = {
    "an exit code that is none": (lambda line, name: line.end(name, 1, 10**30), "exit code that is none"),
    "an exit code of another type": (lambda line, name: line.end(name, 1, "0"), "cannot be read"),
    "an unknown stream": (lambda line, name: line.push("output", name, 1, stream="x", chunk=""), "cannot be read"),
    "no base64": (lambda line, name: line.push("output", name, 1, stream="stdout", chunk="!"), "not base64"),
    "a gap": (lambda line, name: each(range(5, 2000), lambda n: line.output(name, n, b"x")), "events were lost"),
    "a large gap": (lambda line, name: line.output(name, 5, MEBIBYTE * 5), "events were lost"),
}


@pytest.mark.parametrize("kind", WRONG)
async def test_events_that_cannot_be_end_the_command(tmp_path: Path, kind: str) -> None:
    async with ground(tmp_path) as here:
        await here.start()
        send, says = WRONG[kind]
        here.liar.answers["process/start"] = events(send, then=False)
        (told,) = await here.call(RUN)
        (item,) = here.stage.completed("commandExecution")
        assert item["status"] == "failed"
        assert says in (item["aggregatedOutput"] or "") or "events were lost" in told, (item, told)
        here.liar.answers.pop("process/start")
        (told,) = await here.call(RUN)
        assert "honest output" in told


async def test_a_flood_of_what_is_no_message_ends_the_connection(tmp_path: Path) -> None:
    async with ground(tmp_path) as here:
        await here.start()

        def flood(line: Line, params: Json) -> Any:
            for number in range(500):
                line.send({"id": number, "method": "fs/readFile", "params": {"path": str(here.work / "f")}})
            return SILENCE

        here.liar.answers["process/start"] = flood
        (told,) = await here.call(RUN)
        assert "were not of its protocol" in told
        assert "nobody knows whether the command ran" in told
        await here.local()
        here.liar.answers.pop("process/start")
        (told,) = await here.call(RUN)
        assert "honest output" in told, "a new connection, a new chance"


async def test_a_command_without_its_sandbox_is_ended(tmp_path: Path) -> None:
    async with ground(tmp_path) as here:
        await here.start()
        here.liar.answers["process/start"] = lambda line, params: {
            "processId": params["processId"],
            "sandboxType": "none",
        }
        (told,) = await here.call(RUN)
        assert "without the sandbox that was asked for" in told
        assert here.liar.count("process/terminate") == 1
        (item,) = here.stage.completed("commandExecution")
        assert item["status"] == "failed"
        begun = here.liar.count("process/start")
        here.stage.model.enqueue_calls(ToolCall("exec_command", shell("x", yield_time_ms=250), None))
        here.stage.model.enqueue_assistant_message("done")
        await here.stage.run(here.thread, sandboxPolicy={"type": "dangerFullAccess"})
        assert here.liar.count("process/start") == begun + 1, "nobody asked for one"
        assert len(here.stage.completed("commandExecution")) == 1, "it runs"


# --- silence, and the end ---


@pytest.mark.parametrize("method", ["fs/canonicalize", "fs/getMetadata", "process/start", "fs/writeFile"])
async def test_silence_has_an_end_and_is_nobody_elses(
    tmp_path: Path, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ground(tmp_path) as here:
        monkeypatch.setitem(Environment.connect.__func__.__kwdefaults__, "request_timeout", 2.0)  # type: ignore[attr-defined]
        monkeypatch.setattr("treadle.agent.thread.remote_project.READ_S", 0.2)
        monkeypatch.setattr("treadle.execution.remote_machine.READ_S", 0.2)
        await here.start()
        here.liar.answers[method] = fixed(SILENCE)
        here.stage.model.enqueue_calls(RUN if method == "process/start" else PATCH)
        turn = await here.stage.begin(here.thread, approvalPolicy="never")
        await until(lambda: here.liar.count(method) and here.stage.model.requests())
        await here.local()
        here.stage.model.enqueue_assistant_message("done")
        ended = await here.stage.end(turn)
        assert ended["status"] == "completed"
        assert b"has not answered" in here.stage.model.requests()[-1].body


async def test_a_connection_that_ends_in_the_middle_of_a_message(tmp_path: Path) -> None:
    """Again and again: the thread hears of it, and the next command works."""

    def cut(line: Line, params: Json) -> Any:
        line.channel.send(b'{"id":1,"result":{"pa')
        line.channel.abort()
        return SILENCE

    async with ground(tmp_path) as here:
        await here.start()
        here.liar.answers["fs/writeFile"] = cut
        (told,) = await here.call(PATCH)
        assert "transport disconnected" in told
        here.liar.answers.pop("fs/writeFile")
        (told,) = await here.call(RUN)
        assert "honest output" in told


async def test_closing_while_it_is_closed_ends(tmp_path: Path) -> None:
    """A read that would be repeated after a loss waits while the session is ended, and does not spin."""
    async with opened() as (files, liar, backend):
        liar.answers["fs/getMetadata"] = fixed(SILENCE)
        liar.answers["process/start"] = fixed({"processId": "p"})
        await backend.start(ExecParams(process_id="p", argv=["x"], cwd="/"))
        reading = asyncio.create_task(files.stat("/x"))
        await until(lambda: liar.count("fs/getMetadata"))

        def cut(line: Line, params: Json) -> Any:
            line.channel.abort()
            return SILENCE

        liar.answers["process/terminate"] = cut
        await asyncio.wait_for(backend.close(), 20)
        with pytest.raises(ExecError, match="was closed"):
            await reading


# --- the handshake ---

ODD_INFO: dict[str, tuple[Json, str]] = {
    "a relative shell": ({"shell": {"name": "sh", "path": "sh"}}, "which is no absolute path"),
    "a shell with a line break": ({"shell": {"name": "sh", "path": "/bin/sh\n-c"}}, "what cannot be true"),
    "a shell with NUL": ({"shell": {"name": "sh", "path": "/bin/sh\0"}}, "what cannot be true"),
    "a long name": ({"shell": {"name": "s" * 9999, "path": "/bin/sh"}}, "what cannot be true"),
    "a shell that is none": ({"shell": 5}, "not what the protocol says"),
    "a long directory": ({**INFO, "cwd": "file:///" + "a" * 9999}, "what cannot be true"),
}


@pytest.mark.parametrize("kind", ODD_INFO)
async def test_what_it_says_of_itself_is_checked(tmp_path: Path, kind: str) -> None:
    info, says = ODD_INFO[kind]
    async with ground(tmp_path) as here:
        await here.start()
        here.liar.answers["initialize"] = fixed({"sessionId": "s", "environmentInfo": info})
        machine = here.stage.server.environments.machine(FAR)
        await machine.close()
        try:
            (told,) = await here.call(RUN)
        except RpcError as error:
            told = error.message
        assert says in told
        assert len(told) < 1000
        assert here.liar.count("process/start") == 0
        await here.local()


CHANGES: dict[str, tuple[Json, str]] = {
    "less to offer": ({"sessionId": "s", "environmentInfo": {**INFO, "capabilities": {}}}, "other capabilities"),
    "more to offer": (
        {"sessionId": "s", "environmentInfo": {**INFO, "capabilities": {**CAPABILITIES, "processList": True}}},
        "other capabilities",
    ),
    "another session": ({"sessionId": "t", "environmentInfo": INFO}, "another session"),
    "a session of a mile": ({"sessionId": "s" * 10_000, "environmentInfo": INFO}, "that is none"),
}


@pytest.mark.parametrize("kind", CHANGES)
async def test_who_comes_back_as_another_is_lost(tmp_path: Path, kind: str) -> None:
    answer, says = CHANGES[kind]
    async with opened() as (files, liar, backend):
        liar.answers["initialize"] = fixed(answer)
        liar.lines[-1].channel.abort()
        with pytest.raises(ExecError, match=says):
            await files.stat("/work")
        assert backend.failure is not None


async def test_what_is_to_be_protected_is_not_sent_to_who_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sandbox that was made for an executor of ours would be overlooked in part by another one."""
    async with ground(tmp_path) as here:
        await here.start()
        machine = here.stage.server.environments.machine(FAR)

        async def first(*arguments: Any, **named: Any) -> Sandbox | None:
            made = await turn_sandbox(*arguments, **named)
            here.liar.answers["initialize"] = fixed({"sessionId": "s", "environmentInfo": {**INFO, "capabilities": {}}})
            await machine.close()  # it is lost now, and another one is there
            return made

        monkeypatch.setattr(command_call, "turn_sandbox", first)
        (told,) = await here.call(RUN)
        assert "does not protect what it was asked to protect" in told
        assert here.liar.count("process/start") == 0
        monkeypatch.undo()
        (told,) = await here.call(RUN)
        assert "honest output" in told
        sent = next(params for method, params in here.liar.heard if method == "process/start")
        assert "protectOrders" not in sent["sandbox"]
        assert re.search(r'"subpath": "\.git"', json.dumps(sent["sandbox"])), "by its name, then"


# --- anything at all ---

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=20)
    | st.sampled_from(["file:///", "file:///a/..", ""]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["path", "size", "entries", "dataBase64", "isFile", "isSymlink", "chunk", "eof", "chunks", "nextSeq"]
            ),
            inner,
            max_size=6,
        )
    ),
    max_leaves=12,
)


@given(JSON, JSON, st.lists(JSON, max_size=3))
@settings(max_examples=50)
def test_whatever_it_answers_there_is_a_result_or_an_error(result: Any, params: Any, error: Any) -> None:
    async def ask() -> None:
        async with opened() as (files, liar, backend):
            for method in ("fs/canonicalize", "fs/getMetadata", "fs/readFile", "fs/walk", "fs/open", "fs/readBlock"):
                liar.answers[method] = fixed(result)
            line = liar.lines[-1]
            for name in ("process/output", "process/exited", "process/closed", "anything"):
                line.send({"method": name, "params": params})
            line.send({"id": params, "result": result})
            line.send({"id": 7, "error": error})
            asked = (files.canonicalize("/a"), files.stat("/a"), files.read("/a"), files.walk("/a"))
            for got in await asyncio.gather(*asked, return_exceptions=True):
                assert not isinstance(got, BaseException) or (isinstance(got, ExecError) and len(got.message) < 10_000)
            assert backend.is_connected

    asyncio.run(ask())
