"""`StoredThread`: a thread that is not in memory. What can be done to it without loading it.

It owns how such a thread is changed: claimed, written and released in one go, so that no other server works on it
meanwhile. Nobody subscribes to it, so what happens to it has no number.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from msgspec import UnsetType, structs

from treadle.agent.event import now_ms
from treadle.agent.thread import thread_refusals
from treadle.agent.thread.thread import wire_thread
from treadle.agent.thread.thread_state import State, read_state
from treadle.errors import INVALID_REQUEST, RpcError
from treadle.protocol.app.base import encode
from treadle.protocol.app.thread_methods import ThreadMetadataGitInfoUpdateParams
from treadle.protocol.app.threads import GitInfo, NotLoadedThreadStatus, ThreadGoal
from treadle.protocol.app.threads import Thread as WireThread
from treadle.store.contract import (
    DeleteThread,
    Loaded,
    QueuedRecord,
    Release,
    Store,
    StoreError,
    ThreadRecord,
    Write,
)

if TYPE_CHECKING:
    from treadle.agent.thread.thread_queue import QueueChange

T = TypeVar("T")


class StoredThread:
    def __init__(self, store: Store, thread_id: str) -> None:
        self._store = store
        self.id = thread_id

    async def load(self) -> Loaded | None:
        return await self._store.load(self.id)

    async def claim(self) -> Loaded:
        """The thread as it is, with the right to write it until `Release`."""
        try:
            claim = await self._store.claim(self.id, -1)
        except StoreError as error:
            if error.kind == "missing":
                raise thread_refusals.no_rollout(self.id) from None
            raise
        assert claim.news is not None  # no thread has that fence
        return claim.news

    async def change(self, changed: Callable[[Loaded], Awaitable[ThreadRecord]]) -> Loaded:
        """Replace its record by what `changed` makes of it. What that raises leaves everything as it was."""
        loaded = await self.claim()
        try:
            record = await changed(loaded)
        except BaseException:
            await self._store.commit(self.id, loaded.fence, [Release(self.id)])
            raise
        await self._store.commit(self.id, loaded.fence, [record, Release(self.id)])
        return structs.replace(loaded, record=record)

    async def set_name(self, name: str) -> None:
        async def changed(loaded: Loaded) -> ThreadRecord:
            return structs.replace(loaded.record, name=name, listed=True)

        await self.change(changed)

    async def update_metadata(self, git_info: ThreadMetadataGitInfoUpdateParams | None) -> WireThread:
        async def changed(loaded: Loaded) -> ThreadRecord:
            state = self._state(loaded.record)
            state = structs.replace(state, git_info=changed_git_info(state, git_info))
            return structs.replace(loaded.record, state=encode(state))

        return self.wire((await self.change(changed)).record)

    async def archive(self) -> None:
        async def changed(loaded: Loaded) -> ThreadRecord:
            if loaded.record.archived:
                raise thread_refusals.no_rollout(self.id)
            return structs.replace(loaded.record, archived=True, listed=True)  # else it would not be found again

        await self.change(changed)

    async def unarchive(self) -> WireThread:
        found = await self.load()
        if found is None or not found.record.archived:
            raise RpcError(INVALID_REQUEST, f"no archived rollout found for thread id {self.id}")

        async def changed(loaded: Loaded) -> ThreadRecord:
            listed = loaded.record.name is not None or loaded.counters.turn > 0
            return structs.replace(loaded.record, archived=False, listed=listed, updated_at=now_ms())

        return self.wire((await self.change(changed)).record)

    async def delete(self) -> None:
        loaded = await self.claim()
        await self._store.commit(self.id, loaded.fence, [DeleteThread(self.id)])

    async def queued(self) -> list[QueuedRecord]:
        """The messages that wait, the next one first."""
        self._check_there(await self.load())
        return await self._store.queue(self.id)

    async def change_queue(self, change: QueueChange[T]) -> T:
        """Store what `change` makes of the messages that wait. They are sent when the thread is in memory."""
        loaded = await self.claim()
        writes: list[Write] = []
        try:
            self._check_there(loaded)
            result, writes = change(await self._store.queue(self.id))
        finally:
            await self._store.commit(self.id, loaded.fence, [*writes, Release(self.id)])
        return result

    def _check_there(self, loaded: Loaded | None) -> None:
        if loaded is None:
            raise thread_refusals.no_rollout(self.id)
        if loaded.record.archived:
            raise thread_refusals.archived(self.id)

    async def goal(self) -> ThreadGoal | None:
        loaded = await self.load()
        if loaded is None:
            raise thread_refusals.thread_not_found(self.id)
        return self._state(loaded.record).goal

    def wire(self, record: ThreadRecord) -> WireThread:
        location = self._store.location
        return wire_thread(record, self._state(record), NotLoadedThreadStatus(), location=location)

    def _state(self, record: ThreadRecord) -> State:
        return read_state(record.state, self._store.location)


def changed_git_info(state: State, changes: ThreadMetadataGitInfoUpdateParams | None) -> GitInfo:
    given = {} if changes is None else structs.asdict(changes)
    given = {name: value for name, value in given.items() if not isinstance(value, UnsetType)}
    if not given:
        raise RpcError(INVALID_REQUEST, "gitInfo must include at least one field")
    return structs.replace(state.git_info or GitInfo(), **given)
