"""Model providers: a request goes in, a stream of events comes out.

It owns all communication with models, and knows nothing of threads, tools or client connections. `ProviderModel` is in
`treadle.llm.provider_model`, `OfflineModel` in `treadle.llm.offline`: a server loads only the one it uses.
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
