"""The parts of the app-server's benchmark whose mistakes would look like results."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator

import pytest
from bench.app_server import null, tables
from bench.app_server.client import Client
from bench.app_server.growth import MILLISECONDS, SAME, Limit, Pair, Timing
from bench.app_server.measures import MEASURES
from bench.app_server.mock import DELTA, answer, request_size
from bench.report import Samples, lines
from bench.servers import BenchError

MEASURE = next(measure for measure in MEASURES if measure.name == "turn")


class Wire:
    """A client and the server's ends of its two pipes."""

    def __init__(self) -> None:
        self.from_client, self._to_server = os.pipe()
        self._from_server, self.to_client = os.pipe()
        self.client = Client(self._to_server, self._from_server)
        self._open = {self.from_client, self._to_server, self._from_server, self.to_client}

    def say(self, *messages: object) -> None:
        """Without spaces, as both servers write."""
        lines = (json.dumps(message, separators=(",", ":")).encode() + b"\n" for message in messages)
        os.write(self.to_client, b"".join(lines))

    def asked(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in os.read(self.from_client, 1 << 16).splitlines()]

    def end_server(self) -> None:
        self._close(self.to_client)

    def end_client(self) -> None:
        self._close(self._to_server)

    def close(self) -> None:
        for end in tuple(self._open):
            self._close(end)

    def _close(self, end: int) -> None:
        self._open.remove(end)
        os.close(end)


@pytest.fixture
def wire() -> Iterator[Wire]:
    wire = Wire()
    yield wire
    wire.close()


def completed(thread: str, status: str = "completed") -> dict[str, object]:
    turn = {"id": "t", "items": [], "status": status, "error": {"message": "no model"}}
    return {"method": "turn/completed", "params": {"threadId": thread, "turn": turn}}


def delta(text: str) -> dict[str, object]:
    return {"method": "item/agentMessage/delta", "params": {"threadId": "a", "delta": text}}


def test_results_come_in_the_order_of_the_requests(wire: Wire) -> None:
    wire.say({"id": 1, "result": {"second": 2}}, {"method": "warning", "params": {}}, {"id": 0, "result": {"first": 1}})
    results = wire.client.calls("thread/read", [{"threadId": "a"}, {"threadId": "b"}])
    assert [json.loads(bytes(result)) for result in results] == [{"first": 1}, {"second": 2}]
    assert [request["id"] for request in wire.asked()] == [0, 1]


def test_a_refused_request_is_an_error(wire: Wire) -> None:
    wire.say({"error": {"code": -32600, "message": "thread not found"}, "id": 0})
    with pytest.raises(BenchError, match="thread not found"):
        wire.client.call("thread/read", {})


@pytest.mark.parametrize("error_first", [True, False])
def test_a_refused_turn_is_an_error(wire: Wire, error_first: bool) -> None:
    error = {"error": {"code": -32001, "message": "overloaded"}}
    wire.say({**error, "id": 0} if error_first else {"id": 0, **error})
    with pytest.raises(BenchError, match="overloaded"):
        wire.client.turn("a")


def test_turns_end_when_the_last_one_has_ended(wire: Wire) -> None:
    wire.say(completed("b"), completed("a"))
    assert wire.client.turns(["a", "b"]) > 0
    assert {request["method"] for request in wire.asked()} == {"turn/start"}


def test_a_turn_that_fails_is_an_error(wire: Wire) -> None:
    wire.say(completed("a", "failed"))
    with pytest.raises(BenchError, match="no model"):
        wire.client.turn("a")


def test_joined_deltas_are_counted_as_they_came(wire: Wire) -> None:
    wire.say(delta("xx"), delta("x"), completed("a"))
    _, notifications = wire.client.long_turn("a", 3, "x")
    assert notifications == 2


@pytest.mark.parametrize("texts", [("x", "x"), ("x", "y", "x"), ("x", "x", "x", "x")])
def test_text_that_is_not_the_models_is_an_error(wire: Wire, texts: tuple[str, ...]) -> None:
    wire.say(*(delta(text) for text in texts), completed("a"))
    with pytest.raises(BenchError, match="not the text"):
        wire.client.long_turn("a", 3, "x")


