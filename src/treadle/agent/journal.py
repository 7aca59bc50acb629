"""`Journal`: the events of a thread, numbered, committed and then published.

Every change of a thread is an event. A numbered one is published only after it is committed, with everything that was
written along with it; a delta is not numbered and not stored, it follows the event before it. Order is total: what was
emitted first is published first, and the answer to a request has its place in that order too (`barrier`).

    emit, write ─▶ _writes, the batch that is being filled ─▶ Store.submit ─▶ _done ─▶ committed
    emit, append, after, barrier ─▶ _waiting, each with the batch that has to be committed before ─▶ published

One batch is under way at a time, and what comes meanwhile is the next: a busy store gets few large transactions. It is
submitted two steps of the loop after its first write, so that a task that was just started can add to it. For whoever
waits (`flush`) the next batch follows at once, and the store commits it only if the one before it was committed.

At a barrier publishing pauses for one step of the loop: the task that waits there runs first, and an answer that it
gives without awaiting again comes before the events that were emitted after the barrier.

When a batch fails, nothing of it or after it is published; `failure` is set, `on_failure` is called once, and every
emit raises the failure, until `reset`. A number that was published is one that is stored: after a failure the numbers
go on from the last of those, and what is published meanwhile has none.

The journal owns the numbers, the order, the batches and the claim under which they are written. It does not know who
listens, nor what the events mean.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from time import monotonic, time_ns
from typing import Final, TypeAlias

from msgspec import Struct

from treadle.agent.event import DeltaStream, Event, EventFrame, encode_frame
from treadle.store.contract import EventRecord, Loaded, Release, Store, StoreError, Write

# Deltas of one item are joined while more than this waits to be published: the store is behind then.
MERGE_BEYOND: Final = 32

Publish: TypeAlias = Callable[[Event], None]


class _Delta:
    __slots__ = ("seq", "stream", "texts")

    def __init__(self, stream: DeltaStream, text: str, seq: int) -> None:
        self.stream = stream
        self.texts = [text]
        self.seq = seq


_Entry: TypeAlias = Event | _Delta | asyncio.Future[None] | Callable[[], None]


class Journal:
    def __init__(
        self,
        thread_id: str,
        store: Store,
        publish: Publish,
        *,
        seq: int = 0,
        fence: int = 0,
        on_failure: Callable[[], None] = lambda: None,
    ) -> None:
        self.thread_id = thread_id
        self.seq: int = seq
        self.fence: int = fence  # of the last claim that is known
        self.failure: StoreError | None = None
        self._store = store
        self._publish = publish
        self._on_failure = on_failure
        self._waiting: deque[tuple[int, _Entry]] = deque()  # with the batch that has to be committed before
        self._writes: list[Write] = []
        self._batch = 0  # the one that is being filled
        self._committed = -1
        self._under_way = 0  # batches that were submitted and not answered for
        self._claiming = False
        self._scheduled = False
        self._pausing = False  # the task that waited at a barrier has not had its step yet
        self._committed_seq = seq
        self._submitted_seq = seq

    # --- adding ---

    def emit(self, method: str, params: Struct, *writes: Write) -> Event:
        """Add a numbered event, and what has to be stored along with it."""
        self._check()
        self.seq += 1
        now = time_ns() // 1_000_000
        frame = encode_frame(EventFrame(method, params, now, self.seq))
        event = Event(method, params, self.seq, now, frame)
        self._writes += writes
        self._writes.append(EventRecord(self.thread_id, self.seq, frame))
        self._add(event)
        self._schedule()
        return event

    def append(self, stream: DeltaStream, text: str) -> None:
        """Add a delta."""
        if self.failure is not None:
            return  # the next numbered event says so
        if len(self._waiting) > MERGE_BEYOND:
            last = self._waiting[-1][1]
            if isinstance(last, _Delta) and last.stream is stream:
                last.texts.append(text)
                return
        if self._waiting or self._pausing:
            self._add(_Delta(stream, text, self.seq))
        else:
            self._publish_delta(stream, text, self.seq)

    def write(self, *writes: Write) -> None:
        """Store something that is not published."""
        self._check()
        self._writes += writes
        self._schedule()

    def after(self, action: Callable[[], None]) -> None:
        """Run `action` when everything so far is committed and published; after a failure at once."""
        if self.failure is None and (self.busy or self._pausing):
            self._add(action)
        else:
            action()

    def barrier(self) -> asyncio.Future[None]:
        """The present place in the order, to be awaited with `wait_for`: it is reached when everything before it is
        committed and published."""
        barrier: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.resolve_in_order(barrier)
        return barrier

    def resolve_in_order(self, barrier: asyncio.Future[None]) -> None:
        """Make a future that somebody awaits already the barrier of the present place in the order."""
        if self.failure is not None:
            _set(barrier)
        elif self.busy or self._pausing:
            self._add(barrier)
        else:
            self._pause_for(barrier)

    async def wait_for(self, barrier: asyncio.Future[None]) -> None:
        """Raises `StoreError` when what was before the barrier could not be committed."""
        await barrier
        self._check()

    async def flush(self) -> None:
        """Wait until everything so far is committed and published. Raises `StoreError`."""
        barrier = self.barrier()
        # At once, also behind a batch that is under way: whoever waits has nothing to add, and the store sees by the
        # numbers whether the batch before was committed.
        if not self._under_way or (self._under_way == 1 and self._submitted_seq > self._committed_seq):
            self._submit_batch()
        await self.wait_for(barrier)

    def publish_unnumbered(self, method: str, params: Struct) -> None:
        """Publish something now that is not stored, and so has no number: failures of the store itself, say."""
        self._publish(Event(method, params, None, time_ns() // 1_000_000))

    # --- the right to write ---

    async def claim(self) -> Loaded | None:
        """Claim the thread; what it is now, None when it is as we left it. Raises `StoreError`.

        What is written meanwhile waits for it, as for any batch, and is dropped when somebody else has written.
        """
        while self.busy:
            await self.flush()
        self._claiming = True
        try:
            claim = await self._store.claim(self.thread_id, self.fence if self.failure is None else -1)
            if claim.news is not None:
                self._drop_waiting()
                self.reset(claim.news)
            self.fence = claim.fence
        finally:
            self._claiming = False
            self._submit()
            self._publish_committed()
        return claim.news

    def release(self) -> None:
        if self.failure is None:
            self.write(Release(self.thread_id))
        else:
            # Beside the batches, which are broken. Where this fails too, the next claim of ours or our end releases it.
            self._store.submit(self.thread_id, self.fence, [Release(self.thread_id)], lambda _: None)

    @property
    def is_stale(self) -> bool:
        """Whether another server has taken the thread over while this one believed to have it."""
        return self.failure is not None and self.failure.kind == "stale"

    def reset(self, loaded: Loaded) -> None:
        """Begin again after what the store has."""
        self.failure = None
        self.fence = loaded.fence
        self.seq = self._committed_seq = self._submitted_seq = loaded.counters.seq

    @property
    def busy(self) -> bool:
        """Whether something is still to be committed or published."""
        return bool(self._waiting or self._writes or self._under_way or self._claiming)

    # --- inside ---

    def _check(self) -> None:
        if self.failure is not None:
            raise self.failure

    def _add(self, entry: _Entry) -> None:
        # Without writes it waits for the batch before, which is committed already when nothing is under way.
        self._waiting.append((self._batch if self._writes else self._batch - 1, entry))

    def _schedule(self) -> None:
        if not (self._scheduled or self._under_way or self._claiming):
            self._scheduled = True
            # Not in the next step of the loop but in the one after it: what a task that was just started has to add
            # belongs into the same batch.
            loop = asyncio.get_running_loop()
            loop.call_soon(loop.call_soon, self._submit)

    def _submit(self) -> None:
        """Submit the batch, when nothing is under way."""
        self._scheduled = False
        if not self._under_way:
            self._submit_batch()

    def _submit_batch(self) -> None:
        if self._claiming or not self._writes:
            return
        writes, self._writes = self._writes, []
        done = partial(self._done, self._batch, self.seq)
        after_seq, self._submitted_seq = self._submitted_seq, self.seq
        self._batch += 1
        self._under_way += 1
        self._store.submit(self.thread_id, self.fence, writes, done, after_seq)

    def _done(self, batch: int, seq: int, error: StoreError | None) -> None:
        if batch <= self._committed:  # dropped with the one before it
            return
        self._under_way -= 1
        if error is not None:
            self.failure = error
            self._under_way = 0
            self.seq = self._committed_seq
            self._drop_waiting()
            self._on_failure()
            return
        self._committed = batch
        self._committed_seq = seq
        self._submit()
        self._publish_committed()

    def _publish_committed(self) -> None:
        while self._waiting and not self._pausing and self._waiting[0][0] <= self._committed:
            _, entry = self._waiting.popleft()
            if isinstance(entry, Event):
                self._publish(entry)
            elif isinstance(entry, _Delta):
                self._publish_delta(entry.stream, "".join(entry.texts), entry.seq)
            elif isinstance(entry, asyncio.Future):
                self._pause_for(entry)
            else:
                entry()

    def _publish_delta(self, stream: DeltaStream, text: str, seq: int) -> None:
        # Nothing of it is committed, so no fence would stop it: where another server may have taken the thread over by
        # now, it could come behind that server's events.
        if monotonic() < self._store.held_until:
            self._publish(Event(stream.method, stream.params(delta=text), seq, time_ns() // 1_000_000))

    def _pause_for(self, barrier: asyncio.Future[None]) -> None:
        if barrier.done():  # whoever waited was cancelled
            return

        def go_on() -> None:
            self._pausing = False
            self._publish_committed()

        self._pausing = True
        barrier.set_result(None)  # which schedules the step of the task that waits, before ours
        asyncio.get_running_loop().call_soon(go_on)

    def _drop_waiting(self) -> None:
        """Nothing that waits is committed or published any more; barriers are reached, and actions run, now."""
        self._writes.clear()
        self._committed = self._batch - 1
        waiting, self._waiting = self._waiting, deque()
        for _, entry in waiting:
            if isinstance(entry, asyncio.Future):
                _set(entry)
            elif not isinstance(entry, Event | _Delta):
                entry()


def _set(done: asyncio.Future[None]) -> None:
    if not done.done():
        done.set_result(None)
