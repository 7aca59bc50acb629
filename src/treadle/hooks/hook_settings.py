"""Hooks as files say them: reading `hooks.json` and `[hooks]`, matchers, keys, and trust.

A hook runs with all the rights of the user. So one that does not come from the administrator, or is a function of the
program itself, runs only when the user has trusted it: `[hooks.state."KEY"] trusted_hash` in the user's own
config.toml has the hash of its settings (not of the program that it starts). Key and hash are those of Codex, so that
what was trusted there is trusted here. Pure.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType, field, structs

from treadle.hooks.hook_events import BRIEF, EVENTS, UNMATCHED, HookInput, snake_case
from treadle.hooks.hook_outputs import REFUSING, HookResult

Source: TypeAlias = Literal["system", "user", "project", "sessionFlags"]
Trust: TypeAlias = Literal["managed", "untrusted", "trusted", "modified"]
HookFunction: TypeAlias = Callable[[Any], "HookResult | Awaitable[HookResult | None] | None"]
DEFAULT_S: Final = 600
# Where somebody waits for the end of a thread or of a turn.
BRIEF_S: Final = 1
MAX_BRIEF_S: Final = 3
LONGEST_S: Final = 24 * 3600
MAX_HOOKS: Final = 200  # of one file
MAX_MATCHER: Final = 1000  # characters
STATE: Final = "state"  # the table below `[hooks]` that is no event
_EXACT: Final = re.compile(r"[A-Za-z0-9_|]+")


class Hook(Struct, frozen=True, kw_only=True):
    """A hook, wherever it comes from. `problem` says why it cannot run, `hash` what trust is given to. Async ones are
    not waited for. `path` is the file, or the name of the Python function."""

    event: str
    key: str
    path: str
    source: Source
    order: int = 0
    matcher: str | None = None
    timeout_s: float = DEFAULT_S
    command: str | None = None
    server: str = ""
    tool: str = ""
    arguments: Mapping[str, Any] = {}
    function: HookFunction | None = None
    runs_async: bool = False
    status_message: str | None = None
    context_limit: int | None = None
    refuses_on_error: bool = False
    hash: str = ""
    trust: Trust = "untrusted"
    enabled: bool = True
    problem: str | None = None

    @property
    def runs(self) -> bool:
        return self.enabled and self.trust in ("managed", "trusted")

    @property
    def name(self) -> str:
        """The name that people know the hook by."""
        return self.command or (f"{self.server}/{self.tool}" if self.server else self.path)

    def suits(self, given: HookInput) -> bool:
        subjects = given.subjects
        return self.event == given.event and (subjects is None or any(map(matching(self.matcher), subjects)))


class HookFile(Struct, frozen=True):
    """What one file says; `warnings` are about what of it has no effect."""

    hooks: tuple[Hook, ...] = ()
    warnings: tuple[str, ...] = ()


class HooksFile(Struct, forbid_unknown_fields=True):
    """A hooks.json."""

    description: str = ""
    hooks: dict[str, Any] = {}


class _Handler(Struct, kw_only=True):
    type: Literal["command", "mcp_tool", "prompt", "agent"]
    command: str | None = None
    server: str | None = None
    tool: str | None = None
    arguments: dict[str, Any] = field(name="input", default_factory=dict)
    timeout: UnsetType | Annotated[int, Meta(ge=0)] = UNSET
    runs_async: bool = field(name="async", default=False)
    status_message: str | None = field(name="statusMessage", default=None)
    context_limit: int | None = field(name="additionalContextLimit", default=None)
    guard: bool = False
    on_error: Literal["allow", "deny"] | None = None


class _Group(Struct):
    hooks: list[_Handler] = []
    matcher: str | None = None


def read_hooks(events: Mapping[str, Any], path: str, source: Source) -> HookFile:
    """The hooks of a table of events: `hooks` of a hooks.json, or `[hooks]` of a config.toml, where `state` and other
    settings stand beside them."""
    try:
        tables = {name: msgspec.convert(events[name], list[_Group]) for name in EVENTS if name in events}
    except (msgspec.ValidationError, RecursionError) as error:
        return HookFile(warnings=(f"failed to parse hooks config {path}: {error}",))
    reading = _Reading(path, source)
    for name, groups in tables.items():
        for number, group in enumerate(groups):
            reading.read_group(name, number, group)
    if len(reading.hooks) > MAX_HOOKS:
        reading.warnings.append(f"{path} has {len(reading.hooks)} hooks: only the first {MAX_HOOKS} count")
    return HookFile(tuple(reading.hooks[:MAX_HOOKS]), tuple(reading.warnings))


class _Reading:
    def __init__(self, path: str, source: Source) -> None:
        self._path = path
        self._source = source
        self.hooks: list[Hook] = []
        self.warnings: list[str] = []

    def read_group(self, event: str, number: int, group: _Group) -> None:
        matcher = None if event in UNMATCHED else group.matcher
        problem = None
        try:
            matching(matcher)
        except ValueError as error:
            problem = f'invalid matcher "{(matcher or "")[:MAX_MATCHER]}" in {self._path}: {error}'
            self.warnings.append(problem)
        for index, handler in enumerate(group.hooks):
            hook = self._hook(event, f"{self._path}:{snake_case(event)}:{number}:{index}", matcher, handler, problem)
            if hook is not None:
                self.hooks.append(hook)

    def _hook(self, event: str, key: str, matcher: str | None, handler: _Handler, problem: str | None) -> Hook | None:
        skipped = None
        if handler.type in ("prompt", "agent"):
            skipped = f"skipping {handler.type} hook in {self._path}: {handler.type} hooks are not supported yet"
        elif handler.type == "command" and not (handler.command or "").strip():
            skipped = f"skipping empty hook command in {self._path}"
        elif handler.type == "mcp_tool" and not (handler.server and handler.tool):
            skipped = f"skipping MCP tool hook in {self._path}: it needs a server and a tool"
        elif handler.type == "mcp_tool" and event == "SessionEnd":
            skipped = f"skipping MCP tool hook in {self._path}: SessionEnd MCP hooks are not supported"
        if skipped is not None:
            self.warnings.append(skipped)
        refuses = self._refuses_on_error(event, handler)
        if (skipped or problem) and not refuses:
            return None
        timeout = self._timeout(event, handler.timeout)
        is_command = handler.type == "command"
        return Hook(
            event=event,
            key=key,
            path=self._path,
            source=self._source,
            matcher=None if problem else matcher,  # nobody knows what it was meant for
            timeout_s=timeout,
            command=handler.command if is_command else None,
            server=handler.server or "",
            tool=handler.tool or "",
            arguments=handler.arguments,
            runs_async=handler.runs_async and is_command,
            status_message=handler.status_message,
            context_limit=handler.context_limit,
            refuses_on_error=refuses,
            hash=_hash(event, matcher, handler, timeout),
            problem=problem or skipped,
        )

    def _refuses_on_error(self, event: str, handler: _Handler) -> bool:
        if handler.on_error == "deny" and (event not in REFUSING or handler.runs_async):
            why = "nobody waits for it" if handler.runs_async else f"a {event} hook refuses nothing"
            self.warnings.append(f'on_error = "deny" of a hook in {self._path} has no effect: {why}')
            return False
        guards = handler.guard and event in ("PreToolUse", "PermissionRequest") and not handler.runs_async
        return handler.on_error == "deny" or (handler.on_error is None and guards)

    def _timeout(self, event: str, given: int | UnsetType) -> int:
        if event not in BRIEF:
            return DEFAULT_S if given is UNSET else max(given, 1)
        if given is UNSET:
            return BRIEF_S
        if given > MAX_BRIEF_S:
            self.warnings.append(f"clamping {event} hook timeout to {MAX_BRIEF_S}s in {self._path}")
        return min(max(given, 1), MAX_BRIEF_S)


def matching(matcher: str | None) -> Callable[[str], bool]:
    """The test that a matcher stands for. Raises `ValueError` for one that is no regular expression."""
    if matcher in (None, "", "*"):
        return lambda subject: True
    assert matcher is not None
    if _EXACT.fullmatch(matcher):
        return frozenset(matcher.split("|")).__contains__
    if len(matcher) > MAX_MATCHER:
        raise ValueError(f"it is longer than {MAX_MATCHER} characters")
    try:
        pattern = re.compile(matcher)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"regex parse error: {error}") from None
    return lambda subject: pattern.search(subject) is not None


# --- trust ------------------------------------------------------------------------------------------------------------


def _hash(event: str, matcher: str | None, handler: _Handler, timeout: int) -> str:
    """The hash that Codex gives a hook. `guard` and `on_error` are not in it: they only make it stricter, and whoever
    can take them out of the file can take out the hook."""
    from hashlib import sha256  # loads OpenSSL; few have hooks

    settings: dict[str, Any] = {"type": handler.type, "timeout": timeout}
    if handler.type == "command":
        settings |= {"command": handler.command, "async": handler.runs_async}
        if handler.context_limit is not None:
            settings["additionalContextLimit"] = handler.context_limit
    else:
        settings |= {"server": handler.server, "tool": handler.tool, "input": _as_hashed(handler.arguments)}
    if handler.status_message is not None:
        settings["statusMessage"] = handler.status_message
    identity: dict[str, Any] = {"event_name": snake_case(event), "hooks": [settings]}
    if matcher is not None:
        identity["matcher"] = matcher
    return "sha256:" + sha256(msgspec.json.encode(identity, order="sorted")).hexdigest()


def _as_hashed(value: Any) -> Any:
    """Numbers as the hash has them: by the name that a library of Codex gives them."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int | float):
        return {"$serde_json::private::Number": msgspec.json.encode(value).decode()}
    if isinstance(value, Mapping):
        return {key: _as_hashed(member) for key, member in value.items()}
    return [_as_hashed(member) for member in value] if isinstance(value, list) else value


