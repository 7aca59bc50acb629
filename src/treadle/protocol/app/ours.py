"""What we have beyond the Codex protocol: methods of our own about threads and prompts of MCP servers, and what we add
to its results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final

from msgspec import Meta, Raw

from treadle.protocol.app.base import Params, Wire
from treadle.protocol.app.item_parts import UserInput
from treadle.protocol.app.items import ThreadItem
from treadle.protocol.app.thread_methods import ThreadResumeResponse

MAX_EVENTS: Final = 1_000


class OurResumeResponse(ThreadResumeResponse, frozen=True, kw_only=True):
    """`seq` is the number of the last event that is in the response: the next one follows it, as long as the `epoch` is
    the same."""

    seq: int
    epoch: str


class ThreadEventsListParams(Params, frozen=True, kw_only=True):
    thread_id: str
    after_seq: Annotated[int, Meta(ge=0)] = 0
    epoch: str | None = None
    """Of the response that `afterSeq` is from: in another epoch the numbers may be those of other events."""
    limit: Annotated[int, Meta(ge=1, le=MAX_EVENTS)] = 200


class ThreadEventsListResponse(Wire, frozen=True, kw_only=True):
    """`data` are whole notifications, oldest first. `first_seq` is the oldest that is still there: when it is greater
    than `afterSeq` + 1 the ones between are gone, and the thread has to be read anew. `open_items` are the items under
    way when `data` reaches to the end: what they have so far; the deltas that follow this response continue them."""

    data: tuple[Raw, ...]
    first_seq: int
    last_seq: int
    has_more: bool
    epoch: str
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


class McpPromptArgument(Wire, frozen=True, kw_only=True):
    name: str
    description: str | None = None
    required: bool | None = None


class McpPrompt(Wire, frozen=True, kw_only=True):
    """A prompt that an MCP server has, as it describes it; `server` is the name of the server in the settings."""

    server: str = ""
    name: str
    title: str | None = None
    description: str | None = None
    arguments: tuple[McpPromptArgument, ...] | None = None


class McpServerPromptListParams(Params, frozen=True, kw_only=True):
    thread_id: str
    cursor: str | None = None
    limit: int | None = None


class McpServerPromptListResponse(Wire, frozen=True, kw_only=True):
    data: tuple[McpPrompt, ...]
    next_cursor: str | None = None


class McpServerPromptGetParams(Params, frozen=True, kw_only=True):
    thread_id: str
    server: str
    name: str
    arguments: Mapping[str, str] = {}


class McpServerPromptGetResponse(Wire, frozen=True, kw_only=True):
    """`input` is what the prompt says, ready for `turn/start`."""

    description: str | None = None
    input: tuple[UserInput, ...]
