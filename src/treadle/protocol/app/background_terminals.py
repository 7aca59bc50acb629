"""Params and results of thread/backgroundTerminals/*: the commands that run for a thread."""

from __future__ import annotations

from treadle.protocol.app.base import Empty, Params, Unsigned32, Wire


class ThreadBackgroundTerminal(Wire, frozen=True, kw_only=True):
    item_id: str
    process_id: str
    command: str
    cwd: str
    os_pid: int | None = None
    cpu_percent: float | None = None
    rss_kb: int | None = None


class ThreadBackgroundTerminalsListParams(Params, frozen=True, kw_only=True):
    thread_id: str
    cursor: str | None = None
    limit: Unsigned32 | None = None


class ThreadBackgroundTerminalsListResponse(Wire, frozen=True, kw_only=True):
    data: tuple[ThreadBackgroundTerminal, ...]
    next_cursor: str | None = None


class ThreadBackgroundTerminalsCleanParams(Params, frozen=True, kw_only=True):
    thread_id: str


ThreadBackgroundTerminalsCleanResponse = Empty


class ThreadBackgroundTerminalsTerminateParams(Params, frozen=True, kw_only=True):
    thread_id: str
    process_id: str


class ThreadBackgroundTerminalsTerminateResponse(Wire, frozen=True, kw_only=True):
    terminated: bool
