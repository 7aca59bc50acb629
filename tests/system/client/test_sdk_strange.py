"""A server that says things we do not know: a stream goes on, and what is not understood arrives as it came."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from system.client.faces import DEADLINE_S, Face, Fake
from treadle.client import CodexError, TransportClosedError, UnknownNotification

MakeFake = Callable[..., Fake]


def events_of(face: Face, codex: Any, text: str) -> list[Any]:
    """All of a turn."""
    reading = face.read(face.do(lambda: face.thread(codex).turn(text)))
    reading.done.result(DEADLINE_S)
    events = [reading.next()]
    while events[-1].method != "turn/completed":
        events.append(reading.next())
    return events


def test_a_stream_passes_on_what_it_does_not_know(face: Face, fake: MakeFake) -> None:
    codex = face.open(fake("exit").config)
    events = events_of(face, codex, "strange")
    completed = "item/completed"
    wanted = ["turn/started", "turn/dreamt", "turn/dreamt/again", completed, completed, completed, "turn/completed"]
    assert [event.method for event in events] == wanted
    assert events[1].payload == UnknownNotification(
        {"threadId": "thread", "turnId": "turn-1", "dream": [1, {"of": "sheep"}]}
    )
    assert events[4].payload == UnknownNotification({"turnId": "turn-1", "item": "not an item"})


def test_a_run_keeps_items_that_it_does_not_know(face: Face, fake: MakeFake) -> None:
    codex = face.open(fake("exit").config)
    result = face.do(lambda: face.thread(codex).run("strange"))
    assert result.final_response == "hello"
    assert result.status == "completed"
    assert [item.type for item in result.items] == ["hologram", "agentMessage"]


def test_questions_that_are_not_understood_are_refused(face: Face, fake: MakeFake) -> None:
    """And so nobody waits for their answers."""
    server = fake("exit")
    codex = face.open(server.config, approval_handler=lambda _: True)
    face.do(lambda: face.thread(codex).run("strange"))
    answers = {answer["id"]: answer["error"]["code"] for answer in (server.heard_answer(), server.heard_answer())}
    assert answers == {"q1": -32601, "q2": -32603}


def test_a_status_that_is_not_known_is_passed_on(face: Face, fake: MakeFake) -> None:
    codex = face.open(fake("exit").config)
    assert face.do(lambda: face.thread(codex).run("new status")).status == "dreaming"


def test_an_end_that_is_not_understood_is_an_end(face: Face, fake: MakeFake) -> None:
    codex = face.open(fake("exit").config)
    assert events_of(face, codex, "no shape")[-1].method == "turn/completed"
    error = face.go(lambda: face.thread(codex).run("no shape")).exception(DEADLINE_S)
    assert isinstance(error, CodexError)
    assert not isinstance(error, TransportClosedError)
    assert face.do(lambda: face.thread(codex).run("finish")).final_response == "said in turn-3"
