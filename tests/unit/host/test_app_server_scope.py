"""What belongs to a turn and what does not, on a server that says everything at the worst moment."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from treadle.client import AsyncConnection, CodexConfig, Sink
from treadle.host import AppServerRuntime, Ask, Choice, Delta, Opening, ResumeFailed, RuntimeFault, TurnEnded

pytestmark = pytest.mark.anyio

Json = dict[str, Any]
SETTINGS = {
    "approvalPolicy": "on-request",
    "approvalsReviewer": "user",
    "cwd": "/",
    "model": "m",
    "modelProvider": "p",
    "sandbox": {"type": "readOnly"},
}


class Scripted(AsyncConnection):
    """Answers at once, and tells what a test wants it to. `refusals` are errors to answer with, by method, in order."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self.asked: list[tuple[str, Json]] = []
        self.replies: list[Json] = []
        self.refusals: dict[str, list[tuple[int, str]]] = {}
        self.resumed_as: str | None = None
        self.turns = 0

    def send(self, frame: bytes) -> None:
        message = json.loads(frame)
        if "method" not in message:
            self.replies.append(message)
            return
        self.asked.append((message["method"], message.get("params") or {}))
        if "id" in message:
            asyncio.get_running_loop().call_soon(self._answer, message)

    async def close(self) -> None:
        return

    def say(self, *messages: Json) -> None:
        self._sink.frames_received([json.dumps(message, separators=(",", ":")).encode() for message in messages])

    def tell(self, method: str, **params: Any) -> None:
        self.say({"method": method, "params": params})

    def started(self, turn_id: str, thread_id: str = "t") -> None:
        self.tell("turn/started", threadId=thread_id, turn=_turn(turn_id, "inProgress"))

    def ended(self, turn_id: str, thread_id: str = "t", status: str = "completed") -> None:
        self.tell("turn/completed", threadId=thread_id, turn=_turn(turn_id, status))

    def said(self, turn_id: str, text: str, thread_id: str = "t") -> None:
        self.tell("item/agentMessage/delta", threadId=thread_id, turnId=turn_id, itemId="i", delta=text)

    def methods(self) -> list[str]:
        return [method for method, _ in self.asked]

    def _answer(self, message: Json) -> None:
        method = message["method"]
        refusals = self.refusals.get(method)
        if refusals:
            code, text = refusals.pop(0)
            self.say({"id": message["id"], "error": {"code": code, "message": text}})
        else:
            self.say({"id": message["id"], "result": self._result(method, message.get("params") or {})})

    def _result(self, method: str, params: Json) -> Json:
        match method:
            case "initialize":
                return {"userAgent": "scripted/1.0"}
            case "thread/start":
                return {**SETTINGS, "thread": _thread("t")}
            case "thread/resume":
                return {**SETTINGS, "thread": _thread(self.resumed_as or params["threadId"])}
            case "turn/start":
                self.turns += 1
                return {"turn": _turn(f"u{self.turns}", "inProgress")}
        return {}


def _turn(turn_id: str, status: str) -> Json:
    return {"id": turn_id, "items": [], "status": status}


def _thread(thread_id: str) -> Json:
    texts = dict.fromkeys(("preview", "modelProvider", "cwd", "cliVersion", "sessionId"), "")
    numbers = dict.fromkeys(("createdAt", "updatedAt"), 0)
    rest = {"ephemeral": False, "source": "appServer", "status": {"type": "idle"}, "turns": [], "historyMode": "legacy"}
    return {"id": thread_id, **texts, **numbers, **rest}


class Stage:
    def __init__(self) -> None:
        self.runtime = AppServerRuntime(CodexConfig())
        self.server: Scripted

    async def open(self, ask: Callable[[Ask], Any] | None = None, **opening: Any) -> Scripted:
        async def deny(_: Ask) -> Choice:
            return "deny"

        await self.runtime.open(Opening(**opening), ask or deny)
        return self.server

    async def rest(self) -> tuple[str, TurnEnded]:
        """What is said until the end."""
        text = ""
        async with asyncio.timeout(20):
            while not isinstance(event := await self.runtime.next_event(), TurnEnded):
                text += event.text if isinstance(event, Delta) else ""
        return text, event


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    made = Stage()

    async def connect(_: CodexConfig, sink: Sink) -> Scripted:
        made.server = Scripted(sink)
        return made.server

    monkeypatch.setattr("treadle.client.async_connection.open_connection", connect)
    return made


async def test_the_end_of_a_sub_agents_turn_is_not_ours(stage: Stage) -> None:
    server = await stage.open()
    assert await stage.runtime.start_turn("hi", {}) == "u1"
    server.started("u1")
    server.started("sub", "other-thread")
    server.said("sub", "from the sub-agent", "other-thread")
    server.ended("sub", "other-thread")
    server.said("u1", "ours")
    server.ended("u1")
    assert await stage.rest() == ("ours", TurnEnded("completed"))


