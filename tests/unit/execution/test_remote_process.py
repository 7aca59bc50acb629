"""`RemoteProcess`: what it makes of events that a server should not send, and when it acknowledges."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

import pytest
from msgspec import Struct

from treadle.execution import (
    ACK_EVERY,
    MAX_HELD_EVENTS,
    Closed,
    ExecParams,
    Exited,
    LogEvent,
    Output,
    OutputStream,
    RemoteProcess,
)
from treadle.protocol.exec import AckParams

if TYPE_CHECKING:
    from treadle.execution import RemoteBackend

pytestmark = pytest.mark.anyio


class Backend:
    """What a process needs of its backend, written down."""

    def __init__(self) -> None:
        self.acks: list[int] = []
        self.closed = 0

    def _notify(self, method: str, params: Struct) -> None:
        assert method == "process/ack"
        assert isinstance(params, AckParams)
        self.acks.append(params.seq)

    def _process_closed(self, process: RemoteProcess) -> None:
        self.closed += 1


def _process() -> tuple[RemoteProcess, Backend]:
    backend = Backend()
    params = ExecParams(process_id="p", argv=["true"], cwd="/")
    return RemoteProcess(cast("RemoteBackend", backend), params), backend


def _output(seq: int, size: int = 1) -> Output:
    return Output(seq, OutputStream.STDOUT, b"x" * size)


async def _events(process: RemoteProcess) -> list[object]:
    return [event async for event in process.events()]


async def test_events_in_any_order_are_published_in_order() -> None:
    process, backend = _process()
    events: list[LogEvent] = [_output(1), _output(2), Exited(3, 0), Closed(4)]
    for event in (events[3], events[1], events[1], events[0], events[2], events[0]):
        process._offer(event)
    assert await _events(process) == events
    assert backend.closed == 1


@pytest.mark.parametrize("overtakes", [False, True])
async def test_its_start_is_logged_once_and_before_its_end(caplog: pytest.LogCaptureFixture, overtakes: bool) -> None:
    caplog.set_level("INFO")
    process, _ = _process()
    steps: list[Callable[[], None]] = [lambda: process._log_start(["true"]), lambda: process._offer(Exited(1, 0))]
    for step in reversed(steps) if overtakes else steps:
        step()
    assert [record.message for record in caplog.records] == ["process started", "process exited"]


async def test_nothing_is_published_after_the_close() -> None:
    process, backend = _process()
    process._offer(Exited(3, 9))
    process._offer(_output(2))
    process._offer(Closed(1))
    process._offer(_output(4))
    assert await _events(process) == [Closed(1)]
    assert backend.closed == 1


async def test_missing_event_fails_this_process() -> None:
    process, backend = _process()
    for seq in range(2, MAX_HELD_EVENTS + 3):
        process._offer(_output(seq))
    assert process.failure is not None
    assert "event 1 is missing" in process.failure
    assert backend.closed == 1


async def test_what_came_before_the_answer_to_the_start_is_acknowledged() -> None:
    process, backend = _process()
    process._offer(_output(1, ACK_EVERY))
    assert backend.acks == []
    process._started(acks=True)
    assert backend.acks == [1]


async def test_without_acks_nothing_is_acknowledged() -> None:
    process, backend = _process()
    process._started(acks=False)
    process._offer(_output(1, ACK_EVERY))
    assert backend.acks == []


async def test_only_what_the_slowest_subscriber_has_read_is_acknowledged() -> None:
    process, backend = _process()
    process._started(acks=True)
    stream = process.events()
    for seq in (1, 2):
        process._offer(_output(seq, ACK_EVERY))
    assert backend.acks == []
    await stream.__anext__()
    assert backend.acks == [1]
    stream.close()
    assert backend.acks == [1, 2]
