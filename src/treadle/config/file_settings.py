"""`FileSettings`: what `config.toml` can say, key by key, with types and defaults; and reading a plain table as it.

The list of keys is owned here, and `docs/configuration.md` is made from it, the text below each key included. Below it
are the keys of Codex that we do not read: people share one file between both. Reading knows no file and no layer: a
problem is identified by its key path.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cache
from typing import Annotated, Any, Final, Literal, TypeAlias, get_args, get_origin

import msgspec
from msgspec import Meta, Struct

from treadle.config.layers import KeyPath
from treadle.config.problems import kind_of
from treadle.protocol.app.base import Closed
from treadle.protocol.app.settings import (
    ApprovalsReviewer,
    AskForApproval,
    GranularAskForApproval,
    Personality,
    ReasoningSummary,
    SandboxMode,
)

PROJECT_DOC_MAX_BYTES: Final = 32 * 1024

Text: TypeAlias = Annotated[str, Meta(min_length=1)]
Count: TypeAlias = Annotated[int, Meta(ge=1, le=2**53)]
Size: TypeAlias = Annotated[int, Meta(ge=0, le=2**53)]
Dollars: TypeAlias = Annotated[float, Meta(gt=0)]
ListTokens: TypeAlias = Annotated[int, Meta(ge=1, le=10_000)]


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


class Agents(Struct, frozen=True, kw_only=True):
    """Sub-agents: threads that work for another one. `[agents.NAME]` is a role."""

    enabled: bool = True
    """Whether the model can start sub-agents; `features.multi_agent` says the same."""
    max_threads: Count = 6
    """How many sub-agents of one session may work at a time. Those that are done do not count."""
    max_concurrent_threads_per_session: Count | None = None
    """The same, by another name of Codex's; it goes before `max_threads`."""
    max_depth: Size = 1
    """How deep sub-agents may be nested: with 1, they have none of their own."""
    max_spawns_per_turn: Count = 100
    """How many sub-agents a thread may start in one turn. Only Treadle."""
    interrupt_children: bool = True
    """Whether sub-agents are interrupted together with the thread that they work for. Only Treadle."""
    wake_parent: bool = False
    """Whether a thread that waits for its user goes on when one of its sub-agents is done. Only Treadle."""
    engines: tuple[Text, ...] = ()
    """Other agent programs (`claude`, `codex`, `opencode`, `pi`, …) that the model may start as sub-agents. Only
    Treadle."""
    default_subagent_model: Text | None = None
    """The model of sub-agents, where neither the call nor the role names one; without it, that of the thread."""
    default_subagent_reasoning_effort: Text | None = None
    """How much sub-agents think, where neither the call nor the role says it."""

    @property
    def most(self) -> int:
        return self.max_concurrent_threads_per_session or self.max_threads


class Budget(Struct, frozen=True, kw_only=True):
    """What a turn and a thread may use, those of sub-agents counted with it. See [the page on limits](limits.md)."""

    turn_iterations: Size | None = None
    """How many rounds of tool calls a turn may have. After them the model answers without tools."""
    turn_tokens: Count | None = None
    """How many tokens a turn may use."""
    turn_cost_usd: Dollars | None = None
    """What a turn may cost, in dollars."""
    thread_tokens: Count | None = None
    """How many tokens a thread may use in all its turns."""
    thread_cost_usd: Dollars | None = None
    """What a thread may cost, in dollars."""

    def over(self, base: Budget) -> Budget:
        """This one, with the values of `base` where it has none."""
        own = {name: value for name in self.__struct_fields__ if (value := getattr(self, name)) is not None}
        return msgspec.structs.replace(base, **own)


class Features(Struct, frozen=True, kw_only=True):
    """Codex's feature flags that change something here. Any other flag is named in a warning."""

    shell_tool: bool = True
    """Whether the model can run commands."""
    view_image: bool = True
    """Whether the model can look at image files."""
    goals: bool = True
    """Whether threads can have goals."""
    default_mode_request_user_input: bool = False
    """Whether the model can ask the user questions outside of plan mode too."""
    multi_agent: bool = True
    """Whether the model can start sub-agents."""
    undo: bool = True
    """Whether files are copied into the home before a turn changes them, so that they can be put back."""


class HookSettings(Struct, frozen=True, kw_only=True):
    """Settings of hooks. The hooks themselves stand beside them, as in `hooks.json`: see the page on hooks."""

    max_continuations: Size = 5
    """How often the `Stop` hooks of one turn may have it go on."""
    plug_ins: tuple[str, ...] = ()
    """Python hooks of installed packages that are used, by the names of their entry points in `treadle.hooks`."""


