"""The four kinds of messages, their JSON, and the guards against hostile JSON.

JSON may be nested as deep as the Codex app-server allows, which is far less than our parser does. Deeper JSON would
pass the parser but could still overflow the stack of code that walks it recursively, depending on how deep the call
stack already is. So it is rejected on arrival.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from itertools import accumulate
from typing import Annotated, Any, Final, TypeVar

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from treadle.errors import INTERNAL_ERROR, MalformedMessage

RequestId = int | str

# As many JSON values as the Codex servers accept in one message; a hostile peer could otherwise turn 64 MiB of
# commas into gigabytes of objects.
MAX_VALUES = 262_144

HALF_A_CHARACTER = "a text has half a character (a lone surrogate)"

_Id = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | str


class Request(Struct, frozen=True):
    """A request. `traceparent` is of W3C Trace Context: what the request is a part of, if it says so."""

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


_E = TypeVar("_E", bound=_Envelope)

_decoder = msgspec.json.Decoder(_Envelope)
_lenient_decoder = msgspec.json.Decoder(_LenientEnvelope)
_error_decoder = msgspec.json.Decoder(ErrorBody)
_trace_decoder = msgspec.json.Decoder(_Trace)
_encoder = msgspec.json.Encoder()
_NO_PARAMS = Raw(b"{}")
_HEAD: Final[Mapping[bool, Mapping[str, Any]]] = {False: {}, True: {"jsonrpc": "2.0"}}


def decode(frame: bytes, *, untrusted: bool = False) -> Request | Notification | Reply | Failure:
    """Read one message. `untrusted` also refuses duplicate keys and too many values, at the price of a second pass."""
    try:
        if untrusted:
            # Before the parser makes an object of every value.
            if count_values(frame) > MAX_VALUES:
                raise MalformedMessage(f"not a JSON-RPC message: it holds more than {MAX_VALUES} JSON values")
            if not isinstance(json.loads(frame, object_pairs_hook=_unique), dict):
                raise MalformedMessage("not a JSON-RPC message: expected an object")
        return _classify(_read(_decoder, frame))
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise MalformedMessage(f"not a JSON-RPC message: {error}") from None


def decode_lenient(frame: bytes) -> Request | Notification | Reply | Failure:
    """Decode as the Codex app-server does: what has a method and no usable id is a notification.

    `params` is empty when there was none, which is not the same as an empty object there.
    """
    try:
        envelope = _read(_lenient_decoder, frame)
        is_id = type(envelope.id) is str or (type(envelope.id) is int and -(2**63) <= envelope.id < 2**63)
        if isinstance(envelope.method, UnsetType) or not isinstance(envelope.method, str):
            return _classify(envelope if is_id else _Envelope())
        params = envelope.params
        if not is_id:
            return Notification(envelope.method, params)
        return Request(envelope.id, envelope.method, params, _traceparent(envelope.trace))
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise MalformedMessage(f"not a JSON-RPC message: {error}") from None


def _read(decoder: msgspec.json.Decoder[_E], frame: bytes) -> _E:
    try:
        return decoder.decode(frame)
    except msgspec.DecodeError:
        if b"\\ud" not in frame.lower() or count_values(frame) > MAX_VALUES:
            raise
    # Half a surrogate pair: who asked is known, and whoever decodes the params says why they cannot be read.
    members = json.loads(frame)
    if not isinstance(members, dict):
        raise ValueError("expected an object")
    envelope = decoder.decode(json.dumps({name: members[name] for name in ("id", "method") if name in members}))
    envelope.params = Raw(json.dumps(members.get("params")).encode())
    if "method" not in members and ("result" in members or "error" in members):  # who has asked is not kept waiting
        envelope.error = Raw(_encoder.encode(ErrorBody(INTERNAL_ERROR, HALF_A_CHARACTER)))
    return envelope


def decode_problem(data: bytes, error: Exception) -> str:
    """Why JSON cannot be decoded, for people: msgspec takes half a surrogate pair for the end of the data."""
    return HALF_A_CHARACTER if isinstance(error, msgspec.DecodeError) and b"\\ud" in data.lower() else str(error)


def _classify(envelope: _Envelope) -> Request | Notification | Reply | Failure:
    """The message, by the first of `method`, `result`, `error` that is there; the others are then unknown members."""
    if not isinstance(envelope.method, UnsetType):
        params = envelope.params if bytes(envelope.params) not in (b"", b"null") else _NO_PARAMS
        if isinstance(envelope.id, UnsetType):
            return Notification(envelope.method, params)
        return Request(envelope.id, envelope.method, params, _traceparent(envelope.trace))
    if isinstance(envelope.id, UnsetType):
        raise MalformedMessage("not a JSON-RPC message: it has neither `method` nor `id`")
    if bytes(envelope.result):
        return Reply(envelope.id, envelope.result)
    if not bytes(envelope.error):
        raise MalformedMessage("not a JSON-RPC message: it has none of `method`, `result` and `error`")
    if len(envelope.error) > MAX_VALUES and count_values(bytes(envelope.error)) > MAX_VALUES:
        return Failure(envelope.id, ErrorBody(INTERNAL_ERROR, f"an error of more than {MAX_VALUES} JSON values"))
    return Failure(envelope.id, _error_decoder.decode(envelope.error))


def _traceparent(trace: Raw) -> str:
    """The `traceparent`; empty when it is missing or invalid: a request is not refused for it."""
    raw = bytes(trace)
    if not raw:
        return ""
    try:
        return _trace_decoder.decode(raw).traceparent or ""
    except (msgspec.DecodeError, ValueError, RecursionError):
        return ""


# A string (an unfinished one reaches to the end), or what makes room for one more value.
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|,|[\[{](?!\s*+[\]}])', re.DOTALL)


def count_values(frame: bytes) -> int:
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


Params = Struct | Raw | Mapping[str, Any]


def encode_request(
    request_id: RequestId,
    method: str,
    params: Params | None = None,
    traceparent: str = "",
    *,
    jsonrpc: bool = False,
) -> bytes:
    """With `jsonrpc` a message has that member, for peers that insist on it, here and below."""
    message = {**_HEAD[jsonrpc], "id": request_id, "method": method, "params": {} if params is None else params}
    return _encoder.encode({**message, "trace": {"traceparent": traceparent}} if traceparent else message)


def encode_notification(method: str, params: Params | None = None, *, jsonrpc: bool = False) -> bytes:
    return _encoder.encode({**_HEAD[jsonrpc], "method": method, "params": {} if params is None else params})


def encode_reply(request_id: RequestId, result: Params, *, jsonrpc: bool = False) -> bytes:
    return _encoder.encode({**_HEAD[jsonrpc], "id": request_id, "result": result})


def encode_failure(request_id: RequestId, code: int, message: str, data: Any = None, *, jsonrpc: bool = False) -> bytes:
    return _encoder.encode({**_HEAD[jsonrpc], "id": request_id, "error": ErrorBody(code, message, data)})


MAX_DEPTH: Final = 128
TOO_DEEP: Final = f"nested more than {MAX_DEPTH} levels deep"

_ESCAPE: Final = re.compile(rb"\\.", re.DOTALL)
_STRING: Final = re.compile(rb'"[^"]*"?')
_TEXT: Final = bytes(set(range(256)) - set(b'[]{}"'))
_STEP: Final = [1 if byte in b"[{" else -1 if byte in b"]}" else 0 for byte in range(256)]


def is_too_deep(data: bytes) -> bool:
    """Whether arrays and objects lie deeper in each other than `MAX_DEPTH`. Linear, and quick for what is not."""
    if data.count(b"[") + data.count(b"{") <= MAX_DEPTH:
        return False
    brackets = _STRING.sub(b"", _ESCAPE.sub(b"", data).translate(None, _TEXT))
    return max(accumulate(map(_STEP.__getitem__, brackets)), default=0) > MAX_DEPTH
