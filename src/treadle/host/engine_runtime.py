"""`EngineRuntime`: turns on any engine that a runner can drive: claude, opencode, pi, codex, our own.

Each turn is one run of the program, which continues the session of the previous run. The runtime owns that session
(`EngineThread`) and the run (`EngineTurn`); `EngineItems` translates what a run says, `engine_fault` why it failed. An
engine has its own tools and its own rules. It gets the host's as an MCP server (`ToolServer`), if it can be given one.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import shutil
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from msgspec.structs import replace as changed

from treadle.agent.event import new_id
from treadle.arguments import limit as seconds_or_none
from treadle.errors import ArgumentValueError, TreadleError
from treadle.host.approver import Ask, AskPerson
from treadle.host.chat_messages import history_text
from treadle.host.faults import (
    BUSY,
    CLOSED,
    NOT_OPEN,
    RETRYABLE,
    Fault,
    FaultKind,
    ResumeFailed,
    RuntimeFault,
    advice,
    clean,
    tail,
)
from treadle.host.runtime import (
    Delta,
    ItemCompleted,
    ItemStarted,
    Notice,
    Opened,
    Opening,
    RuntimeEvent,
    ThreadNamed,
    TurnEnded,
    Usage,
    UsageReported,
    UserInput,
)
from treadle.host.timeouts import TOOL_S
from treadle.host.tool_server import ToolServer
from treadle.runners.engine import ApprovalAnswer, ApprovalAsk, Ending, RunOptions, login_status
from treadle.runners.engine_items import EngineItem, EngineItems, changed_paths, session_key
from treadle.runners.engine_reports import tokens_of, tool_action
from treadle.runners.run_events import CompletedEvent, ResumeToken, StartedEvent
from treadle.runners.runner import Runner
from treadle.secrets import secrets_in

logger: logging.Logger = logging.getLogger(__name__)

PENDING: Final = "pending-"
"""How a thread id begins that stands for a session which the engine has not named yet."""
CLOSE_S: Final = 15.0
"""For an engine to end; it gets a signal and a moment, then it is killed."""
OPTIONS: Final = ("model", "effort", "cwd", "env", "timeouts")
_EMPTY: Final = Fault(kind="refused", message="there is nothing to ask: the input is empty")


class EngineRuntime:
    """Runs turns on an engine.

    Args:
        engine: The name of an engine, such as `claude`, or a runner that has been set up.
        tool_timeout: Seconds that one of the host's own tools may take; None has no limit.
        choices: For an engine by its name, what its runner takes: `command`, `extra_args`, `model`, `effort`, `cwd`,
            `env`, `timeouts`.
    """

    def __init__(self, engine: str | Runner, *, tool_timeout: float | None = TOOL_S, **choices: Any) -> None:
        self._tool_timeout = seconds_or_none(tool_timeout)
        if isinstance(engine, str):
            # Only for an engine by its name: it reads the entry points.
            from treadle.runners.engine_registry import make_runner

            self._runner = make_runner(engine, **choices)
        elif choices:
            raise ArgumentValueError(next(iter(choices)), "a runner is used as it is: give it its choices itself")
        else:
            self._runner = engine
        self._events = TurnEvents()
        self._thread: EngineThread | None = None
        self._turn: EngineTurn | None = None  # the one that ran last
        self._closed = False

    def __repr__(self) -> str:
        return f"<EngineRuntime {self.name}>"

    @property
    def name(self) -> str:
        """The engine."""
        return self._runner.engine.name

    async def open(self, opening: Opening, ask: AskPerson) -> Opened:
        """Say which session it will be. The engine is not started before the first turn."""
        self._check_idle()
        if opening.sandbox is not None:
            problem = f"{self.name} cannot be told a sandbox from here: set it up in its own settings, and leave it out"
            raise RuntimeFault(Fault(kind="refused", message=problem))
        token = None
        if opening.resume is not None:
            if opening.resume.startswith(PENDING) or not self._runner.engine.resume.fits(opening.resume):
                raise ResumeFailed(Fault(kind="refused", message=f"`{opening.resume}` is no session of {self.name}"))
            token = ResumeToken(self.name, opening.resume)
        self._thread = EngineThread(runner=self._runner, opening=opening, ask=ask, token=token)
        self._thread.id = f"{PENDING}{new_id()}" if token is None else token.value
        model = opening.model or self._runner.options.model
        return Opened(thread_id=self._thread.id, model=model, provisional=token is None)

    async def start_turn(self, user_input: UserInput, options: Mapping[str, Any]) -> str:
        """Start a run. `options` are `model`, `effort`, `cwd`, `env` and `timeouts`."""
        self._check_idle()
        if self._thread is None:
            raise RuntimeFault(NOT_OPEN)
        for name in options:
            if name not in OPTIONS:
                problem = f"{self.name} has no option `{name}` for a turn; there are {', '.join(OPTIONS)}"
                raise RuntimeFault(Fault(kind="refused", message=problem))
        prompt = self._thread.prompt(user_input)
        tools: ToolServer | None = None
        if self._thread.opening.tools and self._runner.engine.takes_mcp_servers:
            try:
                tools = ToolServer(self._thread.opening.tools, self._tool_timeout)
            except (OSError, TreadleError) as error:
                message = f"{self.name} cannot be given the tools of the host: {error}"
                raise RuntimeFault(Fault(kind="other", message=message)) from None
        self._events.begin()
        self._turn = EngineTurn(self._thread, self._events, prompt, RunOptions(**options), tools)
        return self._turn.id

    async def next_event(self) -> RuntimeEvent:
        """The next event of the turn. Cancelling the wait loses nothing."""
        return await self._events.next()

    async def interrupt(self) -> None:
        """Have the turn that runs stop in its own way; its end is an event."""
        if (turn := self._running()) is not None:
            turn.interrupt()

    async def steer(self, text: str) -> bool:
        """False: an engine that runs takes no input."""
        return False

    async def probe(self) -> None:
        """Come back when the engine is there and not stopped, or when none runs."""
        if self._closed:
            raise RuntimeFault(CLOSED)
        if (turn := self._running()) is not None:
            await turn.probe()

    async def compact(self) -> bool:
        """An engine sums up by itself, when it wants to."""
        return False

    async def close(self) -> None:
        """End the engine, with all that it started."""
        if self._closed:
            return
        self._closed = True
        self._events.close(CLOSED)
        if self._turn is not None:
            self._turn.task.cancel()
            _, left = await asyncio.wait([self._turn.task], timeout=CLOSE_S)
            if left:
                logger.warning("%s did not end within %g s", self.name, CLOSE_S)
            if self._turn.tools is not None:  # one that was cancelled before it began has not closed them
                await self._turn.tools.close()

    def _running(self) -> EngineTurn | None:
        return None if self._turn is None or self._turn.task.done() else self._turn

    def _check_idle(self) -> None:
        if self._closed:
            raise RuntimeFault(CLOSED)
        if self._running() is not None:
            raise RuntimeFault(BUSY)


# --- the session of an engine ----------------------------------------------------------------------------------------


@dataclass(slots=True)
class EngineThread:
    """What lasts from turn to turn. `token` is None until the engine has named its session."""

    runner: Runner
    opening: Opening
    ask: AskPerson
    token: ResumeToken | None
    id: str = ""
    total: Usage | None = None
    allowed: set[tuple[str, ...]] = field(default_factory=set)
    told_of_tools: bool = False

    @property
    def name(self) -> str:
        return self.runner.engine.name

    def prompt(self, user_input: UserInput) -> str:
        """What the engine is asked; in a new session, after what it has to know. Raises `RuntimeFault`."""
        texts = [user_input] if isinstance(user_input, str) else [self._text(part) for part in user_input]
        asked = "\n\n".join(text for text in texts if text)
        if not asked.strip():
            raise RuntimeFault(_EMPTY)
        if self.token is not None:
            return asked
        instructions = (self.opening.instructions or "").strip()
        seed = history_text(self.opening.history)
        before = [f"<instructions>\n{instructions}\n</instructions>"] if instructions else []
        before += [f"<conversation>\n{seed}\n</conversation>"] if seed else []
        return "\n\n".join([*before, asked])

    def _text(self, part: Mapping[str, Any]) -> str:
        """A part of what the user says. An engine is given words alone."""
        match part:
            case {"type": "text", "text": str(text)}:
                return text
            case {"type": "image_url", "image_url": {"url": str()}}:
                return f"[An image was attached. {self.name} cannot be shown images]"
            case {"type": "local_image", "path": path}:
                return f"[An image was attached. {self.name} cannot be shown it, but it is the file {path}]"
        shown = part.get("type") if isinstance(part, Mapping) else type(part).__name__
        problem = f"a part of the input is not understood ({shown!r}): it is text, image_url or local_image"
        raise RuntimeFault(Fault(kind="refused", message=problem))

    def count(self, used: dict[str, Any]) -> Usage:
        """Add a run to the total, and give that. What an engine counts for its whole session is the total itself."""
        whole = used.get("scope") == "session"
        before = Usage(cost_usd=0.0) if whole or self.total is None else self.total
        sums = {name: getattr(before, name) + more for name, more in tokens_of(used).items()}
        cost = used.get("cost_usd")
        known = isinstance(cost, int | float) and before.cost_usd is not None
        self.total = Usage(
            **sums,
            cost_usd=(before.cost_usd or 0.0) + float(cost or 0.0) if known else None,
        )
        return self.total


# --- a run -----------------------------------------------------------------------------------------------------------

# How often a process that was stopped is looked at again.
_LOOK_S: Final = 0.05


class EngineTurn:
    """A run that goes from the moment it is made.

    Args:
        thread: Whose turn it is.
        events: Where its events go; the last is a `TurnEnded`.
        prompt: What the engine is asked.
        options: What is different in this run.
        tools: Serves the host's tools to the engine, if there are any; it is closed at the end of the run.
    """

    def __init__(
        self, thread: EngineThread, events: TurnEvents, prompt: str, options: RunOptions, tools: ToolServer | None
    ) -> None:
        self.tools: ToolServer | None = tools
        self.id: str = new_id()
        self._thread = thread
        self._events = events
        asks = thread.runner.engine.answer is not None and thread.runner.options.approve is None
        opening = thread.opening
        self._options = options.over(
            RunOptions(
                model=opening.model,
                cwd=opening.cwd,
                approve=self._approve if asks else None,
                mcp_servers=() if tools is None else (tools.command,),
            )
        )
        self._cwd = os.path.abspath(os.path.expanduser(self._options.cwd or thread.runner.options.cwd or "."))
        self._interrupted = self._started = False
        self._run = thread.runner.run(prompt, thread.token, self._options)
        self.task: asyncio.Task[None] = asyncio.create_task(self._follow(), name=f"turn {self.id}")

    def interrupt(self) -> None:
        """Ask the engine to stop; its end is an event."""
        self._interrupted = True
        self._run.cancel()

    # --- the run ---

    async def _follow(self) -> None:
        thread = self._thread
        happened: deque[RuntimeEvent] = deque()
        items = EngineItems(self.id, self._cwd, _EventSink(happened))
        if thread.opening.tools and self.tools is None and not thread.told_of_tools:
            thread.told_of_tools = True
            names = ", ".join(tool.name for tool in thread.opening.tools)
            own_tools = f"{thread.name} knows no MCP servers, so it cannot be given the tools of the host ({names})."
            self._events.put_now(Notice(own_tools, keep=True))
        ended = TurnEnded("failed", Fault(kind="other", message=f"{thread.name} ended without an answer"))
        try:
            if self.tools is not None:
                await self.tools.start()
            async for event in self._run:
                if isinstance(event, StartedEvent):
                    self._started = True
                    thread.token, thread.id = event.resume, event.resume.value
                    happened.append(ThreadNamed(thread.id))
                items.receive(event)
                while happened:
                    await self._events.put(happened.popleft())
                if isinstance(event, CompletedEvent):
                    ended = await self._ended(event)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            logger.exception("a run of %s failed", thread.name)
            message = f"the run of {thread.name} failed: {type(error).__name__}: {error}"
            ended = TurnEnded("failed", Fault(kind="other", message=message))
        finally:
            try:
                await self._run.aclose()
            finally:
                if self.tools is not None:
                    await self.tools.close()
        self._events.put_now(ended)

    async def _ended(self, event: CompletedEvent) -> TurnEnded:
        if event.resume is not None and self._thread.token is None:
            self._thread.token, self._thread.id = event.resume, event.resume.value
            await self._events.put(ThreadNamed(event.resume.value))
        if event.usage:
            await self._events.put(UsageReported(self._thread.count(event.usage)))
        if event.ok:
            return TurnEnded("completed")
        if self._interrupted:
            return TurnEnded("interrupted")
        thread, engine, ending = self._thread, self._thread.runner.engine, self._run.ending
        environ = {**os.environ, **(thread.runner.options.env or {}), **(self._options.env or {})}
        program = thread.runner.command[0]
        if ending is None and self._run.pid is None and shutil.which(program, path=environ.get("PATH")) is None:
            message = f"{engine.name} is not installed: there is no program {program}"
            return TurnEnded(
                "failed", Fault(kind="missing", message=message, advice=f"Install it with: {engine.install}")
            )
        fault = engine_fault(
            engine.name,
            event.error or f"{engine.name} failed",
            ending=ending,
            stderr=self._run.stderr,
            secrets=secrets_in(environ),
            log_in=engine.log_in,
            no_login=login_status(engine, environ).ok is False,
            lost_session=thread.token is not None and not self._started,
        )
        return TurnEnded("failed", fault)

    # --- questions ---

    async def _approve(self, asked: ApprovalAsk) -> ApprovalAnswer:
        given = dict(asked.input)
        action = tool_action(asked.id, asked.tool, given, self._cwd)
        ask = Ask(
            kind="tool",
            title=action.title,
            cwd=self._cwd,
            tool=asked.tool,
            thread_id=self._thread.id,
            turn_id=self.id,
            detail=dict(asked.detail) or given,
        )
        command, key = given.get("command"), session_key(asked.tool, action.kind, given)
        if action.kind == "command" and isinstance(command, str):
            ask = changed(ask, kind="command", command=command)
        elif action.kind == "file_change":
            ask = changed(ask, kind="patch", paths=changed_paths(given))
        if key in self._thread.allowed:
            return ApprovalAnswer(allow=True)
        choice = await self._thread.ask(ask)
        if choice == "session" and key is not None:
            self._thread.allowed.add(key)
        if choice in ("once", "session"):
            return ApprovalAnswer(allow=True)
        return ApprovalAnswer(allow=False, message="the user does not want this")

    # --- life ---

    async def probe(self) -> None:
        """Come back when the process is not stopped, or gone, or not there yet: its end is an event."""
        while (pid := self._run.pid) is not None:
            if not _is_stopped(pid):
                return
            await asyncio.sleep(_LOOK_S)


class _EventSink:
    """The items of a run as events of the turn."""

    def __init__(self, events: deque[RuntimeEvent]) -> None:
        self._events = events

    def started(self, item: EngineItem) -> None:
        self._events.append(ItemStarted(item))

    def grown(self, message_id: str, text: str) -> None:
        self._events.append(Delta(message_id, text))

    def completed(self, item: EngineItem) -> None:
        self._events.append(ItemCompleted(item))

    def notice(self, text: str) -> None:
        self._events.append(Notice(text))


def _is_stopped(pid: int) -> bool:
    """Whether a process was stopped (SIGSTOP); only where the system tells."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read(4096).rpartition(b")")[2].split()[0] in (b"T", b"t")
    except (OSError, IndexError):
        return False


