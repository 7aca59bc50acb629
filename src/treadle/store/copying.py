"""Threads from one store into another, whatever their back ends: each is compared when it is there.

A thread is written with `_UNFINISHED` as its originator until all of it is there. So a copy that was stopped can be
started again: what is whole is left alone, what is not is made anew. Nobody writes to a thread while it is copied: it
is claimed. What differs in the target and was not left by a copy is reported, never touched.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Callable
from typing import Final, Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from treadle.store.contract import (
    DeleteThread,
    EventRecord,
    Loaded,
    PruneEvents,
    Release,
    Store,
    StoreError,
    ThreadRecord,
    Write,
)

_UNFINISHED: Final = "treadle store copy: unfinished"
_PAGE: Final = 200
_IDS: Final = 1_000

CopyOutcome: TypeAlias = Literal["copied", "there", "in use", "differs"]


async def thread_ids(store: Store) -> AsyncIterator[str]:
    """Every thread, in the order of the ids."""
    after = ""
    while page := await store.thread_ids(after, _IDS):
        for thread_id in page:
            yield thread_id
        after = page[-1]


async def copy_threads(source: Store, target: Store, report: Callable[[str, CopyOutcome], None]) -> None:
    """Copy every thread, and `report` each. Raises `StoreError`, also when what was copied is not what is there."""
    async for thread_id in thread_ids(source):
        report(thread_id, await _copy(source, target, thread_id))


async def digest(store: Store, thread_id: str) -> str:
    """A checksum of all that a thread has; that of the same thread in another store is the same."""
    total = hashlib.blake2b(digest_size=16)
    async for writes in _contents(store, thread_id):
        for write in writes:
            total.update(type(write).__name__.encode() + msgspec.msgpack.encode(write))
    return total.hexdigest()


async def _copy(source: Store, target: Store, thread_id: str) -> CopyOutcome:
    try:
        claim = await source.claim(thread_id, -1)
    except StoreError as error:
        if error.kind == "claimed":
            return "in use"
        raise
    try:
        loaded = claim.news
        assert loaded is not None
        wanted = await digest(source, thread_id)
        there = await target.load(thread_id)
        if there is not None:
            if there.record.originator != _UNFINISHED:
                return "there" if await digest(target, thread_id) == wanted else "differs"
            fence = (await target.claim(thread_id, -1)).fence
            await target.commit(thread_id, fence, [DeleteThread(thread_id)])
        await target.commit(thread_id, 0, [replace(loaded.record, originator=_UNFINISHED, listed=False)])
        async for writes in _contents(source, thread_id):
            await target.commit(thread_id, 0, [write for write in writes if not isinstance(write, ThreadRecord)])
        await target.commit(thread_id, 0, [loaded.record])
        if await digest(target, thread_id) != wanted:
            raise StoreError(
                f"thread {thread_id} in {target.location} is not what was copied: copy it again", "damaged"
            )
    finally:
        await source.commit(thread_id, claim.fence, [Release(thread_id)])
    return "copied"


async def _contents(store: Store, thread_id: str) -> AsyncIterator[list[Write]]:
    """All that a thread has, as the writes that would make it, in parts that follow each other."""
    loaded = await store.load(thread_id)
    if loaded is None:
        return
    yield [loaded.record]
    after: int | None = None
    while turns := await store.turns(thread_id, after=after, limit=_PAGE):
        yield list(turns)
        after = turns[-1].number
    after = None
    while items := await store.items(thread_id, after=after, limit=_PAGE):
        yield list(items)
        after = items[-1].number
    number = 0
    while rows := await store.whole_history(thread_id, number, _PAGE):
        yield list(rows)
        number = rows[-1].number
    yield list(await store.compactions(thread_id))
    async for events in _events(store, loaded):
        yield events
    yield list(await store.queue(thread_id))


async def _events(store: Store, loaded: Loaded) -> AsyncIterator[list[Write]]:
    thread_id = loaded.record.id
    page = await store.events(thread_id, 0, _PAGE)
    pruned = page.first_seq - 1 if page.events else loaded.counters.seq
    if pruned > 0:  # the number of the last one that is gone stays in use
        yield [EventRecord(thread_id, pruned, b"null"), PruneEvents(thread_id, pruned)]
    while page.events:
        yield list(page.events)
        page = await store.events(thread_id, page.events[-1].seq, _PAGE)
