"""The two clients without a server: handles and threads on top of replaced methods, notifications by hand, answers."""

from __future__ import annotations

import asyncio
import inspect
import json
import math
import pickle
import queue
import threading
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from treadle.client import (
    AppServerClient,
    AsyncAppServerClient,
    AsyncCodex,
    AsyncThread,
    AsyncTurnHandle,
    CodexConfig,
    Notification,
    RequestTimeout,
    RunResult,
    Thread,
    TransportClosedError,
    TurnConflict,
    TurnFailed,
    TurnHandle,
    make,
    request_timeout,
)
from treadle.protocol.app import TurnStartParams, TurnStartResponse
from treadle.transport import LoopOwner

pytestmark = pytest.mark.anyio

WAIT_S = 30.0


class Face:
    """One of the two faces of the SDK, on a client that is not connected."""

    def __init__(self, name: str) -> None:
        self.is_async = name == "async"
        self.codex = AsyncCodex()
        self.codex._initialized = True
        self.client: Any = self.codex._client if self.is_async else AppServerClient()

    def thread(self, thread_id: str = "thread-1") -> Any:
        return AsyncThread(self.codex, thread_id) if self.is_async else Thread(self.client, thread_id)

    def turn(self, turn_id: str = "turn-1", thread_id: str = "thread-1") -> Any:
        if self.is_async:
            return AsyncTurnHandle(self.codex, thread_id, turn_id)
        return TurnHandle(self.client, thread_id, turn_id)

    def replace(self, name: str, function: Callable[..., Any]) -> None:
        """Put a plain function in the place of a method, as users' tests do."""

        async def awaitable(*arguments: Any, **named: Any) -> Any:
            return function(*arguments, **named)

        setattr(self.client, name, awaitable if self.is_async else function)

    def plays(self, events: Iterable[Notification]) -> list[tuple[str, str]]:
        """`next_turn_notification` gives these; returns the record of its calls."""
        rest, calls = iter(list(events)), []

        def next_turn_notification(thread_id: str, turn_id: str) -> Notification:
            calls.append((thread_id, turn_id))
            return next(rest)

        self.replace("next_turn_notification", next_turn_notification)
        return calls


@pytest.fixture(params=["sync", "async"])
async def face(request: pytest.FixtureRequest) -> Face:
    return Face(request.param)


