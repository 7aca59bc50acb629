"""The settings by key: their types, their defaults, and parsing a plain table into them.

It owns which values are allowed and the text that says so. It knows no file and no layer: a problem is identified by
its key path.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Annotated, Any, Final, Literal, TypeAlias, TypeVar, get_args, get_origin

import msgspec
from msgspec import Meta, Struct

from treadle.config.known_keys import IGNORED, IGNORED_IN_TABLE, SILENT
from treadle.config.overrides import KeyPath
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

T = TypeVar("T", bound=Struct)

PROJECT_DOC_MAX_BYTES: Final = 32 * 1024

_Text: TypeAlias = Annotated[str, Meta(min_length=1)]
_Count: TypeAlias = Annotated[int, Meta(ge=1, le=2**53)]
_Size: TypeAlias = Annotated[int, Meta(ge=0, le=2**53)]


class InvalidValue(ValueError):
    """A value of a known key is not allowed."""

    def __init__(self, path: KeyPath, problem: str) -> None:
        super().__init__(problem)
        self.path = path
        self.problem = problem


class WorkspaceWrite(Struct, frozen=True, kw_only=True):
    """`[sandbox_workspace_write]`"""

    writable_roots: tuple[str, ...] = ()
    network_access: bool = False
    exclude_slash_tmp: bool = False
    exclude_tmpdir_env_var: bool = False


class ShellEnvironment(Struct, frozen=True, kw_only=True):
    """`[shell_environment_policy]`. Variables that look secret are excluded unless the file says otherwise."""

    inherit: Literal["all", "core", "none"] = "all"
    ignore_default_excludes: bool = False
    exclude: tuple[str, ...] = ()
    set: dict[str, str] = {}
    include_only: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"ShellEnvironment(inherit={self.inherit!r}, set={sorted(self.set)})"

    def __rich_repr__(self) -> list[tuple[str, object]]:
        return [("inherit", self.inherit), ("set", sorted(self.set))]


class AutoReview(Struct, frozen=True, kw_only=True):
    """`[auto_review]`: who reviews approvals automatically, how long it may take, and by which further rules."""

    model: _Text | None = None
    timeout_ms: _Count = 90_000
    policy: str | None = None
    extra_policy: str | None = None


class Features(Struct, frozen=True, kw_only=True):
    """`[features]`: those of Codex's flags that change something here. The others are told to have no effect."""

    shell_tool: bool = True
    view_image: bool = True
    goals: bool = True
    default_mode_request_user_input: bool = False


class ToolSwitch(Struct, frozen=True, kw_only=True):
    """`[tools.<name>]`. What else Codex has in it is of tools that we do not have."""

    enabled: bool = True


class Settings(Struct, frozen=True, kw_only=True):
    """Every key of `config.toml` that has an effect, except the tables of providers, models, permissions and
    profiles."""

    model: _Text = "offline"
    model_provider: _Text = "offline"
    approval_policy: AskForApproval = "on-request"
    approvals_reviewer: Closed[ApprovalsReviewer] = "user"
    auto_review: AutoReview = AutoReview()
    sandbox_mode: Closed[SandboxMode] = "read-only"
    sandbox_workspace_write: WorkspaceWrite = WorkspaceWrite()
    default_permissions: _Text | None = None
    model_reasoning_effort: _Text | None = None
    model_reasoning_summary: Closed[ReasoningSummary] | None = None
    model_context_window: _Count | None = None
    model_auto_compact_token_limit: _Count | None = None
    instructions: str | None = None
    model_instructions_file: _Text | None = None
    developer_instructions: str | None = None
    compact_prompt: str | None = None
    review_model: _Text | None = None
    project_doc_max_bytes: _Size = PROJECT_DOC_MAX_BYTES
    project_doc_fallback_filenames: tuple[str, ...] = ()
    shell_environment_policy: ShellEnvironment = ShellEnvironment()
    tool_output_token_limit: _Count | None = None
    personality: Closed[Personality] | None = None
    service_tier: _Text | None = None
    features: Features = Features()
    tools: dict[str, ToolSwitch | bool] = {}
    hide_agent_reasoning: bool = False
    show_raw_agent_reasoning: bool = False
    openai_base_url: _Text | None = None
    profile: _Text | None = None


_ELSEWHERE: Final = frozenset({"model_providers", "models", "permissions", "profiles"})
# What an ignored key may say: it asks for nothing that is not so. We offer no model a web search.
_NOTHING: Final[tuple[object, ...]] = ({}, [], "disabled")
# The policy that Codex had before `on-request`, and that it reads no more.
_RETIRED: Final = {("approval_policy", "on-failure"): "on-request"}

