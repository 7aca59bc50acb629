"""What every store does, on disk or in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from treadle.store import (
    Compaction,
    CopyTurns,
    Counters,
    CutTurns,
    DeleteThread,
    Done,
    DropItem,
    EventPage,
    Loaded,
    MemoryStore,
    PruneEvents,
    Release,
    SortKey,
    Store,
    StoreError,
    ThreadCursor,
    ThreadQuery,
    open_store,
)
from unit.store.records import A, B, C, event, history, item, thread, turn

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["sqlite", "memory"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    opened: Store = await open_store(tmp_path / "home") if request.param == "sqlite" else MemoryStore()
    yield opened
    await opened.close()


async def _refused(store: Store, *writes: Any) -> StoreError:
    with pytest.raises(StoreError) as caught:
        await store.commit(writes)
    return caught.value


# --- records come back as they were written --------------------------------------------------------------------------


async def test_a_thread_comes_back(store: Store) -> None:
    full = thread(
        originator="a client", name="Ñame ☃", preview="π\n\0x", forked_from_id=B, archived=True, state=b"\x00\xff"
    )
    await store.commit([full, thread(B)])
    assert await store.load(A) == Loaded(full, Counters(), 0)
    assert await store.load(B) == Loaded(thread(B), Counters(), 0)
    assert await store.load(C) is None


async def test_a_thread_is_replaced_with_its_content_kept(store: Store) -> None:
    await store.commit([thread(), turn(1), item(1, text="hello"), history(1), event(1)])
    await store.claim(A, 0)
    await store.commit([thread(name="new", listed=False)])
    loaded = await store.load(A)
    assert loaded == Loaded(thread(name="new", listed=False), Counters(seq=1, turn=1, item=1, history=1), 1)
    assert len(await store.search("hello")) == 1


async def test_turns_items_history_and_events_come_back(store: Store) -> None:
    turns = [
        turn(1, started_at=5, completed_at=7, duration_ms=1234, error=b'{"message":"x"}', status="failed"),
        turn(2, status="interrupted"),
    ]
    items = [
        item(1, text="", open=True, started_at_ms=1, completed_at_ms=2),
        item(2, turn=2, data=b"[]", text="☃ \0 𝄞"),
    ]
    rows = [history(1, data=b"0"), history(2, turn=2, data='" ☃ é"'.encode())]
    events = [event(1, frame=b"null"), event(2, frame=b'{"a": [1, 2]}')]
    await store.commit([thread(), *turns, *items, *rows, *events])
    assert await store.turns(A) == turns
    assert await store.items(A) == items
    assert await store.history(A) == rows
    assert await store.events(A, 0, 10) == EventPage(events, 1, 2)


async def test_a_record_is_replaced(store: Store) -> None:
    await store.commit([thread(), turn(1), item(1, open=True), history(1), event(1)])
    after: list[Any] = [
        turn(1, status="failed"),
        item(1, data=b'"new"', text="word"),
        history(1, data=b'"new"'),
        event(1, frame=b'"n"'),
    ]
    await store.commit(after)
    found = [*await store.turns(A), *await store.items(A), *await store.history(A)]
    assert [*found, *(await store.events(A, 0, 9)).events] == after


async def test_big_values(store: Store) -> None:
    blob = b'"%b"' % ("ä x" * 1_000_000).encode()
    text = "wörd " * 200_000
    await store.commit([thread(state=blob), item(1, data=blob, text=text), history(1, data=blob), event(1, frame=blob)])
    loaded = await store.load(A)
    assert loaded is not None
    assert loaded.record.state == blob
    assert await store.items(A) == [item(1, data=blob, text=text)]
    assert await store.history(A) == [history(1, data=blob)]
    assert (await store.events(A, 0, 1)).events == [event(1, frame=blob)]


async def test_a_thread_that_is_unknown_has_nothing(store: Store) -> None:
    assert await store.load(A) is None
    assert (await store.turns(A), await store.items(A), await store.history(A)) == ([], [], [])
    assert await store.turn(A, "turn-1") is None
    assert await store.events(A, 0, 10) == EventPage([], 0, 0)


@pytest.mark.parametrize("write", [turn(1), item(1), history(1), event(1), Compaction(A, 1, 1)])
async def test_nothing_is_written_for_a_thread_that_is_unknown(store: Store, write: Any) -> None:
    error = await _refused(store, thread(B), write)
    assert error.kind == "missing"
    assert A in error.message
    assert await store.load(B) is None


@pytest.mark.parametrize("write", [DropItem(A, 1), CutTurns(A, 1), PruneEvents(A, 5), DeleteThread(A), Release(A)])
async def test_taking_away_what_is_not_there_is_no_error(store: Store, write: Any) -> None:
    await store.commit([write])
    await store.commit([])
    assert await store.load(A) is None


# --- order, and all or nothing ---------------------------------------------------------------------------------------


async def test_dones_come_in_order_and_once(store: Store) -> None:
    heard: list[tuple[int, str | None]] = []
    ended = asyncio.Event()

    def done(number: int) -> Done:
        def call(error: StoreError | None) -> None:
            heard.append((number, error.kind if error else None))
            if number == 99:
                ended.set()

        return call

    store.submit([thread()], done(0))
    for number in range(1, 100):
        # Every tenth fails, and the others do not suffer from it.
        store.submit([event(number, B if number % 10 == 0 else A)], done(number))
    assert heard == []
    await ended.wait()
    assert heard == [(number, "missing" if number % 10 == 0 and number else None) for number in range(100)]
    page = await store.events(A, 0, 1000)
    assert [found.seq for found in page.events] == [number for number in range(1, 100) if number % 10]


async def test_a_call_is_all_or_nothing(store: Store) -> None:
    await store.commit([thread(), turn(1), item(1, text="old"), event(1)])
    before = (await store.load(A), await store.items(A), await store.turns(A))
    changes = [thread(name="x"), turn(2), item(1, text="new"), CutTurns(A, 1), PruneEvents(A, 1), history(1, C)]
    assert (await _refused(store, *changes)).kind == "missing"
    assert (await store.load(A), await store.items(A), await store.turns(A)) == before
    assert [hit.item_id for hit in await store.search("old")] == ["item-1"]
    assert await store.search("new") == []


@pytest.mark.parametrize("broken", [item(2, text="\ud800"), item(2**63), item(2, data=None), "no write"])
async def test_what_cannot_be_stored_is_an_error_of_its_caller_alone(store: Store, broken: Any) -> None:
    await store.commit([thread()])
    errors: list[StoreError | None] = []
    store.submit([item(1)], errors.append)
    store.submit([item(3), broken], errors.append)
    await store.commit([item(4)])
    assert [error and error.kind for error in errors] == [None, "failed"]
    assert [found.number for found in await store.items(A)] == [1, 4]


async def test_a_done_that_raises_does_not_keep_the_others_from_being_called(store: Store) -> None:
    problems: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: problems.append(context))

    def fails(error: StoreError | None) -> None:
        raise ValueError("of the caller")

    store.submit([thread()], fails)
    await store.commit([event(1)])
    assert [str(problem["exception"]) for problem in problems] == ["of the caller"]


async def test_writes_are_taken_when_submitted(store: Store) -> None:
    writes: list[Any] = [thread()]
    heard: list[StoreError | None] = []
    store.submit(writes, heard.append)
    writes.clear()
    await store.commit([])
    assert heard == [None]
    assert await store.load(A) is not None


# --- what takes away -------------------------------------------------------------------------------------------------


async def _filled(store: Store, turns: int = 4) -> None:
    """Turns of two items, two rows of history and two events each; every first item is a message."""
    await store.commit([thread()])
    for number in range(1, turns + 1):
        first, second = 2 * number - 1, 2 * number
        await store.commit(
            [
                turn(number),
                item(first, turn=number, text=f"question {number}"),
                item(second, turn=number),
                history(first, turn=number),
                history(second, turn=number),
                event(first),
                event(second),
            ]
        )


async def test_an_item_is_dropped(store: Store) -> None:
    await _filled(store)
    await store.commit([DropItem(A, 3), DropItem(A, 8)])
    assert [found.number for found in await store.items(A)] == [1, 2, 4, 5, 6, 7]
    assert await store.search("question 2") == []
    loaded = await store.load(A)
    assert loaded is not None
    assert loaded.counters == Counters(seq=8, turn=4, item=7, history=8)


async def test_turns_are_cut(store: Store) -> None:
    await _filled(store)
    await store.commit([thread(B), turn(3, B), item(1, B, turn=3), CutTurns(A, 3)])
    assert [found.number for found in await store.turns(A)] == [1, 2]
    assert [found.number for found in await store.items(A)] == [1, 2, 3, 4]
    assert [found.number for found in await store.history(A)] == [1, 2, 3, 4]
    assert (await store.search("question 3"), len(await store.search("question"))) == ([], 2)
    loaded = await store.load(A)
    assert loaded is not None
    assert loaded.counters == Counters(seq=8, turn=2, item=4, history=4)
    assert (len(await store.turns(B)), len(await store.items(B))) == (1, 1)


async def test_history_begins_at_the_last_compaction_until_that_is_cut(store: Store) -> None:
    await _filled(store)
    await store.commit([Compaction(A, 2, 3), Compaction(A, 4, 7)])
    assert [found.number for found in await store.history(A)] == [7, 8]
    await store.commit([Compaction(A, 4, 8)])
    assert [found.number for found in await store.history(A)] == [8]
    await store.commit([CutTurns(A, 4)])
    assert [found.number for found in await store.history(A)] == [3, 4, 5, 6]
    await store.commit([CutTurns(A, 2)])
    assert [found.number for found in await store.history(A)] == [1, 2]


@pytest.mark.parametrize(("last", "count"), [(None, 4), (2, 2), (0, 0), (99, 4)])
async def test_turns_are_copied(store: Store, last: int | None, count: int) -> None:
    await _filled(store)
    await store.commit([Compaction(A, 1, 2), Compaction(A, 3, 6)])
    source = (await store.turns(A), await store.items(A))
    await store.commit([thread(B, forked_from_id=A), CopyTurns(A, B, last)])
    assert await store.turns(B) == [replace(found, thread_id=B) for found in source[0][:count]]
    assert await store.items(B) == [replace(found, thread_id=B) for found in source[1][: 2 * count]]
    start = 6 if count > 2 else 2
    assert [found.number for found in await store.history(B)] == list(range(start, 2 * count + 1))
    assert await store.events(B, 0, 9) == EventPage([], 0, 0)
    assert (await store.turns(A), await store.items(A)) == source
    # The copies are found by themselves, and live on without their source.
    await store.commit([DeleteThread(A)])
    assert {hit.thread_id for hit in await store.search("question")} == ({B} if count else set())
    assert len(await store.items(B)) == 2 * count


async def test_what_cannot_be_copied(store: Store) -> None:
    await _filled(store)
    assert (await _refused(store, CopyTurns(A, B))).kind == "missing"
    assert (await _refused(store, thread(B), CopyTurns(C, B))).kind == "missing"
    assert (await _refused(store, thread(B), turn(1, B), CopyTurns(A, B))).kind == "failed"
    assert await store.load(B) is None


async def test_a_copy_of_a_running_turn_is_interrupted(store: Store) -> None:
    await store.commit([thread(), thread(B)])
    await store.claim(A, 0)
    await store.claim(B, 0)
    await store.commit([turn(1, status="inProgress"), CopyTurns(A, B)])
    assert [found.status for found in await store.turns(A)] == ["inProgress"]
    assert [found.status for found in await store.turns(B)] == ["interrupted"]


async def test_events_are_pruned_and_their_numbers_stay_used(store: Store) -> None:
    await _filled(store)
    await store.commit([PruneEvents(A, 3)])
    assert await store.events(A, 0, 2) == EventPage([event(4), event(5)], 4, 8)
    await store.commit([PruneEvents(A, 1000)])
    assert await store.events(A, 0, 2) == EventPage([], 0, 0)
    loaded = await store.load(A)
    assert loaded is not None
    assert loaded.counters.seq == 8


async def test_a_thread_is_deleted_with_all_that_is_in_it(store: Store) -> None:
    await _filled(store)
    await store.commit([Compaction(A, 1, 5), thread(B), item(1, B, text="question other"), DeleteThread(A)])
    assert await store.load(A) is None
    assert (await store.turns(A), await store.items(A), await store.history(A)) == ([], [], [])
    assert await store.events(A, 0, 10) == EventPage([], 0, 0)
    assert [hit.thread_id for hit in await store.search("question")] == [B]
    # Nothing comes back with a thread of the same id.
    await store.commit([thread(), history(1)])
    assert await store.load(A) == Loaded(thread(), Counters(history=1), 0)
    assert [found.number for found in await store.history(A)] == [1]


# --- pages -----------------------------------------------------------------------------------------------------------


async def test_pages_of_turns(store: Store) -> None:
    await _filled(store, 5)

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


async def test_a_turn_by_its_id(store: Store) -> None:
    await _filled(store, 3)
    assert await store.turn(A, "turn-2") == turn(2)
    assert await store.turn(A, "turn-9") is None
    assert await store.turn(B, "turn-2") is None


async def test_pages_of_items(store: Store) -> None:
    await _filled(store, 4)

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


async def test_pages_of_events(store: Store) -> None:
    await _filled(store, 2)
    assert await store.events(A, 0, 2) == EventPage([event(1), event(2)], 1, 4)
    assert await store.events(A, 3, 9) == EventPage([event(4)], 1, 4)
    assert await store.events(A, 4, 9) == EventPage([], 1, 4)


# --- lists of threads ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("descending", [True, False])
@pytest.mark.parametrize("key", ["created_at", "updated_at", "recency_at"])
async def test_pages_of_threads_in_every_order(store: Store, key: SortKey, descending: bool) -> None:
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
    await store.commit([*threads, thread("hidden", listed=False), thread("away", archived=True)])
    expected = sorted(threads, key=lambda found: (getattr(found, key), found.id), reverse=descending)
    found = []
    query = ThreadQuery(limit=3, sort_key=key, descending=descending)
    while True:
        page = await store.threads(query)
        found += page.threads
        if not page.more:
            break
        assert len(page.threads) == 3
        last = page.threads[-1]
        query = replace(query, after=ThreadCursor(getattr(last, key), last.id))
    assert found == expected


async def test_a_full_last_page_says_that_there_is_no_more(store: Store) -> None:
    await store.commit([thread(A), thread(B)])
    page = await store.threads(ThreadQuery(limit=2))
    assert (len(page.threads), page.more) == (2, False)
    assert (await store.threads(ThreadQuery(limit=1))).more
    empty = await store.threads(ThreadQuery(limit=0))
    assert (empty.threads, empty.more) == ([], True)


async def test_filters_of_threads(store: Store) -> None:
    await store.commit(
        [
            thread("1", cwd="/a", model_provider="p", source="cli", name="Fix it", preview="about 50%"),
            thread("2", cwd="/b", model_provider="q", source="exec", originator="me", preview="Fix that _ thing"),
            thread("3", cwd="/c d'\"", model_provider="p", source="cli", originator="you", name="ÄÖ"),
            thread("4", cwd="/a", archived=True, name="Fix it"),
            thread("5", cwd="/a", listed=False),
            item(1, "1", text="alpha beta"),
            item(1, "2", text="alpha gamma"),
            item(1, "4", text="alpha beta"),
            item(2, "2", text="beta in another message"),
        ]
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


# --- search ----------------------------------------------------------------------------------------------------------


async def test_search_finds_messages_best_first(store: Store) -> None:
    await store.commit(
        [
            thread(),
            thread(B, archived=True),
            item(1, text="The loom is in the barn, and a long story about the barn follows. " * 5),
            item(2, text="loom"),
            item(3, text="nothing"),
            item(4),
            item(1, B, text="loom in the archive"),
        ]
    )
    assert [hit.item_id for hit in await store.search("LOOM")] == ["item-2", "item-1"]
    assert [hit.item_id for hit in await store.search("loom", limit=1)] == ["item-2"]
    (hit,) = await store.search("loom barn")
    assert (hit.thread_id, hit.item_id) == (A, "item-1")
    assert "[loom]" in hit.snippet
    assert "[barn]" in hit.snippet


async def test_search_follows_the_text_of_an_item(store: Store) -> None:
    await store.commit([thread(), item(1, text="first")])
    await store.commit([item(1, text="second")])
    assert (await store.search("first"), len(await store.search("second"))) == ([], 1)
    await store.commit([item(1, text="second", data=b'"changed"')])
    assert len(await store.search("second")) == 1
    await store.commit([item(1)])
    assert await store.search("second") == []
    await store.commit([item(1, text="third")])
    assert len(await store.search("third")) == 1


async def test_an_archived_thread_is_found_again_when_it_comes_back(store: Store) -> None:
    await store.commit([thread(archived=True), item(1, text="wool")])
    assert await store.search("wool") == []
    await store.commit([thread()])
    assert len(await store.search("wool")) == 1


HOSTILE = (
    *('"', '""', "a OR", "NOT", "AND AND", "NEAR(", "text:", "^x", "*", "a*", "-a", "(", ")", "{a b}:", "+", "x\0y"),
    *("'", "\ud800", "\\", ";", "%_", "[", "]", "!!! ???", "𝄞", "a" * 100_000),
)


@pytest.mark.parametrize("words", HOSTILE, ids=range(len(HOSTILE)))
async def test_no_words_can_break_the_search(store: Store, words: str) -> None:
    await store.commit([thread(), item(1, text="plain")])
    assert await store.search(words) == []
    assert (await store.threads(ThreadQuery(words=words))).threads in ([], [thread()])
    assert len(await store.search("plain")) == 1


async def test_words_are_only_words(store: Store) -> None:
    await store.commit(
        [thread(), item(1, text="cats AND dogs"), item(2, text="cats dogs"), item(3, text="Straße über")]
    )
    assert [hit.item_id for hit in await store.search("cats AND dogs")] == ["item-1"]
    assert [hit.item_id for hit in await store.search("straße UBER")] == ["item-3"]
    assert await store.search("") == []
    assert await store.search(" \n") == []
    assert await store.search("cat*") == []


# --- claims ----------------------------------------------------------------------------------------------------------


async def test_a_claim_counts_the_fence_and_says_nothing_when_nothing_happened(store: Store) -> None:
    await store.commit([thread()])
    assert await store.claim(A, 0) is None
    await store.commit([item(1), Release(A)])
    assert await store.claim(A, 1) is None
    loaded = await store.load(A)
    assert loaded == Loaded(thread(), Counters(item=1), 2)


async def test_a_claim_with_another_fence_tells_what_is_there(store: Store) -> None:
    await store.commit([thread(), item(1)])
    assert await store.claim(A, -1) == Loaded(thread(), Counters(item=1), 1)
    await store.commit([Release(A)])
    assert await store.claim(A, 0) == Loaded(thread(), Counters(item=1), 2)


async def test_a_claim_on_nothing(store: Store) -> None:
    with pytest.raises(StoreError) as caught:
        await store.claim(A, 0)
    assert caught.value.kind == "missing"
    assert A in caught.value.message


async def test_a_running_turn_is_in_progress_while_the_claim_is_held(store: Store) -> None:
    await store.commit([thread(), thread(B)])
    await store.claim(A, 0)
    await store.commit([turn(1), turn(2, status="inProgress")])
    assert [found.status for found in await store.turns(A)] == ["completed", "inProgress"]
    running = await store.turn(A, "turn-2")
    assert running is not None
    assert running.status == "inProgress"
    # A claim by its own holder changes nothing in it.
    await store.claim(A, 1)
    assert [found.status for found in await store.turns(A)] == ["completed", "inProgress"]


async def test_a_turn_that_was_left_running_is_interrupted_and_stays_so(store: Store) -> None:
    await store.commit([thread()])
    await store.claim(A, 0)
    await store.commit([turn(1), turn(2, status="inProgress"), Release(A)])
    assert [found.status for found in await store.turns(A)] == ["completed", "interrupted"]
    left = await store.turn(A, "turn-2")
    assert left is not None
    assert left.status == "interrupted"
    await store.claim(A, 1)
    assert [found.status for found in await store.turns(A)] == ["completed", "interrupted"]


async def test_a_claim_that_was_cancelled_is_not_held(store: Store) -> None:
    await store.commit([thread(), turn(1, status="inProgress")])
    claim = asyncio.ensure_future(store.claim(A, 0))
    await asyncio.sleep(0)
    claim.cancel()
    await asyncio.wait([claim])
    assert claim.cancelled()
    await store.commit([turn(1, status="inProgress")])
    await store.commit([])  # the release follows the claim, so it is before this one
    assert [found.status for found in await store.turns(A)] == ["interrupted"]


# --- cancelling and closing ------------------------------------------------------------------------------------------


async def test_cancelled_callers_change_nothing_for_the_others(store: Store) -> None:
    await store.commit([thread()])
    calls: list[asyncio.Future[Any]] = []
    for number in range(1, 101):
        calls.append(asyncio.ensure_future(store.commit([event(number)])))
        calls.append(asyncio.ensure_future(store.load(A)))
    await asyncio.sleep(0)
    for call in calls[::3]:
        call.cancel()
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(outcome) for outcome in outcomes[1::3]} == {type(None), Loaded}
    assert (await store.events(A, 0, 0)).last_seq == 100


async def test_close_writes_what_was_submitted_and_refuses_what_comes_later(store: Store) -> None:
    heard: list[StoreError | None] = []
    await store.commit([thread()])
    for number in range(1, 501):
        store.submit([event(number)], heard.append)
    await store.close()
    assert heard == [None] * 500
    await store.close()
    with pytest.raises(StoreError, match="closed"):
        await store.load(A)
    with pytest.raises(StoreError, match="closed"):
        await store.commit([event(501)])
    with pytest.raises(StoreError, match="closed"):
        await store.claim(A, 0)
