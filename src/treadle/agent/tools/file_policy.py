"""`file_policy`: what tools may do with files that this process opens for a thread."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from treadle.agent.authority import file_rules, thread_sandbox

if TYPE_CHECKING:
    from treadle.agent.thread import Thread
    from treadle.execution.sandbox.policy import Policy


async def file_policy(thread: Thread) -> Policy | None:
    """By the sandbox of the thread, also on machines that cannot enforce it. Raises `ExecError`."""
    return await asyncio.to_thread(file_rules, await thread_sandbox(thread))