class ToolSwitch(Struct, frozen=True, kw_only=True):
    """One tool, by its name."""

    enabled: bool = True
    """Whether the model has the tool NAME; `tools.NAME = false` says the same."""


class WebSearchLocation(Struct, frozen=True, kw_only=True):
    """Where the user is, roughly, for the results of a search by the provider."""

    country: Text | None = None
    """A country, by its two letters."""
    region: Text | None = None
    """A region, by its name."""
    city: Text | None = None
    """A city."""
    timezone: Text | None = None
    """A time zone, as in `Europe/Berlin`."""


WebSearchMode: TypeAlias = Literal["disabled", "cached", "indexed", "live"]
Endpoint: TypeAlias = Annotated[str, Meta(pattern=r"^https?://[^\s/@?#]+(/[^\s@?#]*)?$")]


class WebSearchTable(ToolSwitch, frozen=True, kw_only=True):
    """`[tools.web_search]`: how the web is searched, by the provider or by ourselves."""

    context_size: Literal["low", "medium", "high"] | None = None
    """How much of what is found the model gets. A search of ours gives 5, 10 or 20 results; `medium` without it."""
    allowed_domains: tuple[str, ...] = ()
    """If it is not empty: only results from these domains and what is below them count, and only such pages are
    fetched."""
    location: WebSearchLocation | None = None
    """Where you are, roughly: for the search of a provider."""
    endpoint: Endpoint | None = None
    """A SearXNG server whose JSON format is switched on, such as `http://127.0.0.1:8888`. With it, models whose
    provider does not search the web itself get the tools `web_search` and, with `web_search = "live"`, `web_fetch`."""
    private_hosts: tuple[str, ...] = ()
    """Hosts that `web_fetch` may ask although their addresses are not public."""


class SkillRule(Struct, frozen=True, kw_only=True):
    """One of `[[skills.config]]`: whether a skill, which has this path or this name, is used."""

    path: Text | None = None
    name: Text | None = None
    enabled: bool = True


class SkillSettings(Struct, frozen=True, kw_only=True):
    """Which skills there are, and how much of a request their list may take."""

    config: tuple[SkillRule, ...] = ()
    """Tables with the `name` or the `path` of a skill (the name `*` is every one) and `enabled = false`. The last that
    fits a skill counts."""
    roots: tuple[Text, ...] = ()
    """More folders with skills of yours. A relative path starts at the home."""
    claude_folders: bool = False
    """Whether `.claude/skills` of a project and of yours counts too. Only Treadle."""
    include_instructions: bool = True
    """Whether the model gets the list of skills."""
    max_context_tokens: ListTokens | None = None
    """How many tokens that list may have. Without it, 2 % of the context window."""


class Retention(Struct, frozen=True, kw_only=True):
    """How long threads are stored. Only Treadle."""

    max_age_days: Count | None = None
    """Threads that nobody has used for so many days are deleted, with their sub-agents, by servers that listen; what a
    server has in memory stays. Without it, nothing is deleted."""


class TerminalSettings(Struct, frozen=True, kw_only=True):
    """How `treadle chat` calls you when you are away. The other keys of this table are about Codex's own screen, and
    passed over."""

    notifications: bool | tuple[str, ...] = True
    """Whether `treadle chat` calls you when you are away, or for what: `agent-turn-complete`, `approval-requested`."""
    notification_method: Literal["auto", "osc9", "bel"] = "auto"
    """How it calls you: by a desktop notification of the terminal (`osc9`) or by its bell (`bel`). `auto`: the first in
    terminals that are known to show it."""
    notification_condition: Literal["unfocused", "always"] = "unfocused"
    """When it calls you: `unfocused` if you have pressed no key for ten seconds and the terminal has lost the focus, or
    cannot tell; `always` also when you look."""


