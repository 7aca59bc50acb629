"""`check_wire_api`: what must hold for every wire API of `treadle.llm`, ours and yours.

from treadle.testing import check_wire_api

def test_my_wire_api():
    check_wire_api(WIRE_API, recorded=Path("a_response.sse").read_bytes(), text="hello", calls=[("look", '{"at":1}')])
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from treadle.http.sse import SseParser
from treadle.llm.model import (
    Completed,
    Created,
    HttpFailure,
    ItemDone,
    ItemStarted,
    ModelError,
    ModelEvent,
    ModelRequest,
    TextDelta,
    ToolInputDelta,
    UnknownEvent,
)
from treadle.llm.output_items import CustomToolCallItem, FunctionCallItem, MessageItem
from treadle.llm.provider import ProviderConfig
from treadle.llm.wire_api import Asking, WireApi

_PROMPT: Final = "a prompt that nobody else has"
_MODEL: Final = "the-model-that-is-asked"
_KEY: Final = "sk-a-key-of-nobody"
_PIXEL: Final = "data:image/png;base64,iVBORw0KGgo="
_NOISE: Final = (
    b"data: null\n\n",
    b"data: []\n\n",
    b"data: {}\n\n",
    b"data: {\n\n",
    b'data: {"type":7}\n\n',
    b'event: odd\ndata: {"type":"odd"}\n\n',
    b"data: \xff\xfe\n\n",
    b"data: " + b"[" * 100_000 + b"\n\n",
)
_BODIES: Final = (b"", b"null", b"[]", b"{", b'{"error":7}', b'{"error":{"message":7}}', b"<html>no</html>", b"\xff")
_FINAL: Final = (401, 403, 404)
_AGAIN: Final = (429, 500, 502, 503)


def check_wire_api(wire: WireApi, *, recorded: bytes, text: str, calls: Sequence[tuple[str, str]] = ()) -> None:
    """Raises `AssertionError` with what does not hold.

    Args:
        wire: The wire API.
        recorded: The body of a response that went well: server-sent events.
        text: What the model says in it, all of it.
        calls: The tools that it calls, each with its arguments or input.
    """
    assert wire.path.startswith("/"), f"the path {wire.path!r} does not begin with a slash"
    assert all(name == name.lower() for name in wire.headers), "the names of headers are not in lower case"
    name, value = wire.key_header(_KEY)
    assert name == name.lower(), f"the name of the header {name!r} is not in lower case"
    assert _KEY in value, f"the header {name!r} has no key in it"
    for history in _histories():
        try:
            texts = _encoded(wire, history)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise AssertionError(f"a request with {history} cannot be written: {error!r}") from error
        assert any(_PROMPT in text for text in texts), f"what the user said is not in the request with {history}"
        assert _MODEL in texts, "the model is not in the request"
    events = _check_stream(wire, recorded, text, calls)
    _check_next_request(wire, events)
    for size in (1, 7, 100):
        again, failure = _play(wire, [recorded[at : at + size] for at in range(0, len(recorded), size)])
        assert failure is None, f"in pieces of {size} bytes the recorded response fails: {failure}"
        assert _comparable(again) == _comparable(events), f"pieces of {size} bytes give other events"
    _check_cuts(wire, recorded, events)
    _check_noise(wire, recorded, events)
    _check_failures(wire)


# --- requests --------------------------------------------------------------------------------------------------------


def _message(role: str, *parts: dict[str, Any]) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": list(parts)}


def _histories() -> Iterator[list[dict[str, Any]]]:
    """What a thread may hold, also after it was another provider's."""
    asked = _message("user", {"type": "input_text", "text": _PROMPT})
    call = {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": "call_1", "output": "nothing"}
    yield [asked]
    yield [_message("developer", {"type": "input_text", "text": "be kind"}), asked]
    yield [asked, _message("assistant", {"type": "output_text", "text": "yes"}), asked]
    yield [_message("user", {"type": "input_text", "text": _PROMPT}, {"type": "input_image", "image_url": _PIXEL})]
    yield [asked, call, result]
    yield [asked, call, {**result, "output": [{"type": "input_image", "image_url": _PIXEL}]}]
    yield [asked, call, {**call, "call_id": "call_2"}, result, {**result, "call_id": "call_2"}]
    yield [asked, {**call, "arguments": "{no json"}, result]
    yield [asked, {**call, "namespace": "space"}, result]
    custom = {"type": "custom_tool_call", "call_id": "call_1", "name": "apply_patch", "input": "*** Begin Patch"}
    yield [asked, custom, {"type": "custom_tool_call_output", "call_id": "call_1", "output": "done"}]
    yield [asked, {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "bm90IHlvdXJz"}, asked]
    yield [asked, {"type": "web_search_call", "id": "ws_1", "status": "completed"}, asked]
    yield [asked, {"type": "something_new", "value": [1, None, {}]}, asked]
    yield [asked, call]  # cut off before there was a result


_TOOLS: Final = (
    {"type": "function", "name": "look", "description": "Look.", "strict": False, "parameters": {"type": "object"}},
    {"type": "custom", "name": "apply_patch", "description": "Patch.", "format": {"type": "text"}},
)


def _encoded(wire: WireApi, history: Sequence[Any]) -> list[str]:
    """All texts in the body of a request."""
    request = ModelRequest(model=_MODEL, input=history, instructions="be brief", tools=_TOOLS)
    asking = Asking(ProviderConfig(id="suite", base_url="http://127.0.0.1:1/v1", wire_api=wire.name))
    body = wire.encode(request, asking)
    assert isinstance(body, bytes), "the body of a request is not bytes"
    assert wire.encode(request, asking) == body, "the same request is written in two ways, which no cache can use"
    return list(_texts(msgspec.json.decode(body)))


def _texts(value: object) -> Iterator[str]:
    match value:
        case str():
            yield value
        case list():
            for member in value:
                yield from _texts(member)
        case dict():
            for member in value.values():
                yield from _texts(member)


def _check_next_request(wire: WireApi, events: list[ModelEvent]) -> None:
    """What the model said is the history of the next request, as the agent sends it."""
    asked = _message("user", {"type": "input_text", "text": _PROMPT})
    items = [event.item for event in events if isinstance(event, ItemDone)]
    called = [item for item in items if isinstance(item, FunctionCallItem | CustomToolCallItem)]
    results = []
    for item in called:
        kind = "function_call_output" if isinstance(item, FunctionCallItem) else "custom_tool_call_output"
        results.append({"type": kind, "call_id": item.call_id, "output": f"result of {item.call_id}"})
    texts = _encoded(wire, [asked, *(item.raw for item in items), *results])
    for message in items:
        if isinstance(message, MessageItem):
            assert any(message.text in text for text in texts), "what the model said is not in the next request"
    for result in results:
        assert any(result["output"] in text for text in texts), "the result of a call is not in the next request"


# --- streams ---------------------------------------------------------------------------------------------------------


def _play(wire: WireApi, chunks: Sequence[bytes]) -> tuple[list[ModelEvent], ModelError | None]:
    """Read a stream as the client does: what comes after the response is not read."""
    translator = wire.translator(ModelRequest(model=_MODEL, input=[], tools=_TOOLS))
    parser, events = SseParser(), list[ModelEvent]()
    try:
        for chunk in chunks:
            for sse in parser.receive(chunk):
                if translator.completed:
                    return events, None
                events += translator.receive(sse)
        if not translator.completed:
            events += translator.end()
            assert translator.completed, "`end` of a response that is not complete raises no ModelError"
    except ModelError as error:
        return events, error
    return events, None


def _comparable(events: Sequence[ModelEvent]) -> list[tuple[object, ...]]:
    """The events without the ids that a translator makes itself, which are others each time."""
    numbers: dict[str, int] = {}
    found: list[tuple[object, ...]] = []
    for event in events:
        match event:
            case ItemStarted(item) | ItemDone(item):
                content = [getattr(item, name, None) for name in ("text", "name", "arguments", "input")]
                number = numbers.setdefault(item.id, len(numbers))
                found.append((type(event), number, type(item), *content))
            case Created() | UnknownEvent():
                found.append((type(event),))
            case Completed():
                found.append((Completed, event.usage))
            case _:
                found.append((type(event), numbers.get(event.item_id), getattr(event, "delta", "")))
    return found


def _calls(events: Sequence[ModelEvent]) -> list[tuple[str, str]]:
    items = [event.item for event in events if isinstance(event, ItemDone)]
    functions = [item for item in items if isinstance(item, FunctionCallItem | CustomToolCallItem)]
    return [(item.name, item.arguments if isinstance(item, FunctionCallItem) else item.input) for item in functions]


def _check_stream(wire: WireApi, recorded: bytes, text: str, calls: Sequence[tuple[str, str]]) -> list[ModelEvent]:
    events, error = _play(wire, [recorded])
    assert error is None, f"the recorded response fails: {error}"
    check_order(events)
    assert events, "the recorded response has no events"
    assert isinstance(events[-1], Completed), f"the last event is {events[-1]}, not Completed"
    items = [event.item for event in events if isinstance(event, ItemDone)]
    said = "".join(item.text for item in items if isinstance(item, MessageItem))
    assert said == text, f"the model is understood to say {said!r}"
    assert _calls(events) == list(calls), f"the model is understood to call {_calls(events)}"
    grown: dict[str, str] = {}
    for event in events:
        if isinstance(event, TextDelta | ToolInputDelta):
            grown[event.item_id] = grown.get(event.item_id, "") + event.delta
    for item in items:
        if isinstance(item, MessageItem):
            assert grown.get(item.id) == item.text, f"the deltas of {item.id} say something else"
    return events


def check_order(events: Sequence[ModelEvent]) -> None:
    """What `treadle.llm.model` promises of the order of events, of whole responses and of their beginnings."""
    started: set[str] = set()
    for number, event in enumerate(events):
        match event:
            case ItemStarted(item):
                assert item.id, "an item has no id"
                assert item.id not in started, f"{item.id} starts twice"
                started.add(item.id)
            case ItemDone(item):
                assert item.id in started, f"{item.id} is done and was not started"
                started.remove(item.id)
            case Completed():
                assert number == len(events) - 1, "something follows Completed"
            case Created() | UnknownEvent():
                pass
            case _:
                assert event.item_id in started, f"{event} belongs to no open item"


def _check_cuts(wire: WireApi, recorded: bytes, events: list[ModelEvent]) -> None:
    """A stream that ends anywhere is whole, or an error; a call is whole, or was never made."""
    ends = {at + 2 for at in range(len(recorded)) if recorded.startswith(b"\n\n", at)} | {*range(0, len(recorded), 13)}
    for end in sorted(ends):
        some, error = _play(wire, [recorded[:end]])
        check_order(some)
        whole = any(isinstance(event, Completed) for event in some)
        assert whole == (error is None), f"cut after {end} bytes it is neither whole nor an error"
        assert set(_calls(some)) <= set(_calls(events)), f"cut after {end} bytes there is half a call"
        if error is not None:
            assert error.retryable, f"cut after {end} bytes it is not to be asked for again"


def _check_noise(wire: WireApi, recorded: bytes, events: list[ModelEvent]) -> None:
    first = recorded.index(b"\n\n") + 2
    for noise in _NOISE:
        some, error = _play(wire, [noise])
        assert error is not None, f"a stream of nothing but {noise[:40]!r} is a whole response"
        assert not any(isinstance(event, ItemDone) for event in some), f"{noise[:40]!r} is an item"
        some, error = _play(wire, [recorded[:first], noise, recorded[first:]])
        assert error is None, f"{noise[:40]!r} breaks a stream: {error}"
        assert _calls(some) == _calls(events), f"{noise[:40]!r} changes what is called"


# --- failures --------------------------------------------------------------------------------------------------------


def _check_failures(wire: WireApi) -> None:
    for status in (400, *_FINAL, 413, 422, *_AGAIN, 529):
        for body in _BODIES:
            failure = HttpFailure(status, {}, body, "http://127.0.0.1:1/v1")
            error = wire.failure(failure)
            assert isinstance(error, ModelError), f"HTTP {status} is no ModelError"
            assert error.http_status == status, f"the error of HTTP {status} has the status {error.http_status}"
            assert error.message, f"HTTP {status} with {body!r} has no message"
            assert not (error.retryable and status in _FINAL), f"HTTP {status} is to be asked again"
            assert error.retryable or status not in _AGAIN, f"HTTP {status} is not to be asked again"
            # Each refusal teaches something new, or it is final: otherwise it would be asked for ever.
            quirks: frozenset[str] = frozenset()
            for _ in range(20):
                more = wire.other_way(failure, quirks)
                if more is None or more <= quirks:
                    break
                quirks |= more
            else:
                raise AssertionError(f"there is no end to the other ways after HTTP {status}")
    asked = wire.failure(HttpFailure(429, {"retry-after": "7"}, b"", "http://127.0.0.1:1/v1", 7.0))
    assert asked.retry_after_s == 7.0, "how long the server asks to wait is lost"
