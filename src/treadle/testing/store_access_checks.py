"""How a store is accessed: by pages and ids, by lists and searches of threads, and under claims, by one store and two.

The checks are those functions that take a `store`, or a `store` and an `other` (see `store_checks`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, get_args

from msgspec.structs import replace

from treadle.store.contract import (
    Claim,
    Compaction,
    Counters,
    CutTurns,
    DeleteThread,
    DropItem,
    EventPage,
    Loaded,
    MessageText,
    PruneEvents,
    Release,
    SortKey,
    Store,
    StoreError,
    ThreadCursor,
    ThreadQuery,
    ThreadRecord,
    UnusedThread,
)
from treadle.testing.store_checks import (
    A,
    B,
    C,
    commit,
    event,
    events_of,
    fence_of,
    filled,
    history,
    item,
    refusal,
    thread,
    turn,
)

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
    await commit(store, item(7, turn=3, id="item-4"))
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
    assert await events_of(store, A, 0, 2) == EventPage([event(1), event(2)], 1, 4)
    assert await events_of(store, A, 3, 9) == EventPage([event(4)], 1, 4)
    assert await events_of(store, A, 4, 9) == EventPage([], 1, 4)


async def pages_of_events_that_were_written_together(store: Store) -> None:
    """Events, some written in calls of many, one with a frame over several lines: a page begins and ends anywhere."""
    events = [event(number, frame=b'{"n": %d}' % number) for number in range(1, 13)]
    events[6] = event(7, frame=b'{\n"n": 7\n}')
    await commit(store, thread(), *events[:5])
    await commit(store, *events[5:11])
    await commit(store, events[11])
    for after in range(14):
        for limit in range(14):
            assert await events_of(store, A, after, limit) == EventPage(events[after : after + limit], 1, 12)


async def everything_that_a_thread_has_can_be_read(store: Store) -> None:
    await filled(store)
    await commit(store, thread(B, listed=False), Compaction(A, 1, 2), Compaction(A, 3, 6))
    assert await store.thread_ids("", 9) == [A, B]
    assert await store.thread_ids("", 1) == [A]
    assert await store.thread_ids(A, 9) == [B]
    assert [found.number for found in await store.whole_history(A, 0, 5)] == [1, 2, 3, 4, 5]
    assert await store.whole_history(A, 7, 9) == [history(8, turn=4)]
    assert await store.compactions(A) == [Compaction(A, 1, 2), Compaction(A, 3, 6)]


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
    await commit(store, *threads, thread("hidden", listed=False), thread("away", archived=True))
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
    await commit(store, thread(A), thread(B))
    page = await store.threads(ThreadQuery(limit=2))
    assert (len(page.threads), page.more) == (2, False)
    assert (await store.threads(ThreadQuery(limit=1))).more
    empty = await store.threads(ThreadQuery(limit=0))
    assert (empty.threads, empty.more) == ([], True)


async def filters_of_threads(store: Store) -> None:
    await commit(
        store,
        thread("1", cwd="/a", model_provider="p", source="cli", name="Fix it", preview="about 50%"),
        thread("2", cwd="/b", model_provider="q", source="exec", originator="me", preview="Fix that _ thing"),
        thread("3", cwd="/c d'\"", model_provider="p", source="cli", originator="you", name="ÄÖ", parent_thread_id="1"),
        thread("4", cwd="/a", archived=True, name="Fix it", parent_thread_id="1"),
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
    assert await ids(parent="1") == "3"
    assert await ids(parent="1", archived=True) == "4"
    assert await ids(parent="2") == ""
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


async def search_finds_messages_best_first(store: Store) -> None:
    await commit(
        store,
        thread(),
        thread(B, archived=True),
        item(1, text="The loom is in the barn, and a long story about the barn follows. " * 5),
        item(2, text="loom"),
        item(3, text="nothing"),
        item(4),
        item(1, B, text="loom in the archive"),
    )
    assert [hit.item_id for hit in await store.search("LOOM")] == ["item-2", "item-1"]
    assert [hit.item_id for hit in await store.search("loom", limit=1)] == ["item-2"]
    (hit,) = await store.search("loom barn")
    assert (hit.thread_id, hit.item_id) == (A, "item-1")
    assert "[loom]" in hit.snippet
    assert "[barn]" in hit.snippet


async def search_follows_the_text_of_an_item(store: Store) -> None:
    await commit(store, thread(), item(1, text="first"))
    await commit(store, item(1, text="second"))
    assert (await store.search("first"), len(await store.search("second"))) == ([], 1)
    await commit(store, item(1, text="second", data=b'"changed"'))
    assert len(await store.search("second")) == 1
    await commit(store, item(1))
    assert await store.search("second") == []
    await commit(store, item(1, text="third"))
    assert len(await store.search("third")) == 1


async def an_archived_thread_is_found_again_when_it_comes_back(store: Store) -> None:
    await commit(store, thread(archived=True), item(1, text="wool"))
    assert await store.search("wool") == []
    await commit(store, thread())
    assert len(await store.search("wool")) == 1


HOSTILE = (
    *('"', '""', "a OR", "NOT", "AND AND", "NEAR(", "text:", "^x", "*", "a*", "-a", "(", ")", "{a b}:", "+", "x\0y"),
    *("'", "\ud800", "\\", ";", "%_", "[", "]", "!!! ???", "𝄞", "a" * 100_000),
)


async def no_words_can_break_the_search(store: Store) -> None:
    await commit(store, thread(), item(1, text="plain"))
    for words in HOSTILE:
        assert await store.search(words) == [], repr(words[:20])
        assert (await store.threads(ThreadQuery(words=words))).threads in ([], [thread()]), repr(words[:20])
        assert (await store.threads(ThreadQuery(phrase=words))).threads == [], repr(words[:20])
        assert await store.messages(A, words) == [], repr(words[:20])
    assert len(await store.search("plain")) == 1


async def words_are_only_words(store: Store) -> None:
    await commit(store, thread(), item(1, text="cats AND dogs"), item(2, text="cats dogs"), item(3, text="Straße über"))
    assert [hit.item_id for hit in await store.search("cats AND dogs")] == ["item-1"]
    assert [hit.item_id for hit in await store.search("straße UBER")] == ["item-3"]
    assert await store.search("") == []
    assert await store.search(" \n") == []
    assert await store.search("cat*") == []


# --- in threads ------------------------------------------------------------------------------------------------------


async def threads_are_found_by_what_was_said_in_them(store: Store) -> None:
    await commit(
        store,
        *(thread(created_at=1), thread(B, created_at=2, source="exec"), thread(C, created_at=3, archived=True)),
        *(item(1, text="nothing"), item(2, text="The loom is old"), item(3, text="loom is here, too")),
        *(item(1, B, text="the LOOM is big"), item(1, C, text="a loom is a loom")),
    )

    async def found(phrase: str, **more: Any) -> list[tuple[str, str]]:
        page = await store.threads(ThreadQuery(phrase=phrase, **more))
        return [(record.id, text) for record, text in zip(page.threads, page.texts, strict=True)]

    old, big = (A, "The loom is old"), (B, "the LOOM is big")
    assert await found("loom is") == [big, old]
    assert await found("the loom i") == [big, old]
    assert await found("is loom") == []
    assert await found("oom") == []
    assert await found("loom is o") == [old]
    assert await found("loom", descending=False) == [old, big]
    assert await found("loom", sources=("exec",)) == [big]
    assert await found("loom", archived=True) == [(C, "a loom is a loom")]
    assert await found("loom", after=ThreadCursor(2, B)) == [old]
    page = await store.threads(ThreadQuery(phrase="loom", limit=1))
    assert ([record.id for record in page.threads], page.more, page.texts) == ([B], True, [big[1]])


async def messages_of_a_thread_are_found_by_any_part_of_them(store: Store) -> None:
    await commit(
        store,
        *(thread(), turn(1), turn(2), item(1, text="Bananas"), item(2), item(3, turn=2, text="ÄPFEL und 100% ananas")),
        *(item(4, turn=2, text="50_50 \\! 林檎"), thread(B), turn(1, B), item(1, B, text="banana")),
    )
    first = MessageText(1, "item-1", 1, "turn-1", "Bananas")

    async def numbers(part: str, **more: Any) -> list[int]:
        return [found.number for found in await store.messages(A, part, **more)]

    assert await store.messages(A, "BANANA") == [first]
    assert await numbers("anana") == [1, 3]
    assert await numbers("anana", limit=1) == [1]
    assert await numbers("anana", first=2) == [3]
    for part in ("äpfel", "Äpfel", "00%", "fel UND"):
        assert await numbers(part) == [3], part
    for part in ("0_5", "\\", "!", "林", "_50 \\! 林檎"):
        assert await numbers(part) == [4], part
    assert await numbers("5%5") == []


# --- claims of one store ---------------------------------------------------------------------------------------------


async def a_claim_counts_the_fence_and_says_nothing_when_nothing_happened(store: Store) -> None:
    await commit(store, thread())
    assert await store.claim(A, 0) == Claim(1, None)
    await store.commit(A, 1, [item(1), Release(A)])
    assert await store.claim(A, 1) == Claim(2, None)
    assert await store.load(A) == Loaded(thread(), Counters(item=1), 2)


async def a_claim_with_another_fence_tells_what_is_there(store: Store) -> None:
    await commit(store, thread(), item(1))
    assert await store.claim(A, -1) == Claim(1, Loaded(thread(), Counters(item=1), 1))
    await store.commit(A, 1, [Release(A)])
    assert await store.claim(A, 0) == Claim(2, Loaded(thread(), Counters(item=1), 2))


async def a_claim_on_nothing_is_refused(store: Store) -> None:
    error = await refused_claim(store, A)
    assert error.kind == "missing"
    assert A in error.message


async def a_write_under_any_other_fence_fails(store: Store) -> None:
    await commit(store, thread(), event(1))
    first = (await store.claim(A, 0)).fence
    await store.commit(A, first, [event(2)])
    second = (await store.claim(A, first)).fence
    for fence in (-1, 0, first, second + 1):
        for write in (thread(name="no"), turn(1), item(1), history(1), event(3), Release(A), DeleteThread(A)):
            assert (await refusal(store, A, fence, write)).kind == "stale"
    await store.commit(A, second, [event(3)])
    assert await events_of(store, A, 0, 9) == EventPage([event(1), event(2), event(3)], 1, 3)
    assert await store.load(A) == Loaded(thread(), Counters(seq=3), second)


async def a_running_turn_is_in_progress_while_the_claim_is_held(store: Store) -> None:
    await commit(store, thread(), thread(B))
    await store.claim(A, 0)
    await store.commit(A, 1, [turn(1), turn(2, status="inProgress")])
    assert [found.status for found in await store.turns(A)] == ["completed", "inProgress"]
    running = await store.turn(A, "turn-2")
    assert running is not None
    assert running.status == "inProgress"
    # A claim by its own holder changes nothing in it, unless the holder has lost track: a release that failed, say.
    await store.claim(A, 1)
    assert [found.status for found in await store.turns(A)] == ["completed", "inProgress"]
    await store.claim(A, -1)
    assert [found.status for found in await store.turns(A)] == ["completed", "interrupted"]


async def a_turn_that_was_left_running_is_interrupted_and_stays_so(store: Store) -> None:
    await commit(store, thread())
    await store.claim(A, 0)
    await store.commit(A, 1, [turn(1), turn(2, status="inProgress"), Release(A)])
    assert [found.status for found in await store.turns(A)] == ["completed", "interrupted"]
    left = await store.turn(A, "turn-2")
    assert left is not None
    assert left.status == "interrupted"
    await store.claim(A, 1)
    assert [found.status for found in await store.turns(A)] == ["completed", "interrupted"]


async def a_claim_that_was_cancelled_is_not_held(store: Store) -> None:
    await commit(store, thread(), turn(1, status="inProgress"))
    claim = asyncio.ensure_future(store.claim(A, 0))
    await asyncio.sleep(0)
    claim.cancel()
    await asyncio.wait([claim])
    assert claim.cancelled()
    fence = (await store.claim(A, -1)).fence  # the release of the first was submitted before
    await store.commit(A, fence, [turn(1, status="inProgress"), Release(A)])
    assert [found.status for found in await store.turns(A)] == ["interrupted"]


# --- claims of two stores --------------------------------------------------------------------------------------------


async def a_thread_belongs_to_one_store_until_it_is_released(store: Store, other: Store) -> None:
    await commit(store, thread())
    await store.claim(A, 0)
    assert (await refused_claim(other, A)).kind == "claimed"
    await store.commit(A, 1, [Release(A)])
    assert await other.claim(A, -1) == Claim(2, Loaded(thread(), Counters(), 2))
    assert (await refused_claim(store, A)).kind == "claimed"


async def a_claim_ends_with_its_store(store: Store, other: Store) -> None:
    await commit(store, thread())
    await other.claim(A, 0)
    await other.commit(A, 1, [turn(1, status="inProgress")])
    assert [found.status for found in await store.turns(A)] == ["inProgress"]
    await other.close()
    assert [found.status for found in await store.turns(A)] == ["interrupted"]
    assert await store.claim(A, 0) == Claim(2, Loaded(thread(), Counters(turn=1), 2))


async def who_only_read_a_fence_cannot_write_under_it(store: Store, other: Store) -> None:
    await commit(store, thread())
    assert (await refusal(other, A, 0, event(1))).kind == "stale"
    await store.claim(A, 0)
    assert (await refusal(other, A, 1, event(1))).kind == "stale"
    assert (await refusal(other, A, 1, Release(A))).kind == "stale"
    assert (await refused_claim(other, A)).kind == "claimed"
    assert await events_of(store, A, 0, 9) == EventPage([], 0, 0)


async def an_owner_that_comes_back_too_late_changes_nothing(store: Store, other: Store) -> None:
    await commit(store, thread(), turn(1), item(1), history(1), event(1))
    late = (await store.claim(A, 0)).fence
    await store.commit(A, late, [turn(2, status="inProgress"), event(2), Release(A)])
    fence = (await other.claim(A, -1)).fence
    await other.commit(A, fence, [turn(3), item(2, turn=3), history(2, turn=3), event(3), thread(name="theirs")])
    before = await _all(other)
    for write in (
        *(thread(name="mine"), turn(2), turn(3, status="failed"), item(2, data=b"0"), history(2), history(3)),
        *(event(3, frame=b"0"), event(4), DropItem(A, 1), CutTurns(A, 1), Compaction(A, 2, 2), PruneEvents(A, 3)),
        *(DeleteThread(A), Release(A)),
    ):
        error = await refusal(store, A, late, write)
        assert error.kind == "stale", error
        assert A in error.message
    assert await _all(store) == await _all(other) == before
    # It can have the thread again, and goes on from what is there.
    await other.commit(A, fence, [Release(A)])
    claim = await store.claim(A, late)
    assert claim.news is not None
    assert (claim.news.record.name, claim.news.counters) == ("theirs", Counters(3, 3, 2, 2))
    await store.commit(A, claim.fence, [event(4)])


async def what_another_store_wrote_after_the_fence_was_read_is_told(store: Store, other: Store) -> None:
    await commit(store, thread())
    await other.claim(A, 0)
    seen = await fence_of(store, A)
    await other.commit(A, 1, [item(1), Release(A)])
    await other.close()
    assert await store.claim(A, seen) == Claim(seen + 1, Loaded(thread(), Counters(item=1), seen + 1))


# --- threads that nobody uses ----------------------------------------------------------------------------------------


async def a_thread_that_nobody_uses_is_deleted_with_all_that_work_for_it(store: Store) -> None:
    times = {"recency_at": 10, "updated_at": 10}
    await commit(store, thread(A, **times, preview="old"), turn(1))
    await commit(store, thread(B, parent_thread_id=A, **times), thread(C, parent_thread_id=B, **times, listed=False))
    assert await store.unused(10) == []
    assert await store.unused(11) == [UnusedThread(A, "old", 10, 2)]
    assert not await store.delete_unused(A, 10)
    assert await store.load(A) is not None
    assert await store.delete_unused(A, 11)
    assert [await store.load(each) for each in (A, B, C)] == [None] * 3
    assert await store.unused(11) == []
    assert not await store.delete_unused(A, 11)
    await store.shrink()


async def a_thread_is_used_when_one_that_works_for_it_is(store: Store) -> None:
    times = {"recency_at": 10, "updated_at": 10}
    await commit(store, thread(A, **times), thread(B, parent_thread_id=A, recency_at=30, updated_at=10))
    await commit(store, thread(C, recency_at=10, updated_at=30, archived=True))  # renamed, say
    assert await store.unused(20) == []
    assert not await store.delete_unused(A, 20)
    assert [(each.id, each.used_at) for each in await store.unused(31)] == [(A, 30), (C, 30)]


async def a_thread_that_is_loaded_or_claimed_somewhere_is_not_deleted(store: Store, other: Store) -> None:
    times = {"recency_at": 10, "updated_at": 10}
    await commit(store, thread(A, **times), thread(B, parent_thread_id=A, **times))
    for who in (other, store):
        who.mark_loaded(B, True)
        await commit(who, thread("any"))  # from then on all see it
        await commit(who, DeleteThread("any"))
        assert not await store.delete_unused(A, 11)
        who.mark_loaded(B, False)
    await other.claim(B, -1)
    assert not await store.delete_unused(A, 11)
    assert await store.load(A) is not None
    other.mark_loaded(A, True)
    await other.close()
    assert await store.delete_unused(A, 11)


async def each_sees_what_the_other_committed(store: Store, other: Store) -> None:
    await commit(store, thread(A))
    await commit(other, thread(B))
    for number in range(1, 20):
        await store.commit(A, 0, [event(number)])
        await other.commit(B, 0, [event(number, B)])
        assert ((await events_of(other, A, 0, 0)).last_seq, (await events_of(store, B, 0, 0)).last_seq) == (
            number,
            number,
        )


async def refused_claim(store: Store, thread_id: str) -> StoreError:
    try:
        claim = await store.claim(thread_id, 0)
    except StoreError as error:
        return error
    raise AssertionError(f"a thread that cannot be had is claimed: {claim}")


async def _all(store: Store) -> list[Any]:
    rows = [await store.turns(A), await store.items(A), await store.history(A)]
    return [await store.load(A), *rows, await events_of(store, A, 0, 100)]


# --- cancelling and closing ------------------------------------------------------------------------------------------


async def cancelled_callers_change_nothing_for_the_others(store: Store) -> None:
    await commit(store, thread())
    calls: list[asyncio.Future[Any]] = []
    for number in range(1, 101):
        calls.append(asyncio.ensure_future(store.commit(A, 0, [event(number)])))
        calls.append(asyncio.ensure_future(store.load(A)))
    await asyncio.sleep(0)
    for call in calls[::3]:
        call.cancel()
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(outcome) for outcome in outcomes[1::3]} == {type(None), Loaded}
    assert (await events_of(store, A, 0, 0)).last_seq == 100


async def close_writes_what_was_submitted_and_refuses_what_comes_later(store: Store) -> None:
    heard: list[StoreError | None] = []
    await commit(store, thread())
    for number in range(1, 501):
        store.submit(A, 0, [event(number)], heard.append)
    await store.close()
    assert heard == [None] * 500
    await store.close()
    assert (await refusal(store, A, 0, event(501))).kind == "failed"
    assert (await refused_claim(store, A)).kind == "failed"
    try:
        await store.load(A)
    except StoreError:
        return
    raise AssertionError("a store that is closed is read")
