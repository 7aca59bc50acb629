"""Model providers: a request goes in, a stream of events comes out.

It owns all communication with models, and knows nothing of threads, tools or client connections. `ProviderModel` is in
`treadle.llm.provider_model`, `OfflineModel` in `treadle.llm.offline`: a server loads only the one it uses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from treadle.internal_names import internal_name
from treadle.llm.model import (
    MAX_ASKED_S,
    Completed,
    Created,
    ErrorKind,
    HttpFailure,
    ItemDone,
    ItemStarted,
    JsonObject,
    Model,
    ModelError,
    ModelEvent,
    ModelRequest,
    ModelStream,
    ReasoningDelta,
    ReasoningSummaryDelta,
    ReasoningSummaryPart,
    TextDelta,
    TokenUsage,
    ToolInputDelta,
    UnknownEvent,
    Waiting,
)
from treadle.llm.output_items import (
    CustomToolCallItem,
    FunctionCallItem,
    MessageItem,
    OtherItem,
    OutputItem,
    ReasoningItem,
    SearchedFor,
    ToolSearchCallItem,
    WebSearchItem,
)
from treadle.llm.provider import ProviderConfig, ProviderConfigError, read_provider

__all__ = [
    "MAX_ASKED_S",
    "Completed",
    "Created",
    "CustomToolCallItem",
    "ErrorKind",
    "FunctionCallItem",
    "HttpFailure",
    "ItemDone",
    "ItemStarted",
    "JsonObject",
    "MessageItem",
    "Model",
    "ModelError",
    "ModelEvent",
    "ModelRequest",
    "ModelStream",
    "OtherItem",
    "OutputItem",
    "ProviderConfig",
    "ProviderConfigError",
    "ReasoningDelta",
    "ReasoningItem",
    "ReasoningSummaryDelta",
    "ReasoningSummaryPart",
    "SearchedFor",
    "TextDelta",
    "TokenUsage",
    "ToolInputDelta",
    "ToolSearchCallItem",
    "UnknownEvent",
    "Waiting",
    "WebSearchItem",
    "read_provider",
]


def __getattr__(name: str) -> object:
    return internal_name(__name__, name)


# fmt: off
# isort: off
if TYPE_CHECKING:  # for tests: see treadle.internal_names
    from treadle.llm.anthropic import key_header
    from treadle.llm.anthropic.blocks import OpaqueBlock
    from treadle.llm.anthropic.failure import AS_BUDGET, NO_CACHE, NO_THINKING, NO_THOUGHTS, SCHEMA_AS_TEXT
    from treadle.llm.anthropic.failure import seconds_to_reset
    from treadle.llm.anthropic.messages import GO_ON, OPENING, UNANSWERED, call_item_id
    from treadle.llm.anthropic.translate import AnthropicTranslator, MAX_BLOCKS
    from treadle.llm.catalogue import CATALOGUE, KnownModel, LongPrompt, Price, UNKNOWN, known_model
    from treadle.llm.chat.body import NOTHING_SAID, NO_OUTPUT, NO_RESULT
    from treadle.llm.chat.chat_tools import ChatToolNames
    from treadle.llm.chat.failure import read_error
    from treadle.llm.chat.translate import ChatTranslator, MAX_ANSWER
    from treadle.llm.failure import MAX_PAUSE_S, MAX_TEXT, pause, retry_after
    from treadle.llm.known_providers import KNOWN, KnownProvider, OFFLINE, default_model, key_variables
    from treadle.llm.known_providers import known_provider, laid_over
    from treadle.llm.offline import OfflineModel, play, schema_value
    from treadle.llm.output_items import BaseOutputItem, read_item
    from treadle.llm.provider import endpoint, shown_url
    from treadle.llm.provider_client import ABSENT_RETRIES, Exchange, ProviderClient
    from treadle.llm.provider_model import ProviderModel, ProviderStream
    from treadle.llm.provider_models import MAX_BYTES, ModelListing, list_provider_models, read_listings
    from treadle.llm.rate_limiter import LimiterStats, MAX_REPORTED_WAIT_S, RateLimiter, RateLimits, TooManyWaiting
    from treadle.llm.rates import FairQueue, MINUTE_S, QueueEntry, ReportedLimit, WIDEN_AFTER_S, read_limits
    from treadle.llm.responses import FLAT, MAX_OPEN, ResponsesTranslator
    from treadle.llm.wire_api import Asking, BUILT_IN, UnknownWireApi, WireApi, find_wire_api, wire_api_names
