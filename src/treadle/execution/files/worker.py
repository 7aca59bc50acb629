"""`Run`: how blocking work gets off the event loop. Whoever builds the objects here decides which threads do it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

T = TypeVar("T")


class Run(Protocol):
    """Runs a blocking function in a worker thread. `asyncio.to_thread` is one."""

    def __call__(self, function: Callable[[], T], /) -> Awaitable[T]: ...