class FileSettings(Struct, frozen=True, kw_only=True):
    """Every key of `config.toml` that is read, except the tables of MCP servers, providers, models, permissions and
    profiles."""

    model: Text = "offline"
    """The model. Without it, the first one of the provider."""
    model_provider: Text = "offline"
    """Who serves it: a built-in provider or a table of `[model_providers]`. Without it, the one that there is a key
    for, else the offline model."""
    offline: bool | None = None
    """Whether the offline model, which follows a script, may answer: `false` forbids it, and what would get it is
    refused; `true` has it answer unless a thread names another one."""
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
    skills: SkillSettings = SkillSettings()
    store: Text | None = None
    """Where threads are stored: `postgres://USER@HOST/DATABASE` for the [servers of several machines](postgres.md).
    Without it, in the home. Read once, when a server needs its first thread."""
    retention: Retention = Retention()
    tool_output_token_limit: Count | None = None
    """How many tokens the model gets of the output of one tool call; what is more is cut out of the middle. A token is
    counted as four bytes."""
    personality: Closed[Personality] | None = None
    """The tone in which new threads answer."""
    service_tier: Text | None = None
    """The service tier of the Responses API; `fast` asks for `priority`."""
    features: Features = Features()
    web_search: WebSearchMode = "cached"
    """Whether the model can search the web, and how fresh it is: `cached` fetches nothing anew, `indexed` only pages
    that are in the index already, `live` all. It needs a [provider that searches, or an endpoint](web-search.md)."""
    agents: Agents = Agents()
    budget: Budget = Budget()
    hooks: HookSettings = HookSettings()
    notify: tuple[str, ...] = ()
    """A program, with its arguments, that is run after each turn. It gets one more argument: what was said, as JSON."""
    tools: dict[str, ToolSwitch | bool] = {}
    tui: TerminalSettings = TerminalSettings()
    hide_agent_reasoning: bool = False
    """Whether `treadle exec` and `treadle chat` show nothing of what the model thinks."""
    show_raw_agent_reasoning: bool = False
    """Whether `treadle exec` and `treadle chat` show the thoughts themselves besides their summaries, where the model
    sends them."""
    mcp_model_approvals: bool = False
    """Whether the model of an MCP client may answer approvals of turns that it runs by `treadle mcp-server`, where the
    client cannot ask its user."""
    mcp_oauth_credentials_store: Literal["file", "keyring", "auto"] = "file"
    """Where the tokens of a login to an MCP server are stored: in a file of the home for you alone, in the keyring
    (which takes the package `keyring`), or there if it can be had."""
    openai_base_url: Text | None = None
    """Where the requests of the built-in provider `openai` go."""
    profile: Text | None = None
    """The table of `[profiles]` that is laid over the rest of the file."""


# --- keys of Codex that we do not read ---
#
# A key that changes what an agent does or may do is `IGNORED`: it gets a warning, because its author relies on it. A
# key about the screen, logging, or a feature that we do not have is `SILENT`. All others are typos, or newer than we
# are.

IGNORED: Final = frozenset(
    [
        *("allow_login_shell", "apps", "background_terminal_max_timeout", "browser_use"),
        *("cli_auth_credentials_store", "computer_use", "experimental_compact_prompt_file"),
        *("experimental_instructions_file", "experimental_realtime_start_instructions"),
        *("experimental_realtime_webrtc_call_base_url", "experimental_realtime_ws_backend_prompt"),
        *("experimental_realtime_ws_base_url", "experimental_realtime_ws_model"),
        *("experimental_realtime_ws_startup_context", "experimental_thread_store"),
        *("experimental_thread_store_endpoint", "experimental_use_freeform_apply_patch"),
        *("experimental_use_unified_exec_tool", "forced_chatgpt_workspace_id", "forced_login_method"),
        *("ghost_snapshot", "goals", "include_apply_patch_tool", "include_apps_instructions"),
        *("include_collaboration_mode_instructions", "include_environment_context"),
        *("include_environment_context_time", "include_permissions_instructions", "instructions_file"),
        *("marketplaces", "memories", "model_auto_compact_token_limit_scope", "model_catalog_json"),
        *("model_post_turn_compact_threshold_percent", "model_supports_reasoning_summaries", "model_verbosity"),
        *("orchestrator", "plan_mode_reasoning_effort", "plugins", "project_root_markers", "projects"),
        *("responses_api_metadata", "sqlite_home", "thread_unload_delay_secs", "tool_suggest"),
    ]
)

SILENT: Final = frozenset(
    [
        *("allow_symlinked_codex_home", "analytics", "apps_mcp_product_sku", "audio", "chatgpt_base_url"),
        *("check_for_update_on_startup", "cloud", "daybreak", "desktop", "disable_paste_burst"),
        *("disable_response_storage", "feedback", "file_opener", "history", "js_repl_node_module_dirs"),
        *("js_repl_node_path", "log_dir", "mcp_enterprise_managed_auth", "mcp_oauth_callback_port"),
        *("mcp_oauth_callback_url", "mcp_optional_startup_grace_ms", "notice"),
        *("oss_provider", "otel", "preferred_auth_method", "realtime"),
        *("suppress_unstable_features_warning", "windows", "windows_wsl_setup_acknowledged"),
    ]
)

