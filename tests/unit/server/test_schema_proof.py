"""The proof can fail: messages that are broken in every way that matters, and a server that sends one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from schema_proof import SchemaProof, judged, listen_in, problems, shape
from treadle.agent import Event, now_ms
from treadle.protocol.app import WarningNotification
from treadle.testing import AppServerHarness

pytestmark = pytest.mark.anyio

ITEM = {"type": "agentMessage", "id": "m", "text": "hi"}
COMPLETED: dict[str, Any] = {
    "method": "item/completed",
    "params": {"threadId": "t", "turnId": "u", "item": ITEM, "completedAtMs": 1},
    "emittedAtMs": 1,
    "seq": 4,
}
EVENTS = {"data": [COMPLETED], "firstSeq": 1, "lastSeq": 4, "hasMore": False, "epoch": "1", "openItems": [ITEM]}


def without(message: dict[str, Any], *path: str) -> dict[str, Any]:
    *outer, last = path
    if outer:
        return {**message, outer[0]: without(message[outer[0]], *outer[1:], last)}
    return {key: value for key, value in message.items() if key != last}


def test_right_messages_pass() -> None:
    assert problems(COMPLETED) == []
    assert problems({"id": 1, "result": EVENTS}, "thread/events/list") == []
    assert problems({"id": 1, "result": {}}, "thread/archive") == []
    assert problems({"id": "x", "error": {"code": -32600, "message": "Not initialized"}}, None) == []


@pytest.mark.parametrize(
    ("message", "method", "says"),
    [
        (without(COMPLETED, "params", "turnId"), None, "item/completed"),
        (without(COMPLETED, "emittedAtMs"), None, "item/completed"),
        (without(COMPLETED, "seq"), None, "item/completed.seq"),
        ({**COMPLETED, "jsonrpc": "2.0"}, None, "jsonrpc"),
        ({**COMPLETED, "method": "item/finished"}, None, "item/finished: no notification"),
        ({**COMPLETED, "params": {**COMPLETED["params"], "completedAtMs": "1"}}, None, "completedAtMs: '1' is not of"),
        ({**COMPLETED, "params": {**COMPLETED["params"], "item": {"type": "agentMessage"}}}, None, "item"),
        ({"id": 1, "method": "item/ask", "params": {}}, None, "item/ask: no request"),
        ({"id": "1", "method": "item/tool/call", "params": {}}, None, "item/tool/call"),
        ({"id": 1, "result": {}}, "thread/start", "result of thread/start"),
        ({"id": 1, "result": {"data": 5}}, "thread/loaded/list", "5 is not of type"),
        ({"id": 1, "result": {}}, "no/such", "no/such: no definition"),
        ({"id": 1, "result": {**EVENTS, "more": 1}}, "thread/events/list", "expected the members"),
        ({"id": 1, "result": {**EVENTS, "data": [without(COMPLETED, "params")]}}, "thread/events/list", "data[0]"),
        ({"id": 1, "result": {**EVENTS, "openItems": [{"type": "x"}]}}, "thread/events/list", "openItems[0]"),
        ({"id": 1, "error": {"code": -1, "message": "x"}}, "turn/start", "unknown code -1"),
        ({"id": 1, "error": {"code": -32600, "message": ""}}, "turn/start", "error of turn/start"),
        ({"id": 1, "answer": {}}, "turn/start", "no known shape"),
    ],
)
def test_broken_messages_are_found(message: dict[str, Any], method: str | None, says: str) -> None:
    found = problems(message, method)
    assert found
    assert says in found[0]


def test_each_shape_is_judged_once_and_words_count() -> None:
    proof = SchemaProof()
    status = {"method": "thread/status/changed", "emittedAtMs": 1, "seq": 1}
    for thread, kind in (("a", "idle"), ("b", "idle"), ("a", "asleep")):
        proof.check({**status, "params": {"threadId": thread, "status": {"type": kind}}})
    assert proof.checked == 2
    assert len(proof.violations) == 1
    assert "asleep" in proof.violations[0]


def test_a_part_that_was_right_once_lets_no_other_through() -> None:
    params = COMPLETED["params"]
    assert problems(COMPLETED) == []  # its item has been seen by now
    for item in ({**ITEM, "text": 1}, {**ITEM, "phase": "asleep"}, {**ITEM, "type": "asleep"}, without(ITEM, "text")):
        for _ in range(2):  # nor is one that is wrong taken for known
            assert problems({**COMPLETED, "params": {**params, "item": item}}) != [], item


def test_shapes_see_what_the_schema_sees() -> None:
    assert shape([1, 2, 3]) == shape([4])
    assert shape([1, "x"]) != shape([1])
    assert shape({"n": 1}) != shape({"n": -1})
    assert shape({"n": True}) != shape({"n": 1})
    assert shape({"text": "a"}) == shape({"text": "b"})


def test_a_test_fails_with_the_method_and_the_violation() -> None:
    proof = SchemaProof()
    with pytest.raises(pytest.fail.Exception, match=r"item/completed.*turnId"), judged(proof):
        proof.check(without(COMPLETED, "params", "turnId"))
    with judged(proof):  # it is held against one test only
        pass


async def test_a_server_that_sends_nonsense_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    proof = SchemaProof()
    listen_in(proof, monkeypatch.setattr)
    with AppServerHarness(tmp_path) as harness:
        async with harness.server() as server, harness.connect(server=server) as client:
            await client.request("thread/start", {})
            assert proof.checked >= 2
            assert proof.violations == []
            server.broadcast(Event("turn/started", WarningNotification(message="x", thread_id="t"), 1, now_ms()))
            assert "turn/started" in proof.violations[0]
            import schema_proof

            # The proof of the whole suite has seen it too, and rightly so.
            assert "turn/started" in schema_proof.THE_PROOF.violations.pop(0)
            schema_proof.THE_PROOF.violations.clear()
