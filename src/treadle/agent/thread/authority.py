"""`Authority`: what a thread may do without asking again, and which commands run with rights that it had.

It owns the answers "for the session" and their end. They belong to the approval policy, the sandbox and the directory
under which they were given: when one of these changes, all of them are forgotten, questions that are still open lose
their meaning (`epoch`), and commands that may do more than the new settings allow are named for their end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol

from msgspec import Struct, structs

from treadle.agent.thread.thread_state import Settings
from treadle.errors import ExecError
from treadle.execution.sandbox.policy import Policy, policy_from_wire
from treadle.execution.sandbox.profile_sandbox import Confinement, without_writing
from treadle.execution.sandbox.sandbox_modes import is_unconfined, pinned_sandbox, sandbox_for
from treadle.execution.sandbox.sandbox_roots import pin
from treadle.protocol.exec import Sandbox

if TYPE_CHECKING:
    from treadle.agent.turn.turn import Turn
    from treadle.execution.files.pinned_files import Location

ENDED: Final = "ended: the settings of the thread changed, and this command could do more than they allow now"
CHANGED: Final = (
    "nothing was done: the approval policy, the sandbox or the directory of the thread changed meanwhile. "
    "Call it again if it is still needed."
)
# Ended commands that the model can still ask about; a thread has no more of them at a time. Actions that were denied,
# and those that were overruled, too.
_REMEMBERED: Final = 64
# How often a policy asks; one that is not here counts as the one that asks least, and for a parent as the one that asks
# most.
_ASKS: Final = {"never": 0, "on-request": 1, "on-failure": 1, "untrusted": 2}
_RANK: Final = {"none": 0, "read": 1, "write": 2}


class Grant(Struct, frozen=True, kw_only=True):
    """A command that need not be asked for again: this line, here, in this way. `cwd` has no links in it."""

    argv: tuple[str, ...]
    environment: str
    cwd: str
    tty: bool
    env: bytes
    """The rules by which its environment is made."""
    unconfined: bool


class RunningProgram(Protocol):
    """What runs with the rights of a thread: a command of the model, or an engine."""

    id: int

    @property
    def process_id(self) -> str: ...
    @property
    def closed(self) -> bool: ...
    async def terminate(self, reason: str) -> None: ...


class _Started(Struct, frozen=True):
    epoch: int
    settings: Settings
    rules: Policy | None
    """What it may do, as far as that is known; None is everything."""


class Authority:
    def __init__(self) -> None:
        self.epoch: int = 0
        self.commands: set[Grant] = set()
        self.files: set[Location] = set()
        self.mcp_tools: set[tuple[str, str]] = set()  # server and tool
        self.hosts: set[str] = set()  # whose pages may be fetched
        self.engine_tools: set[tuple[str, ...] | None] = set()  # what an engine may do, see `session_key`
        self._running: dict[RunningProgram, _Started] = {}
        self._ended: dict[int, None] = {}
        self._denied: dict[str, tuple[str, str]] = {}  # item and action, by the id of the review
        self._overruled: dict[str, None] = {}
        self._reviews: set[asyncio.Timeout] = set()

    def started(self, session: RunningProgram, epoch: int, settings: Settings, rules: Policy | None) -> None:
        """A command of the model runs, as the settings of that epoch allowed it. `rules` are those of `rules_of`."""
        if not session.closed:
            self._running[session] = _Started(epoch, settings, rules)
        self._ended.pop(session.id, None)

    def closed(self, session: RunningProgram) -> None:
        """A command has ended with all its children. To hold it here would hold its output and its turn in memory."""
        self._running.pop(session, None)

    def allows(self, session: RunningProgram, settings: Settings) -> bool:
        """Whether a command that runs may do no more than these settings allow. Blocking."""
        started = self._running.get(session)
        return started is not None and _allows(settings, started)

    def was_ended(self, session_id: int) -> bool:
        return session_id in self._ended

    def forget(self) -> None:
        """Whatever was granted or asked for before counts no longer."""
        self.epoch += 1
        self.commands.clear()
        self.files.clear()
        self.mcp_tools.clear()
        self.hosts.clear()
        self.engine_tools.clear()
        self._denied.clear()
        self._overruled.clear()
        for clock in self._reviews:
            if not clock.expired():
                clock.reschedule(0.0)

    # --- the automatic reviewer ---

    @contextmanager
    def ending(self, clock: asyncio.Timeout) -> Iterator[None]:
        """A review under way: its time is over when the settings change."""
        self._reviews.add(clock)
        try:
            yield
        finally:
            self._reviews.discard(clock)

    def denied(self, review_id: str, item_id: str, action: str) -> None:
        """An automatic reviewer has said no; the user may still say yes."""
        self._denied[review_id] = item_id, action
        _drop_oldest(self._denied)

    def overrule(self, review_id: str) -> str | None:
        """The user allows what was denied, once. The item of the denied action; None when no such denial is known."""
        denied = self._denied.pop(review_id, None)
        if denied is None:
            return None
        item_id, action = denied
        self._overruled[action] = None
        _drop_oldest(self._overruled)
        return item_id

    def use_overruling(self, action: str) -> bool:
        """Whether the user has allowed this very action, which it is for the last time then."""
        if action not in self._overruled:
            return False
        del self._overruled[action]
        return True

    # --- running commands ---

    def over(self, settings: Settings) -> list[RunningProgram]:
        """The commands of earlier epochs that these settings would not allow, each given once, to be ended.

        One that has ended counts while a child that it left behind holds its output open.
        """
        over = [
            session
            for session, started in self._running.items()
            if not session.closed and started.epoch != self.epoch and not _allows(settings, started)
        ]
        for session in over:
            del self._running[session]
            self._ended[session.id] = None
            _drop_oldest(self._ended)
        return over


def _drop_oldest(remembered: dict[Any, Any]) -> None:
    if len(remembered) > _REMEMBERED:
        del remembered[next(iter(remembered))]


def same_authority(one: Settings, other: Settings) -> bool:
    return _authority(one) == _authority(other)


def _authority(settings: Settings) -> tuple[object, ...]:
    where = settings.cwd, settings.environment, settings.remote_roots, settings.others
    return settings.approval_policy, settings.approvals_reviewer, settings.in_force, where, settings.config


def limits_of_parent(settings: Settings, parent: Settings) -> dict[str, Any]:
    """What has to change in the settings of a sub-agent so that it may do no more than its parent may now. Blocking.

    It gets the sandbox of its parent if that is no more than it had, else the same without writing.
    """
    changes: dict[str, Any] = {}
    if settings.approvals_reviewer != parent.approvals_reviewer and parent.approvals_reviewer == "user":
        changes["approvals_reviewer"] = "user"
    asks, wanted = _ASKS.get(str(settings.approval_policy), 0), _ASKS.get(str(parent.approval_policy), len(_ASKS))
    if asks < wanted:
        changes["approval_policy"] = parent.approval_policy
    allowed = parent.sandbox if parent.in_force is parent.confinement else parent.in_force
    if settings.sandbox == allowed and settings.workspace == parent.workspace:
        return changes

    def rules(sandbox: Confinement, of: Settings = settings) -> Policy | None:
        settings = structs.replace(of, sandbox=sandbox, mode="default")
        return _policy(confined_to(settings), settings)

    try:
        outer, own = rules(allowed, parent), rules(settings.sandbox)
        if outer is None or (own is not None and _is_within(own, outer)):
            return changes
        limited = rules(allowed)
        fits = limited is not None and _is_within(limited, outer) and (own is None or _is_within(limited, own))
    except ExecError:  # nobody can tell
        fits = False
    return {**changes, "sandbox": allowed if fits else without_writing(allowed), "profile": None}


def _policy(sandbox: Sandbox | None, settings: Settings) -> Policy | None:
    """What a sandbox of these settings says about files, also on another machine. Blocking. Raises `ExecError`."""
    if settings.remote is None:
        return file_rules(sandbox)
    from treadle.execution.remote_machine import policy_there  # few threads are elsewhere

    return policy_there(sandbox)


def confined_to(settings: Settings) -> Sandbox | None:
    """The sandbox that the settings mean, whatever the machine can enforce."""
    if settings.remote is not None:
        from treadle.execution.sandbox.remote_sandbox import unresolved_sandbox

        return unresolved_sandbox(settings.in_force, settings.cwd, settings.remote_roots, ours=None)
    return sandbox_for(settings.in_force, settings.cwd)


async def turn_sandbox(turn: Turn, settings: Settings | None = None, *, protect: bool = True) -> Sandbox | None:
    """The sandbox of a turn; None for full access. Raises `ExecError` when one of the thread's roots was replaced.

    `settings` are those of what is done in another environment than the first.
    """
    thread, settings = turn.thread, turn.settings if settings is None else settings
    if is_unconfined(settings.in_force):
        return None
    if settings.remote is not None:
        machine = thread.services.machine(settings.remote)
        return await machine.sandbox(settings.in_force, settings.cwd, settings.remote_roots)
    if not thread.pins.covers(settings.confinement, settings.cwd):
        # TMPDIR is another one than in the last server.
        thread.pin(await asyncio.to_thread(pin, settings.confinement, settings.cwd))
    return await pinned_sandbox(settings.in_force, settings.cwd, thread.pins, thread.services.home, protect=protect)


def file_rules(sandbox: Sandbox | None) -> Policy | None:
    """What a sandbox says about files, for what this process does itself. Blocking. Raises `ExecError`."""
    if sandbox is None or sandbox.permissions.file_system is None:
        return policy_from_wire(sandbox)
    # What is protected may not be made either where it is missing: nothing has to be mounted for that.
    entries = tuple(
        structs.replace(entry, missing_path_behavior=None) if entry.access == "read" else entry
        for entry in sandbox.permissions.file_system.entries
    )
    file_system = structs.replace(sandbox.permissions.file_system, entries=entries)
    permissions = structs.replace(sandbox.permissions, file_system=file_system)
    return policy_from_wire(structs.replace(sandbox, permissions=permissions))


async def file_policy(turn: Turn, settings: Settings | None = None) -> Policy | None:
    """What tools may do with files that this process opens for a turn: by its sandbox, also on machines that cannot
    enforce it. Raises `ExecError`."""
    return await asyncio.to_thread(file_rules, await turn_sandbox(turn, settings))


def rules_of(sandbox: Sandbox | None, settings: Settings) -> Policy | None:
    """What a command in this sandbox may do; None is everything. Blocking."""
    try:
        # What is sent to another machine leaves out what that one adds.
        return _policy(sandbox if settings.remote is None or sandbox is None else confined_to(settings), settings)
    except ExecError:  # then it counts as one that may do everything
        return None


def _allows(settings: Settings, started: _Started) -> bool:
    """Fails closed."""
    if settings.approval_policy == "untrusted" and started.settings.approval_policy != "untrusted":
        return False  # it would have been asked for
    try:
        if started.settings.environment != settings.environment:
            place = started.settings.environment
            settings = next(settings.at(each) for each in settings.workplaces if each.environment == place)
        now = _policy(confined_to(settings), settings)
    except (ExecError, StopIteration):
        return False
    return now is None or (started.rules is not None and _is_within(started.rules, now))


def _is_within(inner: Policy, outer: Policy) -> bool:
    """Whether nothing that the inner one allows is forbidden by the outer one."""
    # Access is the same all over the part of a tree that no deeper rule is about, so the paths of the rules are enough.
    paths = {"/", *(rule.path for rule in (*inner.rules, *outer.rules))}
    narrower = all(_RANK[inner.access(path)] <= _RANK[outer.access(path)] for path in paths)
    return narrower and inner.network <= outer.network
