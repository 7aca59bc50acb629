"""From the arguments of `Codex` and `Thread` to params of the protocol. Both clients use it. Pure.

A mistake is an error where it is made: every argument is checked by its name. Words (`effort`, `personality`, …) are
members of the enums in `treadle.types`, or strings equal to one. Words of a newer server can be passed too, but must be
marked as intended: `ReasoningEffort("word")` goes to the server as it is.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import Enum
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, TypedDict, cast

from treadle.arguments import (
    count,
    flag,
    folder,
    function,
    limit,
    mapping,
    one_of,
    path,
    text,
    texts,
    wrong_type,
)
from treadle.client.codex_config import CodexConfig
from treadle.client.requests import without_none
from treadle.client.turn_values import LocalImageInput, tool_output, wire_input
from treadle.errors import ArgumentValueError
from treadle.protocol.app import settings
from treadle.protocol.app.settings import ReasoningEffort
from treadle.protocol.app.turns import (
    BaseBranchReviewTarget,
    CommitReviewTarget,
    CustomReviewTarget,
    ReviewStartParams,
    TurnStartParams,
    UncommittedChangesReviewTarget,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from treadle.client.notebook import LiveTurn
    from treadle.client.schemas import OutputType
    from treadle.client.sdk_errors import OutputError
    from treadle.client.server_requests import ApprovalHandler, UserInputHandler
    from treadle.client.tools import Tool
    from treadle.client.turn_values import RunInput
    from treadle.client.workplaces import Environments
    from treadle.hooks.python_hooks import PythonHooks
    from treadle.protocol.app.base import JsonObject
    from treadle.protocol.app.settings import Personality, ReasoningSummary, SandboxPolicy
    from treadle.protocol.app.thread_methods import (
        ThreadForkParams,
        ThreadListParams,
        ThreadResumeParams,
        ThreadStartParams,
    )
    from treadle.protocol.app.turns import ReviewTarget


_OURS: Final = "treadle/threadEvents"
"""What only servers of ours can do."""


class ApprovalMode(str, Enum):  # noqa: UP042 - as in the official SDK, also in how it prints
    """Who decides about what goes beyond the sandbox.

    `deny_all`: nobody, it is refused. `auto_review`: the server's reviewer, or your `approval_handler` if there is one.
    """

    deny_all = "deny_all"
    auto_review = "auto_review"


class Sandbox(str, Enum):  # noqa: UP042
    """What commands may do with files: only read, write in the workspace, or anything."""

    read_only = "read-only"
    workspace_write = "workspace-write"
    full_access = "full-access"


class TurnOptions(TypedDict, total=False):
    """The options that `run`, `turn` and `events` have in common, for type checkers: `Thread.turn` describes each.

    The signatures of `Thread` list them one by one; the overloads, which differ only in `output_type`, use this.
    """

    approval_mode: ApprovalMode | None
    cwd: str | os.PathLike[str] | None
    effort: ReasoningEffort | str | None
    model: str | None
    output_schema: JsonObject | None
    permissions: str | None
    personality: Personality | str | None
    sandbox: Sandbox | None
    service_tier: str | None
    source: str | None
    summary: ReasoningSummary | str | None
    turn_service_tier: str | None
    max_turns: int | None
    max_turn_tokens: int | None
    max_turn_cost_usd: float | None
    environment: Environments | None
    timeout: float | None


# --- params ---


def start_params(
    approval_mode: ApprovalMode,
    sandbox: Sandbox | None,
    tools: Iterable[Tool],
    has_approval_handler: bool,
    **given: Any,
) -> ThreadStartParams:
    from treadle.protocol.app.thread_methods import ThreadStartParams  # loaded with the first thread

    specs = tuple(tool.spec() for tool in tools) or None
    return ThreadStartParams(
        **approval_settings(approval_mode, has_approval_handler=has_approval_handler),
        **checked(**given),
        **without_none(sandbox=sandbox_mode(sandbox), dynamic_tools=specs),
    )


def resume_params(thread_id: str, **given: Any) -> ThreadResumeParams:
    from treadle.protocol.app.thread_methods import ThreadResumeParams  # loaded with the first thread

    return ThreadResumeParams(**_stored_thread(thread_id, **given))


def fork_params(thread_id: str, **given: Any) -> ThreadForkParams:
    from treadle.protocol.app.thread_methods import ThreadForkParams  # loaded with the first thread

    return ThreadForkParams(**_stored_thread(thread_id, **given))


def _stored_thread(
    thread_id: str,
    *,
    approval_mode: ApprovalMode | None,
    sandbox: Sandbox | None,
    include_turns: bool | None,
    has_approval_handler: bool,
    **given: Any,
) -> dict[str, Any]:
    """Members of the params that resume or fork a thread."""
    turns = checked(include_turns=include_turns)
    return {
        **required(thread_id=thread_id),
        **approval_settings(approval_mode, has_approval_handler=has_approval_handler),
        **({"exclude_turns": not turns["include_turns"]} if turns else {}),
        **checked(**given),
        **without_none(sandbox=sandbox_mode(sandbox)),
    }


def list_params(*, cwd: object, **given: Any) -> ThreadListParams:
    from treadle.protocol.app.thread_methods import ThreadListParams  # loaded with the first thread

    folders = {} if cwd is None else {"cwd": paths("cwd", cwd)}
    return ThreadListParams(**checked(**given), **cast("Any", folders))


def turn_params(
    thread_id: str,
    input: RunInput,
    approval_mode: ApprovalMode | None,
    sandbox: Sandbox | None,
    source: str | None,
    turn_service_tier: str | None,
    max_turns: int | None,
    has_approval_handler: bool,
    **given: Any,
) -> TurnStartParams:
    # The protocol has other names for these.
    names = {"source": "turn_trigger", "turn_service_tier": "service_tier_for_turn", "max_turns": "max_iterations"}
    named = checked(source=source, turn_service_tier=turn_service_tier, max_turns=max_turns)
    renamed = {names[name]: value for name, value in named.items()}
    return TurnStartParams(
        thread_id=thread_id,
        input=cast("Any", tuple(wire_input(input))),  # plain values, as they are sent
        **approval_settings(approval_mode, has_approval_handler=has_approval_handler),
        **checked(**given),
        **renamed,
        **without_none(sandbox_policy=sandbox_policy(sandbox), tool_output=tool_output(input)),
    )


def review_params(
    thread_id: str, instructions: str | None, branch: str | None, commit: str | None
) -> ReviewStartParams:
    """The params of a review: of what is not committed, when nothing else is named."""
    given = checked(instructions=instructions, branch=branch, commit=commit)
    if len(given) > 1:
        names = " and ".join(given)
        raise ArgumentValueError(next(reversed(given)), f"a review is of one thing: pass one of {names}, not all")
    target: ReviewTarget = UncommittedChangesReviewTarget()
    if "instructions" in given:
        target = CustomReviewTarget(instructions=given["instructions"])
    elif "branch" in given:
        target = BaseBranchReviewTarget(branch=given["branch"])
    elif "commit" in given:
        target = CommitReviewTarget(sha=given["commit"])
    return ReviewStartParams(thread_id=thread_id, target=target)


def approval_settings(mode: ApprovalMode | None, *, has_approval_handler: bool = False) -> dict[str, Any]:
    """Members of params for who decides. None leaves everything as it is; `has_approval_handler` means that an
    `approval_handler` decides.
    """
    if mode is None:
        return {}
    if not isinstance(mode, ApprovalMode):
        raise _no_member("approval_mode", mode, ApprovalMode)
    if mode is ApprovalMode.deny_all:
        return {"approval_policy": "never"}
    return {"approval_policy": "on-request", "approvals_reviewer": "user" if has_approval_handler else "auto_review"}


def sandbox_mode(sandbox: Sandbox | None) -> str | None:
    """The sandbox as the params of a thread have it."""
    mode = _checked_sandbox(sandbox)
    if mode is None:
        return None
    return "danger-full-access" if mode is Sandbox.full_access else mode.value


def sandbox_policy(sandbox: Sandbox | None) -> SandboxPolicy | None:
    """The sandbox as the params of a turn have it."""
    match _checked_sandbox(sandbox):
        case None:
            return None
        case Sandbox.read_only:
            return settings.ReadOnlySandboxPolicy()
        case Sandbox.workspace_write:
            return settings.WorkspaceWriteSandboxPolicy()
        case Sandbox.full_access:
            return settings.DangerFullAccessSandboxPolicy()


def _checked_sandbox(sandbox: Sandbox | None) -> Sandbox | None:
    """The sandbox. Raises `ArgumentError` for a plain string, although it would be equal to a member."""
    if sandbox is not None and not isinstance(sandbox, Sandbox):
        raise _no_member("sandbox", sandbox, Sandbox)
    return sandbox


def _no_member(name: str, given: object, kind: type[Enum]) -> ArgumentValueError:
    known = ", ".join(member.name for member in kind)
    hint = f"pass {kind.__name__}.{next(iter(kind)).name}, for example"
    return ArgumentValueError(name, f"{name} must be a member of {kind.__name__} ({known}), not {given!r}: {hint}")


# --- what is not sent ---


def limit_of(timeout: float | None) -> dict[str, float]:
    """`timeout` as a keyword argument; empty if there is no limit, so that a custom client need not accept it."""
    found = limit(timeout)
    return {} if found is None else {"timeout": found}


def remaining(timeout: float | None, since: float) -> float | None:
    """Seconds that are left of a time limit that began at `since`."""
    return None if timeout is None else max(0.0, timeout - (time.monotonic() - since))


def has_approval_handler(client: Any) -> bool:
    """Whether an `approval_handler` decides."""
    handlers = getattr(client, "handlers", None)
    return handlers is not None and handlers.approval is not None


def check_limits(client: Any, **given: float | None) -> None:
    """Raise `ArgumentError` for a limit that the server would not hold: only one of ours knows them."""
    named = next((name for name, limit in given.items() if limit is not None), None)
    if named is not None and _OURS not in getattr(client, "_extensions", ()):
        problem = f"{named} is for a server of Treadle: this one would not hold it"
        raise ArgumentValueError(named, f"{problem}. Leave it out, and interrupt the turn yourself")


def tools_of(given: Sequence[Tool | Callable[..., Any]]) -> dict[str, Tool]:
    if isinstance(given, tuple | list) and not given:
        return {}
    from treadle.client.tools import tools_by_name  # only for threads with tools

    return tools_by_name(given)


def with_mcp_servers(config: JsonObject | None, servers: Mapping[str, Mapping[str, Any]] | None) -> JsonObject | None:
    """The settings of a thread with its MCP servers among them."""
    if servers is None:
        return config
    from treadle.config.mcp_settings import SECTION, table_problems  # only for threads with MCP servers

    given = {} if config is None else mapping("config", config)
    if any(key == SECTION or key.startswith(f"{SECTION}.") for key in given):
        raise ArgumentValueError(SECTION, f"config has MCP servers too: pass them all in {SECTION}")
    tables = {}
    for name, table in mapping(SECTION, servers).items():
        where = f"{SECTION}[{text(SECTION, name)!r}]"
        tables[name] = _toml(where, mapping(where, table))
        for keys, problem in table_problems(name, tables[name]):
            place = SECTION + "".join(f"[{key!r}]" for key in keys[1:])
            raise ArgumentValueError(place, f"{place} cannot be used: {problem}")
    return {**given, SECTION: tables}


def _toml(name: str, value: Any) -> Any:
    """A value as `config.toml` could have it: paths are texts, and what is None is left out."""
    if isinstance(value, Mapping):
        members = mapping(name, value).items()
        return {key: _toml(f"{name}[{key!r}]", member) for key, member in members if member is not None}
    if isinstance(value, list | tuple):
        return [_toml(f"{name}[{index}]", member) for index, member in enumerate(value)]
    return text(name, path(name, value)) if isinstance(value, str | os.PathLike) else value


def output_of(wanted: Any, schema: JsonObject | None) -> OutputType[Any] | None:
    if wanted is None:
        return None
    if schema is not None:
        problem = "output_schema and output_type say the same thing in two ways: pass one of them"
        raise ArgumentValueError("output_schema", problem)
    from treadle.client.schemas import OutputType  # only for a typed answer

    return OutputType(wanted)


def asked_again(error: OutputError) -> str:
    """The message to the model when its answer does not fit."""
    return f"Your answer cannot be used: {error}. Answer again, with nothing but JSON that fits the schema."


def live_turn() -> LiveTurn | None:
    """What shows a turn in a notebook, if there is one."""
    if "IPython" not in sys.modules:
        return None
    from treadle.client import notebook  # only in notebooks

    return notebook.live_turn()


def check_config(config: CodexConfig | None) -> None:
    """Raise `ArgumentError` unless it is a config: a string or a dict in its place is a frequent mistake."""
    if config is None or isinstance(config, CodexConfig):
        return
    hint = ""
    if isinstance(config, str | os.PathLike):
        is_url = "://" in os.fspath(config)
        hint = f": pass CodexConfig({'url' if is_url else 'codex_bin'}=…)"
    elif isinstance(config, Mapping):
        hint = ": pass CodexConfig(**…)"
    raise wrong_type("config", "a CodexConfig", config, hint)


def check_handlers(approval_handler: ApprovalHandler | None, user_input_handler: UserInputHandler | None) -> None:
    """Raise `ArgumentError` for a handler that cannot be called."""
    if approval_handler is not None:
        function("approval_handler", approval_handler, "an ApprovalRequest")
    if user_input_handler is not None:
        function("user_input_handler", user_input_handler, "a UserInputRequest")


def with_hooks(config: CodexConfig | None, hooks: PythonHooks | None) -> CodexConfig | None:
    """The config with the hooks. Raises `ArgumentError` for such as cannot be used, and for a server elsewhere."""
    if hooks is None:
        return config
    config = replace(config or CodexConfig(), hooks=hooks)
    config.check()
    return config


def with_provider(config: CodexConfig | None, **given: str | None) -> CodexConfig | None:
    """The config with the provider and the model that were named, if any were."""
    if all(value is None for value in given.values()):
        return config
    from treadle.client import provider_settings  # only for who names one

    return provider_settings.with_provider(config, **given)


def with_offline(config: CodexConfig | None, offline: bool | None) -> CodexConfig | None:
    """The config with the setting `offline`, for a server that is started here; another one has its own."""
    if offline is None:
        return config
    config = config or CodexConfig()
    if config.url is not None or config.launch_args_override is not None:
        problem = "offline is for a server that is started here: set it in the config.toml of that one"
        raise ArgumentValueError("offline", problem)
    setting = f"offline={'true' if flag('offline', offline) else 'false'}"
    return replace(config, config_overrides=(*config.config_overrides, setting))


def folder_of(client: Any, cwd: str | os.PathLike[str] | None, *, of_thread: bool = True) -> str | None:
    """A working directory, as it is sent. It must exist if the server sees the same files as we do.

    What a relative one is relative to is known for a thread of a server that we start; that of a turn is relative to
    that of its thread.
    """
    if cwd is None:
        return None
    config: CodexConfig | None = getattr(client, "config", None)
    found = path("cwd", cwd)
    if config is None or not config.is_on_this_machine:
        return found
    if os.path.isabs(found) or (of_thread and config.url is None):
        return folder("cwd", found, base=config.cwd)
    return found


def check_images(client: Any, given: RunInput, base: str | None) -> None:
    """Raise `ArgumentError` for an image without a file, if the server sees the same files as we do. A relative path is
    relative to `base`; if that is not known, the server decides.
    """
    config: CodexConfig | None = getattr(client, "config", None)
    if isinstance(given, str) or config is None or not config.is_on_this_machine:
        return
    for item in given if isinstance(given, list) else [given]:
        if isinstance(item, LocalImageInput):
            place = os.path.join(base or "", path("LocalImageInput.path", item.path))
            if os.path.isabs(place) and not os.path.isfile(place):
                problem = f"LocalImageInput.path is no file: {place!r}; name the file of an image"
                raise ArgumentValueError("LocalImageInput.path", problem)


# --- checks by the name of an argument ---


def checked(**given: Any) -> dict[str, Any]:
    """The arguments as they are sent, without those that are None. Raises `ArgumentError`."""
    return {name: _KINDS[name](name, value) for name, value in given.items() if value is not None}


def required(**given: Any) -> dict[str, Any]:
    """Arguments that cannot be None, as they are sent. Raises `ArgumentError`."""
    return {name: _KINDS[name](name, value) for name, value in given.items()}


def paths(name: str, value: object) -> str | list[str]:
    """One path, or several."""
    if isinstance(value, list | tuple):
        return [path(f"{name}[{index}]", member) for index, member in enumerate(value)]
    if not isinstance(value, str | os.PathLike) and hasattr(value, "root"):
        return paths(name, value.root)  # as the official SDK wraps it; a `Path` has a `root` too
    return path(name, value)


def _word(module: str, class_name: str) -> Callable[[str, object], str]:
    """A word of the protocol. The module of its class is loaded when one is passed."""

    def check(name: str, value: object) -> str:
        known = getattr(import_module(f"treadle.protocol.app.{module}"), class_name)
        if isinstance(value, known):
            return str(value)
        plain = value.value if isinstance(value, Enum) else value
        return known(one_of(name, plain, known, _on_purpose(class_name, plain)))  # type: ignore[no-any-return]

    return check


def _effort(name: str, value: object) -> str:
    """An effort: as a string one that most models have, because the class has words that few know."""
    from treadle.config.model_catalogue import EFFORTS  # loaded when an effort is given

    if isinstance(value, ReasoningEffort):
        return value
    plain = value.value if isinstance(value, Enum) else value
    usual = [str(option.reasoning_effort) for option in EFFORTS]
    return ReasoningEffort(one_of(name, plain, usual, _on_purpose("ReasoningEffort", plain)))


def _on_purpose(class_name: str, word: object) -> str:
    return f"; if the server knows it, pass {class_name}({word!r}) of treadle.types"


def _source_kinds(name: str, value: object) -> list[str]:
    check = _word("thread_methods", "ThreadSourceKind")
    if not isinstance(value, list | tuple):
        raise wrong_type(name, "a list of ThreadSourceKind", value)
    return [check(f"{name}[{index}]", member) for index, member in enumerate(value)]


def _dollars(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise wrong_type(name, "a number of dollars", value)
    if not 0 < value < math.inf:
        raise ArgumentValueError(name, f"{name} must be more than 0 dollars, not {value}")
    return float(value)


def _tokens(name: str, value: object) -> int:
    found = count(name, value)
    if not 1 <= found <= 2**53:
        raise ArgumentValueError(name, f"{name} must be a number of tokens from 1 on, not {value}")
    return found


def _name(name: str, value: object) -> str:
    """An id, or another text that cannot be empty."""
    found = text(name, value)
    if not found:
        raise ArgumentValueError(name, f"{name} must not be empty")
    return found


_KINDS: Final[Mapping[str, Callable[[str, Any], Any]]] = {
    "api_key": _name,
    "archived": flag,
    "base_instructions": text,
    "branch": _name,
    "commit": _name,
    "config": mapping,
    "cursor": text,
    "cwd": path,
    "developer_instructions": text,
    "effort": _effort,
    "ephemeral": flag,
    "include_hidden": flag,
    "include_turns": flag,
    "instructions": _name,
    "limit": count,
    "max_thread_cost_usd": _dollars,
    "max_thread_tokens": _tokens,
    "max_turn_cost_usd": _dollars,
    "max_turn_tokens": _tokens,
    "max_turns": count,
    "model": text,
    "model_provider": text,
    "model_providers": texts,
    "name": text,
    "output_schema": mapping,
    "permissions": text,
    "personality": _word("settings", "Personality"),
    "refresh_token": flag,
    "search_term": text,
    "section_id": text,
    "service_name": text,
    "service_tier": text,
    "session_start_source": _word("thread_methods", "ThreadStartSource"),
    "sort_direction": _word("thread_methods", "SortDirection"),
    "sort_key": _word("thread_methods", "ThreadSortKey"),
    "source": text,
    "source_kinds": _source_kinds,
    "summary": _word("settings", "ReasoningSummary"),
    "thread_id": _name,
    "thread_source": lambda name, value: text(name, value.value if isinstance(value, Enum) else value),  # any word
    "turn_service_tier": text,
    "use_state_db_only": flag,
}
