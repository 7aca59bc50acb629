"""Model providers: a request goes in, a stream of events comes out.

It owns the talk with models. It knows nothing of threads, tools or connections of clients. `ProviderModel` is in
`treadle.llm.wire_client`, `OfflineModel` in `treadle.llm.offline`: a server loads the one that it uses.
"""

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
    "TextDelta",
    "TokenUsage",
    "ToolInputDelta",
    "UnknownEvent",
    "Waiting",
    "read_provider",
]
