"""The same requests to the real app-server and to ours: commands that go on, processes, search sessions, feedback.

Each story gives what a client learned, without what is another's each time (ids, paths, times); both must be equal.
Where ours differs on purpose, the story says so and leaves it out. Errors are compared by their codes.
"""

from __future__ import annotations

import base64
import subprocess
import sys
import uuid
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from interop.peers import installed
from interop.programs import MARK, ROOT, codex_config, sweep
from interop.scripted_model import Script, ScriptedModel, exec_command
from kit.processes import DEADLINE_S
from kit.transports import Pipes
from kit.wire_client import Json, WireClient

pytestmark = pytest.mark.interop

Story: TypeAlias = Callable[["Server"], Any]


class Server:
    """One of the two, with a folder of its own."""

    def __init__(self, client: WireClient, cwd: Path, model: ScriptedModel) -> None:
        self.client = client
        self.cwd = cwd
        self.model = model

    def ask(self, method: str, **params: Any) -> Any:
        """The result, or the code of the error."""
        reply = self.client.reply_to(self.client.request(method, params))
        return reply["error"]["code"] if "error" in reply else reply["result"]

    def told(self, method: str, **members: Any) -> Json:
        """The params of the first notification with these members, waited for."""

        def fits(params: Json) -> bool:
            return all(params.get(name) == value for name, value in members.items())

        found: Json = self.client.wait_for(method, fits)["params"]
        return found

    def run(self, thread: str, script: Script) -> Json:
        self.model.script = script
        said = [{"type": "text", "text": "go"}]
        turn = self.ask("turn/start", threadId=thread, input=said)["turn"]["id"]
        done: Json = self.client.wait_for("turn/completed", lambda params: params["turn"]["id"] == turn)
        return {"id": turn, "status": done["params"]["turn"]["status"]}

    def command(self, call_id: str) -> Json:
        """How a command ended, as it was told, and whether that was after its turn."""
        done = self.client.wait_for("item/completed", lambda params: params["item"]["id"] == call_id)
        methods = [message["method"] for message in self.client.told]
        item = done["params"]["item"]
        return {
            "status": item["status"],
            "output": item["aggregatedOutput"],
            "ended well": item["exitCode"] == 0,
            "timed": item["durationMs"] is not None,
            "after its turn": self.client.told.index(done) > methods.index("turn/completed"),
        }


