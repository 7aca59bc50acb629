"""When a request may leave."""

from __future__ import annotations

from typing import Protocol


class Departure(Protocol):
    """When a request may leave. `wait` is awaited before it is written, `leave` is called after."""

    async def wait(self) -> None: ...
    def leave(self) -> None: ...
