from __future__ import annotations

import asyncio
import os
import signal

import pytest

from treadle.cli import STOP, stop_signals

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("number", STOP)
async def test_a_signal_is_told_and_the_handlers_before_come_back(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    heard: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    with stop_signals(heard.set_result):
        os.kill(os.getpid(), number)
        async with asyncio.timeout(30):
            assert await heard == number
    assert signal.getsignal(number) == before


async def test_the_loop_is_woken_by_a_signal_that_comes_just_before_it_waits() -> None:
    with stop_signals(lambda _: None):
        woken_by = signal.set_wakeup_fd(-1)
        signal.set_wakeup_fd(woken_by)
    assert woken_by != -1
