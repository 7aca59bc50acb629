"""`Engine`: the extension point for agent programs. Data and pure functions; `Runner` has the lifecycle of all of them.

A run of an engine is a process that gets a prompt on its standard input and prints a JSON object per line. An engine
says how it is called, what its lines mean and how to stop it. What it needs to know during a run is in a state of its
own, made by `start`. Nothing here waits or reads a clock. `Engine.login` may read files; `arguments` and `prompt` may
read those that the options of the run name.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final, Generic, Literal, TypeAlias, TypedDict, TypeVar

from treadle.arguments import option_value, path, seconds, text, texts, variables, words
from treadle.errors import ArgumentValueError, TreadleError
from treadle.protocol.exec import Sandbox, SignalName
from treadle.runners.logins import LoginStatus, unknown_login
from treadle.runners.run_events import CompletedEvent, Event, ResumeToken

logger: Final = logging.getLogger(__name__)

S = TypeVar("S")

_MCP_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """How long a run may take, in seconds. None: as the engine's default says, or the runner's. `math.inf`: no limit.

    Args:
        total: From its start to its end.
        idle: Without a line from the engine, unless it reported that it waits.
        linger: From the engine's last word to the end of its process.
        grace: From the first signal to KILL, when it is cancelled.
    """

    total: float | None = None
    idle: float | None = None
    linger: float | None = None
    grace: float | None = None

    def __post_init__(self) -> None:
        for each in fields(self):
            if (value := getattr(self, each.name)) is not None:
                object.__setattr__(self, each.name, seconds(each.name, value))

    def over(self, base: Timeouts) -> Timeouts:
        """These limits where they are given, else those of `base`."""
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
        early: Whether it is one of `RunOptions.watch`: after a yes the engine's own rules decide.
    """

    id: str
    tool: str
    input: Mapping[str, Any]
    detail: Mapping[str, Any] = field(default_factory=dict)
    early: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalAnswer:
    """The answer to an `ApprovalAsk`.

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
class McpCommand:
    """An MCP server that an engine is to start and use in a run, besides those of its own settings.

    Args:
        name: What it is called: letters, digits and `_`.
        command: The program and its arguments.
        tools: The names of its tools, which the engine may use without asking.
    """

    name: str
    command: Sequence[str]
    tools: Sequence[str] = ()

    def __post_init__(self) -> None:
        # Engines get them on their command line, where a comma separates tools.
        for word in (text("name", self.name), *texts("tools", self.tools)):
            if not _MCP_NAME.fullmatch(word):
                problem = f"{word!r} is no name of an MCP server or of a tool: use letters, digits, `_` and `-`"
                raise ArgumentValueError("name" if word == self.name else "tools", problem)
        if not words("command", self.command):
            raise ArgumentValueError("command", "the command is empty: name the program of the server")


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
        watch: Asked before every call of a tool, also one that the engine allows by its own rules, which decide after
            a yes; for engines that `watched` says it of.
        mcp_servers: MCP servers for this run, for engines that can be given some.
        sandbox: What the engine and all that it starts may touch; without it, what the user may.
        images: Files with pictures for the prompt, for engines that can be given some.
        output_schema: A file with a JSON Schema that the answer has to fit, for engines that can promise that.
    """

    model: str | None = None
    effort: str | None = None
    cwd: str | os.PathLike[str] | None = None
    env: Mapping[str, str] | None = None
    timeouts: Timeouts | None = None
    approve: Approve | None = None
    watch: Approve | None = None
    mcp_servers: Sequence[McpCommand] = ()
    sandbox: Sandbox | None = None
    images: Sequence[str | os.PathLike[str]] = ()
    output_schema: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        # Engines get them on their command line.
        for name in ("model", "effort"):
            if getattr(self, name) is not None:
                option_value(name, getattr(self, name))
        for name, given in (("cwd", self.cwd), ("output_schema", self.output_schema)):
            if given is not None:
                path(name, given)
        object.__setattr__(self, "images", tuple(path("images", image) for image in self.images))
        if self.env is not None:
            variables("env", self.env)

    def over(self, base: RunOptions) -> RunOptions:
        """These options where they are given, else those of `base`; environments are laid over each other."""
        return RunOptions(
            model=base.model if self.model is None else self.model,
            effort=base.effort if self.effort is None else self.effort,
            cwd=base.cwd if self.cwd is None else self.cwd,
            env={**(base.env or {}), **(self.env or {})},
            timeouts=(self.timeouts or Timeouts()).over(base.timeouts or Timeouts()),
            approve=base.approve if self.approve is None else self.approve,
            watch=base.watch if self.watch is None else self.watch,
            mcp_servers=(*base.mcp_servers, *self.mcp_servers),
            sandbox=base.sandbox if self.sandbox is None else self.sandbox,
            images=self.images or base.images,
            output_schema=base.output_schema if self.output_schema is None else self.output_schema,
        )


