"""`SharedRouter`: a router that any number of threads can use at the same time."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any, Final

from treadle.client.router import Router

# Not `peek`, `changes` and `readers`, which do a single lookup, nor `notification`, which does none.
GUARDED: Final = (
    "abandon",
    "answered_late",
    "begin_turn",
    "close",
    "abandoned",
    "fail",
    "forget",
    "forget_login",
    "login",
    "next_backlog",
    "open",
    "receive",
    "request",
    "seen",
    "start_failed",
    "stream",
    "deliver",
    "turn_refused",
    "turn_started",
    "waiter",
)


class SharedRouter(Router):
    """One call at a time. The lock is released immediately if a signal arrives while it is held."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.RLock()


def _one_at_a_time(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(self: SharedRouter, *arguments: Any, **named: Any) -> Any:
        with self._lock:
            return method(self, *arguments, **named)

    return call


for _name in GUARDED:
    setattr(SharedRouter, _name, _one_at_a_time(getattr(Router, _name)))
