"""Full-text search over messages."""

from __future__ import annotations

from typing import Any

from treadle.store.contract import MessageText, Store, ThreadCursor, ThreadQuery
from treadle.testing.store_checks.sample_records import A, B, C, item, keep, thread, turn

# --- search ----------------------------------------------------------------------------------------------------------


async def search_finds_messages_best_first(store: Store) -> None:
    await keep(
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
    await keep(store, thread(), item(1, text="first"))
    await keep(store, item(1, text="second"))
    assert (await store.search("first"), len(await store.search("second"))) == ([], 1)
    await keep(store, item(1, text="second", data=b'"changed"'))
    assert len(await store.search("second")) == 1
    await keep(store, item(1))
    assert await store.search("second") == []
    await keep(store, item(1, text="third"))
    assert len(await store.search("third")) == 1


async def an_archived_thread_is_found_again_when_it_comes_back(store: Store) -> None:
    await keep(store, thread(archived=True), item(1, text="wool"))
    assert await store.search("wool") == []
    await keep(store, thread())
    assert len(await store.search("wool")) == 1


HOSTILE = (
    *('"', '""', "a OR", "NOT", "AND AND", "NEAR(", "text:", "^x", "*", "a*", "-a", "(", ")", "{a b}:", "+", "x\0y"),
    *("'", "\ud800", "\\", ";", "%_", "[", "]", "!!! ???", "𝄞", "a" * 100_000),
)


async def no_words_can_break_the_search(store: Store) -> None:
    await keep(store, thread(), item(1, text="plain"))
    for words in HOSTILE:
        assert await store.search(words) == [], repr(words[:20])
        assert (await store.threads(ThreadQuery(words=words))).threads in ([], [thread()]), repr(words[:20])
        assert (await store.threads(ThreadQuery(phrase=words))).threads == [], repr(words[:20])
        assert await store.messages(A, words) == [], repr(words[:20])
    assert len(await store.search("plain")) == 1


async def words_are_only_words(store: Store) -> None:
    await keep(store, thread(), item(1, text="cats AND dogs"), item(2, text="cats dogs"), item(3, text="Straße über"))
    assert [hit.item_id for hit in await store.search("cats AND dogs")] == ["item-1"]
    assert [hit.item_id for hit in await store.search("straße UBER")] == ["item-3"]
    assert await store.search("") == []
    assert await store.search(" \n") == []
    assert await store.search("cat*") == []


# --- in threads ------------------------------------------------------------------------------------------------------


async def threads_are_found_by_what_was_said_in_them(store: Store) -> None:
    await keep(
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
    await keep(
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
