"""`check_store` passes what is right, and finds what is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from treadle.store import Batch, Claim, Done, EphemeralStore, EventRecord, EventRow, Insert, Store, Write, open_sqlite
from treadle.store.sqlite import queries, writes
from treadle.testing import STORE_CHECKS, check_store

pytestmark = pytest.mark.anyio


class Careless(EphemeralStore):
    """Whatever is submitted, it is written under the last claim."""

    def submit(
        self, thread_id: str, fence: int, writes: Sequence[Write], done: Done, after_seq: int | None = None
    ) -> None:
        assert self._connection is not None
        loaded = queries.load(self._connection, thread_id)
        super().submit(thread_id, 0 if loaded is None else loaded.fence, writes, done, after_seq)


class Forgetful(EphemeralStore):
    """Half of a call is written when the other half cannot be."""

    def submit(
        self, thread_id: str, fence: int, writes: Sequence[Write], done: Done, after_seq: int | None = None
    ) -> None:
        super().submit(thread_id, fence, writes[:1], lambda error: None, after_seq)
        super().submit(thread_id, fence, writes[1:], done)


class Hasty(EphemeralStore):
    """It does not look at what its writes are to follow."""

    def submit(
        self, thread_id: str, fence: int, writes: Sequence[Write], done: Done, after_seq: int | None = None
    ) -> None:
        super().submit(thread_id, fence, writes, done)


class Uncounted(EphemeralStore):
    """A claim is never told by its number."""

    async def claim(self, thread_id: str, known_fence: int) -> Claim:
        return Claim(1, (await super().claim(thread_id, known_fence)).news)


BROKEN = {
    "a write under any other fence fails": Careless,
    "a call is all or nothing": Forgetful,
    "what follows writes that failed fails too": Hasty,
    "a claim counts the fence and says nothing when nothing happened": Uncounted,
}


@pytest.mark.parametrize("complaint", BROKEN)
async def test_what_is_wrong_is_found(complaint: str) -> None:
    async def broken(name: str) -> Store:
        return BROKEN[complaint]()

    with pytest.raises(AssertionError, match=complaint):
        await check_store(broken, shared=False, only=[complaint.replace(" ", "_")])
    with pytest.raises(AssertionError):
        await check_store(broken, shared=False)


async def test_events_that_are_replaced_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    upsert = Insert("events", EventRow._fields, ("thread_id", "last_seq"))
    monkeypatch.setitem(writes._INSERTS, EventRecord, upsert)
    monkeypatch.setattr(Batch, "check", lambda batch, last_seq: None)

    async def memory(name: str) -> Store:
        return EphemeralStore()

    with pytest.raises(AssertionError, match="an event or history is never replaced: this was written"):
        await check_store(memory, shared=False)


async def test_an_owner_that_writes_too_late_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("treadle.store.sqlite.writes.check", lambda connection, batches, owner: None)
    with pytest.raises(AssertionError, match="an owner that comes back too late changes nothing: this was written"):
        await check_store(
            lambda name: open_sqlite(tmp_path / name), only=["an_owner_that_comes_back_too_late_changes_nothing"]
        )


async def test_each_check_has_threads_of_its_own(tmp_path: Path) -> None:
    opened: list[str] = []

    async def noted(name: str) -> Store:
        opened.append(name)
        store = await open_sqlite(tmp_path / name)
        assert await store.load("any") is None
        return store

    await check_store(noted, only=STORE_CHECKS[:3])
    assert opened == list(STORE_CHECKS[:3])
    two = "each_sees_what_the_other_committed"
    await check_store(noted, only=[two])
    assert opened[3:] == [two, two]