IGNORED_IN_TABLE: Final = {
    "auto_review": frozenset(
        [
            "circuit_break_action",
            "conversation_history_max_output_tokens",
            "experimental_conversation_history_prompt",
            "experimental_policy_template",
        ]
    ),
    "agents": frozenset({"interrupt_message"}),
    # So near to a flag of ours that it would be taken for a typo; clients switch it off in every thread of their own.
    "features": frozenset({"multi_agent_v2"}),
    "shell_environment_policy": frozenset({"experimental_use_profile", "filters"}),
    "skills": frozenset({"bundled"}),
}

# The events and the state of hooks, which `treadle.hooks` reads.
ELSEWHERE_IN_TABLE: Final = {
    "hooks": frozenset(
        [
            *("PreModelRequest", "PostModelRequest", "PreToolUse", "PermissionRequest", "PostToolUse", "PreCompact"),
            *("PostCompact", "SessionStart", "SessionEnd", "UserPromptSubmit", "SubagentStart", "SubagentStop", "Stop"),
            *("Interrupt", "state"),
        ]
    )
}

# They say how a provider is reached or paid for.
IGNORED_IN_PROVIDER: Final = frozenset(
    [
        *("auth", "aws", "credential_file", "gateway_oauth", "location", "model_catalog_url"),
        *("project_id", "supports_websockets"),
    ]
)
SILENT_IN_PROVIDER: Final = frozenset(["capabilities", "websocket_connect_timeout_ms"])


# --- reading a table ---


class InvalidValue(Struct, frozen=True):
    """A value of a known key that is not allowed."""

    path: KeyPath
    problem: str


ELSEWHERE: Final = frozenset({"environments", "mcp_servers", "model_providers", "models", "permissions", "profiles"})
# What an ignored key may say: it asks for nothing that is not so.
_NOTHING: Final[tuple[object, ...]] = ({}, [], {"enabled": False})
# The policy that Codex had before `on-request`, and that it reads no more.
_RETIRED: Final = {("approval_policy", "on-failure"): "on-request"}
# What settings alone call one of our tools (its `settings_name`).
_TOOL_ALIASES: Final = frozenset({"experimental_request_user_input"})
# How like one of our features a name is that was meant to be it: Codex has many more, and some like ours.
_LIKE: Final = 0.85

_ALLOWED: Final[dict[Any, str]] = {
    str: "a text",
    bool: "true or false",
    tuple[str, ...]: "a list of texts",
    dict[str, str]: "a table of texts",
    ToolSwitch | bool: "true, false, or a table with `enabled`",
    Endpoint | None: "an `http` or `https` URL without credentials or query",
    WebSearchLocation | None: "a table with `country`, `region`, `city`, `timezone`",
    Text: "a text that is not empty",
    Count: "a whole number from 1",
    Size: "a whole number from 0",
    Dollars: "a number above 0",
    ListTokens: "a whole number from 1 to 10000",
    tuple[Text, ...]: "a list of texts that are not empty",
    tuple[SkillRule, ...]: "a list of tables with `path` or `name`, and `enabled`",
    GranularAskForApproval: "a table `granular` with `sandbox_approval`, `rules` and `mcp_elicitations`",
}


class ParsedValues(Struct):
    """A table as it was read: `values` of the keys that have an effect, and problems with the others by their paths."""

    values: dict[str, Any] = {}
    invalid: list[InvalidValue] = []
    unknown: dict[KeyPath, Collection[str]] = {}
    """Keys that nobody knows, each with those that are known in its place."""
    ignored: list[KeyPath] = []
    retired: list[tuple[KeyPath, str, str]] = []


