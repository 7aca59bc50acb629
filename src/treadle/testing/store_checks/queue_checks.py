"""The queue of a thread: messages that wait, survive and are sent once."""

from __future__ import annotations

from treadle.store.contract import CopyTurns, CutTurns, DeleteThread, DropQueued, Release, Store
from treadle.testing.store_checks.sample_records import (
    A,
    B,
    event,
    fence_of,
    filled,
    history,
    item,
    keep,
    queued,
    refusal,
    thread,
    turn,
)


async def _ids(store: Store, thread_id: str = A) -> list[str]:
    return [found.id for found in await store.queue(thread_id)]


async def _says_so(store: Store, thread_id: str = A) -> bool:
    loaded = await store.load(thread_id)
    assert loaded is not None
    return loaded.queued


async def messages_wait_in_the_order_of_their_positions(store: Store) -> None:
    assert await store.queue(A) == []
    await keep(store, thread(), thread(B), queued("x", 2), queued("y", 1), queued("x", 7, B, b'"other"'))
    assert await store.queue(A) == [queued("y", 1), queued("x", 2)]
    assert await store.queue(B) == [queued("x", 7, B, b'"other"')]
    await keep(store, queued("y", 3, data=b'"changed"'), queued("z", -1))
    assert await store.queue(A) == [queued("z", -1), queued("x", 2), queued("y", 3, data=b'"changed"')]
    assert (await _says_so(store), await _says_so(store, B)) == (True, True)


async def a_message_that_is_dropped_waits_no_longer(store: Store) -> None:
    await keep(store, thread(), queued("x", 1), queued("y", 2))
    await keep(store, DropQueued(A, "x"), DropQueued(A, "never there"))
    assert await _ids(store) == ["y"]
    await keep(store, queued("z", 3), DropQueued(A, "z"), DropQueued(A, "y"), queued("y", 4))
    assert await store.queue(A) == [queued("y", 4)]
    await keep(store, DropQueued(A, "y"))
    assert (await _ids(store), await _says_so(store)) == ([], False)


async def a_message_is_sent_or_waits_and_never_both(store: Store) -> None:
    """What takes it out of the queue and what puts it into the turn are one call: all or nothing."""
    await filled(store)
    await keep(store, queued("x", 1))
    said = [turn(5), item(9, turn=5, text="wool"), history(9, turn=5), DropQueued(A, "x")]
    await refusal(store, A, await fence_of(store, A), *said, event(1))  # the number of an event that was told
    assert (await _ids(store), await store.search("wool")) == (["x"], [])
    await keep(store, *said, event(9))
    assert (await _ids(store), len(await store.search("wool"))) == ([], 1)


async def a_queue_goes_with_its_thread_and_not_with_its_turns(store: Store) -> None:
    await filled(store)
    await keep(store, queued("x", 1), CutTurns(A, 1))
    await keep(store, thread(B), CopyTurns(A, B))
    assert (await _ids(store), await _ids(store, B)) == (["x"], [])
    await keep(store, DeleteThread(A))
    await keep(store, thread())
    assert await _ids(store) == []


async def a_queue_is_known_to_the_next_claim(store: Store, other: Store) -> None:
    await keep(store, thread())
    first = await store.claim(A, 0)
    await store.commit(A, first.fence, [queued("x", 1), Release(A)])
    second = await other.claim(A, -1)
    assert second.news is not None
    assert second.news.queued
    assert await _ids(other) == ["x"]
    late = await refusal(store, A, first.fence, DropQueued(A, "x"))
    assert (late.kind, await _ids(other)) == ("stale", ["x"])
