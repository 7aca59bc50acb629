"""Reading notifications: the quick way and the slow way agree, and what is not known is kept as it came."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.client import Notification, Router, UnknownNotification, make, thread_of, turn_of
from treadle.protocol.app import (
    NOTIFICATIONS,
    AgentMessageDeltaNotification,
    ItemCompletedNotification,
    ItemStartedNotification,
    TurnCompletedNotification,
    Unknown,
    encode,
)
from unit.protocol.app_samples import samples

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def received(message: dict[str, Any], separators: tuple[str, str] = (",", ":")) -> Notification:
    """As the router reads it from the wire."""
    router = Router()
    router.receive([json.dumps(message, separators=separators).encode()])
    (found,) = router.backlog
    return found


@pytest.mark.parametrize("method", sorted(NOTIFICATIONS))
def test_every_notification_is_read_alike_however_it_is_written(method: str) -> None:
    """What servers usually write is read in a quicker way than the rest."""
    for payload in samples(NOTIFICATIONS[method]):
        params = json.loads(encode(payload))
        made = make(method, params)
        assert made == Notification(method, cast(Any, payload))
        written = [
            received({"method": method, "params": params}),
            received({"params": params, "method": method}),
            received({"method": method, "params": params}, (", ", ": ")),
            received({"jsonrpc": "2.0", "method": method, "params": params}),
        ]
        assert written == [made] * 4
        assert {turn_of(one) for one in written} == {turn_of(made)}
        assert repr(written[0]) == repr(made)


def test_where_the_turn_and_the_thread_are() -> None:
    turn = {"id": "u", "items": [], "status": "completed"}
    known = make("turn/completed", {"threadId": "t", "turn": turn})
    assert (turn_of(known), thread_of(known)) == ("u", "t")
    assert turn_of(make("thread/archived", {"threadId": "t"})) is None
    for params, found in (
        ({"turnId": "u"}, "u"),
        ({"turn": {"id": "u"}}, "u"),
        ({"turnId": 7, "turn": {"id": "u"}}, "u"),
        ({"turnId": 7}, None),
        ({"turn": "u"}, None),
        ({"turn": {"id": 7}}, None),
        ({}, None),
    ):
        assert turn_of(make("who/knows", params)) == found
    assert thread_of(make("who/knows", {"threadId": "t"})) == "t"
    assert thread_of(make("who/knows", {"threadId": 7})) is None


def test_unknown_methods_are_kept_as_they_came() -> None:
    params = {"turnId": "u", "deep": [{"x": None}]}
    for found in (make("who/knows", params), received({"method": "who/knows", "params": params})):
        assert found == Notification("who/knows", UnknownNotification(params))


@pytest.mark.parametrize("member", ["newMember", "payload", ""])
def test_unknown_members_are_ignored(member: str) -> None:
    params = {"threadId": "t", "turnId": "u", "itemId": "i", "delta": "x", member: "y"}
    found = received({"method": "item/agentMessage/delta", member: "y", "params": params})
    assert isinstance(found.payload, AgentMessageDeltaNotification)
    assert (found.method, found.payload.delta) == ("item/agentMessage/delta", "x")


def test_unknown_items_are_kept_as_they_came() -> None:
    item = {"type": "holographic", "id": "i", "depth": 3}
    params = {"threadId": "t", "turnId": "u", "item": item, "completedAtMs": 0}
    found = received({"method": "item/completed", "params": params})
    assert isinstance(found.payload, ItemCompletedNotification | ItemStartedNotification)
    assert isinstance(found.payload.item, Unknown)
    assert turn_of(found) == "u"
    assert (found.payload.item.type, found.payload.item.root["depth"]) == ("holographic", 3)


def test_unknown_words_are_kept_as_they_came() -> None:
    turn = {"id": "u", "items": [{"type": "holographic"}], "status": "dreaming"}
    found = received({"method": "turn/completed", "params": {"threadId": "t", "turn": turn}})
    assert isinstance(found.payload, TurnCompletedNotification)
    assert (found.payload.turn.status, found.payload.turn.items[0].type) == ("dreaming", "holographic")


@pytest.mark.parametrize("message", [{"method": "who/knows"}, {"method": "thread/archived"}])
def test_without_params(message: dict[str, Any]) -> None:
    assert received(message) == Notification(message["method"], UnknownNotification({}))


@given(method=st.sampled_from(sorted(NOTIFICATIONS)) | st.text(max_size=10), params=st.dictionaries(st.text(), JSON))
def test_nothing_that_is_a_message_breaks_the_stream(method: str, params: dict[str, Any]) -> None:
    found = received({"method": method, "params": params})
    assert found.method == method
    if isinstance(found.payload, UnknownNotification):
        assert found.payload.params == params


@given(
    members=st.dictionaries(
        st.sampled_from(["threadId", "turnId", "item", "completedAtMs", "turn", "delta", "itemId"]), JSON
    ),
    method=st.sampled_from(["item/completed", "item/started", "turn/completed", "item/agentMessage/delta"]),
)
def test_nothing_that_looks_nearly_right_breaks_the_stream(method: str, members: dict[str, Any]) -> None:
    router = Router()
    router.receive([json.dumps({"method": method, "params": members}, separators=(",", ":")).encode()])
    (found,) = router.backlog
    assert found == make(method, members)
    turn = turn_of(found)
    assert turn is None or [event.method for event in router.open(turn).events] == [method]
