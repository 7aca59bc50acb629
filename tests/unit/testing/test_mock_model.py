"""`MockModel` as a client sees it: over plain sockets, kept alive, cut, held at a gate, and empty."""

from __future__ import annotations

import asyncio
import http.client
import inspect
import json
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from treadle.testing import MockModel, RecordedRequest, Reply, ToolCall, Usage, mock_server

DEADLINE_S = 30


@pytest.fixture
def model() -> Iterator[MockModel]:
    with MockModel() as model:
        yield model


def _connect(model: MockModel) -> http.client.HTTPConnection:
    host = model.base_url.removeprefix("http://").removesuffix("/v1")
    return http.client.HTTPConnection(host, timeout=DEADLINE_S)


def _post(connection: http.client.HTTPConnection, body: object = None) -> http.client.HTTPResponse:
    content = json.dumps(body if body is not None else {"input": "hi"})
    connection.request("POST", "/v1/responses", content, {"Authorization": "Bearer s3cret"})
    return connection.getresponse()


def _events(body: bytes) -> list[dict[str, Any]]:
    blocks = body.decode().split("\n\n")
    assert blocks[-1] == "", "the stream ends in the middle of an event"
    events = []
    for block in blocks[:-1]:
        name, data = block.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        events.append(event)
    return events


def _ask(model: MockModel, body: object = None) -> list[dict[str, Any]]:
    connection = _connect(model)
    try:
        response = _post(connection, body)
        assert response.status == 200, response.read()
        assert response.headers["Content-Type"] == "text/event-stream"
        return _events(response.read())
    finally:
        connection.close()


def _types(events: list[dict[str, Any]]) -> list[str]:
    return [event["type"].removeprefix("response.") for event in events]


# --- what is played --------------------------------------------------------------------------------------------------


def test_a_message_is_streamed_in_its_deltas(model: MockModel) -> None:
    usage = Usage(input_tokens=7, cached_input_tokens=3, output_tokens=5, reasoning_output_tokens=2)
    model.enqueue_assistant_message("one two", phase="final_answer", deltas=["one", " two"], usage=usage)
    events = _ask(model)
    assert _types(events) == [
        "created", "output_item.added", "output_text.delta", "output_text.delta", "output_item.done", "completed",
    ]  # fmt: skip
    assert [event["delta"] for event in events[2:4]] == ["one", " two"]
    item = events[4]["item"]
    assert (item["type"], item["role"], item["phase"]) == ("message", "assistant", "final_answer")
    assert item["content"][0]["text"] == "one two"
    assert {event["item_id"] for event in events[2:4]} == {item["id"]} == {events[1]["item"]["id"]}
    response = events[-1]["response"]
    assert response["id"] == events[0]["response"]["id"]
    assert response["output"] == [item]
    assert response["usage"] == {
        "input_tokens": 7,
        "input_tokens_details": {"cached_tokens": 3},
        "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": 2},
        "total_tokens": 12,
    }


def test_deltas_that_do_not_make_the_text_are_refused(model: MockModel) -> None:
    with pytest.raises(ValueError, match="do not make up the text"):
        model.enqueue_assistant_message("one", deltas=["two"])
    assert model.pending == 0


def test_a_function_call(model: MockModel) -> None:
    assert model.enqueue_function_call("run", {"cmd": "ls"}, call_id="c9") == "c9"
    item = _ask(model)[2]["item"]
    assert (item["type"], item["name"], item["call_id"]) == ("function_call", "run", "c9")
    assert json.loads(item["arguments"]) == {"cmd": "ls"}


def test_arguments_may_be_bad_json(model: MockModel) -> None:
    model.enqueue_function_call("run", "{oops")
    assert _ask(model)[2]["item"]["arguments"] == "{oops"


def test_several_calls_in_one_response(model: MockModel) -> None:
    ids = model.enqueue_calls(ToolCall("a", {}), ToolCall("p", "free text", custom=True), text="first this")
    events = _ask(model)
    done = [event for event in events if event["type"] == "response.output_item.done"]
    assert [event["item"]["type"] for event in done] == ["message", "function_call", "custom_tool_call"]
    assert [event["output_index"] for event in done] == [0, 1, 2]
    assert [event["item"]["call_id"] for event in done[1:]] == ids
    assert len(set(ids)) == 2
    assert done[2]["item"]["input"] == "free text"
    assert events[-1]["response"]["output"] == [event["item"] for event in done]