# --- events ----------------------------------------------------------------------------------------------------------

MAX_EVENTS: Final = 1024
MAX_DELTA: Final = 64 << 10
"""Characters of one joined delta."""


class TurnEvents:
    """The events of the turn that was started last. For one event loop; one reads, and the turn writes."""

    def __init__(self) -> None:
        self._events: deque[RuntimeEvent] = deque()
        self._there = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._closed: Fault | None = None

    def begin(self) -> None:
        """A turn begins: what was not read of the one before is not wanted any more."""
        self._events.clear()
        self._there.clear()
        self._room.set()

    async def put(self, event: RuntimeEvent) -> None:
        """Add an event, as soon as there is room for it."""
        last = self._events[-1] if self._events else None
        if isinstance(event, Delta) and isinstance(last, Delta):
            same = last.item_id == event.item_id and last.kind == event.kind
            if same and len(last.text) + len(event.text) <= MAX_DELTA:
                self._events[-1] = Delta(last.item_id, last.text + event.text, last.kind)
                return
        await self._room.wait()
        self._add(event)

    def put_now(self, event: RuntimeEvent) -> None:
        """Add an event that cannot wait: of a callback, or one that ends something. There are few of them."""
        self._add(event)

    def _add(self, event: RuntimeEvent) -> None:
        self._events.append(event)
        self._there.set()
        if len(self._events) >= MAX_EVENTS:
            self._room.clear()

    async def next(self) -> RuntimeEvent:
        """The next event. Raises `RuntimeFault` when there will be none any more."""
        while not self._events:
            if self._closed is not None:
                raise RuntimeFault(self._closed)
            self._there.clear()
            await self._there.wait()
        event = self._events.popleft()
        if len(self._events) < MAX_EVENTS:
            self._room.set()
        return event

    def close(self, fault: Fault) -> None:
        """End the stream: who waits for an event gets this fault instead."""
        self._events.clear()
        self._closed = fault
        self._there.set()
        self._room.set()


