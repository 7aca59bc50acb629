"""Messages that wait for the turn of their thread to end: thread/queue/*. The server sends them, one turn each."""

from __future__ import annotations

from treadle.protocol.app.base import Empty, OrUnknown, Params, Unsigned32, Wire
from treadle.protocol.app.inputs import UserInput
from treadle.protocol.app.turns import Turn


class QueuedSubmission(Wire, frozen=True, kw_only=True):
    id: str
    client_user_message_id: str
    input: tuple[OrUnknown[UserInput], ...]


class ThreadQueueAddParams(Params, frozen=True, kw_only=True):
    thread_id: str
    client_user_message_id: str
    input: tuple[UserInput, ...]


class ThreadQueueAddResponse(Wire, frozen=True, kw_only=True):
    queued_submission: QueuedSubmission


class ThreadQueueListParams(Params, frozen=True, kw_only=True):
    thread_id: str
    cursor: str | None = None
    limit: Unsigned32 | None = None


class ThreadQueueListResponse(Wire, frozen=True, kw_only=True):
    data: tuple[QueuedSubmission, ...]
    next_cursor: str | None = None


class ThreadQueueUpdateParams(Params, frozen=True, kw_only=True):
    thread_id: str
    queued_submission_id: str
    input: tuple[UserInput, ...]


class ThreadQueueUpdateResponse(Wire, frozen=True, kw_only=True):
    queued_submission: QueuedSubmission


class ThreadQueueDeleteParams(Params, frozen=True, kw_only=True):
    thread_id: str
    queued_submission_id: str


class ThreadQueueDeleteResponse(Wire, frozen=True, kw_only=True):
    deleted: bool


class ThreadQueueReorderParams(Params, frozen=True, kw_only=True):
    """`queued_submission_ids` are all that wait, in their new order."""

    thread_id: str
    queued_submission_ids: tuple[str, ...]


ThreadQueueReorderResponse = Empty


class ThreadQueueStartParams(Params, frozen=True, kw_only=True):
    """Without an id the first one is sent."""

    thread_id: str
    queued_submission_id: str | None = None


class ThreadQueueStartResponse(Wire, frozen=True, kw_only=True):
    turn: Turn


class ThreadQueueChangedNotification(Wire, frozen=True, kw_only=True):
    thread_id: str
