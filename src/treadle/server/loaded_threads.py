"""`LoadedThreads`: the threads that are in memory, who subscribes to them, and when they go."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Raw

from treadle.agent.event import Event, now_ms
from treadle.agent.thread.client_requests import Answer, ClientRequest
from treadle.agent.thread.stored_thread import StoredThread
from treadle.agent.thread.thread_handle import ThreadHandle
from treadle.agent.thread.thread_refusals import not_loaded, thread_not_found
from treadle.errors import INVALID_REQUEST, RpcError, TreadleError
from treadle.logs import audit
from treadle.logs.metrics import Gauge
from treadle.logs.trace import outside
from treadle.protocol.app.notifications import ThreadDeletedNotification
from treadle.server.clients import Client
from treadle.server.routes import check_thread_id
from treadle.store.contract import Store

if TYPE_CHECKING:
    from treadle.agent.turn.turn_items import OpenItems
    from treadle.server.app import AppServer

logger: logging.Logger = logging.getLogger(__name__)

# A thread without subscribers is unloaded after this long. One that is stored nowhere cannot be resumed, so there is
# nothing to wait for but a turn whose client comes back. Looked at several times a minute.
IDLE_S: Final = 30 * 60.0
EPHEMERAL_IDLE_S: Final = 60.0
LOOK_S: Final = 15.0
DRAIN_LOOK_S: Final = 0.2
RETAIN_S: Final = 3600.0
# Histories of idle threads that stay in memory for their next turn: the last ones used, together at most this much, and
# none for longer than this. To read one again takes milliseconds.
KEPT_HISTORY_BYTES: Final = 16 << 20
KEPT_HISTORY_S: Final = 5 * 60.0
# News that goes to every client; the rest goes to those that have subscribed to the thread.
BROADCAST: Final = frozenset(
    {
        "thread/started",
        "thread/status/changed",
        "thread/archived",
        "thread/unarchived",
        "thread/deleted",
        "thread/name/updated",
        "thread/closed",
    }
)


class ThreadSubscribers:
    """Fan-out: the clients that follow one thread. They may change at any time: what is published next goes to whoever
    is there then."""

    __slots__ = ("_server", "clients")

    def __init__(self, server: AppServer) -> None:
        self._server = server
        self.clients: dict[Client, None] = {}

    def publish(self, event: Event) -> None:
        clients = self._server.clients if event.method in BROADCAST else self.clients
        for client in tuple(clients):
            client.notify(event)

    def ask(self, request: ClientRequest) -> None:
        for client in tuple(self.clients):
            if client.may_answer(request):
                client.send_request(request)

    @property
    def can_ask(self) -> bool:
        return any(not client.closed and not client.workarounds.says_yes for client in self.clients)

    async def wait_for_room(self) -> None:
        while any(client.congested and client.must_not_lose for client in self.clients):
            await self._server.wait_until_writable()
        # A burst of deltas must not keep everyone else from being served.
        await asyncio.sleep(0)


def decision_in(answer: Raw) -> str:
    """What an answer decides; it may also be a text that somebody has written, which is nobody else's business."""
    try:
        return str(msgspec.json.decode(answer)["decision"])
    except (msgspec.DecodeError, KeyError, TypeError):
        return "an answer"


def _remove(groups: dict[str, dict[str, None]], name: str, member: str) -> None:
    group = groups.get(name, {})
    group.pop(member, None)
    if not group:
        groups.pop(name, None)