def read_values(table: Mapping[str, Any]) -> ParsedValues:
    """The settings in a table. What is not allowed is in `invalid`, all of it, and has no value."""
    reading = ParsedValues()
    types = _types(FileSettings)
    for key, value in table.items():
        if key in types:
            wanted = types[key]
            replacement = _RETIRED.get((key, value)) if isinstance(value, str) else None
            if isinstance(wanted, type) and issubclass(wanted, Struct):
                if key == "agents" and isinstance(value, Mapping):  # the tables in it are roles: see `agent_roles`
                    value = {name: each for name, each in value.items() if not isinstance(each, Mapping)}
                if key == "tui" and isinstance(value, Mapping):
                    value = {name: each for name, each in value.items() if name in _types(wanted)}
                if (found := _read_table(_types(wanted), (key,), value, reading)) is not None:
                    reading.values[key] = wanted(**found)
            elif key == "tools":
                from treadle.tools.specs import built_in_names  # few have that table

                tools = dict.fromkeys(built_in_names() | _TOOL_ALIASES, ToolSwitch | bool)
                search = value.get("web_search") if isinstance(value, Mapping) else None
                if isinstance(search, Mapping):
                    value = {name: given for name, given in value.items() if name != "web_search"}
                if (found := _read_table(tools, (key,), value, reading)) is not None:
                    if isinstance(search, Mapping):
                        given = _read_table(_types(WebSearchTable), (key, "web_search"), search, reading)
                        found["web_search"] = WebSearchTable(**(given or {}))
                    reading.values[key] = found
            elif replacement is not None:
                reading.retired.append(((key,), value, replacement))
                reading.values[key] = replacement
            else:
                _convert((key,), value, wanted, reading.values, reading)
        elif key in IGNORED:
            # Folders that are trusted ask for nothing: every one is here, and clients write it by themselves.
            is_trust = key == "projects" and isinstance(value, Mapping)
            harmless = all(it == {"trust_level": "trusted"} for it in value.values()) if is_trust else value in _NOTHING
            if not harmless:
                reading.ignored.append((key,))
        elif key not in SILENT | ELSEWHERE:
            reading.unknown[(key,)] = FileSettings.__struct_fields__
    return reading


def _read_table(types: Mapping[str, Any], path: KeyPath, table: Any, reading: ParsedValues) -> dict[str, Any] | None:
    """The values in a table below a key; None for what is no table."""
    if not isinstance(table, Mapping):
        reading.invalid.append(InvalidValue(path, f"found {kind_of(table)}, allowed is a table"))
        return None
    found: dict[str, Any] = {}
    for key, value in table.items():
        if key in types:
            _convert((*path, key), value, types[key], found, reading)
        elif key in ELSEWHERE_IN_TABLE.get(path[-1], ()):
            pass
        elif key in IGNORED_IN_TABLE.get(path[-1], ()):
            if value is not False and value not in _NOTHING:
                reading.ignored.append((*path, key))
        elif path == ("features",) and not _is_like(key, types):
            reading.ignored.append((*path, key))
        else:
            reading.unknown[*path, key] = types
    return found


def _is_like(key: str, known: Collection[str]) -> bool:
    from difflib import get_close_matches  # only for a key that is not ours

    return bool(get_close_matches(key, known, 1, _LIKE))


def _convert(path: KeyPath, value: Any, wanted: Any, into: dict[str, Any], reading: ParsedValues) -> None:
    try:
        into[path[-1]] = read = msgspec.convert(value, wanted)
        _find_left_out(path, value, msgspec.to_builtins(read), reading)
    except msgspec.ValidationError:
        # The value itself only where the key takes one of a few words: such a key holds no secret.
        if isinstance(value, str) and _words(wanted) and len(value) <= 40:
            found = f"`{value}`"
        else:
            found = "an empty text" if value == "" else str(value) if type(value) is int else kind_of(value)
        reading.invalid.append(InvalidValue(path, f"found {found}, allowed is {allowed(wanted)}"))


def _find_left_out(path: KeyPath, value: Any, read: Any, reading: ParsedValues) -> None:
    """Find the keys below a setting that were not read; `read` is what was."""
    if isinstance(value, Mapping) and isinstance(read, Mapping):
        for key, member in value.items():
            if key in read:
                _find_left_out((*path, key), member, read[key], reading)
            else:
                reading.unknown[*path, key] = read


def allowed(wanted: Any) -> str:
    """The words for what a type allows."""
    if wanted in _ALLOWED:
        return _ALLOWED[wanted]
    words = _words(wanted)
    others = [
        allowed(member)
        for member in get_args(wanted)
        if get_origin(member) is not Literal and member is not type(None) and not isinstance(member, str)
    ]
    return " or ".join((["one of " + ", ".join(f"`{word}`" for word in words)] if words else []) + others)


def _words(wanted: Any) -> tuple[str, ...]:
    if get_origin(wanted) is Literal:
        return get_args(wanted)
    return next((get_args(member) for member in get_args(wanted) if get_origin(member) is Literal), ())


@cache
def _types(struct: type[Struct]) -> dict[str, Any]:
    return {field.name: field.type for field in msgspec.structs.fields(struct)}
