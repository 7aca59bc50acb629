"""Reading stored turns and items for the wire, whole or by pages."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any, Final

import msgspec
from msgspec import Raw

from treadle.agent.turn_items import OpenItems, given_up
from treadle.errors import INVALID_REQUEST, RpcError
from treadle.protocol.app.base import Closed, decode, encode
from treadle.protocol.app.items import ExitedReviewModeThreadItem, ThreadItem
from treadle.protocol.app.turn_errors import TurnError
from treadle.protocol.app.turns import Turn, TurnItemsView
from treadle.store.contract import ItemRecord, Store, TurnRecord

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
    commands that ran when this was called: of one that ends meanwhile it is told how."""
    if view == "notLoaded" or not records:
        return [wire_turn(record, (), view) for record in records]
    numbers = [record.number for record in records]
    items: dict[int, list[ItemRecord]] = defaultdict(list)
    for item in await store.items(thread_id, turns=(min(numbers), max(numbers))):
        items[item.turn].append(item)
    return [wire_turn(record, _viewed(items[record.number], record, view, running), view) for record in records]


def _viewed(items: list[ItemRecord], turn: TurnRecord, view: Closed[TurnItemsView], running: OpenItems) -> list[Raw]:
    if view == "summary":
        users = [item for item in items if item.type == "userMessage"][:1]
        answers = [item for item in items if item.type == "agentMessage"][-1:]
        items = users + answers
    shown = [wire_item(item, turn, running) for item in items]
    return shown if view == "summary" or turn.status == "inProgress" else shown + _end_of_review(items)


def _end_of_review(items: list[ItemRecord]) -> list[Raw]:
    """Of a review whose server was killed: without it, clients would stay in review mode."""
    entered = next((item for item in items if item.type == "enteredReviewMode"), None)
    if entered is None or any(item.type == "exitedReviewMode" for item in items):
        return []
    from treadle.agent.review import NO_REPORT  # loaded with the first review

    return [Raw(encode(ExitedReviewModeThreadItem(id=f"{entered.id}-end", review=NO_REPORT)))]


def wire_item(record: ItemRecord, turn: TurnRecord, running: OpenItems) -> Raw:
    """As JSON: it was made by us, and goes out as it is. One that its server left behind when it was killed ended
    there, whatever the last word about it was."""
    if not record.open or turn.status == "inProgress":
        return Raw(record.data)
    live = running.get((record.turn, record.id))
    return Raw(encode(given_up(decode(record.data, ThreadItem)) if live is None else live.so_far()))


# --- cursors ---------------------------------------------------------------------------------------------------------


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
