"""`ChildThreads`: the threads of sub-agents, as the server has them: how they come into memory and leave it, and whose
clients follow them. What they do, and how their parent hears of it, is `agent.thread.thread_children`.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from treadle.agent.event import Event, now_ms
from treadle.agent.thread.stored_thread import StoredThread
from treadle.agent.thread.thread_children import LIMIT_REACHED
from treadle.agent.thread.thread_making import load_thread, make_child
from treadle.errors import INVALID_REQUEST, RpcError, TreadleError
from treadle.protocol.app.notifications import ThreadDeletedNotification, ThreadStatusChangedNotification
from treadle.protocol.app.thread_methods import ThreadResumeParams
from treadle.protocol.app.threads import NotLoadedThreadStatus
from treadle.server.loaded_threads import ThreadSubscribers
from treadle.store.contract import ThreadCursor, ThreadQuery, ThreadRecord

if TYPE_CHECKING:
    from treadle.agent.thread.thread import Thread
    from treadle.agent.thread.thread_children import NewChild
    from treadle.agent.thread.thread_handle import ThreadHandle
    from treadle.server.app import AppServer
    from treadle.store.contract import Store

logger: logging.Logger = logging.getLogger(__name__)
_PAGE = 100


class ChildThreads:
    def __init__(self, server: AppServer) -> None:
        self._server = server
        self._beginning: dict[str, set[str]] = {}  # of each session: those that have a place and no turn yet

    def find(self, thread_id: str) -> ThreadHandle | None:
        return self._server.threads.get(thread_id)

    @contextmanager
    def place(self, session_id: str, child_id: str, most: int) -> Iterator[None]:
        beginning = self._beginning.get(session_id, set())
        working = self._server.threads.running_in(session_id) | beginning
        if child_id not in working and len(working) >= most:
            raise RpcError(INVALID_REQUEST, LIMIT_REACHED)
        self._beginning[session_id] = beginning
        beginning.add(child_id)
        try:
            yield
        finally:
            beginning.discard(child_id)
            if not beginning:
                self._beginning.pop(session_id, None)

    async def make(self, parent: Thread, new: NewChild) -> ThreadHandle:
        threads = self._server.threads
        threads.check_open()
        subscribers = ThreadSubscribers(self._server)
        child = await make_child(self._server, parent, new, subscribers)
        try:
            await child.start_required_mcp()
        finally:  # also when it fails: `discard` finds it then, with what is still on its way into the store
            threads.add(child, subscribers)
        await child.publish_started()
        child.publish_mcp()
        return child

    async def load(self, thread_id: str) -> ThreadHandle:
        """Load a thread as `thread/resume` does, for no clients but those that follow its parent."""
        server, threads = self._server, self._server.threads
        async with threads.alone(thread_id):
            if (found := threads.get(thread_id)) is not None:
                return found
            subscribers = ThreadSubscribers(server)
            thread = await load_thread(server, ThreadResumeParams(thread_id=thread_id), subscribers)
            try:
                await thread.start_required_mcp()
            except BaseException:
                await thread.close()
                raise
            threads.add(thread, subscribers)
            await thread.view(with_turns=False, is_fresh=True)
            thread.publish_mcp()
            return thread

    async def close(self, thread_id: str) -> None:
        threads = self._server.threads
        for child in (thread_id, *threads.below(thread_id)):
            async with threads.alone(child):
                if threads.get(child) is None:
                    continue
                await threads.unload(child)
            params = ThreadStatusChangedNotification(thread_id=child, status=NotLoadedThreadStatus())
            self._server.broadcast(Event("thread/status/changed", params, None, now_ms()))

    async def discard(self, thread_id: str) -> None:
        threads = self._server.threads
        async with threads.alone(thread_id):
            store = await threads.unload(thread_id)
            try:  # not by looking first: what is still on its way into the store comes before the claim
                await StoredThread(store, thread_id).delete()
            except RpcError:  # there is none
                return
        deleted = ThreadDeletedNotification(thread_id=thread_id)
        self._server.broadcast(Event("thread/deleted", deleted, None, now_ms()))

    def ended(self, parent_id: str, child_id: str, turn_id: str, *, wakes: bool) -> None:
        parent = self._server.threads.get(parent_id)
        if parent is not None:
            parent.child_ended(child_id, turn_id, wakes=wakes)
        elif wakes and not self._server.draining and not self._server.threads.is_leaving(parent_id):
            self._server.spawn(self._wake(parent_id), f"waking {parent_id}")

    async def _wake(self, parent_id: str) -> None:
        """Load a parent that has left memory; it looks itself whether it should go on."""
        try:
            (await self.load(parent_id)).wake()
        except (RpcError, TreadleError) as error:  # it was archived, or another server has it: it hears of it there
            logger.info("a thread is not woken", {"thread": parent_id, "reason": str(error)})


async def stored_below(store: Store, thread_id: str) -> list[ThreadRecord]:
    """All threads that work for one, and those that work for them, in the order in which they were made, archived or
    not: one may be that whose parent is not."""
    found: list[ThreadRecord] = []
    pending = [thread_id]
    while pending:
        parent = pending.pop(0)
        children = [
            record for archived in (False, True) async for record in _children(store, parent, archived=archived)
        ]
        found += children
        pending += [record.id for record in children]
    return found


async def _children(store: Store, parent_id: str, *, archived: bool) -> AsyncIterator[ThreadRecord]:
    after: ThreadCursor | None = None
    while True:
        page = await store.threads(
            ThreadQuery(parent=parent_id, archived=archived, limit=_PAGE, descending=False, after=after)
        )
        for record in page.threads:
            yield record
        if not page.more:
            return
        after = ThreadCursor(page.threads[-1].created_at, page.threads[-1].id)