def test_call_ids_differ_between_responses(model: MockModel) -> None:
    assert model.enqueue_function_call("a", {}) != model.enqueue_custom_call("a", "")


def test_a_custom_tool_takes_text_only() -> None:
    with pytest.raises(ValueError, match="free text"):
        ToolCall("p", {"a": 1}, custom=True)


def test_events_and_ready_bytes_are_sent_as_they_are(model: MockModel) -> None:
    ready = b'event: x\ndata: {"type":"x"}\n\n: comment\n\ndata: half'
    model.enqueue_sse(ready)
    model.enqueue_sse([{"type": "y", "n": 1}, b"raw\n\n"])
    connection = _connect(model)
    assert _post(connection).read() == ready
    assert _post(connection).read() == b'event: y\ndata: {"type":"y","n":1}\n\nraw\n\n'
    connection.close()


def test_an_error_with_headers(model: MockModel) -> None:
    model.enqueue_error(429, {"error": {"message": "slow down"}}, {"Retry-After": "3"})
    model.enqueue_error(503, "busy")
    connection = _connect(model)
    first = _post(connection)
    assert (first.status, first.headers["Retry-After"]) == (429, "3")
    assert json.loads(first.read()) == {"error": {"message": "slow down"}}
    second = _post(connection)
    assert (second.status, second.read()) == (503, b"busy")
    connection.close()


def test_a_connection_is_kept_alive(model: MockModel) -> None:
    connection = _connect(model)
    ports = []
    for text in ("one", "two"):
        model.enqueue_assistant_message(text)
        assert _events(_post(connection).read())[2]["delta"] == text
        assert connection.sock is not None
        ports.append(connection.sock.getsockname()[1])
    assert ports[0] == ports[1]
    connection.close()


# --- cut and held ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cut_after", [0, 2, 5])
def test_a_cut_stream_has_no_end(model: MockModel, cut_after: int) -> None:
    model.enqueue_assistant_message("text", cut_after=cut_after)
    connection = _connect(model)
    response = _post(connection)
    with pytest.raises(http.client.IncompleteRead) as caught:
        response.read()
    assert len(_events(caught.value.partial)) == cut_after
    connection.close()


def test_a_gate_holds_the_whole_reply(model: MockModel) -> None:
    gate = threading.Event()
    model.enqueue_assistant_message("later", gate=gate)
    model.enqueue_assistant_message("at once")
    held = threading.Thread(target=lambda: held_events.extend(_ask(model)))
    held_events: list[dict[str, Any]] = []
    held.start()
    model.wait_for_requests(1, DEADLINE_S)
    assert _ask(model)[2]["delta"] == "at once"
    assert held_events == []
    gate.set()
    held.join(DEADLINE_S)
    assert held_events[2]["delta"] == "later"


def test_a_gate_in_the_middle_of_the_stream(model: MockModel) -> None:
    gate = threading.Event()
    model.enqueue_assistant_message("ab", deltas=["a", "b"], gate=gate, gate_after=3)
    connection = _connect(model)
    response = _post(connection)
    body = b""
    while body.count(b"\n\n") < 3:
        body += response.read1()
    assert _types(_events(body))[-1] == "output_text.delta"
    gate.set()
    assert _types(_events(body + response.read()))[-1] == "completed"
    connection.close()


def test_a_delayed_reply_arrives(model: MockModel) -> None:
    model.enqueue_assistant_message("slow", delay_s=0.01)
    assert _ask(model)[2]["delta"] == "slow"


def test_a_slow_stream_comes_delta_by_delta(model: MockModel) -> None:
    deltas = ["one ", "two ", "three"]
    model.enqueue_assistant_message("".join(deltas), deltas=deltas, delta_delay_s=0.02)
    since = time.monotonic()
    connection = _connect(model)
    response = _post(connection)
    pieces = []
    while chunk := response.read1():  # at most one chunk of the encoding
        pieces.append(chunk)
    assert time.monotonic() - since >= 3 * 0.02
    assert [_types(_events(piece)) for piece in pieces] == [
        ["created", "output_item.added"],
        ["output_text.delta"],
        ["output_text.delta"],
        ["output_text.delta", "output_item.done", "completed"],
    ]
    connection.close()


def test_a_slow_stream_can_be_cut_and_held(model: MockModel) -> None:
    gate = threading.Event()
    gate.set()
    timing: Any = {"delta_delay_s": 0.001, "gate": gate, "gate_after": 3, "cut_after": 4}
    model.enqueue_assistant_message("abc", deltas=["a", "b", "c"], **timing)
    connection = _connect(model)
    with pytest.raises(http.client.IncompleteRead) as caught:
        _post(connection).read()
    connection.close()
    assert [event.get("delta") for event in _events(caught.value.partial)] == [None, None, "a", "b"]


