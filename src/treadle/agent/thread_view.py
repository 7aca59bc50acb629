"""`ThreadView`: a thread as a client that joins it sees it."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from treadle.agent.client_requests import ClientRequest
from treadle.agent.event import Event
from treadle.agent.ids import now_ms
from treadle.agent.state import Settings
from treadle.agent.thread import Thread
from treadle.agent.thread_pages import make_cursor, turns_with_items
from treadle.agent.turn_state import usage_notification
from treadle.protocol.app.notifications import WarningNotification
from treadle.protocol.app.thread_notifications import (
    ThreadGoalClearedNotification,
    ThreadGoalUpdatedNotification,
    ThreadStatusChangedNotification,
)
from treadle.protocol.app.threads import Thread as WireThread
from treadle.protocol.app.turns import Turn as WireTurn

# A client that resumes gets the newest turns; the others are a page away.
RECENT_TURNS: Final = 100


class ThreadView(Struct, frozen=True, kw_only=True):
    """It shows the thread up to the event `seq`; `news` and `requests` are for the client alone, after the answer."""

    thread: WireThread
    seq: int
    settings: Settings
    news: tuple[Event, ...]
    requests: tuple[ClientRequest, ...]
    turns_cursor: str | None
    items_cursor: str | None


async def view_of(thread: Thread, *, with_turns: bool, is_fresh: bool) -> ThreadView:
    async with thread.lock:
        await thread.catch_up()
        while thread.journal.busy:  # a turn that has just ended is in the store then
            await thread.journal.flush()
        running = thread.turn
        turns = await recent_turns(thread) if with_turns else ()
        if is_fresh:
            params = ThreadStatusChangedNotification(thread_id=thread.id, status=thread.status)
            thread.journal.announce("thread/status/changed", params)
        if running is not None and with_turns:  # it may have ended since
            turns = (*turns, running.snapshot())
        turns_cursor, items_cursor = cursors_of(thread)
        wire, seq, news = (
            thread.wire(turns),
            thread.journal.seq,
            (*usage_news(thread), _goal_news(thread), *warning_news(thread)),
        )
        place = None if thread.journal.failure is not None else thread.journal.place()
    if place is not None:  # else nothing more will be kept, and this is all there is
        await thread.journal.reach(place)
    return ThreadView(
        thread=wire,
        seq=seq,
        settings=thread.settings,
        news=news,
        requests=tuple(thread.requests.sent()),
        turns_cursor=turns_cursor,
        items_cursor=items_cursor,
    )


async def recent_turns(thread: Thread) -> tuple[WireTurn, ...]:
    """The newest turns, oldest first, without the running one."""
    running = thread.turn
    records = await thread.store.turns(thread.id, limit=RECENT_TURNS, descending=True)
    records = [record for record in records[::-1] if running is None or record.id != running.id]
    return tuple(await turns_with_items(thread.store, thread.id, records, running=thread.running_items))


def cursors_of(thread: Thread) -> tuple[str | None, str | None]:
    """From which turns and items are paged backwards."""
    counters = thread.counters
    if not counters.turn:
        return None, None
    return make_cursor(thread.id, "turns", counters.turn + 1), make_cursor(thread.id, "items", counters.item + 1)


def usage_news(thread: Thread) -> tuple[Event, ...]:
    usage = thread.state.usage
    if usage.turn_id is None:
        return ()
    return (Event("thread/tokenUsage/updated", usage_notification(thread, usage.turn_id), None, now_ms()),)


def warning_news(thread: Thread) -> tuple[Event, ...]:
    if thread.warning is None:
        return ()
    return (Event("warning", WarningNotification(message=thread.warning, thread_id=thread.id), None, now_ms()),)


def _goal_news(thread: Thread) -> Event:
    goal = thread.state.goal
    if goal is None:
        return Event("thread/goal/cleared", ThreadGoalClearedNotification(thread_id=thread.id), None, now_ms())
    params = ThreadGoalUpdatedNotification(thread_id=thread.id, goal=goal)
    return Event("thread/goal/updated", params, None, now_ms())
