"""Classification, guards and encoding of messages. The table is what the real exec-server was seen to do."""

from __future__ import annotations

import json
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from treadle.errors import MalformedMessage
from treadle.rpc import (
    MAX_VALUES,
    ErrorBody,
    Failure,
    Notification,
    Reply,
    Request,
    decode,
    decode_lenient,
    decode_problem,
    encode_failure,
    encode_notification,
    encode_reply,
    encode_request,
)

TRUST = pytest.mark.parametrize("untrusted", [False, True], ids=["trusted", "untrusted"])


class Point(msgspec.Struct):
    x: int


# --- classification --------------------------------------------------------------------------------------------------

STATUS = '"method":"environment/status"'


@TRUST
@pytest.mark.parametrize(
    ("frame", "request_id", "params"),
    [
        (f'{{"id":1,{STATUS}}}', 1, b"{}"),
        (f'{{"id":-5,{STATUS},"params":{{}}}}', -5, b"{}"),
        (f'{{"id":"j","jsonrpc":"2.0",{STATUS}}}', "j", b"{}"),
        (f'{{"id":"",{STATUS},"params":null}}', "", b"{}"),
        (f'{{"id":9223372036854775807,{STATUS}}}', 2**63 - 1, b"{}"),
        (f'{{"id":-9223372036854775808,{STATUS}}}', -(2**63), b"{}"),
        (f'{{"id":6,{STATUS},"params":[]}}', 6, b"[]"),
        (f'{{"id":7,{STATUS},"params":5}}', 7, b"5"),
        (f'{{"id":9,{STATUS},"trace":{{"traceparent":"00-0a-b7-01"}}}}', 9, b"{}"),
        (f'{{"id":10,{STATUS},"extra":1,"params":{{"a":[1]}}}}', 10, b'{"a":[1]}'),
        (f'{{"id":11,{STATUS},"result":5,"error":null}}', 11, b"{}"),
        (f' {{"id":12,{STATUS}}} \r\n', 12, b"{}"),
    ],
)
def test_method_and_id_make_a_request(frame: str, request_id: int | str, params: bytes, untrusted: bool) -> None:
    message = decode(frame.encode(), untrusted=untrusted)
    assert isinstance(message, Request)
    assert (message.id, message.method, bytes(message.params)) == (request_id, "environment/status", params)


TRACED = '"trace":{"traceparent":"00-0a-b7-01","tracestate":null}'


@pytest.mark.parametrize("read", [decode, decode_lenient])
@pytest.mark.parametrize(
    ("trace", "traceparent"),
    [
        (TRACED, "00-0a-b7-01"),
        ('"trace":{}', ""),
        ('"trace":null', ""),
        ('"trace":{"traceparent":null}', ""),
        ('"trace":{"traceparent":7}', ""),
        ('"trace":[[[1]]]', ""),
    ],
)
def test_a_request_says_what_it_is_a_part_of(read: Callable[[bytes], object], trace: str, traceparent: str) -> None:
    message = read(f'{{"id":9,{STATUS},{trace}}}'.encode())
    assert isinstance(message, Request)
    assert message.traceparent == traceparent


def test_a_trace_is_sent_only_when_there_is_one() -> None:
    assert decode(encode_request(1, "a", None, "00-0a-b7-01")) == Request(1, "a", msgspec.Raw(b"{}"), "00-0a-b7-01")
    assert encode_request(1, "a") == b'{"id":1,"method":"a","params":{}}'


@TRUST
@pytest.mark.parametrize(
    ("frame", "params"),
    [
        (b'{"method":"initialized"}', b"{}"),
        (b'{"method":"initialized","params":{"x":1}}', b'{"x":1}'),
        (b'{"method":"initialized","error":"not an object"}', b"{}"),
    ],
)
def test_method_alone_makes_a_notification(frame: bytes, params: bytes, untrusted: bool) -> None:
    message = decode(frame, untrusted=untrusted)
    assert isinstance(message, Notification)
    assert (message.method, bytes(message.params)) == ("initialized", params)


