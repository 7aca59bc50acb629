"""Turns, items, events and threads by pages, filters and ids."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

from msgspec.structs import replace

from treadle.store.contract import EventPage, SortKey, Store, ThreadCursor, ThreadQuery, ThreadRecord
from treadle.testing.store_checks.sample_records import A, B, event, filled, item, keep, thread, turn

# --- pages -----------------------------------------------------------------------------------------------------------


async def pages_of_turns(store: Store) -> None:
    await filled(store, 5)

    async def numbers(**page: Any) -> list[int]:
        return [found.number for found in await store.turns(A, **page)]

    assert await numbers() == [1, 2, 3, 4, 5]
    assert await numbers(descending=True) == [5, 4, 3, 2, 1]
    assert await numbers(limit=2) == [1, 2]
    assert await numbers(limit=2, after=2) == [3, 4]
    assert await numbers(after=5) == []
    assert await numbers(limit=2, descending=True) == [5, 4]
    assert await numbers(limit=2, after=4, descending=True) == [3, 2]
    assert await numbers(after=1, descending=True) == []
    assert await numbers(limit=0) == []


async def a_turn_by_its_id(store: Store) -> None:
    await filled(store, 3)
    assert await store.turn(A, "turn-2") == turn(2)
    assert await store.turn(A, "turn-9") is None
    assert await store.turn(B, "turn-2") is None


async def an_item_by_its_id(store: Store) -> None:
    await filled(store, 3)
    await keep(store, item(7, turn=3, id="item-4"))
    assert await store.item(A, "item-6") == item(6, turn=3)
    assert await store.item(A, "item-4") == item(4, turn=2)
    assert await store.item(A, "item-9") is None
    assert await store.item(B, "item-4") is None


async def pages_of_items(store: Store) -> None:
    await filled(store, 4)

    async def numbers(**page: Any) -> list[int]:
        return [found.number for found in await store.items(A, **page)]

    assert await numbers() == [1, 2, 3, 4, 5, 6, 7, 8]
    assert await numbers(turns=(2, 3)) == [3, 4, 5, 6]
    assert await numbers(turns=(2, 3), descending=True) == [6, 5, 4, 3]
    assert await numbers(turns=(2, 3), after=4, limit=1) == [5]
    assert await numbers(turns=(2, 3), after=5, limit=9, descending=True) == [4, 3]
    assert await numbers(turns=(4, 99)) == [7, 8]
    assert await numbers(turns=(0, 1)) == [1, 2]
    assert await numbers(turns=(9, 10)) == []
    assert await numbers(turns=(3, 2)) == []
    assert await numbers(after=6) == [7, 8]
    assert await numbers(after=3, limit=9, descending=True) == [2, 1]
    assert await numbers(limit=0) == []


async def pages_of_events(store: Store) -> None:
    await filled(store, 2)
    assert await store.events(A, 0, 2) == EventPage([event(1), event(2)], 1, 4)
    assert await store.events(A, 3, 9) == EventPage([event(4)], 1, 4)
    assert await store.events(A, 4, 9) == EventPage([], 1, 4)


async def pages_of_events_that_were_written_together(store: Store) -> None:
    """Some in calls of many, one with a frame over several lines: a page begins and ends anywhere."""
    events = [event(number, frame=b'{"n": %d}' % number) for number in range(1, 13)]
    events[6] = event(7, frame=b'{\n"n": 7\n}')
    await keep(store, thread(), *events[:5])
    await keep(store, *events[5:11])
    await keep(store, events[11])
    for after in range(14):
        for limit in range(14):
            assert await store.events(A, after, limit) == EventPage(events[after : after + limit], 1, 12)


# --- lists of threads ------------------------------------------------------------------------------------------------


async def pages_of_threads_in_every_order(store: Store) -> None:
    ids = [f"thread-{number:02}" for number in range(10)]
    # Times repeat, so ids have to break the ties; the three keys give three different orders.
    times: dict[str, Callable[[int], int]] = {
        "created_at": lambda number: number // 2,
        "updated_at": lambda number: (number * 7) % 5,
        "recency_at": lambda number: -number // 3,
    }
    threads = [
        thread(thread_id, **{name: time(number) for name, time in times.items()})
        for number, thread_id in enumerate(ids)
    ]
    await keep(store, *threads, thread("hidden", listed=False), thread("away", archived=True))
    for key in get_args(SortKey):
        for descending in (True, False):
            expected = sorted(threads, key=lambda found, key=key: (getattr(found, key), found.id), reverse=descending)
            assert await _all_pages(store, key, descending) == expected, f"{key}, descending: {descending}"


async def _all_pages(store: Store, key: SortKey, descending: bool) -> list[ThreadRecord]:
    found: list[ThreadRecord] = []
    query = ThreadQuery(limit=3, sort_key=key, descending=descending)
    while True:
        page = await store.threads(query)
        found += page.threads
        if not page.more:
            return found
        assert len(page.threads) == 3
        last = page.threads[-1]
        query = replace(query, after=ThreadCursor(getattr(last, key), last.id))


async def a_full_last_page_says_that_there_is_no_more(store: Store) -> None:
    await keep(store, thread(A), thread(B))
    page = await store.threads(ThreadQuery(limit=2))
    assert (len(page.threads), page.more) == (2, False)
    assert (await store.threads(ThreadQuery(limit=1))).more
    empty = await store.threads(ThreadQuery(limit=0))
    assert (empty.threads, empty.more) == ([], True)


async def filters_of_threads(store: Store) -> None:
    await keep(
        store,
        thread("1", cwd="/a", model_provider="p", source="cli", name="Fix it", preview="about 50%"),
        thread("2", cwd="/b", model_provider="q", source="exec", originator="me", preview="Fix that _ thing"),
        thread("3", cwd="/c d'\"", model_provider="p", source="cli", originator="you", name="ÄÖ"),
        thread("4", cwd="/a", archived=True, name="Fix it"),
        thread("5", cwd="/a", listed=False),
        item(1, "1", text="alpha beta"),
        item(1, "2", text="alpha gamma"),
        item(1, "4", text="alpha beta"),
        item(2, "2", text="beta in another message"),
    )

    async def ids(**filters: Any) -> str:
        page = await store.threads(ThreadQuery(descending=False, **filters))
        return "".join(found.id for found in page.threads)

    assert await ids() == "123"
    assert await ids(archived=True) == "4"
    assert await ids(cwds=("/a",)) == "1"
    assert await ids(cwds=("/a", "/c d'\"")) == "13"
    assert await ids(model_providers=("q", "none")) == "2"
    assert await ids(sources=("cli",)) == "13"
    assert await ids(originators=("me", "you")) == "23"
    assert await ids(excluded_ids=("1", "9")) == "23"
    assert await ids(search="Fix") == "12"
    assert await ids(search="fix") == ""
    assert await ids(search="%") == "1"
    assert await ids(search="_") == "2"
    assert await ids(search="ÄÖ") == "3"
    assert await ids(search="") == "123"
    assert await ids(words="alpha") == "12"
    assert await ids(words="alpha beta") == "1"
    assert await ids(words="alpha beta", archived=True) == "4"
    assert await ids(words="  ") == "123"
    assert await ids(sources=("cli",), cwds=("/a", "/b"), search="Fix") == "1"