async def now(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


async def everything(stream: Any) -> list[Any]:
    return [event async for event in stream] if hasattr(stream, "__aiter__") else list(stream)


def said(text: str, turn: str = "turn-1", phase: str | None = None) -> Notification:
    item = {"type": "agentMessage", "id": "item", "text": text, "phase": phase}
    return make("item/completed", {"threadId": "thread-1", "turnId": turn, "item": item, "completedAtMs": 0})


def delta(text: str, turn: str = "turn-1") -> Notification:
    return make("item/agentMessage/delta", {"threadId": "thread-1", "turnId": turn, "itemId": "item", "delta": text})


def ended(turn: str = "turn-1", status: str = "completed", error: str | None = None) -> Notification:
    told = None if error is None else {"message": error}
    return make(
        "turn/completed", {"threadId": "thread-1", "turn": {"id": turn, "items": [], "status": status, "error": told}}
    )


def started(turn: str = "turn-1") -> Any:
    return SimpleNamespace(turn=SimpleNamespace(id=turn))


# --- handles and threads on replaced methods ---


async def test_a_handle_reads_through_the_client(face: Face) -> None:
    calls = face.plays([delta("hi"), said("hi"), ended()])
    result = await now(face.turn().run())
    assert (result.final_response, result.status, len(result.items)) == ("hi", "completed", 1)
    assert calls == [("thread-1", "turn-1")] * 3


async def test_a_stream_ends_with_its_turn(face: Face) -> None:
    face.plays([delta("hi"), ended(), delta("of another world")])
    assert [event.method for event in await everything(face.turn().stream())] == [
        "item/agentMessage/delta",
        "turn/completed",
    ]


async def test_a_thread_starts_its_turn_through_the_client(face: Face) -> None:
    sent: list[Any] = []

    def turn_start(thread_id: str, wire_input: list[Any], *, params: Any = None) -> Any:
        sent.append((thread_id, wire_input, params))
        return started()

    face.replace("turn_start", turn_start)
    face.plays([said("hi"), ended()])
    assert (await now(face.thread().run("hello"))).final_response == "hi"
    ((thread_id, wire_input, params),) = sent
    assert (thread_id, wire_input) == ("thread-1", [{"type": "text", "text": "hello"}])
    assert params.model_dump(by_alias=True, exclude_none=True, mode="json") == {
        "threadId": "thread-1",
        "input": [{"type": "text", "text": "hello"}],
    }


async def test_results_are_equal_when_what_was_done_is(face: Face) -> None:
    face.replace("turn_start", lambda thread_id, wire_input, *, params=None: started())
    face.plays([said("hi"), ended(), said("hi"), ended(), said("ho"), ended()])
    first, second, third = [await now(face.thread().run("hello")) for _ in range(3)]
    assert first == second == RunResult(final_response="hi", items=first.items, usage=None)
    assert first != third


async def test_a_failed_turn_raises_with_the_words_of_the_server(face: Face) -> None:
    face.plays([ended(status="failed", error="boom")])
    with pytest.raises(RuntimeError, match=r"^boom$") as caught:
        await now(face.turn().run())
    assert isinstance(caught.value, TurnFailed)


async def test_events_of_a_thread(face: Face) -> None:
    face.replace("turn_start", lambda thread_id, wire_input, *, params=None: started())
    face.plays([delta("hi"), said("hi"), ended()])
    assert [event.kind for event in await everything(face.thread().events("hello"))] == ["text_delta", "text", "done"]


# --- notifications by hand ---


async def test_what_came_before_the_stream_is_in_it(face: Face) -> None:
    for event in (delta("early"), said("early"), ended()):
        face.client._dispatch_notification(event)
    assert [event.method for event in await everything(face.turn().stream())] == [
        "item/agentMessage/delta",
        "item/completed",
        "turn/completed",
    ]


async def test_what_comes_while_the_stream_is_read_is_in_it(face: Face) -> None:
    stream = face.turn().stream()
    face.client._dispatch_notification(delta("one"))
    first = await anext(stream) if face.is_async else next(stream)
    for event in (delta("of another", turn="turn-2"), delta("two"), ended()):
        face.client._dispatch_notification(event)
    rest = await everything(stream)
    assert [event.payload.delta for event in (first, *rest[:-1])] == ["one", "two"]


async def test_a_reader_is_woken(face: Face) -> None:
    if face.is_async:
        running = asyncio.create_task(face.turn().run())
    else:
        running = asyncio.create_task(asyncio.to_thread(face.turn().run))
    while face.client._router.readers == 0:
        await asyncio.sleep(0)
    for event in (said("hi"), ended()):
        face.client._dispatch_notification(event)
    assert (await running).final_response == "hi"


async def test_low_level_reading_ends_with_the_turn(face: Face) -> None:
    for event in (delta("one"), ended()):
        face.client._dispatch_notification(event)
    found = [await now(face.client.next_turn_notification("thread-1", "turn-1")) for _ in range(2)]
    assert found[1].method == "turn/completed"
    with pytest.raises(TurnConflict, match="has ended"):
        await now(face.client.next_turn_notification("thread-1", "turn-1"))


async def test_waiting_for_a_completion(face: Face) -> None:
    for event in (delta("one"), ended()):
        face.client._dispatch_notification(event)
    assert (await now(face.client.wait_for_turn_completed("turn-1"))).turn.id == "turn-1"


async def test_all_notifications_are_refused_while_a_turn_is_read(face: Face) -> None:
    stream = face.turn().stream()
    for event in (delta("one"), delta("two"), ended()):
        face.client._dispatch_notification(event)
    await (anext(stream) if face.is_async else now(next(stream)))
    with pytest.raises(RuntimeError, match=r"next_notification\(\) is incompatible"):
        await now(face.client.next_notification())
    await everything(stream)
    assert (await now(face.client.next_notification())).payload.delta == "one"


async def test_unknown_notifications_of_a_turn_are_in_its_stream(face: Face) -> None:
    received = face.client._coerce_notification("item/newThing", {"turnId": "turn-1", "colour": "blue"})
    strange = face.client._coerce_notification("item/completed", {"turnId": "turn-1", "item": 7})
    for event in (received, strange, ended()):
        face.client._dispatch_notification(event)
    seen = await everything(face.turn().stream())
    assert [event.method for event in seen] == ["item/newThing", "item/completed", "turn/completed"]
    assert seen[0].payload.params == {"turnId": "turn-1", "colour": "blue"}
    assert seen[1].payload.params == {"turnId": "turn-1", "item": 7}


async def test_unknown_notifications_do_not_disturb_a_result(face: Face) -> None:
    newer = {"type": "holographic", "id": "x", "depth": 3}
    for event in (
        make("turn/somethingNew", {"turnId": "turn-1"}),
        make("item/completed", {"threadId": "thread-1", "turnId": "turn-1", "item": newer, "completedAtMs": 0}),
        said("hi"),
        ended(),
    ):
        face.client._dispatch_notification(event)
    result = await now(face.turn().run())
    assert [item.type for item in result.items] == ["holographic", "agentMessage"]
    assert result.items[0].root["depth"] == 3
    assert result.final_response == "hi"


async def test_a_completion_of_a_newer_server_ends_the_stream(face: Face) -> None:
    event = make(
        "turn/completed", {"threadId": "thread-1", "turn": {"id": "turn-1", "status": "dreaming", "items": []}}
    )
    face.client._dispatch_notification(event)
    result = await now(face.turn().run())
    assert (str(result.status), result.final_response) == ("dreaming", None)


# --- requests without a server ---


class Road:
    """A connection that goes nowhere: what is sent is kept."""

    def __init__(self) -> None:
        self.frames: queue.Queue[bytes] = queue.Queue()

    def send(self, frame: bytes) -> None:
        self.frames.put(frame)

    async def next(self) -> Any:
        frame = await asyncio.to_thread(self.frames.get, timeout=WAIT_S)
        return json.loads(frame)


@pytest.fixture
def road(face: Face) -> Road:
    made = Road()
    face.client._connection = made
    return made


def ask(face: Face, method: str, *arguments: Any, **named: Any) -> asyncio.Task[Any]:
    """Call a method of the client, on a thread if it blocks."""
    call = getattr(face.client, method)
    made = call(*arguments, **named) if face.is_async else asyncio.to_thread(call, *arguments, **named)
    return asyncio.create_task(made)


def answer(face: Face, request: Any, result: Any) -> None:
    face.client.frames_received([json.dumps({"id": request["id"], "result": result}).encode()])


TURN = {"turn": {"id": "turn-1", "items": [], "status": "inProgress"}}


async def test_a_raw_request(face: Face, road: Road) -> None:
    asking = ask(face, "request", "model/list", {}, response_model=TurnStartResponse)
    sent = await road.next()
    assert (sent["method"], sent["params"]) == ("model/list", {})
    answer(face, sent, TURN)
    assert (await asking).turn.id == "turn-1"


async def test_a_raw_turn_start_takes_the_struct_too(face: Face) -> None:
    sent = []

    class Echo(Road):
        def send(self, frame: bytes) -> None:
            sent.append(json.loads(frame))
            answer(face, sent[-1], TURN)

    face.client._connection = Echo()
    params = TurnStartParams(thread_id="thread-1", input=())
    started = await ask(face, "request", "turn/start", params, response_model=TurnStartResponse)
    assert started.turn.id == "turn-1"
    assert [request["params"] for request in sent] == [{"threadId": "thread-1", "input": []}]


async def test_requests_may_be_answered_in_any_order(face: Face, road: Road) -> None:
    asking = [ask(face, "turn_start", f"thread-{number}", "go") for number in range(3)]
    sent = [await road.next() for _ in asking]
    for request in reversed(sent):
        number = request["params"]["threadId"][-1]
        answer(face, request, {"turn": {**TURN["turn"], "id": f"turn-{number}"}})
    assert [(await task).turn.id for task in asking] == ["turn-0", "turn-1", "turn-2"]


async def test_everything_about_a_turn_may_come_with_the_answer_to_its_start(face: Face, road: Road) -> None:
    starting = ask(face, "turn_start", "thread-1", "go")
    sent = await road.next()
    completed = {"threadId": "thread-1", "turn": {**TURN["turn"], "status": "completed"}}
    frames = [{"method": "turn/completed", "params": completed}, {"id": sent["id"], "result": TURN}]
    face.client.frames_received([json.dumps(frame).encode() for frame in frames])
    await starting
    again = ask(face, "turn_start", "thread-1", "go on")
    answer(face, await road.next(), {"turn": {**TURN["turn"], "id": "turn-2"}})
    assert (await again).turn.id == "turn-2"
    assert [event.method for event in await everything(face.turn().stream())] == ["turn/completed"]


async def test_a_second_turn_is_not_even_sent(face: Face, road: Road) -> None:
    starting = ask(face, "turn_start", "thread-1", "go")
    first = await road.next()
    with pytest.raises(RuntimeError, match="already has active turn"):
        await ask(face, "turn_start", "thread-1", "go")
    answer(face, first, TURN)
    await starting
    with pytest.raises(RuntimeError, match=r"already has active turn 'turn-1'.*steer"):
        await ask(face, "turn_start", "thread-1", "go")
    assert road.frames.empty()


async def test_a_late_answer_is_ignored(face: Face, road: Road) -> None:
    with pytest.raises(RequestTimeout, match="model/list was not answered within 0 s"):
        await ask(face, "model_list", timeout=0)
    answer(face, await road.next(), {"data": []})
    asking = ask(face, "model_list")
    answer(face, await road.next(), {"data": []})
    assert not (await asking).data


async def test_waiting_for_news_may_have_a_limit(face: Face, road: Road) -> None:
    with pytest.raises(RequestTimeout, match="has sent nothing within 0 s"):
        await ask(face, "next_notification", timeout=0)
    with pytest.raises(RequestTimeout, match="turn-1"):
        await ask(face, "next_turn_notification", "thread-1", "turn-1", timeout=0)
    face.client._dispatch_notification(delta("late"))
    assert (await ask(face, "next_turn_notification", "thread-1", "turn-1", timeout=0)).payload.delta == "late"


async def test_the_default_limit_of_requests(face: Face, road: Road) -> None:
    face.client.config = CodexConfig(request_timeout=0)
    with pytest.raises(RequestTimeout, match=r"model/list was not answered within 0 s; timeout= gives a call longer"):
        await ask(face, "model_list")


async def test_there_is_a_limit_without_asking_for_one(face: Face, road: Road, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float | None] = []

    def limit(method: str, given: float | None, usual: float | None) -> float | None:
        asked.append(request_timeout(method, given, usual))
        return 0

    monkeypatch.setattr(f"treadle.client.{'async_' if face.is_async else ''}client.request_timeout", limit)
    calls: dict[str, tuple[Any, ...]] = {
        "model_list": (),
        "initialize": (),
        "thread_start": ({},),
        "turn_start": ("t", "hi"),
    }
    for name, arguments in calls.items():
        with pytest.raises(RequestTimeout):
            await ask(face, name, *arguments)
    assert asked == [120.0] * 4


@pytest.mark.parametrize(
    ("method", "given", "usual", "limit"),
    [
        ("model/list", None, 120.0, 120.0),
        ("model/list", None, None, None),
        ("model/list", 3, 120.0, 3),
        ("model/list", 0, 120.0, 0),
        ("model/list", math.inf, 120.0, None),
        ("command/exec", None, 120.0, None),
        ("command/exec", 3, 120.0, 3),
        ("mcpServer/tool/call", None, 120.0, None),
    ],
)
def test_how_long_an_answer_may_take(
    method: str, given: float | None, usual: float | None, limit: float | None
) -> None:
    assert request_timeout(method, given, usual) == limit


async def test_the_end_wakes_whoever_waits(face: Face, road: Road) -> None:
    asking = [
        ask(face, "model_list"),
        ask(face, "next_notification"),
        ask(face, "next_turn_notification", "t", "turn-1"),
    ]
    await road.next()
    while face.client._router.streams.get("turn-1") is None:
        await asyncio.sleep(0)
    failure = TransportClosedError("it died", exit_code=3, stderr_tail="last words")
    face.client.connection_ended(failure)
    found = await asyncio.gather(*asking, return_exceptions=True)
    assert [str(error) for error in found] == [str(failure)] * 3
    assert all(isinstance(error, TransportClosedError) and error.exit_code == 3 for error in found)
    assert len({id(error) for error in found}) == 3, "each gets one of its own"


async def test_what_is_no_message_ends_the_connection(face: Face, road: Road) -> None:
    asking = ask(face, "model_list")
    await road.next()
    face.client.frames_received([b"what?"])
    with pytest.raises(TransportClosedError, match="no message"):
        await asking


# --- answering ---


QUESTION = {
    "threadId": "thread-1",
    "turnId": "turn-1",
    "itemId": "item",
    "isBlocking": True,
    "questions": [{"id": "q1", "header": "Colour", "question": "Which?", "options": None}],
}


async def _asked(face: Face, road: Road, method: str, params: Any) -> Any:
    face.client.frames_received([json.dumps({"id": "ask-1", "method": method, "params": params}).encode()])
    found = await road.next()
    assert found["id"] == "ask-1"
    return found.get("result", found.get("error"))


@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
async def test_questions_are_answered(face: Face, road: Road, is_async: bool) -> None:
    heard = []

    def plain(request: Any) -> Any:
        heard.append(request)
        return {"q1": "blue", "q2": ["a", "b"]}

    async def awaited(request: Any) -> Any:
        await asyncio.sleep(0)
        return plain(request)

    face.client.handlers.user_input = awaited if is_async else plain
    found = await _asked(face, road, "item/tool/requestUserInput", QUESTION)
    assert found == {"answers": {"q1": {"answers": ["blue"]}, "q2": {"answers": ["a", "b"]}}}
    (request,) = heard
    assert (request.kind, request.turn_id) == ("questions", "turn-1")
    assert [question.question for question in request.questions] == ["Which?"]


async def test_a_tool_server_is_answered(face: Face, road: Road) -> None:
    params = {
        "threadId": "thread-1",
        "turnId": None,
        "serverName": "files",
        "mode": "form",
        "message": "Where?",
        "requestedSchema": {"type": "object", "properties": {}},
    }
    face.client.handlers.user_input = lambda request: {"place": request.message}
    found = await _asked(face, road, "mcpServer/elicitation/request", params)
    assert (found["action"], found["content"]) == ("accept", {"place": "Where?"})
    face.client.handlers.user_input = lambda request: None
    assert (await _asked(face, road, "mcpServer/elicitation/request", params))["action"] == "decline"


@pytest.mark.parametrize("verdict", [None, "broken"], ids=["no handler", "a broken handler"])
async def test_without_an_answer_it_is_no(face: Face, road: Road, verdict: str | None) -> None:
    def broken(request: Any) -> Any:
        raise ValueError(verdict)

    if verdict is not None:
        face.client.handlers.approval = face.client.handlers.user_input = broken
    about = {"threadId": "thread-1", "turnId": "turn-1", "itemId": "item", "startedAtMs": 0}
    assert await _asked(face, road, "item/tool/requestUserInput", QUESTION) == {"answers": {}}
    assert (await _asked(face, road, "item/fileChange/requestApproval", about))["decision"] == "decline"
    assert (await _asked(face, road, "item/commandExecution/requestApproval", about))["decision"] == "decline"
    wanted = {**about, "cwd": "/nowhere", "permissions": {"network": {"enabled": True}}}
    assert not (await _asked(face, road, "item/permissions/requestApproval", wanted))["permissions"].get("network")


async def test_what_is_not_known_is_refused(face: Face, road: Road) -> None:
    assert (await _asked(face, road, "item/newQuestion", {}))["code"] == -32601
    assert (await _asked(face, road, "item/tool/call", {"nonsense": True}))["code"] == -32603


async def test_the_raw_handler_comes_first(road: Road, face: Face) -> None:
    face.client.handlers.raw = lambda method, params: {"method": method, "got": params}
    assert await _asked(face, road, "item/newQuestion", {"x": 1}) == {
        "method": "item/newQuestion",
        "got": {"x": 1},
    }


def told(face: Face, *messages: dict[str, Any]) -> None:
    face.client.frames_received([json.dumps(message).encode() for message in messages])


def question(number: int) -> dict[str, Any]:
    return {"id": number, "method": "item/tool/requestUserInput", "params": QUESTION}


def resolved(number: int) -> dict[str, Any]:
    return {"method": "serverRequest/resolved", "params": {"threadId": "thread-1", "requestId": number}}


class Thinker:
    """A handler that is asked, and answers when it is let; its first question only."""

    def __init__(self) -> None:
        self.asked: queue.Queue[Any] = queue.Queue()
        self.let = threading.Event()
        self.ended: queue.Queue[str] = queue.Queue()

    def plain(self, request: Any) -> Any:
        self.asked.put(request)
        self.let.wait(WAIT_S)
        self.ended.put("answered")
        return {"q1": "blue"}

    async def awaited(self, request: Any) -> Any:
        self.asked.put(request)
        try:
            await asyncio.sleep(WAIT_S)
        except asyncio.CancelledError:
            self.ended.put("cancelled")
            raise

    async def was_asked(self) -> None:
        await asyncio.to_thread(self.asked.get, timeout=WAIT_S)

    async def has_ended(self) -> str:
        return await asyncio.to_thread(self.ended.get, timeout=WAIT_S)


async def test_nobody_waits_for_the_answer_to_a_question_that_was_withdrawn(face: Face, road: Road) -> None:
    thinker = Thinker()
    face.client.handlers.user_input = thinker.plain
    told(face, question(1))
    await thinker.was_asked()
    told(face, resolved(1))
    thinker.let.set()
    assert await thinker.has_ended() == "answered"
    told(face, question(2))
    assert (await road.next())["id"] == 2, "the late answer is not sent"


async def test_a_coroutine_is_cancelled_when_its_question_is_withdrawn(face: Face, road: Road) -> None:
    thinker = Thinker()
    face.client.handlers.user_input = thinker.awaited
    told(face, question(1), question(2))
    for _ in range(2):
        await thinker.was_asked()
    told(face, resolved(2), resolved(77))
    assert await thinker.has_ended() == "cancelled"
    assert thinker.ended.empty(), "the other one goes on"
    told(face, resolved(1))
    assert await thinker.has_ended() == "cancelled"
    assert road.frames.empty()


async def test_only_so_many_questions_are_answered_at_a_time(
    face: Face, road: Road, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = f"treadle.client.{'async_' if face.is_async else ''}shell"
    monkeypatch.setattr(f"{module}.MAX_HANDLERS", 2)
    monkeypatch.setattr(f"{module}.MAX_HANDLER_THREADS", 3)
    thinker = Thinker()
    face.client.handlers.user_input = thinker.plain

    async def refused(number: int) -> None:
        told(face, question(number))
        found = await road.next()
        assert (found["id"], found["error"]["code"]) == (number, -32001)

    async def withdrawn(number: int) -> None:
        told(face, resolved(number))
        while len(face.client._handling) > 1:  # a task takes a moment to be cancelled
            await asyncio.sleep(0)

    told(face, question(1), question(2))
    for _ in range(2):
        await thinker.was_asked()
    await refused(3)
    await withdrawn(1)
    told(face, question(4))  # there is room for it, while the thread of the first goes on
    await thinker.was_asked()
    await withdrawn(2)
    await refused(5)  # there are as many threads as there may be
    thinker.let.set()
    assert (await road.next())["id"] == 4
    for _ in range(3):
        await thinker.has_ended()


async def test_who_closes_a_client_that_is_being_closed_waits(face: Face) -> None:
    started, let = threading.Event(), threading.Event()

    def close() -> None:
        started.set()
        let.wait(WAIT_S)

    async def awaited() -> None:
        await asyncio.to_thread(close)

    if face.is_async:
        face.client._owner = LoopOwner("this client")
    face.client._connection = SimpleNamespace(close=awaited if face.is_async else close)
    first = ask(face, "close")
    assert await asyncio.to_thread(started.wait, WAIT_S)
    second = ask(face, "close")
    done, _ = await asyncio.wait([second], timeout=0.1)
    assert not done
    let.set()
    await asyncio.wait_for(asyncio.gather(first, second), WAIT_S)


async def test_a_task_of_a_handler_may_close_a_client_that_is_being_closed() -> None:
    """Whoever closes the client waits for the task. The threads of handlers are not waited for."""
    face, road = Face("async"), Road()
    closed = asyncio.Event()

    async def handler(_: Any) -> None:
        try:
            await asyncio.sleep(WAIT_S)
        finally:
            await face.client.close()
            closed.set()

    async def close() -> None:
        return

    face.client._owner = LoopOwner("this client")
    face.client._connection = SimpleNamespace(close=close, send=road.send)
    face.client.handlers.user_input = handler
    told(face, question(1))
    await asyncio.sleep(0)
    await asyncio.wait_for(face.client.close(), WAIT_S / 6)
    assert closed.is_set()


# --- what is shown ---


async def test_nothing_shows_a_token() -> None:
    config = CodexConfig(
        url="ws://127.0.0.1:1",
        token="hush-1",
        env={"OPENAI_API_KEY": "hush-2", "PLAIN": "seen"},
        config_overrides=("api_key=hush-3", "model=m"),
    )
    shown = [repr(config), repr(AppServerClient(config)), repr(AsyncAppServerClient(config)), repr(AsyncCodex(config))]
    assert not [text for text in shown if "hush" in text]
    pickled = pickle.dumps(config)
    assert b"hush" not in pickled
    again = pickle.loads(pickled)
    assert (again.url, again.token, again.env, again.config_overrides) == (
        "ws://127.0.0.1:1",
        None,
        {"PLAIN": "seen"},
        ("model=m",),
    )


async def test_a_client_is_not_pickled(face: Face) -> None:
    with pytest.raises(TypeError, match="pickle its CodexConfig"):
        pickle.dumps(face.client)