# --- failures --------------------------------------------------------------------------------------------------------

_WORDS: Final[dict[FaultKind, str]] = {
    "auth": r"\b401\b|unauthori[sz]ed|authentication|not logged in|/login\b|invalid (x-)?api[ -]?key"
    r"|no api key|there is no key|needs the environment variable|token (has )?expired",
    "usage_limit": r"\b402\b|usage limit|insufficient_quota|quota .*(used up|exceeded)|credit balance|hit your limit",
    "context_window": r"context window|context length|context_length_exceeded|prompt is too long",
    "rate_limited": r"\b429\b|rate.?limit|too many requests",
    "overloaded": r"\b(529|503)\b|overloaded|no free capacity",
    "model_not_found": r"\bmodel\b.*(not found|does not exist|not available|may not exist)|not_found_error",
    "network": r"ECONNREFUSED|ENOTFOUND|connection (error|refused)|unable to connect|fetch failed|stream disconnected",
}
_PATTERNS: Final = {kind: re.compile(words, re.IGNORECASE) for kind, words in _WORDS.items()}


def engine_fault(
    engine: str,
    error: str,
    *,
    ending: Ending | None,
    stderr: str = "",
    secrets: list[str] | None = None,
    log_in: str | None = None,
    no_login: bool = False,
    lost_session: bool = False,
) -> Fault:
    """What a run has failed of.

    Args:
        engine: Its name.
        error: Why, as the run reported it.
        ending: How its process ended, if there was one.
        stderr: The last of what it wrote there.
        secrets: Values that must not be shown.
        log_in: What a person types to log in.
        no_login: Whether the engine has no login, as far as one can see.
        lost_session: Whether it was to go on with a session and did not even find it: it never will.
    """
    hidden = secrets or []
    message, last = clean(error, hidden), tail(stderr, hidden)
    code = None if ending is None else ending.exit_code
    if ending is not None and ending.stopped is not None:
        return Fault(kind="deadline", message=message, exit_code=code, stderr_tail=last)
    killed = code is not None and code > 128
    # What a program that was killed had written before is not the reason.
    text = error if killed or code in (0, None) else f"{error}\n{stderr}"
    kind = next((kind for kind, pattern in _PATTERNS.items() if pattern.search(text)), None)
    if kind is not None:
        what_to_do = f"Log in: {log_in}" if kind == "auth" and log_in else advice(kind, message)
        return Fault(
            kind=kind, message=message, advice=what_to_do, retryable=kind in RETRYABLE, exit_code=code, stderr_tail=last
        )
    # A guess, so it does not decide what happened; and a program that was killed did not ask for a login.
    what_to_do = f"There seems to be no login; log in: {log_in}" if no_login and log_in and not killed else ""
    if code in (0, None):
        return Fault(
            kind="startup" if ending is None else "other", message=message, advice=what_to_do, stderr_tail=last
        )
    if lost_session:
        what_to_do = f"The session of {engine} cannot be continued; the next turn begins a new one."
    if killed and code is not None:
        message = f"{message} It was killed by signal {code - 128}."
    return Fault(
        kind="dead", message=message, advice=what_to_do, replace_runtime=lost_session, exit_code=code, stderr_tail=last
    )
