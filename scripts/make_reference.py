"""Write the references, `docs/api.md` (the SDK) and `docs/api-*.md` (other packages), from signatures and docstrings.

python -m scripts.make_reference            # write it
python -m scripts.make_reference --check    # say whether it is up to date
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import is_dataclass
from enum import Enum
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NamedTuple

from scripts.page_parts import REPOSITORY, write

import treadle
from treadle import client, execution, hooks, host, runners, testing, types
from treadle.client import lifecycle, sdk_errors, turn_events
from treadle.client.tools import read_docstring

DOCS: Final = REPOSITORY / "docs"
WIDTH: Final = 100

# What a reader looks for together, in the order of the guide. A public name that is in none of them is an error.
GROUPS: Final = {
    "Codex, threads and turns": "Codex Thread TurnHandle TurnResult TokensUsed",
    "For asyncio": "AsyncCodex AsyncThread AsyncTurnHandle",
    "Which server": "CodexConfig",
    "Settings of a thread": "ApprovalMode Sandbox",
    "What a turn is given": "RunInput Input InputItem TextInput ImageInput LocalImageInput SkillInput MentionInput "
    "ExternalMessage",
    "Small events": "Event TextDelta TextRestarted Text Reasoning CommandStarted CommandOutput CommandFinished "
    "FileChange ToolCallStarted ToolCallProgress ToolCall Plan PlanStep Usage Problem Done",
    "Notifications": "Notification UnknownNotification",
    "Approvals and questions": "ApprovalHandler ApprovalRequest ApprovalDecision UserInputHandler UserInputRequest",
    "Tools": "Tool ToolCallError",
    "Trying again": "retry_on_overload async_retry_on_overload is_retryable_error",
    "Errors": "CodexError TransportClosedError JsonRpcError CodexRpcError ParseError InvalidRequestError "
    "ConfigurationError MethodNotFoundError InvalidParamsError InternalRpcError ServerBusyError "
    "RetryLimitExceededError TurnFailed TurnLimitReached TurnConflict MissingMetadata RequestTimeout EventsLost "
    "OutputError ConfigurationWarning",
    "Logins": "ChatgptLoginHandle DeviceCodeLoginHandle AsyncChatgptLoginHandle AsyncDeviceCodeLoginHandle",
    "Who the server is": "InitializeResponse ServerInfo",
    "Low-level clients": "AppServerClient AsyncAppServerClient",
}


class Page(NamedTuple):
    """The reference of one package: what a reader finds before it, and the public names by what belongs together."""

    package: ModuleType
    guides: str
    groups: dict[str, str]

    @property
    def target(self) -> Path:
        return DOCS / f"api-{self.package.__name__.rpartition('.')[2]}.md"


PAGES: Final = (
    Page(
        runners,
        "[runners.md](runners.md), [projects.md](projects.md) and [scheduler.md](scheduler.md) are the guides",
        {
            "Runners": "find_engine engine_names make_runner UnknownEngine Runner Run RunOptions CodexRunner "
            "ClaudeRunner OpenCodeRunner PiRunner TreadleRunner",
            "What a run says": "Event StartedEvent ActionEvent Action TextDelta CompletedEvent ResumeToken",
            "Progress": "Progress Snapshot Step",
            "Installed programs": "EngineStatus engine_statuses LoginStatus look_for_login",
            "Engines": "Engine RunRequest RunChoices Timeouts Waits Reply CloseInput GiveUp ResumeLine Ending "
            "ApprovalAsk ApprovalAnswer Withdrawn McpCommand",
            "Projects, branches and messages": "Projects Project ProjectError Worktrees Worktree WorktreeError Router "
            "EngineEntry Route RouteError",
            "Scheduler": "Scheduler Limits Rate Job JobHandle Cron Repeat Recovery Interrupted SchedulerStats "
            "QueueFull JournalError JournalInUse",
        },
    ),
    Page(
        host,
        "[host.md](host.md), [sessions.md](sessions.md), [runtimes.md](runtimes.md) and "
        "[memory-and-skills.md](memory-and-skills.md) are the guides",
        {
            "An agent": "HostAgent ConversationResult ConversationStore MemoryStore SkillStore",
            "Sessions": "Session TurnResult Usage Timeouts Clock Ask",
            "Runtimes": "Runtime AppServerRuntime LocalRuntime EngineRuntime",
            "Events as messages": "Projection project",
            "Errors": "Fault RuntimeFault ResumeFailed AgentBusy AgentClosed SessionBusy SessionClosed",
        },
    ),
    Page(
        execution,
        "[execution.md](execution.md) is the guide",
        {
            "Where commands run": "Environment ExecParams EnvPolicy Sandbox",
            "Processes": "Process ProcessInfo CompletedRun ReadResponse OutputChunk OutputStream WriteResult "
            "WriteStatus",
            "Events": "EventStream ProcessEvent Output Exited Closed Failed Evicted",
            "Errors": "ExecError ExecTimeout",
        },
    ),
    Page(
        hooks,
        "[hooks.md](hooks.md) is the guide",
        {
            "A hook": "PythonHook HookInput HookResult",
            "Sessions and turns": "SessionStart SessionEnd UserPromptSubmit Stop Interrupt SubagentStart SubagentStop",
            "Tools": "PreToolUse PostToolUse PermissionRequest",
            "Models": "PreModelRequest PostModelRequest PreCompact PostCompact",
        },
    ),
    Page(
        testing,
        "[sdk.md](sdk.md#in-your-tests) is the guide",
        {
            "Models": "MockModel RecordedRequest Reply ToolCall Usage EngineModel",
            "Servers and homes": "AppServerHarness HarnessClient EngineHome",
            "Hosts": "ScriptedRuntime RuntimePlay ManualClock",
            "Suites": "check_engine check_runtime check_store STORE_CHECKS check_wire_api",
        },
    ),
)
# What public aliases are made of.
INSIDE: Final = {"Answers", "Verdict"}
ALIASES: Final = {"AppServerConfig": "CodexConfig", "RunResult": "TurnResult"}

HEAD: Final = """# The SDK: reference