class RunChoices(TypedDict, total=False):
    """`RunOptions` as keyword arguments, as every runner takes them."""

    model: str | None
    effort: str | None
    cwd: str | os.PathLike[str] | None
    env: Mapping[str, str] | None
    timeouts: Timeouts | None
    approve: Approve | None
    watch: Approve | None
    mcp_servers: Sequence[McpCommand]
    sandbox: Sandbox | None
    images: Sequence[str | os.PathLike[str]]
    output_schema: str | os.PathLike[str] | None


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
    """The engine has got everything: its standard input can be closed."""


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
    """The engine waits for something, such as its turn at a provider: its silence up to its next line is no failure."""


Output: TypeAlias = Event | ApprovalAsk | Withdrawn | Reply | CloseInput | GiveUp | Waits


UUID: Final = r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"


@dataclass(frozen=True, slots=True)
class ResumeLine:
    """How sessions of one engine are written for people, and found again in what they send back.

    The line is what a person would type to continue in the engine's own program, so that the chat text is all the
    memory a bot needs. It stands alone on its line; the last one counts.

    Args:
        engine: Whose it is.
        written: The line, with `{}` for the id, such as `codex resume {}`.
        read: The words before the id, as a regular expression that also knows other ways to write them.
        shape: What an id looks like, as a regular expression. Nothing that begins with `-` is ever one.
    """

    engine: str
    written: str
    read: str
    shape: str = UUID
    _line: re.Pattern[str] = field(init=False, repr=False)
    _value: re.Pattern[str] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        line = rf"^[ \t]*`?(?:{self.read})[ \t]+(?P<quote>[\"']?)(?P<value>{self.shape})(?P=quote)`?[ \t]*\r?$"
        object.__setattr__(self, "_line", re.compile(line, re.IGNORECASE | re.MULTILINE))
        object.__setattr__(self, "_value", re.compile(self.shape))

    def fits(self, value: str) -> bool:
        """Whether a text has the shape of an id."""
        return not value.startswith("-") and self._value.fullmatch(value) is not None

    def format(self, token: ResumeToken) -> str:
        """The line, in backticks. Raises `ArgumentValueError` for a token of another engine."""
        if token.engine != self.engine:
            problem = f"this is a session of {token.engine}, not of {self.engine}: {token.value}"
            raise ArgumentValueError("token", problem)
        return f"`{self.written.format(token.value)}`"

    def extract(self, text: str | None) -> ResumeToken | None:
        """The session of the last such line in a text."""
        lines = self.find(text or "")
        return lines[-1][2] if lines else None

    def find(self, text: str) -> list[tuple[int, int, ResumeToken]]:
        """All such lines: where each begins, where it ends (without its line end), and the session that it names."""
        return [
            (match.start(), match.end(), ResumeToken(self.engine, match["value"]))
            for match in self._line.finditer(text)
            if self.fits(match["value"])
        ]


def plain_prompt(request: RunRequest) -> bytes:
    """The prompt itself, as most engines read it."""
    return request.prompt.encode()