@contextmanager
def server(command: list[str], folder: Path) -> Iterator[Server]:
    cwd, home, mark = folder / "workspace", folder / ".codex", uuid.uuid4().hex
    cwd.mkdir(parents=True)
    home.mkdir()
    with ScriptedModel() as model, (folder / "log").open("wb") as log:
        (home / "config.toml").write_text(codex_config(model.base_url))
        env = {"HOME": str(folder), "CODEX_HOME": str(home), "PATH": "/usr/local/bin:/usr/bin:/bin", MARK: mark}
        process = subprocess.Popen(
            command,
            cwd=cwd,
            env={**env, "PYTHONPATH": str(ROOT / "src"), "LANG": "C.UTF-8"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            client = WireClient(Pipes(process.stdin, process.stdout))
            info = {"name": "both", "version": "1"}
            client.call("initialize", {"clientInfo": info, "capabilities": {"experimentalApi": True}})
            client.send({"method": "initialized"})
            yield Server(client, cwd, model)
        finally:
            process.kill()
            process.wait(DEADLINE_S)
            process.stdin.close()
            process.stdout.close()
            sweep(mark)


# --- the stories -----------------------------------------------------------------------------------------------------


def terminals(of: Server) -> Any:
    """The real server ends commands with -1 where ours tells their own status, and an interrupt spares them there."""
    thread = of.ask("thread/start", cwd=str(of.cwd))["thread"]["id"]
    ours = {"threadId": thread}

    def script() -> Script:
        yield [exec_command("echo one; sleep 600", yield_time_ms=300)]
        yield [exec_command("echo two; read x < pipe; echo late; exit 3", yield_time_ms=300)]
        yield [exec_command("echo three; sleep 600", yield_time_ms=300)]
        yield "they run"

    subprocess.run(["mkfifo", str(of.cwd / "pipe")], check=True)
    none = [
        of.ask("thread/backgroundTerminals/list", **ours),
        of.ask("thread/backgroundTerminals/clean", **ours),
        of.ask("thread/backgroundTerminals/terminate", **ours, processId="77"),
        of.ask("thread/backgroundTerminals/terminate", **ours, processId="x"),
        of.ask("thread/backgroundTerminals/list", **ours, cursor="x"),
        of.ask("thread/backgroundTerminals/list", threadId=str(uuid.UUID(int=1))),
        of.ask("thread/backgroundTerminals/list", threadId="x"),
    ]
    turn = of.run(thread, script())
    listed = of.ask("thread/backgroundTerminals/list", **ours)["data"]
    numbers = [int(found["processId"]) for found in listed]
    page = of.ask("thread/backgroundTerminals/list", **ours, limit=0)
    pages = (page["data"] == listed[:1], page["nextCursor"] == listed[0]["processId"], numbers == sorted(numbers))
    commands = {found["itemId"]: found["command"] for found in listed}
    first = next(found["processId"] for found in listed if found["itemId"] == "call_1_0")
    terminated = of.ask("thread/backgroundTerminals/terminate", **ours, processId=first)
    (of.cwd / "pipe").write_text("x\n")
    ended = [of.command("call_1_0"), of.command("call_2_0")]
    cleaned = of.ask("thread/backgroundTerminals/clean", **ours)
    told_before = [m for m in of.client.of("item/completed") if m["params"]["item"]["id"] == "call_3_0"]
    ended.append(of.command("call_3_0"))
    left = of.ask("thread/backgroundTerminals/list", **ours)
    return none, turn["status"], sorted(listed[0]), pages, commands, terminated, ended, (cleaned, told_before), left


def processes(of: Server) -> Any:
    """Not compared: how output comes in pieces, what is made of bytes that are no text (there a code page is guessed),
    and the input of a process that cannot be written to, which is empty here and never ends there."""
    cwd = str(of.cwd)

    def spawn(handle: str, script: str, **more: Any) -> Any:
        return of.ask("process/spawn", **{"processHandle": handle, "command": ["sh", "-c", script], "cwd": cwd, **more})

    def write(handle: str, **more: Any) -> Any:
        return of.ask("process/writeStdin", processHandle=handle, **more)

    def end(handle: str) -> Json:
        told = of.told("process/exited", processHandle=handle)
        deltas = [message["params"] for message in of.client.of("process/outputDelta")]
        mine = [delta for delta in deltas if delta["processHandle"] == handle]
        streams = {"stdout": b"", "stderr": b""}
        for delta in mine:
            streams[delta["stream"]] += base64.b64decode(delta["deltaBase64"])
        return {**told, "streamed": {name: data.decode() for name, data in streams.items()}}

    size = {"rows": 11, "cols": 22}
    text = base64.b64encode(b"yes\n").decode()
    learned: list[Any] = [
        [spawn("plain", "echo out; echo err >&2; exit 3"), end("plain")],
        [spawn("streamed", "echo out; echo err >&2", streamStdoutStderr=True), end("streamed")],
        [spawn("capped", "printf 1234567890; printf ab >&2", outputBytesCap=4), end("capped")],
        [spawn("both", "printf 1234567890", outputBytesCap=4, streamStdoutStderr=True), end("both")],
        [spawn("late", "sleep 600", timeoutMs=200), end("late")],
        [spawn("free", "true", timeoutMs=None, outputBytesCap=None), end("free")],
        [spawn("env", "echo $ADDED-$HOME", env={"ADDED": "1", "HOME": None}), end("env")],
        [spawn("left", "sleep 600 & echo hi"), end("left")],
        [spawn("shot", "kill -9 $$"), end("shot")],
        [spawn("x", "true", command=[]), spawn("", "true"), spawn("x", "true", cwd="x"), spawn("x", "true", size=size)],
        [spawn("x", "true", command=["/does/not/exist"]), spawn("x", "true", timeoutMs=-1)],
        [spawn("x", "true", tty=True, size={"rows": 0, "cols": 1})],
        [of.ask("process/kill", processHandle="x"), write("x", deltaBase64=text)],
    ]
    learned += [spawn("cat", "cat", streamStdin=True), write("cat", deltaBase64="%"), write("cat")]
    learned += [write("cat", deltaBase64=text), write("cat", closeStdin=True), end("cat")]
    learned += [spawn("tty", "stty -echo; stty size; read x; echo $x; stty size", tty=True, size=size, timeoutMs=None)]
    of.told("process/outputDelta", processHandle="tty")
    learned += [of.ask("process/resizePty", processHandle="tty", size={"rows": 5, "cols": 6})]
    learned += [write("tty", deltaBase64=text), end("tty")]
    learned += [spawn("kept", "sleep 600", timeoutMs=None), spawn("kept", "true"), write("kept", deltaBase64=text)]
    learned += [of.ask("process/resizePty", processHandle="kept", size=size)]
    learned += [of.ask("process/kill", processHandle="kept"), end("kept")]
    return learned


def _look_everywhere(of: Server, files: int) -> None:
    """A server may answer before it has seen all files: ask until it has."""
    for query in cycle("ap"):
        before = len(of.client.told)
        of.ask("fuzzyFileSearch/sessionUpdate", sessionId="s", query=query)
        while not (
            found := [message for message in of.client.told[before:] if message["params"].get("query") == query]
        ):
            of.client.receive()
        if len(found[-1]["params"]["files"]) == files:
            return


def search_sessions(of: Server) -> Any:
    (of.cwd / "src").mkdir()
    names = ("alpha.py", "beta.py", "src/alphabet.txt")
    for name in names:
        (of.cwd / name).write_text("x")
    learned = [of.ask("fuzzyFileSearch/sessionStart", sessionId="s", roots=[str(of.cwd)])]
    _look_everywhere(of, len(names))
    for query in ("al", "be", "nothing", ""):
        learned.append(of.ask("fuzzyFileSearch/sessionUpdate", sessionId="s", query=query))
        files = of.told("fuzzyFileSearch/sessionUpdated", query=query)["files"]
        learned.append([{name: value for name, value in file.items() if name != "root"} for file in files])
        learned.append(of.told("fuzzyFileSearch/sessionCompleted"))
    learned += [of.ask("fuzzyFileSearch/sessionStop", sessionId=name) for name in ("s", "s")]
    learned.append(of.ask("fuzzyFileSearch/sessionUpdate", sessionId="s", query="x"))
    learned.append(of.ask("fuzzyFileSearch/sessionStart", sessionId="", roots=[str(of.cwd)]))
    learned.append(of.ask("fuzzyFileSearch/sessionStart", sessionId="s", roots=[]))
    return learned


def items_and_feedback(of: Server) -> Any:
    """A thread that there is not is an invalid request here, and an unknown method there."""
    thread = of.ask("thread/start", cwd=str(of.cwd))["thread"]["id"]

    def script() -> Script:
        yield [exec_command("echo hi")]
        yield "done"

    turn = of.run(thread, script())["id"]

    def read(*ids: str, turn: str = turn) -> Any:
        answer = of.ask("thread/items/read", threadId=thread, turnId=turn, itemIds=ids)
        return answer if isinstance(answer, int) else [entry["item"]["type"] for entry in answer["data"]]

    done = [message["params"]["item"]["id"] for message in of.client.of("item/completed")]
    learned = [read(*done[::-1]), read(done[1], done[1], "nobody"), read(), read(*["x"] * 101)]
    learned += [read(*done, turn="nobody"), of.ask("thread/items/read", threadId="x", turnId=turn, itemIds=done)]

    def save(name: str, **more: Any) -> Any:
        answer = of.ask("feedback/save", classification="bug", savePath=str(of.cwd / name), **more)
        if isinstance(answer, int):
            return answer
        with zipfile.ZipFile(of.cwd / name) as archive:
            names = {"report.json", "manifest.json"} <= set(archive.namelist())
        known = answer["threadId"] == thread or answer["threadId"].startswith("no-active-thread-")
        return sorted(answer), answer["savedPath"] == str(of.cwd / name), known, names

    learned += [save("a.zip", threadId=thread, includeLogs=True), save("a.zip"), save("b.txt"), save("no/c.zip")]
    learned += [save("d.zip", threadId="x"), save("e.zip", extraLogFiles=["/does/not/exist"])]
    learned += [of.ask("feedback/save", classification="bug", savePath="relative.zip")]
    return learned


@pytest.mark.parametrize("story", [terminals, processes, search_sessions, items_and_feedback])
def test_a_client_learns_the_same_from_both(story: Story, tmp_path: Path) -> None:
    codex = installed("codex-npm")
    with server([str(codex), "app-server"], tmp_path / "real") as real:
        recorded = story(real)
    with server([sys.executable, "-m", "treadle", "app-server"], tmp_path / "ours") as ours:
        assert story(ours) == recorded
