"""`Engine`: the extension point for agent programs. Data and pure functions; `Runner` has the lifecycle of all of them.

A run of an engine is a process that gets a prompt on its standard input and prints a JSON object per line. An engine
says how it is called, what its lines mean and how to stop it. What it must remember during a run is in a state of its
own, made by `start`; nothing here waits, reads a clock or touches a file.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeAlias, TypedDict, TypeVar

from treadle.protocol.exec import SignalName
from treadle.runners.resume import ResumeLine
from treadle.runners.run_events import CompletedEvent, Event, ResumeToken

S = TypeVar("S")


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """How long a run may take, in seconds. None: as the engine's default says, or the runner's.

    Args:
        total: From its start to its end.
        idle: Without a line from the engine, unless it has said that it waits.
        linger: From the engine's last word to the end of its process.
        grace: From the first signal to KILL, when it is cancelled.
    """

    total: float | None = None
    idle: float | None = None
    linger: float | None = None
    grace: float | None = None

    def over(self, base: Timeouts) -> Timeouts:
        """These where they are given, else those of `base`."""
        return Timeouts(
            total=base.total if self.total is None else self.total,
            idle=base.idle if self.idle is None else self.idle,
            linger=base.linger if self.linger is None else self.linger,
            grace=base.grace if self.grace is None else self.grace,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalAsk:
    """An engine asks whether it may use a tool.

    Args:
        id: The engine's number for the question.
        tool: The tool's name.
        input: What it would be called with.
        detail: The question as the engine put it.
    """

    id: str
    tool: str
    input: Mapping[str, Any]
    detail: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalAnswer:
    """What is answered to an `ApprovalAsk`.

    Args:
        allow: Whether it may.
        message: Why not; the engine's model reads it.
        input: What to call it with instead.
    """

    allow: bool
    message: str = ""
    input: Mapping[str, Any] | None = None


Approve: TypeAlias = Callable[[ApprovalAsk], Awaitable[ApprovalAnswer | bool]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """What can differ from run to run. What is not given is as the runner was made.

    Args:
        model: The engine's name for the model.
        effort: How hard it thinks, in the engine's own words.
        cwd: Where it works.
        env: Environment variables on top of the inherited ones.
        timeouts: How long it may take.
        approve: Asked before a tool is used, by engines that can ask; without it the engine decides by its own rules.
    """

    model: str | None = None
    effort: str | None = None
    cwd: str | os.PathLike[str] | None = None
    env: Mapping[str, str] | None = None
    timeouts: Timeouts | None = None
    approve: Approve | None = None

    def over(self, base: RunOptions) -> RunOptions:
        """These where they are given, else those of `base`; environments are laid over each other."""
        return RunOptions(
            model=base.model if self.model is None else self.model,
            effort=base.effort if self.effort is None else self.effort,
            cwd=base.cwd if self.cwd is None else self.cwd,
            env={**(base.env or {}), **(self.env or {})},
            timeouts=(self.timeouts or Timeouts()).over(base.timeouts or Timeouts()),
            approve=base.approve if self.approve is None else self.approve,
        )


class RunChoices(TypedDict, total=False):
    """The same as keyword arguments, as every runner takes them."""

    model: str | None
    effort: str | None
    cwd: str | os.PathLike[str] | None
    env: Mapping[str, str] | None
    timeouts: Timeouts | None
    approve: Approve | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """All that is known about a run before it starts.

    Args:
        prompt: What is asked.
        resume: The session that it continues, if it does.
        options: What was chosen for it.
        extra_args: Words that the user adds to the command line.
        cwd: Where it works, as an absolute path.
        carried: What `Engine.carry` gave at the end of the session's last run, if that is known.
    """

    prompt: str
    resume: ResumeToken | None = None
    options: RunOptions = RunOptions()
    extra_args: Sequence[str] = ()
    cwd: str = ""
    carried: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How the process ended.

    Args:
        exit_code: Its code; 128 + n for death by signal n, None when it was lost.
        stopped: Why it was stopped from here before it was done (a deadline, a cancellation), if it was.
        lines: How many lines it printed.
        limit: The limit of the run that it was stopped for, by its name in `Timeouts`, if it was.
    """

    exit_code: int | None
    stopped: str | None = None
    lines: int = 0
    limit: Literal["idle", "total"] | None = None


@dataclass(frozen=True, slots=True)
class CloseInput:
    """The engine has been told all: its standard input can be closed."""


@dataclass(frozen=True, slots=True)
class Reply:
    """Bytes for the engine's standard input: it asked something that the engine's own code can answer."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """The engine does not want an answer to this `ApprovalAsk` any more."""

    id: str


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The engine goes round in circles: it is stopped, and the run has failed for this reason."""

    reason: str


@dataclass(frozen=True, slots=True)
class Waits:
    """The engine has said that it waits for something, such as its turn at a provider: up to its next line, silence is
    what it has announced."""


Output: TypeAlias = Event | ApprovalAsk | Withdrawn | Reply | CloseInput | GiveUp | Waits


def plain_prompt(request: RunRequest) -> bytes:
    """The prompt itself, as most engines read it."""
    return request.prompt.encode("utf-8", "replace")


def input_ends(request: RunRequest) -> bool:
    """The prompt is all that is written."""
    return False


def find_flag(words: Sequence[str], flags: frozenset[str]) -> str | None:
    """The first word that is one of these options, as it was given."""
    return next((word for word in words if word.partition("=")[0] in flags), None)


def nothing_carried(state: object) -> None:
    """Nothing is remembered from run to run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine(Generic[S]):
    """A program that can run a turn.

    Args:
        name: What it is called, in lower case.
        program: The command that is run, when the user does not name another.
        install: What a person types to get it.
        arguments: The command line after the program.
        start: The state of a new run.
        translate: A line, without its end, to what it means: events, questions, or nothing. A `CompletedEvent` is kept
            until the process has ended; the last one counts.
        finish: The end of the process to the last events: what is still to be said, and exactly one `CompletedEvent`.
            It gets the `CompletedEvent` that `translate` gave last, if it gave one.
        resume: How its sessions are written for people.
        first_signal: What ends it in order.
        timeouts: What is usual for it.
        prompt: What is written to its standard input first.
        keeps_input_open: Whether more is written after that, until `translate` gives `CloseInput`.
        answer: What is written to answer a question; None for an engine that cannot ask.
        own_flags: Options that are the runner's, and that the user cannot add.
        carry: What the session's next run gets as `RunRequest.carried`; plain JSON values.
        env: Variables that it needs, under those of the user.
        drop_env: Variables that it must not inherit.
        version_args: How it is asked for its version.
    """

    name: str
    program: str
    install: str
    arguments: Callable[[RunRequest], list[str]]
    start: Callable[[RunRequest], S]
    translate: Callable[[S, bytes], Iterable[Output]]
    finish: Callable[[S, Ending, CompletedEvent | None], Iterable[Event]]
    resume: ResumeLine
    first_signal: SignalName = "terminate"
    timeouts: Timeouts = Timeouts()
    prompt: Callable[[RunRequest], bytes] = plain_prompt
    keeps_input_open: Callable[[RunRequest], bool] = input_ends
    answer: Callable[[ApprovalAsk, ApprovalAnswer], bytes] | None = None
    own_flags: frozenset[str] = frozenset()
    carry: Callable[[S], Mapping[str, Any] | None] = nothing_carried
    env: Mapping[str, str] = field(default_factory=dict)
    drop_env: Sequence[str] = ()
    version_args: Sequence[str] = ("--version",)
