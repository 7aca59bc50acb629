"""The SDK's benchmark in small, on our side alone; and that what goes wrong does not look like a result."""

from __future__ import annotations

import json

import pytest
from bench.app_server.mock import running_mock
from bench.sdk import interpreters, wire
from bench.sdk.__main__ import lines, take
from bench.sdk.flood import Flood, floods
from bench.sdk.measures import MEASURES, Scale
from bench.sdk.plays import Heard, PlayFailed, decode
from bench.servers import BenchError

TINY = Scale(rounds=1, imports=1, decode_seconds=0.001, deltas=300, turns=20, turn_deltas=5, readers=5, runs=1)


def methods(told: bytes) -> list[tuple[str, str]]:
    """The method and the turn of each line."""
    frames = [json.loads(line) for line in told.splitlines()]
    return [(frame["method"], frame["params"].get("turnId") or frame["params"]["turn"]["id"]) for frame in frames]


def heard(texts: list[str], others: list[str]) -> Heard:
    found = Heard()
    found.texts, found.others = texts, others
    return found


def test_every_measure_gives_all_its_rows_for_ours() -> None:
    with running_mock() as model_url:
        samples = take([interpreters.ours()], MEASURES, 1, TINY, model_url)
    shown = lines(MEASURES, samples)
    assert [(line.measure, line.row.key) for line in shown] == [
        (measure.name, row.key) for measure in MEASURES for row in measure.rows
    ]
    assert all(line.real is None and not line.ratios for line in shown)
    assert all(line.ours.median == 0 for line in shown if line.row.unit == "events"), "nothing is lost"
    assert all(line.ours.median > 0 for line in shown if line.measure != "import" and line.row.unit != "events")


def test_the_lines_of_several_turns_take_turns() -> None:
    first, second = wire.turn_id(3), wire.turn_id(4)
    assert methods(wire.interleaved([3, 4], 1)) == [
        (method, turn)
        for method in ("turn/started", "item/started", wire.DELTA, "item/completed", "turn/completed")
        for turn in (first, second)
    ]


def test_a_group_is_told_when_its_last_turn_was_started() -> None:
    assert list(floods(["1x2", "3x1"])) == [0, 3]
    flood = Flood(["2x1"])
    start = b'{"id":"a","method":"turn/start","params":{}}'
    answer, nothing = flood.take(start)
    assert json.loads(answer)["result"]["turn"]["id"] == wire.turn_id(0)
    assert nothing == b""
    _, told = flood.take(start)
    assert len(methods(told)) == 2 * (len(wire.BEFORE) + 1 + len(wire.AFTER))
    assert list(flood.take(b'{"method":"initialized"}')) == []


def test_a_stream_that_is_complete_passes() -> None:
    heard([wire.text(0), wire.text(1)], [*wire.BEFORE, *wire.AFTER]).check(2)


@pytest.mark.parametrize("texts", [[0], [1, 0], [0, 0], [0, 1, 1]])
def test_lost_doubled_and_swapped_deltas_are_no_result(texts: list[int]) -> None:
    with pytest.raises(PlayFailed, match="deltas came of 2"):
        heard(list(map(wire.text, texts)), [*wire.BEFORE, *wire.AFTER]).check(2)


def test_a_stream_without_its_end_is_no_result() -> None:
    with pytest.raises(PlayFailed, match="beside the deltas"):
        heard([wire.text(0)], list(wire.BEFORE)).check(1)


@pytest.mark.parametrize(("texts", "others", "lost"), [([0, 1], 0, 0), ([1], 0, 1), ([], 0, 2), ([0, 1], 1, 1)])
def test_lost_events_are_counted(texts: list[int], others: int, lost: int) -> None:
    told = [*wire.BEFORE, *wire.AFTER][others:]
    assert heard(list(map(wire.text, texts)), told).lost(2) == lost


@pytest.mark.parametrize("texts", [[1, 0], [0, 0], [0, 1, 1]])
def test_doubled_and_swapped_events_are_no_number(texts: list[int]) -> None:
    with pytest.raises(PlayFailed, match="another order"):
        heard(list(map(wire.text, texts)), [*wire.BEFORE, *wire.AFTER]).lost(2)


def test_a_line_that_is_not_understood_is_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "delta", lambda *_: b'{"method":"item/agentMessage/delta","params":{}}\n')
    with pytest.raises(PlayFailed, match="not understood"):
        decode("treadle", 0.001)


def test_a_play_that_fails_says_why() -> None:
    with pytest.raises(BenchError, match=r"(?s)treadle .*: stream could not be measured: .*TypeError"):
        interpreters.play(interpreters.ours(), "stream")