Made by `scripts/make_reference.py` from the docstrings; [sdk.md](sdk.md) is the guide. A name is imported from the
module that stands before it. `treadle.types` also has every struct and enum of the protocol.
"""


def main() -> int:
    return write({DOCS / "api.md": render(), **{page.target: render_page(page) for page in PAGES}})


def render() -> str:
    _check(public_names(), GROUPS)
    parts = [HEAD, _contents(GROUPS)]
    for title, names in GROUPS.items():
        parts.append(f"## {title}")
        if title == "Errors":
            parts.append(f"```text\n{(inspect.getdoc(sdk_errors) or '').partition(chr(10) * 2)[2]}\n```")
            parts.append("\n".join(f"- `treadle.{name}`: {_line(getattr(client, name))}" for name in names.split()))
        else:
            parts += (part for name in names.split() for part in _entry(name))
    return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"


def render_page(page: Page) -> str:
    """The reference of a package. What a class has from another one of the page is described there."""
    package = page.package.__name__
    _check(set(page.package.__all__), page.groups)
    parts = [
        f"# `{package}`: reference",
        f"Made by `scripts/make_reference.py` from the docstrings; {page.guides}.",
        _contents(page.groups),
    ]
    listed = {thing for name in page.package.__all__ if isinstance(thing := getattr(page.package, name), type)}
    for title, names in page.groups.items():
        parts.append(f"## {title}")
        for name in names.split():
            parts.append(f"### {name}\n\n`{package}.{name}`")
            parts += _thing(name, getattr(page.package, name), listed, page.package)
    return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"


def _check(public: set[str], groups: dict[str, str]) -> None:
    unknown = public ^ {name for names in groups.values() for name in names.split()}
    if unknown:
        names = ", ".join(sorted(unknown))
        raise SystemExit(f"the groups of scripts/make_reference.py and the public names differ in: {names}")


def _contents(groups: dict[str, str]) -> str:
    return "\n".join(f"- [{title}](#{_anchor(title)})" for title in groups)


def public_names() -> set[str]:
    """What the SDK is, without what is there under a second name."""
    small = {
        name for name in types.__all__ if getattr(types, name).__module__ in (turn_events.__name__, lifecycle.__name__)
    }
    return {*client.__all__, *small, "Event"} - set(ALIASES)


def _anchor(title: str) -> str:
    return re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-")


def _entry(name: str) -> Iterator[str]:
    home = next(module for module in (treadle, types, client) if name in module.__all__)
    thing = getattr(home, name)
    also = [f"`{alias}` is the same." for alias, meant in ALIASES.items() if meant == name]
    yield f"### {name}\n\n`{home.__name__}.{name}`" + "".join(f" · {text}" for text in also)
    twin = name.removeprefix("Async")
    if isinstance(thing, type) and twin != name:
        yield from _async_class(thing, getattr(client, twin))
    else:
        yield from _thing(name, thing, set(), client)


def _thing(name: str, thing: Any, listed: set[type], package: ModuleType) -> Iterator[str]:
    """What there is to say of a public name; `listed` are classes that are described by themselves."""
    if isinstance(thing, type):
        yield from _class(thing, listed)
    elif inspect.isfunction(thing):
        yield _block(f"{'async ' if inspect.iscoroutinefunction(thing) else ''}def {name}", thing)
        yield _described(inspect.getdoc(thing) or "")
    else:
        yield f"```py\n{_alias(name, package)}\n```"


# --- classes ---------------------------------------------------------------------------------------------------------


def _class(cls: type, listed: set[type]) -> Iterator[str]:
    members = _members(cls)
    made_by = vars(cls).get("__init__")
    if inspect.isfunction(made_by) and not is_dataclass(cls):
        yield _block(cls.__name__, made_by, bound=True)
    prose, parameters = read_docstring(class_docs(cls))
    yield prose
    bases = [base for base in cls.__mro__[1:] if base in listed]
    if bases:
        yield f"A [`{bases[0].__name__}`](#{bases[0].__name__.lower()}), with all that it has."
    if inspect.isfunction(made_by) and not is_dataclass(cls):
        yield _list(parameters)
    if members:
        yield "\n".join(members)
    inherited = {name for base in bases for name, _ in _methods(base)}
    own = {
        name: method
        for name, method in _methods(cls)
        if name not in inherited or (name in vars(cls) and _docs(method))  # said anew
    }
    calls = {name: method for name, method in own.items() if _rpc(method)}
    for name, method in own.items():
        if name not in calls:
            yield from _method(name, method)
    if calls:
        yield "One method for each RPC, each with `timeout=`:"
        rows = [
            f"| `{name}({', '.join(_short(call))})` | `{_rpc(call)}` | {_about(call)} |"
            for name, call in sorted(calls.items())
        ]
        yield "\n".join(["| method | RPC | |", "|---|---|---|", *rows])


def _async_class(cls: type, twin: type) -> Iterator[str]:
    """Only what is not the same."""
    own, others = dict(_methods(cls)), dict(_methods(twin))
    plain = [name for name, method in own.items() if inspect.isfunction(method) and not _is_awaited(method)]
    generators = [name for name, method in own.items() if inspect.isasyncgenfunction(method)]
    text = f"As [`{twin.__name__}`](#{twin.__name__.lower()}), with `await` before each call."
    if generators:
        text += f" {_listed(generators)} {'is' if len(generators) == 1 else 'are'} read with `async for`."
    if plain:
        text += f" {_listed(plain)} {'is' if len(plain) == 1 else 'are'} not awaited."
    yield text
    differing = [name for name, method in own.items() if name not in others or _docs(method) != _docs(others[name])]
    for name in differing:
        yield from _method(name, own[name])


def class_docs(cls: type) -> str:
    """Its own words: not those of a base, nor the signature that a dataclass gets instead."""
    own = vars(cls).get("__doc__") or ""
    return "" if own.startswith(f"{cls.__name__}(") else inspect.cleandoc(own)


def _described(text: str) -> str:
    """A docstring as Markdown: the descriptions of the parameters are a list."""
    prose, parameters = read_docstring(text)
    return "\n\n".join(part for part in (prose, _list(parameters)) if part)


def _list(parameters: dict[str, str]) -> str:
    return "\n".join(f"- `{name}`: {described}" for name, described in parameters.items())


def _line(cls: type) -> str:
    return " ".join(class_docs(cls).split())


def _docs(method: Any) -> str:
    return inspect.getdoc(method) or ""


def _is_awaited(method: Any) -> bool:
    return inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method)


def _methods(cls: type) -> Iterator[tuple[str, Any]]:
    """The public ones in the order of the source, inherited ones last."""
    seen = set()
    for base in cls.__mro__:
        if not base.__module__.startswith("treadle.") or base.__module__ == "treadle.errors":
            continue
        for name, member in vars(base).items():
            known = isinstance(member, property | classmethod | staticmethod) or inspect.isfunction(member)
            if known and not name.startswith("_") and name not in seen and name not in INTERNAL:
                seen.add(name)
                yield name, member


# Called by the connection, or by the faces above: not for users.
INTERNAL: Final = frozenset(
    {"frames_received", "connection_ended", "open_turn", "close_turn", "abandon_turn", "check", "is_on_this_machine"}
    | {"model_validate", "model_dump", "begin", "belong", "complete"}
)


def _method(name: str, method: Any) -> Iterator[str]:
    if isinstance(method, property):
        returned = inspect.signature(method.fget).return_annotation if method.fget is not None else ""
        yield f"#### {name}\n\n```py\n{name}: {_annotation(returned)}\n```"
    else:
        kind = "async def" if _is_awaited(method) else "def"
        before = f"@classmethod\n{kind}" if isinstance(method, classmethod) else kind
        yield f"#### {name}\n\n{_block(f'{before} {name}', getattr(method, '__func__', method), bound=True)}"
    yield _described(_docs(method))


def _rpc(method: Any) -> str:
    found = re.search(r"\(`([\w/]+)`\)$", _docs(method))
    return found[1] if found else ""


def _about(method: Any) -> str:
    return _docs(method).partition(" (`")[0]


# --- signatures ------------------------------------------------------------------------------------------------------


def _block(before: str, function: Callable[..., Any], *, bound: bool = False) -> str:
    signature = inspect.signature(function)
    given = list(_parameters(signature, bound=bound))
    returned = signature.return_annotation
    after = "" if returned is signature.empty or "def " not in before else f" -> {_annotation(returned)}"
    line = f"{before}({', '.join(given)}){after}"
    if len(line) > WIDTH:
        line = f"{before}(\n" + "".join(f"    {part},\n" for part in given) + f"){after}"
    return f"```py\n{line}\n```"


STARS: Final[dict[Any, str]] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}


def _parameters(signature: inspect.Signature, *, bound: bool, annotated: bool = True) -> Iterator[str]:
    starred = False
    for number, parameter in enumerate(signature.parameters.values()):
        if bound and number == 0:
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            starred = True
            yield "*"
        text = f"{STARS.get(parameter.kind, '')}{parameter.name}"
        has_default = parameter.default is not parameter.empty
        if annotated and parameter.annotation is not parameter.empty:
            text += f": {_annotation(parameter.annotation)}"
            yield f"{text} = {_value(parameter.default)}" if has_default else text
        else:
            yield f"{text}={_value(parameter.default)}" if has_default else text


def _short(method: Any) -> list[str]:
    """Without types, and without what all have."""
    parts = list(_parameters(inspect.signature(method), bound=True, annotated=False))
    parts = [part for part in parts if not part.startswith("timeout")]
    return parts[:-1] if parts and parts[-1] == "*" else parts


def _annotation(given: Any) -> str:
    return given if isinstance(given, str) else getattr(given, "__name__", str(given))


def _value(given: Any) -> str:
    if isinstance(given, Enum):
        return f"{type(given).__name__}.{given.name}"
    return "…" if inspect.isfunction(given) else repr(given)


# --- source ----------------------------------------------------------------------------------------------------------


def _members(cls: type) -> list[str]:
    """The fields of a class, or the members of an enum, as they are written, with what is said below them."""
    body = _class_body(cls)
    described = read_docstring(class_docs(cls))[1]
    found = []
    for number, node in enumerate(body):
        below = body[number + 1] if number + 1 < len(body) else None
        text = _text_of(below) or described.get(_target(node), "")
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            name, shown = node.target.id, f"{node.target.id}: {ast.unparse(node.annotation)}"
            is_tag = name == "kind" and node.value is not None
            if name.startswith("_") or is_tag or shown.endswith("ClassVar"):
                continue
            default = "" if node.value is None else _default(node.value)
            found.append(f"- `{shown}{default}`{f': {text}' if text else ''}")
        elif issubclass(cls, Enum) and isinstance(node, ast.Assign):
            found.append(f"- `{cls.__name__}.{ast.unparse(node.targets[0])}`")
    return found


def _target(node: ast.stmt) -> str:
    return ast.unparse(node.target) if isinstance(node, ast.AnnAssign) else ""


def _default(node: ast.expr) -> str:
    """What `field(…)` says of it, or the value as it is written."""
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "field":
        given = {keyword.arg: keyword.value for keyword in node.keywords}
        if "default_factory" in given:
            return f" = {ast.unparse(given['default_factory'])}()"
        if "default" not in given:
            return ""
        node = given["default"]
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "cast":
        node = node.args[1]
    return f" = {ast.unparse(node)}"


def _class_body(cls: type) -> list[ast.stmt]:
    module = inspect.getmodule(cls)
    assert module is not None
    return next(
        node.body for node in _source(module.__name__) if isinstance(node, ast.ClassDef) and node.name == cls.__name__
    )


def _text_of(node: ast.stmt | None) -> str:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
        return " ".join(node.value.value.split())
    return ""


def _alias(name: str, package: ModuleType) -> str:
    """A type alias as it is written; of a constant, its type."""
    folder = Path(package.__file__ or "").parent
    for path in sorted(folder.glob("**/*.py")):
        module = ".".join([package.__name__, *path.relative_to(folder).with_suffix("").parts])
        for node in [] if path.stem == "__init__" else _source(module):
            match node:
                case ast.AnnAssign(target=ast.Name(id=found), annotation=ast.Subscript(slice=kind)) if found == name:
                    return f"{name}: {ast.unparse(kind)}"
                case ast.AnnAssign(target=ast.Name(id=found), value=ast.expr() as value) if found == name:
                    pass
                case ast.Assign(targets=[ast.Name(id=found)], value=value) if found == name:
                    pass
                case _:
                    continue
            meant = ast.unparse(value)
            split = f"\n{' ' * (len(name) + 1)}| ".join(meant.split(" | ")) if len(meant) > WIDTH else meant
            named = {part.id for part in ast.walk(value) if isinstance(part, ast.Name)} & INSIDE
            return "\n".join([f"{name} = {split}", *(_alias(part, package) for part in sorted(named))])
    raise SystemExit(f"{name} is neither a class, a function nor an alias that was found")


@cache
def _source(module: str) -> list[ast.stmt]:
    return ast.parse(Path(import_module(module).__file__ or "").read_text(encoding="utf-8")).body


def _listed(names: list[str]) -> str:
    return " and ".join(f"`{name}`" for name in names)


if __name__ == "__main__":
    raise SystemExit(main())
