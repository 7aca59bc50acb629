"""Matching answers to requests."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.errors import OVERLOADED, MalformedMessage, RpcError
from treadle.rpc import (
    Answer,
    Notification,
    Request,
    RpcPeer,
    UnmatchedAnswer,
    encode_failure,
    encode_notification,
    encode_request,
)


class Value(msgspec.Struct):
    n: int


def _id(frame: bytes) -> int:
    request_id = json.loads(frame)["id"]
    assert isinstance(request_id, int)
    return request_id


def _reply(request_id: object, result: object) -> bytes:
    return json.dumps({"id": request_id, "result": result}).encode()


@given(st.permutations(range(8)))
def test_answers_find_their_requests_in_any_order(order: list[int]) -> None:
    peer: RpcPeer[str] = RpcPeer()
    frames = [peer.request("m", Value(number), f"token {number}") for number in range(8)]
    assert len({_id(frame) for frame in frames}) == 8
    for number in order:
        answer = peer.receive(_reply(_id(frames[number]), {"n": number}))
        assert isinstance(answer, Answer)
        assert answer.token == f"token {number}"
        assert isinstance(answer.result, msgspec.Raw)
        assert msgspec.json.decode(answer.result, type=Value) == Value(number)
    assert peer.drain() == []


def test_request_frame_carries_method_and_params() -> None:
    peer: RpcPeer[None] = RpcPeer()
    assert json.loads(peer.request("a/b", Value(1), None)) == {"id": 1, "method": "a/b", "params": {"n": 1}}
    assert json.loads(peer.request("a/b", None, None)) == {"id": 2, "method": "a/b", "params": {}}


def test_failure_becomes_an_rpc_error_with_its_fields() -> None:
    peer: RpcPeer[str] = RpcPeer()
    request_id = _id(peer.request("m", None, "t"))
    answer = peer.receive(encode_failure(request_id, -32010, "attached", {"a": 1}))
    assert isinstance(answer, Answer)
    assert isinstance(answer.result, RpcError)
    assert (answer.token, answer.result.code, answer.result.message, answer.result.data) == (
        "t",
        -32010,
        "attached",
        {"a": 1},
    )


def test_requests_and_notifications_of_the_other_side_pass() -> None:
    peer: RpcPeer[str] = RpcPeer()
    peer.request("m", None, "mine")
    theirs = peer.receive(encode_request(1, "theirs"))
    assert isinstance(theirs, Request)
    assert theirs.method == "theirs"
    assert isinstance(peer.receive(encode_notification("n")), Notification)
    assert peer.drain() == ["mine"]


@pytest.mark.parametrize("request_id", [0, 2, -1, "1", "x"])
def test_answer_to_nothing_is_unmatched(request_id: int | str) -> None:
    peer: RpcPeer[str] = RpcPeer()
    peer.request("m", None, "mine")
    for frame in (_reply(request_id, {}), encode_failure(request_id, 1, "x")):
        with pytest.raises(UnmatchedAnswer, match="was not made"):
            peer.receive(frame)
    assert peer.drain() == ["mine"]


def test_second_answer_is_unmatched() -> None:
    peer: RpcPeer[str] = RpcPeer()
    frame = _reply(_id(peer.request("m", None, "t")), {})
    peer.receive(frame)
    with pytest.raises(UnmatchedAnswer):
        peer.receive(frame)


def test_only_untrusted_peers_are_checked() -> None:
    frame = b'{"method":"m","method":"m"}'
    assert isinstance(RpcPeer[None]().receive(frame), Notification)
    with pytest.raises(MalformedMessage) as caught:
        RpcPeer[None](untrusted=True).receive(frame)
    assert not isinstance(caught.value, UnmatchedAnswer)


def test_pending_requests_are_limited_and_an_answer_makes_room() -> None:
    peer: RpcPeer[int] = RpcPeer(max_pending=2)
    first = peer.request("m", None, 1)
    peer.request("m", None, 2)
    with pytest.raises(RpcError) as caught:
        peer.request("m", None, 3)
    assert caught.value.code == OVERLOADED
    peer.receive(_reply(_id(first), {}))
    peer.request("m", None, 4)
    assert sorted(peer.drain()) == [2, 4]


def test_request_that_cannot_be_encoded_leaves_nothing_pending() -> None:
    class Bad(msgspec.Struct):
        value: object

    peer: RpcPeer[str] = RpcPeer()
    with pytest.raises(TypeError):
        peer.request("m", Bad(object()), "t")
    assert peer.drain() == []


def test_drain_gives_every_open_token_once() -> None:
    peer: RpcPeer[str] = RpcPeer()
    frames = [peer.request("m", None, token) for token in "abc"]
    peer.receive(_reply(_id(frames[1]), {}))
    assert peer.drain() == ["a", "c"]
    assert peer.drain() == []
    with pytest.raises(UnmatchedAnswer):
        peer.receive(_reply(_id(frames[0]), {}))


def test_a_forgotten_request_is_not_waited_for() -> None:
    peer: RpcPeer[str] = RpcPeer(jsonrpc=True)
    first, second = peer.request("m", None, "a"), peer.request("m", None, "b")
    assert json.loads(first)["jsonrpc"] == "2.0"
    assert (peer.last_id, peer.pending, peer.awaits(_id(first))) == (_id(second), 2, True)
    assert peer.forget(_id(first)) == "a"
    assert peer.forget(_id(first)) is None
    assert (peer.pending, peer.awaits(_id(first))) == (1, False)
    with pytest.raises(UnmatchedAnswer):
        peer.receive(_reply(_id(first), {}))
    assert peer.drain() == ["b"]