async def test_the_late_end_of_an_interrupted_turn_is_not_that_of_the_next(stage: Stage) -> None:
    server = await stage.open()
    await stage.runtime.start_turn("one", {})
    server.started("u1")
    await stage.runtime.interrupt()
    starting = asyncio.create_task(stage.runtime.start_turn("two", {}))  # nobody waits for the end of the first
    while server.methods().count("turn/interrupt") < 2:
        await asyncio.sleep(0)
    server.said("u1", "too late")
    server.ended("u1", status="interrupted")
    assert await starting == "u2"
    server.ended("u1", status="interrupted")  # and again
    server.said("u2", "second")
    server.ended("u2")
    assert await stage.rest() == ("second", TurnEnded("completed"))


async def test_a_turn_that_has_not_begun_is_interrupted_when_it_has(stage: Stage) -> None:
    server = await stage.open()
    await stage.runtime.start_turn("one", {})
    server.refusals["turn/interrupt"] = [(-32600, "no active turn to interrupt")]
    interrupting = asyncio.create_task(stage.runtime.interrupt())
    while "turn/interrupt" not in server.methods():
        await asyncio.sleep(0)
    await asyncio.sleep(0.01)
    assert server.methods().count("turn/interrupt") == 1
    server.started("u1")
    async with asyncio.timeout(20):
        await interrupting
    assert server.methods().count("turn/interrupt") == 2
    server.ended("u1", status="interrupted")
    assert (await stage.rest())[1] == TurnEnded("interrupted")
    await stage.runtime.interrupt()
    assert server.methods().count("turn/interrupt") == 2


async def test_the_turn_that_sums_up_is_the_one_that_begins_now(stage: Stage) -> None:
    server = await stage.open()
    await stage.runtime.start_turn("one", {})
    server.started("u1")
    server.ended("u1")
    await stage.rest()
    compacting = asyncio.create_task(stage.runtime.compact())
    while "thread/compact/start" not in server.methods():
        await asyncio.sleep(0)
    server.ended("u1")
    server.started("elsewhere", "other-thread")
    server.started("u9")
    assert await compacting is True
    server.tell("thread/compacted", threadId="t", turnId="u9")
    server.ended("u9")
    assert (await stage.rest())[1] == TurnEnded("completed")


async def test_another_thread_than_the_one_that_was_asked_for(stage: Stage) -> None:
    with pytest.raises(RuntimeFault, match="No turn"):
        await stage.runtime.next_event()
    await stage.open()
    stage.server.resumed_as = "somebody-else"
    with pytest.raises(ResumeFailed, match="somebody-else"):
        await stage.open(resume="mine")
    await stage.open()
    assert stage.server.methods().count("initialize") == 1
    assert stage.server.methods().count("thread/start") == 2


async def test_a_question_that_is_withdrawn_is_cancelled_and_not_answered(stage: Stage) -> None:
    asked, withdrawn = asyncio.Event(), asyncio.Event()

    async def think(_: Ask) -> Choice:
        asked.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            withdrawn.set()
            raise
        return "once"

    server = await stage.open(think)
    params = {"threadId": "t", "turnId": "u1", "itemId": "i", "startedAtMs": 1, "command": "true"}
    server.say({"id": 7, "method": "item/commandExecution/requestApproval", "params": params})
    async with asyncio.timeout(20):
        await asked.wait()
        server.tell("serverRequest/resolved", threadId="t", requestId=8)  # another one
        await asyncio.sleep(0)
        assert not withdrawn.is_set()
        server.tell("serverRequest/resolved", threadId="t", requestId=7)
        await withdrawn.wait()
    assert server.replies == []
    await stage.runtime.close()


async def test_what_is_sent_is_explicit(stage: Stage) -> None:
    server = await stage.open(instructions="Be Ada.", cwd="/", history=({"role": "user", "content": "tea?"},))
    params = dict(server.asked)["thread/start"]
    assert (params["sandbox"], params["approvalPolicy"], params["approvalsReviewer"]) == (
        "workspace-write",
        "on-request",
        "user",
    )
    assert params["developerInstructions"].startswith("Be Ada.\n\n")
    assert "[USER]\n  tea?" in params["developerInstructions"]
    await stage.open(instructions="Be Ada.", resume="t", history=({"role": "user", "content": "tea?"},))
    params = dict(server.asked)["thread/resume"]
    assert (params["developerInstructions"], params["excludeTurns"]) == ("Be Ada.", True)


async def test_an_overloaded_server_is_asked_again(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    await stage.open()
    stage.server.refusals["thread/resume"] = [(-32001, "busy")]
    await stage.open(resume="t")
    assert stage.server.methods().count("thread/resume") == 2
