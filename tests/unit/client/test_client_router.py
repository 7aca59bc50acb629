"""The router: whatever order things come in, every turn has its own events, whole and in order; and bounds hold."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from treadle.client import (
    CodexError,
    EventsLost,
    InvalidParamsError,
    Notification,
    Router,
    ServerBusyError,
    Stream,
    TransportClosedError,
    TurnConflict,
)
from treadle.client import router as routers
from treadle.errors import ArgumentValueError, MalformedMessage
from treadle.protocol.app import AccountLoginCompletedNotification, AgentMessageDeltaNotification

GONE = TransportClosedError("gone")


def frame(method: str, params: dict[str, Any]) -> bytes:
    return json.dumps({"method": method, "params": params}, separators=(",", ":")).encode()


def delta(turn: str, text: str, thread: str = "thread") -> bytes:
    params = {"threadId": thread, "turnId": turn, "itemId": "item", "delta": text}
    return frame("item/agentMessage/delta", params)


def end(turn: str, thread: str = "thread", status: str = "completed") -> bytes:
    return frame("turn/completed", {"threadId": thread, "turn": {"id": turn, "items": [], "status": status}})


def name(notification: Notification) -> str:
    payload = notification.payload
    return payload.delta if isinstance(payload, AgentMessageDeltaNotification) else "end"


def drain(stream: Stream) -> list[str]:
    found = []
    while stream.events:
        taken = stream.take()
        assert taken is not None
        found.append(name(taken))
    return found


# --- turns ---


@given(data=st.data(), lengths=st.lists(st.integers(0, 4), min_size=1, max_size=4))
def test_every_turn_gets_its_own_events_whole_and_in_order(data: st.DataObject, lengths: list[int]) -> None:
    """RecordingView, opened, read and left in any order, and in batches of any size."""
    router = Router()
    waiting = {
        f"turn {i}": [*(delta(f"turn {i}", f"{i}.{n}") for n in range(k)), end(f"turn {i}")]
        for i, k in enumerate(lengths)
    }
    expected = {turn: [*(f"{i}.{n}" for n in range(lengths[i])), "end"] for i, turn in enumerate(waiting)}
    got: dict[str, list[str]] = {turn: [] for turn in waiting}
    opened: dict[str, Stream] = {}
    batch: list[bytes] = []

    def deliver() -> None:
        router.receive(batch)
        batch.clear()

    steps = st.lists(
        st.tuples(st.sampled_from(["deliver", "deliver", "open", "read", "leave"]), st.sampled_from(sorted(waiting)))
    )
    for what, turn in data.draw(steps):
        if what == "deliver" and waiting[turn]:
            batch.append(waiting[turn].pop(0))
        elif what == "deliver":
            deliver()
        elif what == "open" and turn not in opened and "end" not in got[turn]:
            opened[turn] = router.open(turn)
        elif what == "read" and turn in opened and (found := opened[turn].take()) is not None:
            got[turn].append(name(found))
        elif what == "leave" and turn in opened:
            router.close(opened.pop(turn))
    for turn, rest in waiting.items():
        batch.extend(rest)
        deliver()
        if turn not in opened and "end" not in got[turn]:
            opened[turn] = router.open(turn)
        if turn in opened:
            got[turn].extend(drain(opened[turn]))
            router.close(opened[turn])
    assert got == expected
    assert (router.readers, router.streams) == (0, {})


def test_what_is_told_before_anybody_asks_is_kept() -> None:
    router = Router()
    router.receive([delta("turn", "early"), end("turn")])
    assert drain(router.open("turn")) == ["early", "end"]


def test_a_turn_that_was_read_is_forgotten() -> None:
    router = Router()
    router.receive([delta("turn", "early"), end("turn")])
    stream = router.open("turn")
    drain(stream)
    router.close(stream)
    assert not router.receive([delta("turn", "late")]).streams
    with pytest.raises(TurnConflict, match="has ended"):
        router.open("turn")


def test_a_turn_has_one_reader() -> None:
    router = Router()
    stream = router.open("turn")
    with pytest.raises(TurnConflict, match="is being read already"):
        router.open("turn")
    router.close(stream)
    assert router.open("turn") is stream


def test_a_second_turn_is_refused_until_the_first_is_over() -> None:
    router = Router()
    router.begin_turn("thread")
    with pytest.raises(RuntimeError, match=r"already has active turn.*steer\(\)"):
        router.begin_turn("thread")
    router.turn_started("thread", "one")
    with pytest.raises(RuntimeError, match=r"already has active turn 'one'.*steer\(\)"):
        router.begin_turn("thread")
    router.begin_turn("another thread")
    router.receive([end("one")])
    router.begin_turn("thread")


def test_a_turn_that_was_refused_is_not_active() -> None:
    router = Router()
    router.begin_turn("thread")
    router.turn_refused("thread")
    router.begin_turn("thread")


def test_a_turn_may_be_over_before_its_start_was_answered() -> None:
    router = Router()
    router.begin_turn("thread")
    router.receive([end("one")])
    router.turn_started("thread", "one")
    router.begin_turn("thread")


def test_a_turn_of_another_client_does_not_end_ours() -> None:
    router = Router()
    router.begin_turn("thread")
    router.turn_started("thread", "ours")
    router.receive([end("theirs")])
    with pytest.raises(TurnConflict):
        router.begin_turn("thread")


# --- requests ---


def answer(number: int, **members: Any) -> bytes:
    return json.dumps({"id": number, **members}).encode()


def test_answers_find_who_asked() -> None:
    router = Router()
    first, sent = router.request("a/b", {"x": 1}, "first")
    second, bare = router.request("c/d", None, "second")
    assert json.loads(sent) == {"id": first, "method": "a/b", "params": {"x": 1}}
    assert json.loads(bare) == {"id": second, "method": "c/d"}
    received = router.receive([answer(second, result={"y": 2}), answer(first, error={"code": -32602, "message": "no"})])
    assert [answered.token for answered in received.answers] == ["second", "first"]
    results = [answered.result for answered in received.answers]
    assert isinstance(results[0], Raw)
    assert json.loads(bytes(results[0])) == {"y": 2}
    assert isinstance(results[1], InvalidParamsError)


def test_late_unknown_and_repeated_answers_are_ignored() -> None:
    router = Router()
    number, _ = router.request("a/b", {}, "token")
    router.forget(number)
    other, _ = router.request("a/b", {}, "other")
    frames = [answer(number, result={}), answer(999, result={}), b'{"id":"text","result":{}}', answer(other, result={})]
    assert [answered.token for answered in router.receive(frames).answers] == ["other"]
    assert router.receive([answer(other, result={})]).answers == []


def test_being_busy_has_its_own_error() -> None:
    router = Router()
    number, _ = router.request("a/b", {}, "token")
    (answered,) = router.receive([answer(number, error={"code": -32001, "message": "later"})]).answers
    assert isinstance(answered.result, ServerBusyError)


def test_requests_of_the_server_are_passed_on() -> None:
    asked = b'{"id":"r1","method":"item/tool/call","params":{"x":1}}'
    (found,) = Router().receive([asked]).requests
    assert (found.id, found.method, json.loads(bytes(found.params))) == ("r1", "item/tool/call", {"x": 1})


_FIRST = (b'{"id":1,"method":"some/request","params":{}}',)


@pytest.mark.parametrize(
    "garbage", [b"", b"{", b"[]", b"7", b'{"method":7}', b"\xff", b'{"method":"turn/completed","params":{"tu']
)
def test_what_is_no_message_is_refused(garbage: bytes) -> None:
    received = Router().receive([*_FIRST, garbage, *_FIRST])
    assert isinstance(received.malformed, MalformedMessage)
    assert len(received.requests) == 1, "what came before counts, what comes after does not"


# --- the end ---


def test_the_end_wakes_everybody_and_loses_nothing() -> None:
    router = Router()
    router.request("a/b", {}, "token")
    reading, over = router.open("reading"), router.stream("over")
    router.receive([delta("reading", "before"), end("over")])
    tokens, streams = router.fail(GONE)
    assert (tokens, set(map(id, streams))) == (["token"], {id(reading), id(over)})
    assert drain(reading) == ["before"]
    with pytest.raises(TransportClosedError, match="gone"):
        reading.take()
    assert drain(router.open("over")) == ["end"]
    assert over.take() is None


def test_after_the_end_everything_says_so() -> None:
    router = Router()
    router.fail(GONE)
    assert router.fail(TransportClosedError("again")) == ([], [])
    for attempt in (lambda: router.request("a/b", {}, 1), lambda: router.open("turn"), router.next_backlog):
        with pytest.raises(TransportClosedError, match="gone"):
            attempt()
    with pytest.raises(TransportClosedError, match="gone"):
        router.login("login").take()


def test_after_the_end_the_backlog_can_still_be_read() -> None:
    router = Router()
    router.receive([delta("turn", "last words")])
    router.fail(GONE)
    found = router.next_backlog()
    assert found is not None
    assert name(found) == "last words"


# --- bounds ---


def test_a_turn_that_nobody_reads_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routers, "MAX_TURN_EVENTS", 3)
    router = Router()
    stream = router.open("turn")
    router.receive([delta("turn", str(number)) for number in range(10)])
    assert not stream.events
    with pytest.raises(EventsLost, match=r"thread\.read\(include_turns=True\)"):
        stream.take()
    router.receive([delta("turn", "more"), end("turn")])
    assert not stream.events
    router.close(stream)
    assert router.streams == {}


def test_exactly_as_many_events_as_may_wait_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routers, "MAX_TURN_EVENTS", 3)
    router = Router()
    router.receive([delta("turn", "1"), delta("turn", "2"), end("turn")])
    assert drain(router.open("turn")) == ["1", "2", "end"]


def test_of_ended_turns_that_nobody_reads_the_oldest_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routers, "MAX_UNREAD_EVENTS", 5)
    router = Router()
    for turn in ("one", "two", "three"):
        router.receive([delta(turn, turn), end(turn)])
    assert [drain(router.open(turn)) for turn in ("two", "three")] == [["two", "end"], ["three", "end"]]
    with pytest.raises(CodexError, match=r"thread\.read\(include_turns=True\)"):
        router.open("one").take()


def test_a_turn_that_is_being_read_is_not_dropped_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routers, "MAX_UNREAD_EVENTS", 2)
    router = Router()
    reading = router.open("reading")
    router.receive([delta("reading", "a"), delta("reading", "b"), end("reading")])
    for turn in ("one", "two"):
        router.receive([delta(turn, turn), end(turn)])
    assert drain(reading) == ["a", "b", "end"]
    assert drain(router.open("two")) == ["two", "end"]


def test_a_reader_that_goes_in_the_middle_may_come_back() -> None:
    router = Router()
    stream = router.open("turn")
    router.receive([delta("turn", "a"), delta("turn", "b"), end("turn")])
    stream.take()
    router.close(stream)
    assert drain(router.open("turn")) == ["b", "end"]


def test_what_a_reader_left_unread_is_dropped_before_newer_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routers, "MAX_UNREAD_EVENTS", 2)
    router = Router()
    stream = router.open("left")
    router.receive([delta("left", "a"), delta("left", "b"), end("left")])
    router.close(stream)
    router.receive([delta("newer", "c"), end("newer")])
    assert drain(router.open("newer")) == ["c", "end"]
    assert not stream.events
    with pytest.raises(TurnConflict, match="has ended"):
        router.stream("left")


def test_a_turn_that_goes_on_without_its_reader_is_kept_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """It counts among the unread ones only when it has ended."""
    monkeypatch.setattr(routers, "MAX_UNREAD_EVENTS", 2)
    router = Router()
    stream = router.open("running")
    router.receive([delta("running", text) for text in "abc"])
    router.close(stream)
    router.receive([delta("other", "o"), end("other")])
    assert drain(router.open("running")) == ["a", "b", "c"]


@pytest.mark.parametrize("how", ["completed", "lost"])
def test_a_stream_that_is_over_and_empty_is_forgotten_with_its_reader(how: str) -> None:
    router = Router()
    stream = router.open("turn")
    if how == "completed":
        router.receive([end("turn")])
        drain(stream)
    else:
        router.fail(GONE)
    router.close(stream)
    assert "turn" not in router.streams


def test_an_answer_that_nobody_wants_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routers, "MAX_PENDING", 1)
    router = Router()
    numbers = [router.request("turn/interrupt", {})[0] for _ in range(3)]
    assert router.receive([json.dumps({"id": number, "result": {}}).encode() for number in numbers]).answers == []
    router.request("model/list", {}, "token")


def test_requests_under_way_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routers, "MAX_PENDING", 2)
    router = Router()
    number, _ = router.request("a/b", {}, 1)
    router.request("a/b", {}, 2)
    with pytest.raises(CodexError, match="2 requests wait"):
        router.request("a/b", {}, 3)
    router.receive([answer(number, result={})])
    router.request("a/b", {}, 3)


def test_what_next_notification_can_be_behind_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routers, "BACKLOG", 2)
    router = Router()
    router.receive([delta("turn", str(number)) for number in range(5)])
    found = [router.next_backlog() for _ in range(3)]
    assert [one and name(one) for one in found] == ["3", "4", None]


def test_what_is_known_of_ended_turns_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routers, "MAX_ENDED", 2)
    router = Router()
    for number in range(5):
        router.receive([end(str(number))])
        stream = router.open(str(number))
        drain(stream)
        router.close(stream)
    assert list(router._ended) == ["3", "4"]


# --- all notifications ---


def test_all_notifications_are_refused_while_a_turn_is_read() -> None:
    router = Router()
    stream = router.open("turn")
    router.receive([delta("turn", "x")])
    with pytest.raises(RuntimeError, match=r"^next_notification\(\) is incompatible"):
        router.next_backlog()
    router.close(stream)
    assert router.next_backlog() is not None


# --- logins and patches ---


def test_a_login_is_heard_of_before_or_after_it_is_asked_for() -> None:
    router = Router()
    done = frame("account/login/completed", {"loginId": "one", "success": True})
    router.receive([done])
    found = router.login("one").take()
    assert found is not None
    assert isinstance(found.payload, AccountLoginCompletedNotification)
    assert found.payload.success
    waiting = router.login("two")
    received = router.receive([done.replace(b"one", b"two")])
    assert received.streams == {waiting}
    router.forget_login("two")
    assert router.login("two").take() is None


def test_logins_that_nobody_waits_for_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routers, "MAX_LOGINS", 2)
    router = Router()
    for number in range(5):
        router.receive([frame("account/login/completed", {"loginId": str(number), "success": True})])
    assert len(router.streams) == 2
    assert router.login("4").take() is not None


def test_the_changes_of_a_patch_are_known_while_it_is_asked_about(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routers, "MAX_PATCHES", 2)
    router = Router()
    for number in range(3):
        change = {"path": f"{number}.txt", "kind": {"type": "add"}, "diff": "+x"}
        item = {"type": "fileChange", "id": str(number), "changes": [change], "status": "inProgress"}
        router.receive([frame("item/started", {"threadId": "t", "turnId": "u", "item": item, "startedAtMs": 0})])
    assert [change.path for change in router.changes("2")] == ["2.txt"]
    assert router.changes("0") == ()
    assert router.changes("never heard of") == ()


@pytest.mark.parametrize("params", [{"cwd": "/a\udcff"}, {"config": {"a\ud800": 1}}, {"input": [{"text": "\ud800"}]}])
def test_a_text_that_cannot_be_sent_is_an_error_of_the_caller(params: dict[str, Any]) -> None:
    router = Router()
    with pytest.raises(ArgumentValueError, match="half a character"):
        router.request("thread/start", params, "token")
    assert json.loads(router.request("thread/start", {}, "token")[1])["method"] == "thread/start"
