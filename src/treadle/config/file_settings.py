"""`Settings`: what `config.toml` can say, key by key, with types and defaults.

It owns that list and nothing else reads one of its own: `values` parses by it, and `docs/configuration.md` is made from
it, the text below each key included.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeAlias

from msgspec import Meta, Struct

from treadle.protocol.app.base import Closed
from treadle.protocol.app.settings import ApprovalsReviewer, AskForApproval, Personality, ReasoningSummary, SandboxMode

PROJECT_DOC_MAX_BYTES: Final = 32 * 1024

Text: TypeAlias = Annotated[str, Meta(min_length=1)]
Count: TypeAlias = Annotated[int, Meta(ge=1, le=2**53)]
Size: TypeAlias = Annotated[int, Meta(ge=0, le=2**53)]


class WorkspaceWrite(Struct, frozen=True, kw_only=True):
    """What `sandbox_mode = "workspace-write"` opens, beside the working directory."""

    writable_roots: tuple[str, ...] = ()
    """More directories that may be written. A relative path starts at the home."""
    network_access: bool = False
    """Whether commands may use the network."""
    exclude_slash_tmp: bool = False
    """Whether `/tmp` stays read-only."""
    exclude_tmpdir_env_var: bool = False
    """Whether the directory in `$TMPDIR` stays read-only."""


class ShellEnvironment(Struct, frozen=True, kw_only=True):
    """The environment variables of the commands that an agent runs. Keys of providers are never among them, unless
    `set` names them."""

    inherit: Literal["all", "core", "none"] = "all"
    """Which variables of the server commands start with; `core` is `PATH`, `HOME`, `SHELL` and the like."""
    ignore_default_excludes: bool = False
    """Whether variables that look secret (`*KEY*`, `*SECRET*`, `*TOKEN*`) are inherited too."""
    exclude: tuple[str, ...] = ()
    """Names that are taken out; `*` and `?` are wildcards."""
    set: dict[str, str] = {}
    """Variables that are added, also ones that were taken out."""
    include_only: tuple[str, ...] = ()
    """If it is not empty: only names that match one of these stay, those of `set` included."""

    def __repr__(self) -> str:
        return f"ShellEnvironment(inherit={self.inherit!r}, set={sorted(self.set)})"

    def __rich_repr__(self) -> list[tuple[str, object]]:
        return [("inherit", self.inherit), ("set", sorted(self.set))]


class AutoReview(Struct, frozen=True, kw_only=True):
    """Who decides when `approvals_reviewer = "auto_review"`, and how."""

    model: Text | None = None
    """The reviewing model, at the provider of the thread; without it, the model of the thread."""
    timeout_ms: Count = 90_000
    """How long all attempts of one review may take together, in milliseconds."""
    policy: str | None = None
    """Rules of yours for the reviewer."""
    extra_policy: str | None = None
    """One more place for such rules."""


class Features(Struct, frozen=True, kw_only=True):
    """Those of Codex's flags that change something here. Any other flag is named in a warning."""

    shell_tool: bool = True
    """Whether the model can run commands."""
    view_image: bool = True
    """Whether the model can look at image files."""
    goals: bool = True
    """Whether threads can have goals."""
    default_mode_request_user_input: bool = False
    """Whether the model can ask the user questions outside of plan mode too."""


class ToolSwitch(Struct, frozen=True, kw_only=True):
    """One tool, by its name."""

    enabled: bool = True
    """Whether the model has the tool NAME; `tools.NAME = false` says the same."""


class Settings(Struct, frozen=True, kw_only=True):
    """Every key of `config.toml` that is read, except the tables of providers, models, permissions, profiles and
    skills."""

    model: Text = "offline"
    """The model. Without it, the first one of the provider."""
    model_provider: Text = "offline"
    """Who serves it: a built-in provider or a table of `[model_providers]`. Without it, the one that there is a key
    for, else the offline model."""
    approval_policy: AskForApproval = "on-request"
    """When somebody is asked before something is done."""
    approvals_reviewer: Closed[ApprovalsReviewer] = "user"
    """Who is asked: you, or a model (`guardian_subagent` is its older name)."""
    auto_review: AutoReview = AutoReview()
    sandbox_mode: Closed[SandboxMode] = "read-only"
    """What commands and patches may touch."""
    sandbox_workspace_write: WorkspaceWrite = WorkspaceWrite()
    default_permissions: Text | None = None
    """The permission profile of new threads: built in (`:read-only`, `:workspace`, `:danger-full-access`) or one of
    `[permissions]`. It says the same thing as `sandbox_mode`; the nearer source wins."""
    model_reasoning_effort: Text | None = None
    """How much the model thinks: `none`, `minimal`, `low`, `medium`, `high`, `xhigh`, or what else it knows."""
    model_reasoning_summary: Closed[ReasoningSummary] | None = None
    """Whether it sums up its thoughts, and at what length."""
    model_context_window: Count | None = None
    """The size of the context window in tokens. Without it, that of the catalogue."""
    model_auto_compact_token_limit: Count | None = None
    """How many tokens a thread may have before it is compacted. Without it, 90 % of the window."""
    instructions: str | None = None
    """A text in place of our base instructions."""
    model_instructions_file: Text | None = None
    """A file with such a text; it goes before `instructions`. A relative path starts at the home."""
    developer_instructions: str | None = None
    """A text that is added to the base instructions."""
    compact_prompt: str | None = None
    """What the model is asked for when a thread is compacted, in place of our text."""
    review_model: Text | None = None
    """The model of code reviews (`review/start`); without it, that of the thread."""
    project_doc_max_bytes: Size = PROJECT_DOC_MAX_BYTES
    """How much of all `AGENTS.md` files together is sent. 0: nothing."""
    project_doc_fallback_filenames: tuple[str, ...] = ()
    """Names of files that are read where there is no `AGENTS.md`."""
    shell_environment_policy: ShellEnvironment = ShellEnvironment()
    tool_output_token_limit: Count | None = None
    """Read for the sake of files shared with Codex; no effect."""
    personality: Closed[Personality] | None = None
    """Kept with threads and told to clients; it does not change what the model is told."""
    service_tier: Text | None = None
    """The service tier of the Responses API; `fast` asks for `priority`."""
    features: Features = Features()
    tools: dict[str, ToolSwitch | bool] = {}
    hide_agent_reasoning: bool = False
    """Read for the sake of files shared with Codex; no effect."""
    show_raw_agent_reasoning: bool = False
    """Read for the sake of files shared with Codex; no effect."""
    openai_base_url: Text | None = None
    """Where the requests of the built-in provider `openai` go."""
    profile: Text | None = None
    """The table of `[profiles]` that is laid over the rest of the file."""
