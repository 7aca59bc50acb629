"""What we have beyond the Codex protocol: methods of our own about threads, and what we add to its results."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta, Raw

from treadle.protocol.app.base import Params, Wire
from treadle.protocol.app.items import ThreadItem
from treadle.protocol.app.thread_methods import ThreadResumeResponse

MAX_EVENTS: Final = 1_000


class OurResumeResponse(ThreadResumeResponse, frozen=True, kw_only=True):
    """`seq` is the number of the last event that is in the response: the next one follows it."""

    seq: int


class ThreadEventsListParams(Params, frozen=True, kw_only=True):
    thread_id: str
    after_seq: Annotated[int, Meta(ge=0)] = 0
    limit: Annotated[int, Meta(ge=1, le=MAX_EVENTS)] = 200


class ThreadEventsListResponse(Wire, frozen=True, kw_only=True):
    """`data` are whole notifications, oldest first. `first_seq` is the oldest that is still there: when it is greater
    than `afterSeq` + 1 the ones between are gone, and the thread has to be read anew. `open_items` are the items under
    way when `data` reaches to the end: what they have so far; the deltas that follow this response continue them."""

    data: tuple[Raw, ...]
    first_seq: int
    last_seq: int
    has_more: bool
    open_items: tuple[ThreadItem, ...] = ()


class MessageSearchParams(Params, frozen=True, kw_only=True):
    search_term: Annotated[str, Meta(min_length=1, max_length=1000)]
    limit: Annotated[int, Meta(ge=1, le=100)] = 20


class MessageSearchHit(Wire, frozen=True, kw_only=True):
    thread_id: str
    item_id: str
    snippet: str


class MessageSearchResponse(Wire, frozen=True, kw_only=True):
    data: tuple[MessageSearchHit, ...]