@TRUST
@pytest.mark.parametrize(
    ("frame", "request_id", "result"),
    [
        (b'{"id":5,"result":{}}', 5, b"{}"),
        (b'{"id":"a","result":null}', "a", b"null"),
        (b'{"id":5,"result":[1, 2],"error":null}', 5, b"[1, 2]"),
        (b'{"id":5,"result":false,"error":{"code":1,"message":"x"}}', 5, b"false"),
    ],
)
def test_result_makes_a_reply(frame: bytes, request_id: int | str, result: bytes, untrusted: bool) -> None:
    message = decode(frame, untrusted=untrusted)
    assert isinstance(message, Reply)
    assert (message.id, bytes(message.result)) == (request_id, result)


@TRUST
@pytest.mark.parametrize(
    ("frame", "body"),
    [
        (b'{"id":5,"error":{"code":1,"message":"x"}}', ErrorBody(1, "x")),
        (b'{"error":{"code":-32600,"message":"m","data":[1],"more":2},"id":5}', ErrorBody(-32600, "m", [1])),
    ],
)
def test_error_makes_a_failure(frame: bytes, body: ErrorBody, untrusted: bool) -> None:
    assert decode(frame, untrusted=untrusted) == Failure(5, body)


@TRUST
@pytest.mark.parametrize(
    "frame",
    [
        "not json",
        "",
        " ",
        "[]",
        '"x"',
        "123",
        "null",
        "{}",
        '{"id":1}',
        f"[{{{STATUS}}}]",
        f'{{"id":null,{STATUS}}}',
        f'{{"id":1.5,{STATUS}}}',
        f'{{"id":true,{STATUS}}}',
        f'{{"id":[1],{STATUS}}}',
        f'{{"id":9223372036854775808,{STATUS}}}',
        f'{{"id":-9223372036854775809,{STATUS}}}',
        '{"id":8,"method":5}',
        '{"id":8,"method":null}',
        '{"result":{}}',
        '{"error":{"code":1,"message":"x"}}',
        '{"id":1,"error":null}',
        '{"id":1,"error":"x"}',
        '{"id":1,"error":{"code":1}}',
        '{"id":1,"error":{"code":1.5,"message":"x"}}',
        f'{{"id":1,{STATUS}',
        f'{{"id":1,{STATUS}}} {{}}',
        f'{{"id":1,{STATUS},"params":{{]}}',
        f'{{"id":1,{STATUS},"params":NaN}}',
    ],
)
def test_anything_else_is_malformed(frame: str, untrusted: bool) -> None:
    with pytest.raises(MalformedMessage, match=r"^not a JSON-RPC message: ."):
        decode(frame.encode(), untrusted=untrusted)


@TRUST
def test_other_encodings_are_malformed(untrusted: bool) -> None:
    text = f'{{"id":1,{STATUS}}}'
    for frame in (text.encode("utf-16"), text.encode("utf-32-le"), b"\xff\xfe", b'{"method":"\xff"}'):
        with pytest.raises(MalformedMessage):
            decode(frame, untrusted=untrusted)


def test_bad_text_anywhere_is_refused_from_the_untrusted() -> None:
    with pytest.raises(MalformedMessage):
        decode(b'{"id":1,"method":"m","x":["\xff"]}', untrusted=True)


# --- guards against hostile peers ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "frame",
    [
        '{"id":77,"id":78,"method":"m"}',
        '{"id":1,"method":"m","params":{"a":1,"b":{"c":1,"c":2}}}',
        '{"id":1,"method":"m","params":[{"\\u0061":1,"a":2}]}',
        '{"id":1,"method":"m","unknown":{"x":1,"x":1}}',
    ],
)
def test_duplicate_keys_are_refused_from_the_untrusted(frame: str) -> None:
    with pytest.raises(MalformedMessage, match="duplicate object key"):
        decode(frame.encode(), untrusted=True)
    assert isinstance(decode(frame.encode()), Request)


