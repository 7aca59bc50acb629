"""Hooks that are Python functions: those of the program that a server is part of (`Codex(hooks=…)`), and those that
other packages offer under the entry point group `treadle.hooks`, where config.toml names them (`hooks.plug_ins`).

Nobody has to trust them: they are code of the user's own program.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias

from msgspec import Struct

from treadle.arguments import seconds, wrong_type
from treadle.errors import ArgumentValueError, TreadleError
from treadle.hooks.hook_events import BRIEF, EVENTS, UNMATCHED
from treadle.hooks.hook_files import HookSet
from treadle.hooks.hook_settings import BRIEF_S, DEFAULT_S, MAX_BRIEF_S, Hook, HookFunction, matching

GROUP: Final = "treadle.hooks"


class PythonHook(Struct, frozen=True):
    """A function for an event, and what `hooks.json` says of a command beside it.

    Args:
        function: It gets the input of the event, and returns a `HookResult` or None; plain or async.
        matcher: What it is called for, as in `hooks.json`; None is everything.
        timeout: Seconds that it may take. 600 without it, 1 for `SessionEnd` and `Interrupt`, which may take at most 3.
        guard: Whether `PreToolUse` and `PermissionRequest` refuse when the function fails.
    """

    function: HookFunction
    matcher: str | None = None
    timeout: float | None = None
    guard: bool = False


PythonHooks: TypeAlias = Mapping[str, HookFunction | PythonHook | Sequence[HookFunction | PythonHook]]


def read_python_hooks(given: object) -> tuple[Hook, ...]:
    """The hooks of a mapping from events to functions. Raises `ArgumentError`."""
    if not isinstance(given, Mapping):
        raise wrong_type("hooks", "a mapping of events to functions", given, ': pass {"PreToolUse": function}')
    found: list[Hook] = []
    for event, functions in given.items():
        if event not in EVENTS:
            raise ArgumentValueError("hooks", f"hooks: there is no event {event!r}: pass one of {', '.join(EVENTS)}")
        several = functions if isinstance(functions, list | tuple) else [functions]
        found += [_hook(event, each if isinstance(each, PythonHook) else PythonHook(each)) for each in several]
    return tuple(found)


def _hook(event: str, given: PythonHook) -> Hook:
    function = given.function
    if not callable(function):
        raise wrong_type(f"hooks[{event!r}]", "a function", function)
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        raise ArgumentValueError(f"hooks[{event!r}]", f"{function!r} does not take the input of the event") from None
    except ValueError:
        pass  # it is written in C
    try:
        matching(given.matcher)
    except ValueError as error:
        raise ArgumentValueError(f"hooks[{event!r}]", f"the matcher cannot be used: {error}") from None
    limit = float(BRIEF_S if event in BRIEF else DEFAULT_S)
    if given.timeout is not None:
        limit = seconds("timeout", given.timeout)
        limit = min(limit, MAX_BRIEF_S) if event in BRIEF else limit
    name = f"{getattr(function, '__module__', '?')}.{getattr(function, '__qualname__', type(function).__qualname__)}"
    return Hook(
        event=event,
        key=f"python:{name}:{event}",
        path=f"python:{name}",
        source="sessionFlags",
        matcher=None if event in UNMATCHED else given.matcher,
        timeout_s=limit,
        function=function,
        refuses_on_error=given.guard and event in ("PreToolUse", "PermissionRequest"),
        trust="managed",
    )


def load_plug_ins(names: Iterable[str]) -> HookSet:
    """The hooks of entry points, and warnings about those that cannot be had. Blocking."""
    from treadle.own_python import plug_ins  # only for those who name some

    offered = plug_ins(GROUP)
    found: list[Hook] = []
    warnings: list[str] = []
    for name in names:
        points = offered.get(name, [])
        try:
            if len(points) != 1:
                why = f"is offered by {len(points)} packages" if points else "is offered by no installed package"
                raise TreadleError(why)
            found += read_python_hooks(points[0].load())
        except Exception as error:  # it is code of others
            warnings.append(f"hooks.plug_ins: {name} cannot be used: {error}")
    return HookSet(tuple(found), tuple(warnings))
