"""Ctrl-C and SIGTERM for commands that run on an event loop and write to people: handled at once,
whatever is going on.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

STOP: Final = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def stop_signals(requested: Callable[[int], None]) -> Iterator[None]:
    """Call `requested` with the number of every signal that asks us to stop.

    It is called by a Python signal handler and not by the loop, which does not run while a slow reader of our output
    blocks us. The loop has a handler as well, only to be woken: without it, a signal that arrives just before the loop
    begins to wait would not be noticed until something else happens.
    """
    loop = asyncio.get_running_loop()
    before = [(number, signal.getsignal(number)) for number in STOP]

    def handle(number: int, _: FrameType | None) -> None:
        requested(number)

    for number in STOP:
        loop.add_signal_handler(number, _wake_loop)
        signal.signal(number, handle)
    try:
        yield
    finally:
        for number, handler in before:
            loop.remove_signal_handler(number)
            signal.signal(number, handler)


def _wake_loop() -> None:
    pass
