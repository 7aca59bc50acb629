"""The order of what clients are told, as a property over random scripts of models, tools, steers and interrupts."""

from __future__ import annotations

import asyncio
import itertools
import json
import tempfile
import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from system.agent.order import check_thread
from system.agent.scene import Json, Scene, patch, said, scene, shell
from treadle.errors import RpcError
from treadle.llm import failure
from treadle.testing import (
    MockModel,
    RecordedRequest,
    Reply,
    Usage,
    error_reply,
    item_events,
    message_events,
    message_item,
    sse_reply,
    stream,
)

RETRIES = 2
CLIENT_TOOL = {"type": "function", "name": "ask_client", "description": "", "inputSchema": {"type": "object"}}

# --- what a model may answer -----------------------------------------------------------------------------------------

texts = st.text(alphabet="ab é\n", min_size=1, max_size=6)
messages = st.tuples(st.just("message"), st.lists(texts, min_size=1, max_size=3), st.booleans())
reasonings = st.tuples(st.just("reasoning"), st.lists(texts, min_size=1, max_size=2), st.booleans())
calls = st.tuples(
    st.just("call"),
    st.sampled_from(["plan", "patch", "bad_patch", "unknown", "bad_json", "client", "client", "command"]),
    st.none(),
)
parts = st.one_of(messages, reasonings, calls)
ends = st.sampled_from(["completed"] * 5 + ["cut", "cut", "server_error", "incomplete", "context"])
points = st.sampled_from([None, None, "start", "middle"])
acts = st.sampled_from(["steer", "interrupt", "join"])


@dataclass(frozen=True)
class Planned:
    """One answer of the model: its parts, how it ends, and what the user does where it pauses."""

    parts: list[Any]
    end: str
    point: str | None
    act: str
    share: float = 1.0  # how much of the parts comes, when it breaks off


responses = st.one_of(
    st.builds(Planned, st.lists(parts, min_size=1, max_size=3), ends, points, acts, st.floats(0, 1)),
    st.builds(Planned, st.just([]), st.sampled_from(["http400", "http500"]), st.none(), acts),
)


@dataclass(frozen=True)
class Plan:
    """What will happen in a thread. `tool_acts` is what the user does while the client's tool runs."""

    turns: list[list[Planned]]
    tool_acts: list[str | None]


plans_of_threads = st.builds(
    Plan,
    st.lists(st.lists(responses, min_size=1, max_size=4), min_size=1, max_size=2),
    st.lists(st.sampled_from(["interrupt", "steer", None]), min_size=1, max_size=3),
)


@dataclass
class Script:
    """The answers for one thread, and the pauses that the mock has reached."""

    loop: asyncio.AbstractEventLoop
    answers: deque[Planned] = field(default_factory=deque)
    pauses: asyncio.Queue[tuple[str, threading.Event]] = field(default_factory=asyncio.Queue)
    tool_acts: deque[str | None] = field(default_factory=deque)


