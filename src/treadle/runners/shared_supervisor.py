"""One helper process for all runs of an event loop: starting one per run would cost more than the rest of the run.

It is shut down with its loop: when a loop ends, it closes the async generators that were started on it (`asyncio.run`
and everything like it does that), and closing ours ends the helper.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncGenerator

from treadle.execution.supervisor import Supervisor

_keepers: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, tuple[Supervisor, AsyncGenerator[Supervisor, None]]] = (
    weakref.WeakKeyDictionary()
)


async def shared_supervisor() -> Supervisor:
    """The helper of the running loop, started when it is first asked for."""
    loop = asyncio.get_running_loop()
    if loop not in _keepers:
        supervisor = Supervisor()
        keeper = _kept(supervisor)
        _keepers[loop] = (supervisor, keeper)
        await keeper.__anext__()
    return _keepers[loop][0]


async def _kept(supervisor: Supervisor) -> AsyncGenerator[Supervisor, None]:
    try:
        yield supervisor
    finally:
        _keepers.pop(asyncio.get_running_loop(), None)
        await supervisor.close()
