"""Named groups of threads: thread/section/move and threadSection/*."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from treadle.protocol.app.base import Empty, Params, Unsigned32, Wire
from treadle.protocol.app.threads import ThreadSection, ThreadSectionAppearance


class ThreadSectionMoveParams(Params, frozen=True, kw_only=True):
    """A `section_id` of null takes the thread out of its section."""

    thread_id: str
    section_id: str | None
    before_thread_id: str | None = None


ThreadSectionMoveResponse = Empty


class ThreadSectionListParams(Params, frozen=True, kw_only=True):
    cursor: str | None = None
    limit: Unsigned32 | None = None


class ThreadSectionListResponse(Wire, frozen=True, kw_only=True):
    data: tuple[ThreadSection, ...]
    next_cursor: str | None = None


class ThreadSectionCreateParams(Params, frozen=True, kw_only=True):
    name: str
    appearance: ThreadSectionAppearance | None = None


class ThreadSectionCreateResponse(Wire, frozen=True, kw_only=True):
    section: ThreadSection


class ThreadSectionUpdateParams(Params, frozen=True, kw_only=True):
    """Without `appearance` it stays as it is, null clears it."""

    name: str
    section_id: str
    appearance: ThreadSectionAppearance | UnsetType | None = UNSET


class ThreadSectionUpdateResponse(Wire, frozen=True, kw_only=True):
    section: ThreadSection


class ThreadSectionDeleteParams(Params, frozen=True, kw_only=True):
    section_id: str


ThreadSectionDeleteResponse = Empty
