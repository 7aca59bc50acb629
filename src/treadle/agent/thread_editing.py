"""Changing what has happened in a thread: cutting turns off, adding to what the model has seen.

Under the thread's lock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec
from msgspec import Raw, structs

from treadle.agent.state import read_usage
from treadle.agent.thread import Thread
from treadle.errors import INVALID_REQUEST, RpcError
from treadle.protocol.app.thread_notifications import ThreadRevertedNotification
from treadle.store.contract import CutTurns


async def cut_turns(thread: Thread, first: int, refusal: str) -> None:
    """Turns from `first` on go. Refused while one runs."""
    if thread.turn is not None:
        raise RpcError(INVALID_REQUEST, refusal)
    await thread.acquire()
    try:
        before = await thread.store.turns(thread.id, after=first, limit=1, descending=True)
        usage = read_usage(before[0].usage if before else None, thread.store.location)
        thread.state = structs.replace(thread.state, usage=usage)
        thread.journal.write(CutTurns(thread.id, first), thread.save())
        await thread.journal.flush()
        loaded = await thread.store.load(thread.id)
        assert loaded is not None
        thread.counters = loaded.counters
        thread.turns_cut(first)
        thread.history = None
    finally:
        thread.release()


async def publish_reverted(thread: Thread) -> asyncio.Future[None]:
    """The place before it, which is that of the answer."""
    await thread.acquire()
    try:
        place = thread.journal.place()
        thread.journal.emit("thread/reverted", ThreadRevertedNotification(thread_id=thread.id))
    finally:
        thread.release()
    return place


def check_injected(items: Sequence[object]) -> None:
    for item in items:
        if not isinstance(item, dict) or not isinstance(item.get("type"), str):
            raise RpcError(INVALID_REQUEST, "items must be objects of the Responses API, each with a `type`")


async def inject(thread: Thread, items: Sequence[object]) -> None:
    """Add items to what the model has seen. With the right to write."""
    await thread.load_history()
    raws = [Raw(msgspec.json.encode(item)) for item in items]
    number = thread.turn.number if thread.turn is not None else thread.counters.turn
    thread.journal.write(*thread.remember(raws, number))
    await thread.journal.flush()
