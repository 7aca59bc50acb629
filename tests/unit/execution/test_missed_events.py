"""The events behind the answer to `process/read`, after a reconnect."""

from __future__ import annotations

from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, UnsetType

from treadle.execution import Closed, Exited, LogEvent, Output, OutputStream, missed_events
from treadle.protocol.exec import ReadResult, WireChunk

Kind = Literal["output", "exited"]


def _result(
    chunks: list[int],
    next_seq: int,
    *,
    exited: bool = False,
    closed: bool = False,
    exit_code: int | None = None,
    exited_seq: int | UnsetType = UNSET,
    sandbox_denied: bool = False,
) -> ReadResult:
    return ReadResult(
        chunks=tuple(WireChunk(seq=seq, stream="stdout", chunk=b"%d" % seq) for seq in chunks),
        next_seq=next_seq,
        exited=exited,
        exit_code=exit_code,
        closed=closed,
        sandbox_denied=sandbox_denied,
        exited_seq=exited_seq,
    )


def _output(seq: int) -> Output:
    return Output(seq, OutputStream.STDOUT, b"%d" % seq)


@pytest.mark.parametrize(
    ("result", "after", "exit_known", "events"),
    [
        pytest.param(_result([], 1), 0, False, [], id="nothing yet"),
        pytest.param(_result([3, 4], 5), 2, False, [_output(3), _output(4)], id="output only"),
        pytest.param(
            _result([1], 3, exited=True, exit_code=7), 0, False, [_output(1), Exited(2, 7)], id="exit after output"
        ),
        pytest.param(
            _result([2], 3, exited=True, exit_code=7), 0, False, [Exited(1, 7), _output(2)], id="exit before output"
        ),
        pytest.param(
            _result([1, 2], 5, exited=True, exit_code=0, closed=True),
            0,
            False,
            [_output(1), _output(2), Exited(3, 0), Closed(4)],
            id="everything",
        ),
        pytest.param(
            _result([], 5, exited=True, exit_code=0, closed=True),
            2,
            False,
            [Exited(3, 0), Closed(4)],
            id="two ends",
        ),
        pytest.param(_result([], 5, exited=True, exit_code=0, closed=True), 3, True, [Closed(4)], id="close only"),
        pytest.param(_result([], 5, exited=True, exit_code=0, closed=True), 4, True, [Closed(4)], id="close again"),
        pytest.param(
            _result([4], 6, exited=True, exit_code=0, closed=True), 3, True, [_output(4), Closed(5)], id="output, close"
        ),
        pytest.param(
            _result([], 3, exited=True, exit_code=None, sandbox_denied=True),
            1,
            False,
            [Exited(2, -1, True)],
            id="exit without a code, denied",
        ),
        pytest.param(
            _result([5, 6], 8, exited=True, exit_code=0, exited_seq=7),
            1,
            False,
            [_output(5), _output(6), Exited(7, 0)],
            id="the extension tells the exit though output is gone",
        ),
        pytest.param(
            _result([5, 6], 8, exited=True, exit_code=0), 1, False, [_output(5), _output(6)], id="exit or loss: unknown"
        ),
    ],
)
def test_events_of_an_answer(result: ReadResult, after: int, exit_known: bool, events: list[LogEvent]) -> None:
    assert missed_events(result, after, exit_known=exit_known) == events


@given(st.integers(0, 8), st.integers(0, 8), st.booleans(), st.booleans())
def test_history_is_rebuilt_from_any_point(outputs: int, exit_at: int, closed: bool, extension: bool) -> None:
    exit_at = min(exit_at, outputs)
    history: list[LogEvent] = [Output(0, OutputStream.STDOUT, b"")] * outputs
    history.insert(exit_at, Exited(0, 3))
    history = [
        _output(seq) if isinstance(event, Output) else Exited(seq, 3) for seq, event in enumerate(history, start=1)
    ]
    exit_seq = exit_at + 1
    if closed:
        history.append(Closed(len(history) + 1))
    for after in range(len(history) + 1):
        left = history[after:]
        result = _result(
            [event.seq for event in left if isinstance(event, Output)],
            len(history) + 1,
            exited=True,
            exit_code=3,
            closed=closed,
            exited_seq=exit_seq if extension else UNSET,
        )
        events = missed_events(result, after, exit_known=after >= exit_seq)
        assert [event for event in events if event.seq > after] == left


def test_absurd_counter_costs_nothing() -> None:
    result = _result([], 2**62, exited=True, exit_code=0)
    assert missed_events(result, 0, exit_known=False) == []
