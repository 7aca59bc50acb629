"""`SharedRouter`: the router of a client that any number of threads use at the same time."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any, Final

from treadle.client.router import Router

# Not `peek`, `changes` and `readers`, which look into one dict or set, once, nor `notification`, which into none.
GUARDED: Final = (
    "abandon",
    "begin_turn",
    "close",
    "ending",
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
    "tell",
    "turn_refused",
    "turn_started",
    "waiter",
)


class SharedRouter(Router):
    """One call at a time. The lock is the caller's again at once if a signal comes while it is held."""

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