def test_closing_ends_a_slow_stream() -> None:
    model = MockModel()
    model.enqueue_assistant_message("never", delta_delay_s=1000)
    connection = _connect(model)
    response = _post(connection)
    model.close()
    with pytest.raises(http.client.IncompleteRead):
        response.read()
    connection.close()


def test_a_connection_can_be_dropped_before_the_answer(model: MockModel) -> None:
    model.enqueue_drop()
    model.enqueue_assistant_message("again")
    connection = _connect(model)
    with pytest.raises(http.client.RemoteDisconnected):
        _post(connection)
    connection.close()
    assert _ask(model)[2]["delta"] == "again"
    assert len(model.requests()) == 2


def test_a_given_port() -> None:
    with MockModel() as first:
        port = first.port
        with pytest.raises(OSError, match=f"the mock model cannot listen on 127.0.0.1:{port}: Address already in use"):
            MockModel(port=port)
    with MockModel(port=port) as second:
        second.enqueue_assistant_message("here again")
        assert second.base_url == f"http://127.0.0.1:{port}/v1"
        assert _ask(second)[2]["delta"] == "here again"


@pytest.mark.parametrize(
    "timing",
    [
        {"gate_after": 1},
        {"delay_s": -1.0},
        {"delta_delay_s": -1.0},
        {"cut_after": 99},
        {"gate": threading.Event(), "gate_after": 99},
    ],
)
def test_impossible_timings_are_refused(model: MockModel, timing: Any) -> None:
    with pytest.raises(ValueError, match=r"gate|cannot"):
        model.enqueue_assistant_message("x", **timing)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the end of a listening socket wakes nobody")
def test_close_does_not_wait_for_the_next_look_around(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mock_server, "ACCEPT_POLL_S", 3600.0)
    model = MockModel()
    closing = threading.Thread(target=model.close, daemon=True)
    closing.start()
    closing.join(30)
    assert not closing.is_alive()


def test_close_ends_held_replies() -> None:
    model = MockModel()
    model.enqueue_assistant_message("never", gate=threading.Event())
    model.enqueue_assistant_message("never", delay_s=3600)
    outcomes: list[str] = []

    def ask() -> None:
        connection = _connect(model)
        try:
            _post(connection).read()
        except OSError as error:  # RemoteDisconnected among them
            outcomes.append(type(error).__name__)
        connection.close()

    clients = [threading.Thread(target=ask) for _ in range(2)]
    for client in clients:
        client.start()
    model.wait_for_requests(2, DEADLINE_S)
    model.close()
    model.close()
    for client in clients:
        client.join(DEADLINE_S)
    assert len(outcomes) == 2


# --- an empty queue --------------------------------------------------------------------------------------------------


def test_an_empty_queue_says_so(model: MockModel) -> None:
    connection = _connect(model)
    response = _post(connection)
    assert response.status == 500
    assert "no response queued for request 1" in json.loads(response.read())["error"]["message"]
    connection.close()


def test_an_empty_queue_may_wait() -> None:
    with MockModel(on_empty="wait") as model:
        events: list[dict[str, Any]] = []
        client = threading.Thread(target=lambda: events.extend(_ask(model)))
        client.start()
        model.wait_for_requests(1, DEADLINE_S)
        model.enqueue_assistant_message("now")
        client.join(DEADLINE_S)
        assert events[2]["delta"] == "now"


def test_an_empty_queue_may_ask_a_function() -> None:
    with MockModel(on_empty=lambda request: f"you said {request.last_user_text}") as model:
        model.enqueue_assistant_message("queued first")
        assert [_ask(model)[2]["delta"] for _ in range(2)] == ["queued first", "you said hi"]


def test_a_function_may_return_a_reply() -> None:
    with MockModel(on_empty=lambda _: Reply(status=418, streamed=False, frames=(b"tea",))) as model:
        connection = _connect(model)
        response = _post(connection)
        assert (response.status, response.read()) == (418, b"tea")
        connection.close()


def test_what_a_function_raises_reaches_client_and_test() -> None:
    def fail(request: RecordedRequest) -> str:
        raise LookupError("no idea")

    def use() -> None:
        with MockModel(on_empty=fail) as model:
            connection = _connect(model)
            response = _post(connection)
            assert response.status == 500
            assert b"LookupError: no idea" in response.read()
            connection.close()

    with pytest.raises(LookupError, match="no idea"):
        use()


