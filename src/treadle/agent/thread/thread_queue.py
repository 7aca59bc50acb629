"""The queue of a thread: messages that wait for a turn of their own.

It owns what a queue may hold and how it changes; the messages themselves are in the store, also while nobody has the
thread in memory. When one is sent, and that it is sent once, is the business of `turn_start` and `PendingInput`: it
leaves the queue in the same transaction that puts it into its turn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

import msgspec

from treadle.agent.event import new_id
from treadle.agent.turn.pending_input import Input, check_input
from treadle.errors import INVALID_REQUEST, RpcError
from treadle.protocol.app.base import Unknown, decode, encode
from treadle.protocol.app.item_parts import UserInput
from treadle.protocol.app.thread_methods import (
    QueuedSubmission,
    ThreadQueueAddParams,
    ThreadQueueChangedNotification,
    ThreadQueueDeleteParams,
    ThreadQueueReorderParams,
    ThreadQueueUpdateParams,
)
from treadle.store.contract import DropQueued, QueuedRecord, Write, damaged

if TYPE_CHECKING:
    from treadle.agent.thread.thread import Thread

# As many as the real server takes. Each may be as large as a message can be.
MAX_QUEUED: Final = 100

T = TypeVar("T")
# From what waits to the answer, and what is to be written.
QueueChange: TypeAlias = Callable[[Sequence[QueuedRecord]], tuple[T, list[Write]]]


def added(
    params: ThreadQueueAddParams, thread_id: str, waiting: Sequence[QueuedRecord]
) -> tuple[QueuedSubmission, list[Write]]:
    _check(params.input)
    if len(waiting) >= MAX_QUEUED:
        text = f"queue cannot contain more than {MAX_QUEUED} submissions: wait until one was sent, or delete one"
        raise RpcError(INVALID_REQUEST, text)
    submission = QueuedSubmission(id=new_id(), client_user_message_id=params.client_user_message_id, input=params.input)
    position = waiting[-1].position + 1 if waiting else 1
    return submission, [QueuedRecord(thread_id, submission.id, position, encode(submission))]


def updated(params: ThreadQueueUpdateParams, waiting: Sequence[QueuedRecord]) -> tuple[QueuedSubmission, list[Write]]:
    _check(params.input)
    record = find(waiting, params.queued_submission_id)
    submission = msgspec.structs.replace(submission_of(record), input=params.input)
    return submission, [msgspec.structs.replace(record, data=encode(submission))]


def deleted(params: ThreadQueueDeleteParams, waiting: Sequence[QueuedRecord]) -> tuple[bool, list[Write]]:
    """Whether it was there."""
    found = [record for record in waiting if record.id == params.queued_submission_id]
    return bool(found), [DropQueued(record.thread_id, record.id) for record in found]


def reordered(params: ThreadQueueReorderParams, waiting: Sequence[QueuedRecord]) -> tuple[None, list[Write]]:
    by_id = {record.id: record for record in waiting}
    wanted = params.queued_submission_ids
    if len(wanted) != len(by_id) or set(wanted) != by_id.keys():
        raise RpcError(INVALID_REQUEST, "queue reorder must include every queued submission exactly once")
    writes = [msgspec.structs.replace(by_id[name], position=place) for place, name in enumerate(wanted, 1)]
    return None, [*writes]


def find(waiting: Sequence[QueuedRecord], queued_id: str | None) -> QueuedRecord:
    """The one with this id, or the first."""
    if queued_id is None:
        if not waiting:
            raise RpcError(INVALID_REQUEST, "queue is empty")
        return waiting[0]
    for record in waiting:
        if record.id == queued_id:
            return record
    raise RpcError(INVALID_REQUEST, f"queued submission not found: {queued_id[:200]}")


def _check(parts: Sequence[UserInput]) -> None:
    if not parts:
        raise RpcError(INVALID_REQUEST, "only user input can be added to the user-message queue")
    check_input(parts)


# --- what waits ------------------------------------------------------------------------------------------------------


def submission_of(record: QueuedRecord, location: str | None = None) -> QueuedSubmission:
    try:
        return decode(record.data, QueuedSubmission)
    except msgspec.DecodeError:
        raise damaged(f"a queued message of thread {record.thread_id} cannot be read", location) from None


def input_of(record: QueuedRecord, location: str | None) -> Input:
    """What a turn is given."""
    submission = submission_of(record, location)
    known = tuple(part for part in submission.input if not isinstance(part, Unknown))
    return Input(known, submission.client_user_message_id, queued_id=record.id)


class ThreadQueue:
    """The queue of a thread that is in memory."""

    __slots__ = ("_thread",)

    def __init__(self, thread: Thread) -> None:
        self._thread = thread

    async def waiting(self) -> list[QueuedRecord]:
        """The messages that wait, the next one first. Under the thread's lock. One that a turn has and has not shown
        yet is still in the store, and waits no longer."""
        thread = self._thread
        taken = frozenset[str]() if thread.turn is None else thread.turn.input.queued_ids
        if thread.journal.busy:
            await thread.journal.flush()
        return [record for record in await thread.store.queue(thread.id) if record.id not in taken]

    def publish_changed(self) -> None:
        params = ThreadQueueChangedNotification(thread_id=self._thread.id)
        self._thread.journal.emit("thread/queue/changed", params)
