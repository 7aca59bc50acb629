"""What a model is to the rest of Treadle: a request goes in; a stream of events, or a `ModelError`, comes out.

It owns these types and no behaviour. It knows nothing of threads or tools, or of how a provider is reached.

    async with model.stream(request) as events:
        async for event in events: ...
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from types import TracebackType
from typing import Final, Literal, Protocol, Self, TypeAlias

from msgspec import Raw, Struct

from treadle.errors import TreadleError
from treadle.llm.output_items import OutputItem

# JSON that is passed on without a look inside: as an object, or as its bytes, which are not encoded again.
JsonObject: TypeAlias = Mapping[str, object] | Raw


class ModelRequest(Struct, frozen=True, kw_only=True):
    """`input` holds items of the Responses API, oldest first. `headers` describe the caller (`session-id`,
    `user-agent`, …); credentials come from the provider. `max_output_tokens` is the user's limit for a response; None
    means as much as the model can write. `retried` means that it failed a moment ago after silent retries, so it gets
    no more of those. `service_tier` is a word of the Responses API, and left out by the others. Requests with the same
    `fair_key` share one place where many wait for a provider; `on_wait` is called at most once, when this one has to
    wait.
    """

    model: str
    input: Sequence[JsonObject]
    instructions: str | None = None
    tools: Sequence[JsonObject] = ()
    parallel_tool_calls: bool = True
    reasoning_effort: str | None = None
    reasoning_summary: str | None = "auto"
    output_schema: JsonObject | None = None
    max_output_tokens: int | None = None
    prompt_cache_key: str | None = None
    client_metadata: Mapping[str, str] | None = None
    headers: Mapping[str, str] | None = None
    service_tier: str | None = None
    retried: bool = False
    fair_key: str | None = None
    on_wait: Callable[[Waiting], None] | None = None


class Waiting(Struct, frozen=True):
    """A request that waits for its provider: why, and how many are waiting."""

    provider: str
    why: str
    waiting: int


class TokenUsage(Struct, frozen=True, kw_only=True):
    """The tokens of one response. Cached, cache-written and reasoning tokens are included in the others."""

    input_tokens: int = 0
    cached_input_tokens: int = 0
    cache_write_input_tokens: int = 0
    output_tokens: int = 0
    reasoning_output_tokens: int = 0
    total_tokens: int = 0


# --- events ----------------------------------------------------------------------------------------------------------
# Every model keeps this order: each `ItemDone` has its `ItemStarted` before it, a delta belongs to an item that is
# started and not done, and `Completed` is the last event. What does not fit is an `UnknownEvent`.


class Created(Struct, frozen=True):
    response_id: str


class ItemStarted(Struct, frozen=True):
    item: OutputItem


class TextDelta(Struct, frozen=True):
    item_id: str
    delta: str


class ReasoningSummaryPart(Struct, frozen=True):
    item_id: str
    index: int


class ReasoningSummaryDelta(Struct, frozen=True):
    item_id: str
    index: int
    delta: str


class ReasoningDelta(Struct, frozen=True):
    item_id: str
    index: int
    delta: str


class ToolInputDelta(Struct, frozen=True):
    """Arguments of a function call, or input of a custom tool, as the model writes them."""

    item_id: str
    delta: str


class ItemDone(Struct, frozen=True):
    item: OutputItem


class Completed(Struct, frozen=True):
    """`usage` is None if the provider did not report it. Items still open will never be done. `paused`: the model
    stopped early and continues when it is sent the conversation so far.
    """

    response_id: str
    usage: TokenUsage | None = None
    paused: bool = False


class UnknownEvent(Struct, frozen=True):
    """`data` is the raw event, usually JSON."""

    type: str
    data: str


ModelEvent: TypeAlias = (
    Created
    | ItemStarted
    | TextDelta
    | ReasoningSummaryPart
    | ReasoningSummaryDelta
    | ReasoningDelta
    | ToolInputDelta
    | ItemDone
    | Completed
    | UnknownEvent
)


# --- failure ---------------------------------------------------------------------------------------------------------

ErrorKind: TypeAlias = Literal[
    "absent",  # nobody is there: connections are refused, the name is not known, there is no network
    "unreachable",  # no response, for another reason
    "untrusted",  # TLS does not let us
    "redirected",  # the server is somewhere else
    "unreadable",  # the response is in a form that is not read here
    "cut",  # the response broke off
    "incomplete",  # the model stopped before it was done
    "server_failed",
    "overloaded",
    "rate_limited",
    "quota",  # used up, or not in the plan
    "unauthorized",  # there is no key, or it is not accepted
    "forbidden",
    "not_found",  # the model, or the path
    "refused",  # the request is not one that the server takes
    "context_too_long",
    "policy",  # refused for what it is about
    "other",
]


MAX_ASKED_S: Final = 120.0
"""A provider that asks to wait for longer is not asked again: whoever waits for the turn should hear of it."""


class HttpFailure(Struct, frozen=True):
    """A response with a status other than 200.

    Args:
        status: Its status.
        headers: Its headers, with lower-case names.
        body: The beginning of its body, without secrets.
        url: Where it came from, safe to show.
        retry_after_s: How long its headers ask us to wait.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes
    url: str
    retry_after_s: float | None = None


class ModelError(TreadleError):
    """A model request without a response, or with one that broke off.

    `kind` classifies the error for callers that act on it. `retryable` says whether the same request may succeed if
    sent again; `retry_after_s` is how long the provider asked us to wait, at most `MAX_ASKED_S` in a retryable error.
    Retries of single requests have already been made. An `absent` server will most likely stay so: retrying only pays
    if it was there a moment ago.
    """

    def __init__(
        self,
        message: str,
        *,
        kind: ErrorKind = "other",
        http_status: int | None = None,
        retryable: bool = False,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.kind = kind
        self.http_status = http_status
        self.retryable: bool = retryable and (retry_after_s or 0.0) <= MAX_ASKED_S
        self.retry_after_s = retry_after_s
        self.answer: HttpFailure | None = None
        """What the server answered, if it did."""


# --- the two interfaces ----------------------------------------------------------------------------------------------


class ModelStream(Protocol):
    """The events of one response. Nothing is sent until the first event is requested.

    Resources are released at the end of the stream, when `__anext__` raises or is cancelled, and by `aclose`, which a
    consumer that stops early must call; leaving `async with` does. For one task at a time.
    """

    def __aiter__(self) -> AsyncIterator[ModelEvent]: ...
    async def __anext__(self) -> ModelEvent: ...
    async def aclose(self) -> None: ...
    async def __aenter__(self) -> Self: ...
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...


class Model(Protocol):
    def stream(self, request: ModelRequest) -> ModelStream: ...

    async def close(self) -> None:
        """End all streams and release everything; it may be called again. Later requests fail."""
