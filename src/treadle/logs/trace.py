"""Which request the running code works for: ids that every log line carries, and that are sent to other servers.

A server sets them where a request arrives; tasks that are started for it inherit them, and add what they are about.
`trace` is the id of W3C Trace Context, so that it goes from a client through the app-server to an exec-server.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextvars import Context, ContextVar, copy_context
from typing import Final

IDS: ContextVar[Mapping[str, str]] = ContextVar("treadle_ids", default={})  # noqa: B039 (nobody changes it)
"""Never changed, but set to another mapping."""

_TRACEPARENT: Final = re.compile(r"[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")
MAX_TRACEPARENT: Final = 512


def new_trace() -> str:
    """A new id."""
    return os.urandom(16).hex()


def trace_of(traceparent: str) -> str:
    """The trace that a request belongs to by its `traceparent`; a new one when that is not valid."""
    found = _TRACEPARENT.fullmatch(traceparent) if len(traceparent) <= MAX_TRACEPARENT else None
    return new_trace() if found is None or traceparent.startswith("ff") else found[1]


def outgoing() -> str:
    """The `traceparent` for a request to another server; empty without a trace."""
    trace = IDS.get().get("trace")
    return f"00-{trace}-{os.urandom(8).hex()}-01" if trace else ""


def outside() -> Context:
    """A context without ids: for work that a request happens to start, and that goes on for everyone."""
    context = copy_context()
    context.run(IDS.set, {})
    return context