def test_a_server_that_ends_is_an_error(wire: Wire) -> None:
    wire.end_server()
    with pytest.raises(BenchError, match="has ended"):
        wire.client.call("thread/read", {})


def test_a_batch_that_could_fill_the_pipe_is_not_sent(wire: Wire) -> None:
    with pytest.raises(BenchError, match="too many at once"):
        wire.client.calls("thread/read", [{"threadId": "x" * 1_000}] * 100)


def test_the_null_server_is_driven_like_a_real_one(
    wire: Wire, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    home = tmp_path_factory.mktemp("home")
    (home / "config.toml").write_text('base_url = "http://127.0.0.1:1/d3"\n')
    monkeypatch.setenv("CODEX_HOME", str(home))
    server = threading.Thread(target=null.serve, args=(wire.from_client, wire.to_client))
    server.start()
    try:
        wire.client.initialize()
        threads = wire.client.start_threads(3, at_once=2)
        assert len(set(threads)) == 3
        assert wire.client.turns(threads) > 0
        assert wire.client.long_turn(threads[0], 3, DELTA)[1] == 3
    finally:
        wire.end_client()
        server.join()


def test_a_request_is_complete_with_its_body() -> None:
    head = b"POST /d1/responses HTTP/1.1\r\nContent-Length: 4\r\nhost: x\r\n\r\n"
    assert request_size(head[:-1]) is None
    assert request_size(head + b"bo") == len(head) + 4
    assert request_size(b"GET / HTTP/1.1\r\n\r\n") == len(b"GET / HTTP/1.1\r\n\r\n")


def test_a_model_that_calls_a_tool_does_it_once_in_each_turn() -> None:
    said, called = b'{"role":"user"}', b'{"type":"function_call_output"}'
    for history in (said, said + called + said):
        assert b'"namespace":"mcp__one"' in answer(b"/c1/responses", history)
        assert DELTA.encode() in answer(b"/c1/responses", history + called)
    assert b"mcp__one" not in answer(b"/d1/responses", said)


def test_an_answer_of_the_model_has_its_deltas_and_ids_of_its_own() -> None:
    first, second = answer(b"/d3/responses"), answer(b"/d3/responses")
    head, _, body = first.partition(b"\r\n\r\n")
    assert f"content-length: {len(body)}".encode() in head
    assert body.count(b"event: response.output_text.delta") == 3
    assert first != second
    assert answer(b"/d3/models").startswith(b"HTTP/1.1 404")


def test_a_ratio_belongs_to_a_round() -> None:
    samples = Samples()
    for server, values in (("ours", (1.0, 4.0, 3.0)), ("real", (60.0, 120.0, 30.0)), ("null", (0.1, 0.1, 0.1))):
        for value in values:
            samples.add(MEASURE, server, {"turn": value})
    (line,) = lines([MEASURE], samples)
    assert line.ratios == (1 / 60, 4 / 120, 3 / 30)
    assert (line.verdict, line.rounds_reached) == ("reached", 2)
    assert "0.1 (0.1 – 0.1)" in tables.client_table(samples)


@pytest.mark.parametrize(
    ("large", "limit", "verdict"),
    [
        (9.0, MILLISECONDS, "reached"),
        (11.0, MILLISECONDS, "missed"),
        (1.4, SAME, "reached"),
        (1.6, SAME, "missed"),
        (99.0, None, ""),
    ],
)
def test_what_may_not_grow_is_judged_by_its_limit(large: float, limit: Limit | None, verdict: str) -> None:
    pair = Pair("ours", "a request", Timing(1.0, 2.0), Timing(large, 100.0), limit)
    assert tables.verdict(pair) == verdict
    assert "a request" in tables.growth_table([pair], "few", "many")


def test_a_timing_has_the_median_and_the_slowest_hundredth() -> None:
    timing = Timing.of([number / 1e3 for number in range(1, 201)])
    assert timing.p50 == pytest.approx(100.5)
    assert timing.p99 == pytest.approx(199.0)