class Author:
    """Makes replies of plans. Every id and every usage occurs once."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self.scripts: dict[str, Script] = {}
        self.gates: list[threading.Event] = []

    def answer(self, request: RecordedRequest) -> Reply:
        script = self.scripts[request.headers["thread-id"]]
        planned = script.answers.popleft() if script.answers else Planned([], "completed", None, "")
        if planned.end.startswith("http"):
            return error_reply(int(planned.end[4:]), {"error": {"message": "no"}})
        events: list[Any] = []
        items: list[Json] = []
        middle = 1
        for part in planned.parts:
            made = list(self._part(part, items))
            middle = middle if events else 1 + max(1, len(made) // 2)
            events += made
        if planned.end != "completed":
            events = events[: round(planned.share * len(events))]
        whole = stream("resp", events, items, Usage(input_tokens=1000 + next(self._numbers)))
        cut_after = len(whole) - 1 if planned.end == "cut" else None
        if planned.end not in ("completed", "cut"):
            whole[-1] = _failure(planned.end)
        if planned.point is None:
            return sse_reply(whole, cut_after=cut_after)
        gate = threading.Event()
        self.gates.append(gate)
        script.loop.call_soon_threadsafe(script.pauses.put_nowait, (planned.act, gate))
        at = 0 if planned.point == "start" else min(middle, len(whole) - 1)
        return sse_reply(whole, gate=gate, gate_after=at, cut_after=cut_after)

    def _part(self, part: Any, items: list[Json]) -> Iterator[Any]:
        kind, content, only_done = part
        number = next(self._numbers)
        if kind == "message":
            item = message_item(f"msg_{number}", "".join(content), None)
            events = list(message_events(item, content, len(items)))
            yield from events[-1:] if only_done else events
        elif kind == "reasoning":
            item = _reasoning_item(number, content)
            events = list(_reasoning_events(item, content, len(items)))
            yield from events[-1:] if only_done else events
        else:
            item = _call_item(number, content)
            yield from item_events(item, len(items))
        items.append(item)


def _reasoning_item(number: int, content: list[str]) -> Json:
    summary = [{"type": "summary_text", "text": text} for text in content]
    return {"type": "reasoning", "id": f"rs_{number}", "summary": summary, "content": []}


def _reasoning_events(item: Json, content: list[str], index: int) -> Iterator[Json]:
    yield {"type": "response.output_item.added", "output_index": index, "item": {**item, "summary": []}}
    for part, text in enumerate(content):
        where = {"item_id": item["id"], "output_index": index, "summary_index": part}
        yield {"type": "response.reasoning_summary_part.added", **where, "part": {"type": "summary_text", "text": ""}}
        yield {"type": "response.reasoning_summary_text.delta", **where, "delta": text}
    yield {"type": "response.output_item.done", "output_index": index, "item": item}


def _call_item(number: int, kind: str) -> Json:
    name, arguments = {
        "plan": ("update_plan", json.dumps({"plan": [{"step": "a", "status": "pending"}]})),
        "patch": ("apply_patch", json.dumps({"input": patch(f"*** Add File: made_{number}.txt", "+x")})),
        "bad_patch": ("apply_patch", json.dumps({"input": patch("*** Update File: none.txt", "@@", "-a", "+b")})),
        "unknown": ("no_such_tool", "{}"),
        "bad_json": ("exec_command", "{oops"),
        "client": ("ask_client", "{}"),
        "command": ("exec_command", json.dumps(shell("echo out"))),
    }[kind]
    common = {"call_id": f"call_{number}", "name": name, "status": "completed"}
    return {"type": "function_call", "id": f"fc_{number}", "arguments": arguments, **common}


def _failure(end: str) -> Json:
    if end == "incomplete":
        return {
            "type": "response.incomplete",
            "response": {"id": "r", "incomplete_details": {"reason": "max_output_tokens"}},
        }
    code = "server_error" if end == "server_error" else "context_length_exceeded"
    return {"type": "response.failed", "response": {"id": "r", "error": {"code": code, "message": "no"}}}


# --- the user --------------------------------------------------------------------------------------------------------


async def _act(stage: Scene, thread: str, turn: str, act: str) -> None:
    """Whatever the user does may come too late, which is an error and harms nothing."""
    try:
        if act == "steer":
            await stage.steer(thread, turn, "steered")
        elif act == "join":
            joined = await stage.client.request("turn/start", {"threadId": thread, "input": said("joined")})
            await stage.end(joined["turn"]["id"])
        else:
            await stage.interrupt(thread, turn)
    except RpcError as error:
        if not error.message.startswith(("no active turn", "expected active turn")):
            raise


async def _play(stage: Scene, script: Script, thread: str, answers: list[Planned]) -> None:
    """One turn, with what the user does meanwhile; more turns, when something to join it with came too late."""
    script.answers.extend(answers)
    turn = await stage.begin(thread)
    async with asyncio.TaskGroup() as group:
        joins: list[asyncio.Task[None]] = []
        acting = group.create_task(_act_at_pauses(stage, script, thread, turn, group, joins))
        await stage.end(turn)
        while not all(join.done() for join in joins):
            await asyncio.wait(joins)
        acting.cancel()
    script.answers.clear()


async def _act_at_pauses(
    stage: Scene, script: Script, thread: str, turn: str, group: asyncio.TaskGroup, joins: list[asyncio.Task[None]]
) -> None:
    while True:
        act, gate = await script.pauses.get()
        if act == "join":
            joins.append(group.create_task(_act(stage, thread, turn, act)))  # it waits for the end of the turn
        else:
            await _act(stage, thread, turn, act)
        gate.set()


async def _answer_tool(stage: Scene, script: Script, ask: Json) -> None:
    """The client's own tool; the user may do something before it answers, so that it answers too late."""
    act = script.tool_acts.popleft() if script.tool_acts else None
    if act is not None:
        await _act(stage, ask["params"]["threadId"], ask["params"]["turnId"], act)
    stage.client.reply(ask, {"contentItems": [{"type": "inputText", "text": "ok"}], "success": True})


async def _threads(tmp: Path, plans: list[Plan]) -> None:
    author = Author()
    with MockModel(on_empty=author.answer) as model:
        async with scene(tmp, model=model, provider={"stream_max_retries": RETRIES}) as stage:
            threads = [await stage.start(dynamicTools=[CLIENT_TOOL]) for _ in plans]
            scripts = author.scripts
            for thread, plan in zip(threads, plans, strict=True):
                scripts[thread] = Script(asyncio.get_running_loop(), tool_acts=deque(plan.tool_acts))
            async with asyncio.TaskGroup() as group:

                def answer(ask: Json) -> None:
                    group.create_task(_answer_tool(stage, scripts[ask["params"]["threadId"]], ask))

                stage.client.answer = answer
                for thread, plan in zip(threads, plans, strict=True):
                    group.create_task(_conversation(stage, scripts[thread], thread, plan.turns))
            for thread in threads:
                await check_thread(stage, thread)
                _check_counted_once(stage, thread)
        for gate in author.gates:
            gate.set()


def _check_counted_once(stage: Scene, thread: str) -> None:
    """No two responses have the same usage."""
    told = [message["params"] for message in stage.client.told("thread/tokenUsage/updated")]
    last = [params["tokenUsage"]["last"] for params in told if params["threadId"] == thread]
    counted = [usage["inputTokens"] for usage in last if usage["inputTokens"]]
    assert len(set(counted)) == len(counted)


async def _conversation(stage: Scene, script: Script, thread: str, plan: list[list[Planned]]) -> None:
    for answers in [*plan, []]:  # the last request shows what is left of the rest
        await _play(stage, script, thread, answers)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failure, "FIRST_PAUSE_S", 0.0)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(plans=st.lists(plans_of_threads, min_size=1, max_size=2))
def test_order_holds_whatever_happens(plans: list[Plan]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(_threads(Path(directory), plans))
