"""Reading a terminal, which gives 4 KiB at a time."""

from __future__ import annotations

import os
import tty
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from treadle.execution import READ_SIZE, ExecParams, LocalProcess, Output, OutputStream
from treadle.execution.local_process import _with_more

# More than one read of a terminal gives, less than it holds.
WRITTEN = bytes(range(256)) * 40


class Terminal(NamedTuple):
    ours: int
    theirs: int


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    ours, theirs = os.openpty()
    tty.setraw(theirs)
    os.set_blocking(ours, False)
    os.set_blocking(theirs, False)  # a write that does not fit fails the test instead of blocking it
    yield Terminal(ours, theirs)
    for fd in (ours, theirs):
        os.close(fd)


def test_what_waits_in_a_terminal_is_one_chunk(terminal: Terminal) -> None:
    assert os.write(terminal.theirs, WRITTEN) == len(WRITTEN)
    first = os.read(terminal.ours, 1000)
    assert _with_more(terminal.ours, first, 1 << 16) == WRITTEN


def test_no_more_than_asked_for(terminal: Terminal) -> None:
    os.write(terminal.theirs, WRITTEN)
    first = os.read(terminal.ours, 1000)
    assert _with_more(terminal.ours, first, 5000) == WRITTEN[:5000]
    assert os.read(terminal.ours, 5) == WRITTEN[5000:5005]


def test_the_end_is_left_for_the_next_read() -> None:
    ours, theirs = os.openpty()
    try:
        os.write(theirs, b"bye")
        os.close(theirs)
        assert _with_more(ours, os.read(ours, 2), 1 << 16) == b"bye"
        with pytest.raises(OSError, match="Input/output"):
            os.read(ours, 1)
    finally:
        os.close(ours)


@pytest.mark.anyio
async def test_it_is_one_event_of_the_process(terminal: Terminal) -> None:
    params = ExecParams(process_id="p", argv=["true"], cwd="/", tty=True)
    process = LocalProcess(params, lambda _: None, 1 << 20)
    process._terminal = terminal.ours
    process._streams = {terminal.ours: OutputStream.PTY}
    os.write(terminal.theirs, WRITTEN)
    process._take(terminal.ours, READ_SIZE)
    (only,) = process.log.retained()
    assert only.event == Output(1, OutputStream.PTY, WRITTEN)
