"""Full-text search over messages."""

from __future__ import annotations

from treadle.store.contract import Store, ThreadQuery
from treadle.testing.store_checks.sample_records import A, B, item, keep, thread

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
    assert len(await store.search("plain")) == 1


async def words_are_only_words(store: Store) -> None:
    await keep(store, thread(), item(1, text="cats AND dogs"), item(2, text="cats dogs"), item(3, text="Straße über"))
    assert [hit.item_id for hit in await store.search("cats AND dogs")] == ["item-1"]
    assert [hit.item_id for hit in await store.search("straße UBER")] == ["item-3"]
    assert await store.search("") == []
    assert await store.search(" \n") == []
    assert await store.search("cat*") == []