def test_the_example_of_the_docstring() -> None:
    example = inspect.cleandoc(MockModel.__doc__ or "").partition("    with MockModel")
    code = textwrap.dedent("    with MockModel" + example[2].partition("\n\n")[0])

    def run_my_agent(base_url: str, prompt: str) -> None:
        host = base_url.removeprefix("http://").removesuffix("/v1")
        connection = http.client.HTTPConnection(host, timeout=DEADLINE_S)
        call = _events(_post(connection, {"input": prompt}).read())[2]["item"]
        output = {"type": "function_call_output", "call_id": call["call_id"], "output": "README.md\nsrc"}
        _post(connection, {"input": [{"role": "user", "content": prompt}, call, output]}).read()
        connection.close()

    names: dict[str, object] = {"MockModel": MockModel, "run_my_agent": run_my_agent}
    exec(code, names)
    assert names["second"], "the example was run to its end"


# --- what was asked --------------------------------------------------------------------------------------------------


def test_requests_are_recorded_in_order(model: MockModel) -> None:
    for number in range(3):
        model.enqueue_assistant_message("ok")
        _ask(model, {"input": f"question {number}"})
    assert [request.last_user_text for request in model.requests()] == [f"question {n}" for n in range(3)]
    with pytest.raises(AssertionError, match="asked 3 times"):
        model.single_request()


def test_the_single_request(model: MockModel) -> None:
    with pytest.raises(AssertionError, match="asked 0 times"):
        model.single_request()
    model.enqueue_assistant_message("ok")
    _ask(model)
    request = model.single_request()
    assert (request.method, request.path, request.json) == ("POST", "/v1/responses", {"input": "hi"})
    assert request.header("AUTHORIZATION") == "Bearer s3cret"
    assert "s3cret" not in repr(request)


def test_waiting_in_vain_says_how_many_came(model: MockModel) -> None:
    with pytest.raises(TimeoutError, match="asked 0 times"):
        model.wait_for_requests(1, timeout=0)


@pytest.mark.anyio
async def test_waiting_leaves_the_loop_free(model: MockModel) -> None:
    model.enqueue_assistant_message("ok")
    host, _, port = model.base_url.removeprefix("http://").removesuffix("/v1").partition(":")
    waiting = asyncio.ensure_future(model.arrived(1, DEADLINE_S))
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"POST /v1/responses HTTP/1.0\r\nContent-Length: 2\r\n\r\n{}")
    head, _, body = (await asyncio.wait_for(reader.read(), DEADLINE_S)).partition(b"\r\n\r\n")
    assert b"chunked" not in head  # HTTP/1.0 knows only the end of the connection
    assert _types(_events(body))[-1] == "completed"
    assert len(await waiting) == 1
    writer.close()


def test_other_paths_are_no_requests_for_a_response(model: MockModel) -> None:
    model.enqueue_assistant_message("ok")
    connection = _connect(model)
    connection.request("GET", "/v1/models")
    models = connection.getresponse()
    assert (models.status, json.loads(models.read())["data"]) == (200, [])
    connection.request("POST", "/v1/embeddings", "{}")
    other = connection.getresponse()
    assert other.status == 404
    assert b"/responses" in other.read()
    assert (model.requests(), model.pending) == ([], 1)
    connection.close()


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Transfer-Encoding": "chunked"}, 411),
        ({"Content-Length": "99999999999"}, 413),
        ({"Content-Length": "0", "Content-Encoding": "zstd"}, 415),
    ],
)
def test_bodies_that_it_cannot_read_are_refused(model: MockModel, headers: dict[str, str], status: int) -> None:
    connection = _connect(model)
    connection.putrequest("POST", "/v1/responses")
    for name, value in headers.items():
        connection.putheader(name, value)
    connection.endheaders()
    assert connection.getresponse().status == status
    assert model.requests() == []
    connection.close()


def test_many_clients_at_once(model: MockModel) -> None:
    texts: list[str] = []
    for number in range(60):
        model.enqueue_assistant_message(str(number))
    clients = [threading.Thread(target=lambda: texts.append(_ask(model)[2]["delta"])) for _ in range(60)]
    for client in clients:
        client.start()
    for client in clients:
        client.join(DEADLINE_S)
    assert sorted(texts, key=int) == [str(number) for number in range(60)]
