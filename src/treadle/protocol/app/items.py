"""`ThreadItem`: one thing that happened in a turn, told apart by `type`; `UnknownItem` is one that we don't know."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, get_args

from msgspec import UNSET, UnsetType, field

from treadle.protocol.app.base import Open, OrUnknown, Unknown, Variant, Wire, Word, union
from treadle.protocol.app.item_parts import (
    CommandAction,
    DynamicToolCallOutputContentItem,
    FileUpdateChange,
    FunctionCallOutputBody,
    UserInput,
)
from treadle.protocol.app.settings import ReasoningEffort


class MessagePhase(Word):
    commentary = "commentary"
    partial_answer = "partial_answer"
    final_answer = "final_answer"


AgentMessageDelivery = Literal["async"]


class CommandExecutionSource(Word):
    agent = "agent"
    user_shell = "userShell"
    unified_exec_startup = "unifiedExecStartup"
    unified_exec_interaction = "unifiedExecInteraction"


class CommandExecutionStatus(Word):
    in_progress = "inProgress"
    completed = "completed"
    failed = "failed"
    declined = "declined"


class PatchApplyStatus(Word):
    in_progress = "inProgress"
    completed = "completed"
    failed = "failed"
    declined = "declined"


class McpToolCallStatus(Word):
    in_progress = "inProgress"
    completed = "completed"
    failed = "failed"


class DynamicToolCallStatus(Word):
    in_progress = "inProgress"
    completed = "completed"
    failed = "failed"


class CollabAgentTool(Word):
    spawn_agent = "spawnAgent"
    send_input = "sendInput"
    resume_agent = "resumeAgent"
    wait = "wait"
    close_agent = "closeAgent"
    send_message = "sendMessage"
    followup_task = "followupTask"
    interrupt_agent = "interruptAgent"
    list_agents = "listAgents"


class CollabAgentToolCallStatus(Word):
    in_progress = "inProgress"
    completed = "completed"
    failed = "failed"
    interrupted = "interrupted"


class CollabAgentStatus(Word):
    pending_init = "pendingInit"
    running = "running"
    interrupted = "interrupted"
    completed = "completed"
    errored = "errored"
    shutdown = "shutdown"
    not_found = "notFound"


class SubAgentActivityKind(Word):
    started = "started"
    interacted = "interacted"
    interrupted = "interrupted"
    completed = "completed"


class McpAppDisplayMode(Word):
    inline = "inline"
    fullscreen = "fullscreen"


class HookPromptFragment(Wire, frozen=True, kw_only=True):
    hook_run_id: str
    text: str


class MemoryCitationEntry(Wire, frozen=True, kw_only=True):
    line_end: int
    line_start: int
    note: str
    path: str


class MemoryCitation(Wire, frozen=True, kw_only=True):
    entries: tuple[MemoryCitationEntry, ...]
    thread_ids: tuple[str, ...]


class AsyncUserInputQuestion(Wire, frozen=True, kw_only=True):
    title: str
    options: tuple[str, ...] | None = None


class McpToolCallAppContext(Wire, frozen=True, kw_only=True):
    connector_id: str
    action_name: str | None = None
    app_name: str | None = None
    link_id: str | None = None
    resource_uri: str | None = None


class McpAppUi(Wire, frozen=True, kw_only=True):
    preferred_model_display_mode: Open[McpAppDisplayMode]
    resource_uri: str


class McpToolCallError(Wire, frozen=True, kw_only=True):
    message: str


class McpToolCallResult(Wire, frozen=True, kw_only=True):
    content: tuple[Any, ...]
    meta: Any = field(name="_meta", default=None)
    structured_content: Any = None


class CollabAgentState(Wire, frozen=True, kw_only=True):
    status: Open[CollabAgentStatus]
    message: str | None = None


class SearchWebSearchAction(Variant, frozen=True, kw_only=True, tag="search"):
    queries: tuple[str, ...] | None = None
    query: str | None = None


class OpenPageWebSearchAction(Variant, frozen=True, kw_only=True, tag="openPage"):
    url: str | None = None


class FindInPageWebSearchAction(Variant, frozen=True, kw_only=True, tag="findInPage"):
    pattern: str | None = None
    url: str | None = None


class OtherWebSearchAction(Variant, frozen=True, kw_only=True, tag="other"):
    pass


WebSearchAction = SearchWebSearchAction | OpenPageWebSearchAction | FindInPageWebSearchAction | OtherWebSearchAction


class ImageGenerationInputImage(Wire, frozen=True, kw_only=True):
    path: str
    sha256: str


class UsageLimitExceededImageGenerationFailure(Variant, frozen=True, kw_only=True, tag="usageLimitExceeded"):
    limit_id: str
    resets_at: int | None = None


ImageGenerationFailure = UsageLimitExceededImageGenerationFailure


class Item(Variant, frozen=True, kw_only=True):
    """What every item has."""

    started_at_ms: int | None = None
    completed_at_ms: int | None = None

    def as_tool_call(self) -> DynamicToolCallThreadItem | None:
        """The same as the call of a tool, for views that have no words of their own for this type; None: not shown."""
        return None


class UserMessageThreadItem(Item, frozen=True, kw_only=True, tag="userMessage"):
    id: str
    content: tuple[OrUnknown[UserInput], ...]
    client_id: str | None = None


class HookPromptThreadItem(Item, frozen=True, kw_only=True, tag="hookPrompt"):
    id: str
    fragments: tuple[HookPromptFragment, ...]


class AgentMessageThreadItem(Item, frozen=True, kw_only=True, tag="agentMessage"):
    id: str
    text: str
    delivery: Open[AgentMessageDelivery] | None = None
    memory_citation: MemoryCitation | None = None
    phase: Open[MessagePhase] | None = None
    questions: tuple[AsyncUserInputQuestion, ...] | None = None


class FunctionCallOutputThreadItem(Item, frozen=True, kw_only=True, tag="functionCallOutput"):
    id: str
    name: str
    output: FunctionCallOutputBody
    namespace: str | None = None


class PlanThreadItem(Item, frozen=True, kw_only=True, tag="plan"):
    id: str
    text: str


class ReasoningThreadItem(Item, frozen=True, kw_only=True, tag="reasoning"):
    id: str
    content: tuple[str, ...] = ()
    summary: tuple[str, ...] = ()


class CommandExecutionThreadItem(Item, frozen=True, kw_only=True, tag="commandExecution"):
    id: str
    command: str
    command_actions: tuple[OrUnknown[CommandAction], ...]
    cwd: str
    status: Open[CommandExecutionStatus]
    aggregated_output: str | None = None
    duration_ms: int | None = None
    exit_code: int | None = None
    plugin_id: str | None = None
    process_id: str | None = None
    script_path: str | None = None
    source: Open[CommandExecutionSource] = CommandExecutionSource.agent


class FileChangeThreadItem(Item, frozen=True, kw_only=True, tag="fileChange"):
    id: str
    changes: tuple[FileUpdateChange, ...]
    status: Open[PatchApplyStatus]


class McpToolCallThreadItem(Item, frozen=True, kw_only=True, tag="mcpToolCall"):
    id: str
    arguments: Any
    server: str
    status: Open[McpToolCallStatus]
    tool: str
    app_context: McpToolCallAppContext | None = None
    duration_ms: int | None = None
    error: McpToolCallError | None = None
    mcp_app_resource_uri: str | UnsetType | None = UNSET
    mcp_app_ui: McpAppUi | None = None
    plugin_id: str | None = None
    read_only_hint: bool | None = None
    result: McpToolCallResult | None = None


class DynamicToolCallThreadItem(Item, frozen=True, kw_only=True, tag="dynamicToolCall"):
    id: str
    arguments: Any
    status: Open[DynamicToolCallStatus]
    tool: str
    content_items: tuple[OrUnknown[DynamicToolCallOutputContentItem], ...] | None = None
    duration_ms: int | None = None
    namespace: str | None = None
    success: bool | None = None


class CollabAgentToolCallThreadItem(Item, frozen=True, kw_only=True, tag="collabAgentToolCall"):
    id: str
    agents_states: Mapping[str, CollabAgentState]
    receiver_thread_ids: tuple[str, ...]
    sender_thread_id: str
    status: Open[CollabAgentToolCallStatus]
    tool: Open[CollabAgentTool]
    model: str | None = None
    prompt: str | None = None
    reasoning_effort: Open[ReasoningEffort] | None = None


class SubAgentActivityThreadItem(Item, frozen=True, kw_only=True, tag="subAgentActivity"):
    id: str
    agent_path: str
    agent_thread_id: str
    kind: Open[SubAgentActivityKind]
    model: str | None = None
    reasoning_effort: Open[ReasoningEffort] | None = None


class WebSearchThreadItem(Item, frozen=True, kw_only=True, tag="webSearch"):
    id: str
    query: str
    action: OrUnknown[WebSearchAction] | None = None
    results: tuple[Any, ...] | None = None


class ImageViewThreadItem(Item, frozen=True, kw_only=True, tag="imageView"):
    id: str
    path: str


class SleepThreadItem(Item, frozen=True, kw_only=True, tag="sleep"):
    id: str
    duration_ms: int


class ImageGenerationThreadItem(Item, frozen=True, kw_only=True, tag="imageGeneration"):
    """A picture that the model has made, by `result` or by `file_id`: one of the two is there."""

    id: str
    status: str
    result: str | UnsetType = UNSET
    file_id: str | UnsetType = UNSET
    failure: OrUnknown[ImageGenerationFailure] | None = None
    generation_id: str | None = None
    input_images: tuple[ImageGenerationInputImage, ...] = ()
    revised_prompt: str | None = None
    saved_path: str | None = None
    transparent_background: bool | None = None


class EnteredReviewModeThreadItem(Item, frozen=True, kw_only=True, tag="enteredReviewMode"):
    id: str
    review: str


class ExitedReviewModeThreadItem(Item, frozen=True, kw_only=True, tag="exitedReviewMode"):
    id: str
    review: str


class ContextCompactionThreadItem(Item, frozen=True, kw_only=True, tag="contextCompaction"):
    id: str


class UnknownItem(Unknown):
    """An item of a type that we don't know, as it came."""

    def as_tool_call(self) -> None:
        return None


KnownItem = (
    UserMessageThreadItem
    | HookPromptThreadItem
    | AgentMessageThreadItem
    | FunctionCallOutputThreadItem
    | PlanThreadItem
    | ReasoningThreadItem
    | CommandExecutionThreadItem
    | FileChangeThreadItem
    | McpToolCallThreadItem
    | DynamicToolCallThreadItem
    | CollabAgentToolCallThreadItem
    | SubAgentActivityThreadItem
    | WebSearchThreadItem
    | ImageViewThreadItem
    | SleepThreadItem
    | ImageGenerationThreadItem
    | EnteredReviewModeThreadItem
    | ExitedReviewModeThreadItem
    | ContextCompactionThreadItem
)

if TYPE_CHECKING:
    ThreadItem = KnownItem | UnknownItem
else:
    ThreadItem = union("ThreadItem", get_args(KnownItem), UnknownItem)