_ALLOWED: Final[dict[Any, str]] = {
    str: "a text",
    bool: "true or false",
    tuple[str, ...]: "a list of texts",
    dict[str, str]: "a table of texts",
    dict[str, ToolSwitch | bool]: "a table of tools, each with `enabled = true` or `enabled = false`",
    _Text: "a text that is not empty",
    _Count: "a whole number from 1",
    _Size: "a whole number from 0",
    GranularAskForApproval: "a table `granular` with `sandbox_approval`, `rules` and `mcp_elicitations`",
}


class ParsedValues(Struct):
    """What a table says: `values` for the keys that have an effect, and problems with the others by their paths."""

    values: dict[str, Any] = {}
    invalid: list[InvalidValue] = []
    unknown: list[KeyPath] = []
    ignored: list[KeyPath] = []
    retired: list[tuple[KeyPath, str, str]] = []


def read_values(table: Mapping[str, Any]) -> ParsedValues:
    """The settings in a table. What is not allowed is in `invalid`, all of it, and has no value."""
    reading = ParsedValues()
    for key, value in table.items():
        if key in _types(Settings):
            with _collected(reading):
                reading.values[key] = _read((key,), value, reading)
        elif key in IGNORED:
            if not _asks_for_nothing(key, value):
                reading.ignored.append((key,))
        elif key not in SILENT | _ELSEWHERE:
            reading.unknown.append((key,))
    return reading


def _asks_for_nothing(key: str, value: Any) -> bool:
    """Nothing is in it, or only that folders are trusted: every one is here, and clients write it by themselves."""
    if key == "projects" and isinstance(value, Mapping):
        return all(project == {"trust_level": "trusted"} for project in value.values())
    return value in _NOTHING


@contextmanager
def _collected(reading: ParsedValues) -> Iterator[None]:
    try:
        yield
    except InvalidValue as error:
        reading.invalid.append(error)


def _read(path: KeyPath, value: Any, reading: ParsedValues) -> Any:
    wanted = _types(Settings)[path[0]]
    if isinstance(wanted, type) and issubclass(wanted, Struct):
        return _read_struct(wanted, path, value, reading)
    replacement = _RETIRED.get((path[0], value)) if isinstance(value, str) else None
    if replacement is not None:
        reading.retired.append((path, value, replacement))
        return replacement
    return _convert(path, value, wanted)


def _read_struct(wanted: type[T], path: KeyPath, table: Any, reading: ParsedValues) -> T:
    if not isinstance(table, Mapping):
        raise InvalidValue(path, f"found {kind_of(table)}, allowed is a table")
    types = _types(wanted)
    known: dict[str, Any] = {}
    for key, value in table.items():
        if key in types:
            with _collected(reading):
                known[key] = _convert((*path, key), value, types[key])
        elif wanted is Features or key in IGNORED_IN_TABLE.get(path[0], ()):
            reading.ignored.append((*path, key))
        else:
            reading.unknown.append((*path, key))
    return wanted(**known)


def _convert(path: KeyPath, value: Any, wanted: Any) -> Any:
    try:
        return msgspec.convert(value, wanted)
    except msgspec.ValidationError:
        raise InvalidValue(path, f"found {_found(value, wanted)}, allowed is {allowed(wanted)}") from None


def _found(value: Any, wanted: Any) -> str:
    """The value itself only where the key takes one of a few words: such a key holds no secret."""
    if isinstance(value, str) and _words(wanted) and len(value) <= 40:
        return f"`{value}`"
    return "an empty text" if value == "" else str(value) if type(value) is int else kind_of(value)


def allowed(wanted: Any) -> str:
    """What a type allows, in words."""
    if wanted in _ALLOWED:
        return _ALLOWED[wanted]
    words = _words(wanted)
    others = [allowed(member) for member in get_args(wanted) if _is_other(member)]
    return " or ".join((["one of " + ", ".join(f"`{word}`" for word in words)] if words else []) + others)


def _is_other(member: Any) -> bool:
    return get_origin(member) is not Literal and member is not type(None) and not isinstance(member, str)


def _words(wanted: Any) -> tuple[str, ...]:
    if get_origin(wanted) is Literal:
        return get_args(wanted)
    return next((get_args(member) for member in get_args(wanted) if get_origin(member) is Literal), ())


@cache
def _types(struct: type[Struct]) -> dict[str, Any]:
    return {field.name: field.type for field in msgspec.structs.fields(struct)}