def with_trust(hooks: Sequence[Hook], state: object) -> tuple[Hook, ...]:
    """The hooks in their order, with what the user has decided about each. `state` is `[hooks.state]`."""
    decided = state if isinstance(state, Mapping) else {}
    found = []
    for order, hook in enumerate(hooks):
        known = decided.get(hook.key)
        known = known if isinstance(known, Mapping) else {}
        trust: Trust = "managed"
        if hook.source != "system" and hook.function is None:
            trusted = known.get("trusted_hash")
            trust = "untrusted" if trusted is None else "trusted" if trusted == hook.hash else "modified"
        enabled = trust == "managed" or known.get("enabled") is not False
        found.append(structs.replace(hook, order=order, trust=trust, enabled=enabled))
    return tuple(found)


def trust_warnings(hooks: Sequence[Hook], cwd: str) -> list[str]:
    """The warnings of a thread about hooks that do not run because nobody has trusted them: one for each file."""
    waiting: dict[str, list[Hook]] = {}
    for hook in hooks:
        if hook.enabled and not hook.runs:
            waiting.setdefault(hook.path, []).append(hook)
    warnings = []
    for path, found in waiting.items():
        changed = any(hook.trust == "modified" for hook in found)
        events = ", ".join(dict.fromkeys(hook.event for hook in found))
        number = "a hook" if len(found) == 1 else f"{len(found)} hooks"
        why = "changed since you trusted them" if changed else "not trusted yet"
        warnings.append(
            f"{number} in {path} ({events}) did not run: {why}. Look at what would run with `treadle hooks list`, "
            f"then type: treadle hooks trust --cd {shlex.quote(cwd)}"
        )
    return warnings
