"""The four kinds of messages, and their JSON."""

from __future__ import annotations

import json
import re
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from treadle.errors import MalformedMessage

RequestId = int | str

# As many JSON values as the Codex servers accept in one message; a hostile peer could otherwise turn 64 MiB of
# commas into gigabytes of objects.
MAX_VALUES = 262_144

_Id = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | str


class Request(Struct, frozen=True):
    """`traceparent` is of W3C Trace Context: what the request is a part of, if it says so."""

    id: RequestId
    method: str
    params: Raw
    traceparent: str = ""


class Notification(Struct, frozen=True):
    method: str
    params: Raw


class Reply(Struct, frozen=True):
    id: RequestId
    result: Raw


class ErrorBody(Struct, frozen=True, omit_defaults=True):
    code: int
    message: str
    data: Any = None


class Failure(Struct, frozen=True):
    id: RequestId
    error: ErrorBody


class _Envelope(Struct):
    id: _Id | UnsetType = UNSET
    method: str | UnsetType = UNSET
    params: Raw = Raw()
    result: Raw = Raw()
    error: Raw = Raw()
    trace: Raw = Raw()


class _Trace(Struct):
    traceparent: str | None = None


class _LenientEnvelope(_Envelope):
    id: Any = UNSET


_decoder = msgspec.json.Decoder(_Envelope)
_lenient_decoder = msgspec.json.Decoder(_LenientEnvelope)
_error_decoder = msgspec.json.Decoder(ErrorBody)
_trace_decoder = msgspec.json.Decoder(_Trace)
_encoder = msgspec.json.Encoder()
_NO_PARAMS = Raw(b"{}")


def decode(frame: bytes, *, untrusted: bool = False) -> Request | Notification | Reply | Failure:
    """Read one message. `untrusted` also refuses duplicate keys and too many values, at the price of a second pass."""
    try:
        if untrusted:
            _check(frame)
        return _classify(_decoder.decode(frame))
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise MalformedMessage(f"not a JSON-RPC message: {error}") from None


def decode_lenient(frame: bytes) -> Request | Notification | Reply | Failure:
    """As the Codex app-server reads: what has a method and no usable id is a notification.

    `params` is empty when there was none, which is not the same as an empty object there.
    """
    try:
        envelope = _lenient_decoder.decode(frame)
        is_id = type(envelope.id) is str or (type(envelope.id) is int and -(2**63) <= envelope.id < 2**63)
        if isinstance(envelope.method, UnsetType) or not isinstance(envelope.method, str):
            return _classify(envelope if is_id else _Envelope())
        params = envelope.params
        if not is_id:
            return Notification(envelope.method, params)
        return Request(envelope.id, envelope.method, params, _traceparent(envelope.trace))
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise MalformedMessage(f"not a JSON-RPC message: {error}") from None


def _classify(envelope: _Envelope) -> Request | Notification | Reply | Failure:
    """By the first of `method`, `result`, `error` that is there; the others are then unknown members, of any type."""
    if not isinstance(envelope.method, UnsetType):
        params = envelope.params if _given(envelope.params) else _NO_PARAMS
        if isinstance(envelope.id, UnsetType):
            return Notification(envelope.method, params)
        return Request(envelope.id, envelope.method, params, _traceparent(envelope.trace))
    if isinstance(envelope.id, UnsetType):
        raise MalformedMessage("not a JSON-RPC message: it has neither `method` nor `id`")
    if bytes(envelope.result):
        return Reply(envelope.id, envelope.result)
    if not bytes(envelope.error):
        raise MalformedMessage("not a JSON-RPC message: it has none of `method`, `result` and `error`")
    return Failure(envelope.id, _error_decoder.decode(envelope.error))


def _traceparent(trace: Raw) -> str:
    """Empty when there is none, or when it is not what it should be: a request is not refused for it."""
    raw = bytes(trace)
    if not raw:
        return ""
    try:
        return _trace_decoder.decode(raw).traceparent or ""
    except (msgspec.DecodeError, ValueError, RecursionError):
        return ""


def _given(params: Raw) -> bool:
    raw = bytes(params)
    return bool(raw) and raw != b"null"


def _check(frame: bytes) -> None:
    # Before the parser makes an object of every value.
    if _count(frame) > MAX_VALUES:
        raise MalformedMessage(f"not a JSON-RPC message: it holds more than {MAX_VALUES} JSON values")
    value = json.loads(frame, object_pairs_hook=_unique)
    if not isinstance(value, dict):
        raise MalformedMessage("not a JSON-RPC message: expected an object")


# A string (an unfinished one reaches to the end), or what makes room for one more value.
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|,|[\[{](?!\s*+[\]}])', re.DOTALL)


def _count(frame: bytes) -> int:
    """How many values a JSON text holds; an upper bound where that is small, or the text is no JSON."""
    bound = 1 + frame.count(b",") + frame.count(b"[") + frame.count(b"{")
    if bound <= MAX_VALUES:
        return bound
    values, strings = 1, 0
    for token in _TOKEN.finditer(frame):
        if frame[token.start()] == 0x22:
            strings += 1
        else:
            values += 1
        if max(values, strings // 2) > MAX_VALUES:  # each value is at most two strings: itself and its name
            break
    return max(values, strings // 2)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) == len(pairs):
        return members
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            raise ValueError(f"duplicate object key `{ascii(name[:80])[1:-1]}`")  # it may be no Unicode
        seen.add(name)
    return members


def encode_request(request_id: RequestId, method: str, params: Struct | None = None, traceparent: str = "") -> bytes:
    message: dict[str, Any] = {"id": request_id, "method": method, "params": {} if params is None else params}
    return _encoder.encode({**message, "trace": {"traceparent": traceparent}} if traceparent else message)


def encode_notification(method: str, params: Struct | None = None) -> bytes:
    return _encoder.encode({"method": method, "params": {} if params is None else params})


def encode_reply(request_id: RequestId, result: Struct | Raw) -> bytes:
    return _encoder.encode({"id": request_id, "result": result})


def encode_failure(request_id: RequestId, code: int, message: str, data: Any = None) -> bytes:
    return _encoder.encode(Failure(request_id, ErrorBody(code, message, data)))
