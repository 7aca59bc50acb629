"""The four messages and their JSON."""

from __future__ import annotations

import json
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
    id: RequestId
    method: str
    params: Raw


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
    error: ErrorBody | UnsetType = UNSET


_decoder = msgspec.json.Decoder(_Envelope)
_encoder = msgspec.json.Encoder()
_NO_PARAMS = Raw(b"{}")


def decode(frame: bytes, *, untrusted: bool = False) -> Request | Notification | Reply | Failure:
    """Read one message. `untrusted` also refuses duplicate keys and too many values, at the price of a second pass."""
    try:
        if untrusted:
            _check(frame)
        envelope = _decoder.decode(frame)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise MalformedMessage(f"not a JSON-RPC message: {error}") from None
    has_id = not isinstance(envelope.id, UnsetType)
    if not isinstance(envelope.method, UnsetType):
        params = envelope.params if _given(envelope.params) else _NO_PARAMS
        if isinstance(envelope.id, UnsetType):
            return Notification(envelope.method, params)
        return Request(envelope.id, envelope.method, params)
    if not has_id or isinstance(envelope.id, UnsetType):
        raise MalformedMessage("not a JSON-RPC message: it has neither `method` nor `id`")
    if bytes(envelope.result):
        return Reply(envelope.id, envelope.result)
    if isinstance(envelope.error, UnsetType):
        raise MalformedMessage("not a JSON-RPC message: it has none of `method`, `result` and `error`")
    return Failure(envelope.id, envelope.error)


def _given(params: Raw) -> bool:
    raw = bytes(params)
    return bool(raw) and raw != b"null"


def _check(frame: bytes) -> None:
    value = json.loads(frame, object_pairs_hook=_unique)
    if not isinstance(value, dict):
        raise MalformedMessage("not a JSON-RPC message: expected an object")
    # A value takes at least two bytes, so a short frame cannot hold too many.
    if len(frame) > MAX_VALUES and _count(value) > MAX_VALUES:
        raise MalformedMessage(f"not a JSON-RPC message: it holds more than {MAX_VALUES} JSON values")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) == len(pairs):
        return members
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            raise ValueError(f"duplicate object key `{name}`")
        seen.add(name)
    return members


def _count(value: Any) -> int:
    count, stack = 0, [value]
    while stack:
        item = stack.pop()
        count += 1
        if isinstance(item, dict):
            stack.extend(item.values())
        elif isinstance(item, list):
            stack.extend(item)
    return count


def encode_request(request_id: RequestId, method: str, params: Struct | None = None) -> bytes:
    return _encoder.encode({"id": request_id, "method": method, "params": {} if params is None else params})


def encode_notification(method: str, params: Struct | None = None) -> bytes:
    return _encoder.encode({"method": method, "params": {} if params is None else params})


def encode_reply(request_id: RequestId, result: Struct | Raw) -> bytes:
    return _encoder.encode({"id": request_id, "result": result})


def encode_failure(request_id: RequestId, code: int, message: str, data: Any = None) -> bytes:
    return _encoder.encode(Failure(request_id, ErrorBody(code, message, data)))