def _request(params: str) -> bytes:
    """Four values and what is in `params`: the message, its id, its method, `params` itself."""
    return f'{{"id":1,"method":"m","params":{params}}}'.encode()


@pytest.mark.parametrize(
    ("one", "values"),
    [("0", 1), ('"a,[{b"', 1), ('"\\\\"', 1), ("[]", 1), ("{ }", 1), ('{"a":[1,{}]}', 4), ("[[ [] ]]", 3)],
)
def test_values_are_counted(one: str, values: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("treadle.rpc.message.MAX_VALUES", 1000)
    most = (1000 - 4) // values
    fits = _request("[" + ",".join([one] * most) + "]")
    over = _request("[" + ",".join([one] * (most + 1)) + "]")
    assert isinstance(decode(fits, untrusted=True), Request)
    assert isinstance(decode(over), Request)
    with pytest.raises(MalformedMessage, match="more than 1000 JSON values"):
        decode(over, untrusted=True)


def test_number_of_values_is_limited() -> None:
    assert isinstance(decode(_request("[" + ",".join(["0"] * (MAX_VALUES - 4)) + "]"), untrusted=True), Request)
    with pytest.raises(MalformedMessage, match=f"more than {MAX_VALUES} JSON values"):
        decode(_request("[" + ",".join(["0"] * (MAX_VALUES - 3)) + "]"), untrusted=True)


def test_long_text_is_not_taken_for_many_values() -> None:
    text = ",[{" * MAX_VALUES
    message = decode(_request(json.dumps([text])), untrusted=True)
    assert isinstance(message, Request)
    assert msgspec.json.decode(message.params) == [text]


def test_too_many_values_are_refused_before_they_become_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    def loads(*_: object, **__: object) -> None:
        raise AssertionError("parsed")

    monkeypatch.setattr("treadle.rpc.message.json.loads", loads)
    with pytest.raises(MalformedMessage, match="JSON values"):
        decode(_request("[" + "[]," * MAX_VALUES + "[]]"), untrusted=True)


@pytest.mark.parametrize("end", ["", '"', "\\", '\\"'])
def test_unfinished_strings_are_read_once(end: str) -> None:
    """Quadratic here would be hours, not seconds."""
    frame = ("," * (MAX_VALUES - 2) + '[{"' + '\\"' * 2_000_000 + end).encode()
    with pytest.raises(MalformedMessage):
        decode(frame, untrusted=True)


@TRUST
@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_deep_nesting_is_malformed(opening: str, untrusted: bool) -> None:
    depth = 100_000
    closing = "]" if opening == "[" else "}"
    for params in (opening * depth + "1" + closing * depth, opening * depth):
        with pytest.raises(MalformedMessage):
            decode(_request(params), untrusted=untrusted)


def test_deep_error_data_is_malformed() -> None:
    data = "[" * 100_000 + "]" * 100_000
    with pytest.raises(MalformedMessage):
        decode(f'{{"id":1,"error":{{"code":1,"message":"x","data":{data}}}}}'.encode())


def test_number_with_too_many_digits_is_malformed_from_the_untrusted() -> None:
    with pytest.raises(MalformedMessage):
        decode(_request("1" * 100_000), untrusted=True)


# --- fuzz ------------------------------------------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=10,
)
MEMBERS = st.sampled_from(["id", "method", "params", "result", "error", "jsonrpc", "x"])
ENVELOPES = st.dictionaries(MEMBERS, JSON, max_size=5)


def _survives(frame: bytes) -> None:
    for untrusted in (False, True):
        try:
            message = decode(frame, untrusted=untrusted)
        except MalformedMessage:
            continue
        assert isinstance(message, Request | Notification | Reply | Failure)


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_but_malformed(frame: bytes) -> None:
    _survives(frame)


