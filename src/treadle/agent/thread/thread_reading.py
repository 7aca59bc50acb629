"""Reading a thread: its stored turns, items and events for the wire, whole or by pages, and the thread as a client that
joins it sees it (`ThreadView`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Raw, Struct, structs

from treadle.agent.event import Event, now_ms
from treadle.agent.thread import thread_refusals
from treadle.agent.thread.client_requests import ClientRequest
from treadle.agent.thread.thread import Thread
from treadle.agent.thread.thread_state import Settings
from treadle.agent.turn.turn import usage_notification
from treadle.agent.turn.turn_items import OpenItems, given_up
from treadle.errors import INVALID_REQUEST, RpcError
from treadle.protocol.app.base import Closed, decode, encode
from treadle.protocol.app.items import ExitedReviewModeThreadItem, ThreadItem
from treadle.protocol.app.notifications import (
    ThreadGoalClearedNotification,
    ThreadGoalUpdatedNotification,
    ThreadStatusChangedNotification,
    WarningNotification,
)
from treadle.protocol.app.ours import ThreadEventsListParams, ThreadEventsListResponse
from treadle.protocol.app.thread_history import (
    ItemThreadItemsListAnchor,
    ThreadItemEntry,
    ThreadItemsListParams,
    ThreadItemsListResponse,
    ThreadItemsReadParams,
    ThreadItemsReadResponse,
    ThreadTurnsListParams,
    ThreadTurnsListResponse,
)
from treadle.protocol.app.threads import Thread as WireThread
from treadle.protocol.app.turns import Turn, TurnError, TurnItemsView
from treadle.protocol.app.turns import Turn as WireTurn
from treadle.store.contract import EventPage, ItemRecord, Store, TurnRecord

if TYPE_CHECKING:
    from treadle.agent.thread.thread_handle import ThreadHandle


# --- turns and items on the wire --------------------------------------------------------------------------------------


NONE: Final[OpenItems] = {}


def wire_turn(record: TurnRecord, items: Iterable[Any] = (), view: Closed[TurnItemsView] = "full") -> Turn:
    return Turn(
        id=record.id,
        items=tuple(items),
        status=record.status,
        completed_at=record.completed_at,
        duration_ms=record.duration_ms,
        error=None if record.error is None else decode(record.error, TurnError),
        items_view=view,
        root_turn_id=record.id,
        started_at=record.started_at,
    )


async def turns_with_items(
    store: Store,
    thread_id: str,
    records: list[TurnRecord],
    view: Closed[TurnItemsView] = "full",
    *,
    running: OpenItems = NONE,
) -> list[Turn]:
    """Turns that follow each other in either direction, with what the view asks for. `running` are the items of
    commands that ran when this was called: of one that ends meanwhile the end is shown."""
    if view == "notLoaded" or not records:
        return [wire_turn(record, (), view) for record in records]
    numbers = [record.number for record in records]
    items: dict[int, list[ItemRecord]] = defaultdict(list)
    for item in await store.items(thread_id, turns=(min(numbers), max(numbers))):
        items[item.turn].append(item)
    turns = []
    for record in records:
        found, end = items[record.number], None
        if view == "summary":
            users = [item for item in found if item.type == "userMessage"][:1]
            found = users + [item for item in found if item.type == "agentMessage"][-1:]
        else:
            end = end_of_review(found, record)
        shown = [wire_item(item, record, running) for item in found]
        turns.append(wire_turn(record, shown if end is None else [*shown, Raw(end.data)], view))
    return turns


def end_of_review(items: list[ItemRecord], turn: TurnRecord) -> ItemRecord | None:
    """What is missing at the end of a review whose server was killed: without it, clients would stay in review mode.
    `items` are all of the turn. It has the number of the last of them."""
    entered = next((item for item in items if item.type == "enteredReviewMode"), None)
    if turn.status == "inProgress" or entered is None or any(item.type == "exitedReviewMode" for item in items):
        return None
    from treadle.agent.turn.code_review import NO_REPORT  # loaded with the first review

    item = ExitedReviewModeThreadItem(id=f"{entered.id}-end", review=NO_REPORT)
    return structs.replace(items[-1], id=item.id, type=item.type, data=encode(item), text=None, open=False)


def wire_item(record: ItemRecord, turn: TurnRecord, running: OpenItems) -> Raw:
    """The item as JSON: it was made by us, and goes out as it is. One that its server left behind when it was killed
    ended there, whatever the last word about it was."""
    if not record.open or turn.status == "inProgress":
        return Raw(record.data)
    live = running.get((record.turn, record.id))
    return Raw(encode(given_up(decode(record.data, ThreadItem)) if live is None else live.so_far()))


# --- cursors ----------------------------------------------------------------------------------------------------------


class _Cursor(msgspec.Struct, omit_defaults=True):
    """`after` is the number of the last entry of the page before; `with_it` that of the first entry of the page, in
    whatever direction."""

    thread: str
    kind: str
    after: int
    with_it: bool = False


_cursor = msgspec.json.Decoder(_Cursor)


def make_cursor(thread_id: str, kind: str, after: int, *, with_it: bool = False) -> str:
    return msgspec.json.encode(_Cursor(thread_id, kind, after, with_it)).decode()


def read_cursor(text: str | None, thread_id: str, kind: str, *, descending: bool = False) -> int | None:
    """The number after which a page in this direction begins."""
    if text is None:
        return None
    try:
        cursor = _cursor.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError):
        raise _invalid(text) from None
    if cursor.thread != thread_id or cursor.kind != kind:
        raise _invalid(text)
    if cursor.with_it:
        return cursor.after + 1 if descending else cursor.after - 1
    return cursor.after


def _invalid(text: str) -> RpcError:
    return RpcError(INVALID_REQUEST, f"invalid cursor: {text[:200]}")


# --- pages ------------------------------------------------------------------------------------------------------------


DEFAULT_LIMIT: Final = 25
MAX_LIMIT: Final = 500
MAX_READ: Final = 100


def _limit(asked: int | None) -> int:
    return min(max(asked or DEFAULT_LIMIT, 1), MAX_LIMIT)


async def list_turns(store: Store, params: ThreadTurnsListParams, running: OpenItems = NONE) -> ThreadTurnsListResponse:
    """Newest first unless asked otherwise. `running` are the items of commands that run now."""
    thread_id = params.thread_id
    limit = _limit(params.limit)
    descending = params.sort_direction != "asc"
    after = read_cursor(params.cursor, thread_id, "turns", descending=descending)
    records = await store.turns(thread_id, after=after, limit=limit + 1, descending=descending)
    page, more = records[:limit], len(records) > limit
    turns = await turns_with_items(store, thread_id, page, params.items_view or "summary", running=running)
    return ThreadTurnsListResponse(
        data=tuple(turns),
        next_cursor=make_cursor(thread_id, "turns", page[-1].number) if more else None,
        backwards_cursor=make_cursor(thread_id, "turns", _before(page[0].number, descending)) if page else None,
    )


def _before(number: int, descending: bool) -> int:
    """The cursor from which a page in the other direction begins with this entry."""
    return number - 1 if descending else number + 1


async def list_items(store: Store, params: ThreadItemsListParams, running: OpenItems = NONE) -> ThreadItemsListResponse:
    """Oldest first unless asked otherwise. `running` is that of `list_turns`."""
    thread_id = params.thread_id
    turns = None
    if params.turn_id is not None:
        found = await store.turn(thread_id, params.turn_id)
        if found is None:
            raise thread_refusals.turn_not_found(params.turn_id)
        turns = (found.number, found.number)
    descending = params.sort_direction == "desc"
    if isinstance(params.cursor, ItemThreadItemsListAnchor):
        anchor = await store.item(thread_id, params.cursor.item_id)
        if anchor is None:
            raise RpcError(INVALID_REQUEST, f"item not found: {params.cursor.item_id}")
        after: int | None = _before(anchor.number, not descending)
    else:
        after = read_cursor(params.cursor, thread_id, "items", descending=descending)
    limit = _limit(params.limit)
    records = await store.items(thread_id, turns=turns, after=after, limit=limit + 1, descending=descending)
    page, more = records[:limit], len(records) > limit
    known: dict[int, TurnRecord] = {}
    if page:
        first, last = min(record.turn for record in page), max(record.turn for record in page)
        known = {turn.number: turn for turn in await store.turns(thread_id, after=first - 1, limit=last - first + 1)}
    shown = list(page)
    for turn in known.values():
        end = await _missing_end(store, thread_id, turn)
        place = next((place for place, record in enumerate(shown) if end and record.number == end.number), None)
        if end is not None and place is not None:  # beside the last item of its turn, if that is on the page
            shown.insert(place + (not descending), end)
    return ThreadItemsListResponse(
        data=tuple(_entry(record, known[record.turn], running) for record in shown),
        next_cursor=make_cursor(thread_id, "items", page[-1].number) if more else None,
        backwards_cursor=make_cursor(thread_id, "items", _before(page[0].number, descending)) if page else None,
    )


async def _missing_end(store: Store, thread_id: str, turn: TurnRecord) -> ItemRecord | None:
    """The missing last item of a review which its server did not end. Only for that all items of a turn are read."""
    turns = (turn.number, turn.number)
    if turn.status != "interrupted":
        return None
    first = await store.items(thread_id, turns=turns, limit=1)
    if not first or first[0].type != "enteredReviewMode":
        return None
    return end_of_review(await store.items(thread_id, turns=turns), turn)


async def read_items(store: Store, params: ThreadItemsReadParams, running: OpenItems = NONE) -> ThreadItemsReadResponse:
    """The items of the turn, in its order. `running` is that of `list_turns`."""
    if not 1 <= len(params.item_ids) <= MAX_READ:
        raise RpcError(INVALID_REQUEST, f"itemIds must contain 1 to {MAX_READ} IDs")
    turn = await store.turn(params.thread_id, params.turn_id)
    if turn is None:
        return ThreadItemsReadResponse(data=())
    wanted = frozenset(params.item_ids)
    # Not one by one: an id is that of a model or a client, and need not be the only one of its thread.
    records = await store.items(params.thread_id, turns=(turn.number, turn.number))
    end = end_of_review(records, turn)
    records += [] if end is None else [end]
    return ThreadItemsReadResponse(
        data=tuple(_entry(record, turn, running) for record in records if record.id in wanted)
    )


def _entry(record: ItemRecord, turn: TurnRecord, running: OpenItems) -> ThreadItemEntry:
    return ThreadItemEntry(
        turn_id=turn.id,
        item=wire_item(record, turn, running),  # type: ignore[arg-type]
        started_at_ms=record.started_at_ms,
        completed_at_ms=record.completed_at_ms,
    )


# --- events -----------------------------------------------------------------------------------------------------------


async def list_events(
    store: Store, params: ThreadEventsListParams, thread: ThreadHandle | None
) -> ThreadEventsListResponse:
    """The events of a thread; of one in memory (`thread`) answered at its place among the events: when there is no
    more, what is not in the response is published after it."""
    page = await store.events(params.thread_id, params.after_seq, params.limit)
    if not page.last_seq:  # no event is left, which is not the same as that there were none
        loaded = await store.load(params.thread_id)
        last = 0 if loaded is None else loaded.counters.seq
        page = EventPage([], last + 1 if last else 0, last, store.epoch)
    if params.epoch not in (None, page.epoch):
        raise thread_refusals.other_epoch(params.epoch or "", page.epoch)
    if params.after_seq > page.last_seq:
        raise thread_refusals.cursor_ahead(params.after_seq, page.last_seq)
    reached = page.events[-1].seq if page.events else max(params.after_seq, page.first_seq - 1)
    # What was published since the page was read is not in it: the client asks again.
    last = page.last_seq if thread is None else max(page.last_seq, thread.last_seq)
    more = reached < last
    result = ThreadEventsListResponse(
        data=tuple(Raw(event.frame) for event in page.events),
        first_seq=page.first_seq,
        last_seq=last,
        has_more=more,
        epoch=page.epoch,
        open_items=() if thread is None or more else thread.open_items(),
    )
    if thread is not None and not thread.is_broken:  # else nothing more comes, and the page is all there is
        await thread.published()
    return result


# --- a client that joins ----------------------------------------------------------------------------------------------


# A client that resumes gets the newest turns; the others are a page away.
RECENT_TURNS: Final = 100


class ThreadView(Struct, frozen=True, kw_only=True):
    """A thread up to the event `seq`; `news` and `requests` are for the client alone, after the answer."""

    thread: WireThread
    seq: int
    epoch: str
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
            thread.journal.publish_unnumbered("thread/status/changed", params)
        if running is not None and with_turns:  # it may have ended since
            turns = (*turns, running.snapshot())
        turns_cursor, items_cursor = cursors_of(thread)
        wire, seq, epoch, goal = thread.wire(turns), thread.journal.seq, thread.store.epoch, thread.goal.now
        if goal is None:
            cleared = ThreadGoalClearedNotification(thread_id=thread.id)
            goal_news = Event("thread/goal/cleared", cleared, None, now_ms())
        else:
            updated = ThreadGoalUpdatedNotification(thread_id=thread.id, goal=goal)
            goal_news = Event("thread/goal/updated", updated, None, now_ms())
        news = (*usage_news(thread), goal_news, *warning_news(thread))
        barrier = None if thread.journal.failure is not None else thread.journal.barrier()
    if barrier is not None:  # else nothing more will be stored, and this is all there is
        await thread.journal.wait_for(barrier)
    return ThreadView(
        thread=wire,
        seq=seq,
        epoch=epoch,
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