def input_ends(request: RunRequest) -> bool:
    """The prompt is all that is written."""
    return False


def nothing_set(request: RunRequest, environ: Mapping[str, str]) -> Mapping[str, str]:
    """The engine needs no variables for a run."""
    return {}


def find_flag(words: Sequence[str], flags: frozenset[str]) -> str | None:
    """The first word that is one of these options, as it was given."""
    return next((word for word in words if word.partition("=")[0] in flags), None)


def no_places(environ: Mapping[str, str]) -> Sequence[str]:
    """The engine writes nothing outside of the project."""
    return ()


def nothing_carried(state: object) -> None:
    """The engine carries nothing from run to run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine(Generic[S]):
    """A program that can run a turn.

    Args:
        name: What it is called, in lower case.
        program: The command that is run, when the user does not name another.
        install: What a person types to get it.
        arguments: The command line after the program.
        start: The state of a new run.
        translate: A line, without its end, to what it means: events, questions, or nothing. A `CompletedEvent` is held
            until the process has ended; the last one counts.
        finish: The end of the process to the last events: what is still to report, and exactly one `CompletedEvent`. It
            gets the `CompletedEvent` that `translate` gave last, if it gave one.
        resume: How its sessions are written for people.
        first_signal: What ends it in order.
        timeouts: What is usual for it.
        prompt: What is written to its standard input first.
        keeps_input_open: Whether more is written after that, until `translate` gives `CloseInput`.
        answer: What is written to answer a question; None for an engine that cannot ask.
        own_flags: Options that are the runner's, and that the user cannot add.
        carry: What the session's next run gets as `RunRequest.carried`; plain JSON values.
        env: Variables that it needs, under those of the user.
        run_env: Variables of one run, over those of the user; it gets the environment without them.
        watched: Whether it asks before every call (`RunOptions.watch`).
        takes_mcp_servers: Whether `arguments` or `run_env` tells it of `RunOptions.mcp_servers`.
        takes_images: Whether `arguments` or `prompt` gives it `RunOptions.images`.
        takes_schema: Whether `arguments` tells it of `RunOptions.output_schema`.
        drop_env: Variables that it must not inherit.
        version_args: How it is asked for its version.
        orders: Names at the top of a project from which it takes orders without asking (hooks, settings, plug-ins,
            servers of tools): commands of Treadle's own agent that may write the project cannot change them.
        own_places: What it writes outside of the project, in an environment: settings, login, sessions. It stays open
            to the engine in a sandbox; what is missing is made, as a folder.
        login: Whether it has a login in an environment; see `look_for_login`. It may read files and sends nothing.
        log_in: What a person types to log in.
        tested: The version that it was tried with; older ones may print lines that are not understood.
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
    run_env: Callable[[RunRequest, Mapping[str, str]], Mapping[str, str]] = nothing_set
    watched: bool = False
    takes_mcp_servers: bool = False
    takes_images: bool = False
    takes_schema: bool = False
    drop_env: Sequence[str] = ()
    version_args: Sequence[str] = ("--version",)
    orders: Sequence[str] = ()
    own_places: Callable[[Mapping[str, str]], Sequence[str | os.PathLike[str]]] = no_places
    login: Callable[[Mapping[str, str]], LoginStatus] = unknown_login
    log_in: str | None = None
    tested: str | None = None


def login_status(engine: Engine[Any], environ: Mapping[str, str]) -> LoginStatus:
    """The login of an engine; one whose code fails, which may be another package's, is unknown.

    Args:
        engine: The engine.
        environ: The environment that it would run in.
    """
    try:
        return engine.login(environ)
    except Exception:
        logger.exception("the login of %s could not be looked for", engine.name)
        return LoginStatus(None)


class UnknownEngine(TreadleError):
    """An engine that does not exist, or cannot be loaded: `name` and `reason`."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(reason)
        self.name = name
        self.reason = reason
