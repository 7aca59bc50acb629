"""Ctrl-C and SIGTERM for commands that run on an event loop and write to people: heard at once, whatever goes on."""

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
    """Call `requested` with the number of every signal that wants us to stop.

    It is called between two steps of the program, and not by the loop, which does not run while a reader of our output
    keeps us waiting. The loop is told as well, only to be woken: a signal that comes just before it begins to wait
    would else be heard when something else happens.
    """
    loop = asyncio.get_running_loop()
    before = [(number, signal.getsignal(number)) for number in STOP]

    def handle(number: int, _: FrameType | None) -> None:
        requested(number)

    for number in STOP:
        loop.add_signal_handler(number, _woken)
        signal.signal(number, handle)
    try:
        yield
    finally:
        for number, handler in before:
            loop.remove_signal_handler(number)
            signal.signal(number, handler)


def _woken() -> None:
    pass