class LoadedThreads:
    def __init__(self, server: AppServer) -> None:
        self._server = server
        self._loaded: dict[str, ThreadHandle] = {}
        self._subscribers: dict[str, ThreadSubscribers] = {}
        self._children: dict[str, dict[str, None]] = {}  # of sub-agents: those of each parent
        self._sessions: dict[str, dict[str, None]] = {}  # those of each session
        self._locks: dict[str, tuple[asyncio.Lock, int]] = {}  # of threads that are being loaded, with the users
        self._leaving: list[list[str]] = []  # threads that are being archived or deleted
        self._warm: OrderedDict[str, int] = OrderedDict()  # threads with a history, with the size that was counted
        self._warm_bytes = 0
        server.tasks.start(self._unload_in_time(), "unloading idle threads", context=outside())

    def ids(self) -> list[str]:
        return list(self._loaded)

    def get(self, thread_id: str) -> ThreadHandle | None:
        return self._loaded.get(thread_id)

    def find(self, thread_id: str) -> ThreadHandle:
        """A thread in memory; raises the error of turn/* for one that is not."""
        thread = self._loaded.get(thread_id) or self._loaded.get(check_thread_id(thread_id))
        if thread is None:
            raise thread_not_found(thread_id)
        return thread

    async def find_or_stored(self, thread_id: str) -> ThreadHandle | StoredThread:
        return self._loaded.get(thread_id) or StoredThread(await self._server.store(), thread_id)

    async def store_of(self, thread_id: str) -> Store:
        """The store of a thread, loaded or not, with everything that was emitted so far."""
        thread = self._loaded.get(thread_id)
        if thread is not None:
            return await thread.reading_store()
        store = await self._server.store()
        if await store.load(thread_id) is None:
            raise not_loaded(thread_id)
        return store

    def running_items(self, thread_id: str) -> OpenItems:
        """Items of commands that run now, also of turns that are over."""
        thread = self._loaded.get(thread_id)
        return {} if thread is None else thread.running_items

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

    @contextmanager
    def leaving(self, ids: list[str]) -> Iterator[None]:
        """Whatever sub-agents of theirs still come to an end, these threads are not loaded for it any more. More may be
        added to the list."""
        self._leaving.append(ids)
        try:
            yield
        finally:
            self._leaving = [each for each in self._leaving if each is not ids]

    def is_leaving(self, thread_id: str) -> bool:
        return any(thread_id in ids for ids in self._leaving)

    def check_open(self) -> None:
        if self._server.draining:
            raise RpcError(INVALID_REQUEST, "the server is shutting down: no new turns")

    # --- coming and going ---

    def add(self, thread: ThreadHandle, subscribers: ThreadSubscribers) -> None:
        self._loaded[thread.id] = thread
        thread.mark_loaded(True)
        self._subscribers[thread.id] = subscribers
        if thread.parent_id is not None:
            self._children.setdefault(thread.parent_id, {})[thread.id] = None
            self._sessions.setdefault(thread.session_id, {})[thread.id] = None
            if (parents := self._subscribers.get(thread.parent_id)) is not None:
                subscribers.clients |= parents.clients
        thread.on_idle(partial(self._keep_warm, thread))
        logger.info("thread loaded", {"thread": thread.id, "loaded": len(self._loaded)})

    def drop(self, thread: ThreadHandle) -> None:
        """Forget a thread that could not be stored, or that has ended."""
        if self._loaded.pop(thread.id, None) is not None:
            thread.mark_loaded(False)
            logger.info("thread unloaded", {"thread": thread.id, "loaded": len(self._loaded)})
        self._subscribers.pop(thread.id, None)
        if thread.parent_id is not None:
            _remove(self._children, thread.parent_id, thread.id)
            _remove(self._sessions, thread.session_id, thread.id)
        self._cool(thread.id)

    async def unload(self, thread_id: str) -> Store:
        """Unload a thread if it is loaded; returns its store. Under `alone`."""
        thread = self._loaded.get(thread_id)
        if thread is None:
            return await self._server.store()
        try:
            return await thread.unload()
        finally:
            if thread.is_closed:
                self.drop(thread)

    # --- sub-agents ---

    def below(self, thread_id: str) -> list[str]:
        """The sub-agents of a thread that are in memory, and theirs."""
        found: list[str] = []
        for child in self._children.get(thread_id, ()):
            found += (child, *self.below(child))
        return found

    def _works_below(self, thread_id: str) -> bool:
        return any(self._loaded[each].turn_id is not None for each in self.below(thread_id))

    def running_in(self, session_id: str) -> set[str]:
        """The sub-agents of a session that work now."""
        return {child for child in self._sessions.get(session_id, ()) if self._loaded[child].turn_id is not None}

    # --- subscribers ---

    def subscribe(self, client: Client, thread: ThreadHandle) -> None:
        """Who follows a thread follows its sub-agents."""
        for thread_id in (thread.id, *self.below(thread.id)):
            if not client.closed and thread_id in self._subscribers:
                self._subscribers[thread_id].clients[client] = None

    def unsubscribe(self, client: Client, thread: ThreadHandle) -> bool:
        """Whether it had subscribed."""
        found = client in self._subscribers[thread.id].clients
        for thread_id in (thread.id, *self.below(thread.id)):
            self._loaded[thread_id].touch()
            self._subscribers[thread_id].clients.pop(client, None)
        return found

    def client_gone(self, client: Client) -> None:
        for thread_id, subscribers in self._subscribers.items():
            if subscribers.clients.pop(client, 0) is None:
                self._loaded[thread_id].touch()

    def answered(self, client: Client, request_id: int, answer: Answer) -> None:
        """Only a client that was asked can answer."""
        for thread_id, thread in self._loaded.items():
            if thread.has_asked(request_id) and client in self._subscribers[thread_id].clients:
                if audit.log is not None:
                    said = "an error" if isinstance(answer, RpcError) else decision_in(answer)
                    who = {"client": client.number, "name": client.name, "thread": thread_id, "question": request_id}
                    try:
                        audit.log.record("question answered", {**who, "answer": said})
                    except audit.AuditFailed as error:
                        answer = RpcError(INVALID_REQUEST, str(error))  # which is no yes
                thread.answer(request_id, answer)
                return

    def gauges(self) -> Iterator[Gauge]:
        """What is true of the threads now."""
        threads = tuple(self._loaded.values())
        running = [thread for thread in threads if thread.turn_id is not None]
        waiting = sum(thread.waits_for_answer for thread in running)
        yield Gauge("treadle_threads_loaded", "Threads in memory.", len(threads))
        yield Gauge("treadle_turns_running", "Turns that run, those that wait for an answer included.", len(running))
        yield Gauge("treadle_turns_waiting", "Turns that wait for an approval or an answer.", waiting)
        queued = sum(thread.has_queue for thread in threads)
        yield Gauge("treadle_threads_queued", "Threads in memory whose queue has messages.", queued)

    # --- memory ---

    def _keep_warm(self, thread: ThreadHandle) -> None:
        """The history of a thread stays for the next turn, as long as others do not need the memory."""
        self._cool(thread.id)
        weight = thread.history_weight
        if weight is not None and self._loaded.get(thread.id) is thread:
            self._warm[thread.id] = weight
            self._warm_bytes += weight
        while self._warm_bytes > KEPT_HISTORY_BYTES and len(self._warm) > 1:
            self._drop_history(next(iter(self._warm)))

    def _cool(self, thread_id: str) -> None:
        self._warm_bytes -= self._warm.pop(thread_id, 0)

    def _drop_history(self, thread_id: str) -> None:
        self._cool(thread_id)
        self._loaded[thread_id].drop_history()  # if it is in use, it is counted again when it rests

    def drop_histories(self, before: float) -> None:
        """Drop the histories of threads that have not been used since `before`."""
        for thread_id in [thread_id for thread_id in self._warm if self._loaded[thread_id].used_at <= before]:
            self._drop_history(thread_id)

    async def _unload_in_time(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            now = time.monotonic()
            self.drop_histories(now - KEPT_HISTORY_S)
            await self.unload_idle(now - IDLE_S, now - EPHEMERAL_IDLE_S)

    async def unload_idle(self, kept_before: float, ephemeral_before: float | None = None) -> None:
        """Unload what nobody subscribes to and has not been used since, each kind of thread after its own time.

        A thread stays while a sub-agent of it works: its limits and its interrupts are for that one too.
        """
        for thread in tuple(self._loaded.values()):
            before = kept_before if ephemeral_before is None or not thread.ephemeral else ephemeral_before
            if not self._unsubscribed(thread) or thread.used_at > before:
                continue
            async with self.alone(thread.id), thread.idle_since(before) as is_idle:
                if is_idle and self._unsubscribed(thread) and not self._works_below(thread.id):
                    try:
                        await thread.close_idle()
                    finally:
                        self.drop(thread)

    def _unsubscribed(self, thread: ThreadHandle) -> bool:
        subscribers = self._subscribers.get(thread.id)
        return subscribers is not None and not subscribers.clients

    async def retain(self) -> None:
        """Delete what is stored no longer by the settings, now and every hour."""
        while True:
            try:
                days = self._server.latest_config.retention.max_age_days
                if days is not None:
                    await self._delete_unused(days)
            except TreadleError as error:  # the settings or the store cannot be used: perhaps in an hour
                logger.warning("old threads could not be deleted: %s", error)
            await asyncio.sleep(RETAIN_S)

    async def _delete_unused(self, days: int) -> None:
        before = now_ms() - days * 86_400_000
        store = await self._server.store()
        deleted = 0
        for each in await store.unused(before):
            if audit.log is not None:
                audit.log.record("retention", {"thread": each.id, "days": days})
            if await store.delete_unused(each.id, before):
                deleted += 1
                gone = ThreadDeletedNotification(thread_id=each.id)
                self._server.broadcast(Event("thread/deleted", gone, None, now_ms()))
        if deleted:
            logger.warning("threads were deleted, which nobody has used", {"threads": deleted, "days": days})
            from treadle.agent.thread.file_undo import forget_missing  # few threads are deleted

            await forget_missing(self._server.home, store)
            await store.shrink()

    # --- the end ---

    async def wait_idle(self) -> None:
        """Until none of the turns that run now still does, except those that nobody could bring to an end.

        A thread with a goal starts its next turn by itself: that one is not waited for.
        """
        turns = {thread: thread.turn_id for thread in self._loaded.values() if thread.turn_id is not None}
        while going := [thread for thread, turn in turns.items() if thread.turn_id == turn and self._goes_on(thread)]:
            ends = [asyncio.ensure_future(thread.wait_turn()) for thread in going]
            # A turn may come to wait for a client that has gone; that is looked for now and then.
            await asyncio.wait(ends, timeout=DRAIN_LOOK_S, return_when=asyncio.FIRST_COMPLETED)
            for end in ends:
                end.cancel()

    def going_on(self) -> list[ThreadHandle]:
        """Threads with a turn that can come to an end."""
        return [thread for thread in self._loaded.values() if thread.turn_id is not None and self._goes_on(thread)]

    def _goes_on(self, thread: ThreadHandle) -> bool:
        """Whether its turn can come to an end: not when it waits for an answer, and nobody is there to give it."""
        return not thread.waits_for_answer or not self._unsubscribed(thread)

    async def close(self) -> None:
        closing = [thread.close() for thread in self._loaded.values()]
        for outcome in await asyncio.gather(*closing, return_exceptions=True):
            if isinstance(outcome, Exception):
                logger.warning("a thread could not be closed in order: %s", outcome)