@settings(max_examples=150, deadline=None)
@given(ENVELOPES, st.data())
def test_no_damaged_message_raises_anything_but_malformed(envelope: dict[str, object], data: st.DataObject) -> None:
    frame = bytearray(json.dumps(envelope, ensure_ascii=data.draw(st.booleans())).encode("utf-8", "surrogatepass"))
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(0, len(frame)))
        frame[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=2))
    _survives(bytes(frame))


@settings(max_examples=100, deadline=None)
@given(ENVELOPES)
def test_trust_only_adds_refusals(envelope: dict[str, object]) -> None:
    frame = json.dumps(envelope).encode()
    try:
        checked = decode(frame, untrusted=True)
    except MalformedMessage:
        return
    assert decode(frame) == checked


def test_who_sent_half_a_character_can_be_answered() -> None:
    frame = rb'{"id":7,"method":"m","params":{"a":"x\ud800y","b":[1]}}'
    for request in (decode(frame), decode(frame, untrusted=True), decode_lenient(frame)):
        assert isinstance(request, Request)
        assert (request.id, request.method) == (7, "m")
        with pytest.raises(msgspec.DecodeError) as caught:
            msgspec.json.decode(request.params)
        assert decode_problem(bytes(request.params), caught.value) == "a text has half a character (a lone surrogate)"


@pytest.mark.parametrize(
    "frame",
    [rb'["\ud800"]', rb'{"id":"\ud800","method":"m"}', rb'{"id":1,"method":"\ud800"}', rb'"\ud800', rb'{"\ud800":1}'],
)
def test_half_a_character_elsewhere_is_no_message(frame: bytes) -> None:
    for read in (decode, decode_lenient):
        with pytest.raises(MalformedMessage):
            read(frame)


# --- encoding --------------------------------------------------------------------------------------------------------

IDS = st.integers(-(2**63), 2**63 - 1) | st.text()


@given(IDS, st.text(), st.integers())
def test_what_is_encoded_decodes_to_the_same(request_id: int | str, method: str, code: int) -> None:
    params = Raw(msgspec.json.encode(Point(3)))
    assert decode(encode_request(request_id, method, Point(3)), untrusted=True) == Request(request_id, method, params)
    assert decode(encode_notification(method, Point(3)), untrusted=True) == Notification(method, params)
    assert decode(encode_reply(request_id, Point(3)), untrusted=True) == Reply(request_id, params)
    assert decode(encode_reply(request_id, params), untrusted=True) == Reply(request_id, params)
    failure = encode_failure(request_id, code, method, {"a": 1})
    assert decode(failure, untrusted=True) == Failure(request_id, ErrorBody(code, method, {"a": 1}))


def test_wire_has_no_jsonrpc_member_and_no_empty_data() -> None:
    assert json.loads(encode_request(1, "m")) == {"id": 1, "method": "m", "params": {}}
    assert json.loads(encode_notification("m")) == {"method": "m", "params": {}}
    assert json.loads(encode_reply("a", Point(1))) == {"id": "a", "result": {"x": 1}}
    assert json.loads(encode_failure(-1, -32600, "why")) == {"id": -1, "error": {"code": -32600, "message": "why"}}


def test_wire_has_the_jsonrpc_member_for_who_wants_it() -> None:
    for frame, rest in (
        (encode_request(1, "m", {"a": [1]}, jsonrpc=True), {"id": 1, "method": "m", "params": {"a": [1]}}),
        (encode_notification("m", jsonrpc=True), {"method": "m", "params": {}}),
        (encode_reply("a", {}, jsonrpc=True), {"id": "a", "result": {}}),
        (encode_failure(1, -1, "x", jsonrpc=True), {"id": 1, "error": {"code": -1, "message": "x"}}),
    ):
        assert json.loads(frame) == {"jsonrpc": "2.0", **rest}
        assert decode(frame, untrusted=True) == decode(msgspec.json.encode(rest))
