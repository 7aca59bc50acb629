"""`Threads`: the threads that are in memory, who listens to them, and when they go."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from msgspec import Raw

from treadle.agent.thread import Thread
from treadle.errors import INVALID_REQUEST, RpcError
from treadle.protocol.app.thread_notifications import ThreadClosedNotification, ThreadStatusChangedNotification
from treadle.protocol.app.threads import NotLoadedThreadStatus
from treadle.server import refusals
from treadle.server.audience import ThreadAudience
from treadle.server.client_base import Client
from treadle.store.contract import DeleteThread, Loaded, Store, StoreError

if TYPE_CHECKING:
    from treadle.server.app import AppServer

logger: logging.Logger = logging.getLogger(__name__)

# A thread without listeners is unloaded after this long, looked at once a minute.
IDLE_S: Final = 30 * 60.0
LOOK_S: Final = 60.0
DRAIN_LOOK_S: Final = 0.2
# Histories of idle threads that are kept for their next turn: the last ones used, together at most this much, and none
# for longer than this. To read one again takes milliseconds.
KEPT_HISTORY_BYTES: Final = 16 << 20
KEPT_HISTORY_S: Final = 5 * 60.0


class Threads:
    def __init__(self, server: AppServer) -> None:
        self._server = server
        self._loaded: dict[str, Thread] = {}
        self._audiences: dict[str, ThreadAudience] = {}
        self._locks: dict[str, tuple[asyncio.Lock, int]] = {}  # of threads that are being loaded, with the users
        self._warm: OrderedDict[str, tuple[int, Thread]] = OrderedDict()  # with the size that was counted
        self._warm_bytes = 0
        server.spawn(self._watch_idle(), "unloading idle threads")

    def ids(self) -> list[str]:
        return list(self._loaded)

    def get(self, thread_id: str) -> Thread | None:
        return self._loaded.get(thread_id)

    def find(self, thread_id: str) -> Thread:
        """A thread in memory; raises the error of turn/* for one that is not."""
        thread = self._loaded.get(refusals.check_thread_id(thread_id))
        if thread is None:
            raise refusals.thread_not_found(thread_id)
        return thread

    def check_loaded(self, thread: Thread) -> None:
        """Under its lock: it may have been unloaded while the request waited for its turn."""
        if self._loaded.get(thread.id) is not thread:
            raise refusals.thread_not_found(thread.id)

    @asynccontextmanager
    async def alone(self, thread_id: str) -> AsyncIterator[None]:
        """Loading and removing one thread do not overlap."""
        lock, users = self._locks.get(thread_id) or (asyncio.Lock(), 0)
        self._locks[thread_id] = (lock, users + 1)
        try:
            async with lock:
                yield
        finally:
            _, users = self._locks.pop(thread_id)
            if users > 1:
                self._locks[thread_id] = (lock, users - 1)

    # --- coming and going ---

    def add(self, loaded: Loaded, store: Store, *, ephemeral: bool = False) -> Thread:
        audience = ThreadAudience(self._server)
        thread = Thread(self._server, store, audience, loaded, ephemeral=ephemeral)
        self._loaded[thread.id] = thread
        self._audiences[thread.id] = audience
        thread.on_rest = self._keep_warm
        return thread

    async def unload(self, thread: Thread) -> None:
        """End what runs in it and forget it; it stays in the store."""
        await thread.close()
        self.drop(thread)

    def drop(self, thread: Thread) -> None:
        """Forget a thread that could not be kept, or that has ended."""
        self._loaded.pop(thread.id, None)
        self._audiences.pop(thread.id, None)
        self._cool(thread.id)

    def subscribe(self, client: Client, thread: Thread) -> None:
        if not client.closed:
            self._audiences[thread.id].subscribers[client] = None

    def unsubscribe(self, client: Client, thread: Thread) -> bool:
        thread.used_at = time.monotonic()
        found = client in self._audiences[thread.id].subscribers
        self._audiences[thread.id].subscribers.pop(client, None)
        return found

    def is_subscribed(self, client: Client, thread_id: str) -> bool:
        audience = self._audiences.get(thread_id)
        return audience is not None and client in audience.subscribers

    def client_gone(self, client: Client) -> None:
        for thread_id, audience in self._audiences.items():
            if audience.subscribers.pop(client, 0) is None:
                self._loaded[thread_id].used_at = time.monotonic()

    def answered(self, client: Client, ask_id: int, answer: Raw | RpcError) -> None:
        """Only who was asked can answer."""
        for thread_id, thread in self._loaded.items():
            if ask_id in thread.asks and self.is_subscribed(client, thread_id):
                thread.answer(ask_id, answer)
                return

    def check_open(self) -> None:
        if self._server.draining:
            raise RpcError(INVALID_REQUEST, "the server is shutting down: no new turns")

    # --- memory ---

    def _keep_warm(self, thread: Thread) -> None:
        """Its history stays for the next turn, as long as others do not need the room."""
        self._cool(thread.id)
        if thread.history is not None and self._loaded.get(thread.id) is thread:
            size = thread.history.weight
            self._warm[thread.id] = (size, thread)
            self._warm_bytes += size
        while self._warm_bytes > KEPT_HISTORY_BYTES and len(self._warm) > 1:
            self._drop_history(next(iter(self._warm)))

    def _cool(self, thread_id: str) -> Thread | None:
        size, thread = self._warm.pop(thread_id, (0, None))
        self._warm_bytes -= size
        return thread

    def _drop_history(self, thread_id: str) -> None:
        thread = self._cool(thread_id)
        if thread is not None and thread.at_rest:  # else it is counted again when it rests
            thread.history = None

    def drop_histories(self, before: float) -> None:
        """Of threads that have not been used since `before`."""
        for thread_id in [thread_id for thread_id, (_, thread) in self._warm.items() if thread.used_at <= before]:
            self._drop_history(thread_id)

    async def _watch_idle(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            now = time.monotonic()
            self.drop_histories(now - KEPT_HISTORY_S)
            await self.unload_idle(now - IDLE_S)

    async def unload_idle(self, before: float) -> None:
        """Unload what nobody listens to and has not been used since `before`."""
        for thread in tuple(self._loaded.values()):
            if self._unused(thread, before):
                async with self.alone(thread.id), thread.lock:
                    if self._unused(thread, before):
                        await self._close_idle(thread)

    def _unused(self, thread: Thread, before: float) -> bool:
        audience = self._audiences.get(thread.id)
        return audience is not None and not audience.subscribers and thread.turn is None and thread.used_at <= before

    async def _close_idle(self, thread: Thread) -> None:
        await self.unload(thread)
        if thread.ephemeral:  # it is not found again, so nobody would ever remove it
            await thread.store.commit(thread.id, thread.journal.fence, [DeleteThread(thread.id)])
        thread.journal.announce("thread/closed", ThreadClosedNotification(thread_id=thread.id))
        status = ThreadStatusChangedNotification(thread_id=thread.id, status=NotLoadedThreadStatus())
        thread.journal.announce("thread/status/changed", status)

    async def wait_idle(self) -> None:
        """Until no turn runs that somebody could still bring to an end."""
        turns = {thread: thread.turn for thread in self._loaded.values() if thread.turn is not None}
        while going := [turn for thread, turn in turns.items() if thread.turn is turn and self._goes_on(thread)]:
            ends = [asyncio.ensure_future(turn.wait()) for turn in going]
            # A turn may come to wait for a client that has gone; that is looked for now and then.
            await asyncio.wait(ends, timeout=DRAIN_LOOK_S, return_when=asyncio.FIRST_COMPLETED)
            for end in ends:
                end.cancel()

    def _goes_on(self, thread: Thread) -> bool:
        """Whether its turn can come to an end: not when it waits for an answer, and nobody is there to give it."""
        return not thread.asks or bool(self._audiences[thread.id].subscribers)

    async def close(self) -> None:
        closing = [thread.close() for thread in self._loaded.values()]
        for outcome in await asyncio.gather(*closing, return_exceptions=True):
            if isinstance(outcome, Exception):
                logger.warning("a thread could not be closed in order: %s", outcome)


async def claim_stored(store: Store, thread_id: str) -> Loaded:
    """A thread that is not in memory, as it is, with the right to write it until `Release`: no other server works on
    it. Under `Threads.alone`."""
    try:
        claim = await store.claim(thread_id, -1)
    except StoreError as error:
        if error.kind == "missing":
            raise refusals.no_rollout(thread_id) from None
        raise
    assert claim.news is not None  # no thread has that fence
    return claim.news
