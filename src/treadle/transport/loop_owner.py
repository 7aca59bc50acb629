"""`LoopOwner`: remembers the event loop that something was opened on, which is the only one it can be used on.

Waiting for it on any other loop would hang forever, so that is reported as an error.
"""

from __future__ import annotations

import asyncio
import os


class LoopOwner:
    """The running loop. `what` names the thing in error messages, as in "this client"."""

    __slots__ = ("_loop", "_pid", "_what")

    def __init__(self, what: str) -> None:
        self._what = what
        self._loop = asyncio.get_running_loop()
        self._pid = os.getpid()

    @property
    def forked(self) -> bool:
        """Whether this is a forked process, which has only a copy of it."""
        return os.getpid() != self._pid

    @property
    def gone(self) -> bool:
        """Whether the loop is closed, so that nothing will ever happen on it."""
        return self._loop.is_closed()

    def problem(self) -> str | None:
        """Why it cannot be used from here; None if it can."""
        running = _running_loop()
        if running is self._loop:
            return None
        if self.forked:
            return forked(self._what, self._pid)
        if running is None:
            return no_loop(self._what)
        return (
            f"{self._what} was opened on another event loop and works on that one only: each asyncio.run() has one of "
            "its own, so open it and use it inside one of them"
        )


def needs_loop(what: str) -> str | None:
    """Why `what` cannot be opened here; None if it can."""
    return None if _running_loop() is not None else no_loop(what)


def no_loop(what: str) -> str:
    return (
        f"{what} needs asyncio, and no asyncio event loop runs here (trio has one of its own): with anyio choose the "
        "asyncio backend, or use the blocking `Codex` on a thread"
    )


def forked(what: str, pid: int) -> str:
    return (
        f"{what} was opened in process {pid} and cannot be used in process {os.getpid()}, which was forked from it: "
        "make a new one here"
    )


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
